/* page_kit.c: runs the web examples behind a real nginx. */
#include "page_kit.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
  STEP_MS = 5,
  PATIENCE_MS = 40000,
  LINES = 24,
  TEXT = 8192,
  PATIENT_STEPS = PATIENCE_MS / STEP_MS
};

static const char GATED[] =
    "echo edition $(wc -l <%FOLDER%/count); until [ -e %FOLDER%/open ]; do sleep 0.02; done";

const char *page_kit_folder(const page_kit *kit) { return kit->servers[0].folder; }

/* `text` with its %WORDS% replaced; owned by the caller. */
static char *filled(const page_kit *kit, const char *text) {
  char *ret = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&ret, &size);
  if (out == NULL) server_process_die("page_kit", "open_memstream");
  while (*text != '\0') {
    if (strncmp(text, "%FOLDER%", 8) == 0) {
      fputs(page_kit_folder(kit), out);
      text += 8;
    } else if (strncmp(text, "%GATED%", 7) == 0) {
      char *gated = filled(kit, GATED);
      fputs(gated, out);
      free(gated);
      text += 7;
    } else {
      fputc(*text++, out);
    }
  }
  fclose(out);
  return ret;
}

static int is_cgi(const page_kit *kit) { return kit->way == PAGE_CGI || kit->way == PAGE_CGI_HERD; }

/* The path of an example's program, relative to the folder of the test's program. */
static void find_example(const char *name, char path[SERVER_PROCESS_PATH]) {
  char self[SERVER_PROCESS_PATH - 64];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0) server_process_die("page_kit", "/proc/self/exe");
  self[n] = '\0';
  for (int i = 0; i < 2; i++) *strrchr(self, '/') = '\0';
  snprintf(path, SERVER_PROCESS_PATH, "%s/examples/%s", self, name);
  if (access(path, X_OK) != 0) server_process_die("page_kit", path);
}

/* ---- servers ------------------------------------------------------------------------------- */

static void socket_of(const page_kit *kit, int number, char path[96]) {
  snprintf(path, 96, "%s/socket-%d", page_kit_folder(kit), number);
}

static void launch_cgi(page_kit *kit, const char *fcgiwrap) {
  char *script = NULL, path[96];
  socket_of(kit, 0, path);
  /* fcgiwrap doesn't end its children, so all of them form a process group that ends with the
   * shell. */
  if (asprintf(&script, "trap 'kill -9 0' TERM; %s -c %d -s unix:%s & wait", fcgiwrap,
               kit->way == PAGE_CGI ? PAGE_FEW : PAGE_CHILDREN, path) < 0)
    abort();
  server_process_add_args(&kit->servers[0],
                          (const char *const[]){"/usr/bin/setsid", "sh", "-c", script, NULL});
  free(script);
}

static void launch_fastcgi(page_kit *kit, int number, const char *spawner, char **variables,
                           int count) {
  char program[SERVER_PROCESS_PATH], path[96];
  find_example("example_fastcgi", program);
  socket_of(kit, number, path);
  server_process_add_arg(&kit->servers[number], "/usr/bin/env");
  for (int i = 0; i < count; i++) server_process_add_arg(&kit->servers[number], variables[i]);
  server_process_add_args(&kit->servers[number],
                          (const char *const[]){spawner, "-n", "-s", path, "--", program, NULL});
}

static int listens(void *arg) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  snprintf(at.sun_path, sizeof at.sun_path, "%s", (const char *)arg);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int is_there = fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0;
  if (fd >= 0) close(fd);
  return is_there;
}

static char *config(const page_kit *kit, char **variables, int count) {
  char *ret = NULL, cgi[SERVER_PROCESS_PATH], path[96];
  size_t size = 0;
  FILE *out = open_memstream(&ret, &size);
  if (out == NULL) server_process_die("page_kit", "open_memstream");
  fputs("upstream pages {\n", out);
  for (int i = 0; i < kit->count; i++) {
    socket_of(kit, i, path);
    fprintf(out, "server unix:%s%s;\n", path, kit->count > 1 ? " max_fails=0" : "");
  }
  fprintf(out, "}\nfastcgi_keep_conn %s;\n", kit->way == PAGE_FASTCGI ? "on" : "off");
  fputs("server { listen 127.0.0.1:%PORT%; location /page { include /etc/nginx/fastcgi_params; "
        "fastcgi_split_path_info (?s)^(/page)(.*)$;\n"
        "fastcgi_param PATH_INFO $fastcgi_path_info; fastcgi_pass pages; fastcgi_next_upstream "
        "error;\n",
        out);
  if (is_cgi(kit)) {
    find_example("example_cgi", cgi);
    fprintf(out, "fastcgi_param SCRIPT_FILENAME %s;\n", cgi);
    for (int i = 0; i < count; i++) {
      size_t name = strcspn(variables[i], "=");
      fprintf(out, "fastcgi_param %.*s \"", (int)name, variables[i]);
      for (const char *at = variables[i] + name + 1; *at != '\0'; at++)
        fputs(*at == '$' ? "${dollar}" : (char[]){*at, '\0'}, out);
      fputs("\";\n", out);
    }
  }
  fputs("} }\ngeo $dollar { default \"$\"; }\n", out);
  fclose(out);
  return ret;
}

