/* cluster_map.c: which node of a cluster has which slot, and the numbers of nodes.
 *
 * A number is a node's as long as there is room for others. The number of a node that has no slots
 * and was not named for FORGOTTEN_MS is given to another one when there is no free number left:
 * then nodes[number] is another node than that of its handles, by which they know. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "cluster.h"

enum { FORGOTTEN_MS = 60000 };

/* ---- slots --------------------------------------------------------------------------------- */

/* Tables of CRC-16/XMODEM, for four bytes at a time: remainders[n] is of a byte with 2 + n bytes of
 * zeros behind it, and that is the sum of those of its bits. Source: slicing-by-4 of M. E. Kounavis
 * and F. L. Berry, ISCC 2005. */
#define BIT(byte, n, of) ((byte) >> (n)&1 ? (of) : 0)
#define SUM(byte, a, b, c, d, e, f, g, h)                                                          \
  BIT(byte, 0, a) ^ BIT(byte, 1, b) ^ BIT(byte, 2, c) ^ BIT(byte, 3, d) ^ BIT(byte, 4, e) ^        \
      BIT(byte, 5, f) ^ BIT(byte, 6, g) ^ BIT(byte, 7, h)
#define SUMS_4(byte, ...)                                                                          \
  SUM(byte, __VA_ARGS__), SUM((byte) + 1, __VA_ARGS__), SUM((byte) + 2, __VA_ARGS__),              \
      SUM((byte) + 3, __VA_ARGS__)
#define SUMS_16(byte, ...)                                                                         \
  SUMS_4(byte, __VA_ARGS__), SUMS_4((byte) + 4, __VA_ARGS__), SUMS_4((byte) + 8, __VA_ARGS__),     \
      SUMS_4((byte) + 12, __VA_ARGS__)
#define SUMS_64(byte, ...)                                                                         \
  SUMS_16(byte, __VA_ARGS__), SUMS_16((byte) + 16, __VA_ARGS__),                                   \
      SUMS_16((byte) + 32, __VA_ARGS__), SUMS_16((byte) + 48, __VA_ARGS__)
#define SUMS(...)                                                                                  \
  SUMS_64(0, __VA_ARGS__), SUMS_64(64, __VA_ARGS__), SUMS_64(128, __VA_ARGS__),                    \
      SUMS_64(192, __VA_ARGS__)

static const uint16_t remainders[4][256] = {
    {SUMS(0x1021, 0x2042, 0x4084, 0x8108, 0x1231, 0x2462, 0x48c4, 0x9188)},
    {SUMS(0x3331, 0x6662, 0xccc4, 0x89a9, 0x0373, 0x06e6, 0x0dcc, 0x1b98)},
    {SUMS(0x3730, 0x6e60, 0xdcc0, 0xa9a1, 0x4363, 0x86c6, 0x1dad, 0x3b5a)},
    {SUMS(0x76b4, 0xed68, 0xcaf1, 0x85c3, 0x1ba7, 0x374e, 0x6e9c, 0xdd38)}};

static unsigned crc16(const uint8_t *at, size_t len) {
  unsigned crc = 0;
  for (; len >= 4; len -= 4, at += 4)
    crc = (unsigned)(remainders[3][at[0] ^ crc >> 8] ^ remainders[2][at[1] ^ (crc & 0xff)] ^
                     remainders[1][at[2]] ^ remainders[0][at[3]]);
  for (; len > 0; len--, at++) crc = (crc << 8 & 0xff00) ^ remainders[0][crc >> 8 ^ *at];
  return crc;
}

unsigned crl_redis_slot_of(const void *key, size_t len) {
  const char *text = key, *open = memchr(text, '{', len);
  const char *close = open != NULL ? memchr(open, '}', len - (size_t)(open - text)) : NULL;
  if (close != NULL && close > open + 1) {
    text = open + 1;
    len = (size_t)(close - text);
  }
  return crc16((const uint8_t *)text, len) % CRL_REDIS_SLOTS;
}

int crl_redis_slot_give(crl_redis_cluster *c, unsigned slot, size_t number) {
  uint32_t was = atomic_load(&c->slots[slot]), is;
  do {
    if (crl_redis_slot_number(was) == number) return 0;
    is = (was & UINT32_C(0xffff0000)) + UINT32_C(0x10000) + (uint32_t)number;
  } while (!atomic_compare_exchange_weak(&c->slots[slot], &was, is));
  return 1;
}

void crl_redis_slots_moved(crl_redis_cluster *c) {
  const uint64_t one = 1;
  int fd = atomic_load(&c->moved_fd);
  if (fd < 0) return;
  ssize_t wrote = write(fd, &one, sizeof one);
  (void)wrote; /* a full counter is readable, too */
}

/* ---- nodes --------------------------------------------------------------------------------- */

static void hold(crl_redis_store *store) {
  crl_redis_node *n = (crl_redis_node *)(void *)store;
  atomic_fetch_add(&n->holders, 1);
}

