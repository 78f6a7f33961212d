/* list.c: lists keys: SCAN on each server. It reads through all keys of a server, a thousand for
 * each request, and holds up nobody for longer than that takes. */
#include <stdlib.h>

#include "inspect.h"
#include "redlock.h"

typedef struct scanning {
  const corral_listing *listing;
  char *pattern; /* of MATCH */
  char cursor[24];
  int ended; /* no more are wanted */
} scanning;

/* Writes a glob for what begins with the prefix. A NUL, which would end the text, is any byte. */
static char *pattern_of(const corral_listing *listing) {
  const char *prefix = listing->prefix;
  char *text = malloc(2 * listing->prefix_len + 2), *at = text;
  if (text == NULL) return NULL;
  for (size_t i = 0; i < listing->prefix_len; i++) {
    if (prefix[i] != '\0' && strchr("*?[]^\\", prefix[i]) != NULL) *at++ = '\\';
    *at++ = prefix[i];
    if (prefix[i] == '\0') at[-1] = '?';
  }
  *at++ = '*';
  *at = '\0';
  return text;
}

static void tell(scanning *s, const redisReply *key) {
  const corral_listing *l = s->listing;
  if (s->ended || key->type != REDIS_REPLY_STRING || key->len < l->prefix_len ||
      memcmp(key->str, l->prefix, l->prefix_len) != 0)
    return;
  s->ended = l->tell(l->arg, key->str, key->len) != 0;
}

/* Reads a reply to SCAN: the next cursor, and keys. */
static int read_page(crl_redis_exam *x, scanning *s, const redisReply *reply) {
  if (reply->type == REDIS_REPLY_ERROR)
    return crl_redis_reply_error(x->store, reply, CORRAL_EUNSUPPORTED, x->error);
  if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
      reply->element[0]->type != REDIS_REPLY_STRING || reply->element[0]->len >= sizeof s->cursor ||
      reply->element[1]->type != REDIS_REPLY_ARRAY)
    return x->store->host->fail(x->error, CORRAL_EPROTOCOL, "%s: no answer to SCAN",
                                x->store->name);
  snprintf(s->cursor, sizeof s->cursor, "%s", reply->element[0]->str);
  for (size_t i = 0; i < reply->element[1]->elements; i++) tell(s, reply->element[1]->element[i]);
  return CORRAL_OK;
}

static int scan(crl_redis_exam *x, scanning *s) {
  int status;
  snprintf(s->cursor, sizeof s->cursor, "0");
  do {
    const char *const words[] = {"SCAN", s->cursor, "MATCH", s->pattern, "COUNT", "1000"};
    redisReply *reply;
    status = crl_redis_exam_ask(x, words, 6, &reply);
    if (status != CORRAL_OK) break;
    status = read_page(x, s, reply);
    freeReplyObject(reply);
  } while (status == CORRAL_OK && !s->ended && strcmp(s->cursor, "0") != 0);
  return status;
}

/* One server. A node of a cluster must be held, and is let go. */
static int list_one(crl_redis_store *store, scanning *s, corral_error *error) {
  corral_inquiry q = {.size = sizeof q, .op_ms = s->listing->op_ms};
  void *handle;
  int status = crl_redis_connect(store, crl_redis_inspect_until(store, &q), &handle, error);
  if (status != CORRAL_OK) return status;
  crl_redis_exam x = {.inquiry = &q, .store = store, .handle = handle, .error = error};
  status = scan(&x, s);
  crl_redis_disconnect(handle);
  return status;
}

static int begin(scanning *s, const corral_host *host, const corral_listing *listing,
                 corral_error *error) {
  *s = (scanning){.listing = listing, .pattern = pattern_of(listing)};
  return s->pattern != NULL ? CORRAL_OK : host->fail(error, CORRAL_ENOMEM, "no memory to list");
}

int crl_redis_list(void *store, const corral_listing *listing, corral_error *error) {
  crl_redis_store *r = store;
  scanning s;
  int status = begin(&s, r->host, listing, error);
  if (status == CORRAL_OK) status = list_one(r, &s, error);
  free(s.pattern);
  return status;
}

/* Finds the numbers of the nodes that have slots: of a cluster's primaries, or of the one that
 * sentinels name, whose slot is the first. 0: a slot's node isn't known. */
static int find_nodes(const crl_redis_cluster *c, unsigned char has_slots[CRL_REDIS_NODES]) {
  unsigned slots = c->base.kind == CRL_REDIS_NODE ? CRL_REDIS_SLOTS : 1;
  memset(has_slots, 0, CRL_REDIS_NODES);
  for (unsigned slot = 0; slot < slots; slot++)
    has_slots[crl_redis_slot_number(crl_redis_slot_entry(c, slot)) % CRL_REDIS_NODES] = 1;
  return !has_slots[0];
}

/* All nodes, or none: locks that can't be seen are no free ones. */
static int list_nodes(crl_redis_cluster *c, scanning *s, corral_error *error) {
  unsigned char has_slots[CRL_REDIS_NODES];
  int status = CORRAL_OK;
  if (!find_nodes(c, has_slots))
    return c->base.host->fail(error, CORRAL_EUNAVAILABLE,
                              "%s: it isn't known which node has some of the keys", c->base.name);
  for (size_t i = 1; i < CRL_REDIS_NODES && status == CORRAL_OK && !s->ended; i++) {
    crl_redis_node *node = has_slots[i] ? crl_redis_node_hold(c, i) : NULL;
    if (node != NULL)
      status = list_one(&node->store, s, error);
    else if (has_slots[i])
      status = c->base.host->fail(error, CORRAL_EUNAVAILABLE, "%s: a node has gone meanwhile",
                                  c->base.name);
  }
  return status;
}

int crl_redis_cluster_list(void *store, const corral_listing *listing, corral_error *error) {
  crl_redis_cluster *c = store;
  scanning s;
  int changed, status = begin(&s, c->base.host, listing, error);
  int64_t until = c->base.host->now_ms() + listing->op_ms * (int64_t)c->seed_count;
  if (status == CORRAL_OK) status = c->ways->learn(c, until, &changed, error);
  if (status == CORRAL_OK) status = list_nodes(c, &s, error);
  free(s.pattern);
  return status;
}

/* A lock that is held is on enough servers, so that one of those that answer has it. */
int crl_redlock_list(void *store, const corral_listing *listing, corral_error *error) {
  crl_redlock *lock = store;
  scanning s;
  size_t reached = 0;
  int status = begin(&s, lock->host, listing, error);
  if (status != CORRAL_OK) return status;
  for (size_t i = 0; i < lock->count && !s.ended; i++)
    reached += list_one(lock->members[i].store, &s, error) == CORRAL_OK;
  free(s.pattern);
  if (s.ended || reached + lock->needed > lock->count) return CORRAL_OK;
  return lock->host->fail(error, CORRAL_EUNAVAILABLE, "%s: %zu of %zu servers answered", lock->name,
                          reached, lock->count);
}
