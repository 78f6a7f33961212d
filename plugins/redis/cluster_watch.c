/* cluster_watch.c: one watch for all nodes of a cluster: for each primary that has watched keys a
 * connection of its own (watch.c), all in one poll set.
 *
 * A node names only changes that it sees, so nothing is told of a key whose slot has another node
 * by now. The watch remembers which keys it has registered, slot by slot, and tells them when their
 * slot has moved; so it does when the connection to their node ends. Such a connection is opened
 * again with the next key; the others don't notice.
 *
 * A process that asks for nothing hears of no move. So the map is asked for once in MAP_MS. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cluster.h"

enum {
  KEYS_MOST = 64, /* of a slot; of more it is remembered that there are some */
  MAP_MS = 60000,
  DEAF_MS = 1000,
  MAP_LIMIT_MS = 1000,
  CONNECT_MS = 250, /* the other nodes' pushes wait meanwhile */
  CONNECT_EVERY_MS = 1000,
  NODES_TRIED = 3
};

/* The registered keys of a slot. */
typedef struct registered {
  uint32_t entry; /* of the map, when the first of them was registered */
  uint32_t count;
  int more; /* 1: some are not in `hashes` */
  uint64_t hashes[KEYS_MOST];
} registered;

typedef struct member {
  size_t number;
  void *watch;
  int is_broken; /* 1: to be closed by the next `changes` */
} member;

typedef struct cluster_watch {
  crl_redis_cluster *cluster;
  member members[CRL_REDIS_NODES];
  size_t count;
  struct pollfd fds[CRL_REDIS_NODES + 3];
  int ear;                            /* where moves are told; -1: nowhere */
  int64_t failed_at[CRL_REDIS_NODES]; /* host->now_ms of the last failure to connect */
  int64_t asked_at;                   /* for the map */
  registered *slots[CRL_REDIS_SLOTS]; /* NULL: none */
} cluster_watch;

typedef struct listener {
  void (*told)(void *arg, uint64_t hash);
  void *arg;
  size_t count;
} listener;

static void tell(void *arg, uint64_t hash) {
  listener *to = arg;
  to->told(to->arg, hash);
  to->count++;
}

/* The node that told of changes of this key isn't heard any more. */
static void tell_missed(listener *to, const corral_host *host, uint64_t hash) {
  host->missed(to->arg, hash);
  to->count++;
}

static int64_t now_ms(const cluster_watch *w) { return w->cluster->base.host->now_ms(); }

/* ---- registered keys ----------------------------------------------------------------------- */

static void remember(cluster_watch *w, unsigned slot, uint32_t entry, uint64_t hash) {
  registered *r = w->slots[slot];
  if (r == NULL) r = w->slots[slot] = calloc(1, sizeof *r);
  if (r == NULL) return;
  if (r->count == 0 && !r->more) r->entry = entry;
  for (uint32_t i = 0; i < r->count; i++)
    if (r->hashes[i] == hash) return;
  if (r->count < KEYS_MOST)
    r->hashes[r->count++] = hash;
  else
    r->more = 1;
}

/* A push has used the registration up. */
static void forget(void *arg, const void *key, size_t len, uint64_t hash) {
  const cluster_watch *w = arg;
  registered *r = w->slots[w->cluster->ways->slot_of(key, len)];
  for (uint32_t i = 0; r != NULL && i < r->count; i++)
    if (r->hashes[i] == hash) r->hashes[i] = r->hashes[--r->count];
}

/* `missed`: nothing is known of the keys, else they are on another node. */
static void tell_slot(cluster_watch *w, unsigned slot, int missed, listener *to) {
  const corral_host *host = w->cluster->base.host;
  registered *r = w->slots[slot];
  for (uint32_t i = 0; i < r->count && missed; i++) tell_missed(to, host, r->hashes[i]);
  for (uint32_t i = 0; i < r->count && !missed; i++) tell(to, r->hashes[i]);
  if (r->more) tell(to, 0);
  free(r);
  w->slots[slot] = NULL;
}

static void tell_moved(cluster_watch *w, listener *to) {
  for (unsigned slot = 0; slot < CRL_REDIS_SLOTS; slot++)
    if (w->slots[slot] != NULL && w->slots[slot]->entry != crl_redis_slot_entry(w->cluster, slot))
      tell_slot(w, slot, 0, to);
}

