/* test_loop_swarm.c: random crowds of calls in event loops: threads with a loop each, over two
 * corrals on one store, beside blocking callers; computes that end at once, later, on another
 * thread, or never; cancelled calls, cancel tokens, invalidations, and loops closed during calls.
 *
 * CORRAL_SEED=n repeats the random choices (the interleaving of threads still varies);
 * CORRAL_SECONDS=n sets the duration of each swarm. */
#include "support/loop_kit.h"

enum {
  CORRALS = 2,
  KEYS = 6,
  /* the first QUIET keys are never invalidated or passed, so each has one compute at a time */
  QUIET = 3,
  DESKS = 4,
  ENDERS = 2,
  BLOCKERS = 2,
  TICKETS = 64,
  PENDING = 60,
  SLACK_MS = 20000
};

typedef struct world world;

typedef struct desk {
  world *world;
  corral *c;
  corral_loop *loop;
  int which; /* index of its corral */
  uint64_t dice;
  pthread_t thread;
  int begins; /* inside a function that begins a call */
  struct asked *pending;
  int count;
  atomic_int cancel_token; /* cancel tokens before this index may be cancelled */
  corral_cancel_token *cancel_tokens[TICKETS];
} desk;

/* A call; freed by `gone`, so that the sanitizer detects any later use. */
typedef struct asked {
  struct asked *next, **link;
  desk *desk;
  corral_async_call *call;
  int key, is_work, only_looks, may_compute_alone, has_cancel_token;
  int dones, starts, is_cancelled;
  int64_t begun, wait_ms;
  long long own_floor, floor;
} asked;

/* An open compute. */
typedef struct compute {
  struct compute *next;
  desk *desk; /* NULL: the loop was closed */
  corral_fill *fill;
  int which, key, is_counted, elsewhere;
  long long version;
  int64_t at; /* time of its end */
  int how;
} compute;

struct world {
  const char *title;
  uint64_t seed;
  int near, bound;
  corral *c[CORRALS];
  desk desks[DESKS];
  atomic_llong version[KEYS], floor_of[CORRALS][KEYS], floor[KEYS];
  pthread_mutex_t changing[KEYS]; /* serializes changes of a key */
  atomic_int open[CORRALS][KEYS];
  pthread_mutex_t mutex;
  compute *computes;
  atomic_int over, ended; /* no new calls begin; no compute is open */
  atomic_int wrongs;
  char wrong[200];
  atomic_int begun, dones, gones, starts, alone, cancelled, closes, blocking, changes, orphans;
};

/* Records the text of the first error only. */
__attribute__((format(printf, 2, 3))) static void wrong(world *w, const char *format, ...) {
  va_list list;
  if (atomic_fetch_add(&w->wrongs, 1) > 0) return;
  va_start(list, format);
  vsnprintf(w->wrong, sizeof w->wrong, format, list);
  va_end(list);
}

