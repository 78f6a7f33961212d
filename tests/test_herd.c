/* test_herd.c: one flight per key per process. Threads synchronize by counts (the number of
 * waiters), not by times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>

#include "os/env.h"
#include "herd/herd.h"

#define NAMED(text, len) (&(crl_name){.key = (text), .key_len = (len)})

enum { WAITERS = 8, FAR = 60000 };

static int64_t later(int64_t ms) { return crl_env_now_ms() + ms; }

/* ---- actors -------------------------------------------------------------------------------- */

static crl_entry *enter(crl_herd *herd, const crl_name *name, int *leads) {
  crl_entry *entry = NULL;
  uint64_t tick;
  crl_entrance entrance = {.name = name, .hash = crl_name_hash(name), .looked = 1};
  crl_enter how = crl_herd_enter(herd, &entrance, &entry, &tick);
  *leads = how == CRL_ENTER_LEADS;
  return entry;
}

typedef struct waiter {
  pthread_t thread;
  crl_herd *herd;
  crl_entry *entry;
  int64_t deadline;
  crl_wait result;
  crl_outcome outcome;
  int led; /* led a new flight after the entry was given up */
} waiter;

static void *wait_for_it(void *arg) {
  waiter *w = arg;
  w->result = crl_herd_wait(w->entry, &(crl_patience){.deadline = w->deadline}, &w->outcome);
  crl_entry_unref(w->entry);
  return NULL;
}

static waiter join_herd(crl_herd *herd, const char *key, int64_t deadline) {
  int leads;
  waiter w = {.herd = herd, .deadline = deadline};
  w.entry = enter(herd, NAMED(key, strlen(key)), &leads);
  assert_non_null(w.entry);
  assert_false(leads);
  return w;
}

static void start(waiter *w, void *(*act)(void *)) {
  assert_int_equal(pthread_create(&w->thread, NULL, act, w), 0);
}

static void until_waiting(crl_herd *herd, const char *key, size_t count) {
  int64_t limit = later(FAR);
  while (crl_herd_waiting(herd, NAMED(key, strlen(key))) != count) {
    assert_true(crl_env_now_ms() < limit);
    sched_yield();
  }
}

static crl_entry *lead(crl_herd *herd, const char *key) {
  int leads;
  crl_entry *entry = enter(herd, NAMED(key, strlen(key)), &leads);
  assert_non_null(entry);
  assert_true(leads);
  return entry;
}

static crl_outcome value_of(const char *text, corral_how how) {
  crl_bytes *bytes = crl_bytes_wrap((const uint8_t *)text, strlen(text), NULL, NULL);
  assert_non_null(bytes);
  return (crl_outcome){.status = CORRAL_OK, .bytes = bytes, .size = strlen(text), .how = how};
}

static void assert_has(waiter *w, const char *text) {
  assert_int_equal(w->result, CRL_WAIT_LANDED);
  assert_int_equal(w->outcome.size, strlen(text));
  assert_memory_equal(w->outcome.bytes->data, text, strlen(text));
  crl_bytes_unref(w->outcome.bytes);
}

/* ---- landing ------------------------------------------------------------------------------- */

static void all_who_joined_get_the_leader_s_outcome(void **state) {
  (void)state;
  crl_herd *herd = crl_herd_new();
  crl_entry *entry = lead(herd, "k");
  waiter w[WAITERS];
  for (int i = 0; i < WAITERS; i++) w[i] = join_herd(herd, "k", later(FAR));
  for (int i = 0; i < WAITERS; i++) start(&w[i], wait_for_it);
  until_waiting(herd, "k", WAITERS);
  assert_int_equal(crl_herd_count(herd), 1);
  crl_outcome outcome = value_of("value", CORRAL_COMPUTED);
  crl_herd_land(entry, &outcome, CRL_GOOD_FOR_ALL);
  crl_bytes_unref(outcome.bytes);
  assert_int_equal(crl_herd_count(herd), 0);
  crl_entry_unref(entry);
  for (int i = 0; i < WAITERS; i++) {
    pthread_join(w[i].thread, NULL);
    assert_has(&w[i], "value");
  }
  crl_herd_free(herd);
}

