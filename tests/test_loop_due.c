/* test_loop_due.c: event loops: calls that are answered as they begin: what they cost, counted, and
 * when their callbacks run. */
#include "support/answers_kit.h"
#include "support/allocations_kit.h"
#include "support/loop_kit.h"
#include "support/uncounted.h"

#include <sys/epoll.h>
#include <unistd.h>

#include "driver/async.h"
#include "run/run.h"
#include "store/pool.h"

/* A dispatch tells what was due, and so many that begin meanwhile. */
enum { BURST = 64 };

/* Of the thread that calls: the store may have others. */
static _Thread_local struct counts { long allocations, writes, reads, flights, looks, others; } now;

/* ---- what is counted ----------------------------------------------------------------------- */

static void allocated(void) { now.allocations++; }

ssize_t __real_write(int fd, const void *data, size_t size);
ssize_t __wrap_write(int fd, const void *data, size_t size);
ssize_t __wrap_write(int fd, const void *data, size_t size) {
  now.writes++;
  return __real_write(fd, data, size);
}

ssize_t __real_read(int fd, void *data, size_t size);
ssize_t __wrap_read(int fd, void *data, size_t size);
ssize_t __wrap_read(int fd, void *data, size_t size) {
  now.reads++;
  return __real_read(fd, data, size);
}

__typeof__(crl_scheduler_fly) __real_crl_scheduler_fly, __wrap_crl_scheduler_fly;
int __wrap_crl_scheduler_fly(crl_scheduler *scheduler, crl_run *r, corral_cancel_token *token) {
  now.flights++;
  return __real_crl_scheduler_fly(scheduler, r, token);
}

/* A hit's look, and the one of all other calls. */
__typeof__(crl_pool_look) __real_crl_pool_look, __wrap_crl_pool_look;
void __wrap_crl_pool_look(crl_pool *pool, corral_op *op, int64_t began, int64_t deadline,
                          corral_error *why) {
  now.looks++;
  __real_crl_pool_look(pool, op, began, deadline, why);
}

__typeof__(crl_found_look) __real_crl_found_look, __wrap_crl_found_look;
void __wrap_crl_found_look(crl_found *found, crl_request *e, int64_t deadline, crl_told *told) {
  now.others++;
  __real_crl_found_look(found, e, deadline, told);
}

/* The next throw says that it is time for a rebuild, later ones say that it isn't. */
static enum { REAL, EARLY, LATE } dice;
static _Thread_local int is_asker; /* true of the thread that calls, for whom `dice` is */

uint64_t __real_crl_env_dice(void);
uint64_t __wrap_crl_env_dice(void);
uint64_t __wrap_crl_env_dice(void) {
  if (dice == REAL) return __real_crl_env_dice();
  if (!is_asker) return UINT64_MAX;
  uint64_t thrown = dice == EARLY ? 0 : UINT64_MAX;
  dice = LATE;
  return thrown;
}

static void counted(const struct counts *expected) {
  if (memcmp(&now, expected, sizeof now) != 0)
    fail_msg("%ld allocations, %ld write, %ld read, %ld flights, %ld + %ld looks", now.allocations,
             now.writes, now.reads, now.flights, now.looks, now.others);
}

/* ---- chains -------------------------------------------------------------------------------- */

/* Calls, each begun by the `done` of the last one. */
typedef struct chain {
  request r;
  corral_loop *loop;
  const corral_call *call;
  int left;
} chain;

static void next_of(request *r) {
  chain *ch = (chain *)(void *)r;
  assert_int_equal(r->status, CORRAL_OK);
  assert_int_equal(r->how, CORRAL_FRESH);
  if (--ch->left == 0) return;
  int told = r->dones;
  ask_by(ch->loop, "k", ch->call, r);
  assert_int_equal(r->dones, told);
}

static void begin_chain(chain *ch, corral_loop *loop, const corral_call *call, int length) {
  *ch = (chain){.r.on_done = next_of, .loop = loop, .call = call, .left = length};
  now = (struct counts){0};
  ask_by(loop, "k", call, &ch->r);
}

static int is_readable(const corral_loop *loop) {
  struct pollfd fd = {.fd = corral_loop_fd(loop), .events = POLLIN};
  return poll(&fd, 1, 0) == 1;
}

/* Three full dispatches, and a fourth that tells five. */
static void dispatch_chain(corral_loop *loop) {
  for (int i = 0; i < 4; i++) {
    assert_true(is_readable(loop));
    assert_int_equal(corral_loop_dispatch(loop), i < 3 ? 1 + BURST : 5);
  }
  assert_false(is_readable(loop));
  assert_int_equal(corral_loop_dispatch(loop), 0);
}

enum { CHAIN = 3 * (1 + BURST) + 5 };

