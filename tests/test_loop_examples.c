/* test_loop_examples.c: the line servers of examples/loop_*.c, each in its own process: one query
 * for many clients, clients that hang up, a clean end. */
#include <corral.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/room.h"

enum { CROWD = 200, PATIENCE_S = 30, ANSWER = 128, LONG = 8 << 20 };

typedef struct example {
  const char *variable; /* environment variable with the program's path */
  pid_t pid;
  int port, input;
} example;

static int missing;

static void started_on(example *e, const char *variable, const char *store) {
  int in[2], out[2];
  char line[16] = "";
  const char *program = getenv(variable);
  *e = (example){.variable = variable};
  if (program == NULL) {
    fprintf(stderr, "SKIPPED: %s isn't set: that example wasn't built\n", variable);
    missing = 1;
    skip();
  }
  assert_int_equal(pipe(in) | pipe(out), 0);
  if ((e->pid = fork()) == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(in[0], 0);
    dup2(out[1], 1);
    close(in[1]);
    execl(program, program, store, (char *)NULL);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  e->input = in[1];
  FILE *said = fdopen(out[0], "r");
  assert_non_null(fgets(line, sizeof line, said));
  fclose(said);
  e->port = (int)strtol(line, NULL, 10);
  assert_in_range(e->port, 1, 65535);
}

static void started(example *e, const char *variable) { started_on(e, variable, "memory:"); }

/* Waits for the end; the exit status must be 0, which includes the sanitizer's check for leaks. */
static void ended(example *e) {
  int status = -1;
  for (int ms = 0; waitpid(e->pid, &status, WNOHANG) == 0; ms++) {
    if (ms == PATIENCE_S * 1000) kill(e->pid, SIGKILL);
    usleep(1000);
  }
  close(e->input);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    fail_msg("%s ended with status %d", e->variable, status);
}

/* ---- clients ------------------------------------------------------------------------------- */

static int asked(const example *e, const char *line) {
  struct sockaddr_in there = {.sin_family = AF_INET,
                              .sin_port = htons((uint16_t)e->port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct timeval patience = {.tv_sec = PATIENCE_S};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&there, sizeof there), 0);
  assert_int_equal(send(fd, line, strlen(line), MSG_NOSIGNAL), strlen(line));
  return fd;
}

/* Reads until the server hangs up. */
static const char *answer(int fd) {
  static char text[ANSWER];
  size_t len = 0;
  ssize_t n = 0;
  while (len < sizeof text - 1 && (n = recv(fd, text + len, sizeof text - 1 - len, 0)) > 0)
    len += (size_t)n;
  if (n < 0) n = len == 0 ? 0 : n; /* a reset is an empty answer too */
  text[len] = '\0';
  close(fd);
  return text;
}

static int count_threads(const example *e) {
  char path[64];
  int count = 0;
  snprintf(path, sizeof path, "/proc/%d/task", (int)e->pid);
  DIR *dir = opendir(path);
  assert_non_null(dir);
  while (readdir(dir) != NULL) count++;
  closedir(dir);
  return count - 2;
}

static void serves_a_crowd(const char *variable) {
  example e;
  int fds[CROWD];
  started(&e, variable);
  for (int i = 0; i < CROWD; i++) fds[i] = asked(&e, "GET cold\n");
  int threads = count_threads(&e);
  for (int i = 0; i < CROWD; i++)
    assert_string_equal(answer(fds[i]), "the row of cold, by query 1\n");
  assert_in_range(threads, 1, 9);
  assert_string_equal(answer(asked(&e, "GET other\n")), "the row of other, by query 2\n");
  assert_string_equal(answer(asked(&e, "GET cold\nGET more\n")), "the row of cold, by query 1\n");
  kill(e.pid, SIGTERM);
  ended(&e);
}

/* A write to a client that has hung up must be an error, not the program's end. */
static int ignores_sigpipe(const example *e) {
  char path[64], line[256];
  unsigned long long ignored = 0;
  snprintf(path, sizeof path, "/proc/%d/status", (int)e->pid);
  FILE *status = fopen(path, "r");
  assert_non_null(status);
  while (fgets(line, sizeof line, status) != NULL)
    if (strncmp(line, "SigIgn:", 7) == 0) ignored = strtoull(line + 7, NULL, 16);
  fclose(status);
  return (int)(ignored >> (SIGPIPE - 1) & 1);
}

static void lets_clients_leave(const char *variable) {
  example e;
  int fds[CROWD];
  char line[400];
  started(&e, variable);
  assert_true(ignores_sigpipe(&e));
  for (int i = 0; i < CROWD; i++) {
    fds[i] = asked(&e, "GET left\n");
    if (i % 2 == 0) close(fds[i]);
  }
  for (int i = 1; i < CROWD; i += 2)
    assert_string_equal(answer(fds[i]), "the row of left, by query 1\n");
  assert_string_equal(answer(asked(&e, "HELLO\n")), "");
  assert_string_equal(answer(asked(&e, "GET \n")), "");
  memset(line, 'x', sizeof line);
  line[sizeof line - 1] = '\0';
  assert_string_equal(answer(asked(&e, line)), "");
  close(asked(&e, "GET alone\n")); /* leaves a query without a waiter */
  assert_string_equal(answer(asked(&e, "GET left\n")), "the row of left, by query 1\n");
  close(e.input);
  e.input = -1;
  ended(&e);
}

/* Leaves a value in the store that no socket takes at once. */
static void store_long(const char *store, size_t size) {
  corral *c;
  corral_error error = {0};
  char *text = malloc(size);
  assert_non_null(text);
  for (size_t i = 0; i < size; i++) text[i] = (char)('a' + i % 23);
  if (corral_open(CORRAL_OPTIONS(.store = store), &c, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  assert_int_equal(corral_set(c, "long", 4, NULL, text, size), CORRAL_OK);
  corral_close(c);
  free(text);
}

/* One client reads its long answer late, another one hangs up in the middle of it. */
static void sends_all_of_a_long_answer(const char *variable) {
  static char room[65536];
  example e;
  char folder[ROOM_PATH], store[ROOM_PATH + 16], removal[ROOM_PATH + 16];
  size_t got = 0;
  room_folder(folder, "loops");
  snprintf(store, sizeof store, "lmdb:%s/rows", folder);
  store_long(store, LONG);
  started_on(&e, variable, store);
  int reader = asked(&e, "GET long\n"), leaver = asked(&e, "GET long\n");
  assert_int_equal(recv(leaver, room, 1, 0), 1);
  close(leaver); /* with bytes unread: a reset */
  assert_string_equal(answer(asked(&e, "GET cold\n")), "the row of cold, by query 1\n");
  for (ssize_t n; (n = recv(reader, room, sizeof room, 0)) > 0; got += (size_t)n)
    for (ssize_t i = 0; i < n; i++)
      if (room[i] != (char)('a' + (got + (size_t)i) % 23)) fail_msg("byte %zu is wrong", got);
  close(reader);
  assert_int_equal(got, LONG);
  kill(e.pid, SIGTERM);
  ended(&e);
  snprintf(removal, sizeof removal, "rm -r %s", folder);
  assert_int_equal(system(removal), 0);
}

static void ends_at_once(const char *variable) {
  example e;
  int fds[CROWD];
  started(&e, variable);
  for (int i = 0; i < CROWD; i++) {
    char line[32];
    snprintf(line, sizeof line, "GET key%d\n", i % 7);
    fds[i] = asked(&e, i % 10 == 9 ? "GET " : line);
  }
  kill(e.pid, SIGTERM);
  ended(&e);
  for (int i = 0; i < CROWD; i++) close(fds[i]);
}

#define EXAMPLE(name, variable)                                                                    \
  static void the_##name##_server_makes_one_query_for_a_crowd(void **state) {                      \
    (void)state;                                                                                   \
    serves_a_crowd(variable);                                                                      \
  }                                                                                                \
  static void clients_of_the_##name##_server_may_leave(void **state) {                             \
    (void)state;                                                                                   \
    lets_clients_leave(variable);                                                                  \
  }                                                                                                \
  static void the_##name##_server_sends_all_of_a_long_answer(void **state) {                       \
    (void)state;                                                                                   \
    sends_all_of_a_long_answer(variable);                                                          \
  }                                                                                                \
  static void the_##name##_server_ends_cleanly_in_the_middle_of_queries(void **state) {            \
    (void)state;                                                                                   \
    ends_at_once(variable);                                                                        \
  }
#define TESTS(name)                                                                                \
  cmocka_unit_test(the_##name##_server_makes_one_query_for_a_crowd),                               \
      cmocka_unit_test(clients_of_the_##name##_server_may_leave),                                  \
      cmocka_unit_test(the_##name##_server_sends_all_of_a_long_answer),                            \
      cmocka_unit_test(the_##name##_server_ends_cleanly_in_the_middle_of_queries)

EXAMPLE(poll, "CORRAL_EXAMPLE_LOOP_POLL")
EXAMPLE(libevent, "CORRAL_EXAMPLE_LOOP_LIBEVENT")
EXAMPLE(libuv, "CORRAL_EXAMPLE_LOOP_LIBUV")

int main(void) {
  const struct CMUnitTest tests[] = {TESTS(poll), TESTS(libevent), TESTS(libuv)};
  int failed = cmocka_run_group_tests_name("loop_examples", tests, NULL, NULL);
  return failed == 0 && missing ? 77 : failed;
}
