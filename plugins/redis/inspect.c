/* inspect.c: what one server says of itself: version, role, clock, memory, persistence, replicas.
 *
 * HELLO is allowed to every user. INFO and CONFIG GET are rights that corral itself doesn't need:
 * without them that part stays unknown. */
#include <stdlib.h>

#include "inspect.h"

enum {
  ROUNDS = 9,
  CLOCK_FAR_MS = 1000, /* clocks that differ by more are worth a warning */
  LAG_MOST_S = 10,
  OLDEST = 5 /* Redis version */
};

/* ---- lines of INFO, settings ---------------------------------------------------------------- */

static void plain(const crl_redis_exam *x, const char *name, const char *value) {
  crl_redis_exam_tell(x, name, CORRAL_FACT_PLAIN, NULL, "%s", value);
}

/* A number of INFO; -1: it isn't there. */
static int64_t number(const crl_redis_exam *x, const char *name) {
  char text[32];
  return crl_redis_exam_line(x->info, name, text, sizeof text) ? strtoll(text, NULL, 10) : -1;
}

/* Tells a line of INFO as it is. */
static void pass_on(const crl_redis_exam *x, const char *line, const char *name) {
  char text[CRL_REDIS_FACT];
  if (crl_redis_exam_line(x->info, line, text, sizeof text)) plain(x, name, text);
}

/* A setting, by CONFIG GET; 0: it wasn't told. */
static int setting(crl_redis_exam *x, const char *name, char *ret, size_t size) {
  redisReply *reply;
  *ret = '\0';
  if (crl_redis_exam_ask(x, (const char *[]){"CONFIG", "GET", name}, 3, &reply) != CORRAL_OK)
    return 0;
  int told = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
             reply->element[1]->type == REDIS_REPLY_STRING;
  if (told) snprintf(ret, size, "%s", reply->element[1]->str);
  freeReplyObject(reply);
  return told;
}

/* ---- version, role ------------------------------------------------------------------------- */

/* The text behind a name in a list of names and values. */
static void pair_of(const redisReply *list, const char *name, char *ret, size_t size) {
  *ret = '\0';
  for (size_t i = 0; i + 1 < list->elements; i += 2)
    if (list->element[i]->type == REDIS_REPLY_STRING && strcmp(list->element[i]->str, name) == 0 &&
        list->element[i + 1]->type == REDIS_REPLY_STRING)
      snprintf(ret, size, "%s", list->element[i + 1]->str);
}

int crl_redis_exam_hello(crl_redis_exam *x, char mode[32], char role[32]) {
  redisReply *reply;
  char version[32] = "", software[32] = "";
  *mode = *role = '\0';
  int status = crl_redis_exam_ask(x, (const char *[]){"HELLO"}, 1, &reply);
  if (status != CORRAL_OK) return status;
  if (reply->type == REDIS_REPLY_ARRAY) {
    pair_of(reply, "server", software, sizeof software);
    pair_of(reply, "version", version, sizeof version);
    pair_of(reply, "mode", mode, 32);
    pair_of(reply, "role", role, 32);
  }
  freeReplyObject(reply);
  if (version[0] == '\0') (void)crl_redis_exam_line(x->info, "redis_version", version, 32);
  if (mode[0] == '\0') (void)crl_redis_exam_line(x->info, "redis_mode", mode, 32);
  if (role[0] == '\0') (void)crl_redis_exam_line(x->info, "role", role, 32);
  if (software[0] != '\0') plain(x, "software", software);
  int is_old = version[0] >= '1' && version[0] <= '9' && strtol(version, NULL, 10) < OLDEST;
  crl_redis_exam_tell(x, "version", CORRAL_FACT_UNFIT, is_old ? "Use Redis 5 or later." : NULL,
                      "%s", version[0] != '\0' ? version : "unknown");
  return CORRAL_OK;
}

