/* inspect.c: what each server says of itself, by `stats` and `stats settings`. */
#include <stdlib.h>

#include "memcached.h"

enum { ROUNDS = 9, LINES_MOST = 1000, TEXT = 64, CLOCK_FAR_MS = 2000 };

typedef enum stat {
  VERSION,
  CLOCK,
  CONNECTIONS,
  CONNECTIONS_MOST,
  BYTES,
  BYTES_MOST,
  EVICTIONS,
  EVICTS,
  ITEM_MOST,
  CAS,
  STATS
} stat;

/* The server's names of them, and ours; "": told in another way. */
static const char *const names[STATS][2] = {
    [VERSION] = {"version", "version"},
    [CLOCK] = {"time", ""},
    [CONNECTIONS] = {"curr_connections", "connections"},
    [CONNECTIONS_MOST] = {"maxconns", "connections_most"},
    [BYTES] = {"bytes", "used_memory"},
    [BYTES_MOST] = {"limit_maxbytes", "memory_limit"},
    [EVICTIONS] = {"evictions", "evicted_items"},
    [EVICTS] = {"evictions", "evicts"}, /* of the settings */
    [ITEM_MOST] = {"item_size_max", "item_size_max"},
    [CAS] = {"cas_enabled", "cas"},
};

/* One server while it is looked at. */
typedef struct exam {
  const corral_inquiry *inquiry;
  const crl_memcached_store *store;
  const crl_memcached_server *server;
  crl_memcached_wire wire;
  char stats[STATS][TEXT]; /* "": not told */
} exam;

static int64_t until(const exam *x) { return x->store->host->now_ms() + x->inquiry->op_ms; }

static void tell(const exam *x, const char *name, const char *value, int verdict,
                 const char *advice) {
  corral_tell(x->inquiry, x->server->name, name, value[0] != '\0' ? value : "unknown", verdict,
              advice);
}

/* ---- asking -------------------------------------------------------------------------------- */

static void note(exam *x, int is_settings, const char *name, const char *value) {
  for (stat i = 0; i < STATS; i++)
    if (strcmp(name, names[i][0]) == 0 && (i != EVICTIONS || !is_settings) &&
        (i != EVICTS || is_settings))
      snprintf(x->stats[i], TEXT, "%s", value);
}

/* Reads lines up to END, or to one that is no STAT. */
static int hear_stats(exam *x, int is_settings, int64_t deadline, corral_error *error) {
  for (int i = 0; i < LINES_MOST; i++) {
    char *line, *space;
    int status = crl_memcached_wire_line(&x->wire, deadline, &line, error);
    if (status != CORRAL_OK || strncmp(line, "STAT ", 5) != 0) return status;
    if ((space = strchr(line + 5, ' ')) == NULL) continue;
    *space = '\0';
    note(x, is_settings, line + 5, space + 1);
  }
  return x->store->host->fail(error, CORRAL_EPROTOCOL, "%s: endless stats", x->server->name);
}

static int ask_stats(exam *x, int is_settings, corral_error *error) {
  static const char *const questions[] = {"stats\r\n", "stats settings\r\n"};
  const char *question = questions[is_settings];
  int64_t deadline = until(x);
  int status = crl_memcached_wire_write(&x->wire, question, strlen(question), deadline, error);
  return status == CORRAL_OK ? hear_stats(x, is_settings, deadline, error) : status;
}

static int measure(exam *x, corral_error *error) {
  static const char question[] = "version\r\n";
  const corral_host *host = x->store->host;
  int64_t us[ROUNDS];
  for (int i = 0; i < ROUNDS; i++) {
    char *line;
    int64_t began = host->now_us(), deadline = until(x);
    int status = crl_memcached_wire_write(&x->wire, question, sizeof question - 1, deadline, error);
    if (status == CORRAL_OK) status = crl_memcached_wire_line(&x->wire, deadline, &line, error);
    if (status != CORRAL_OK) return status;
    if (strncmp(line, "VERSION ", 8) != 0)
      return host->fail(error, CORRAL_EPROTOCOL, "not as memcached answers: is it one?");
    us[i] = host->now_us() - began;
  }
  corral_tell_latency(x->inquiry, x->server->name, us, ROUNDS);
  return CORRAL_OK;
}

/* ---- judging ------------------------------------------------------------------------------- */