static void chain_of_hits(const char *uri) {
  say v = {.text = "v"};
  chain ch;
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  corral_loop *loop = loop_of(c);
  GETS(c, "k", &v, "v", CORRAL_COMPUTED);
  GETS(c, "k", &v, "v", CORRAL_FRESH);
  begin_chain(&ch, loop, NULL, CHAIN);
  dispatch_chain(loop);
  counted(&(struct counts){.allocations = 2 * CHAIN, .writes = 4, .reads = 4, .looks = CHAIN});
  corral_loop_close(loop);
  assert_int_equal(ch.r.gones, CHAIN);
  corral_close(c);
}

static void a_chain_of_hits_makes_two_system_calls_in_65(void **state) {
  (void)state;
  on_each(chain_of_hits);
}

static void chain_of_variants(const char *uri) {
  say v = {.text = "v"};
  chain ch;
  corral_value *value;
  const corral_call *call = CORRAL_CALL(.variant = "v", .variant_len = 1);
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  corral_loop *loop = loop_of(c);
  assert_int_equal(corral_get_or_compute(c, "k", 1, call, answer, &v, &value), CORRAL_OK);
  corral_value_unref(value);
  begin_chain(&ch, loop, call, CHAIN);
  dispatch_chain(loop);
  now.allocations = 0;
  counted(&(struct counts){.writes = 4, .reads = 4, .others = CHAIN});
  corral_loop_close(loop);
  assert_int_equal(ch.r.gones, CHAIN);
  corral_close(c);
}

static void so_does_one_of_hits_that_need_more_than_their_record(void **state) {
  (void)state;
  on_each(chain_of_variants);
}

/* So that its cost matters. */
static int slowly(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  crl_env_pause_us(30000);
  return answer(fill, key, key_len, arg);
}

/* A corral with a copy of "k", made by `v`. No watch could end it. */
static corral *with_copy(const char *uri, say *v) {
  corral_value *value = NULL;
  corral_policy policy = usual();
  policy.near_ms = policy.negative_ttl_ms = FAR;
  corral *c = opened(CORRAL_OPTIONS(.store = uri, .near_bytes = 1 << 20, .watch = CORRAL_OFF,
                                    .op_ms = 10000, .policy = &policy));
  if (corral_get_or_compute(c, "k", 1, NULL, slowly, v, &value) == CORRAL_OK)
    corral_value_unref(value);
  value = NULL;
  assert_int_not_equal(corral_peek(c, "k", 1, NULL, &value), CORRAL_EMISS);
  corral_value_unref(value);
  return c;
}

static void chain_of_near_hits(const char *uri) {
  say v = {.text = "v"};
  chain ch;
  corral *c = with_copy(uri, &v);
  corral_loop *loop = loop_of(c);
  begin_chain(&ch, loop, NULL, CHAIN);
  dispatch_chain(loop);
  counted(&(struct counts){.allocations = 2 * CHAIN, .writes = 4, .reads = 4});
  corral_loop_close(loop);
  corral_close(c);
}

static void so_does_one_of_hits_in_the_near_tier_and_asks_nobody(void **state) {
  (void)state;
  on_each(chain_of_near_hits);
}

static void a_watcher_by_edge_sees_each_part_of_a_chain(void **state) {
  (void)state;
  chain ch;
  loop_desk d = desk_open(CORRAL_OPTIONS(.store = store));
  int epoll = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event = {.events = EPOLLIN | EPOLLET};
  assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, corral_loop_fd(d.loop), &event), 0);
  assert_int_equal(corral_set(d.c, "k", 1, NULL, "v", 1), CORRAL_OK);
  begin_chain(&ch, d.loop, NULL, CHAIN);
  while (ch.left > 0) {
    assert_int_equal(epoll_wait(epoll, &event, 1, LOOP_PATIENCE_MS), 1);
    assert_true(corral_loop_dispatch(d.loop) > 0);
  }
  close(epoll);
  closed(&d);
}

/* ---- what isn't a value -------------------------------------------------------------------- */

static void nothing_near(const char *uri) {
  say none = {.text = NULL};
  corral *c = with_copy(uri, &none);
  corral_loop *loop = loop_of(c);
  request r = {0};
  now = (struct counts){0};
  ask(loop, "k", NULL, &r);
  assert_int_equal(r.dones, 0);
  assert_int_equal(corral_loop_dispatch(loop), 1);
  now.allocations = 0;
  counted(&(struct counts){.writes = 1, .reads = 1});
  assert_int_equal(r.status, CORRAL_ENOTFOUND);
  assert_string_equal(r.text, corral_status_text(CORRAL_ENOTFOUND));
  assert_int_equal(r.gones, 1);
  corral_loop_close(loop);
  corral_close(c);
}

