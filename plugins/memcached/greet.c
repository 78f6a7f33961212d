/* greet.c: the server's clock and settings, asked for once per connection.
 *
 * memcached tells its time in whole seconds. So store time is this host's wall clock in ms if the
 * two agree within CLOCKS_AGREE_MS, and the server's seconds otherwise; from then on host->boot_ms
 * carries it, so that a jump of the wall clock moves nothing. Clients with right clocks therefore
 * agree as well as their clocks do, and a client whose clock is off by an hour is still within a
 * second or so of the others. That is the skew with which the ends of leases and lives are judged
 * (ops.c, decide): a lease may seem over too early by that much, and its late holder's fill is then
 * refused by the cas, as any late fill.
 *
 * A proxy may not answer `stats`, or close the connection at it: then only this host's wall clock
 * counts, and -C is noticed at the first item instead. */
#include <ctype.h>
#include <stdlib.h>

#include "memcached.h"

enum { CLOCKS_AGREE_MS = 2000, LINES_MOST = 1000 };
static const int64_t time_most =
    INT64_C(9007199254); /* in s: times in microseconds stay below 2^53 until then */

typedef struct greeting {
  int lines; /* number of lines that came */
  int answered;
  int64_t time, item_size_max; /* 0: unknown */
  int no_cas;
} greeting;

static void note(greeting *g, const char *name, const char *value) {
  int64_t number = strtoll(value, NULL, 10);
  if (strcmp(name, "time") == 0)
    g->time = number > 0 && number < time_most ? number : 0;
  else if (strcmp(name, "item_size_max") == 0)
    g->item_size_max = number;
  else if (strcmp(name, "cas_enabled") == 0)
    g->no_cas = strcmp(value, "no") == 0;
}

static int refused(crl_memcached_handle *h, const char *line, corral_error *error) {
  crl_memcached_refusal refusal;
  int fatal;
  const char *name = h->server->name;
  if (!crl_memcached_is_error(line, &refusal, &fatal))
    return h->host->fail(error, CORRAL_EPROTOCOL,
                         "%s: a strange greeting: is it a memcached server?", name);
  /* "ERROR" alone means an unknown command; full servers say "ERROR Too many open connections" */
  if (strcmp(line, "ERROR") == 0) return CORRAL_OK;
  if (strncmp(line, "ERROR ", 6) == 0) refusal.status = CORRAL_EUNAVAILABLE;
  /* a proxy reports an unknown command so */
  if (refusal.status == CORRAL_EINDOUBT || refusal.status == CORRAL_EPROTOCOL) return CORRAL_OK;
  return h->host->fail(error, refusal.status, "%s: %s", name, refusal.text);
}

/* Reads one block of lines, up to END or an error. */
static int hear_stats(crl_memcached_handle *h, greeting *g, int64_t deadline, corral_error *error) {
  for (int i = 0; i < LINES_MOST; i++) {
    char *line, *space;
    int status = crl_memcached_wire_line(&h->wire, deadline, &line, error);
    if (status != CORRAL_OK) return status;
    g->lines++;
    if (strcmp(line, "END") == 0) return CORRAL_OK;
    if (strncmp(line, "STAT ", 5) != 0) return refused(h, line, error);
    g->answered = 1;
    if ((space = strchr(line + 5, ' ')) == NULL) continue;
    *space = '\0';
    note(g, line + 5, space + 1);
  }
  return h->host->fail(error, CORRAL_EPROTOCOL, "%s: endless stats: is it a memcached server?",
                       h->server->name);
}

static int ask(crl_memcached_handle *h, greeting *g, int64_t deadline, corral_error *error) {
  static const char question[] = "stats\r\nstats settings\r\n";
  int status = crl_memcached_wire_write(&h->wire, question, sizeof question - 1, deadline, error);
  for (int i = 0; i < 2 && status == CORRAL_OK; i++) status = hear_stats(h, g, deadline, error);
  if (status != CORRAL_EUNAVAILABLE || g->lines > 0 || h->host->now_ms() >= deadline) return status;
  /* it closed the connection without a reply, so it isn't asked again */
  crl_memcached_wire_close(&h->wire);
  return crl_memcached_wire_open(&h->wire, deadline, error);
}

/* `asked`: when the server was asked, by boot_ms; its time may be as old as that. */
static void set_clock(crl_memcached_handle *h, const greeting *g, int64_t asked) {
  int64_t boot = h->host->boot_ms(), wall = h->host->wall_ms();
  int64_t ahead = wall - (g->time * 1000 + 500); /* the server's second is half over on average */
  if (g->time > 0 && (ahead > CLOCKS_AGREE_MS + boot - asked || ahead < -CLOCKS_AGREE_MS))
    wall = g->time * 1000 + 500;
  h->clock = wall - boot;
}

int crl_memcached_greet(crl_memcached_handle *h, int64_t deadline, corral_error *error) {
  greeting g = {0};
  int64_t asked = h->host->boot_ms();
  int status = ask(h, &g, deadline, error);
  if (status != CORRAL_OK) return status;
  if (g.no_cas)
    return h->host->fail(error, CORRAL_EUNSUPPORTED,
                         "%s runs without cas (-C): leases can't be guarded there",
                         h->server->name);
  set_clock(h, &g, asked);
  int64_t item = h->store->max_item;
  if (g.item_size_max > 0 && g.item_size_max < item) item = g.item_size_max;
  h->largest = item > CRL_MEMCACHED_OVERHEAD ? (size_t)item - CRL_MEMCACHED_OVERHEAD : 0;
  return CORRAL_OK;
}
