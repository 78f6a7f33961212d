/* doctor_counts.c: corral doctor without a URI: which processes of this host use corral, and which
 * settings their counts speak against. */
#include "doctor.h"

#include <stdlib.h>
#include <string.h>

#include "stat.h"

enum { LABEL = 512, COMPUTES_LEAST = 100, STUCK_LEAST_MS = 10000, STUCK_TIMES = 10, FEW = 3 };

static void tell_folder(const doctor_facts *facts) {
  const char *dir = getenv("CORRAL_STATS_DIR");
  bool is_set = dir != NULL && dir[0] != '\0';
  doctor_tell(facts, "stats_dir", CORRAL_FACT_WARNING,
              is_set && strcmp(dir, "off") == 0
                  ? "Unset CORRAL_STATS_DIR: with it no process tells what it does."
                  : NULL,
              "%s", is_set ? dir : "default");
}

static void tell_processes(const doctor_facts *facts, const stat_host *host) {
  char text[256] = "none";
  size_t len = 0, versions = 0;
  for (size_t i = 0; i < host->process_count; i++) {
    bool is_first;
    size_t count = stat_of_version(host, i, &is_first);
    if (!is_first || len >= sizeof text) continue;
    len += (size_t)snprintf(text + len, sizeof text - len, "%s%s (%zu)", versions++ > 0 ? ", " : "",
                            host->processes[i].version, count);
  }
  doctor_tell(facts, "processes", CORRAL_FACT_PLAIN, NULL, "%zu", host->process_count);
  doctor_tell(facts, "versions", CORRAL_FACT_WARNING,
              versions > 1 ? "Restart the processes of the older version, unless an update is "
                             "being rolled out: they share stores, but not what is new."
                           : NULL,
              "%s", text);
}

/* ---- a cache ------------------------------------------------------------------------------- */

/* While a server rests, nobody is told of changes anyway. */
static void tell_wake(const doctor_facts *facts, const stat_cache *c) {
  const char *wake = "unknown";
  for (size_t i = 0; i < CORRAL_WAKE_COUNT; i++)
    if (c->wake[i] > 0) wake = stat_wake_names[i];
  doctor_tell(facts, "wake", CORRAL_FACT_WARNING,
              c->wake[CORRAL_WAKE_POLL] > 0 && c->gauges[CORRAL_GAUGE_BREAKERS_OPEN] <= 0
                  ? "Ask corral doctor STORE what the store lacks: as it is, waiting calls look "
                    "again and again, and near copies answer until their time is over."
                  : NULL,
              "%s", wake);
}

/* A count that should be small: more than one of `each` of `all` is too many. A few say nothing,
 * unless each one does (each: ANY). */
#define ANY UINT64_MAX
typedef struct rare {
  const char *name;
  uint64_t count, all, each;
  const char *advice;
} rare;

static void tell_rare(const doctor_facts *facts, const stat_cache *c) {
  const uint64_t *events = c->counts.events;
  uint64_t gets = stat_gets(&c->counts), claims = events[CORRAL_EVENT_CLAIM];
  uint64_t computes = events[CORRAL_EVENT_COMPUTE];
  int64_t resting = c->gauges[CORRAL_GAUGE_BREAKERS_OPEN];
#define EVENT(id) corral_event_name(CORRAL_EVENT_##id), events[CORRAL_EVENT_##id]
  const rare list[] = {
      {"deadlines", c->counts.results[CORRAL_RESULT_DEADLINE], gets, 1000,
       "Raise wait_ms above the time of a compute, or set stale= or soft= for an answer before."},
      {"servers_resting", resting > 0 ? (uint64_t)resting : 0, 0, ANY,
       "Start the server, or correct the URI: it doesn't answer."},
      {EVENT(STORE_ERROR), gets + claims, 1000,
       "See corral log --event store_error for the reasons; operations that op_ms cuts off want a "
       "larger op_ms, or a nearer store."},
      {EVENT(LEASE_LOST), claims, 100,
       "Give the store more memory, or a policy that evicts no leases (corral doctor STORE); where "
       "processes stand still, raise lease_ms."},
      {EVENT(UNSTORED), computes, 100,
       "See corral log --event unstored for the reasons: what isn't stored is computed again."},
      {EVENT(DEGRADED), computes, 100,
       "Find out why the store was away (corral doctor STORE): these computes ran without an "
       "election."},
      {EVENT(FAILURE), computes, 10,
       "See corral log --event failure for the reasons; stale_if_error lets old values serve "
       "meanwhile."},
      {EVENT(CORRUPT), gets, ANY,
       "Find out who else writes to the store: these records were damaged, or of another key."},
      {EVENT(FOREIGN), gets, ANY,
       "Give corral a namespace, or a database, of its own: others write at its keys."},
      {EVENT(DIFFERS), events[CORRAL_EVENT_VERIFIED], 100,
       "See corral log --event differs for the keys: values were served that are no longer true; a "
       "shorter ttl, or an invalidation where the source changes, helps."},
  };
#undef EVENT
  for (const rare *r = list; r < list + sizeof list / sizeof *list; r++) {
    bool are_many = r->count > r->all / r->each && (r->count > FEW || r->each == ANY);
    doctor_tell(facts, r->name, CORRAL_FACT_WARNING, are_many ? r->advice : NULL, "%llu",
                (unsigned long long)r->count);
  }
}

