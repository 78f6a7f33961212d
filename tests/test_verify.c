/* test_verify.c: hits that are computed anew behind their answers, and compared: the verdicts, and
 * when there is none. */
#include "support/loop_kit.h"

#include <corral/control.h>
#include <corral/stats.h>

#include "context/context.h"
#include "support/herd_lab.h"
#include "support/redis_server.h"

enum { PATIENCE_MS = 60000, HOUR_MS = 3600000, HITS = 100, AGE_MS = 20, GAP_MS = 100 };

static redis_server *server;

/* ---- an origin, and what is told of it ----------------------------------------------------- */

typedef struct origin {
  atomic_int edition, entered, left, inside, most;
  atomic_int gated, gate; /* gated: each compute but the first waits for the gate */
  atomic_int fails, is_gone, is_nested;
  corral *corral;
  char variant[16]; /* of the last compute */
} origin;

/* The events of a corral, also once it is closed. */
static struct {
  pthread_mutex_t mutex;
  corral_event_info last[CORRAL_EVENT_COUNT];
  char detail[CORRAL_EVENT_COUNT][96];
  int count[CORRAL_EVENT_COUNT];
} told = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void note(const corral_event_info *info, void *arg) {
  (void)arg;
  pthread_mutex_lock(&told.mutex);
  told.last[info->event] = *info;
  told.count[info->event]++;
  snprintf(told.detail[info->event], sizeof told.detail[0], "%s",
           info->detail == NULL ? "" : info->detail);
  pthread_mutex_unlock(&told.mutex);
}

static int count(corral_event event) {
  pthread_mutex_lock(&told.mutex);
  int n = told.count[event];
  pthread_mutex_unlock(&told.mutex);
  return n;
}

static corral_event_info last(corral_event event) {
  pthread_mutex_lock(&told.mutex);
  corral_event_info info = told.last[event];
  pthread_mutex_unlock(&told.mutex);
  return info;
}

/* Fills "KEY EDITION". */
static int originate(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  origin *o = arg;
  char text[64];
  size_t size;
  int n = atomic_fetch_add(&o->inside, 1) + 1;
  if (n > o->most) o->most = n;
  int is_first = atomic_fetch_add(&o->entered, 1) == 0;
  lab_add(&o->entered, 0);
  if (o->gated && !is_first && !lab_await_ms(&o->gate, 1, PATIENCE_MS))
    corral_fill_fail(fill, 1, "the gate stayed shut");
  int len = snprintf(text, sizeof text, "%.*s %d", (int)key_len, (const char *)key, o->edition);
  const char *variant = corral_fill_variant(fill, &size);
  snprintf(o->variant, sizeof o->variant, "%.*s", (int)size, variant == NULL ? "" : variant);
  if (o->is_gone)
    corral_fill_negative(fill);
  else if (o->fails)
    corral_fill_fail(fill, 7, "no luck");
  else
    corral_fill_bytes(fill, text, (size_t)len);
  atomic_fetch_sub(&o->inside, 1);
  lab_add(&o->left, 1);
  return CORRAL_OK;
}

/* Verifies each hit, unless `more` says otherwise. */
static corral *opened(const char *uri, origin *o, const corral_options *more) {
  corral *c = NULL;
  corral_error error = {0};
  corral_options options = {.size = sizeof options};
  static const corral_policy all = {.size = sizeof all,
                                    .verify_ppm = 1000000,
                                    .ttl_ms = HOUR_MS,
                                    .swr_ms = HOUR_MS,
                                    .wait_ms = PATIENCE_MS,
                                    .near_ms = HOUR_MS,
                                    .lease_ms = PATIENCE_MS,
                                    .lease_min_ms = PATIENCE_MS,
                                    .retry_ms = HOUR_MS,
                                    .retry_max_ms = HOUR_MS};
  if (more != NULL) options = *more;
  options.store = uri;
  options.compute = originate;
  options.compute_arg = o;
  options.on_event = note;
  if (options.op_ms == 0) options.op_ms = PATIENCE_MS / 2;
  if (options.verify_max == 0) options.verify_max = 1000;
  if (options.policy == NULL) options.policy = &all;
  o->edition = 1;
  memset(told.last, 0, sizeof told.last);
  memset(told.count, 0, sizeof told.count);
  if (corral_open(&options, &c, &error) != CORRAL_OK) fail_msg("%s: %s", uri, error.text);
  return o->corral = c;
}

