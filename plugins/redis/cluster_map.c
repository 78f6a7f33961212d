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

/* CRC-16/XMODEM. */
static unsigned crc16(const uint8_t *at, size_t len) {
  static const uint16_t table[256] = {
      0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a,
      0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef, 0x1231, 0x0210, 0x3273, 0x2252, 0x52b5, 0x4294,
      0x72f7, 0x62d6, 0x9339, 0x8318, 0xb37b, 0xa35a, 0xd3bd, 0xc39c, 0xf3ff, 0xe3de, 0x2462,
      0x3443, 0x0420, 0x1401, 0x64e6, 0x74c7, 0x44a4, 0x5485, 0xa56a, 0xb54b, 0x8528, 0x9509,
      0xe5ee, 0xf5cf, 0xc5ac, 0xd58d, 0x3653, 0x2672, 0x1611, 0x0630, 0x76d7, 0x66f6, 0x5695,
      0x46b4, 0xb75b, 0xa77a, 0x9719, 0x8738, 0xf7df, 0xe7fe, 0xd79d, 0xc7bc, 0x48c4, 0x58e5,
      0x6886, 0x78a7, 0x0840, 0x1861, 0x2802, 0x3823, 0xc9cc, 0xd9ed, 0xe98e, 0xf9af, 0x8948,
      0x9969, 0xa90a, 0xb92b, 0x5af5, 0x4ad4, 0x7ab7, 0x6a96, 0x1a71, 0x0a50, 0x3a33, 0x2a12,
      0xdbfd, 0xcbdc, 0xfbbf, 0xeb9e, 0x9b79, 0x8b58, 0xbb3b, 0xab1a, 0x6ca6, 0x7c87, 0x4ce4,
      0x5cc5, 0x2c22, 0x3c03, 0x0c60, 0x1c41, 0xedae, 0xfd8f, 0xcdec, 0xddcd, 0xad2a, 0xbd0b,
      0x8d68, 0x9d49, 0x7e97, 0x6eb6, 0x5ed5, 0x4ef4, 0x3e13, 0x2e32, 0x1e51, 0x0e70, 0xff9f,
      0xefbe, 0xdfdd, 0xcffc, 0xbf1b, 0xaf3a, 0x9f59, 0x8f78, 0x9188, 0x81a9, 0xb1ca, 0xa1eb,
      0xd10c, 0xc12d, 0xf14e, 0xe16f, 0x1080, 0x00a1, 0x30c2, 0x20e3, 0x5004, 0x4025, 0x7046,
      0x6067, 0x83b9, 0x9398, 0xa3fb, 0xb3da, 0xc33d, 0xd31c, 0xe37f, 0xf35e, 0x02b1, 0x1290,
      0x22f3, 0x32d2, 0x4235, 0x5214, 0x6277, 0x7256, 0xb5ea, 0xa5cb, 0x95a8, 0x8589, 0xf56e,
      0xe54f, 0xd52c, 0xc50d, 0x34e2, 0x24c3, 0x14a0, 0x0481, 0x7466, 0x6447, 0x5424, 0x4405,
      0xa7db, 0xb7fa, 0x8799, 0x97b8, 0xe75f, 0xf77e, 0xc71d, 0xd73c, 0x26d3, 0x36f2, 0x0691,
      0x16b0, 0x6657, 0x7676, 0x4615, 0x5634, 0xd94c, 0xc96d, 0xf90e, 0xe92f, 0x99c8, 0x89e9,
      0xb98a, 0xa9ab, 0x5844, 0x4865, 0x7806, 0x6827, 0x18c0, 0x08e1, 0x3882, 0x28a3, 0xcb7d,
      0xdb5c, 0xeb3f, 0xfb1e, 0x8bf9, 0x9bd8, 0xabbb, 0xbb9a, 0x4a75, 0x5a54, 0x6a37, 0x7a16,
      0x0af1, 0x1ad0, 0x2ab3, 0x3a92, 0xfd2e, 0xed0f, 0xdd6c, 0xcd4d, 0xbdaa, 0xad8b, 0x9de8,
      0x8dc9, 0x7c26, 0x6c07, 0x5c64, 0x4c45, 0x3ca2, 0x2c83, 0x1ce0, 0x0cc1, 0xef1f, 0xff3e,
      0xcf5d, 0xdf7c, 0xaf9b, 0xbfba, 0x8fd9, 0x9ff8, 0x6e17, 0x7e36, 0x4e55, 0x5e74, 0x2e93,
      0x3eb2, 0x0ed1, 0x1ef0};
  unsigned crc = 0;
  for (; len > 0; len--, at++) crc = (crc << 8 & 0xff00) ^ table[(crc >> 8 ^ *at) & 0xff];
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