/* Tells the role, and whether the URI is of the right kind. */
static void judge_role(const crl_redis_exam *x, const char *mode, const char *role) {
  char place[140], advice[400] = "", host[128], port[16];
  const crl_redis_store *s = x->store;
  const char *tls = s->tls ? "rediss" : "redis";
  int is_replica = strcmp(role, "replica") == 0 || strcmp(role, "slave") == 0;
  crl_redis_reply_place(s, place, sizeof place);
  if (s->kind == CRL_REDIS_PLAIN && strcmp(mode, "cluster") == 0)
    snprintf(advice, sizeof advice, "Write %s+cluster://%s/: it is a node of a cluster.", tls,
             place);
  else if (strcmp(mode, "sentinel") == 0)
    snprintf(advice, sizeof advice, "Write %s+sentinel://%s/NAME: it is a sentinel.", tls, place);
  if (mode[0] != '\0')
    crl_redis_exam_tell(x, "mode", CORRAL_FACT_UNFIT, advice[0] != '\0' ? advice : NULL, "%s",
                        mode);
  snprintf(advice, sizeof advice, "Name its primary in the URI: a replica takes no writes.");
  if (crl_redis_exam_line(x->info, "master_host", host, sizeof host) &&
      crl_redis_exam_line(x->info, "master_port", port, sizeof port))
    snprintf(advice, sizeof advice, "Write %s://%s:%s, its primary: a replica takes no writes.",
             tls, host, port);
  crl_redis_exam_tell(x, "role", CORRAL_FACT_UNFIT, is_replica ? advice : NULL, "%s",
                      is_replica                    ? "replica"
                      : strcmp(role, "master") == 0 ? "primary"
                      : role[0] != '\0'             ? role
                                                    : "unknown");
}

/* ---- clock --------------------------------------------------------------------------------- */

/* Takes the reply that came fastest: its time is off by half a round trip at the most. */
int crl_redis_exam_clock(crl_redis_exam *x) {
  const corral_host *host = x->store->host;
  int64_t us[ROUNDS], best = INT64_MAX, offset = 0;
  for (int i = 0; i < ROUNDS; i++) {
    redisReply *reply;
    int64_t began = host->now_us();
    int status = crl_redis_exam_ask(x, (const char *[]){"TIME"}, 1, &reply);
    if (status != CORRAL_OK) return status;
    int64_t here = host->wall_ms(), there = crl_redis_clock_time(reply);
    us[i] = host->now_us() - began;
    if (there >= 0 && us[i] < best) {
      best = us[i];
      offset = (there + us[i] / 2) / 1000 - here;
    }
    freeReplyObject(reply);
  }
  corral_tell_latency(x->inquiry, x->store->name, us, ROUNDS);
  if (best == INT64_MAX) return CORRAL_OK; /* a sentinel, or a user without the right to TIME */
  crl_redis_exam_tell(x, "clock_offset_ms", CORRAL_FACT_WARNING,
                      offset > CLOCK_FAR_MS || offset < -CLOCK_FAR_MS
                          ? "Set this host's clock and the server's by NTP: ages of values, and "
                            "leases after a failover, are judged by them."
                          : NULL,
                      "%lld", (long long)offset);
  return CORRAL_OK;
}

/* ---- memory -------------------------------------------------------------------------------- */

static const char *judge_policy(const crl_redis_exam *x, int evicts, int64_t most) {
  if (most <= 0) return NULL;
  if ((x->inquiry->flags & CORRAL_INSPECT_LOCKS) == 0)
    return evicts ? NULL
                  : "Set maxmemory-policy allkeys-lru: a full server stores nothing new, and every "
                    "call computes.";
  return evicts ? "Set maxmemory-policy noeviction, or give locks a server of their own: an "
                  "evicted lock has a second holder."
                : NULL;
}