static void what_is_known_not_to_be_there_is_told_so(void **state) {
  (void)state;
  on_each(nothing_near);
}

static void miss_once(const char *uri) {
  request r = {.makes = "made"};
  loop_desk d = desk_open(CORRAL_OPTIONS(.store = uri));
  now = (struct counts){0};
  ask(d.loop, "none", NULL, &r);
  RUN_UNTIL(d.loop, r.gones, 1);
  assert_string_equal(r.text, "made");
  assert_int_equal(now.looks, 1);
  assert_int_equal(now.others, 0);
  assert_int_equal(now.flights, 1);
  closed(&d);
}

static void a_miss_goes_on_by_the_look_that_found_nothing(void **state) {
  (void)state;
  on_each(miss_once);
}

static void peeks_at_hits(const char *uri) {
  say v = {.text = "v"};
  corral_value *value = NULL;
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  corral_loop *loop = loop_of(c);
  GETS(c, "k", &v, "v", CORRAL_COMPUTED);
  GETS(c, "k", &v, "v", CORRAL_FRESH);
  now = (struct counts){0};
  for (int i = 0; i < CHAIN; i++) {
    assert_int_equal(corral_peek(c, "k", 1, NULL, &value), CORRAL_OK);
    assert_memory_equal(corral_value_data(value), "v", 1);
    assert_int_equal(corral_value_how(value), CORRAL_FRESH);
    corral_value_unref(value);
  }
  counted(&(struct counts){.allocations = CHAIN, .looks = CHAIN});
  assert_int_equal(corral_counter(c, CORRAL_EVENT_HIT), CHAIN + 1);
  assert_int_equal(corral_loop_dispatch(loop), 0);
  corral_loop_close(loop);
  corral_close(c);
}

static void a_peek_at_a_hit_is_one_look_and_no_dispatch(void **state) {
  (void)state;
  on_each(peeks_at_hits);
}

static void peeks_at_none(const char *uri) {
  say v = {.text = "v"};
  corral_value *value = NULL;
  corral_policy grace = usual();
  grace.swr_ms = FAR;
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  assert_int_equal(corral_peek(c, "k", 1, NULL, &value), CORRAL_EMISS);
  assert_int_equal(v.ran, 0);
  asks_by(c, "k", &grace, &v);
  assert_int_equal(corral_peek(c, "k", 1, CORRAL_CALL(.policy = &grace), &value), CORRAL_OK);
  corral_value_unref(value);
  assert_int_equal(corral_expire(c, "k", 1, NULL), CORRAL_OK);
  assert_int_equal(corral_peek(c, "k", 1, CORRAL_CALL(.policy = &grace), &value), CORRAL_EMISS);
  assert_int_equal(v.ran, 1);
  corral_close(c);
}

static void a_peek_leaves_what_is_not_there_or_stale_to_a_call(void **state) {
  (void)state;
  on_each(peeks_at_none);
}

/* The value's compute took so long that each look may begin its rebuild: the peek throws no dice,
 * and leaves it to the one that the call throws. */
static void peeks_by_chance(const char *uri) {
  say v = {.text = "old"};
  request r = {.makes = "new"};
  corral_value *value = NULL;
  corral_policy policy = usual();
  policy.early_beta = 10000;
  corral *c = opened(CORRAL_OPTIONS(.store = uri, .policy = &policy, .op_ms = 10000));
  corral_loop *loop = loop_of(c);
  assert_int_equal(corral_get_or_compute(c, "k", 1, NULL, slowly, &v, &value), CORRAL_OK);
  corral_value_unref(value);
  dice = EARLY;
  assert_int_equal(corral_peek(c, "k", 1, NULL, &value), CORRAL_EMISS);
  assert_int_equal(dice, EARLY);
  ask(loop, "k", &policy, &r);
  assert_int_equal(dice, LATE);
  RUN_UNTIL(loop, r.gones, 1);
  assert_int_equal(r.starts, 1);
  dice = REAL;
  corral_loop_close(loop);
  corral_close(c);
}

static void a_peek_does_not_use_up_the_chance_of_an_early_rebuild(void **state) {
  (void)state;
  on_each(peeks_by_chance);
}

/* The look into the near tier says that it is time, and the one at the store, which would not, goes
 * by that. */
static void early_near(const char *uri) {
  say v = {.text = "old"};
  request r = {.makes = "new"};
  corral *c = with_copy(uri, &v);
  corral_loop *loop = loop_of(c);
  dice = EARLY;
  ask(loop, "k", CORRAL_POLICY(.early_beta = 10000), &r);
  assert_int_equal(dice, LATE);
  RUN_UNTIL(loop, r.gones, 1);
  assert_string_equal(r.text, "old");
  assert_int_equal(r.how, CORRAL_FRESH);
  assert_int_equal(r.starts, 1);
  dice = REAL;
  corral_loop_close(loop);
  corral_close(c);
}