static void a_failure_lands_for_all_too(void **state) {
  (void)state;
  crl_herd *herd = crl_herd_new();
  crl_entry *entry = lead(herd, "k");
  waiter w = join_herd(herd, "k", later(FAR));
  crl_outcome outcome = {.status = CORRAL_EFAILED, .error = {.status = CORRAL_EFAILED, .code = 7}};
  crl_herd_land(entry, &outcome, CRL_GOOD_FOR_ALL);
  crl_herd_give_up(entry); /* no effect after a landing */
  wait_for_it(&w);
  assert_int_equal(w.result, CRL_WAIT_LANDED);
  assert_int_equal(w.outcome.error.code, 7);
  assert_null(w.outcome.bytes);
  crl_entry_unref(entry);
  crl_herd_free(herd);
}

static void who_comes_after_the_landing_leads_anew(void **state) {
  (void)state;
  crl_herd *herd = crl_herd_new();
  crl_entry *first = lead(herd, "k");
  crl_outcome outcome = {.status = CORRAL_ENOTFOUND};
  crl_herd_land(first, &outcome, CRL_GOOD_FOR_ALL);
  crl_entry *second = lead(herd, "k");
  assert_ptr_not_equal(first, second);
  crl_entry_unref(first);
  /* the end of the first flight leaves the second one alone */
  assert_int_equal(crl_herd_count(herd), 1);
  crl_entry_unref(second);
  assert_int_equal(crl_herd_count(herd), 0);
  crl_herd_free(herd);
}

static void each_key_has_a_herd_of_its_own(void **state) {
  (void)state;
  enum { KEYS = 3000 };
  static crl_entry *entries[KEYS];
  crl_herd *herd = crl_herd_new();
  char key[16];
  int leads;
  for (int i = 0; i < KEYS; i++) {
    snprintf(key, sizeof key, "%d", i);
    entries[i] = lead(herd, key);
  }
  assert_int_equal(crl_herd_count(herd), KEYS);
  crl_entry *prefix = enter(herd, NAMED("12", 1), &leads); /* the key "1" */
  assert_false(leads);
  assert_ptr_equal(prefix, entries[1]);
  crl_entry_unref(prefix);
  for (int i = 0; i < KEYS; i++) crl_entry_unref(entries[(i * 7) % KEYS]);
  assert_int_equal(crl_herd_count(herd), 0);
  crl_herd_free(herd);
}

/* ---- giving up ----------------------------------------------------------------------------- */

/* Waits; if the entry is given up, enters again, and leads or waits. */
static void *wait_or_lead(void *arg) {
  waiter *w = arg;
  int leads = 0;
  w->result = crl_herd_wait(w->entry, &(crl_patience){.deadline = w->deadline}, &w->outcome);
  crl_entry_unref(w->entry);
  if (w->result != CRL_WAIT_GIVEN_UP) return NULL;
  crl_entry *entry = enter(w->herd, NAMED("k", 1), &leads);
  if (leads) {
    w->led = 1;
    until_waiting(w->herd, "k", WAITERS - 1);
    w->outcome = value_of("second", CORRAL_COMPUTED);
    crl_herd_land(entry, &w->outcome, CRL_GOOD_FOR_ALL);
    w->result = CRL_WAIT_LANDED;
  } else {
    w->result = crl_herd_wait(entry, &(crl_patience){.deadline = w->deadline}, &w->outcome);
  }
  crl_entry_unref(entry);
  return NULL;
}

static void when_a_leader_gives_up_exactly_one_of_the_others_leads(void **state) {
  (void)state;
  crl_herd *herd = crl_herd_new();
  crl_entry *entry = lead(herd, "k");
  waiter w[WAITERS];
  int leaders = 0;
  for (int i = 0; i < WAITERS; i++) w[i] = join_herd(herd, "k", later(FAR));
  for (int i = 0; i < WAITERS; i++) start(&w[i], wait_or_lead);
  until_waiting(herd, "k", WAITERS);
  crl_herd_give_up(entry);
  crl_entry_unref(entry);
  for (int i = 0; i < WAITERS; i++) {
    pthread_join(w[i].thread, NULL);
    assert_has(&w[i], "second");
    leaders += w[i].led;
  }
  assert_int_equal(leaders, 1);
  assert_int_equal(crl_herd_count(herd), 0);
  crl_herd_free(herd);
}

