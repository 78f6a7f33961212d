/* inspect_cluster.c: a whole cluster: its state as a node tells it, the hosts of the URI, and each
 * primary. Replicas are judged by their primary, and by the list of nodes that have failed. */
#include <stdarg.h>
#include <stdlib.h>

#include "inspect.h"

static const char label[] = "cluster"; /* the server of facts about all nodes */

__attribute__((format(printf, 5, 6))) static void tell(const corral_inquiry *q, const char *name,
                                                       int verdict, const char *advice,
                                                       const char *format, ...) {
  va_list args;
  va_start(args, format);
  crl_redis_fact_tell(q, label, name, verdict, advice, format, args);
  va_end(args);
}

/* ---- what a node tells of the cluster ------------------------------------------------------- */

static void tell_state(crl_redis_exam *x) {
  redisReply *reply;
  char text[32];
  if (crl_redis_exam_ask(x, (const char *[]){"CLUSTER", "INFO"}, 2, &reply) != CORRAL_OK) return;
  if (crl_redis_exam_line(reply, "cluster_state", text, sizeof text))
    tell(x->inquiry, "state", CORRAL_FACT_UNFIT,
         strcmp(text, "ok") != 0 ? "redis-cli --cluster check tells what the cluster lacks." : NULL,
         "%s", text);
  if (crl_redis_exam_line(reply, "cluster_known_nodes", text, sizeof text))
    tell(x->inquiry, "known_nodes", CORRAL_FACT_PLAIN, NULL, "%s", text);
  freeReplyObject(reply);
}

/* The address of a line of CLUSTER NODES ("id address flags ..."), if that node has failed. */
static int failed_address(const char *line, size_t len, char *ret, size_t size) {
  const char *end = line + len;
  const char *address = memchr(line, ' ', len);
  const char *flags =
      address != NULL ? memchr(address + 1, ' ', (size_t)(end - address - 1)) : NULL;
  if (flags == NULL) return 0;
  const char *stop = memchr(flags + 1, ' ', (size_t)(end - flags - 1));
  char words[128];
  snprintf(words, sizeof words, ",%.*s,", stop != NULL ? (int)(stop - flags - 1) : 0, flags + 1);
  if (strstr(words, ",fail,") == NULL && strstr(words, ",fail?,") == NULL) return 0;
  int room = (int)strcspn(address + 1, "@, ");
  snprintf(ret, size, " %.*s", room < 64 ? room : 64, address + 1);
  return 1;
}

static void tell_failed(crl_redis_exam *x) {
  redisReply *reply;
  char list[CRL_REDIS_FACT] = "", one[80];
  int count = 0;
  if (crl_redis_exam_ask(x, (const char *[]){"CLUSTER", "NODES"}, 2, &reply) != CORRAL_OK) return;
  int is_told = reply->type == REDIS_REPLY_STRING;
  for (const char *at = is_told ? reply->str : NULL; at != NULL && *at != '\0';) {
    size_t len = strcspn(at, "\n"), used = strlen(list);
    if (failed_address(at, len, one, sizeof one)) {
      count++;
      snprintf(list + used, sizeof list - used, "%s", one);
    }
    at += len + (at[len] == '\n');
  }
  if (is_told)
    tell(x->inquiry, "failed_nodes", CORRAL_FACT_WARNING,
         count > 0 ? "Start them again, or take them out with redis-cli --cluster del-node." : NULL,
         "%d%s", count, list);
  freeReplyObject(reply);
}

static void tell_coverage_rule(crl_redis_exam *x) {
  redisReply *reply;
  const char *const words[] = {"CONFIG", "GET", "cluster-require-full-coverage"};
  if (crl_redis_exam_ask(x, words, 3, &reply) != CORRAL_OK) return;
  if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
      reply->element[1]->type == REDIS_REPLY_STRING)
    tell(x->inquiry, "require_full_coverage", CORRAL_FACT_WARNING,
         strcmp(reply->element[1]->str, "yes") == 0
             ? "Set cluster-require-full-coverage no: one lost shard stops all others."
             : NULL,
         "%s", reply->element[1]->str);
  freeReplyObject(reply);
}

/* ---- slots --------------------------------------------------------------------------------- */