/* ---- members ------------------------------------------------------------------------------- */

/* After its connection ended: what it had registered is not watched any more. */
static void lose(cluster_watch *w, size_t at, listener *to) {
  size_t number = w->members[at].number;
  crl_redis_unwatch(w->members[at].watch);
  w->members[at] = w->members[--w->count];
  for (unsigned slot = 0; slot < CRL_REDIS_SLOTS; slot++)
    if (w->slots[slot] != NULL && crl_redis_slot_number(w->slots[slot]->entry) == number)
      tell_slot(w, slot, 1, to);
}

static size_t find(const cluster_watch *w, size_t number) {
  size_t at = 0;
  while (at < w->count && w->members[at].number != number) at++;
  return at;
}

/* Connects to a node. *ret_at: its index among the members. */
static int open_member(cluster_watch *w, size_t number, int64_t deadline, size_t *ret_at,
                       corral_error *error) {
  const corral_host *host = w->cluster->base.host;
  int64_t now = now_ms(w);
  crl_redis_node *node = NULL;
  void *watch;
  *ret_at = find(w, number);
  if (*ret_at < w->count && !w->members[*ret_at].is_broken) return CORRAL_OK;
  int is_due = *ret_at == w->count;
  if (is_due && (now - w->failed_at[number] >= CONNECT_EVERY_MS || w->failed_at[number] == 0))
    node = crl_redis_node_hold(w->cluster, number);
  if (node == NULL)
    return host->fail(error, CORRAL_EUNAVAILABLE, "%s: no connection to watch by",
                      w->cluster->base.name);
  if (deadline > now + CONNECT_MS) deadline = now + CONNECT_MS;
  int status = crl_redis_watch(&node->store, 0, deadline, &watch, error);
  w->failed_at[number] = status == CORRAL_OK ? 0 : now_ms(w);
  if (status != CORRAL_OK) return status;
  crl_redis_watch_keys(watch, forget, w);
  w->members[w->count++] = (member){.number = number, .watch = watch};
  return CORRAL_OK;
}

/* Members without slots are of no more use. */
static void close_idle(cluster_watch *w, listener *to) {
  uint8_t used[CRL_REDIS_NODES] = {0};
  for (unsigned slot = 0; slot < CRL_REDIS_SLOTS; slot++)
    used[crl_redis_slot_number(crl_redis_slot_entry(w->cluster, slot)) % CRL_REDIS_NODES] = 1;
  for (size_t i = w->count; i > 0; i--)
    if (!used[w->members[i - 1].number]) lose(w, i - 1, to);
}

/* ---- opening ------------------------------------------------------------------------------- */

/* A descriptor of the cluster, which any thread may write to, and so is closed with that. */
static int make_fd(crl_redis_cluster *c) {
  pthread_mutex_lock(&c->mutex);
  int fd = atomic_load(&c->moved_fd);
  if (fd < 0) {
    fd = c->base.host->own_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    atomic_store(&c->moved_fd, fd);
  }
  pthread_mutex_unlock(&c->mutex);
  return fd;
}

static int have_map(crl_redis_cluster *c, int64_t deadline, corral_error *error) {
  void *handle;
  if (atomic_load(&c->has_map)) return CORRAL_OK;
  int status = c->ways->enter(c, deadline, &handle, error);
  if (status == CORRAL_OK) crl_redis_disconnect(handle);
  return status;
}

/* Connects to the first of some nodes that answers: whether it can be watched at all is known
 * then. */
static int open_any(cluster_watch *w, int64_t deadline, corral_error *error) {
  int status = CORRAL_EUNAVAILABLE;
  size_t at;
  uint8_t tried[CRL_REDIS_NODES] = {1};
  for (unsigned slot = 0, tries = 0; slot < CRL_REDIS_SLOTS && tries < NODES_TRIED; slot++) {
    size_t number = crl_redis_slot_number(crl_redis_slot_entry(w->cluster, slot));
    if (tried[number]) continue;
    tried[number] = 1;
    tries++;
    status = open_member(w, number, deadline, &at, error);
    if (status == CORRAL_OK || status == CORRAL_EUNSUPPORTED) break;
  }
  return status;
}