static void a_waiter_leaves_at_its_own_deadline(void **state) {
  (void)state;
  crl_herd *herd = crl_herd_new();
  crl_entry *entry = lead(herd, "k");
  waiter w = join_herd(herd, "k", crl_env_now_ms());
  wait_for_it(&w);
  assert_int_equal(w.result, CRL_WAIT_DEADLINE);
  assert_int_equal(crl_herd_waiting(herd, NAMED("k", 1)), 0);
  crl_entry_unref(entry);
  crl_herd_free(herd);
}

/* ---- detaching ----------------------------------------------------------------------------- */

static void after_an_invalidate_newcomers_do_not_join_and_those_who_did_still_get_it(void **state) {
  (void)state;
  crl_herd *herd = crl_herd_new();
  crl_entry *old = lead(herd, "k");
  waiter joined = join_herd(herd, "k", later(FAR));
  start(&joined, wait_for_it);
  until_waiting(herd, "k", 1);
  crl_herd_detach_key(herd, NAMED("other", 5));
  assert_int_equal(crl_herd_count(herd), 1);
  crl_herd_detach_key(herd, NAMED("k", 1));
  crl_entry *new = lead(herd, "k");
  waiter after = join_herd(herd, "k", later(FAR));
  start(&after, wait_for_it);
  until_waiting(herd, "k", 1);
  crl_outcome outcome = value_of("old", CORRAL_COMPUTED);
  crl_herd_land(old, &outcome, CRL_GOOD_FOR_ALL);
  crl_bytes_unref(outcome.bytes);
  pthread_join(joined.thread, NULL);
  assert_has(&joined, "old");
  assert_int_equal(crl_herd_waiting(herd, NAMED("k", 1)), 1);
  outcome = value_of("new", CORRAL_COMPUTED);
  crl_herd_land(new, &outcome, CRL_GOOD_FOR_ALL);
  crl_bytes_unref(outcome.bytes);
  pthread_join(after.thread, NULL);
  assert_has(&after, "new");
  crl_herd_detach(old); /* no effect: detached already */
  crl_entry_unref(old);
  crl_entry_unref(new);
  crl_herd_free(herd);
}

/* ---- interim answers ----------------------------------------------------------------------- */

static void an_interim_answer_is_for_all_while_the_flight_goes_on(void **state) {
  (void)state;
  crl_herd *herd = crl_herd_new();
  crl_entry *entry = lead(herd, "k");
  crl_herd_confirm(entry, CRL_GOOD_FOR_ALL);
  waiter w = join_herd(herd, "k", later(FAR)), late = join_herd(herd, "k", later(FAR)),
         last = join_herd(herd, "k", later(FAR));
  start(&w, wait_for_it);
  until_waiting(herd, "k", 1);
  crl_outcome stale = value_of("stale", CORRAL_STALE), fresh = value_of("fresh", CORRAL_COMPUTED);
  crl_herd_interim(entry, &stale, later(FAR), later(FAR));
  pthread_join(w.thread, NULL);
  assert_has(&w, "stale");
  wait_for_it(&late);
  assert_has(&late, "stale");
  assert_int_equal(crl_herd_count(herd), 1);
  crl_herd_land(entry, &fresh, CRL_GOOD_FOR_ALL);
  wait_for_it(&last);
  assert_has(&last, "fresh");
  crl_bytes_unref(stale.bytes);
  crl_bytes_unref(fresh.bytes);
  crl_entry_unref(entry);
  crl_herd_free(herd);
}

static void an_interim_answer_for_deadlines_is_given_at_the_deadline_only(void **state) {
  (void)state;
  crl_herd *herd = crl_herd_new();
  crl_entry *entry = lead(herd, "k");
  crl_herd_confirm(entry, CRL_GOOD_FOR_ALL);
  crl_outcome stale = value_of("stale", CORRAL_STALE);
  waiter hurried = join_herd(herd, "k", crl_env_now_ms()),
         patient = join_herd(herd, "k", later(FAR));
  waiter too_late = join_herd(herd, "k", crl_env_now_ms()),
         detached = join_herd(herd, "k", crl_env_now_ms());
  crl_herd_interim(entry, &stale, 0, later(FAR));
  start(&patient, wait_for_it);
  until_waiting(herd, "k", 1);
  wait_for_it(&hurried);
  assert_has(&hurried, "stale");
  assert_int_equal(crl_herd_waiting(herd, NAMED("k", 1)), 1);
  crl_herd_interim(entry, &stale, 0, crl_env_now_ms()); /* the grace is over */
  wait_for_it(&too_late);
  assert_int_equal(too_late.result, CRL_WAIT_DEADLINE);
  crl_herd_interim(entry, &stale, later(FAR), later(FAR));
  pthread_join(patient.thread, NULL);
  assert_has(&patient, "stale");
  crl_herd_detach(entry); /* after an invalidation the stale answer must not be given */
  wait_for_it(&detached);
  assert_int_equal(detached.result, CRL_WAIT_DEADLINE);
  crl_bytes_unref(stale.bytes);
  crl_entry_unref(entry);
  crl_herd_free(herd);
}

