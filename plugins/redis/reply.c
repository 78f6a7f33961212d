/* reply.c: replies by hiredis' reader, and the statuses of error replies. */
#include <limits.h>

#include "redis.h"

enum { KEPT = 1 << 20 };

#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif

static int depth_of(const redisReadTask *task) {
  int depth = 0;
  for (; task != NULL; task = task->parent) depth++;
  return depth;
}

/* Refuses long arrays: hiredis allocates as many elements as a reply announces, before it has seen
 * one of them. And deep ones: hiredis since 1.1 reads them to any depth, and frees them by calling
 * itself. */
static void *create_array(const redisReadTask *task, element_count elements) {
  crl_redis_handle *handle = task->privdata;
  size_t most = handle->used ? CRL_REDIS_LONGEST_ARRAY : CRL_REDIS_LONGEST_ROLE;
  if ((size_t)elements > most)
    handle->refused = "an array longer than any that was asked for";
  else if (depth_of(task) > CRL_REDIS_DEEPEST_ARRAY)
    handle->refused = "arrays nested deeper than any that were asked for";
  return handle->refused == NULL ? handle->plain.createArray(task, elements) : NULL;
}

int crl_redis_reader_open(crl_redis_handle *handle) {
  redisReader *reader = redisReaderCreate();
  if (reader == NULL) return CORRAL_ENOMEM;
  handle->plain = handle->functions = *reader->fn;
  handle->functions.createArray = create_array;
  reader->fn = &handle->functions;
  reader->privdata = handle;
  /* a larger buffer is freed once it is empty, a smaller one is kept */
  reader->maxbuf = KEPT;
  handle->reader = reader;
  return CORRAL_OK;
}

static int rubbish(crl_redis_handle *handle, const char *what, corral_error *error) {
  return handle->store->host->fail(error, CORRAL_EPROTOCOL,
                                   "%s: the reply is not one of a Redis server: %.100s",
                                   handle->store->name, what);
}

static int unreadable(crl_redis_handle *handle, corral_error *error) {
  if (handle->refused != NULL) return rubbish(handle, handle->refused, error);
  if (handle->reader->err == REDIS_ERR_OOM)
    return handle->store->host->fail(error, CORRAL_ENOMEM, "%s: no memory for a reply",
                                     handle->store->name);
  return rubbish(handle, handle->reader->errstr, error);
}

int crl_redis_reply_ready(crl_redis_handle *handle, redisReply **ret, corral_error *error) {
  void *reply = NULL;
  if (redisReaderGetReply(handle->reader, &reply) != REDIS_OK) return unreadable(handle, error);
  if (reply == NULL && handle->fed > (size_t)CRL_REDIS_LARGEST + sizeof handle->in)
    return rubbish(handle, "longer than 512 MiB", error);
  if (reply != NULL) handle->fed = 0;
  *ret = reply;
  return CORRAL_OK;
}

int crl_redis_reply_feed(crl_redis_handle *handle, size_t got, corral_error *error) {
  handle->fed += got;
  return redisReaderFeed(handle->reader, handle->in, got) == REDIS_OK ? CORRAL_OK
                                                                      : unreadable(handle, error);
}

int crl_redis_reply_next(crl_redis_handle *handle, int64_t deadline, redisReply **ret,
                         corral_error *error) {
  for (;;) {
    size_t got;
    int status = crl_redis_reply_ready(handle, ret, error);
    if (status != CORRAL_OK || *ret != NULL) return status;
    status =
        crl_redis_wire_read(&handle->wire, handle->in, sizeof handle->in, deadline, &got, error);
    if (status == CORRAL_OK) status = crl_redis_reply_feed(handle, got, error);
    if (status != CORRAL_OK) return status;
  }
}

int crl_redis_reply_of(crl_redis_handle *handle, const corral_op *op, int64_t deadline,
                       redisReply **ret, corral_error *error) {
  if ((op->flags & CORRAL_OP_ASKING) != 0) {
    redisReply *asked;
    int status = crl_redis_reply_next(handle, deadline, &asked, error);
    if (status != CORRAL_OK) return status;
    freeReplyObject(asked); /* where it was refused, the command behind it is, too */
  }
  return crl_redis_reply_next(handle, deadline, ret, error);
}

