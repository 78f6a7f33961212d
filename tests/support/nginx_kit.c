/* nginx_kit.c: shared support for the tests of the nginx module. */
#include "support/nginx_kit.h"
#include "support/room.h"

#include <limits.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

http_origin *nginx_kit_origin;
redis_server *nginx_kit_redis;

static int failures; /* counted by nginx_kit_end */

static char load_module[PATH_MAX]; /* the directive; empty: the module is a part of nginx */

static int find_module(void) {
  char path[PATH_MAX];
  const char *folder = getenv("CORRAL_NGINX"), *module = getenv("CORRAL_NGINX_MODULE");
  if (folder != NULL) {
    snprintf(path, sizeof path, "%s/ngx_http_corral_module.so", folder);
    module = path;
    if (access(module, F_OK) != 0) return 1;
  }
  if (module == NULL || access(module, R_OK) != 0) {
    fprintf(stderr, "SKIPPED: $CORRAL_NGINX_MODULE is no file: the nginx module wasn't built\n");
    return 0;
  }
  int len = snprintf(load_module, sizeof load_module, "load_module %s;\n", module);
  return len < (int)sizeof load_module;
}

int nginx_kit_open(void) {
  if (!find_module()) return 0;
  if (!redis_server_start(&nginx_kit_redis, NULL)) return 0;
  nginx_kit_origin = http_origin_start();
  return 1;
}

int nginx_kit_close(void) {
  http_origin_stop(nginx_kit_origin);
  redis_server_stop(nginx_kit_redis);
  return failures;
}

/* ---- configurations ------------------------------------------------------------------------ */

static char *filled(const char *text) {
  char *made = NULL;
  size_t size = 0;
  FILE *to = open_memstream(&made, &size);
  for (; *text != '\0'; text++) {
    if (strncmp(text, "%ORIGIN%", 8) == 0)
      text += 7, fputs(http_origin_url(nginx_kit_origin), to);
    else if (strncmp(text, "%REDIS%", 7) == 0)
      text += 6, fputs(redis_server_uri(nginx_kit_redis), to);
    else
      fputc(*text, to);
  }
  fclose(to);
  return made;
}

char *nginx_kit_http(const nginx_kit_plan *plan) {
  char *text = NULL;
  if (asprintf(&text,
               "corral_zone pages store=%s %s;\n%s\nserver { listen 127.0.0.1:%%PORT%% "
               "backlog=1024;\n%s\n}",
               plan->store != NULL ? plan->store : "%REDIS%",
               plan->zone != NULL ? plan->zone : "near=off op=10s away_after=20s",
               plan->http != NULL ? plan->http : "", plan->locations) < 0)
    abort();
  char *made = filled(text);
  free(text);
  return made;
}

nginx_server *nginx_kit_another(const nginx_kit_plan *plan) {
  const char *asan = getenv("CORRAL_ASAN");
  char *preload = NULL, *leaks = NULL, *main_text = NULL, *http = nginx_kit_http(plan);
  nginx_server *server = NULL;
  if (asprintf(&main_text, "%s%s", load_module, plan->main != NULL ? plan->main : "") < 0) abort();
  if (asprintf(&preload, "LD_PRELOAD=%s", asan != NULL ? asan : "") < 0) abort();
  if (asprintf(&leaks,
               "LSAN_OPTIONS=print_suppressions=0:suppressions=%s/tests/support/nginx_leaks.txt",
               getenv("CORRAL_SOURCE_DIR")) < 0)
    abort();
  const char *environment[] = {preload, leaks,
                               plan->is_weighed
                                   ? "ASAN_OPTIONS=detect_leaks=1:exitcode=99:quarantine_size_mb=1:"
                                     "thread_local_quarantine_size_kb=64:"
                                     "allocator_release_to_os_interval_ms=0"
                                   : "ASAN_OPTIONS=detect_leaks=1:exitcode=99",
                               "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1", NULL};
  nginx_plan made = {.http = http,
                     .main = main_text,
                     .workers = plan->workers,
                     .is_daemon = plan->is_daemon,
                     .environment = asan != NULL && *asan != '\0' ? environment : NULL};
  if (!nginx_server_start(&server, &made)) skip();
  free(preload);
  free(leaks);
  free(main_text);
  free(http);
  return server;
}

nginx_server *nginx_kit_start(const nginx_kit_plan *plan) {
  redis_server_ask(nginx_kit_redis, "FLUSHALL");
  return nginx_kit_another(plan);
}

static int has_spoken(const char *text) {
  return strstr(text, "Sanitizer") != NULL || strstr(text, "runtime error") != NULL ||
         strstr(text, "with code 99") != NULL;
}

/* Returns the server's log or stderr if it reports an error; NULL without one. */
static const char *complaint(nginx_server *server, int may_be_killed) {
  const char *text = nginx_server_stderr(server);
  if (has_spoken(text)) return text;
  text = nginx_server_log(server); /* after start-up nginx's stderr is its error log */
  if (has_spoken(text) || strstr(text, "[emerg]") != NULL || strstr(text, "[crit]") != NULL)
    return text;
  for (const char *at = text; (at = strstr(at, "[alert]")) != NULL; at++) {
    const char *killed = strstr(at, "exited on signal 9");
    if (!may_be_killed || killed == NULL || strcspn(at, "\n") < (size_t)(killed - at)) return at;
  }
  return NULL;
}

