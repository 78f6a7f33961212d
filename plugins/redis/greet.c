/* greet.c: connecting: the greeting says who is there, and learns what the server is and allows.
 *
 * All of it is sent at once. Its commands may be refused one by one: without CLIENT SETNAME the
 * connection has no name, without TIME the server's clock isn't known (clock.c). INFO tells whether
 * a primary that has replicas goes on without them; it is asked of a server until that is known.
 *
 * A proxy such as twemproxy hangs up on commands that it doesn't know. A server that does so is
 * asked for a PING on a new connection, and only then for the rest: if it hangs up again, that is
 * its way, and from then on it gets the bare greeting, which has nothing else. A connection that is
 * bare does without what the rest is for: the clock, and a second key beside a record's own.
 *
 * A fact of a server that a user should know is a warning: told once, with the next handle. */
#include <stdlib.h>

#include "redis.h"

typedef enum greeting { AUTH, SELECT, PING, SETNAME, MYID, ROLE, INFO, TIME, GREETINGS } greeting;

/* Parts of the greeting: ALL but PING; BARE; the REST of ALL, behind BARE; ROLE alone, of a server
 * without TIME. */
typedef enum part { ALL, BARE, REST, ONLY_ROLE } part;

static int is_in(part which, greeting what) {
  if (which == ALL) return what != PING;
  if (which == ONLY_ROLE) return what == ROLE;
  return which == BARE ? what <= PING : what > PING;
}

static int is_said(const crl_redis_store *s, part which, greeting what) {
  crl_redis_store *own = (crl_redis_store *)(uintptr_t)s;
  if (!is_in(which, what)) return 0;
  switch (what) {
    case AUTH: return s->password != NULL;
    case SELECT: return s->db != 0;
    case MYID: return s->kind == CRL_REDIS_NODE;
    case ROLE:
      return which == ONLY_ROLE || s->kind == CRL_REDIS_PRIMARY ||
             (s->kind == CRL_REDIS_PLAIN && atomic_load(&own->demoted) > 0);
    case INFO: return !s->is_quiet && !atomic_load(&own->informed);
    case TIME: return s->kind != CRL_REDIS_SENTINEL;
    default: return 1;
  }
}

static void say(crl_redis_handle *h, greeting what) {
  static const char *const words[GREETINGS][2] = {[SELECT] = {"SELECT"},
                                                  [PING] = {"PING"},
                                                  [SETNAME] = {"CLIENT", "SETNAME"},
                                                  [MYID] = {"CLUSTER", "MYID"},
                                                  [ROLE] = {"ROLE"},
                                                  [INFO] = {"INFO", "replication"},
                                                  [TIME] = {"TIME"}};
  const crl_redis_store *s = h->store;
  crl_redis_out *out = &h->out;
  if (what == AUTH) {
    crl_redis_out_command(out, s->user != NULL ? 3 : 2);
    crl_redis_out_text(out, "AUTH");
    if (s->user != NULL) crl_redis_out_text(out, s->user);
    crl_redis_out_text(out, s->password);
    return;
  }
  size_t count = words[what][1] != NULL ? 2 : 1;
  crl_redis_out_command(out, count + (what == SELECT || what == SETNAME));
  for (size_t i = 0; i < count; i++) crl_redis_out_text(out, words[what][i]);
  if (what == SELECT) crl_redis_out_number(out, s->db);
  if (what == SETNAME) crl_redis_out_text(out, s->client_name);
}

/* ---- warnings ------------------------------------------------------------------------------ */

/* Subjects of warnings: bits of crl_redis_store.warned and untold. */
enum { MIN_REPLICAS = 1, NO_NAME = 2, NO_TIME = 4, PROXY = 8 };

static void warn(crl_redis_store *s, unsigned of) {
  if (s->is_quiet || (atomic_fetch_or(&s->warned, of) & of) != 0) return;
  atomic_fetch_or(&s->untold, of);
}