void crl_redis_cluster_unwatch(void *watch) {
  cluster_watch *w = watch;
  for (size_t i = 0; i < w->count; i++) crl_redis_unwatch(w->members[i].watch);
  for (unsigned slot = 0; slot < CRL_REDIS_SLOTS; slot++) free(w->slots[slot]);
  free(w);
}

int crl_redis_cluster_watch(void *store, size_t server, int64_t deadline, void **ret_watch,
                            corral_error *error) {
  crl_redis_cluster *c = store;
  (void)server;
  int status = have_map(c, deadline, error);
  if (status != CORRAL_OK) return status;
  if (make_fd(c) < 0)
    return c->base.host->fail(error, CORRAL_EIO, "%s: no descriptor for a watch", c->base.name);
  cluster_watch *w = calloc(1, sizeof *w);
  if (w == NULL)
    return c->base.host->fail(error, CORRAL_ENOMEM, "%s: no memory for a watch", c->base.name);
  w->cluster = c;
  w->asked_at = now_ms(w);
  w->ear = -1;
  corral_error why = {.status = CORRAL_OK};
  status = open_any(w, deadline, &why);
  if (status != CORRAL_OK) {
    c->base.host->fail(error, status, "%s", why.text);
    crl_redis_cluster_unwatch(w);
    return status;
  }
  *ret_watch = w;
  return crl_redis_watch_mode(
      &c->base, why.code, c->ways->listen != NULL ? ", of the primary" : ", of each node", error);
}

/* ---- registering --------------------------------------------------------------------------- */

/* Keys of one node, out of all. */
typedef struct part {
  corral_registration *keys;
  size_t *from;
  uint32_t *entries; /* of all keys */
  size_t count;
} part;

static void take_back(cluster_watch *w, const part *p, corral_registration *keys) {
  for (size_t i = 0; i < p->count; i++) {
    corral_registration *key = &keys[p->from[i]];
    *key = p->keys[i];
    if (key->status != CORRAL_OK && key->status != CORRAL_EMISS && key->status != CORRAL_EFOREIGN)
      continue;
    remember(w, w->cluster->ways->slot_of(key->key, key->key_len), p->entries[p->from[i]],
             w->cluster->base.host->hash64(key->key, key->key_len));
  }
}

/* Registers the keys of the node that has key `first`. Any status but CORRAL_OK: `stop_fd`. */
static int register_part(cluster_watch *w, part *p, corral_registration *keys, size_t count,
                         size_t first, int stop_fd, int64_t deadline, corral_error *error) {
  size_t number = crl_redis_slot_number(p->entries[first]), at;
  p->count = 0;
  for (size_t i = first; i < count; i++) {
    if (crl_redis_slot_number(p->entries[i]) != number) continue;
    p->from[p->count] = i;
    p->keys[p->count++] = keys[i];
  }
  if (number == CRL_REDIS_FRONT_DOOR || open_member(w, number, deadline, &at, NULL) != CORRAL_OK)
    return CORRAL_OK;
  int status =
      crl_redis_register_keys(w->members[at].watch, p->keys, p->count, stop_fd, deadline, error);
  if (status == CORRAL_OK) take_back(w, p, keys);
  w->members[at].is_broken = status != CORRAL_OK;
  return status == CORRAL_ECANCELLED ? status : CORRAL_OK;
}

static int is_first(const part *p, size_t at) {
  size_t number = crl_redis_slot_number(p->entries[at]), i = 0;
  while (crl_redis_slot_number(p->entries[i]) != number) i++;
  return i == at;
}

