/* listen.c: LISTEN corral, and the invalidations that follow from its notifications.
 *
 * A payload is a region, whose tag is voided. A lost connection may have cost any number of
 * notifications, so once it is back everything is voided: LISTEN comes first, then
 * corral_invalidate_all, so that a change between the two is reported, or voided, or both. The same
 * at the start, since no process may have listened while the store kept its reports. That costs one
 * query per region and start, however many processes there are. To void less, keep the changes in a
 * table, and read it from the last position on.
 *
 * While no process listens, a report lives as long as --ttl says, and is then answered once more
 * while it is made anew: outdated answers instead of none, by choice. A program that wants none
 * checks listener_hears before it answers.
 *
 * Each process listens for itself, so a change is voided as often as there are processes: each of
 * them costs the store one to three operations, and repeats a query that a faster process began
 * meanwhile. In return, a process that is dead or cut off affects no other. */
#include "listen.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

enum { CONNECT_MS = 5000, REST_MS = 100, REST_MOST_MS = 2000, AGAIN_MS = 200 };

struct listener {
  corral *reports;
  const char *conninfo;
  int stop_fd;
  int missed; /* unknown reports have changed */
  atomic_int hears;
  atomic_ullong heard;
  pthread_t thread;
};

static int is_stopped(const listener *l, int wait_ms) {
  struct pollfd fd = {.fd = l->stop_fd, .events = POLLIN};
  return poll(&fd, 1, wait_ms) > 0;
}

/* Voids a region's tag. If the store can't be told, everything is voided later: see catch_up. */
static void void_region(listener *l, const char *region) {
  char tag[REPORT_TAG_ROOM];
  size_t len = strlen(region);
  if (l->missed) return;
  if (len > REGION_MOST || strcmp(region, "*") == 0)
    l->missed = 1;
  else if (corral_invalidate_tag(l->reports, tag, report_tag(tag, region, len), NULL) != CORRAL_OK)
    l->missed = 1;
}

static void catch_up(listener *l) {
  corral_error error;
  if (!l->missed) return;
  if (corral_invalidate_all(l->reports, &error) == CORRAL_OK)
    l->missed = 0;
  else
    fprintf(stderr, "backend: outdated reports can't be voided yet: %s\n", error.text);
}

/* Handles notifications until the connection is lost, or the program ends. */
static void hear(listener *l, PGconn *conn) {
  for (;;) {
    PGnotify *note;
    unsigned count = 0;
    for (; (note = PQnotifies(conn)) != NULL; count++) {
      void_region(l, note->extra);
      PQfreemem(note);
    }
    catch_up(l);
    atomic_fetch_add(&l->heard, count);
    atomic_store(&l->hears, !l->missed);
    struct pollfd fds[] = {{.fd = PQsocket(conn), .events = POLLIN},
                           {.fd = l->stop_fd, .events = POLLIN}};
    poll(fds, 2, l->missed ? AGAIN_MS : -1);
    if (fds[1].revents != 0 || (fds[0].revents != 0 && !PQconsumeInput(conn))) return;
  }
}

/* Listens on one connection, from beginning to end; 0: it could not be made. */
static int attend(listener *l) {
  db_limit limit = {.until = db_now_ms() + CONNECT_MS, .stop_fd = l->stop_fd};
  char text[200];
  PGconn *conn = db_connect(l->conninfo, &limit, text, sizeof text);
  if (conn == NULL) {
    if (!is_stopped(l, 0)) fprintf(stderr, "backend: can't listen: %s\n", text);
    return 0;
  }
  PGresult *r = db_ask(conn, "LISTEN corral", NULL, 0, &limit);
  int listens = PQresultStatus(r) == PGRES_COMMAND_OK;
  PQclear(r);
  l->missed = 1;
  if (listens) hear(l, conn);
  atomic_store(&l->hears, 0);
  PQfinish(conn);
  return listens;
}

static void *run(void *arg) {
  listener *l = arg;
  int rest = 0;
  while (!is_stopped(l, rest))
    if (attend(l))
      rest = REST_MS;
    else
      rest = rest == 0 ? REST_MS : rest * 2 < REST_MOST_MS ? rest * 2 : REST_MOST_MS;
  return NULL;
}

listener *listener_start(corral *reports, const char *conninfo, int stop_fd) {
  listener *l = calloc(1, sizeof *l);
  if (l == NULL) return NULL;
  l->reports = reports;
  l->conninfo = conninfo;
  l->stop_fd = stop_fd;
  if (pthread_create(&l->thread, NULL, run, l) == 0) return l;
  free(l);
  return NULL;
}

void listener_join(listener *l) {
  if (l == NULL) return;
  pthread_join(l->thread, NULL);
  free(l);
}

int listener_hears(const listener *l) { return atomic_load(&l->hears); }
unsigned long long listener_heard(const listener *l) { return atomic_load(&l->heard); }
