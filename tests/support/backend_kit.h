/* backend_kit.h: runs examples/backend as processes of a test, on a real PostgreSQL with the
 * example's schema, and reads their answers.
 *
 *   backend b = backend_start("--store", redis_server_uri(redis), "--pause", "100", NULL);
 *   ... revenue_of(&b, "north") == revenue_in_database("north") ... executions() ...
 *   backend_stop(&b);                          SIGTERM; the backend must exit soon, with status 0
 *
 * The backends log in as the role shop; the test itself, through postgresql_server_ask, as
 * postgres. */
#ifndef BACKEND_KIT_H
#define BACKEND_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fork_kit.h"
#include "os/env.h"
#include "support/http_client.h"
#include "support/postgresql_server.h"
#include "support/redis_server.h"

enum { BACKEND_ARGS = 32, PATIENCE_MS = 40000, STEP_MS = 2 };

static postgresql_server *database;
static redis_server *redis;

typedef struct backend {
  pid_t pid;
  http_client *client;
  char address[32], log[96];
} backend;

/* Fails the test unless `condition` becomes true within PATIENCE_MS. */
#define AWAIT(condition)                                                                           \
  for (int64_t await_until = crl_env_now_ms() + PATIENCE_MS; !(condition);                         \
       crl_env_sleep_until(crl_env_now_ms() + STEP_MS))                                            \
    if (crl_env_now_ms() > await_until) fail_msg("never came: %s", #condition)

/* ---- the database -------------------------------------------------------------------------- */

static inline int run_schema(const char *folder) {
  char file[300], port[12];
  int status = -1;
  snprintf(file, sizeof file, "%s/examples/backend/schema.sql", folder);
  snprintf(port, sizeof port, "%d", postgresql_server_port(database));
  pid_t pid = fork_at_rest();
  if (pid == 0) {
    execlp("psql", "psql", "-X", "-q", "-h", "127.0.0.1", "-p", port, "-U", "postgres", "-d",
           "postgres", "-v", "customers=400", "-v", "orders=20000", "-f", file, (char *)NULL);
    _exit(127);
  }
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Starts Redis and PostgreSQL and loads the example's schema. Returns 0, or the exit status for the
 * test program: 77 when a requirement is missing (printed on stderr), 1 after any other error. */
static inline int kit_start(void) {
  static const char *const settings[] = {"shared_preload_libraries=pg_stat_statements", NULL};
  const char *folder = getenv("CORRAL_SOURCE_DIR"), *said;
  if (getenv("CORRAL_EXAMPLE_BACKEND") == NULL || folder == NULL) {
    fprintf(
        stderr,
        "SKIPPED: there is no $CORRAL_EXAMPLE_BACKEND or no $CORRAL_SOURCE_DIR: run it by ctest\n");
    return 77;
  }
  if (!redis_server_start(&redis, NULL) || !postgresql_server_start(&database, settings)) return 77;
  int status = run_schema(folder);
  if (status == 127)
    fprintf(stderr, "SKIPPED: there is no psql (apt-get install postgresql-client)\n");
  else if (status != 0)
    fprintf(stderr, "psql failed with %d: examples/backend/schema.sql\n", status);
  if (status != 0) return status == 127 ? 77 : 1;
  said = postgresql_server_ask(database, "CREATE EXTENSION pg_stat_statements; CREATE ROLE shop "
                                         "LOGIN; GRANT SELECT ON customers, orders TO shop; "
                                         "GRANT SELECT, DELETE ON changes TO shop; GRANT SELECT, "
                                         "INSERT, UPDATE, DELETE ON positions TO shop");
  if (said[0] != '\0') fprintf(stderr, "%s\n", said);
  return said[0] != '\0';
}

static inline void kit_stop(void) {
  redis_server_stop(redis);
  postgresql_server_stop(database);
}

static inline long long ask_number(const char *sql, const char *region) {
  const char *said = postgresql_server_ask(database, sql, region);
  if (strncmp(said, "ERROR", 5) == 0) fail_msg("%s: %s", sql, said);
  return strtoll(said, NULL, 10);
}

/* Completed executions of the report's query since forget_executions. */
static inline long long executions(void) {
  return ask_number("SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query LIKE 'WITH "
                    "own AS%%' AND '%s' = ''",
                    "");
}
static inline void forget_executions(void) {
  (void)postgresql_server_ask(database, "SELECT pg_stat_statements_reset()");
}
/* Report queries in progress: their snapshot is taken and they sleep (--pause). */
static inline long long running(void) {
  return ask_number("SELECT count(*) FROM pg_stat_activity WHERE usename = 'shop' AND wait_event = "
                    "'PgSleep' AND '%s' = ''",
                    "");
}
/* Sessions that follow the changes. */
static inline long long listeners(void) {
  return ask_number(
      "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND '%s' "
      "= ''",
      "");
}
static inline long long revenue_in_database(const char *region) {
  return ask_number("SELECT coalesce(sum(amount), 0) FROM orders o JOIN customers c ON c.id = "
                    "o.customer WHERE region = '%s'",
                    region);
}
/* Adds one cent to one order of the region. */
static inline void change(const char *region) {
  const char *said = postgresql_server_ask(
      database,
      "UPDATE orders SET amount = amount + 1 WHERE id = (SELECT min(o.id) FROM orders o JOIN "
      "customers c ON c.id = o.customer WHERE region = '%s')",
      region);
  assert_string_equal(said, "");
}

/* ---- processes ----------------------------------------------------------------------------- */

static inline http_reply get(const backend *b, const char *path, const char *headers) {
  return http_client_ask(b->client, &(http_request){.path = path, .headers = headers});
}

static inline http_reply report(const backend *b, const char *region) {
  char path[128];
  snprintf(path, sizeof path, "/report?region=%s", region);
  return get(b, path, NULL);
}

/* The number named `name` in a JSON text; -1 when missing. */
static inline long long member(const char *body, const char *name) {
  char quoted[64];
  snprintf(quoted, sizeof quoted, "\"%s\"", name);
  const char *at = body == NULL ? NULL : strstr(body, quoted);
  return at == NULL ? -1
                    : strtoll(at + strlen(quoted) + strspn(at + strlen(quoted), " :"), NULL, 10);
}

static inline long long count_of(const backend *b, const char *event) {
  http_reply reply = get(b, "/status", NULL);
  long long count = member(reply.body, event);
  http_reply_free(&reply);
  return count;
}

static inline int status_has(const backend *b, const char *part) {
  http_reply reply = get(b, "/status", NULL);
  int is_so = reply.status == 200 && strstr(reply.body, part) != NULL;
  http_reply_free(&reply);
  return is_so;
}
static inline int hears(const backend *b) { return status_has(b, "\"listening\": true"); }
static inline int leads(const backend *b) { return status_has(b, "\"leading\": true"); }

/* -1 without such a region. Asks again while no report can be had: on a busy machine one may take
 * longer than the backend waits. */
static inline long long revenue_of(const backend *b, const char *region) {
  int64_t until = crl_env_now_ms() + PATIENCE_MS;
  http_reply reply = report(b, region);
  while (reply.status == 503 && crl_env_now_ms() < until) {
    http_reply_free(&reply);
    crl_env_sleep_until(crl_env_now_ms() + STEP_MS);
    reply = report(b, region);
  }
  long long revenue = reply.status == 200 ? member(reply.body, "revenue") : -1;
  http_reply_free(&reply);
  return revenue;
}

/* The same over a connection of its own, for another thread. */
static inline long long revenue_apart(const backend *b, const char *region) {
  char path[80];
  snprintf(path, sizeof path, "/report?region=%s", region);
  http_client *client = http_client_new(b->address);
  http_reply reply = http_client_ask(client, &(http_request){.path = path});
  long long revenue = reply.status == 200 ? member(reply.body, "revenue") : -1;
  http_reply_free(&reply);
  http_client_free(client);
  return revenue;
}

static inline void become_backend(char **args, int out, const char *log, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  int to = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(out, 1);
  dup2(to, 2);
  execv(args[0], args);
  _exit(127);
}

/* The backend's port, from the line that it writes once it listens. */
static inline int read_port(int fd) {
  char line[128] = "", *colon;
  size_t len = 0;
  struct pollfd ready = {.fd = fd, .events = POLLIN};
  while (len < sizeof line - 1 && strchr(line, '\n') == NULL && poll(&ready, 1, PATIENCE_MS) > 0 &&
         read(fd, line + len, 1) == 1)
    len++;
  colon = strrchr(line, ':');
  return colon == NULL ? 0 : (int)strtol(colon + 1, NULL, 10);
}

/* Starts a backend with these arguments (up to NULL) and waits until it, or another process of
 * its store, listens for changes. */
static inline backend backend_start(const char *first, ...) {
  static unsigned started;
  char conninfo[128],
      *args[BACKEND_ARGS] = {getenv("CORRAL_EXAMPLE_BACKEND"), (char *)(uintptr_t) "--port",
                             (char *)(uintptr_t) "0", (char *)(uintptr_t) "--database", conninfo};
  backend b = {0};
  int out[2], count = 5;
  va_list more;
  snprintf(conninfo, sizeof conninfo, "host=127.0.0.1 port=%d user=shop dbname=postgres",
           postgresql_server_port(database));
  snprintf(b.log, sizeof b.log, "%s/backend.%u", redis_server_folder(redis), started++);
  va_start(more, first);
  for (const char *arg = first; arg != NULL && count < BACKEND_ARGS - 1;
       arg = va_arg(more, const char *))
    args[count++] = (char *)(uintptr_t)arg;
  va_end(more);
  assert_int_equal(pipe2(out, O_CLOEXEC), 0);
  pid_t parent = getpid();
  b.pid = fork_at_rest();
  assert_true(b.pid >= 0);
  if (b.pid == 0) become_backend(args, out[1], b.log, parent);
  close(out[1]);
  int port = read_port(out[0]);
  close(out[0]);
  if (port == 0) fail_msg("the backend didn't start");
  snprintf(b.address, sizeof b.address, "127.0.0.1:%d", port);
  b.client = http_client_new(b.address);
  AWAIT(hears(&b));
  return b;
}

static inline void show_log(const backend *b) {
  char line[512];
  FILE *log = fopen(b->log, "r");
  while (log != NULL && fgets(line, sizeof line, log) != NULL) fputs(line, stderr);
  if (log != NULL) fclose(log);
}

/* SIGTERM. The exit status must be 0; a sanitizer that found leaks would change it. */
static inline void backend_stop(backend *b) {
  int status = 0;
  http_client_free(b->client);
  kill(b->pid, SIGTERM);
  AWAIT(waitpid(b->pid, &status, WNOHANG) == b->pid);
  if (status != 0) show_log(b);
  assert_int_equal(status, 0);
}

/* SIGKILL, which takes its connections with it. */
static inline void backend_kill(backend *b) {
  int status = 0;
  http_client_free(b->client);
  kill(b->pid, SIGKILL);
  AWAIT(waitpid(b->pid, &status, WNOHANG) == b->pid);
}

#endif