void crl_redis_tell_warnings(void *handle, corral_error *error) {
  crl_redis_store *s = ((crl_redis_handle *)handle)->store;
  unsigned of = atomic_load(&s->untold) != 0 ? atomic_exchange(&s->untold, 0) : 0;
  int refused = (of & (NO_NAME | NO_TIME)) != 0;
  if (of == 0) return;
  (void)s->host->fail(
      error, CORRAL_WARNING, "%.60s: %s%s%s%s%s%s%s", s->name,
      of & PROXY
          ? "hangs up on CLIENT and TIME, as proxies do: connections have no name, each look "
            "asks for the TTL, too, and nobody is woken"
          : "",
      of & MIN_REPLICAS ? "min-replicas-to-write isn't set: a failover can lose what was written"
                        : "",
      of & MIN_REPLICAS && refused ? "; " : "", refused ? "refused: " : "",
      of & NO_NAME ? "CLIENT SETNAME (no name)" : "", of & NO_NAME && of & NO_TIME ? ", " : "",
      of & NO_TIME ? "TIME (each look asks for the TTL, too)" : "");
}

/* ---- replies ------------------------------------------------------------------------------- */

/* 1: the error is harmless: the connection's name isn't needed, and a user who may not ask for the
 * time, or whose server has no such command, can still read. But any reply may be the server's
 * reason to refuse service. */
static int is_harmless(const crl_redis_handle *h, greeting what, const redisReply *reply) {
  if (what == PING || what == INFO) return 1;
  if (crl_redis_reply_is_error(reply, "NOPERM"))
    return what == SETNAME || what == MYID || what == TIME ||
           (what == ROLE && h->store->kind == CRL_REDIS_PLAIN);
  if (what == TIME || (what == ROLE && h->lacks_time))
    return crl_redis_reply_is_error(reply, "ERR unknown command");
  if (what != SETNAME) return 0;
  int status = crl_redis_reply_error(h->store, reply, CORRAL_OK, NULL);
  return status == CORRAL_OK || status == CORRAL_EUNSUPPORTED ||
         crl_redis_reply_is_error(reply, "NOAUTH");
}

/* The id of a cluster's node. */
static int hear_id(const crl_redis_handle *h, const redisReply *reply, corral_error *error) {
  if (reply->type != REDIS_REPLY_STRING || crl_redis_node_is(h->store, reply->str, reply->len))
    return CORRAL_OK;
  return h->store->host->fail(error, CORRAL_EUNAVAILABLE,
                              "%s: another node than the cluster said has this address",
                              h->store->name);
}

/* A replica isn't written to, whoever named it, and a sentinel has no keys. */
static int hear_role(const crl_redis_handle *h, const redisReply *reply, corral_error *error) {
  const redisReply *role = reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 &&
                                   reply->element[0]->type == REDIS_REPLY_STRING
                               ? reply->element[0]
                               : NULL;
  if (role == NULL)
    return h->store->host->fail(error, CORRAL_EPROTOCOL,
                                "%s: a strange answer to ROLE: is it a Redis server?",
                                h->store->name);
  if (strcmp(role->str, "master") == 0) return CORRAL_OK;
  if (h->lacks_time && strcmp(role->str, "sentinel") == 0) {
    const char *place = strchr(h->store->name, ' ');
    return h->store->host->fail(error, CORRAL_EUNAVAILABLE,
                                "%.80s: is a sentinel: write %s+sentinel://%.80s/NAME",
                                h->store->name, h->store->tls ? "rediss" : "redis",
                                place != NULL ? place + 1 : "HOST:PORT");
  }
  if (h->lacks_time && atomic_load(&h->store->demoted) == 0) return CORRAL_OK;
  if (h->store->kind == CRL_REDIS_PLAIN && reply->elements > 2 &&
      reply->element[1]->type == REDIS_REPLY_STRING &&
      reply->element[2]->type == REDIS_REPLY_INTEGER)
    return h->store->host->fail(error, CORRAL_EUNAVAILABLE,
                                strchr(reply->element[1]->str, ':') != NULL
                                    ? "%.80s: is a replica: write %s://[%.80s]:%lld"
                                    : "%.80s: is a replica: write %s://%.80s:%lld",
                                h->store->name, h->store->tls ? "rediss" : "redis",
                                reply->element[1]->str, reply->element[2]->integer);
  return h->store->host->fail(error, CORRAL_EUNAVAILABLE, "%s: is no primary: its role is %.20s",
                              h->store->name, role->str);
}

/* INFO names the good replicas only where min-replicas-to-write is set. A primary without replicas
 * is asked again: they may come. */