int crl_redis_reply_none(crl_redis_handle *handle, corral_error *error) {
  if (handle->reader->pos >= handle->reader->len) return CORRAL_OK;
  return rubbish(handle, "more replies than commands", error);
}

/* ---- error replies ------------------------------------------------------------------------- */

/* The scheme and HOST:PORT become those of the server that was asked. */
static const char to_cluster[] =
    "this server belongs to a cluster: write redis+cluster://HOST:PORT in the store URI";
static const char to_primary[] = "this server is a replica: name its primary in the store URI";

static const struct meaning {
  const char *word; /* first word of the text */
  int status;
  const char *advice; /* NULL: the user's ACL lacks something */
} meanings[] = {
    {"WRONGPASS", CORRAL_EAUTH, "check user and password in the store URI"},
    {"NOAUTH", CORRAL_EAUTH, "give user and password in the store URI: redis://user:password@host"},
    {"NOPERM", CORRAL_EAUTH, NULL},
    {"The user executing the script", CORRAL_EAUTH, NULL},
    {"ERR The user executing the script", CORRAL_EAUTH, NULL},
    {"ERR ACL failure in script", CORRAL_EAUTH, NULL},
    {"DENIED", CORRAL_EAUTH,
     "the server is in protected mode: set a password or bind it to its own host"},
    {"LOADING", CORRAL_EUNAVAILABLE, "the server is still reading its data"},
    {"MASTERDOWN", CORRAL_EUNAVAILABLE,
     "this replica has lost its primary: name the primary in the store URI"},
    {"BUSY", CORRAL_EUNAVAILABLE, "a script of somebody else keeps the server busy"},
    {"ERR max number of clients", CORRAL_EUNAVAILABLE,
     "raise maxclients on the server, or close connections"},
    {"CLUSTERDOWN", CORRAL_EUNAVAILABLE, to_cluster},
    {"MOVED", CORRAL_EUNAVAILABLE, to_cluster},
    {"ASK", CORRAL_EUNAVAILABLE, to_cluster},
    {"TRYAGAIN", CORRAL_EUNAVAILABLE, to_cluster},
    {"CROSSSLOT", CORRAL_EUNAVAILABLE, to_cluster},
    {"READONLY", CORRAL_EREFUSED, to_primary},
    {"OOM", CORRAL_EREFUSED,
     "the server is full: raise maxmemory or set maxmemory-policy allkeys-lru"},
    {"MISCONF", CORRAL_EREFUSED,
     "the server can't save its data and has stopped writing: see its log"},
    {"NOREPLICAS", CORRAL_EREFUSED, "the server has fewer replicas than min-replicas-to-write"},
    {"WRONGTYPE", CORRAL_EFOREIGN,
     "the key is somebody else's: give corral a name space of its own"},
    {"ERR Protocol error: invalid bulk length", CORRAL_ETOOBIG,
     "raise proto-max-bulk-len on the server"},
    {"ERR Protocol error", CORRAL_EPROTOCOL, "is it a Redis server?"},
    {"ERR unknown command", CORRAL_EUNSUPPORTED,
     "corral needs Redis 5 or later; is it a sentinel? write redis+sentinel://HOST:PORT/NAME"},
    {"ERR Unknown Redis command", CORRAL_EUNSUPPORTED,
     "within a script: corral needs Redis 5 or later, with all its commands"},
    {"ERR This instance has cluster support disabled", CORRAL_EUNSUPPORTED,
     "no node of a cluster: write redis://HOST:PORT in the store URI"},
};

/* 1: the reply is usual while servers change places. Its own text is told then, without advice: a
 * cluster or a sentinel names the right server. */
static int is_passing(const crl_redis_store *store, const struct meaning *meaning) {
  if (meaning->advice == to_primary)
    return store->kind == CRL_REDIS_NODE || store->kind == CRL_REDIS_PRIMARY;
  return store->kind == CRL_REDIS_NODE && meaning->advice == to_cluster;
}