static void tell_memory(const crl_redis_exam *x) {
  char policy[40];
  int64_t most = number(x, "maxmemory");
  int for_locks = (x->inquiry->flags & CORRAL_INSPECT_LOCKS) != 0;
  if (most < 0) return;
  pass_on(x, "used_memory", "used_memory");
  crl_redis_exam_tell(x, "maxmemory", CORRAL_FACT_WARNING,
                      most == 0 && !for_locks
                          ? "Set maxmemory below the host's memory, and maxmemory-policy "
                            "allkeys-lru: without a limit the server grows until it is killed."
                          : NULL,
                      "%lld", (long long)most);
  if (!crl_redis_exam_line(x->info, "maxmemory_policy", policy, sizeof policy)) return;
  int evicts = strcmp(policy, "noeviction") != 0;
  crl_redis_exam_tell(x, "maxmemory_policy", CORRAL_FACT_UNFIT, judge_policy(x, evicts, most), "%s",
                      policy);
  pass_on(x, "evicted_keys", "evicted_keys");
}

/* ---- persistence, replicas ----------------------------------------------------------------- */

/* The largest lag of the replicas that INFO lists, in s; -1: there is none. *online: how many of
 * them are well. */
static int64_t lag_of(const crl_redis_exam *x, int64_t count, int64_t *online) {
  int64_t most = -1;
  *online = 0;
  for (int64_t i = 0; i < count && i < CRL_REDIS_LONGEST_ROLE; i++) {
    char name[32], line[CRL_REDIS_FACT];
    snprintf(name, sizeof name, "slave%lld", (long long)i);
    if (!crl_redis_exam_line(x->info, name, line, sizeof line)) continue;
    const char *lag = strstr(line, ",lag=");
    int64_t s = lag != NULL ? strtoll(lag + 5, NULL, 10) : 0;
    *online += strstr(line, ",state=online") != NULL;
    if (s > most) most = s;
  }
  return most;
}

/* Tells whether a restart forgets all. */
static void tell_persistence(crl_redis_exam *x, int64_t replicas) {
  char save[CRL_REDIS_FACT];
  int is_known = setting(x, "save", save, sizeof save), aof = number(x, "aof_enabled") == 1;
  int forgets = !aof && is_known && save[0] == '\0';
  const char *advice = NULL;
  if (number(x, "aof_enabled") < 0) return;
  if (!aof && (x->inquiry->flags & CORRAL_INSPECT_LOCKS) != 0)
    advice = "Set appendonly yes, or let the server restart later than the longest ttl of a lock: "
             "a server that comes back without its locks grants them again.";
  else if (forgets && replicas > 0)
    advice = "Set appendonly yes: a primary that comes back empty empties its replicas.";
  crl_redis_exam_tell(x, "appendonly", CORRAL_FACT_WARNING, advice, "%s", aof ? "yes" : "no");
  plain(x, "save", !is_known ? "unknown" : save[0] != '\0' ? save : "off");
}

static const char *judge_replicas(const crl_redis_exam *x, int64_t count) {
  const crl_redis_store *s = x->store;
  if (s->confirm_replicas > count || s->wait_replicas > count)
    return "Attach replicas, or lower confirm_replicas and wait_replicas in the URI: so many can't "
           "confirm.";
  return NULL;
}

/* min-replicas-to-write, for servers with replicas. INFO shows it only where it is set. */
static void tell_least(crl_redis_exam *x, int64_t count) {
  char least[32];
  int is_set = number(x, "min_slaves_good_slaves") >= 0;
  if (setting(x, "min-replicas-to-write", least, sizeof least)) is_set = strcmp(least, "0") != 0;
  if (least[0] == '\0') snprintf(least, sizeof least, "%s", is_set ? "unknown" : "0");
  crl_redis_exam_tell(x, "min_replicas_to_write", CORRAL_FACT_WARNING,
                      count > 0 && !is_set
                          ? "Set min-replicas-to-write 1: a primary that is cut off from its "
                            "replicas goes on to take writes, which a failover undoes."
                          : NULL,
                      "%s", least);
}

