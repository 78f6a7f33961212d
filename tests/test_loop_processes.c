/* test_loop_processes.c: processes with event loops on one store: one compute for all of them, and
 * a second one after its process is killed. */
#include "support/loop_kit.h"

#include "support/herd_lab.h"
#include "support/redis_server.h"

/* A lease outlives the pauses of a busy machine. */
enum { PROCESSES = 4, CALLS = 100, LEASE_MS = 5000, READY = 0, STARTED, ANSWERED, GATE, LEADER };

typedef struct crowd {
  lab_seat *seat;
  corral_fill *fill;
  int gones;
} crowd;

/* The value is the number of the compute. */
static void on_start(void *arg, corral_fill *fill, const void *key, size_t key_len) {
  crowd *w = arg;
  lab *l = w->seat->lab;
  (void)key;
  (void)key_len;
  lab_add(&l->keys[0].computes, 1);
  atomic_store(&l->marks[LEADER], w->seat->process);
  w->fill = fill;
  lab_add(&l->marks[STARTED], 1);
}

static void on_done(void *arg, int status, corral_value *value, const corral_error *error) {
  lab *l = ((crowd *)arg)->seat->lab;
  if (status != CORRAL_OK)
    lab_wrong(l, "a call ended with %s", error->text);
  else if (corral_value_size(value) != 3 || memcmp(corral_value_data(value), "row", 3) != 0)
    lab_wrong(l, "a wrong value");
  corral_value_unref(value);
  lab_add(&l->marks[ANSWERED], 1);
}

static void on_gone(void *arg) { ((crowd *)arg)->gones++; }

static void body(lab_seat *seat) {
  lab *l = seat->lab;
  corral_loop *loop = NULL;
  crowd w = {.seat = seat};
  corral_error error;
  if (corral_loop_open(seat->corral, &loop, &error) != CORRAL_OK)
    lab_wrong(l, "no loop: %s", error.text);
  lab_meet(l, &l->marks[READY], PROCESSES, 1);
  for (int i = 0; i < CALLS && loop != NULL; i++)
    if (corral_loop_get(
            loop, "a", 1,
            CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = 60000, .lease_ms = LEASE_MS,
                                                .lease_min_ms = LEASE_MS)),
            CORRAL_ASYNC(.done = on_done, .start = on_start, .gone = on_gone, .arg = &w),
            NULL) != CORRAL_OK)
      lab_wrong(l, "a call was refused");
  for (int64_t until = crl_env_now_ms() + LOOP_PATIENCE_MS;
       w.gones < CALLS && crl_env_now_ms() < until;) {
    turn(loop, crl_env_now_ms() + 5);
    if (w.fill == NULL || atomic_load(&l->marks[GATE]) < 1) continue;
    corral_fill_bytes(w.fill, "row", 3);
    corral_fill_done(w.fill);
    w.fill = NULL;
  }
  if (w.gones < CALLS) lab_wrong(l, "only %d of %d calls ended", w.gones, CALLS);
  corral_loop_close(loop);
}

static void loops_of_several_processes_make_one_compute(void **state) {
  (void)state;
  lab *l = lab_room;
  lab_spawn(l, &(lab_plan){
                   .uri = lab_lmdb(l, "one"), .processes = PROCESSES, .threads = 1, .body = body});
  lab_await(l, &l->marks[STARTED], 1);
  lab_add(&l->marks[GATE], 1);
  lab_end(l);
  assert_int_equal(l->keys[0].computes, 1);
  assert_int_equal(l->marks[ANSWERED], PROCESSES * CALLS);
}