static void hear_info(crl_redis_store *s, const redisReply *reply) {
  const char *replicas =
      reply->type == REDIS_REPLY_STRING ? strstr(reply->str, "connected_slaves:") : NULL;
  int has_some = replicas != NULL && strtol(replicas + strlen("connected_slaves:"), NULL, 10) > 0;
  if (replicas != NULL && !has_some) return;
  atomic_store(&s->informed, 1);
  if (has_some && strstr(reply->str, "role:master") != NULL &&
      strstr(reply->str, "min_slaves_good_slaves:") == NULL)
    warn(s, MIN_REPLICAS);
}

static int hear_refusal(crl_redis_handle *h, greeting what, const redisReply *reply,
                        corral_error *error) {
  static const int otherwise[GREETINGS] = {[AUTH] = CORRAL_EAUTH,
                                           [SELECT] = CORRAL_EURI,
                                           [MYID] = CORRAL_EUNSUPPORTED,
                                           [ROLE] = CORRAL_EUNSUPPORTED,
                                           [TIME] = CORRAL_EUNAVAILABLE};
  if (!is_harmless(h, what, reply))
    return crl_redis_reply_error(h->store, reply, otherwise[what], error);
  if (what == SETNAME) warn(h->store, NO_NAME);
  if (what == TIME) warn(h->store, NO_TIME);
  if (what == TIME && crl_redis_reply_is_error(reply, "ERR unknown command")) h->lacks_time = 1;
  return CORRAL_OK;
}

static int hear(crl_redis_handle *h, greeting what, const redisReply *reply, int64_t before,
                corral_error *error) {
  int status = CORRAL_OK, is_error = reply->type == REDIS_REPLY_ERROR;
  if (is_error) status = hear_refusal(h, what, reply, error);
  if (status != CORRAL_OK) return status;
  if (what == TIME) return crl_redis_clock_hear(h, reply, before, error);
  if (what == INFO) hear_info(h->store, reply);
  if (is_error || what == INFO) return CORRAL_OK;
  if (what == MYID) return hear_id(h, reply, error);
  if (what == ROLE) return hear_role(h, reply, error);
  if (reply->type != REDIS_REPLY_STATUS)
    return h->store->host->fail(error, CORRAL_EPROTOCOL,
                                "%s: a strange greeting: is it a Redis server?", h->store->name);
  return CORRAL_OK;
}

/* Sends a part of the greeting; returns which, as bits: what is to be said may change meanwhile. */
static int put(crl_redis_handle *h, part which, int64_t deadline, unsigned *ret_said,
               corral_error *error) {
  size_t sent;
  *ret_said = 0;
  crl_redis_out_reset(&h->out);
  for (greeting what = AUTH; what < GREETINGS; what++) {
    if (!is_said(h->store, which, what)) continue;
    say(h, what);
    *ret_said |= 1U << what;
  }
  if (h->out.failed) return h->store->host->fail(error, CORRAL_ENOMEM, "no memory to connect");
  int status = crl_redis_out_send(&h->out, &h->wire, deadline, &sent, error);
  if (h->out.bytes != NULL) explicit_bzero(h->out.bytes, h->out.used); /* wipes the password */
  return status;
}

/* *hung_up: the server closed the connection. */
static int greet(crl_redis_handle *h, part which, int64_t deadline, int *hung_up,
                 corral_error *error) {
  const corral_host *host = h->store->host;
  unsigned said;
  int64_t before = host->boot_ms();
  h->now = host->now_ms();
  int wrote = put(h, which, deadline, &said, error), status = CORRAL_OK;
  if (wrote == CORRAL_ENOMEM) return wrote;
  /* a server that closed the connection may have said why */
  int64_t until = wrote == CORRAL_OK ? deadline : CRL_NET_AT_ONCE;
  for (greeting what = AUTH; what < GREETINGS && status == CORRAL_OK; what++) {
    redisReply *reply;
    if ((said & 1U << what) == 0) continue;
    status = crl_redis_reply_next(h, until, &reply, error);
    *hung_up = status == CORRAL_EUNAVAILABLE && host->now_ms() < deadline;
    if (status != CORRAL_OK) break;
    status = hear(h, what, reply, before, error);
    freeReplyObject(reply);
  }
  if (status == CORRAL_OK) status = wrote;
  return status == CORRAL_OK ? crl_redis_reply_none(h, error) : status;
}

