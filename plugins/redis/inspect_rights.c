/* inspect_rights.c: what the user may do on a server.
 *
 * Each command that corral needs is sent once, in a form that can't change anything: on a key that
 * isn't there, with XX, with no bytes to write. A server checks the rights before all else, so any
 * reply but NOPERM says that the user may. A node that answers MOVED, a replica that is read-only,
 * a server that is full refuse for other reasons, which other facts tell. */
#include "inspect.h"

enum {
  VALUES = 1,
  LOCKS = 2,     /* by scripts */
  EXECS = 4,     /* locks without scripts */
  CONFIRMS = 8,  /* wait_replicas, confirm_replicas */
  MOVES = 16,    /* a cluster */
  CLOCK = 32,    /* values need one of these */
  WORDS_MOST = 6 /* of a command */
};

#define KEY "\1" /* stands for the key */
#define NO_SCRIPT "0000000000000000000000000000000000000000"

static const struct right {
  const char *name; /* as ACL SETUSER wants it, behind "+" */
  unsigned of;
  const char *words[WORDS_MOST + 1];
} rights[] = {
    {"get", VALUES | LOCKS | EXECS, {"GET", KEY}},
    {"set", VALUES | LOCKS | EXECS, {"SET", KEY, "", "XX", "PX", "1"}},
    {"pttl", VALUES | LOCKS | EXECS, {"PTTL", KEY}},
    {"getrange", VALUES, {"GETRANGE", KEY, "0", "0"}},
    {"setrange", VALUES, {"SETRANGE", KEY, "0", ""}},
    {"pexpire", VALUES | LOCKS | EXECS, {"PEXPIRE", KEY, "1"}},
    {"rename", VALUES, {"RENAME", KEY, KEY}},
    {"unlink", VALUES, {"UNLINK", KEY}},
    {"time", VALUES | LOCKS | EXECS | CLOCK, {"TIME"}},
    {"pexpiretime", VALUES | CLOCK, {"PEXPIRETIME", KEY}},
    {"eval", VALUES | LOCKS, {"EVAL", "return 1", "0"}},
    {"evalsha", VALUES | LOCKS, {"EVALSHA", NO_SCRIPT, "0"}},
    {"watch", EXECS, {"WATCH", KEY}},
    {"unwatch", EXECS, {"UNWATCH"}},
    {"multi", EXECS, {"MULTI"}},
    {"discard", EXECS, {"DISCARD"}},
    {"multi", EXECS, {"MULTI"}},
    {"exec", EXECS, {"EXEC"}},
    {"wait", CONFIRMS, {"WAIT", "0", "1"}},
    {"asking", MOVES, {"ASKING"}},
};

enum { RIGHTS = sizeof rights / sizeof rights[0], LIST = 200 };

/* The purposes for which rights are wanted here. */
static unsigned purposes(const crl_redis_exam *x) {
  const crl_redis_store *s = x->store;
  int for_locks = (x->inquiry->flags & CORRAL_INSPECT_LOCKS) != 0;
  crl_redis_store *own = (crl_redis_store *)(uintptr_t)s;
  unsigned wanted = !for_locks ? VALUES : atomic_load(&own->scriptless) ? EXECS : LOCKS;
  if ((for_locks ? s->wait_replicas : s->confirm_replicas) > 0) wanted |= CONFIRMS;
  return s->kind == CRL_REDIS_NODE ? wanted | MOVES : wanted;
}

static void put(crl_redis_exam *x, const struct right *r) {
  crl_redis_out *out = &x->handle->out;
  size_t count = 0;
  while (r->words[count] != NULL) count++;
  crl_redis_out_command(out, count);
  for (size_t i = 0; i < count; i++)
    if (strcmp(r->words[i], KEY) == 0)
      crl_redis_out_word(out, x->inquiry->key, x->inquiry->key_len);
    else
      crl_redis_out_text(out, r->words[i]);
}

/* Rights, commands and key patterns that the user or the server lacks. */
typedef struct findings {
  char denied[LIST]; /* " +get +set" */
  char absent[LIST]; /* commands that the server doesn't have */
  int no_keys;       /* 1: the user's patterns leave the key out */
  int no_clocks;     /* how many commands of CLOCK are refused */
} findings;

static void add(char list[LIST], const char *sign, const char *name) {
  char word[32];
  snprintf(word, sizeof word, " %s%s", sign, name);
  size_t used = strlen(list);
  if (strstr(list, word) == NULL) snprintf(list + used, LIST - used, "%s", word);
}