/* ---- whose answer is good ------------------------------------------------------------------ */

static crl_wait wait_since(crl_entry *entry, uint64_t since, crl_outcome *outcome) {
  return crl_herd_wait(entry, &(crl_patience){.since = since, .deadline = later(FAR)}, outcome);
}

/* Enters as one who waited on `from`. */
static crl_enter enter_from(crl_herd *herd, const crl_entry *from, uint64_t *since,
                            crl_entry **entry, uint64_t *tick) {
  crl_name name = {.key = "k", .key_len = 1};
  crl_entrance entrance = {
      .name = &name, .hash = crl_name_hash(&name), .since = *since, .from = from};
  crl_enter how = crl_herd_enter(herd, &entrance, entry, tick);
  *since = entrance.since;
  return how;
}

/* It may have been invalidated before the later caller began, as its own look tells. */
static void a_stale_value_from_before_a_call_does_not_become_good_by_the_lease(void **state) {
  (void)state;
  crl_herd *herd = crl_herd_new();
  crl_entry *first, *joined[2];
  uint64_t leader = 0, since[2] = {0, 0}, sent, tick;
  crl_outcome stale = value_of("stale", CORRAL_STALE), got;
  assert_int_equal(enter_from(herd, NULL, &leader, &first, &sent), CRL_ENTER_LEADS);
  assert_int_equal(enter_from(herd, NULL, &since[0], &joined[0], &tick), CRL_ENTER_JOINS);
  crl_herd_confirm(first, crl_herd_tick(first)); /* a look */
  assert_int_equal(enter_from(herd, NULL, &since[1], &joined[1], &tick), CRL_ENTER_JOINS);
  crl_herd_interim(first, &stale, later(FAR), later(FAR));
  crl_herd_confirm(first, crl_herd_tick(first)); /* a claim */
  for (int i = 0; i < 2; i++) {
    crl_patience patience = {.since = since[i], .looked = 1, .deadline = later(FAR)};
    crl_wait came = crl_herd_look(joined[i], &patience, &got);
    assert_int_equal(came, i == 0 ? CRL_WAIT_LANDED : 0);
    if (came == CRL_WAIT_LANDED) crl_bytes_unref(got.bytes);
    patience.deadline = 1;
    came = crl_herd_look(joined[i], &patience, &got);
    assert_int_equal(came, i == 0 ? CRL_WAIT_LANDED : CRL_WAIT_DEADLINE);
    if (came == CRL_WAIT_LANDED) crl_bytes_unref(got.bytes);
    crl_entry_unref(joined[i]);
  }
  crl_bytes_unref(stale.bytes);
  crl_herd_give_up(first);
  crl_entry_unref(first);
  crl_herd_free(herd);
}