static void tell_results(const doctor_facts *facts, const stat_cache *c) {
  const uint64_t *results = c->counts.results;
  uint64_t gets = stat_gets(&c->counts), joined = results[CORRAL_RESULT_JOINED];
  char ratio[STAT_RATIO_TEXT];
  bool never_stale = c->counts.events[CORRAL_EVENT_COMPUTE] >= COMPUTES_LEAST &&
                     results[CORRAL_RESULT_STALE] == 0 && joined > results[CORRAL_RESULT_COMPUTED];
  doctor_tell(facts, "calls", CORRAL_FACT_PLAIN, NULL, "%llu", (unsigned long long)gets);
  doctor_tell(facts, "hits", CORRAL_FACT_PLAIN, NULL, "%s",
              stat_ratio(ratio, stat_hits(&c->counts), gets));
  doctor_tell(facts, "waited", CORRAL_FACT_WARNING,
              never_stale ? "Set stale= (swr_ms): these calls waited for rebuilds, and no stale "
                            "value has ever served."
                          : NULL,
              "%llu", (unsigned long long)joined);
}

/* ---- flights ------------------------------------------------------------------------------- */

typedef struct stuck {
  const doctor_facts *facts;
  int64_t longest_ms;
  bool is_told;
} stuck;

static int look_at_flight(const corral_flight *flight, void *arg) {
  stuck *s = arg;
  char key[CLI_KEY_TEXT], since[CLI_DURATION_TEXT];
  int64_t most = flight->expected_ms * STUCK_TIMES;
  if (flight->state != CORRAL_FLIGHT_COMPUTE) return 0;
  if (flight->since_ms < (most > STUCK_LEAST_MS ? most : STUCK_LEAST_MS)) return 0;
  doctor_tell(s->facts, "stuck_compute", CORRAL_FACT_WARNING,
              "Look at what it does (corral flights has its process); compute_ms ends such a "
              "compute.",
              "%s, for %s in process %lld", cli_key_text(key, flight->key, flight->key_kept),
              cli_duration_text(since, flight->since_ms), (long long)flight->pid);
  return 1; /* the longest one will do */
}

static void tell_cache(const doctor_facts *host, const stat_cache *c) {
  char label[LABEL];
  (void)snprintf(label, sizeof label, "cache %s at %s", stat_cache_name(c), c->store);
  doctor_facts facts = {.tell = host->tell, .arg = host->arg, .server = label};
  stuck s = {.facts = &facts};
  doctor_tell(&facts, "processes", CORRAL_FACT_PLAIN, NULL, "%zu", c->processes);
  tell_results(&facts, c);
  tell_wake(&facts, c);
  tell_rare(&facts, c);
  (void)corral_stats_flights(c->sum, look_at_flight, &s);
}

bool doctor_counts(const doctor_facts *facts, const char *folder) {
  stat_host host;
  corral_error error = {0};
  bool is_read = stat_gather(folder, &host, &error);
  tell_folder(facts);
  if (!is_read) (void)cli_fail("doctor: %s", error.text);
  if (is_read) tell_processes(facts, &host);
  for (size_t i = 0; is_read && i < host.cache_count; i++)
    if (host.caches[i]->processes > 0 || stat_gets(&host.caches[i]->counts) > 0)
      tell_cache(facts, host.caches[i]);
  stat_drop(&host);
  return is_read;
}