static void tell_replicas(crl_redis_exam *x) {
  int64_t count = number(x, "connected_slaves"), online;
  if (count < 0) return;
  int64_t lag = lag_of(x, count, &online);
  const char *advice = judge_replicas(x, online);
  int verdict = advice != NULL ? CORRAL_FACT_UNFIT : CORRAL_FACT_WARNING;
  if (advice == NULL && count == 0 && x->store->kind != CRL_REDIS_PLAIN)
    advice = "Attach a replica: nobody takes over when this server dies.";
  if (advice == NULL && online < count)
    advice = "See the server's log: not all of its replicas are in step.";
  crl_redis_exam_tell(x, "replicas", verdict, advice, "%lld", (long long)count);
  if (lag >= 0)
    crl_redis_exam_tell(x, "replica_lag_s", CORRAL_FACT_WARNING,
                        lag > LAG_MOST_S ? "Look after the replicas: a failover now loses so much."
                                         : NULL,
                        "%lld", (long long)lag);
  tell_persistence(x, count);
  tell_least(x, count);
}

/* ---- one server ---------------------------------------------------------------------------- */

/* Tells the parts of INFO; or that it is refused. */
static void tell_info(crl_redis_exam *x) {
  if (x->info == NULL)
    crl_redis_exam_tell(x, "info", CORRAL_FACT_WARNING,
                        "Give this user +info and +config|get, if memory, persistence and replicas "
                        "are to be looked at, too.",
                        "refused");
  pass_on(x, "connected_clients", "clients");
  tell_memory(x);
  tell_replicas(x);
}

/* All that goes over the connection; a status: that broke. */
static int examine(crl_redis_exam *x) {
  char mode[32], role[32];
  redisReply *info;
  int status = crl_redis_exam_ask(x, (const char *[]){"INFO"}, 1, &info);
  if (status != CORRAL_OK) return status;
  if (info->type == REDIS_REPLY_STRING) x->info = info;
  status = crl_redis_exam_hello(x, mode, role);
  if (status == CORRAL_OK) judge_role(x, mode, role);
  if (status == CORRAL_OK) status = crl_redis_exam_clock(x);
  if (status == CORRAL_OK) status = crl_redis_exam_rights(x);
  if (status == CORRAL_OK) tell_info(x);
  x->info = NULL;
  freeReplyObject(info);
  return status;
}

/* Connects, and tells all. Any status but CORRAL_OK: the server wasn't reached. One that broke off
 * was. A node is held for the watch, too, which is opened last. */
int crl_redis_inspect(void *store, const corral_inquiry *inquiry, corral_error *error) {
  crl_redis_store *s = store;
  corral_error why = {0};
  void *handle;
  int status = crl_redis_connect(s, crl_redis_inspect_until(s, inquiry), &handle, error);
  if (status != CORRAL_OK) return status;
  crl_redis_exam x = {.inquiry = inquiry, .store = s, .handle = handle, .error = &why};
  if (examine(&x) == CORRAL_OK)
    crl_redis_exam_wake(&x);
  else
    crl_redis_exam_tell(&x, "answers", CORRAL_FACT_UNFIT,
                        "Look at the server's log: it did not answer to the end.", "%s",
                        corral_reason(&why, s->name));
  crl_redis_disconnect(handle);
  return CORRAL_OK;
}

int crl_redis_inspect_one(crl_redis_store *store, const corral_inquiry *inquiry, int verdict,
                          const char *advice) {
  char name[sizeof store->name];
  corral_error why = {0};
  memcpy(name, store->name, sizeof name); /* a node that isn't reached may be gone */
  int status = crl_redis_inspect(store, inquiry, &why);
  if (status != CORRAL_OK) corral_tell_unreached(inquiry, name, &why, verdict, advice);
  return status;
}
