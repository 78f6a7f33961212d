/* test_gate.c: who is let in at the gate, and in which order. Threads meet at counts, not at times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "env.h"
#include "gate.h"
#include "value.h"

enum { FAR = 60000, CROWD = 12, ROUNDS = 300 };

static int64_t far(void) { return crl_env_now_ms() + FAR; }

typedef struct guest {
  pthread_t thread;
  crl_gate *gate;
  crl_rank rank;
  int64_t until;
  int entered;
  atomic_int *turn; /* counts those who came in */
  int came;         /* as which of them */
} guest;

static void *visit(void *arg) {
  guest *g = arg;
  g->entered = crl_gate_enter(g->gate, g->rank, g->until);
  if (!g->entered) return NULL;
  g->came = atomic_fetch_add(g->turn, 1);
  crl_gate_leave(g->gate);
  return NULL;
}

/* Sends a guest to wait, and waits until it does. */
static void send_in(guest *g, crl_gate *gate, crl_rank rank, int64_t until, atomic_int *turn) {
  size_t waiting = crl_gate_waiting(gate, rank);
  *g = (guest){.gate = gate, .rank = rank, .until = until, .turn = turn};
  assert_int_equal(pthread_create(&g->thread, NULL, visit, g), 0);
  while (crl_gate_waiting(gate, rank) == waiting) sched_yield();
}

static void so_many_are_let_in_and_no_more(void **state) {
  (void)state;
  crl_gate *gate = crl_gate_new(2);
  assert_int_equal(crl_gate_enter(gate, CRL_RANK_COLD, 0), 1);
  assert_int_equal(crl_gate_enter(gate, CRL_RANK_WARM, 0), 1);
  assert_int_equal(crl_gate_enter(gate, CRL_RANK_COLD, 0), 0);
  assert_int_equal(crl_gate_inside(gate), 2);
  crl_gate_leave(gate);
  assert_int_equal(crl_gate_enter(gate, CRL_RANK_COLD, 0), 1);
  crl_gate_leave(gate);
  crl_gate_leave(gate);
  crl_gate_free(gate);
}

static void who_waits_is_let_in_by_rank_and_then_in_the_order_of_coming(void **state) {
  (void)state;
  static const crl_rank ranks[] = {CRL_RANK_WARM, CRL_RANK_EARLY, CRL_RANK_COLD, CRL_RANK_EXPIRED, CRL_RANK_COLD, CRL_RANK_WARM};
  static const int order[] = {4, 3, 0, 2, 1, 5}; /* whom each of them comes in as */
  guest guests[6];
  atomic_int turn = 0;
  crl_gate *gate = crl_gate_new(1);
  assert_int_equal(crl_gate_enter(gate, CRL_RANK_COLD, 0), 1);
  for (int i = 0; i < 6; i++) send_in(&guests[i], gate, ranks[i], far(), &turn);
  crl_gate_leave(gate);
  for (int i = 0; i < 6; i++) {
    pthread_join(guests[i].thread, NULL);
    assert_int_equal(guests[i].came, order[i]);
  }
  assert_int_equal(crl_gate_inside(gate), 0);
  crl_gate_free(gate);
}

static void who_only_tries_doesn_t_overtake_one_who_waits(void **state) {
  (void)state;
  guest cold;
  atomic_int turn = 0;
  crl_gate *gate = crl_gate_new(1);
  assert_int_equal(crl_gate_enter(gate, CRL_RANK_COLD, 0), 1);
  send_in(&cold, gate, CRL_RANK_COLD, far(), &turn);
  assert_int_equal(crl_gate_enter(gate, CRL_RANK_COLD, 0), 0);
  assert_int_equal(crl_gate_enter(gate, CRL_RANK_WARM, 0), 0);
  crl_gate_leave(gate);
  pthread_join(cold.thread, NULL);
  assert_true(cold.entered);
  crl_gate_free(gate);
}

static void whose_time_is_over_leaves_the_queue(void **state) {
  (void)state;
  guest late, patient;
  atomic_int turn = 0;
  crl_gate *gate = crl_gate_new(1);
  assert_int_equal(crl_gate_enter(gate, CRL_RANK_COLD, 0), 1);
  send_in(&late, gate, CRL_RANK_COLD, crl_env_now_ms() + 200, &turn);
  send_in(&patient, gate, CRL_RANK_COLD, far(), &turn);
  pthread_join(late.thread, NULL);
  assert_false(late.entered);
  assert_int_equal(crl_gate_waiting(gate, CRL_RANK_COLD), 1);
  crl_gate_leave(gate);
  pthread_join(patient.thread, NULL);
  assert_true(patient.entered);
  crl_gate_free(gate);
}

typedef struct crowd {
  crl_gate *gate;
  atomic_int inside, most, entered;
} crowd;

static void *jostle(void *arg) {
  crowd *c = arg;
  for (int i = 0; i < ROUNDS; i++) {
    int64_t until = i % 3 == 0 ? 0 : crl_env_now_ms() + (i % 3 == 1 ? 1 : FAR);
    if (!crl_gate_enter(c->gate, (crl_rank)(i % CRL_RANKS), until)) continue;
    int inside = atomic_fetch_add(&c->inside, 1) + 1, most = c->most;
    while (inside > most && !atomic_compare_exchange_weak(&c->most, &most, inside)) continue;
    atomic_fetch_add(&c->entered, 1);
    sched_yield();
    atomic_fetch_sub(&c->inside, 1);
    crl_gate_leave(c->gate);
  }
  return NULL;
}

static void in_a_crowd_nobody_is_lost_and_there_are_never_too_many(void **state) {
  (void)state;
  pthread_t threads[CROWD];
  crowd c = {.gate = crl_gate_new(3)};
  for (int i = 0; i < CROWD; i++) assert_int_equal(pthread_create(&threads[i], NULL, jostle, &c), 0);
  for (int i = 0; i < CROWD; i++) pthread_join(threads[i], NULL);
  assert_in_range(c.most, 1, 3);
  assert_true(c.entered >= CROWD * ROUNDS / 3);
  assert_int_equal(crl_gate_inside(c.gate), 0);
  for (int r = 0; r < CRL_RANKS; r++) assert_int_equal(crl_gate_waiting(c.gate, (crl_rank)r), 0);
  crl_gate_free(c.gate);
}

static void without_memory_there_is_no_gate(void **state) {
  (void)state;
  crl_alloc_countdown = 0;
  assert_null(crl_gate_new(1));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(so_many_are_let_in_and_no_more),
      cmocka_unit_test(who_waits_is_let_in_by_rank_and_then_in_the_order_of_coming),
      cmocka_unit_test(who_only_tries_doesn_t_overtake_one_who_waits),
      cmocka_unit_test(whose_time_is_over_leaves_the_queue),
      cmocka_unit_test(in_a_crowd_nobody_is_lost_and_there_are_never_too_many),
      cmocka_unit_test(without_memory_there_is_no_gate),
  };
  return cmocka_run_group_tests_name("gate", tests, NULL, NULL);
}