static int split(page_kit *kit, const char *text, char **variables) {
  /* where the test has none of its own; on a busy machine a hundred processes take long */
  const char *usual[] = {"CORRAL_STORE=lmdb:%FOLDER%/pages",
                         "PAGE_COUNT=%FOLDER%/count",
                         "PAGE_LIMIT_MS=60000",
                         "PAGE_WAIT_MS=60000",
                         "PAGE_STORE_MS=60000",
                         "ASAN_OPTIONS=log_path=%FOLDER%/sanitizer",
                         "UBSAN_OPTIONS=print_stacktrace=1:log_path=%FOLDER%/sanitizer"};
  char *whole = filled(kit, text), *save = NULL;
  int count = 0;
  for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(usual[i], "=") + 1, usual[i]);
    if (strstr(text, name) == NULL) variables[count++] = filled(kit, usual[i]);
  }
  for (char *line = strtok_r(whole, "\n", &save); line != NULL && count < LINES;
       line = strtok_r(NULL, "\n", &save))
    variables[count++] = strdup(line);
  free(whole);
  return count;
}

page_kit *page_kit_start(page_way way, const char *text) {
  char program[SERVER_PROCESS_PATH], nginx[SERVER_PROCESS_PATH], path[96], *variables[LINES];
  const char *name = way == PAGE_CGI || way == PAGE_CGI_HERD ? "fcgiwrap" : "spawn-fcgi";
  if (!server_process_find(name, name, program) || !server_process_find("nginx", "nginx", nginx))
    return NULL;
  page_kit *kit = calloc(1, sizeof *kit);
  if (kit == NULL) abort();
  kit->way = way;
  kit->count = way == PAGE_FASTCGI_2 ? 2 : 1;
  for (int i = 0; i < kit->count; i++) {
    kit->servers[i].death_signal = is_cgi(kit) ? SIGTERM : SIGKILL;
    server_process_init(&kit->servers[i], name, room_on_disk());
  }
  int count = split(kit, text, variables);
  page_kit_gate(kit, 1);
  for (int i = 0; i < kit->count; i++) {
    if (is_cgi(kit))
      launch_cgi(kit, program);
    else
      launch_fastcgi(kit, i, program, variables, count);
    server_process_launch(&kit->servers[i]);
    socket_of(kit, i, path);
    server_process_await(&kit->servers[i], listens, path);
  }
  char *http = config(kit, variables, count);
  if (!nginx_server_start(&kit->nginx, &(nginx_plan){.http = http})) abort();
  free(http);
  for (int i = 0; i < count; i++) free(variables[i]);
  kit->client = http_client_new(nginx_server_address(kit->nginx));
  return kit;
}

/* Prints sanitizer reports; true if there were any. */
static int has_reports(const page_kit *kit) {
  DIR *folder = opendir(page_kit_folder(kit));
  int found = 0;
  for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;)
    if (strncmp(entry->d_name, "sanitizer", 9) == 0)
      found = fprintf(stderr, "%s\n", page_kit_text(kit, entry->d_name)) > 0;
  if (folder != NULL) closedir(folder);
  return found;
}

void page_kit_stop(page_kit *kit) {
  int was_bad = has_reports(kit);
  http_client_free(kit->client);
  nginx_server_stop(kit->nginx);
  for (int i = kit->count - 1; i >= 0; i--) {
    if (is_cgi(kit)) server_process_end(&kit->servers[i], SIGTERM);
    server_process_clean(&kit->servers[i]);
  }
  free(kit);
  assert_false(was_bad);
}

/* ---- observation --------------------------------------------------------------------------- */