static corral_how get_with(corral *c, const corral_call *call, const char *text) {
  corral_value *value = NULL;
  int status = corral_get(c, "k", 1, call, &value);
  if (status != CORRAL_OK) fail_msg("corral_get: %s", corral_status_name(status));
  assert_int_equal(corral_value_size(value), strlen(text));
  assert_memory_equal(corral_value_data(value), text, strlen(text));
  corral_how how = corral_value_how(value);
  corral_value_unref(value);
  return how;
}

static void compute_first(corral *c) {
  assert_int_equal(get_with(c, NULL, "k 1"), CORRAL_COMPUTED);
}

static void hit(corral *c) { assert_int_equal(get_with(c, NULL, "k 1"), CORRAL_FRESH); }

/* Hits the key until the counter has got so far. */
#define HIT_UNTIL(c, counter, least)                                                               \
  do {                                                                                             \
    int64_t until_ = crl_env_now_ms() + PATIENCE_MS;                                               \
    while ((counter) < (least)) {                                                                  \
      if (crl_env_now_ms() > until_) fail_msg("%s is %d", #counter, (int)(counter));               \
      hit(c);                                                                                      \
      lab_sleep_ms(1);                                                                             \
    }                                                                                              \
  } while (0)

static int verdicts(void) {
  return count(CORRAL_EVENT_VERIFIED) + count(CORRAL_EVENT_DIFFERS) +
         count(CORRAL_EVENT_UNVERIFIED);
}

/* Once it is closed no verification is under way: the users' calls made one compute and one write,
 * and each other compute told one verdict. */
static void ended(corral *c, const origin *o) {
  corral_close(c);
  assert_int_equal(count(CORRAL_EVENT_CLAIM), 1);
  assert_int_equal(count(CORRAL_EVENT_COMPUTE), 1);
  assert_int_equal(count(CORRAL_EVENT_COMPUTED), 1);
  assert_int_equal(count(CORRAL_EVENT_FILL), 1);
  assert_int_equal(count(CORRAL_EVENT_REFRESH), 0);
  assert_int_equal(count(CORRAL_EVENT_FAILURE), 0);
  assert_int_equal(count(CORRAL_EVENT_LIMITED), 0);
  assert_int_equal(count(CORRAL_EVENT_DEADLINE), 0);
  assert_int_equal(o->entered, 1 + verdicts());
  assert_int_equal(o->left, o->entered);
}

/* Runs the story once on each store. */
static void on_each(void (*story)(const char *uri)) {
  static int stores;
  char name[16];
  snprintf(name, sizeof name, "store%d", stores++);
  story("memory:");
  story(lab_lmdb(lab_room, name));
  if (server == NULL) return;
  redis_server_ask(server, "FLUSHALL");
  story(redis_server_uri(server));
}

/* ---- verdicts ------------------------------------------------------------------------------ */

static void same_story(const char *uri) {
  origin o = {0};
  corral *c = opened(uri, &o, NULL);
  compute_first(c);
  HIT_UNTIL(c, count(CORRAL_EVENT_VERIFIED), 2);
  corral_event_info info = last(CORRAL_EVENT_VERIFIED);
  assert_int_equal(info.bytes, 3);
  assert_int_equal(info.status, CORRAL_OK);
  assert_true(info.duration_us >= 0);
  ended(c, &o);
  assert_int_equal(verdicts(), count(CORRAL_EVENT_VERIFIED));
}

static void a_hit_is_computed_anew_behind_its_answer_and_nothing_is_stored(void **state) {
  (void)state;
  on_each(same_story);
}

static corral_histogram times(corral *c, corral_time time) {
  corral_stats *stats;
  corral_histogram ret;
  assert_int_equal(corral_stats_read(c, &stats, NULL), CORRAL_OK);
  corral_stats_times(stats, time, &ret);
  corral_stats_free(stats);
  return ret;
}

static void differs_story(const char *uri) {
  origin o = {0};
  corral *c = opened(uri, &o, NULL);
  compute_first(c);
  o.edition = 2;
  lab_sleep_ms(AGE_MS + 5);
  HIT_UNTIL(c, count(CORRAL_EVENT_DIFFERS), 3);
  corral_event_info info = last(CORRAL_EVENT_DIFFERS);
  assert_int_equal(info.bytes, 3);
  assert_int_equal(info.status, CORRAL_OK);
  assert_true(info.duration_us >= AGE_MS * 1000);
  corral_histogram ages = times(c, CORRAL_TIME_DIFFERS_AGE);
  assert_true(ages.count >= 3);
  assert_true(corral_histogram_quantile(&ages, 0) >= AGE_MS * 1000);
  assert_int_equal(times(c, CORRAL_TIME_COMPUTE).count, 1);
  ended(c, &o);
  assert_int_equal(verdicts(), count(CORRAL_EVENT_DIFFERS));
}

static void a_value_that_its_compute_gives_no_more_is_told_with_its_age_and_stays(void **state) {
  (void)state;
  on_each(differs_story);
}

static void a_value_that_is_no_more_differs(void **state) {
  (void)state;
  origin o = {0};
  corral *c = opened("memory:", &o, NULL);
  compute_first(c);
  o.is_gone = 1;
  HIT_UNTIL(c, count(CORRAL_EVENT_DIFFERS), 1);
  assert_int_equal(last(CORRAL_EVENT_DIFFERS).status, CORRAL_ENOTFOUND);
  ended(c, &o);
}

static void the_copies_of_a_near_tier_are_verified_too(void **state) {
  (void)state;
  origin o = {0};
  if (server == NULL) skip();
  redis_server_ask(server, "FLUSHALL");
  corral *c = opened(redis_server_uri(server), &o,
                     CORRAL_OPTIONS(.near_bytes = 1 << 20, .watch = CORRAL_OFF));
  compute_first(c);
  o.edition = 2;
  HIT_UNTIL(c, count(CORRAL_EVENT_DIFFERS), 1);
  assert_true(count(CORRAL_EVENT_NEAR) > 0);
  ended(c, &o);
}

static void a_variant_is_computed_as_that_variant(void **state) {
  (void)state;
  origin o = {0};
  corral *c = opened("memory:", &o, NULL);
  char variant[] = "de";
  corral_call call = {.size = sizeof call, .variant = variant, .variant_len = 2};
  assert_int_equal(get_with(c, &call, "k 1"), CORRAL_COMPUTED);
  o.gated = 1;
  assert_int_equal(get_with(c, &call, "k 1"), CORRAL_FRESH);
  assert_true(lab_await_ms(&o.entered, 2, PATIENCE_MS));
  memset(variant, 'x', 2); /* it was copied */
  lab_add(&o.gate, 1);
  corral_close(c);
  assert_string_equal(o.variant, "de");
  assert_int_equal(count(CORRAL_EVENT_VERIFIED), 1);
}

/* ---- the user's comparison ----------------------------------------------------------------- */

typedef struct comparison {
  corral *corral;
  int calls, inner; /* inner: of a call within it */
  char served[16], fresh[16];
} comparison;

static int begin_alike(const void *key, size_t key_len, const corral_value *served,
                       const void *data, size_t size, void *arg) {
  comparison *seen = arg;
  corral_value *value;
  assert_int_equal(key_len, 1);
  assert_memory_equal(key, "k", 1);
  seen->calls++;
  seen->inner = corral_get(seen->corral, "k", 1, NULL, &value);
  snprintf(seen->served, sizeof seen->served, "%.*s", (int)corral_value_size(served),
           (const char *)corral_value_data(served));
  snprintf(seen->fresh, sizeof seen->fresh, "%.*s", (int)size, (const char *)data);
  return seen->served[0] == seen->fresh[0];
}

static void what_is_the_same_is_for_the_user_to_say(void **state) {
  (void)state;
  origin o = {0};
  comparison seen = {0};
  corral *c = opened("memory:", &o, CORRAL_OPTIONS(.on_verify = begin_alike, .verify_arg = &seen));
  seen.corral = c;
  compute_first(c);
  o.edition = 2;
  HIT_UNTIL(c, count(CORRAL_EVENT_VERIFIED), 1);
  ended(c, &o);
  assert_int_equal(count(CORRAL_EVENT_DIFFERS), 0);
  assert_int_equal(seen.calls, count(CORRAL_EVENT_VERIFIED));
  assert_int_equal(seen.inner, CORRAL_EINVAL);
  assert_string_equal(seen.served, "k 1");
  assert_string_equal(seen.fresh, "k 2");
}

/* ---- how often ----------------------------------------------------------------------------- */

static void no_more_are_verified_in_a_second_than_verify_max(void **state) {
  (void)state;
  origin o = {0};
  corral *c = opened("memory:", &o, CORRAL_OPTIONS(.verify_max = 1000 / GAP_MS));
  compute_first(c);
  int64_t began = crl_env_now_ms();
  for (int i = 0; i < HITS; i++) hit(c);
  HIT_UNTIL(c, count(CORRAL_EVENT_VERIFIED), 4);
  int64_t took = crl_env_now_ms() - began;
  assert_true(o.entered - 1 <= 1 + took / GAP_MS);
  ended(c, &o);
}

static void one_value_is_verified_at_a_time(void **state) {
  (void)state;
  origin o = {.gated = 1};
  corral *c = opened("memory:", &o, NULL);
  compute_first(c);
  hit(c);
  assert_true(lab_await_ms(&o.entered, 2, PATIENCE_MS));
  for (int i = 0; i < HITS; i++) hit(c);
  lab_sleep_ms(GAP_MS);
  assert_int_equal(o.entered, 2);
  lab_add(&o.gate, 1);
  HIT_UNTIL(c, o.entered, 3);
  ended(c, &o);
  assert_int_equal(o.most, 1);
}

/* 1 % of the hits: so many that none, and all, would each be a wonder. */
static void a_share_of_the_hits_is_drawn(void **state) {
  (void)state;
  enum { MANY = 5000 };
  static const int64_t shares[][3] = {{10000, 1, 250}, {CORRAL_OFF, 0, 0}};
  for (size_t s = 0; s < 2; s++) {
    origin o = {0};
    corral *c = opened(
        "memory:", &o,
        CORRAL_OPTIONS(.policy = CORRAL_POLICY(.verify_ppm = shares[s][0], .ttl_ms = HOUR_MS)));
    compute_first(c);
    for (int i = 0; i < MANY; i++) hit(c);
    ended(c, &o);
    assert_in_range(verdicts(), shares[s][1], shares[s][2]);
  }
}

/* ---- whose compute -------------------------------------------------------------------------- */

static void a_compute_of_the_call_s_own_is_not_run_behind_it(void **state) {
  (void)state;
  origin o = {0}, own = {.edition = 1};
  corral *c = opened("memory:", &o, NULL);
  compute_first(c);
  for (int i = 0; i < HITS; i++) {
    corral_value *value;
    assert_int_equal(corral_get_or_compute(c, "k", 1, NULL, originate, &own, &value), CORRAL_OK);
    corral_value_unref(value);
  }
  corral_item item = {.key = "k", .key_len = 1};
  assert_int_equal(corral_get_many(c, &item, 1, NULL, NULL, NULL), CORRAL_OK);
  corral_value_unref(item.value);
  ended(c, &o);
  assert_int_equal(verdicts(), 0);
  assert_int_equal(own.entered, 0);
}

static void loop_story(const char *uri) {
  origin o = {0};
  corral_loop *loop;
  corral *c = opened(uri, &o, NULL);
  compute_first(c);
  assert_int_equal(corral_loop_open(c, &loop, NULL), CORRAL_OK);
  for (int i = 0; i < HITS; i++) {
    request r = {.makes = "never"};
    assert_int_equal(ask_as(loop, "k", NULL, &r, 1), CORRAL_OK);
    RUN_UNTIL(loop, r.gones, 1);
    assert_int_equal(r.starts, 0);
  }
  assert_int_equal(verdicts(), 0);
  int64_t until = crl_env_now_ms() + PATIENCE_MS;
  while (count(CORRAL_EVENT_VERIFIED) < 2 && crl_env_now_ms() < until) {
    request r = {0};
    assert_int_equal(ask_as(loop, "k", NULL, &r, 0), CORRAL_OK);
    RUN_UNTIL(loop, r.gones, 1);
    assert_int_equal(r.how, CORRAL_FRESH);
  }
  corral_loop_close(loop);
  ended(c, &o);
  assert_true(count(CORRAL_EVENT_VERIFIED) >= 2);
}

static void a_hit_of_an_event_loop_is_verified_by_the_bound_compute_alone(void **state) {
  (void)state;
  on_each(loop_story);
}

/* ---- not now ------------------------------------------------------------------------------- */

/* Asks of verifications for a place to compute. */
static atomic_int asked, granted;

int __real_crl_limiter_ask(crl_limiter *limiter, crl_place *place, crl_rank rank, unsigned needs,
                           crl_waiter *waiter);
int __wrap_crl_limiter_ask(crl_limiter *limiter, crl_place *place, crl_rank rank, unsigned needs,
                           crl_waiter *waiter);
int __wrap_crl_limiter_ask(crl_limiter *limiter, crl_place *place, crl_rank rank, unsigned needs,
                           crl_waiter *waiter) {
  int takes = __real_crl_limiter_ask(limiter, place, rank, needs, waiter);
  granted += rank == CRL_RANK_WARM && takes;
  asked += rank == CRL_RANK_WARM;
  return takes;
}

static void nothing_is_verified_without_a_free_place_to_compute(void **state) {
  (void)state;
  const corral_options limits[] = {{.size = sizeof *limits, .max_computes = 1},
                                   {.size = sizeof *limits, .workers = 1},
                                   {.size = sizeof *limits, .ramp = 1, .max_computes = 1}};
  for (size_t i = 0; i < 3; i++) {
    origin o = {0};
    crl_place place = {0};
    crl_waiter waiter = {0};
    corral *c = opened("memory:", &o, &limits[i]);
    crl_limiter *limiter = crl_semaphore_limiter(((crl_context *)(void *)c)->limiter);
    compute_first(c);
    asked = granted = 0;
    while (!crl_limiter_ask(limiter, &place, CRL_RANK_COLD, CRL_PLACE_COMPUTE | CRL_PLACE_THREAD,
                            &waiter))
      crl_waiter_sleep(&waiter, INT64_MAX);
    HIT_UNTIL(c, asked, 3);
    assert_int_equal(granted, 0);
    assert_int_equal(o.entered, 1);
    crl_limiter_leave(limiter, &place);
    HIT_UNTIL(c, count(CORRAL_EVENT_VERIFIED), 1);
    ended(c, &o);
  }
}

static void nothing_is_verified_while_the_fleet_computes_as_much_as_it_may(void **state) {
  (void)state;
  origin o = {0}, other = {0};
  const corral_options limit = {.size = sizeof limit, .fleet_max_computes = 1};
  if (server == NULL) skip();
  redis_server_ask(server, "FLUSHALL");
  corral *busy = opened(redis_server_uri(server), &other, &limit);
  corral_loop *loop;
  request r = {0};
  assert_int_equal(corral_loop_open(busy, &loop, NULL), CORRAL_OK);
  corral *c = opened(redis_server_uri(server), &o, &limit);
  compute_first(c);
  ask(loop, "slow", NULL, &r);
  RUN_UNTIL(loop, r.starts, 1);
  asked = granted = 0;
  HIT_UNTIL(c, asked, 3);
  corral_close(c);
  assert_true(granted >= 2);
  assert_int_equal(o.entered, 1);
  make(&r, "done");
  RUN_UNTIL(loop, r.gones, 1);
  corral_loop_close(loop);
  corral_close(busy);
}

static void nothing_is_verified_while_a_failure_of_the_key_is_remembered(void **state) {
  (void)state;
  origin o = {0};
  corral *c = opened("memory:", &o, NULL);
  compute_first(c);
  o.fails = 1;
  const corral_call anew = {.size = sizeof anew,
                            .policy = CORRAL_POLICY(.anew = 1, .verify_ppm = CORRAL_OFF,
                                                    .retry_ms = HOUR_MS, .retry_max_ms = HOUR_MS)};
  assert_int_equal(get_with(c, &anew, "k 1"), CORRAL_FRESH);
  assert_int_equal(o.entered, 2);
  for (int i = 0; i < HITS; i++) hit(c);
  lab_sleep_ms(5);
  hit(c);
  corral_close(c);
  assert_int_equal(o.entered, 2);
  assert_int_equal(verdicts(), 0);
}

static void nothing_is_verified_while_somebody_rebuilds_the_value(void **state) {
  (void)state;
  origin o = {0};
  corral_loop *loop;
  request r = {0};
  corral *c = opened("memory:", &o, NULL);
  compute_first(c);
  assert_int_equal(corral_loop_open(c, &loop, NULL), CORRAL_OK);
  ask(loop, "k", CORRAL_POLICY(.anew = 1, .ttl_ms = HOUR_MS), &r);
  RUN_UNTIL(loop, r.starts, 1);
  for (int i = 0; i < HITS; i++) {
    hit(c);
    lab_sleep_ms(1);
  }
  assert_int_equal(o.entered, 1);
  make(&r, "k 1");
  RUN_UNTIL(loop, r.gones, 1);
  corral_loop_close(loop);
  HIT_UNTIL(c, count(CORRAL_EVENT_VERIFIED), 1);
  corral_close(c);
}

static void nothing_is_verified_while_the_store_is_away(void **state) {
  (void)state;
  origin o = {0};
  if (server == NULL) skip();
  redis_server_ask(server, "FLUSHALL");
  corral *c =
      opened(redis_server_uri(server), &o,
             CORRAL_OPTIONS(.near_bytes = 1 << 20, .watch = CORRAL_OFF, .verify_max = 1000));
  compute_first(c);
  redis_server_kill(server);
  for (int i = 0; i < HITS; i++) {
    hit(c);
    lab_sleep_ms(1);
  }
  corral_close(c);
  assert_true(count(CORRAL_EVENT_NEAR) >= HITS - 1);
  assert_int_equal(o.entered, 1);
  redis_server_restart(server);
}

static int64_t looks_at_the_server(void) {
  const char *text = redis_server_ask(server, "INFO commandstats");
  const char *at = text == NULL ? NULL : strstr(text, "cmdstat_getrange:calls=");
  return at == NULL ? 0 : atoll(strchr(at, '=') + 1);
}

/* Waits for the first such event; makes calls of `c` (NULL: none) that aren't verified. */
static void await_event(corral_event event, corral *c) {
  int64_t until = crl_env_now_ms() + PATIENCE_MS;
  const corral_call call = {.size = sizeof call, .policy = CORRAL_POLICY(.verify_ppm = CORRAL_OFF)};
  for (; count(event) == 0; lab_sleep_ms(1)) {
    if (crl_env_now_ms() > until) fail_msg("no %s", corral_event_name(event));
    if (c != NULL) assert_int_equal(get_with(c, &call, "k 1"), CORRAL_FRESH);
  }
}

/* Not even the store is looked at for that. */
static void nothing_is_verified_while_an_operator_s_freeze_is_in_force(void **state) {
  (void)state;
  origin o = {0};
  corral_control_state now = {.size = sizeof now};
  if (server == NULL) skip();
  redis_server_ask(server, "FLUSHALL");
  corral *c = opened(redis_server_uri(server), &o, CORRAL_OPTIONS(.control = 1));
  compute_first(c);
  hit(c); /* the only one that is verified */
  await_event(CORRAL_EVENT_VERIFIED, NULL);
  assert_int_equal(corral_control_set(c, CORRAL_CONTROL_FREEZE, 0, 0, NULL), CORRAL_OK);
  await_event(CORRAL_EVENT_CONTROL, c);
  assert_int_equal(corral_control_followed(c, &now), CORRAL_OK);
  assert_int_equal(now.verb, CORRAL_CONTROL_FREEZE);
  int entered = o.entered;
  int64_t looks = looks_at_the_server();
  assert_true(looks > 0);
  for (int i = 0; i < HITS; i++) {
    hit(c);
    lab_sleep_ms(2);
  }
  /* the others are looks for an order, twice a second */
  assert_in_range(looks_at_the_server() - looks, HITS, HITS + HITS / 2);
  assert_int_equal(o.entered, entered);
  corral_close(c);
}

/* ---- no false alarm ------------------------------------------------------------------------ */

typedef int change(corral *c);
static int invalidate(corral *c) { return corral_invalidate(c, "k", 1, NULL); }
static int expire(corral *c) { return corral_expire(c, "k", 1, NULL); }
static int set(corral *c) { return corral_set(c, "k", 1, NULL, "k 2", 3); }
static int set_the_same(corral *c) { return corral_set(c, "k", 1, NULL, "k 1", 3); }

static void change_story(const char *uri) {
  change *const changes[] = {invalidate, expire, set, set_the_same};
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    origin o = {.gated = 1};
    corral *c = opened(uri, &o, NULL);
    assert_int_equal(corral_invalidate(c, "k", 1, NULL), CORRAL_OK);
    compute_first(c);
    lab_sleep_ms(AGE_MS);
    hit(c);
    assert_true(lab_await_ms(&o.entered, 2, PATIENCE_MS));
    o.edition = 2;
    assert_int_equal(changes[i](c), CORRAL_OK);
    lab_add(&o.gate, 1);
    corral_close(c);
    assert_int_equal(o.entered, 2);
    assert_int_equal(count(CORRAL_EVENT_UNVERIFIED), 1);
    assert_int_equal(verdicts(), 1);
    assert_int_equal(last(CORRAL_EVENT_UNVERIFIED).status, CORRAL_EMISS);
  }
}