static void a_copy_that_is_to_be_rebuilt_early_is(void **state) {
  (void)state;
  on_each(early_near);
}

/* ---- calls that are left ------------------------------------------------------------------- */

static loop_desk filled(void) {
  loop_desk d = desk_open(CORRAL_OPTIONS(.store = store));
  assert_int_equal(corral_set(d.c, "k", 1, NULL, "v", 1), CORRAL_OK);
  return d;
}

static void a_cancelled_call_is_gone_and_told_nothing(void **state) {
  (void)state;
  loop_desk d = filled();
  request r = {0}, other = {0};
  ask(d.loop, "k", NULL, &r);
  ask(d.loop, "k", NULL, &other);
  corral_async_call_cancel(r.call);
  corral_async_call_cancel(r.call);
  assert_int_equal(r.gones, 0);
  assert_int_equal(corral_loop_dispatch(d.loop), 2);
  assert_int_equal(r.dones, 0);
  assert_int_equal(r.gones, 1);
  assert_int_equal(other.dones, 1);
  assert_int_equal(other.gones, 1);
  closed(&d);
}

static void cancel_both(request *r) {
  request *other = r->arg;
  corral_async_call_cancel(r->call);
  corral_async_call_cancel(other->call);
  assert_int_equal(other->gones, 0);
}

static void a_done_may_cancel_what_is_due_behind_it(void **state) {
  (void)state;
  loop_desk d = filled();
  request other = {0}, r = {.on_done = cancel_both, .arg = &other};
  ask(d.loop, "k", NULL, &r);
  ask(d.loop, "k", NULL, &other);
  RUN_UNTIL(d.loop, other.gones, 1);
  assert_int_equal(other.dones, 0);
  assert_int_equal(r.dones, 1);
  assert_int_equal(r.gones, 1);
  closed(&d);
}

static void a_closed_loop_lets_go_of_what_is_due(void **state) {
  (void)state;
  loop_desk d = filled();
  request r[3] = {{0}};
  for (int i = 0; i < 3; i++) ask(d.loop, "k", NULL, &r[i]);
  corral_loop_close(d.loop);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(r[i].dones, 0);
    assert_int_equal(r[i].gones, 1);
  }
  corral_close(d.c);
}

static void without_memory_a_hit_is_refused_or_answered(void **state) {
  (void)state;
  int refused = 0;
  loop_desk d = filled();
  for (int nth = 0; nth < 6; nth++) {
    request r = {0};
    atomic_store(&crl_alloc_countdown, nth);
    int status = ask_as(d.loop, "k", NULL, &r, 0);
    atomic_store(&crl_alloc_countdown, -1);
    if (status == CORRAL_OK) RUN_UNTIL(d.loop, r.gones, 1);
    assert_true(status == CORRAL_OK || status == CORRAL_ENOMEM);
    assert_int_equal(r.dones, status == CORRAL_OK);
    assert_int_equal(r.gones, r.dones);
    refused += status != CORRAL_OK;
  }
  assert_true(refused > 0);
  closed(&d);
}

#define IN_ROOM(name) cmocka_unit_test_setup_teardown(name, lab_make_room, lab_leave_room)
#define IN_STORE(name) cmocka_unit_test_setup(name, fresh_store)

int main(void) {
  is_asker = 1;
  const struct CMUnitTest tests[] = {
      IN_ROOM(a_chain_of_hits_makes_two_system_calls_in_65),
      IN_ROOM(so_does_one_of_hits_that_need_more_than_their_record),
      IN_ROOM(so_does_one_of_hits_in_the_near_tier_and_asks_nobody),
      IN_STORE(a_watcher_by_edge_sees_each_part_of_a_chain),
      IN_ROOM(what_is_known_not_to_be_there_is_told_so),
      IN_ROOM(a_miss_goes_on_by_the_look_that_found_nothing),
      IN_ROOM(a_peek_at_a_hit_is_one_look_and_no_dispatch),
      IN_ROOM(a_peek_leaves_what_is_not_there_or_stale_to_a_call),
      IN_ROOM(a_peek_does_not_use_up_the_chance_of_an_early_rebuild),
      IN_ROOM(a_copy_that_is_to_be_rebuilt_early_is),
      IN_STORE(a_cancelled_call_is_gone_and_told_nothing),
      IN_STORE(a_done_may_cancel_what_is_due_behind_it),
      IN_STORE(a_closed_loop_lets_go_of_what_is_due),
      IN_STORE(without_memory_a_hit_is_refused_or_answered),
  };
  count_no_call();
  return cmocka_run_group_tests_name("loop due", tests, NULL, NULL);
}
