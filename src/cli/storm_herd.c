/* storm_herd.c: one process of the herd: its threads request, pause, and request again.
 *
 * The value of a key is "key generation sum check". A value is wrong when it is another key's, when
 * its generation hasn't begun yet, or when its check doesn't fit. Mode none is the classical
 * cache-aside: look, compute, set. */
#include "storm.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { VALUE_ROOM = 96, KEY_ROOM = 32, WAIT_MS = 60000, GRACE_MS = 1500, STACK = 512 * 1024 };

/* A process of the herd. */
typedef struct herd {
  storm *s;
  storm_mode mode;
  storm_slot *slot;
  storm_result *result;
  corral *c;
  atomic_int living; /* threads that still run */
} herd;

/* A thread of the herd. */
typedef struct member {
  herd *herd;
  storm_db *db;
  uint64_t random;
  unsigned key; /* of the present request */
} member;

static void add(atomic_ullong *counter, uint64_t n) {
  (void)atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static bool stopped(const herd *h) {
  return atomic_load_explicit(&h->s->shared->stop, memory_order_relaxed) != 0;
}

static void raise_to(atomic_llong *most, int64_t n) {
  long long seen = atomic_load_explicit(most, memory_order_relaxed);
  while (seen < n && !atomic_compare_exchange_weak(most, &seen, n)) continue;
}

static void pause_ms(double ms) {
  struct timespec t = {(time_t)(ms / 1000),
                       (long)((ms - 1000.0 * (double)(time_t)(ms / 1000)) * 1e6)};
  (void)nanosleep(&t, NULL);
}

/* ---- choice -------------------------------------------------------------------------------- */

/* splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014. */
static uint64_t next_random(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static double next_share(uint64_t *state) {
  return (double)(next_random(state) >> 11) / 9007199254740992.0;
}

bool storm_herd_odds(storm *s) {
  size_t keys = (size_t)s->options.keys;
  double *odds = malloc(keys * sizeof *odds);
  double sum = 0;
  if (odds == NULL) return false;
  for (size_t i = 0; i < keys; i++) odds[i] = sum += pow((double)(i + 1), -s->options.zipf);
  for (size_t i = 0; i < keys; i++) odds[i] /= sum;
  s->shared->odds = odds;
  return true;
}

static unsigned choose(member *m) {
  const double *odds = m->herd->s->shared->odds;
  double share = next_share(&m->random);
  size_t low = 0;
  size_t high = (size_t)m->herd->s->options.keys - 1;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (odds[middle] > share)
      high = middle;
    else
      low = middle + 1;
  }
  return (unsigned)low;
}

/* ---- values -------------------------------------------------------------------------------- */

static uint64_t check_of(unsigned key, unsigned generation, int64_t sum) {
  uint64_t state = ((uint64_t)key << 32 | generation) ^ (uint64_t)sum;
  return next_random(&state);
}

static bool is_right(const member *m, const void *data, size_t size) {
  char text[VALUE_ROOM + 1] = "";
  unsigned key = 0;
  unsigned generation = 0;
  int64_t sum = 0;
  uint64_t check = 0;
  if (size > VALUE_ROOM) return false;
  memcpy(text, data, size);
  if (sscanf(text, "%u %u %" SCNd64 " %" SCNx64, &key, &generation, &sum, &check) != 4)
    return false;
  return key == m->key && generation >= 1 &&
         generation <= atomic_load(&m->herd->s->shared->generation[key]) &&
         check == check_of(key, generation, sum);
}

/* Runs the query, which counts from its start: a query that is cut off has loaded the database,
 * too. */
static bool make_value(member *m, char text[VALUE_ROOM], size_t *ret_size) {
  herd *h = m->herd;
  storm_shared *shared = h->s->shared;
  int64_t begin = cli_now_ns();
  int64_t column = (begin - atomic_load(&shared->start_ns)) / 1000000 / shared->bucket_ms;
  unsigned generation = atomic_fetch_add(&shared->generation[m->key], 1) + 1;
  int64_t sum = 0;
  add(&h->result->computes, 1);
  if (column >= 0 && column < STORM_COLUMNS)
    (void)atomic_fetch_add(&h->result->timeline[column], 1);
  (void)atomic_fetch_add(&h->slot->computing, 1);
  if (m->db == NULL) m->db = storm_db_open(h->s->database, &shared->stop);
  bool ok = m->db != NULL && storm_db_query(m->db, h->s->options.load, m->key, &sum);
  (void)atomic_fetch_sub(&h->slot->computing, 1);
  add(&h->result->database_us, (uint64_t)(cli_now_ns() - begin) / 1000);
  if (!ok) return false;
  int64_t killed = atomic_exchange(&shared->killed_ns, 0);
  if (killed != 0) {
    int64_t us = (cli_now_ns() - killed) / 1000;
    (void)atomic_fetch_add(&h->result->recoveries, 1);
    (void)atomic_fetch_add(&h->result->recovery_sum_us, us);
    raise_to(&h->result->recovery_max_us, us);
  }
  int n = snprintf(text, VALUE_ROOM, "%u %u %" PRId64 " %" PRIx64, m->key, generation, sum,
                   check_of(m->key, generation, sum));
  *ret_size = (size_t)n;
  return true;
}

/* ---- requests ------------------------------------------------------------------------------ */

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  char text[VALUE_ROOM];
  size_t size = 0;
  (void)key;
  (void)key_len;
  if (make_value(arg, text, &size)) return corral_fill_bytes(fill, text, size);
  corral_fill_fail(fill, 1, "the query failed");
  return CORRAL_OK;
}