/* The text of a refusal names the command, or speaks of keys. */
static void judge(const redisReply *reply, const struct right *r, unsigned wanted, findings *f) {
  int is_absent = crl_redis_reply_is_error(reply, "ERR unknown command"),
      is_denied = crl_redis_reply_is_error(reply, "NOPERM");
  if ((r->of & CLOCK) != 0 && (wanted & VALUES) != 0) {
    f->no_clocks += is_absent || is_denied;
    if (f->no_clocks == 2) add(f->denied, "+", "time");
  } else if (is_absent) {
    add(f->absent, "", r->name);
  } else if (is_denied && strstr(reply->str, " key") != NULL) {
    f->no_keys = 1;
  } else if (is_denied) {
    add(f->denied, "+", r->name);
  }
}

static int hear(crl_redis_exam *x, unsigned wanted, findings *f) {
  int64_t until = crl_redis_inspect_until(x->store, x->inquiry);
  size_t sent;
  int status = crl_redis_out_send(&x->handle->out, &x->handle->wire, until, &sent, x->error);
  for (size_t i = 0; i < RIGHTS && status == CORRAL_OK; i++) {
    redisReply *reply;
    if ((rights[i].of & wanted) == 0) continue;
    status = crl_redis_reply_next(x->handle, until, &reply, x->error);
    if (status != CORRAL_OK) break;
    judge(reply, &rights[i], wanted, f);
    freeReplyObject(reply);
  }
  return status;
}

static const char *user_of(const crl_redis_exam *x) {
  return x->store->user != NULL ? x->store->user : "default";
}

/* Looks then ask for each key's TTL, too. */
static void tell_no_time(const crl_redis_exam *x) {
  char advice[128];
  snprintf(advice, sizeof advice, "ACL SETUSER %.60s +time: now each look asks for the TTL, too.",
           user_of(x));
  crl_redis_exam_tell(x, "time", CORRAL_FACT_WARNING, advice, "refused");
}

static void tell(const crl_redis_exam *x, const findings *f) {
  char advice[2 * LIST];
  int is_whole = f->denied[0] == '\0' && !f->no_keys;
  snprintf(advice, sizeof advice, "ACL SETUSER %.60s%s%s%s", user_of(x), f->denied,
           f->no_keys ? " ~PATTERN..." : "",
           f->no_keys ? ", with the patterns of the namespace (docs/keys.md)." : ".");
  crl_redis_exam_tell(x, "rights", CORRAL_FACT_UNFIT, is_whole ? NULL : advice, "%s%s%s",
                      is_whole ? "all" : "missing:", f->denied,
                      f->no_keys ? " keys of this namespace" : "");
  if (f->no_clocks == 1 && x->handle->time.refused) tell_no_time(x);
  if (f->absent[0] != '\0')
    crl_redis_exam_tell(x, "commands", CORRAL_FACT_UNFIT,
                        "Use a server that has these commands, under their own names.",
                        "missing:%s", f->absent);
}

int crl_redis_exam_rights(crl_redis_exam *x) {
  findings f = {.no_keys = 0};
  unsigned wanted = purposes(x);
  crl_redis_out_reset(&x->handle->out);
  for (size_t i = 0; i < RIGHTS; i++)
    if ((rights[i].of & wanted) != 0) put(x, &rights[i]);
  if (x->handle->out.failed)
    return x->store->host->fail(x->error, CORRAL_ENOMEM, "no memory to ask");
  int status = hear(x, wanted, &f);
  if (status == CORRAL_OK) tell(x, &f);
  return status;
}

static void tell_poll(const crl_redis_exam *x, const corral_error *why) {
  char advice[CRL_REDIS_FACT];
  if (strstr(why->text, "NOPERM") != NULL)
    snprintf(advice, sizeof advice, "ACL SETUSER %.60s +client|tracking: now waiters poll.",
             user_of(x));
  else
    snprintf(advice, sizeof advice, "Use Redis 6 or later, without a proxy: now waiters poll.");
  crl_redis_exam_tell(x, "wake", CORRAL_FACT_WARNING, advice, "poll: %s",
                      corral_reason(why, x->store->name));
}

/* Opens a watch, and closes it again. A node is held for that, and let go with it. */
void crl_redis_exam_wake(crl_redis_exam *x) {
  crl_redis_store *s = x->store;
  corral_error why = {0};
  void *watch;
  if (s->let_go != NULL) atomic_fetch_add(&((crl_redis_node *)(void *)s)->holders, 1);
  if (crl_redis_watch(s, 0, crl_redis_inspect_until(s, x->inquiry), &watch, &why) != CORRAL_OK) {
    tell_poll(x, &why);
    return;
  }
  crl_redis_unwatch(watch);
  crl_redis_exam_tell(x, "wake", CORRAL_FACT_PLAIN, NULL, "%s",
                      why.code == CORRAL_WAKE_REDIRECT ? "redirect" : "push");
}
