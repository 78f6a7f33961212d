/* inspect_sentinel.c: each sentinel of the URI, whether they agree, and the primary that they
 * name. */
#include <stdlib.h>

#include "inspect.h"

/* The sentinels of the URI, while they are asked one after the other. */
typedef struct round {
  crl_redis_sentinel *sentinel;
  const corral_inquiry *inquiry;
  char primary[CRL_REDIS_FACT]; /* that the first of them named; "": none was named yet */
  corral_error why;             /* of the last one that wasn't reached */
} round;

/* Asks for the primary's address; "" when it isn't told. */
static int ask_primary(crl_redis_exam *x, const char *name, char *ret, size_t size) {
  const char *const words[] = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", name};
  redisReply *reply;
  *ret = '\0';
  int status = crl_redis_exam_ask(x, words, 3, &reply);
  if (status != CORRAL_OK) return status;
  if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
      reply->element[0]->type == REDIS_REPLY_STRING &&
      reply->element[1]->type == REDIS_REPLY_STRING)
    snprintf(ret, size,
             strchr(reply->element[0]->str, ':') != NULL ? "[%.100s]:%.8s" : "%.100s:%.8s",
             reply->element[0]->str, reply->element[1]->str);
  freeReplyObject(reply);
  return CORRAL_OK;
}

static int look_at_primary(crl_redis_exam *x, round *r) {
  char place[CRL_REDIS_FACT];
  const char *advice = NULL;
  int status = ask_primary(x, r->sentinel->master, place, sizeof place);
  if (status != CORRAL_OK) return status;
  if (place[0] == '\0')
    advice = "Check NAME in the URI (SENTINEL MASTERS lists them), or let it monitor that primary.";
  else if (r->primary[0] != '\0' && strcmp(r->primary, place) != 0)
    advice = "Wait for the failover that is under way, or see why this sentinel is behind: another "
             "one names another primary.";
  crl_redis_exam_tell(x, "primary", CORRAL_FACT_UNFIT, advice, "%s",
                      place[0] != '\0' ? place : "unknown");
  if (r->primary[0] == '\0') snprintf(r->primary, sizeof r->primary, "%s", place);
  return CORRAL_OK;
}

/* A right that corral itself doesn't need: where it is refused, the quorum stays unknown. */
static int look_at_quorum(crl_redis_exam *x, const round *r) {
  const char *const words[] = {"SENTINEL", "CKQUORUM", r->sentinel->master};
  redisReply *reply;
  int status = crl_redis_exam_ask(x, words, 3, &reply);
  if (status != CORRAL_OK) return status;
  if (reply->type == REDIS_REPLY_STATUS)
    crl_redis_exam_tell(x, "quorum", CORRAL_FACT_PLAIN, NULL, "%.*s",
                        (int)strcspn(reply->str, "\r\n"), reply->str);
  else if (crl_redis_reply_is_error(reply, "NOQUORUM"))
    crl_redis_exam_tell(x, "quorum", CORRAL_FACT_UNFIT,
                        "Start the other sentinels: these can't replace a primary that dies.",
                        "%.*s", (int)strcspn(reply->str, "\r\n"), reply->str);
  else
    crl_redis_exam_tell(x, "quorum", CORRAL_FACT_PLAIN, NULL, "unknown");
  freeReplyObject(reply);
  return CORRAL_OK;
}

/* 1: it was reached. */
static int look_at_sentinel(round *r, crl_redis_node *sentinel) {
  crl_redis_store *s = &sentinel->store;
  char mode[32], role[32];
  void *handle;
  atomic_fetch_add(&sentinel->holders, 1);
  if (crl_redis_connect(s, crl_redis_inspect_until(s, r->inquiry), &handle, &r->why) != CORRAL_OK) {
    corral_tell_unreached(r->inquiry, s->name, &r->why, CORRAL_FACT_WARNING,
                          "Start that sentinel, or take it out of the URI.");
    return 0;
  }
  crl_redis_exam x = {.inquiry = r->inquiry, .store = s, .handle = handle, .error = &r->why};
  int status = crl_redis_exam_hello(&x, mode, role);
  if (status == CORRAL_OK) status = crl_redis_exam_clock(&x);
  if (status == CORRAL_OK) status = look_at_primary(&x, r);
  if (status == CORRAL_OK) status = look_at_quorum(&x, r);
  if (status != CORRAL_OK)
    crl_redis_exam_tell(&x, "answers", CORRAL_FACT_WARNING,
                        "Look at the sentinel's log: it did not answer to the end.", "%s",
                        corral_reason(&r->why, s->name));
  crl_redis_disconnect(handle);
  return 1;
}

/* The server that sentinels name and that says itself that it is the primary. */
static void look_at_server(round *r) {
  crl_redis_cluster *c = &r->sentinel->cluster;
  corral_error why = {0};
  void *handle;
  int64_t until = c->base.host->now_ms() + r->inquiry->op_ms * (int64_t)c->seed_count;
  if (c->ways->enter(c, until, &handle, &why) != CORRAL_OK) {
    corral_tell_unreached(r->inquiry, c->base.name, &why, CORRAL_FACT_UNFIT,
                          "Start the primary, or let the sentinels promote a replica.");
    return;
  }
  crl_redis_disconnect(handle);
  crl_redis_node *node = crl_redis_node_hold(c, crl_redis_slot_number(crl_redis_slot_entry(c, 0)));
  if (node != NULL)
    (void)crl_redis_inspect_one(&node->store, r->inquiry, CORRAL_FACT_UNFIT,
                                "Start it, or let the sentinels promote a replica.");
}

int crl_redis_sentinel_inspect(void *store, const corral_inquiry *q, corral_error *error) {
  crl_redis_sentinel *s = store;
  round r = {.sentinel = s, .inquiry = q};
  int reached = 0;
  for (size_t i = 0; i < s->cluster.seed_count; i++)
    reached += look_at_sentinel(&r, s->cluster.seeds[i]);
  if (reached == 0) return s->cluster.base.host->fail(error, r.why.status, "%s", r.why.text);
  look_at_server(&r);
  return CORRAL_OK;
}