static void who_began_after_the_ask_was_sent_looks_anew_together_with_the_others(void **state) {
  (void)state;
  crl_herd *herd = crl_herd_new();
  crl_entry *first, *next, *joined[2];
  crl_listener listeners[2];
  crl_waiter wakes = {0};
  uint64_t leader = 0, since[2] = {0, 0}, sent, tick;
  crl_outcome old = value_of("old", CORRAL_FRESH), new = value_of("new", CORRAL_FRESH), got;
  assert_int_equal(enter_from(herd, NULL, &leader, &first, &sent), CRL_ENTER_LEADS);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(enter_from(herd, NULL, &since[i], &joined[i], &tick), CRL_ENTER_JOINS);
    crl_herd_listen(joined[i], &listeners[i], &wakes, 0);
  }
  crl_herd_land(first, &old, sent);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(wait_since(joined[i], since[i], &got), CRL_WAIT_GIVEN_UP);
    crl_herd_unlisten(joined[i], &listeners[i], CRL_WAIT_GIVEN_UP);
  }
  /* the first of them leads the next look; it ends before the second has entered */
  assert_int_equal(enter_from(herd, first, &since[0], &next, &sent), CRL_ENTER_LEADS);
  crl_herd_land(next, &new, sent);
  crl_entry *again;
  assert_int_equal(enter_from(herd, first, &since[1], &again, &tick), CRL_ENTER_JOINS);
  assert_ptr_equal(again, next);
  assert_int_equal(wait_since(again, since[1], &got), CRL_WAIT_LANDED);
  assert_ptr_equal(got.bytes, new.bytes);
  crl_bytes_unref(got.bytes);
  crl_bytes_unref(old.bytes);
  crl_bytes_unref(new.bytes);
  crl_entry *const all[] = {first, joined[0], joined[1], next, again};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) crl_entry_unref(all[i]);
  assert_int_equal(crl_herd_count(herd), 0);
  crl_herd_free(herd);
}

static void a_published_value_is_for_those_whom_an_ask_has_confirmed_since(void **state) {
  (void)state;
  crl_herd *herd = crl_herd_new();
  crl_entry *entry, *joined;
  uint64_t leader = 0, since = 0, tick;
  crl_outcome value = value_of("value", CORRAL_COMPUTED), got;
  crl_patience now = {.deadline = later(FAR)}, at_deadline = {.deadline = crl_env_now_ms()};
  enter_from(herd, NULL, &leader, &entry, &tick);
  enter_from(herd, NULL, &since, &joined, &tick);
  now.since = at_deadline.since = since;
  crl_herd_publish(entry, &value, 0);
  assert_int_equal(crl_herd_look(joined, &now, &got), 0);
  assert_int_equal(crl_herd_look(joined, &at_deadline, &got), CRL_WAIT_LANDED);
  crl_bytes_unref(got.bytes);
  crl_herd_confirm(entry, crl_herd_tick(entry));
  assert_int_equal(crl_herd_look(joined, &now, &got), CRL_WAIT_LANDED);
  crl_bytes_unref(got.bytes);
  crl_herd_give_up(entry);
  crl_bytes_unref(value.bytes);
  crl_entry_unref(joined);
  crl_entry_unref(entry);
  crl_herd_free(herd);
}

static void nor_for_those_who_came_after_the_ask_that_limits_it(void **state) {
  (void)state;
  crl_herd *herd = crl_herd_new();
  crl_entry *entry, *joined;
  uint64_t leader = 0, since = 0, tick, read;
  crl_outcome value = value_of("value", CORRAL_COMPUTED), got;
  enter_from(herd, NULL, &leader, &entry, &read);
  enter_from(herd, NULL, &since, &joined, &tick);
  crl_patience now = {.since = since, .deadline = later(FAR)};
  crl_herd_confirm(entry, crl_herd_tick(entry));
  crl_herd_limit(entry, read);
  crl_herd_publish(entry, &value, 0);
  assert_int_equal(crl_herd_look(joined, &now, &got), 0);
  crl_herd_confirm(entry, crl_herd_tick(entry));
  assert_int_equal(crl_herd_look(joined, &now, &got), 0);
  crl_herd_give_up(entry);
  crl_bytes_unref(value.bytes);
  crl_entry_unref(joined);
  crl_entry_unref(entry);
  crl_herd_free(herd);
}

static void
its_owner_has_a_published_value_at_once_if_it_does_not_wait_for_the_store(void **state) {
  (void)state;
  for (int to_owner = 0; to_owner < 2; to_owner++) {
    crl_herd *herd = crl_herd_new();
    crl_entry *entry, *joined;
    uint64_t leader = 0, since = 0, tick;
    crl_outcome value = value_of("value", CORRAL_COMPUTED), got;
    enter_from(herd, NULL, &leader, &entry, &tick);
    enter_from(herd, NULL, &since, &joined, &tick);
    crl_patience owner = {.since = leader, .deadline = later(FAR), .owns = 1};
    crl_patience other = {.since = since, .deadline = later(FAR)};
    crl_herd_publish(entry, &value, to_owner);
    assert_int_equal(crl_herd_look(joined, &other, &got), 0);
    assert_int_equal(crl_herd_look(entry, &owner, &got), to_owner ? CRL_WAIT_LANDED : 0);
    if (to_owner) crl_bytes_unref(got.bytes);
    crl_herd_give_up(entry);
    crl_bytes_unref(value.bytes);
    crl_entry_unref(joined);
    crl_entry_unref(entry);
    crl_herd_free(herd);
  }
}

