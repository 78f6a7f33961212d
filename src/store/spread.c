/* spread.c: looks on several servers of a store at once, each over an idle handle, by the plugin's
 * functions that never wait. */
#include "store/spread.h"

#include <poll.h>
#include <stdlib.h>

#include "base/status.h"
#include "base/value.h"
#include "os/env.h"
#include "store/pace.h"
#include "store/server_batch.h"
#include "store/server_own.h"

/* The looks of one server. */
typedef struct part {
  crl_server *server;
  crl_lone lone; /* its ops are copies */
  corral_batch batch;
  int is_under_way;
  int status; /* of the handle */
  corral_error why;
} part;

typedef struct parts {
  corral_op *copies;
  part *list;
  struct pollfd *fds;
  size_t count, under_way;
} parts;

int crl_spread_is_offered(const crl_pool_options *options, const corral_op *ops, size_t count) {
  const corral_store *plugin = options->plugin;
  size_t i = 0;
  while (i < count && ops[i].verb == CORRAL_VERB_GET) i++;
  return i == count && plugin->threads == CORRAL_THREADS_HANDLE && plugin->descriptor != NULL &&
         plugin->begin != NULL && plugin->finish != NULL && plugin->op_size <= sizeof(corral_op);
}

/* ---- sending ------------------------------------------------------------------------------- */

static void give_back(crl_server *server, void *handle) {
  crl_server_lock(server);
  crl_seat *next = crl_seats_pass_on(&server->usual, handle);
  crl_server_unlock(server);
  crl_seats_call(next);
}

/* Takes a handle; 0: this server's looks are left to others. */
static int take(part *p, crl_server *server, int64_t now, int64_t deadline) {
  if (crl_server_failures(server) > 0 || !crl_server_lone_take(server, &p->lone, now, deadline))
    return 0;
  p->server = server;
  p->lone.pace.deadline = 0; /* of functions that never wait */
  if (server->options->plugin->descriptor(p->lone.handle) >= 0) return 1;
  give_back(server, p->lone.handle);
  return 0;
}

/* Copies the looks of server `number` out of all. */
static void gather(const crl_spread *spread, int number, crl_lone *lone) {
  lone->count = 0;
  for (size_t i = 0; i < spread->count; i++)
    if (spread->routes[i] == number) lone->ops[lone->count++] = spread->ops[i];
}

static void begin(part *p, int64_t now) {
  crl_server_batch_preset(p->lone.ops, p->lone.count);
  crl_server_batch_flag(p->lone.ops, p->lone.count, 1);
  p->batch = (corral_batch){
      .ops = p->lone.ops, .count = p->lone.count, .op_size = sizeof(corral_op), .now = now};
  crl_pace_begin(&p->lone.pace);
  p->status = p->server->options->plugin->begin(p->lone.handle, &p->batch, &p->why);
  crl_pace_end();
}

/* Begins the looks of all servers that there are among the routes. */
static void begin_all(const crl_spread *spread, parts *all) {
  int64_t now = crl_env_now_ms();
  size_t used = 0;
  for (size_t i = 0; i < spread->count; i++) {
    part *p = &all->list[all->count];
    int number = spread->routes[i], is_first = 1;
    for (size_t j = 0; j < i && is_first; j++) is_first = spread->routes[j] != number;
    if (!is_first || !take(p, atomic_load(&spread->servers[number]), now, spread->deadline))
      continue;
    p->lone.ops = all->copies + used;
    gather(spread, number, &p->lone);
    used += p->lone.count;
    begin(p, now);
    p->is_under_way = p->status == CORRAL_OK;
    all->under_way += (size_t)p->is_under_way;
    all->fds[all->count++] = (struct pollfd){
        .fd = p->is_under_way ? p->server->options->plugin->descriptor(p->lone.handle) : -1,
        .events = POLLIN};
  }
}

/* ---- hearing ------------------------------------------------------------------------------- */

static void leave(parts *all, part *p) {
  p->is_under_way = 0;
  all->fds[p - all->list].fd = -1;
  all->under_way--;
}

static void hear(parts *all, part *p) {
  int done = 0;
  crl_pace_go_on(&p->lone.pace);
  p->status = p->server->options->plugin->finish(p->lone.handle, &done, &p->why);
  (void)crl_pace_moved(0, 0); /* the plugin's own time ends here */
  crl_pace_end();
  if (p->status != CORRAL_OK || done) leave(all, p);
}

static void give_up(parts *all, part *p) {
  p->status =
      crl_status_fail(&p->why, CORRAL_EUNAVAILABLE, "%s: no answer: the time allowed is over",
                      p->server->options->info.name);
  leave(all, p);
}

/* The time to wait, in ms. */
static int patience(const parts *all) {
  int64_t now = crl_env_now_ms(), soonest = INT64_MAX;
  for (size_t i = 0; i < all->count; i++)
    if (all->list[i].is_under_way && all->list[i].lone.pace.limit < soonest)
      soonest = all->list[i].lone.pace.limit;
  int64_t left = soonest - now;
  return left <= 0 ? 0 : left > 60000 ? 60000 : (int)left;
}

static void hear_all(parts *all) {
  while (all->under_way > 0) {
    int ready = poll(all->fds, all->count, patience(all));
    int64_t now = crl_env_now_ms();
    for (size_t i = 0; i < all->count && ready >= 0; i++) {
      part *p = &all->list[i];
      if (!p->is_under_way) continue;
      if (all->fds[i].revents != 0)
        hear(all, p);
      else if (now >= p->lone.pace.limit)
        give_up(all, p);
    }
  }
}

/* ---- all of it ----------------------------------------------------------------------------- */

/* Ends the looks of one server. Those that one answer didn't tell for sure are left to be asked
 * again. */
static void end(crl_spread *spread, part *p) {
  int worked = p->status == CORRAL_OK;
  size_t at = 0;
  p->lone.pace.deadline = p->lone.pace.first; /* of a repeat, by perform */
  crl_server_lone_end(p->server, &p->lone, p->status, &p->why, &spread->opened);
  crl_server_read_large(p->server, p->lone.ops, p->lone.count, spread->deadline, &spread->opened);
  for (size_t i = 0; i < spread->count; i++) {
    if (spread->routes[i] != (int)p->server->number) continue;
    spread->ops[i] = p->lone.ops[at++];
    if (!worked || spread->ops[i].status != CORRAL_EINDOUBT) spread->routes[i] = CRL_SPREAD_DONE;
  }
}

void crl_spread_look(crl_spread *spread) {
  parts all = {.copies = crl_alloc(spread->count * sizeof *all.copies),
               .list = crl_alloc(spread->count * sizeof *all.list),
               .fds = crl_alloc(spread->count * sizeof *all.fds)};
  if (all.copies != NULL && all.list != NULL && all.fds != NULL) {
    begin_all(spread, &all);
    hear_all(&all);
    for (size_t i = 0; i < all.count; i++) end(spread, &all.list[i]);
  }
  free(all.copies);
  free(all.list);
  free(all.fds);
}