crl_redis_node *crl_redis_node_new(crl_redis_store *base, const crl_redis_place *place,
                                   size_t number) {
  crl_redis_node *n = calloc(1, sizeof *n);
  if (n == NULL) return NULL;
  const char *tls_name = base->tls_name != NULL       ? base->tls_name
                         : place->tls_name[0] != '\0' ? place->tls_name
                                                      : place->host;
  memcpy(n->host, place->host, sizeof n->host);
  snprintf(n->tls_name, sizeof n->tls_name, "%s", tls_name);
  memcpy(n->id, place->id, sizeof n->id);
  atomic_init(&n->holders, 1);
  n->number = number;
  crl_redis_store *s = &n->store;
  s->host = base->host;
  s->base = base;
  s->kind = base->kind;
  s->let_go = crl_redis_node_let_go;
  s->hold = hold;
  s->server = n->host;
  s->port = place->port;
  s->user = base->user;
  s->password = base->password;
  s->client_name = base->client_name;
  s->db = base->db;
  s->tls = base->tls;
  s->tls_name = n->tls_name;
  s->scripts_only = base->scripts_only;
  atomic_init(&s->scriptless, atomic_load(&base->scriptless));
  s->wait_replicas = base->wait_replicas;
  s->confirm_replicas = base->confirm_replicas;
  s->wait_ms = base->wait_ms;
  s->is_quiet = number == CRL_REDIS_FRONT_DOOR; /* it is met by its own number, too */
  snprintf(s->name, sizeof s->name,
           strchr(n->host, ':') != NULL ? "%s [%.120s]:%d" : "%s %.120s:%d",
           s->kind == CRL_REDIS_SENTINEL ? "sentinel" : "redis", n->host, s->port);
  s->peer = (crl_net_peer){.host = s->host, .name = s->name, .server = n->host, .port = s->port};
  return n;
}

void crl_redis_node_let_go(crl_redis_store *store) {
  crl_redis_node *n = (crl_redis_node *)(void *)store;
  if (atomic_fetch_sub(&n->holders, 1) == 1) free(n);
}

crl_redis_node *crl_redis_node_hold(crl_redis_cluster *c, size_t number) {
  pthread_mutex_lock(&c->mutex);
  crl_redis_node *n = atomic_load(&c->nodes[number]);
  if (n != NULL) atomic_fetch_add(&n->holders, 1);
  pthread_mutex_unlock(&c->mutex);
  return n;
}

static void put_node(crl_redis_cluster *c, size_t number, crl_redis_node *node) {
  crl_redis_node *former = atomic_exchange(&c->nodes[number], node);
  if (former != NULL) crl_redis_node_let_go(&former->store);
}

/* A number that no node has, or that of one which is forgotten; 0: there is none. */
static size_t free_number(crl_redis_cluster *c) {
  int64_t before = c->base.host->now_ms() - FORGOTTEN_MS;
  for (size_t i = 1; i < CRL_REDIS_NODES; i++)
    if (atomic_load(&c->nodes[i]) == NULL) return i;
  for (size_t i = 1; i < CRL_REDIS_NODES; i++) {
    const crl_redis_node *n = atomic_load(&c->nodes[i]);
    if (!n->has_slots && n->named_at < before) return i;
  }
  return 0;
}

/* A node whose id is another one now was replaced: its connections lead to the former one. */
static int is_replaced(const crl_redis_node *n, const crl_redis_place *place) {
  return place->id[0] != '\0' && n->id[0] != '\0' && strcmp(place->id, n->id) != 0;
}

size_t crl_redis_node_meet_locked(crl_redis_cluster *c, const crl_redis_place *place) {
  size_t number = 0;
  crl_redis_node *n = NULL;
  for (size_t i = 1; i < CRL_REDIS_NODES && number == 0; i++) {
    n = atomic_load(&c->nodes[i]);
    if (n != NULL && n->store.port == place->port && strcmp(n->host, place->host) == 0) number = i;
  }
  int is_there = number != 0 && !is_replaced(n, place);
  if (is_there && n->id[0] == '\0') memcpy(n->id, place->id, sizeof n->id);
  if (!is_there) {
    if (number == 0) number = free_number(c);
    n = number != 0 ? crl_redis_node_new(&c->base, place, number) : NULL;
    if (n == NULL) return 0;
    put_node(c, number, n);
  }
  n->named_at = c->base.host->now_ms();
  return number;
}

size_t crl_redis_node_meet(crl_redis_cluster *c, const crl_redis_place *place) {
  pthread_mutex_lock(&c->mutex);
  size_t number = crl_redis_node_meet_locked(c, place);
  pthread_mutex_unlock(&c->mutex);
  return number;
}

int crl_redis_node_is(crl_redis_store *store, const char *id, size_t len) {
  crl_redis_node *n = (crl_redis_node *)(void *)store;
  crl_redis_cluster *c = crl_redis_cluster_of(store);
  if (n->number == CRL_REDIS_FRONT_DOOR || len != CRL_REDIS_ID) return 1;
  pthread_mutex_lock(&c->mutex);
  int is = n->id[0] == '\0' || memcmp(n->id, id, len) == 0;
  pthread_mutex_unlock(&c->mutex);
  return is;
}

int crl_redis_node_is_known(crl_redis_cluster *c, const crl_redis_node *node) {
  pthread_mutex_lock(&c->mutex);
  int is = node->has_slots ||
           (c->ways->listen == NULL && node->named_at > c->base.host->now_ms() - FORGOTTEN_MS);
  pthread_mutex_unlock(&c->mutex);
  return is;
}