/* ---- connect, disconnect ------------------------------------------------------------------- */

static void drop(crl_redis_handle *h) {
  crl_redis_begin_drop(h);
  crl_redis_wire_close(&h->wire);
  crl_redis_out_free(&h->out);
  if (h->reader != NULL) redisReaderFree(h->reader);
  free(h->slots);
  free(h);
}

void crl_redis_disconnect(void *handle) {
  crl_redis_handle *h = handle;
  crl_redis_store *s = h->store;
  drop(h);
  if (s->let_go != NULL) s->let_go(s);
}

/* Makes a handle, and sends this part of the greeting. */
static int reach(crl_redis_store *s, part which, int64_t deadline, crl_redis_handle **ret,
                 int *hung_up, corral_error *error) {
  crl_redis_handle *h = calloc(1, sizeof *h);
  *hung_up = 0;
  if (h == NULL) return s->host->fail(error, CORRAL_ENOMEM, "no memory to connect");
  h->store = s;
  h->demoted = atomic_load(&s->demoted);
  h->wire.fd = -1;
  int status = crl_redis_reader_open(h);
  if (status != CORRAL_OK) s->host->fail(error, status, "no memory to connect");
  if (status == CORRAL_OK) status = crl_redis_wire_open(&h->wire, s, deadline, error);
  if (status == CORRAL_OK) status = greet(h, which, deadline, hung_up, error);
  if (status == CORRAL_OK)
    *ret = h;
  else
    drop(h);
  return status;
}

/* A proxy asks each of several servers for its keys; a record beside its key may be on another. */
static int reach_proxy(crl_redis_store *s, int64_t deadline, crl_redis_handle **ret,
                       corral_error *error) {
  int hung_up;
  if (s->confirm_replicas > 0 || s->wait_replicas > 0 || s->no_scripts)
    return s->host->fail(error, CORRAL_EUNSUPPORTED,
                         "%.80s: hangs up on CLIENT and TIME, as proxies do: confirm_replicas, "
                         "wait_replicas and scripts=no can't be had",
                         s->name);
  int status = reach(s, BARE, deadline, ret, &hung_up, error);
  if (status != CORRAL_OK) return status;
  (*ret)->is_bare = (*ret)->unstaged = (*ret)->time.refused = 1;
  warn(s, PROXY);
  return CORRAL_OK;
}

static int reach_by_kind(crl_redis_store *s, int64_t deadline, crl_redis_handle **ret,
                         corral_error *error) {
  corral_error unused;
  int hung_up;
  if (atomic_load(&s->is_proxy)) return reach_proxy(s, deadline, ret, error);
  int status = reach(s, ALL, deadline, ret, &hung_up, error);
  if (status == CORRAL_OK && (*ret)->lacks_time && s->kind == CRL_REDIS_PLAIN) {
    status = greet(*ret, ONLY_ROLE, deadline, &hung_up, error); /* a sentinel has no TIME either */
    if (status != CORRAL_OK) drop(*ret);
    return status;
  }
  if (!hung_up || s->kind != CRL_REDIS_PLAIN || s->is_quiet) return status;
  if (reach(s, BARE, deadline, ret, &hung_up, &unused) != CORRAL_OK) return status;
  hung_up = 0;
  status = greet(*ret, REST, deadline, &hung_up, error);
  if (status == CORRAL_OK) return CORRAL_OK;
  drop(*ret);
  if (!hung_up) return status;
  atomic_store(&s->is_proxy, 1);
  return reach_proxy(s, deadline, ret, error);
}

int crl_redis_connect(void *store, int64_t deadline, void **ret_handle, corral_error *error) {
  crl_redis_store *s = store;
  crl_redis_handle *h;
  int status = reach_by_kind(s, deadline, &h, error);
  if (status == CORRAL_OK)
    *ret_handle = h;
  else if (s->let_go != NULL)
    s->let_go(s);
  return status;
}

int crl_redis_connect_telling(void *store, int64_t deadline, void **ret_handle,
                              corral_error *error) {
  int status = crl_redis_connect(store, deadline, ret_handle, error);
  if (status == CORRAL_OK) crl_redis_tell_warnings(*ret_handle, error);
  return status;
}
