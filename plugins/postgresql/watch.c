/* watch.c: a watch, on a connection of its own, which reports unlocked locks: LISTEN corral_lock,
 * the payload being a name in hex. It also reports the locks of this process's sessions in the
 * server's queue, when they are answered.
 *
 * After QUIET_MS of silence the server is asked whether the connection still listens. No answer
 * within ANSWER_MS means that the connection is dead; a no, that a proxy gave it to another
 * client. */
#include <poll.h>
#include <stdlib.h>

#include "postgresql.h"

enum { QUIET_MS = CORRAL_SILENCE_MS / 2, ANSWER_MS = CORRAL_SILENCE_MS - QUIET_MS };

typedef struct watcher {
  crl_pg_store *store;
  crl_pg_session *session;
  int turns_fd;  /* see queue.c */
  int64_t heard; /* when the server was last heard, host->now_ms */
} watcher;

void crl_pg_unwatch(void *watch) {
  watcher *w = watch;
  crl_pg_hang_up(w->session);
  free(w);
}

int crl_pg_watch(void *store, size_t server, int64_t deadline, void **ret_watch,
                 corral_error *error) {
  crl_pg_store *s = store;
  (void)server;
  if (!s->notify)
    return crl_pg_failed(s, CORRAL_EUNSUPPORTED, error, "notify=no: nobody is told of unlocks");
  watcher *w = calloc(1, sizeof *w);
  if (w == NULL) return crl_pg_failed(s, CORRAL_ENOMEM, error, "no memory for a watch");
  w->store = s;
  w->turns_fd = crl_pg_turns_fd(s);
  int status = crl_pg_open_session(s, deadline, &w->session, error);
  if (status == CORRAL_OK) {
    PGresult *r = PQsendQuery(w->session->conn, "LISTEN corral_lock")
                      ? crl_pg_receive(s, w->session, deadline)
                      : NULL;
    if (PQresultStatus(r) != PGRES_COMMAND_OK)
      status = crl_pg_failed(s, CORRAL_EUNAVAILABLE, error, "no answer to LISTEN");
    PQclear(r);
  }
  w->heard = s->host->now_ms();
  if (status == CORRAL_OK)
    *ret_watch = w;
  else
    crl_pg_unwatch(w);
  return status;
}

/* Hash of the key in a payload; 0: it has none: foreign, or "any". */
static uint64_t hash_of(const crl_pg_store *s, const char *hex) {
  uint8_t key[CRL_PG_KEY];
  size_t len = strlen(hex);
  if (len == 0 || len % 2 != 0 || len > 2 * sizeof key || strspn(hex, "0123456789abcdef") != len)
    return 0;
  for (size_t i = 0; i < len; i += 2) {
    const char pair[] = {hex[i], hex[i + 1], '\0'};
    key[i / 2] = (uint8_t)strtoul(pair, NULL, 16);
  }
  return s->host->hash64(key, len / 2);
}

/* Reports all notifications that have come; returns their number. */
static int tell_all(watcher *w, void (*told)(void *arg, uint64_t hash), void *arg) {
  int count = 0;
  for (PGnotify *n; (n = PQnotifies(w->session->conn)) != NULL; count++) {
    told(arg, hash_of(w->store, n->extra));
    PQfreemem(n);
  }
  return count;
}

static int check(watcher *w, corral_error *error) {
  PGresult *r;
  int status = crl_pg_ask(w->store, w->session, CRL_PG_LISTENS, &(crl_pg_question){0},
                          w->store->host->now_ms() + ANSWER_MS, &r, error);
  if (status != CORRAL_OK) return status;
  if (PQntuples(r) == 0)
    status = crl_pg_failed(w->store, CORRAL_EUNAVAILABLE, error,
                           "the watch doesn't listen any more: is there a PgBouncer in between?");
  PQclear(r);
  w->heard = w->store->host->now_ms();
  return status;
}

int crl_pg_changes(void *watch, int stop_fd, int64_t until, void (*told)(void *arg, uint64_t hash),
                   void *arg, corral_error *error) {
  watcher *w = watch;
  const corral_host *host = w->store->host;
  for (;;) {
    if (!crl_pg_is_alive(w->session))
      return crl_pg_failed(w->store, CORRAL_EUNAVAILABLE, error,
                           "the watch's connection was ended");
    int heard = tell_all(w, told, arg);
    if (heard > 0) w->heard = host->now_ms();
    if (heard + crl_pg_tell_turns(w->store, w->turns_fd, told, arg) > 0) return CORRAL_OK;
    int64_t now = host->now_ms(), due = w->heard + QUIET_MS, turn = until < due ? until : due;
    if (now >= until) return CORRAL_OK;
    if (now >= due) {
      int status = check(w, error);
      if (status != CORRAL_OK) return status;
      continue;
    }
    struct pollfd fds[3] = {{.fd = PQsocket(w->session->conn), .events = POLLIN},
                            {.fd = stop_fd, .events = POLLIN},
                            {.fd = w->turns_fd, .events = POLLIN}};
    if (poll(fds, 3, (int)(turn - now)) > 0 && fds[1].revents != 0) return CORRAL_OK;
  }
}
