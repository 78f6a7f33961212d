/* cluster_moved.c: replies of a cluster's node that name another one: MOVED, which has the slot
 * from now on, and ASK, which serves this one key, as it is on its way there. */
#include <stdlib.h>

#include "cluster.h"

/* Reads "SLOT HOST:PORT", perhaps without the host: then it is that of the node which said so. */
static int read_place(const crl_redis_store *said_by, const char *text, unsigned *ret_slot,
                      crl_redis_place *ret) {
  char *end;
  unsigned long slot = strtoul(text, &end, 10);
  if (end == text || *end != ' ' || slot >= CRL_REDIS_SLOTS) return 0;
  const char *host = end + 1, *stop = host + strcspn(host, " ,@\r\n"), *colon = stop;
  while (colon > host && *colon != ':') colon--;
  if (*colon != ':') return 0;
  long port = strtol(colon + 1, &end, 10);
  size_t len = (size_t)(colon - host);
  if (end == colon + 1 || end > stop || port < 1 || port > 65535) return 0;
  if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
    host++;
    len -= 2;
  }
  if (len == 0 || (len == 1 && *host == '?')) {
    host = said_by->server;
    len = strlen(host);
  }
  if (len >= sizeof ret->host) return 0;
  memset(ret, 0, sizeof *ret);
  memcpy(ret->host, host, len);
  for (size_t i = 0; i < len; i++)
    if (ret->host[i] <= ' ' || ret->host[i] > '~') return 0;
  ret->port = (int)port;
  *ret_slot = (unsigned)slot;
  return 1;
}

/* A node that sends keys to itself means what its name had been before: that name has another
 * address now. */
static void follow(crl_redis_handle *h, corral_op *op, unsigned slot, size_t number, int for_good) {
  crl_redis_cluster *c = crl_redis_cluster_of(h->store);
  const crl_redis_node *said_by = (const crl_redis_node *)(const void *)h->store;
  int is_itself = said_by->number == number,
      is_news = for_good && !is_itself && crl_redis_slot_give(c, slot, number);
  if (is_itself) h->elsewhere = 1;
  if (is_news) crl_redis_slots_moved(c);
  atomic_store(&c->hint, (uint32_t)number);
  op->server = (uint32_t)number;
  op->flags &= ~(uint32_t)(CORRAL_OP_ASKING | CORRAL_OP_MAPPED);
  if (!for_good) op->flags |= CORRAL_OP_ASKING;
  if (for_good && !is_itself && !is_news) op->flags |= CORRAL_OP_MAPPED;
  op->status = CORRAL_EMOVED;
}

int crl_redis_moved(crl_redis_handle *h, corral_op *op, const redisReply *reply) {
  int moved, asks;
  unsigned slot;
  crl_redis_place place;
  if (h->store->kind != CRL_REDIS_NODE) return 0;
  moved = crl_redis_reply_is_error(reply, "MOVED");
  asks = !moved && crl_redis_reply_is_error(reply, "ASK");
  if (!moved && !asks) return 0;
  const char *text = strchr(reply->str, ' ');
  /* a transaction can't be asked so: ASKING would be queued */
  if (asks && op->verb >= CORRAL_VERB_LOCK && h->store->scriptless) return 0;
  if (text == NULL || !read_place(h->store, text + 1, &slot, &place) ||
      slot != crl_redis_slot_of(op->key, op->key_len))
    return 0;
  size_t number = crl_redis_node_meet(crl_redis_cluster_of(h->store), &place);
  if (number == 0) return 0;
  follow(h, op, slot, number, moved);
  return 1;
}