static uint64_t roll(uint64_t *dice) {
  uint64_t z = (*dice += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

static int64_t between(uint64_t *dice, int64_t least, int64_t most) {
  return least + (int64_t)(roll(dice) % (uint64_t)(most - least + 1));
}
static int chance(uint64_t *dice, int percent) { return between(dice, 1, 100) <= percent; }

static size_t key_name(char name[8], int key) { return (size_t)snprintf(name, 8, "key%d", key); }

static void raise_to(atomic_llong *floor, long long version) {
  long long was = atomic_load(floor);
  while (was < version && !atomic_compare_exchange_weak(floor, &was, version)) {
  }
}

/* ---- computes ------------------------------------------------------------------------------ */

enum { FILLS, FAILS, ABANDONS, PASSES };

static void count_compute(world *w, int which, int key) {
  if (atomic_fetch_add(&w->open[which][key], 1) > 0 && key < QUIET)
    wrong(w, "two computes of key %d in one corral at a time", key);
}

/* Under the mutex, before the compute ends. */
static void uncount(world *w, compute *one) {
  if (one->is_counted) atomic_fetch_sub(&w->open[one->which][one->key], 1);
  one->is_counted = 0;
}

static void fill_version(corral_fill *fill, long long version) {
  char text[24];
  snprintf(text, sizeof text, "%lld", version);
  corral_fill_bytes(fill, text, strlen(text));
}

static void end_compute(world *w, compute *one) {
  pthread_mutex_lock(&w->mutex);
  uncount(w, one);
  pthread_mutex_unlock(&w->mutex);
  if (one->how == PASSES) corral_fill_pass(one->fill);
  if (one->how == ABANDONS) {
    corral_fill_abandon(one->fill);
  } else if (one->how == FAILS) {
    corral_fill_fail(one->fill, 7, "no luck");
    corral_fill_done(one->fill);
  } else {
    fill_version(one->fill, one->version);
    corral_fill_done(one->fill);
  }
  free(one);
}

/* Takes a compute whose time has come: of this desk; NULL: one that ends on another thread. */
static compute *take_due(world *w, const desk *d, int64_t now) {
  pthread_mutex_lock(&w->mutex);
  compute **link = &w->computes;
  while (*link != NULL && ((*link)->at > now || (*link)->elsewhere != (d == NULL) ||
                           (d != NULL && (*link)->desk != d)))
    link = &(*link)->next;
  compute *one = *link;
  if (one != NULL) *link = one->next;
  pthread_mutex_unlock(&w->mutex);
  return one;
}

static void on_start(void *arg, corral_fill *fill, const void *key, size_t key_len) {
  asked *a = arg;
  desk *d = a->desk;
  world *w = d->world;
  uint64_t *dice = &d->dice;
  compute *one = calloc(1, sizeof *one);
  int dice_at = (int)between(dice, 1, 100), is_alone = corral_fill_is_alone(fill);
  (void)key;
  (void)key_len;
  atomic_fetch_add(&w->starts, 1);
  atomic_fetch_add(&w->alone, is_alone);
  if (!pthread_equal(pthread_self(), d->thread) || d->begins)
    wrong(w, "`start` wasn't called from dispatch");
  if (a->is_cancelled) wrong(w, "`start` of a cancelled call");
  *one = (compute){.desk = d,
                   .fill = fill,
                   .which = d->which,
                   .key = a->key,
                   .is_counted = !is_alone,
                   .version = atomic_load(&w->version[a->key])};
  if (!is_alone) count_compute(w, d->which, a->key);
  a->starts++;
  one->how = chance(dice, 8)                      ? FAILS
             : chance(dice, 10)                   ? ABANDONS
             : a->key >= QUIET && chance(dice, 6) ? PASSES
                                                  : FILLS;
  if (dice_at <= 35) {
    end_compute(w, one);
    return;
  }
  one->elsewhere = dice_at > 65 && dice_at <= 90;
  one->at = dice_at > 96 ? INT64_MAX : crl_env_now_ms() + between(dice, 0, dice_at > 90 ? 200 : 20);
  pthread_mutex_lock(&w->mutex);
  one->next = w->computes;
  w->computes = one;
  pthread_mutex_unlock(&w->mutex);
}

static int compute_now(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  world *w = arg;
  int number = ((const char *)key)[key_len - 1] - '0';
  fill_version(fill, atomic_load(&w->version[number]));
  return CORRAL_OK;
}

/* ---- calls --------------------------------------------------------------------------------- */

static void judge(const asked *a, int status, const corral_value *value) {
  world *w = a->desk->world;
  switch (status) {
    case CORRAL_EDEADLINE:
    case CORRAL_EFAILED: break;
    case CORRAL_ECANCELLED:
      if (!a->has_cancel_token) wrong(w, "cancelled without a cancel token");
      break;
    case CORRAL_EMISS:
      if (!a->only_looks) wrong(w, "a miss of a call that computes");
      break;
    case CORRAL_OK: {
      char text[24] = "-1";
      if (value != NULL)
        snprintf(text, sizeof text, "%.*s", (int)corral_value_size(value),
                 (const char *)corral_value_data(value));
      long long version = strtoll(text, NULL, 10);
      if (value == NULL)
        wrong(w, "CORRAL_OK without a value");
      else if (version < a->own_floor)
        wrong(w, "key %d: version %lld after %lld was invalidated (%s)", a->key, version,
              a->own_floor, corral_how_name(corral_value_how(value)));
      else if (a->only_looks && !w->near && version < a->floor)
        wrong(w, "key %d: the store had %lld after %lld was invalidated", a->key, version,
              a->floor);
      break;
    }
    default: wrong(w, "status %d: %s", status, corral_status_text(status));
  }
}

static void act(desk *d);

static void on_done(void *arg, int status, corral_value *value, const corral_error *error) {
  asked *a = arg;
  desk *d = a->desk;
  world *w = d->world;
  int64_t took = crl_env_now_ms() - a->begun;
  atomic_fetch_add(&w->dones, 1);
  if (!pthread_equal(pthread_self(), d->thread) || d->begins)
    wrong(w, "`done` wasn't called from dispatch");
  if (a->is_cancelled) wrong(w, "`done` of a cancelled call");
  if (a->dones++ > 0) wrong(w, "`done` was called twice");
  if (error->status != status) wrong(w, "status %d and an error of %d", status, error->status);
  if (took > a->wait_ms + SLACK_MS && !(a->may_compute_alone && a->starts > 0))
    wrong(w, "%d ms to wait, and it took %d", (int)a->wait_ms, (int)took);
  if (!a->is_work) judge(a, status, value);
  corral_value_unref(value);
  if (chance(&d->dice, 20)) act(d);
}

static void on_gone(void *arg) {
  asked *a = arg;
  world *w = a->desk->world;
  atomic_fetch_add(&w->gones, 1);
  if (!pthread_equal(pthread_self(), a->desk->thread)) wrong(w, "`gone` on another thread");
  if (a->dones == 0 && !a->is_cancelled && a->desk->loop != NULL) wrong(w, "`gone` without `done`");
  *a->link = a->next;
  if (a->next != NULL) a->next->link = a->link;
  a->desk->count--;
  free(a);
}

static corral_policy some_policy(uint64_t *dice) {
  return (corral_policy){.size = sizeof(corral_policy),
                         .ttl_ms = between(dice, 5, 60),
                         .wait_ms = between(dice, 1, 150),
                         .swr_ms = chance(dice, 30) ? 50 : 0,
                         .sie_ms = chance(dice, 30) ? 200 : 0,
                         .soft_ms = chance(dice, 30) ? 5 : 0,
                         .early_pct = chance(dice, 30) ? 30 : 0,
                         .at_deadline =
                             chance(dice, 30) ? CORRAL_DEADLINE_COMPUTE : CORRAL_DEADLINE_ERROR,
                         .stop_alone = chance(dice, 50) ? 1 : CORRAL_OFF,
                         .retry_ms = 5,
                         .retry_max_ms = 20,
                         .pass_ttl_ms = 20,
                         .near_ms = 20,
                         .lease_ms = 60000,
                         .lease_min_ms = 60000};
}

static int change(world *w, int which, int key, uint64_t dice) {
  char name[8], text[24];
  size_t len = key_name(name, key);
  int status = CORRAL_OK;
  pthread_mutex_lock(&w->changing[key]);
  atomic_fetch_add(&w->changes, 1);
  if (dice % 3 == 0) {
    long long version = atomic_fetch_add(&w->version[key], 1) + 1;
    status = corral_invalidate(w->c[which], name, len, NULL);
    if (status == CORRAL_OK) {
      raise_to(&w->floor_of[which][key], version);
      raise_to(&w->floor[key], version);
    }
  } else if (dice % 3 == 1) {
    status = corral_expire(w->c[which], name, len, NULL);
  } else {
    snprintf(text, sizeof text, "%lld", (long long)atomic_load(&w->version[key]));
    status = corral_set(w->c[which], name, len, NULL, text, strlen(text));
  }
  pthread_mutex_unlock(&w->changing[key]);
  return status;
}

static int work(corral *c, void *arg, corral_error *error) {
  asked *a = arg;
  (void)c;
  (void)error;
  return change(a->desk->world, a->desk->which, a->key, (uint64_t)a->wait_ms);
}

static void begin_call(desk *d) {
  world *w = d->world;
  uint64_t *dice = &d->dice;
  char name[8];
  asked *a = calloc(1, sizeof *a);
  corral_policy policy = some_policy(dice);
  int key = (int)between(dice, 0, KEYS - 1), cancel_token = atomic_load(&d->cancel_token),
      has_start = !chance(dice, w->bound ? 40 : 10);
  size_t len = key_name(name, key);
  *a = (asked){.next = d->pending,
               .link = &d->pending,
               .desk = d,
               .key = key,
               .begun = crl_env_now_ms(),
               .wait_ms = policy.wait_ms,
               .own_floor = atomic_load(&w->floor_of[d->which][key]),
               .floor = atomic_load(&w->floor[key]),
               .only_looks = !has_start && !w->bound,
               .may_compute_alone = policy.at_deadline == CORRAL_DEADLINE_COMPUTE};
  a->is_work = key >= QUIET && chance(dice, 6);
  a->has_cancel_token = !a->is_work && cancel_token < TICKETS && chance(dice, 30);
  corral_cancel_token *token = a->has_cancel_token ? d->cancel_tokens[cancel_token] : NULL;
  if (a->next != NULL) a->next->link = &a->next;
  d->pending = a;
  d->count++;
  atomic_fetch_add(&w->begun, 1);
  d->begins++;
  corral_async *async = CORRAL_ASYNC(.done = on_done, .start = has_start ? on_start : NULL,
                                     .gone = on_gone, .arg = a);
  int status = a->is_work ? corral_loop_run(d->loop, work, async, &a->call, NULL)
                          : corral_loop_get(d->loop, name, len,
                                            CORRAL_CALL(.policy = &policy, .cancel_token = token),
                                            async, &a->call);
  d->begins--;
  if (status != CORRAL_OK) wrong(w, "a call began with %s", corral_status_text(status));
}

static void cancel_one(desk *d) {
  asked *a = d->pending;
  for (int64_t skip = between(&d->dice, 0, d->count); a != NULL && skip > 0; skip--) a = a->next;
  if (a == NULL || a->dones > 0 || a->is_cancelled) return;
  a->is_cancelled = 1;
  atomic_fetch_add(&d->world->cancelled, 1);
  corral_async_call_cancel(a->call);
}

static void act(desk *d) {
  if (d->loop == NULL || atomic_load(&d->world->over)) return;
  if (d->count < PENDING) begin_call(d);
  if (chance(&d->dice, 8)) cancel_one(d);
  if (chance(&d->dice, 3) && atomic_load(&d->cancel_token) < TICKETS)
    atomic_fetch_add(&d->cancel_token, 1);
}

/* ---- threads ------------------------------------------------------------------------------- */

/* Hands the open computes of a closed loop to the enders, to end now or soon. */
static void let_go_of_computes(desk *d) {
  world *w = d->world;
  pthread_mutex_lock(&w->mutex);
  for (compute *one = w->computes; one != NULL; one = one->next) {
    if (one->desk != d) continue;
    uncount(w, one);
    one->desk = NULL;
    one->elsewhere = 1;
    one->at = crl_env_now_ms() + between(&d->dice, -1, 3);
    atomic_fetch_add(&w->orphans, 1);
  }
  pthread_mutex_unlock(&w->mutex);
}

static void close_desk(desk *d) {
  corral_loop *loop = d->loop;
  let_go_of_computes(d);
  d->loop = NULL;
  corral_loop_close(loop);
  if (d->count != 0) wrong(d->world, "%d calls weren't gone when their loop was", d->count);
  atomic_fetch_add(&d->world->closes, 1);
}

static void open_desk(desk *d) {
  corral_error error;
  if (corral_loop_open(d->c, &d->loop, &error) != CORRAL_OK)
    wrong(d->world, "no loop: %s", error.text);
}

static void turn_desk(desk *d, int64_t now) {
  struct pollfd fd = {.fd = corral_loop_fd(d->loop), .events = POLLIN};
  for (compute *one; (one = take_due(d->world, d, now)) != NULL;) end_compute(d->world, one);
  if (poll(&fd, 1, 1) > 0) corral_loop_dispatch(d->loop);
}

static void *run_desk(void *arg) {
  desk *d = arg;
  world *w = d->world;
  d->thread = pthread_self();
  open_desk(d);
  while (!atomic_load(&w->over)) {
    for (int64_t n = between(&d->dice, 0, 5); n > 0; n--) act(d);
    turn_desk(d, crl_env_now_ms());
    if (!chance(&d->dice, 1)) continue;
    close_desk(d);
    open_desk(d);
  }
  int64_t until = crl_env_now_ms() + LOOP_PATIENCE_MS;
  while (d->count > 0 && crl_env_now_ms() < until) turn_desk(d, INT64_MAX);
  if (d->count > 0) wrong(w, "%d calls didn't end", d->count);
  close_desk(d);
  return NULL;
}

static void *run_ender(void *arg) {
  world *w = arg;
  uint64_t dice = w->seed ^ (uintptr_t)&dice;
  while (!atomic_load(&w->ended)) {
    compute *one = take_due(w, NULL, crl_env_now_ms());
    desk *d = &w->desks[between(&dice, 0, DESKS - 1)];
    int cancel_tokens = atomic_load(&d->cancel_token);
    if (cancel_tokens > 0 && chance(&dice, 5))
      corral_cancel_token_cancel(d->cancel_tokens[cancel_tokens - 1]);
    if (one != NULL)
      end_compute(w, one);
    else
      crl_env_pause_us(300);
  }
  return NULL;
}

typedef struct blocker {
  world *world;
  int which, key;
  uint64_t dice;
} blocker;

static int compute_blocking(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  blocker *b = arg;
  world *w = b->world;
  int is_counted = !corral_fill_is_alone(fill);
  (void)key;
  (void)key_len;
  if (is_counted) count_compute(w, b->which, b->key);
  long long version = atomic_load(&w->version[b->key]);
  crl_env_pause_us((int)between(&b->dice, 0, 5000));
  if (is_counted) atomic_fetch_sub(&w->open[b->which][b->key], 1);
  if (chance(&b->dice, 5))
    corral_fill_fail(fill, 3, "no luck here");
  else
    fill_version(fill, version);
  return CORRAL_OK;
}

static void *run_blocker(void *arg) {
  blocker *b = arg;
  world *w = b->world;
  desk any = {.world = w, .which = b->which};
  while (!atomic_load(&w->over)) {
    char name[8];
    corral_value *value = NULL;
    corral_policy policy = some_policy(&b->dice);
    asked a = {.desk = &any,
               .key = b->key = (int)between(&b->dice, 0, KEYS - 1),
               .own_floor = atomic_load(&w->floor_of[b->which][b->key])};
    int64_t begun = crl_env_now_ms();
    int status = corral_get_or_compute(w->c[b->which], name, key_name(name, b->key),
                                       CORRAL_CALL(.policy = &policy), compute_blocking, b, &value);
    if (crl_env_now_ms() - begun > policy.wait_ms + SLACK_MS)
      wrong(w, "a blocking call took %d ms", (int)(crl_env_now_ms() - begun));
    judge(&a, status, value);
    corral_value_unref(value);
    atomic_fetch_add(&w->blocking, 1);
  }
  return NULL;
}

/* ---- the swarm ----------------------------------------------------------------------------- */

static uint64_t number_of(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

static void open_world(world *w, corral_options options) {
  static int number;
  char uri[64];
  snprintf(uri, sizeof uri, "memory:loop-swarm%d", number++);
  options.store = uri;
  options.op_ms = 20000;
  if (w->bound) {
    options.compute = compute_now;
    options.compute_arg = w;
  }
  w->near = options.near_bytes > 0;
  w->seed = number_of("CORRAL_SEED", (uint64_t)crl_env_now_us());
  pthread_mutex_init(&w->mutex, NULL);
  for (int i = 0; i < KEYS; i++) pthread_mutex_init(&w->changing[i], NULL);
  for (int i = 0; i < CORRALS; i++) w->c[i] = loop_corral(&options);
  for (int i = 0; i < DESKS; i++) {
    desk *d = &w->desks[i];
    *d = (desk){.world = w,
                .which = i % CORRALS,
                .c = w->c[i % CORRALS],
                .dice = w->seed + (uint64_t)i * 1000003};
    for (int t = 0; t < TICKETS; t++) d->cancel_tokens[t] = corral_cancel_token_new();
  }
}

static void close_world(world *w) {
  for (int i = 0; i < CORRALS; i++) corral_close(w->c[i]);
  for (int i = 0; i < DESKS; i++)
    for (int t = 0; t < TICKETS; t++) corral_cancel_token_free(w->desks[i].cancel_tokens[t]);
  for (int i = 0; i < KEYS; i++) pthread_mutex_destroy(&w->changing[i]);
  pthread_mutex_destroy(&w->mutex);
}

static void tell(const world *w) {
  print_message("[          ] %s: seed %llu: %d calls, %d done, %d cancelled, %d computes (%d "
                "alone), %d loops closed, %d computes orphaned, %d changes, "
                "%d blocking calls\n",
                w->title, (unsigned long long)w->seed, w->begun, w->dones, w->cancelled, w->starts,
                w->alone, w->closes, w->orphans, w->changes, w->blocking);
}

static int has_seen_enough(const world *w) { return w->dones > 100 && w->starts > 50; }

/* `w` is zeroed except for `title` and `bound`. */
static void swarm(world *w, corral_options options) {
  pthread_t desks[DESKS], enders[ENDERS], blockers[BLOCKERS];
  blocker b[BLOCKERS];
  open_world(w, options);
  int64_t until = crl_env_now_ms() + (int64_t)number_of("CORRAL_SECONDS", 0) * 1000;
  if (getenv("CORRAL_SECONDS") == NULL) until += 1000;
  for (int i = 0; i < BLOCKERS; i++)
    b[i] = (blocker){.world = w, .which = i % CORRALS, .dice = w->seed - (uint64_t)i - 1};
  for (int i = 0; i < ENDERS; i++) pthread_create(&enders[i], NULL, run_ender, w);
  for (int i = 0; i < DESKS; i++) pthread_create(&desks[i], NULL, run_desk, &w->desks[i]);
  for (int i = 0; i < BLOCKERS; i++) pthread_create(&blockers[i], NULL, run_blocker, &b[i]);
  int64_t patience = until + LOOP_PATIENCE_MS;
  while ((crl_env_now_ms() < until || !has_seen_enough(w)) && crl_env_now_ms() < patience &&
         !atomic_load(&w->wrongs))
    crl_env_pause_us(2000);
  atomic_store(&w->over, 1);
  for (int i = 0; i < DESKS; i++) pthread_join(desks[i], NULL);
  for (int i = 0; i < BLOCKERS; i++) pthread_join(blockers[i], NULL);
  atomic_store(&w->ended, 1);
  for (int i = 0; i < ENDERS; i++) pthread_join(enders[i], NULL);
  /* fills outlive their loops */
  for (compute *one; (one = take_due(w, NULL, INT64_MAX)) != NULL;) end_compute(w, one);
  tell(w);
  close_world(w);
  if (w->wrongs > 0)
    fail_msg("%s: CORRAL_SEED=%llu: %s (and %d more)", w->title, (unsigned long long)w->seed,
             w->wrong, w->wrongs - 1);
  if (w->begun != w->gones)
    fail_msg("%s: CORRAL_SEED=%llu: %d calls, %d gone", w->title, (unsigned long long)w->seed,
             w->begun, w->gones);
  assert_true(has_seen_enough(w));
}

static void every_call_is_answered_once_or_cancelled_and_then_gone(void **state) {
  world w = {.title = "plain"};
  (void)state;
  swarm(&w, *CORRAL_OPTIONS(.workers = 3));
}

static void copies_of_the_process_are_never_older_than_what_was_invalidated(void **state) {
  world w = {.title = "near tier"};
  (void)state;
  swarm(&w, *CORRAL_OPTIONS(.near_bytes = 1 << 20));
}

static void at_max_computes_and_with_a_bound_compute_the_same_holds(void **state) {
  world w = {.title = "bound, max_computes", .bound = 1};
  (void)state;
  swarm(&w, *CORRAL_OPTIONS(.max_computes = 2));
}

static void without_a_watch_the_same_holds(void **state) {
  world w = {.title = "polling"};
  (void)state;
  swarm(&w, *CORRAL_OPTIONS(.watch = CORRAL_OFF, .generation = 1));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_call_is_answered_once_or_cancelled_and_then_gone),
      cmocka_unit_test(copies_of_the_process_are_never_older_than_what_was_invalidated),
      cmocka_unit_test(at_max_computes_and_with_a_bound_compute_the_same_holds),
      cmocka_unit_test(without_a_watch_the_same_holds),
  };
  return cmocka_run_group_tests_name("loop_swarm", tests, NULL, NULL);
}