static void a_lost_lease_sends_those_on_for_whom_nothing_was_confirmed(void **state) {
  (void)state;
  crl_herd *herd = crl_herd_new();
  crl_entry *entry, *joined;
  uint64_t leader = 0, since = 0, tick;
  crl_outcome got;
  enter_from(herd, NULL, &leader, &entry, &tick);
  enter_from(herd, NULL, &since, &joined, &tick);
  crl_patience late = {.since = since, .deadline = later(FAR)}, early = late;
  early.since = 0;
  crl_herd_confirm(entry, since);
  crl_herd_lose(entry);
  assert_int_equal(crl_herd_look(joined, &late, &got), CRL_WAIT_GIVEN_UP);
  assert_int_equal(crl_herd_look(joined, &early, &got), 0);
  crl_herd_give_up(entry);
  crl_entry_unref(joined);
  crl_entry_unref(entry);
  crl_herd_free(herd);
}

static void a_stale_answer_sends_those_to_look_whom_it_is_not_good_for(void **state) {
  (void)state;
  crl_herd *herd = crl_herd_new();
  crl_entry *entry, *joined, *none;
  uint64_t leader = 0, since = 0, later_call = 0, tick;
  crl_outcome stale = value_of("stale", CORRAL_STALE), got;
  enter_from(herd, NULL, &leader, &entry, &tick);
  enter_from(herd, NULL, &since, &joined, &tick);
  crl_patience waits = {.since = since, .deadline = later(FAR)}, looked = waits;
  looked.looked = 1;
  crl_herd_interim(entry, &stale, later(FAR), later(FAR));
  assert_int_equal(crl_herd_look(joined, &waits, &got), CRL_WAIT_GIVEN_UP);
  assert_int_equal(crl_herd_look(joined, &looked, &got), 0);
  assert_int_equal(enter_from(herd, NULL, &later_call, &none, &tick), CRL_ENTER_APART);
  assert_null(none);
  crl_herd_publish(entry, &stale, 0); /* the value is on its way: who looks has no need to wait */
  assert_int_equal(enter_from(herd, NULL, &later_call, &none, &tick), CRL_ENTER_APART);
  crl_herd_give_up(entry);
  crl_bytes_unref(stale.bytes);
  crl_entry_unref(joined);
  crl_entry_unref(entry);
  crl_herd_free(herd);
}

static void without_memory_there_is_no_entry(void **state) {
  (void)state;
  int leads;
  crl_herd *herd = crl_herd_new();
  crl_alloc_countdown = 0;
  assert_null(enter(herd, NAMED("k", 1), &leads));
  assert_int_equal(crl_herd_count(herd), 0);
  crl_herd_free(herd);
  crl_alloc_countdown = 0;
  assert_null(crl_herd_new());
}

/* ---- a crowd, for the thread sanitizer ----------------------------------------------------- */

static void *roam(void *arg) {
  waiter *w = arg;
  for (int i = 0; i < 500; i++) {
    int leads;
    crl_outcome outcome = {0};
    crl_entry *entry = enter(w->herd, NAMED(&"a\0b"[i % 3], 1), &leads);
    if (leads) {
      outcome = value_of("x", CORRAL_COMPUTED);
      if (i % 5 == 0) crl_herd_interim(entry, &outcome, later(5), later(5));
      if (i % 7 == 0) crl_herd_detach(entry);
      if (i % 11 == 0)
        crl_herd_give_up(entry);
      else
        crl_herd_land(entry, &outcome, CRL_GOOD_FOR_ALL);
    } else {
      crl_herd_wait(entry, &(crl_patience){.deadline = later(FAR)}, &outcome);
    }
    crl_bytes_unref(outcome.bytes);
    crl_entry_unref(entry);
  }
  return NULL;
}