/* The server's seconds are half over on average. */
static void judge_clock(const exam *x) {
  int64_t time = strtoll(x->stats[CLOCK], NULL, 10);
  char value[32];
  if (time <= 0 || time > INT64_MAX / 1000 - 1) return;
  int64_t offset = time * 1000 + 500 - x->store->host->wall_ms();
  snprintf(value, sizeof value, "%lld", (long long)offset);
  tell(x, "clock_offset_ms", value, CORRAL_FACT_WARNING,
       offset > CLOCK_FAR_MS || offset < -CLOCK_FAR_MS
           ? "Set this host's clock and the server's by NTP: lives and leases go by the clients' "
             "clocks, and are only good to a second so."
           : NULL);
}

static const char *judge_memory(const exam *x) {
  if (strcmp(x->stats[EVICTS], "off") == 0)
    return (x->inquiry->flags & CORRAL_INSPECT_LOCKS) != 0
               ? NULL
               : "Start it without -M: a full server stores nothing new.";
  return (x->inquiry->flags & CORRAL_INSPECT_LOCKS) != 0 &&
                 strtoll(x->stats[EVICTIONS], NULL, 10) > 0
             ? "Raise its memory limit (-m), or give locks a server of their own: an evicted lock "
               "has a second holder."
             : NULL;
}

static void judge(const exam *x) {
  int64_t item = strtoll(x->stats[ITEM_MOST], NULL, 10);
  int is_small = item > 0 && item < x->store->max_item;
  tell(x, names[VERSION][1], x->stats[VERSION], CORRAL_FACT_PLAIN, NULL);
  judge_clock(x);
  tell(x, names[CAS][1], x->stats[CAS], CORRAL_FACT_UNFIT,
       strcmp(x->stats[CAS], "no") == 0 ? "Start it without -C: leases are guarded by cas." : NULL);
  tell(x, names[ITEM_MOST][1], x->stats[ITEM_MOST], CORRAL_FACT_UNFIT,
       is_small ? "Start it with a larger -I, or write max_item= in the URI: larger values aren't "
                  "stored."
                : NULL);
  for (stat i = CONNECTIONS; i <= EVICTIONS; i++)
    tell(x, names[i][1], x->stats[i], CORRAL_FACT_PLAIN, NULL);
  tell(x, names[EVICTS][1], x->stats[EVICTS], CORRAL_FACT_UNFIT, judge_memory(x));
}

/* ---- servers ------------------------------------------------------------------------------- */

/* A proxy may hang up at `stats`: then no more is known. */
static void examine(exam *x) {
  corral_error why = {0};
  int status = measure(x, &why);
  for (int i = 0; i < 2 && status == CORRAL_OK; i++) status = ask_stats(x, i, &why);
  if (status == CORRAL_OK)
    judge(x);
  else
    tell(x, "answers", corral_reason(&why, x->server->name), CORRAL_FACT_UNFIT,
         "Name a memcached server in the URI, or ask the one behind this proxy.");
}

static int look_at(const crl_memcached_store *s, const crl_memcached_server *server,
                   const corral_inquiry *inquiry, corral_error *error) {
  exam *x = calloc(1, sizeof *x);
  if (x == NULL) return s->host->fail(error, CORRAL_ENOMEM, "no memory to connect");
  x->inquiry = inquiry;
  x->store = s;
  x->server = x->wire.server = server;
  x->wire.host = s->host;
  x->wire.fd = -1;
  int status = crl_memcached_wire_open(&x->wire, until(x), error);
  if (status == CORRAL_OK) {
    examine(x);
    crl_memcached_wire_close(&x->wire);
  }
  free(x);
  return status;
}

int crl_memcached_inspect(void *store, const corral_inquiry *inquiry, corral_error *error) {
  const crl_memcached_store *s = store;
  corral_error why = {0};
  size_t reached = 0;
  for (size_t i = 0; i < s->count; i++) {
    int status = look_at(s, &s->servers[i], inquiry, &why);
    reached += status == CORRAL_OK;
    if (status == CORRAL_OK) continue;
    corral_tell_unreached(inquiry, s->servers[i].name, &why, CORRAL_FACT_UNFIT,
                          "Start it, or take it out of the URI: its keys are computed without the "
                          "store.");
  }
  return reached > 0 ? CORRAL_OK : s->host->fail(error, why.status, "%s", why.text);
}
