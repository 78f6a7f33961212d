/* storm_herd.c: one process of the herd: each thread takes the next request of the schedule, waits
 * until that is due, and asks.
 *
 * A request that is due while all threads are busy is taken late. Its wait counts from the moment
 * that it was due, so a slow answer does not hide the requests that came meanwhile.
 * The value of a key is "key generation sum check". A value is wrong when it is another key's, when
 * its generation hasn't begun yet, or when its check doesn't fit. Mode none is the classical
 * cache-aside: look, compute, set. */
#include "storm.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { VALUE_ROOM = 96, KEY_ROOM = 32, WAIT_MS = 60000, GRACE_MS = 1500, STACK = 512 * 1024 };
enum { NAP_MS = 50 }; /* at most so long until a sleeping thread sees the end */

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

/* ---- values -------------------------------------------------------------------------------- */

static uint64_t check_of(unsigned key, unsigned generation, int64_t sum) {
  uint64_t state = ((uint64_t)key << 32 | generation) ^ (uint64_t)sum;
  return storm_random(&state);
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

void storm_note_computing(storm_shared *shared, storm_result *result, int64_t *since_ns) {
  int64_t start = atomic_load(&shared->start_ns);
  int64_t now = cli_now_ns();
  int64_t first = ((since_ns != NULL ? *since_ns : now) - start) / 1000000 / shared->bucket_ms;
  int64_t last = (now - start) / 1000000 / shared->bucket_ms;
  unsigned computing = 0;
  if (since_ns != NULL) *since_ns = now;
  for (int i = 0; i < STORM_PROCESSES; i++)
    computing += (unsigned)atomic_load_explicit(&shared->slots[i].computing, memory_order_relaxed);
  for (int64_t i = first < 0 ? 0 : first; i <= last && i < STORM_COLUMNS; i++) {
    unsigned seen = atomic_load(&result->at_once[i]);
    while (seen < computing && !atomic_compare_exchange_weak(&result->at_once[i], &seen, computing))
      continue;
  }
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
  if (column >= 0 && column < STORM_COLUMNS) (void)atomic_fetch_add(&h->result->begun[column], 1);
  (void)atomic_fetch_add(&h->slot->computing, 1);
  storm_note_computing(shared, h->result, NULL);
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

static int request(member *m, size_t i) {
  herd *h = m->herd;
  const storm_options *o = &h->s->options;
  const corral_policy *policy =
      CORRAL_POLICY(.ttl_ms = o->ttl_ms, .swr_ms = o->stale_ms, .sie_ms = o->stale_ms,
                    .jitter_pct = CORRAL_OFF, .wait_ms = WAIT_MS, .retry_ms = CORRAL_OFF);
  char key[KEY_ROOM];
  m->key = storm_schedule_key(h->s, i);
  size_t key_len = (size_t)snprintf(key, sizeof key, "key-%u", m->key);
  return h->mode == STORM_NONE ? ask_cache_aside(m, key, key_len, policy)
                               : ask_corral(m, key, key_len, policy);
}

/* ---- schedule ------------------------------------------------------------------------------ */

/* Takes the next request of this process; false at the end of the schedule. Those that a killed
 * process had answered are skipped. */
static bool take(const herd *h, size_t *ret) {
  const storm *s = h->s;
  size_t first = (size_t)(h->slot - s->shared->slots);
  for (;;) {
    size_t i = first + (size_t)s->options.processes * atomic_fetch_add(&h->slot->next, 1);
    if (i >= s->due_count) return false;
    if (atomic_load_explicit(&s->answered[h->mode][i], memory_order_relaxed) != 0) continue;
    *ret = i;
    return true;
  }
}

/* False when the storm ends before that moment. */
static bool sleep_until(const herd *h, int64_t due_ns) {
  for (int64_t now; (now = cli_now_ns()) < due_ns;) {
    int64_t left = due_ns - now;
    pause_ms(left < NAP_MS * 1000000ll ? (double)left / 1e6 : NAP_MS);
    if (stopped(h)) return false;
  }
  return !stopped(h);
}

/* The wait is written as one word: with it the request counts as answered, however soon this
 * process is killed. A failure at the end of the storm is no answer. */
static void serve(member *m, size_t i) {
  herd *h = m->herd;
  int64_t due_ns = atomic_load(&h->s->shared->start_ns) + (int64_t)h->s->due_us[i] * 1000;
  bool late = cli_now_ns() > due_ns;
  if (!sleep_until(h, due_ns)) return;
  int status = request(m, i);
  int64_t us = (cli_now_ns() - due_ns) / 1000;
  if (status != CORRAL_OK && stopped(h)) return;
  atomic_store(&h->s->answered[h->mode][i], us > 0 ? (unsigned)us : 1);
  add(&h->result->requests, 1);
  if (late) add(&h->result->late, 1);
  if (status != CORRAL_OK) {
    add(&h->result->errors, 1);
    h->result->last_status = status;
  }
}

static void *live(void *arg) {
  member *m = arg;
  herd *h = m->herd;
  while (atomic_load(&h->s->shared->go) == 0 && !stopped(h)) pause_ms(1);
  for (size_t i; !stopped(h) && take(h, &i);) serve(m, i);
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

static bool start_threads(herd *h) {
  pthread_attr_t attributes;
  size_t threads = (size_t)h->s->options.threads;
  member *members = calloc(threads, sizeof *members);
  if (members == NULL || pthread_attr_init(&attributes) != 0) return false;
  (void)pthread_attr_setstacksize(&attributes, STACK);
  (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  for (size_t i = 0; i < threads; i++) {
    pthread_t thread;
    members[i] = (member){.herd = h};
    (void)atomic_fetch_add(&h->living, 1);
    if (pthread_create(&thread, &attributes, live, &members[i]) != 0) return false;
  }
  return true;
}

/* Threads that wait inside corral get GRACE_MS to end; then _exit ends them. Threads sleep without
 * slack, which would count as a wait. */
void storm_herd(storm *s, storm_mode mode, storm_slot *slot) {
  static herd h;
  pid_t parent = getppid();
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  (void)prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul);
  (void)signal(SIGINT, SIG_IGN);
  (void)signal(SIGTERM, SIG_DFL);
  h = (herd){.s = s, .mode = mode, .slot = slot, .result = &s->shared->results[mode]};
  if (getppid() != parent || !open_corral(&h, parent) || !start_threads(&h)) _exit(CLI_FAILED);
  atomic_store(&slot->ready, 1);
  while (!stopped(&h)) pause_ms(5);
  for (int64_t end = cli_now_ms() + GRACE_MS; atomic_load(&h.living) > 0 && cli_now_ms() < end;)
    pause_ms(1);
  if (atomic_load(&h.living) == 0) corral_close(h.c);
  _exit(CLI_OK);
}