static void a_crowd_leaves_nothing_behind(void **state) {
  (void)state;
  crl_herd *herd = crl_herd_new();
  waiter w[WAITERS];
  memset(w, 0, sizeof w);
  for (int i = 0; i < WAITERS; i++) {
    w[i].herd = herd;
    start(&w[i], roam);
  }
  for (int i = 0; i < WAITERS; i++) pthread_join(w[i].thread, NULL);
  assert_int_equal(crl_herd_count(herd), 0);
  crl_herd_free(herd);
}

/* ---- deserted ---------------------------------------------------------------------------- */

static void count_it(void *arg) { ++*(int *)arg; }

static void who_heeds_is_told_of_a_last_waiter_who_has_left_before(void **state) {
  (void)state;
  crl_herd *herd = crl_herd_new();
  crl_entry *entry = lead(herd, "k");
  int told = 0;
  crl_herd_heed(entry, count_it, &told); /* nobody has come yet */
  crl_herd_heed(entry, NULL, NULL);
  assert_int_equal(told, 0);
  waiter early = join_herd(herd, "k", later(-1)), w = join_herd(herd, "k", later(FAR));
  wait_for_it(&early);
  assert_int_equal(early.result, CRL_WAIT_DEADLINE);
  start(&w, wait_for_it);
  until_waiting(herd, "k", 1);
  crl_herd_heed(entry, count_it, &told); /* another one waits */
  crl_herd_heed(entry, NULL, NULL);
  assert_int_equal(told, 0);
  crl_herd_give_up(entry);
  pthread_join(w.thread, NULL);
  crl_entry_unref(entry);
  entry = lead(herd, "k");
  early = join_herd(herd, "k", later(-1));
  wait_for_it(&early);
  crl_herd_heed(entry, count_it, &told);
  assert_int_equal(told, 1);
  crl_herd_give_up(entry);
  crl_entry_unref(entry);
  crl_herd_free(herd);
}

/* ---- first looks --------------------------------------------------------------------------- */

static void a_look_that_nobody_joins_has_no_entry(void **state) {
  (void)state;
  crl_herd *herd = crl_herd_new();
  const crl_name *name = NAMED("k", 1);
  crl_stub stub, other;
  crl_alloc_countdown = 0;
  assert_true(crl_herd_stub(herd, name, crl_name_hash(name), &stub));
  assert_false(crl_herd_stub(herd, name, crl_name_hash(name), &other)); /* one flight per key */
  assert_null(crl_herd_unstub(&stub));
  assert_int_equal(crl_alloc_countdown, 0);
  crl_alloc_countdown = -1;
  assert_true(crl_herd_stub(herd, name, crl_name_hash(name), &other));
  assert_null(crl_herd_unstub(&other));
  crl_entry *entry = lead(herd, "k");
  assert_int_equal(crl_herd_stub(herd, name, crl_name_hash(name), &stub), CRL_STUB_FLIES);
  crl_herd_give_up(entry);
  crl_entry_unref(entry);
  crl_herd_free(herd);
}

static void who_comes_during_a_first_look_joins_it(void **state) {
  (void)state;
  crl_herd *herd = crl_herd_new();
  crl_stub stub;
  assert_true(crl_herd_stub(herd, NAMED("k", 1), crl_name_hash(NAMED("k", 1)), &stub));
  waiter w = join_herd(herd, "k", later(FAR));
  assert_int_equal(crl_herd_count(herd), 1);
  start(&w, wait_for_it);
  until_waiting(herd, "k", 1);
  crl_entry *entry = crl_herd_unstub(&stub);
  assert_ptr_equal(entry, w.entry);
  crl_outcome outcome = value_of("value", CORRAL_FRESH);
  crl_herd_land(entry, &outcome, CRL_GOOD_FOR_ALL);
  crl_bytes_unref(outcome.bytes);
  crl_entry_unref(entry);
  pthread_join(w.thread, NULL);
  assert_has(&w, "value");
  assert_int_equal(crl_herd_count(herd), 0);
  crl_herd_free(herd);
}