int crl_redis_cluster_register_keys(void *watch, corral_registration *keys, size_t count,
                                    int stop_fd, int64_t deadline, corral_error *error) {
  cluster_watch *w = watch;
  int status = CORRAL_OK;
  part p = {.keys = calloc(count, sizeof *p.keys),
            .from = calloc(count, sizeof *p.from),
            .entries = calloc(count, sizeof *p.entries)};
  if (p.keys == NULL || p.from == NULL || p.entries == NULL)
    status = w->cluster->base.host->fail(error, CORRAL_ENOMEM, "%s: no memory for a watch",
                                         w->cluster->base.name);
  for (size_t i = 0; i < count && status == CORRAL_OK; i++) {
    keys[i].status = CORRAL_EUNAVAILABLE;
    p.entries[i] =
        crl_redis_slot_entry(w->cluster, w->cluster->ways->slot_of(keys[i].key, keys[i].key_len));
  }
  for (size_t i = 0; i < count && status == CORRAL_OK; i++)
    if (is_first(&p, i)) status = register_part(w, &p, keys, count, i, stop_fd, deadline, error);
  free(p.keys);
  free(p.from);
  free(p.entries);
  return status;
}

/* ---- listening ----------------------------------------------------------------------------- */

static void hear_all(cluster_watch *w, listener *to) {
  for (size_t i = w->count; i > 0; i--) {
    member *m = &w->members[i - 1];
    if (m->is_broken ||
        crl_redis_changes(m->watch, -1, CRL_NET_AT_ONCE, tell, to, NULL) != CORRAL_OK)
      lose(w, i - 1, to);
  }
}

/* When the map is to be learnt anew: soon where those who should tell of moves are out of reach. */
static int64_t map_due(const cluster_watch *w) {
  int is_deaf = w->cluster->ways->listen != NULL && w->ear < 0;
  return w->asked_at + (is_deaf ? DEAF_MS : MAP_MS);
}

/* Learns the map, if that is due, so that moves are known. */
static void ask_for_map(cluster_watch *w) {
  int changed;
  if (now_ms(w) < map_due(w)) return;
  (void)w->cluster->ways->learn(w->cluster, now_ms(w) + MAP_LIMIT_MS, &changed, NULL);
  w->asked_at = now_ms(w);
}

static int64_t due(const cluster_watch *w, int64_t until) {
  for (size_t i = 0; i < w->count; i++) {
    int64_t at = crl_redis_watch_due(w->members[i].watch);
    if (at < until) until = at;
  }
  return map_due(w) < until ? map_due(w) : until;
}

/* Waits until a node has told something, a slot has moved, or there is something to do. *ret_stop:
 * `stop_fd` is readable. */
static int rest(cluster_watch *w, int stop_fd, int64_t until, int *ret_stop, corral_error *error) {
  int64_t left = due(w, until) - now_ms(w);
  w->fds[0] = (struct pollfd){.fd = stop_fd, .events = POLLIN};
  w->fds[1] = (struct pollfd){.fd = atomic_load(&w->cluster->moved_fd), .events = POLLIN};
  w->fds[2] = (struct pollfd){.fd = w->ear, .events = POLLIN};
  for (size_t i = 0; i < w->count; i++)
    w->fds[i + 3] =
        (struct pollfd){.fd = crl_redis_watch_fd(w->members[i].watch), .events = POLLIN};
  int n = poll(w->fds, w->count + 3, left <= 0 ? 0 : left > MAP_MS ? MAP_MS : (int)left);
  *ret_stop = n > 0 && w->fds[0].revents != 0;
  return n >= 0 || errno == EINTR
             ? CORRAL_OK
             : crl_net_failed_errno(&w->cluster->seeds[0]->store.peer, error, "poll");
}

/* The counter is emptied first: a slot that moves from now on makes it readable again. */
static void hear_moves(cluster_watch *w, listener *to) {
  uint64_t moves;
  if (read(atomic_load(&w->cluster->moved_fd), &moves, sizeof moves) < 0) return;
  tell_moved(w, to);
  close_idle(w, to);
}

int crl_redis_cluster_changes(void *watch, int stop_fd, int64_t until,
                              void (*told)(void *arg, uint64_t hash), void *arg,
                              corral_error *error) {
  cluster_watch *w = watch;
  listener to = {.told = told, .arg = arg};
  int status = CORRAL_OK, stop = 0;
  while (status == CORRAL_OK && !stop) {
    if (w->cluster->ways->listen != NULL) w->ear = w->cluster->ways->listen(w->cluster);
    hear_moves(w, &to);
    hear_all(w, &to);
    ask_for_map(w);
    if (to.count > 0 || now_ms(w) >= until) break;
    status = rest(w, stop_fd, until, &stop, error);
  }
  return status;
}