static void a_loop_whose_process_is_killed_is_replaced_when_its_lease_ends(void **state) {
  (void)state;
  lab *l = lab_room;
  lab_spawn(l,
            &(lab_plan){
                .uri = lab_lmdb(l, "killed"), .processes = PROCESSES, .threads = 1, .body = body});
  lab_await(l, &l->marks[STARTED], 1);
  lab_kill(l, atomic_load(&l->marks[LEADER]));
  lab_await(l, &l->marks[STARTED], 2);
  lab_add(&l->marks[GATE], 1);
  lab_end(l);
  assert_int_equal(l->keys[0].computes, 2);
  assert_int_equal(l->marks[ANSWERED], (PROCESSES - 1) * CALLS);
}

/* ---- the ladder ---------------------------------------------------------------------------- */

static redis_server *server;
static int missing;

static int start_server(void **state) {
  (void)state;
  missing = !redis_server_start(&server, NULL);
  return 0;
}

static int stop_server(void **state) {
  (void)state;
  redis_server_stop(server);
  return 0;
}

/* Two corrals act as two processes: each opens the host lock for itself. */
static void
calls_that_wait_for_their_host_end_by_their_deadline_or_when_they_are_left(void **state) {
  (void)state;
  if (server == NULL) skip();
  const char *folder = redis_server_folder(server);
  const corral_policy *patient = CORRAL_POLICY(.wait_ms = 3600000);
  corral *c = loop_corral(
      CORRAL_OPTIONS(.store = redis_server_uri(server), .host_lock = 1, .host_dir = folder));
  corral *other = loop_corral(
      CORRAL_OPTIONS(.store = redis_server_uri(server), .host_lock = 1, .host_dir = folder));
  corral_loop *loop = loop_of(c), *there = loop_of(other);
  request leader[3] = {{0}}, waiter[3] = {{0}};
  static const char *const keys[] = {"a", "b", "c"};
  for (int i = 0; i < 3; i++) ask(loop, keys[i], patient, &leader[i]);
  for (int i = 0; i < 3; i++) RUN_UNTIL(loop, leader[i].starts, 1);
  ask(there, "a", CORRAL_POLICY(.wait_ms = 3600000, .poll_ms = 60000, .poll_max_ms = 60000),
      &waiter[0]);
  ask(there, "c", patient, &waiter[2]);
  await_counter(other, CORRAL_EVENT_HOST_WAIT, 2);
  corral_async_call_cancel(waiter[0].call);
  RUN_UNTIL(there, waiter[0].gones, 1);
  assert_int_equal(waiter[0].dones, 0);
  /* On a busy machine a short wait may be over before it came to its host's lock. */
  for (int64_t wait_ms = 50; corral_counter(other, CORRAL_EVENT_HOST_WAIT) < 3; wait_ms *= 2) {
    waiter[1] = (request){0};
    ask(there, "b", CORRAL_POLICY(.wait_ms = wait_ms), &waiter[1]);
    RUN_UNTIL(there, waiter[1].gones, 1);
    assert_int_equal(waiter[1].status, CORRAL_EDEADLINE);
  }
  for (int i = 0; i < 3; i++) make(&leader[i], "x");
  for (int i = 0; i < 3; i++) RUN_UNTIL(loop, leader[i].gones, 1);
  RUN_UNTIL(there, waiter[2].gones, 1);
  assert_string_equal(waiter[2].text, "x");
  assert_int_equal(waiter[0].starts + waiter[1].starts + waiter[2].starts, 0);
  corral_loop_close(there);
  corral_loop_close(loop);
  corral_close(other);
  corral_close(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(loops_of_several_processes_make_one_compute, lab_make_room,
                                      lab_leave_room),
      cmocka_unit_test_setup_teardown(
          a_loop_whose_process_is_killed_is_replaced_when_its_lease_ends, lab_make_room,
          lab_leave_room),
      cmocka_unit_test_setup_teardown(
          calls_that_wait_for_their_host_end_by_their_deadline_or_when_they_are_left, start_server,
          stop_server),
  };
  int failed = cmocka_run_group_tests_name("loop_processes", tests, NULL, NULL);
  return failed == 0 && missing ? 77 : failed;
}