const char *page_kit_text(const page_kit *kit, const char *name) {
  static char text[TEXT];
  char path[400];
  snprintf(path, sizeof path, "%s/%s", page_kit_folder(kit), name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
  if (fd >= 0) close(fd);
  text[n > 0 ? n : 0] = '\0';
  return text;
}

int page_kit_computes(const page_kit *kit) {
  int lines = 0;
  for (const char *at = page_kit_text(kit, "count"); (at = strchr(at, '\n')) != NULL; at++) lines++;
  return lines;
}

pid_t page_kit_maker(const page_kit *kit) {
  const char *text = page_kit_text(kit, "count"), *last = text;
  for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
    if (at[1] != '\0') last = at + 1;
  return (pid_t)strtol(last, NULL, 10);
}

void page_kit_gate(const page_kit *kit, int is_open) {
  char path[96];
  snprintf(path, sizeof path, "%s/open", page_kit_folder(kit));
  int fd = is_open ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (fd >= 0) close(fd);
  if (!is_open) unlink(path);
}

static int children(pid_t pid, pid_t *pids, int most) {
  char path[64];
  int count = 0, one;
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
  FILE *file = fopen(path, "re");
  while (file != NULL && count < most && fscanf(file, "%d", &one) == 1) pids[count++] = one;
  if (file != NULL) fclose(file);
  return count;
}

/* CGI processes: the grandchildren of fcgiwrap. */
static int cgi_processes(const page_kit *kit) {
  pid_t wrap, wrappers[PAGE_CHILDREN], own[8];
  int found = 0, count = children(kit->servers[0].pid, &wrap, 1) == 1
                             ? children(wrap, wrappers, PAGE_CHILDREN)
                             : 0;
  for (int i = 0; i < count; i++) found += children(wrappers[i], own, 8);
  return found;
}

static int connections(const page_kit *kit) {
  char path[96], line[512];
  int found = -kit->count; /* the listening sockets don't count */
  FILE *file = fopen("/proc/net/unix", "re");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    for (int i = 0; i < kit->count; i++) {
      socket_of(kit, i, path);
      found += strstr(line, path) != NULL;
    }
  if (file != NULL) fclose(file);
  return found;
}

int page_kit_requests(const page_kit *kit) {
  return is_cgi(kit) ? cgi_processes(kit) : connections(kit);
}

void page_kit_await(const page_kit *kit, int (*what)(const page_kit *), int number, int is_exact) {
  int now = 0;
  for (int i = 0; i < PATIENT_STEPS; i++) {
    now = what(kit);
    if (now == number || (now > number && !is_exact)) return;
    poll(NULL, 0, STEP_MS);
  }
  fail_msg("it was to become %d, and is %d", number, now);
}

http_reply page_kit_get(page_kit *kit, const char *path) {
  return http_client_ask(kit->client, &(http_request){.path = path});
}

const char *page_kit_show(page_kit *kit, const char *path) {
  static char text[TEXT];
  http_reply reply = page_kit_get(kit, path);
  const char *cache = http_reply_header(&reply, "cache-status");
  snprintf(text, sizeof text, "%d %s|%s", reply.status, cache != NULL ? cache : "",
           reply.body != NULL ? reply.body : reply.error);
  http_reply_free(&reply);
  return text;
}

void page_kit_terminate(page_kit *kit, int number) { kill(kit->servers[number].pid, SIGTERM); }

int page_kit_end(page_kit *kit, int number) {
  int how = 0;
  for (int i = 0; i < PATIENT_STEPS; i++) {
    if (waitpid(kit->servers[number].pid, &how, WNOHANG) == kit->servers[number].pid) {
      kit->servers[number].pid = 0;
      return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
    }
    poll(NULL, 0, STEP_MS);
  }
  return -1;
}

http_storm_run *page_kit_herd(page_kit *kit, int connections, const char *expected) {
  return http_client_storm_start(&(http_storm){.address = nginx_server_address(kit->nginx),
                                               .path = "/page/herd",
                                               .connections = connections,
                                               .requests_each = 1,
                                               .expected = expected});
}

long long page_kit_hundred_make_it_once(page_kit *kit) {
  page_kit_gate(kit, 0);
  http_storm_run *run = page_kit_herd(kit, 100, "edition 1\n");
  page_kit_await(kit, page_kit_requests, 100, 0);
  page_kit_await(kit, page_kit_computes, 1, 0);
  page_kit_gate(kit, 1);
  http_storm_result storm = http_client_storm_end(run);
  long long longest = (long long)storm.max_us;
  if (storm.error[0] != '\0')
    fail_msg("%d good; %s\n%s", (int)storm.good, storm.error, nginx_server_log(kit->nginx));
  assert_int_equal(storm.good, 100);
  assert_int_equal(page_kit_computes(kit), 1);
  assert_string_equal(page_kit_show(kit, "/page/herd"), "200 corral; hit|edition 1\n");
  http_storm_free(&storm);
  page_kit_stop(kit);
  return longest;
}