static void a_value_that_was_replaced_or_ended_during_the_compute_gets_no_verdict(void **state) {
  (void)state;
  on_each(change_story);
}

static void
a_compute_that_fails_tells_why_and_leaves_no_failure_and_the_origin_rests(void **state) {
  (void)state;
  origin o = {0};
  corral_inspection seen = {.size = sizeof seen};
  corral *c = opened("memory:", &o, NULL);
  compute_first(c);
  o.fails = 1;
  HIT_UNTIL(c, count(CORRAL_EVENT_UNVERIFIED), 1);
  for (int i = 0; i < HITS; i++) hit(c);
  assert_int_equal(corral_inspect(c, "k", 1, NULL, &seen), CORRAL_OK);
  assert_string_equal(seen.state, "fresh");
  assert_int_equal(seen.retry_left_ms, 0);
  assert_int_equal(seen.failures, 0);
  ended(c, &o);
  assert_int_equal(o.entered, 2);
  assert_int_equal(last(CORRAL_EVENT_UNVERIFIED).status, CORRAL_EFAILED);
  assert_string_equal(told.detail[CORRAL_EVENT_UNVERIFIED], "no luck");
}

static void a_compute_that_takes_too_long_gets_no_verdict(void **state) {
  (void)state;
  origin o = {.gated = 1};
  corral *c = opened("memory:", &o,
                     CORRAL_OPTIONS(.policy = CORRAL_POLICY(.verify_ppm = 1000000,
                                                            .ttl_ms = HOUR_MS, .compute_ms = 50)));
  /* the first one may take its time */
  const corral_call first = {.size = sizeof first,
                             .policy = CORRAL_POLICY(.compute_ms = PATIENCE_MS)};
  assert_int_equal(get_with(c, &first, "k 1"), CORRAL_COMPUTED);
  hit(c);
  assert_true(lab_await_ms(&o.entered, 2, PATIENCE_MS));
  int64_t until = crl_env_now_ms() + PATIENCE_MS;
  while (count(CORRAL_EVENT_ABANDONED) == 0 && crl_env_now_ms() < until) lab_sleep_ms(1);
  lab_add(&o.gate, 1);
  ended(c, &o);
  assert_int_equal(count(CORRAL_EVENT_ABANDONED), 1);
  assert_int_equal(last(CORRAL_EVENT_UNVERIFIED).status, CORRAL_EABANDONED);
}

