/* fuzz_redis_slots.c: maps of a cluster, and replies that name another node. Byte 0: 1: a map was
 * known before; 2: the bytes are the text of such a reply. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "redis/cluster.h"
#include "store/registry.h"
#include "store/uri.h"

#define ID "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static const char known[] = "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$1\r\nh\r\n:1\r\n$40\r\n" ID "\r\n";

/* Each slot's number is that of a node, or of the front door. */
static void check(crl_redis_cluster *c) {
  for (unsigned slot = 0; slot < CRL_REDIS_SLOTS; slot++) {
    size_t number = crl_redis_slot_number(crl_redis_slot_entry(c, slot));
    MUST(number < CRL_REDIS_NODES);
    if (number == CRL_REDIS_FRONT_DOOR) continue;
    const crl_redis_node *node = c->nodes[number];
    MUST(node != NULL && node->host[0] != '\0' && strlen(node->host) < CRL_REDIS_HOST);
    MUST(node->store.port > 0 && node->store.port <= 65535);
  }
}

static int reads(crl_redis_cluster *c, const void *data, size_t size) {
  crl_redis_resp in = {0};
  crl_redis_message message;
  corral_error error = {0};
  size_t room;
  int changed = 0, status = CORRAL_EPROTOCOL;
  for (size_t at = 0, step; at < size; at += step) {
    char *to = crl_redis_resp_room(&in, &room);
    MUST(to != NULL);
    step = size - at < room ? size - at : room;
    memcpy(to, (const char *)data + at, step);
    crl_redis_resp_feed(&in, step);
  }
  if (crl_redis_resp_next(&in, &message) > 0)
    status = crl_redis_slots_read(c, c->seeds[0], message, &changed, &error);
  MUST(status <= 0 && (status == CORRAL_OK || !changed));
  crl_redis_resp_free(&in);
  check(c);
  return status;
}

static void follows(crl_redis_cluster *c, const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  MUST(text != NULL);
  if (size > 0) memcpy(text, data, size);
  text[size] = '\0';
  redisReply reply = {.type = REDIS_REPLY_ERROR, .str = text, .len = size};
  crl_redis_handle *h = calloc(1, sizeof *h);
  corral_op op = {.verb = CORRAL_VERB_GET, .key = "k", .key_len = 1, .status = CORRAL_EINDOUBT};
  MUST(h != NULL);
  h->store = &c->seeds[0]->store;
  int moved = crl_redis_moved(h, &op, &reply);
  MUST(op.status == (moved ? CORRAL_EMOVED : CORRAL_EINDOUBT));
  MUST(!moved || (op.server > 0 && op.server < CRL_REDIS_NODES));
  free(h);
  free(text);
  check(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  crl_uri uri;
  void *store;
  corral_store_info info = {.size = sizeof info};
  corral_error error = {0};
  uint8_t how = size > 0 ? data[0] : 0;
  MUST(crl_uri_parse(&uri, "redis+cluster://seed/", &error) == CORRAL_OK);
  MUST(crl_plugin_redis_cluster.open(crl_registry_host(), &uri.view, &store, &info, &error) ==
       CORRAL_OK);
  crl_uri_free(&uri);
  if (how & 1) MUST(reads(store, known, sizeof known - 1) == CORRAL_OK);
  if (how & 2)
    follows(store, data + 1, size - 1);
  else if (size > 0)
    (void)reads(store, data + 1, size - 1);
  crl_plugin_redis_cluster.close(store);
  return 0;
}