/* Counts the slots of each node. */
static void count_slots(const crl_redis_cluster *c, size_t counts[CRL_REDIS_NODES]) {
  memset(counts, 0, CRL_REDIS_NODES * sizeof *counts);
  for (unsigned slot = 0; slot < CRL_REDIS_SLOTS; slot++)
    counts[crl_redis_slot_number(crl_redis_slot_entry(c, slot)) % CRL_REDIS_NODES]++;
}

/* 1: a primary that is looked at has this name. */
static int is_primary(crl_redis_cluster *c, const size_t counts[CRL_REDIS_NODES],
                      const char *name) {
  for (size_t i = 1; i < CRL_REDIS_NODES; i++) {
    crl_redis_node *node = counts[i] > 0 ? crl_redis_node_hold(c, i) : NULL;
    int is = node != NULL && strcmp(node->store.name, name) == 0;
    if (node != NULL) crl_redis_node_let_go(&node->store);
    if (is) return 1;
  }
  return 0;
}

/* Connects to the hosts of the URI that aren't looked at anyway. */
static void look_at_hosts(crl_redis_cluster *c, const corral_inquiry *q,
                          const size_t counts[CRL_REDIS_NODES]) {
  for (size_t i = 0; i < c->seed_count; i++) {
    crl_redis_store *s = &c->seeds[i]->store;
    corral_error why = {0};
    void *handle;
    if (is_primary(c, counts, s->name)) continue;
    atomic_fetch_add(&c->seeds[i]->holders, 1);
    if (crl_redis_connect(s, crl_redis_inspect_until(s, q), &handle, &why) == CORRAL_OK) {
      crl_redis_disconnect(handle);
      corral_tell(q, s->name, "reached", "yes", CORRAL_FACT_PLAIN, NULL);
      continue;
    }
    corral_tell_unreached(q, s->name, &why, CORRAL_FACT_WARNING,
                          "Start that node, or take it out of the URI.");
  }
}

static void look_at_node(crl_redis_cluster *c, const corral_inquiry *q, size_t number,
                         size_t slots) {
  char value[32];
  crl_redis_node *node = crl_redis_node_hold(c, number);
  if (node == NULL) return;
  snprintf(value, sizeof value, "%zu", slots);
  corral_tell(q, node->store.name, "slots", value, CORRAL_FACT_PLAIN, NULL);
  (void)crl_redis_inspect_one(&node->store, q, CORRAL_FACT_UNFIT,
                              "Start it, or make its replica the primary: nobody serves its "
                              "slots.");
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* Asks a node of which the map is, which is learnt anew. */
static int look_at_all(crl_redis_cluster *c, const corral_inquiry *q, corral_error *error) {
  corral_error why = {0};
  void *handle;
  int changed;
  int64_t until = c->base.host->now_ms() + q->op_ms * (int64_t)c->seed_count;
  int status = c->ways->enter(c, until, &handle, error);
  if (status != CORRAL_OK) return status;
  crl_redis_exam x = {.inquiry = q, .store = &c->base, .handle = handle, .error = &why};
  if (crl_redis_slots_ask(c, handle, crl_redis_inspect_until(&c->base, q), &changed, &why) ==
      CORRAL_OK) {
    tell_state(&x);
    tell_failed(&x);
    tell_coverage_rule(&x);
  }
  crl_redis_disconnect(handle);
  return CORRAL_OK;
}

int crl_redis_cluster_inspect(void *store, const corral_inquiry *q, corral_error *error) {
  crl_redis_cluster *c = store;
  size_t counts[CRL_REDIS_NODES];
  int status = look_at_all(c, q, error);
  if (status != CORRAL_OK) return status;
  count_slots(c, counts);
  size_t uncovered = counts[CRL_REDIS_FRONT_DOOR];
  tell(q, "slots_uncovered", CORRAL_FACT_UNFIT,
       uncovered > 0 ? "redis-cli --cluster fix gives them to a node." : NULL, "%zu", uncovered);
  look_at_hosts(c, q, counts);
  for (size_t i = 1; i < CRL_REDIS_NODES; i++)
    if (counts[i] > 0) look_at_node(c, q, i, counts[i]);
  return CORRAL_OK;
}