static int judge(const member *m, corral_value *value) {
  if (!is_right(m, corral_value_data(value), corral_value_size(value)))
    add(&m->herd->result->wrong, 1);
  corral_value_unref(value);
  return CORRAL_OK;
}

static int ask_corral(member *m, const char *key, size_t key_len, const corral_policy *policy) {
  corral_value *value = NULL;
  int status = corral_get_or_compute(m->herd->c, key, key_len, CORRAL_CALL(.policy = policy),
                                     compute, m, &value);
  return status == CORRAL_OK ? judge(m, value) : status;
}

static int ask_cache_aside(member *m, const char *key, size_t key_len,
                           const corral_policy *policy) {
  corral_value *value = NULL;
  int status = corral_get(m->herd->c, key, key_len, CORRAL_CALL(.policy = policy), &value);
  if (status == CORRAL_OK) return judge(m, value);
  if (status != CORRAL_EMISS && status != CORRAL_EUNAVAILABLE) return status;
  char text[VALUE_ROOM];
  size_t size = 0;
  if (!make_value(m, text, &size)) return CORRAL_EFAILED;
  (void)corral_set(m->herd->c, key, key_len, CORRAL_CALL(.policy = policy), text, size);
  return CORRAL_OK;
}

static void request(member *m) {
  herd *h = m->herd;
  const storm_options *o = &h->s->options;
  const corral_policy *policy =
      CORRAL_POLICY(.ttl_ms = o->ttl_ms, .swr_ms = o->stale_ms, .sie_ms = o->stale_ms,
                    .jitter_pct = CORRAL_OFF, .wait_ms = WAIT_MS, .retry_ms = CORRAL_OFF);
  char key[KEY_ROOM];
  m->key = choose(m);
  size_t key_len = (size_t)snprintf(key, sizeof key, "key-%u", m->key);
  int64_t begin = cli_now_ns();
  int status = h->mode == STORM_NONE ? ask_cache_aside(m, key, key_len, policy)
                                     : ask_corral(m, key, key_len, policy);
  int64_t us = (cli_now_ns() - begin) / 1000;
  bool cut_off = status != CORRAL_OK && stopped(h);
  add(cut_off ? &h->result->cut_off : &h->result->requests, 1);
  storm_record(&h->result->latency, us);
  raise_to(&h->result->max_us, us);
  if (status != CORRAL_OK && !cut_off) {
    add(&h->result->errors, 1);
    h->result->last_status = status;
  }
}

static void *live(void *arg) {
  member *m = arg;
  herd *h = m->herd;
  while (atomic_load(&h->s->shared->go) == 0 && !stopped(h)) pause_ms(1);
  while (!stopped(h)) {
    request(m);
    if (h->s->options.think_ms > 0)
      pause_ms(2 * next_share(&m->random) * (double)h->s->options.think_ms);
  }
  storm_db_close(m->db);
  (void)atomic_fetch_sub(&h->living, 1);
  return NULL;
}

/* ---- process ------------------------------------------------------------------------------- */

static bool open_corral(herd *h, pid_t parent) {
  char name_space[64];
  corral_error error = {0};
  (void)snprintf(name_space, sizeof name_space, "storm-%s-%ld", storm_mode_names[h->mode],
                 (long)parent);
  int status =
      corral_open(CORRAL_OPTIONS(.store = h->s->store, .name_space = name_space, .host_lock = 1),
                  &h->c, &error);
  if (status != CORRAL_OK)
    cli_say("storm: --store: %s", error.text[0] != '\0' ? error.text : corral_status_text(status));
  return status == CORRAL_OK;
}

static bool start_threads(herd *h, unsigned seed) {
  pthread_attr_t attributes;
  size_t threads = (size_t)h->s->options.threads;
  member *members = calloc(threads, sizeof *members);
  if (members == NULL || pthread_attr_init(&attributes) != 0) return false;
  (void)pthread_attr_setstacksize(&attributes, STACK);
  (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  for (size_t i = 0; i < threads; i++) {
    pthread_t thread;
    members[i] = (member){.herd = h, .random = (uint64_t)seed << 32 | i};
    (void)atomic_fetch_add(&h->living, 1);
    if (pthread_create(&thread, &attributes, live, &members[i]) != 0) return false;
  }
  return true;
}

/* Threads that wait inside corral get GRACE_MS to end; then _exit ends them. */
void storm_herd(storm *s, storm_mode mode, storm_slot *slot, unsigned seed) {
  static herd h;
  pid_t parent = getppid();
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  (void)signal(SIGINT, SIG_IGN);
  (void)signal(SIGTERM, SIG_DFL);
  h = (herd){.s = s, .mode = mode, .slot = slot, .result = &s->shared->results[mode]};
  if (getppid() != parent || !open_corral(&h, parent) || !start_threads(&h, seed))
    _exit(CLI_FAILED);
  atomic_store(&slot->ready, 1);
  while (!stopped(&h)) pause_ms(5);
  for (int64_t end = cli_now_ms() + GRACE_MS; atomic_load(&h.living) > 0 && cli_now_ms() < end;)
    pause_ms(1);
  if (atomic_load(&h.living) == 0)
    corral_close(h.c);
  else
    add(&h.result->cut_off, (uint64_t)atomic_load(&h.living));
  _exit(CLI_OK);
}