void nginx_kit_check(nginx_server *server, int may_be_killed) {
  const char *text = complaint(server, may_be_killed);
  if (text != NULL) fail_msg("%s", text);
}

/* cmocka ignores a failure in a group's teardown, so failures are counted here. */
void nginx_kit_end(nginx_server *server, int may_be_killed) {
  int status = nginx_server_quit(server);
  const char *text = complaint(server, may_be_killed);
  if (text != NULL || status != 0) {
    fprintf(stderr, "FAILED: nginx ended with %d: %s\n", status, text != NULL ? text : "");
    failures++;
  }
  nginx_server_stop(server);
}

const char *nginx_kit_config(const char *http, int *status) {
  static char said[4096];
  char program[SERVER_PROCESS_PATH], folder[ROOM_PATH], file[64];
  char *command = NULL, *made = filled(http);
  const char *asan = getenv("CORRAL_ASAN");
  if (!nginx_server_find(program)) skip();
  room_folder(folder, "nginx");
  snprintf(file, sizeof file, "%s/nginx.conf", folder);
  FILE *to = fopen(file, "we");
  if (to == NULL) abort();
  fprintf(to,
          "%spid %s/pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log "
          "off;\n%s\n}\n",
          load_module, folder, made);
  fclose(to);
  if (asprintf(&command,
               "LD_PRELOAD='%s' ASAN_OPTIONS=detect_leaks=0 '%s' -t -q -e stderr -c %s 2>&1; "
               "status=$?; echo; echo exit status $status; rm -rf %s",
               asan != NULL ? asan : "", program, file, folder) < 0)
    abort();
  FILE *from = popen(command, "re");
  if (from == NULL) abort();
  size_t size = fread(said, 1, sizeof said - 1, from);
  said[size] = '\0';
  pclose(from);
  char *last = strstr(said, "\nexit status ");
  *status = last != NULL ? (int)strtol(last + 13, NULL, 10) : -1;
  free(command);
  free(made);
  return said;
}

/* ---- requests ------------------------------------------------------------------------------ */

http_reply nginx_kit_ask(nginx_server *server, const char *method, const char *path,
                         const char *headers) {
  http_client *client = http_client_new(nginx_server_address(server));
  http_reply reply = http_client_ask(
      client, &(http_request){.method = method, .path = path, .headers = headers, .closes = 1});
  http_client_free(client);
  return reply;
}

http_reply nginx_kit_get(nginx_server *server, const char *path, const char *headers) {
  return nginx_kit_ask(server, NULL, path, headers);
}

const char *nginx_kit_expect(nginx_server *server, const char *path, const char *headers,
                             int status, const char *body, const char *header) {
  static _Thread_local char value[512];
  http_reply reply = nginx_kit_get(server, path, headers);
  if (reply.status != status)
    fail_msg("%s: status %d (%s), not %d\n%s", path, reply.status, reply.error, status,
             nginx_server_log(server));
  if (body != NULL) assert_string_equal(reply.body, body);
  const char *found = header != NULL ? http_reply_header(&reply, header) : NULL;
  snprintf(value, sizeof value, "%s", found != NULL ? found : "");
  http_reply_free(&reply);
  return value;
}

static void pause_ms(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

const char *nginx_kit_expect_alone(nginx_server *server, const char *path, const char *headers,
                                   int status, const char *body, const char *header) {
  const char *how = nginx_kit_expect(server, path, headers, status, body, header);
  for (int i = 0; i < 3000 && (strstr(how, "COLLAPSED") || strstr(how, "collapsed")); i++) {
    pause_ms(10);
    how = nginx_kit_expect(server, path, headers, status, body, header);
  }
  return how;
}

int nginx_kit_await_status(nginx_server *server, const char *path, int first, int then) {
  int status = first;
  for (int i = 0; i < 1000 && status == first; i++) {
    http_reply reply = nginx_kit_get(server, path, NULL);
    status = reply.status;
    http_reply_free(&reply);
    if (status == first) pause_ms(10);
  }
  return status == then;
}

long nginx_kit_counter(nginx_server *server, const char *name) {
  char quoted[64];
  snprintf(quoted, sizeof quoted, "\"%s\":", name);
  http_reply reply = nginx_kit_get(server, "/status", NULL);
  const char *at = reply.body != NULL ? strstr(reply.body, quoted) : NULL;
  long number = at != NULL ? strtol(at + strlen(quoted), NULL, 10) : -1;
  http_reply_free(&reply);
  return number;
}

int nginx_kit_await_counter(nginx_server *server, const char *name, long count) {
  for (int i = 0; i < 1000; i++) {
    if (nginx_kit_counter(server, name) >= count) return 1;
    pause_ms(10);
  }
  return 0;
}

double nginx_kit_row(nginx_server *server, const char *name) {
  char line[200];
  http_reply reply = nginx_kit_get(server, "/status?format=prometheus", NULL);
  snprintf(line, sizeof line, "\n%s ", name);
  const char *at = reply.body != NULL ? strstr(reply.body, line) : NULL;
  double number = at != NULL ? strtod(at + strlen(line), NULL) : -1;
  http_reply_free(&reply);
  return number;
}