/* The text without the prefix "@user_script: 12: -" that Redis 6 and older put before some errors
 * inside of scripts. */
static const char *first_word(const char *text) {
  if (strncmp(text, "@user_script", 12) == 0) {
    text += 12;
    text += strspn(text, ": 0123456789");
  }
  return *text == '-' ? text + 1 : text;
}

static int begins(const char *text, const char *word) {
  size_t len = strlen(word);
  return strncmp(text, word, len) == 0 &&
         (text[len] == '\0' || strchr(" \r\n:", text[len]) != NULL);
}

int crl_redis_reply_is_error(const redisReply *reply, const char *word) {
  return reply->type == REDIS_REPLY_ERROR && begins(first_word(reply->str), word);
}

#define NEEDS(more)                                                                                \
  "+get +set +pttl +getrange +setrange +pexpire +rename +unlink +time +eval +evalsha "             \
  "+client " more ", for locks +watch +unwatch +multi +exec +discard +wait"

/* Names all that the user must be allowed: a server names what it refused, one thing a time. */
static int lacks(const crl_redis_store *store, int status, const char *text, corral_error *error) {
  static const char of_node[] = NEEDS("+asking +cluster");
  static const char *const needs[] = {[CRL_REDIS_PLAIN] = NEEDS("+select"),
                                      [CRL_REDIS_NODE] = of_node,
                                      [CRL_REDIS_PRIMARY] = NEEDS("+select +role"),
                                      [CRL_REDIS_SENTINEL] =
                                          "+sentinel +subscribe, and the channel +switch-master"};
  _Static_assert(21 + 16 + 33 + sizeof of_node <= sizeof error->text, "the longest has to fit");
  const char *quote = strchr(text, '\'');
  int len = quote != NULL ? (int)strcspn(quote + 1, "'\r\n") : 0;
  const char *refused = strstr(text, " key") != NULL ? "a key" : "a script";
  if (quote != NULL) refused = quote + 1;
  return store->host->fail(error, status, "%.21s: NOPERM: %.*s refused; corral needs %s",
                           store->name, quote != NULL && len < 16 ? len : 16, refused,
                           needs[store->kind]);
}

void crl_redis_reply_place(const crl_redis_store *store, char *ret, size_t size) {
  if (store->server == NULL)
    snprintf(ret, size, "HOST:PORT");
  else
    snprintf(ret, size, strchr(store->server, ':') != NULL ? "[%.120s]:%d" : "%.120s:%d",
             store->server, store->port);
}

/* Writes the advice with the server's place in it. */
static const char *advise(const crl_redis_store *store, const char *advice, char *ret,
                          size_t size) {
  static const char scheme[] = "redis", place[] = "HOST:PORT";
  char own[140];
  const char *at = strstr(advice, place), *from = at;
  if (at == NULL) return advice;
  while (from > advice && strncmp(from, scheme, sizeof scheme - 1) != 0) from--;
  const char *behind = from + sizeof scheme - 1;
  crl_redis_reply_place(store, own, sizeof own);
  snprintf(ret, size, "%.*s%s%.*s%s%s", (int)(from - advice), advice,
           store->tls ? "rediss" : scheme, (int)(at - behind), behind, own, at + sizeof place - 1);
  return ret;
}

int crl_redis_reply_error(const crl_redis_store *store, const redisReply *reply, int otherwise,
                          corral_error *error) {
  char room[240], line[512];
  const char *text = first_word(reply->str);
  (void)snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\r\n"), text);
  for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
    if (begins(text, meanings[i].word) && meanings[i].advice == NULL)
      return lacks(store, meanings[i].status, text, error);
    else if (begins(text, meanings[i].word) && is_passing(store, &meanings[i]))
      return store->host->fail(error, CORRAL_EUNAVAILABLE, "%.80s: %.140s", store->name, line);
    else if (begins(text, meanings[i].word))
      return store->host->fail(error, meanings[i].status, "%.80s: %.60s (%s)", store->name, line,
                               advise(store, meanings[i].advice, room, sizeof room));
  return store->host->fail(error, otherwise, "%.80s: %.140s", store->name, line);
}