/* ---- close --------------------------------------------------------------------------------- */

static void *open_the_gate(void *arg) {
  origin *o = arg;
  lab_sleep_ms(GAP_MS);
  lab_add(&o->gate, 1);
  return NULL;
}

static void close_waits_for_the_one_that_runs(void **state) {
  (void)state;
  origin o = {.gated = 1};
  pthread_t thread;
  corral *c = opened("memory:", &o, NULL);
  compute_first(c);
  hit(c);
  assert_true(lab_await_ms(&o.entered, 2, PATIENCE_MS));
  assert_int_equal(pthread_create(&thread, NULL, open_the_gate, &o), 0);
  ended(c, &o);
  assert_int_equal(count(CORRAL_EVENT_VERIFIED), 1);
  pthread_join(thread, NULL);
}

static int set_up(void **state) {
  if (!redis_server_start(&server, NULL)) server = NULL;
  return lab_make_room(state);
}

static int tear_down(void **state) {
  if (server != NULL) redis_server_stop(server);
  return lab_leave_room(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_hit_is_computed_anew_behind_its_answer_and_nothing_is_stored),
      cmocka_unit_test(a_value_that_its_compute_gives_no_more_is_told_with_its_age_and_stays),
      cmocka_unit_test(a_value_that_is_no_more_differs),
      cmocka_unit_test(the_copies_of_a_near_tier_are_verified_too),
      cmocka_unit_test(a_variant_is_computed_as_that_variant),
      cmocka_unit_test(what_is_the_same_is_for_the_user_to_say),
      cmocka_unit_test(no_more_are_verified_in_a_second_than_verify_max),
      cmocka_unit_test(one_value_is_verified_at_a_time),
      cmocka_unit_test(a_share_of_the_hits_is_drawn),
      cmocka_unit_test(a_compute_of_the_call_s_own_is_not_run_behind_it),
      cmocka_unit_test(a_hit_of_an_event_loop_is_verified_by_the_bound_compute_alone),
      cmocka_unit_test(nothing_is_verified_without_a_free_place_to_compute),
      cmocka_unit_test(nothing_is_verified_while_the_fleet_computes_as_much_as_it_may),
      cmocka_unit_test(nothing_is_verified_while_a_failure_of_the_key_is_remembered),
      cmocka_unit_test(nothing_is_verified_while_somebody_rebuilds_the_value),
      cmocka_unit_test(nothing_is_verified_while_the_store_is_away),
      cmocka_unit_test(nothing_is_verified_while_an_operator_s_freeze_is_in_force),
      cmocka_unit_test(a_value_that_was_replaced_or_ended_during_the_compute_gets_no_verdict),
      cmocka_unit_test(a_compute_that_fails_tells_why_and_leaves_no_failure_and_the_origin_rests),
      cmocka_unit_test(a_compute_that_takes_too_long_gets_no_verdict),
      cmocka_unit_test(close_waits_for_the_one_that_runs),
  };
  return cmocka_run_group_tests_name("verify", tests, set_up, tear_down);
}