/* A look that began before an invalidation is for its own caller alone. */
static void a_first_look_that_is_detached_is_joined_by_nobody(void **state) {
  (void)state;
  crl_herd *herd = crl_herd_new();
  crl_stub stub, all;
  const crl_name *name = NAMED("k", 1), *other = NAMED("other", 5);
  assert_true(crl_herd_stub(herd, name, crl_name_hash(name), &stub));
  assert_true(crl_herd_stub(herd, other, crl_name_hash(other), &all));
  crl_herd_detach_key(herd, name);
  crl_entry *newcomer = lead(herd, "k");
  crl_entry *own = crl_herd_keep_stub(&stub);
  assert_ptr_not_equal(own, newcomer);
  assert_int_equal(crl_herd_count(herd), 1);
  crl_herd_give_up(own);
  crl_entry_unref(own);
  crl_herd_give_up(newcomer);
  crl_entry_unref(newcomer);
  crl_herd_detach_all(herd);
  newcomer = lead(herd, "other");
  assert_null(crl_herd_unstub(&all));
  crl_herd_give_up(newcomer);
  crl_entry_unref(newcomer);
  crl_herd_free(herd);
}

static void a_first_look_that_was_no_answer_goes_on_with_an_entry(void **state) {
  (void)state;
  crl_herd *herd = crl_herd_new();
  crl_stub stub;
  assert_true(crl_herd_stub(herd, NAMED("k", 1), crl_name_hash(NAMED("k", 1)), &stub));
  crl_entry *entry = crl_herd_keep_stub(&stub);
  waiter w = join_herd(herd, "k", later(FAR));
  assert_ptr_equal(entry, w.entry);
  start(&w, wait_for_it);
  until_waiting(herd, "k", 1);
  crl_outcome outcome = value_of("value", CORRAL_COMPUTED);
  crl_herd_land(entry, &outcome, CRL_GOOD_FOR_ALL);
  crl_bytes_unref(outcome.bytes);
  crl_entry_unref(entry);
  pthread_join(w.thread, NULL);
  assert_has(&w, "value");
  assert_true(crl_herd_stub(herd, NAMED("k", 1), crl_name_hash(NAMED("k", 1)), &stub));
  crl_alloc_countdown = 0;
  assert_null(crl_herd_keep_stub(&stub));
  crl_alloc_countdown = -1;
  assert_int_equal(crl_herd_count(herd), 0);
  crl_herd_free(herd);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_who_joined_get_the_leader_s_outcome),
      cmocka_unit_test(a_failure_lands_for_all_too),
      cmocka_unit_test(who_comes_after_the_landing_leads_anew),
      cmocka_unit_test(each_key_has_a_herd_of_its_own),
      cmocka_unit_test(when_a_leader_gives_up_exactly_one_of_the_others_leads),
      cmocka_unit_test(a_waiter_leaves_at_its_own_deadline),
      cmocka_unit_test(after_an_invalidate_newcomers_do_not_join_and_those_who_did_still_get_it),
      cmocka_unit_test(an_interim_answer_is_for_all_while_the_flight_goes_on),
      cmocka_unit_test(an_interim_answer_for_deadlines_is_given_at_the_deadline_only),
      cmocka_unit_test(a_stale_value_from_before_a_call_does_not_become_good_by_the_lease),
      cmocka_unit_test(who_began_after_the_ask_was_sent_looks_anew_together_with_the_others),
      cmocka_unit_test(a_published_value_is_for_those_whom_an_ask_has_confirmed_since),
      cmocka_unit_test(nor_for_those_who_came_after_the_ask_that_limits_it),
      cmocka_unit_test(its_owner_has_a_published_value_at_once_if_it_does_not_wait_for_the_store),
      cmocka_unit_test(a_lost_lease_sends_those_on_for_whom_nothing_was_confirmed),
      cmocka_unit_test(a_stale_answer_sends_those_to_look_whom_it_is_not_good_for),
      cmocka_unit_test(without_memory_there_is_no_entry),
      cmocka_unit_test(who_heeds_is_told_of_a_last_waiter_who_has_left_before),
      cmocka_unit_test(a_look_that_nobody_joins_has_no_entry),
      cmocka_unit_test(who_comes_during_a_first_look_joins_it),
      cmocka_unit_test(a_first_look_that_is_detached_is_joined_by_nobody),
      cmocka_unit_test(a_first_look_that_was_no_answer_goes_on_with_an_entry),
      cmocka_unit_test(a_crowd_leaves_nothing_behind),
  };
  return cmocka_run_group_tests_name("herd", tests, NULL, NULL);
}
