/* herd_lab.c: many processes with many threads each on one store, and their records in memory
 * shared by all of them. */
#include "support/herd_lab.h"
#include "support/fork_kit.h"
#include "support/history_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { VALUE_LEN = 300 };

/* ---- time, counters ------------------------------------------------------------------------ */

int64_t lab_now_us(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

void lab_sleep_ms(int64_t ms) {
  struct timespec ts = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
  while (nanosleep(&ts, &ts) != 0 && errno == EINTR) continue;
}

void lab_sleep_until_us(int64_t until) {
  struct timespec ts = {.tv_sec = (time_t)(until / 1000000),
                        .tv_nsec = (long)(until % 1000000) * 1000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR) continue;
}

void lab_add(atomic_int *counter, int n) {
  atomic_fetch_add(counter, n);
  syscall(SYS_futex, counter, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

int lab_await_ms(atomic_int *counter, int least, int64_t ms) {
  int64_t until = lab_now_us() + ms * 1000;
  for (;;) {
    int seen = atomic_load(counter);
    int64_t left = until - lab_now_us();
    if (seen >= least) return 1;
    if (left <= 0) return 0;
    struct timespec ts = {.tv_sec = (time_t)(left / 1000000),
                          .tv_nsec = (long)(left % 1000000) * 1000};
    syscall(SYS_futex, counter, FUTEX_WAIT, seen, &ts, NULL, 0);
  }
}

static void raise_to(atomic_int *most, int value) {
  int seen = atomic_load(most);
  while (seen < value && !atomic_compare_exchange_weak(most, &seen, value)) continue;
}

static void raise_long(atomic_llong *most, long long value) {
  long long seen = atomic_load(most);
  while (seen < value && !atomic_compare_exchange_weak(most, &seen, value)) continue;
}

void lab_wrong(lab *l, const char *format, ...) {
  char text[sizeof l->wrong];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (atomic_fetch_add(&l->wrongs, 1) == 0) memcpy(l->wrong, text, sizeof text);
}

/* The name of a counter, for messages. */
static void describe(const lab *l, const atomic_int *counter, char *text, size_t size) {
  const char *at = (const char *)counter, *events = (const char *)l->events;
  if (at >= (const char *)l->marks && at < (const char *)(l->marks + LAB_MARKS)) {
    snprintf(text, size, "mark %d", (int)(counter - l->marks));
  } else if (at >= events && at < events + sizeof l->events) {
    size_t n = (size_t)(at - events) / sizeof *counter;
    snprintf(text, size, "event %s of process %zu",
             corral_event_name((corral_event)(n % CORRAL_EVENT_COUNT)), n / CORRAL_EVENT_COUNT);
  } else {
    snprintf(text, size, "a counter");
  }
}

void lab_await(lab *l, atomic_int *counter, int least) {
  char what[80];
  if (lab_await_ms(counter, least, LAB_PATIENCE_MS)) return;
  describe(l, counter, what, sizeof what);
  lab_wrong(l, "%s is %d and never came to %d", what, atomic_load(counter), least);
  if (getpid() != l->owner) _exit(3);
  fail_msg("%s", l->wrong);
}

void lab_meet(lab *l, atomic_int *counter, int count, int round) {
  lab_add(counter, 1);
  lab_await(l, counter, count * round);
}

/* ---- processes ----------------------------------------------------------------------------- */

typedef struct crew {
  lab *lab;
  int process;
} crew;

static void on_event(const corral_event_info *info, void *arg) {
  const crew *c = arg;
  /* a concurrent writer's text is kept instead */
  if (info->detail != NULL && !atomic_flag_test_and_set(&c->lab->writing)) {
    snprintf(c->lab->detail[info->event], sizeof c->lab->detail[info->event], "%s", info->detail);
    atomic_flag_clear(&c->lab->writing);
  }
  lab_add(&c->lab->events[c->process][info->event], 1);
}

static void (*run_body)(lab_seat *seat);

static void *sit(void *seat) {
  run_body(seat);
  return NULL;
}

static void work(lab *l, const lab_plan *plan, int process) {
  crew own = {.lab = l, .process = process};
  lab_seat background = {.lab = l, .process = process, .thread = -1};
  lab_work bound = {0};
  lab_seat *seats = calloc((size_t)plan->threads, sizeof *seats);
  pthread_t *threads = calloc((size_t)plan->threads, sizeof *threads);
  corral_options options = plan->options;
  corral_error error;
  corral *c = NULL;
  options.size = sizeof options;
  /* A busy machine must not look like a store that is away. */
  if (options.op_ms == 0) options.op_ms = 5000;
  options.store = plan->uri;
  options.on_event = on_event;
  options.event_arg = &own;
  if (plan->bound != NULL) {
    bound = *plan->bound;
    bound.seat = &background;
    options.compute = lab_compute;
    options.compute_arg = &bound;
  }
  run_body = plan->body;
  int failed = seats == NULL || threads == NULL;
  if (!failed && corral_open(&options, &c, &error) != CORRAL_OK) {
    lab_wrong(l, "corral_open(%s): %s", plan->uri, error.text);
    failed = 1;
  }
  for (int i = 0; !failed && i < plan->threads; i++) {
    seats[i] = (lab_seat){.lab = l, .corral = c, .process = process, .thread = i, .arg = plan->arg};
    if (pthread_create(&threads[i], NULL, sit, &seats[i]) != 0) _exit(4);
  }
  for (int i = 0; !failed && i < plan->threads; i++) pthread_join(threads[i], NULL);
  corral_close(c);
  free(seats);
  free(threads);
}

void lab_spawn(lab *l, const lab_plan *plan) {
  fflush(NULL);
  for (int i = 0; i < plan->processes; i++) {
    assert_true(l->count < LAB_PROCESSES);
    int process = l->count++;
    pid_t pid = fork_at_rest();
    assert_true(pid >= 0);
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != l->owner) _exit(1);
      if (plan->enter != NULL && !plan->enter()) _exit(77);
      work(l, plan, process);
      _exit(0);
    }
    l->pids[process] = pid;
  }
}

void lab_end(lab *l) {
  for (int i = 0; i < l->count; i++) {
    int status = 0;
    if (l->pids[i] == 0) continue;
    pid_t pid = waitpid(l->pids[i], &status, 0);
    l->pids[i] = 0;
    if (pid < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
      lab_wrong(l, "process %d ended with %s %d", i, WIFSIGNALED(status) ? "signal" : "status",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  }
  lab_judge(l);
  if (atomic_load(&l->wrongs) > 0) fail_msg("%d wrong: %s", atomic_load(&l->wrongs), l->wrong);
}

void lab_kill(lab *l, int process) {
  kill(l->pids[process], SIGKILL);
  waitpid(l->pids[process], NULL, 0);
  l->pids[process] = 0;
}

void lab_stop(lab *l, int process) {
  kill(l->pids[process], SIGSTOP);
  waitpid(l->pids[process], NULL, WUNTRACED);
}

void lab_continue(lab *l, int process) { kill(l->pids[process], SIGCONT); }

lab *lab_new(void) {
  lab *l = mmap(NULL, sizeof *l, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(l != MAP_FAILED);
  l->owner = getpid();
  room_folder(l->folder, "lab");
  return l;
}

void lab_free(lab *l) {
  for (int i = 0; i < l->count; i++)
    if (l->pids[i] != 0) lab_kill(l, i);
  pid_t pid = fork_at_rest();
  if (pid == 0) {
    execlp("rm", "rm", "-rf", l->folder, (char *)NULL);
    _exit(127);
  }
  if (pid > 0) waitpid(pid, NULL, 0);
  if (l->history != NULL) history_free(l->history);
  munmap(l, sizeof *l);
}

const char *lab_lmdb(const lab *l, const char *name) {
  static char uri[128];
  snprintf(uri, sizeof uri, "lmdb:%s/%s", l->folder, name);
  return uri;
}

lab *lab_room;

int lab_make_room(void **state) {
  (void)state;
  lab_room = lab_new();
  return 0;
}

int lab_leave_room(void **state) {
  (void)state;
  lab_free(lab_room);
  return 0;
}

/* ---- compute, ask -------------------------------------------------------------------------- */

size_t lab_key_name(char name[16], int key) { return (size_t)snprintf(name, 16, "key-%d", key); }

/* Writes "KEY NUMBER ", then fills the rest with the number's last digit. */
static void write_value(char value[VALUE_LEN], const char *key, int number) {
  int len = snprintf(value, VALUE_LEN, "%s %d ", key, number);
  memset(value + len, '0' + number % 10, (size_t)(VALUE_LEN - len));
}

static int read_value(lab *l, int key, const corral_value *value) {
  char name[16], expected[VALUE_LEN], text[40] = "";
  int number = 0;
  size_t len = lab_key_name(name, key);
  if (corral_value_size(value) == VALUE_LEN) {
    memcpy(text, corral_value_data(value), sizeof text - 1);
    if (strncmp(text, name, len) == 0) number = (int)strtol(text + len, NULL, 10);
  }
  write_value(expected, name, number);
  if (number > 0 && memcmp(expected, corral_value_data(value), VALUE_LEN) == 0) return number;
  lab_wrong(l, "%s has the value '%.38s' of %zu bytes", name, text, corral_value_size(value));
  return 0;
}

int lab_compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  lab_work *w = arg;
  lab *l = w->seat->lab;
  lab_key *k = &l->keys[w->key];
  char name[16], value[VALUE_LEN];
  int64_t before = lab_now_us();
  size_t len = lab_key_name(name, w->key);
  if (key_len != len || memcmp(key, name, len) != 0)
    lab_wrong(l, "compute of %s was given another key", name);
  int entry = atomic_fetch_add(&k->logged, 1);
  if (entry < LAB_LOG) atomic_store(&k->log[entry].begun_us, before);
  atomic_store(&k->begun_us, before);
  raise_to(&k->most, atomic_fetch_add(&k->now, 1) + 1);
  raise_to(&l->most_computing, atomic_fetch_add(&l->computing, 1) + 1);
  lab_add(&l->computing, 0);
  raise_to(&k->process_most[w->seat->process],
           atomic_fetch_add(&k->process_now[w->seat->process], 1) + 1);
  int number = atomic_fetch_add(&l->numbers, 1) + 1;
  size_t noted = lab_note(l, w->seat->process, HISTORY_COMPUTE, w->key, number);
  /* last, so that all the rest is visible to whoever awaits this counter */
  lab_add(&k->computes, 1);
  if (w->gate != NULL) lab_await(l, w->gate, 1);
  if (w->cost_ms > 0) lab_sleep_ms(w->cost_ms);
  write_value(value, name, number);
  if (w->failure != NULL && (w->broken == NULL || atomic_load(w->broken) > 0))
    corral_fill_fail(fill, 7, w->failure);
  else if (corral_fill_bytes(fill, value, sizeof value) != CORRAL_OK)
    lab_wrong(l, "corral_fill_bytes failed");
  if (w->version != 0) corral_fill_version(fill, w->version);
  if (w->tag != NULL && corral_fill_tag(fill, w->tag, strlen(w->tag)) != CORRAL_OK)
    lab_wrong(l, "corral_fill_tag failed");
  atomic_fetch_sub(&k->process_now[w->seat->process], 1);
  atomic_fetch_sub(&k->now, 1);
  atomic_fetch_sub(&l->computing, 1);
  lab_note_end(l, noted, NULL);
  int64_t after = lab_now_us();
  if (entry < LAB_LOG) atomic_store(&k->log[entry].ended_us, after);
  if (w->seat->thread >= 0) w->took_us = after - before;
  return CORRAL_OK;
}

static void read_answer(lab *l, int key, corral_value *value, lab_answer *answer) {
  if (answer->status != CORRAL_OK) return;
  answer->number = read_value(l, key, value);
  answer->how = corral_value_how(value);
  answer->kept = corral_value_kept(value);
  corral_value_unref(value);
}

lab_answer lab_ask(lab_seat *seat, const corral_policy *policy, lab_work *w) {
  char name[16];
  lab_answer answer = {0};
  corral_value *value = NULL;
  int64_t before = lab_now_us();
  w->seat = seat;
  w->took_us = 0;
  size_t noted = lab_note(seat->lab, seat->process, HISTORY_CALL, w->key, 0);
  answer.status = corral_get_or_compute(seat->corral, name, lab_key_name(name, w->key),
                                        CORRAL_CALL(.policy = policy, .error = &answer.error),
                                        lab_compute, w, &value);
  answer.took_us = lab_now_us() - before - w->took_us;
  answer.took_ms = answer.took_us / 1000;
  raise_long(&seat->lab->longest_ms, answer.took_ms);
  read_answer(seat->lab, w->key, value, &answer);
  lab_note_end(seat->lab, noted, &answer);
  return answer;
}

lab_answer lab_get(lab_seat *seat, const corral_policy *policy, int key) {
  char name[16];
  lab_answer answer = {0};
  corral_value *value = NULL;
  size_t len = lab_key_name(name, key);
  size_t noted = lab_note(seat->lab, seat->process, HISTORY_CALL, key, 0);
  int64_t before = lab_now_us();
  answer.status = corral_get(seat->corral, name, len,
                             CORRAL_CALL(.policy = policy, .error = &answer.error), &value);
  answer.took_us = lab_now_us() - before;
  answer.took_ms = answer.took_us / 1000;
  raise_long(&seat->lab->longest_ms, answer.took_ms);
  read_answer(seat->lab, key, value, &answer);
  lab_note_end(seat->lab, noted, &answer);
  return answer;
}

int lab_invalidate(lab *l, corral *c, int process, int key) {
  char name[16];
  lab_answer answer = {0};
  size_t noted = lab_note(l, process, HISTORY_INVALIDATE, key, atomic_load(&l->numbers) + 1);
  answer.status = corral_invalidate(c, name, lab_key_name(name, key), NULL);
  lab_note_end(l, noted, &answer);
  return answer.status;
}

lab_answer lab_look(lab *l, corral *c, int key) {
  char name[16];
  lab_answer answer = {0};
  corral_value *value = NULL;
  answer.status =
      corral_get(c, name, lab_key_name(name, key), CORRAL_CALL(.error = &answer.error), &value);
  read_answer(l, key, value, &answer);
  return answer;
}

void lab_agree(lab *l, int key, const lab_answer *answer) {
  int agreed = 0;
  if (answer->status != CORRAL_OK) {
    lab_wrong(l, "key-%d: %s: %s", key, corral_status_name(answer->status), answer->error.text);
  } else if (!atomic_compare_exchange_strong(&l->keys[key].agreed, &agreed, answer->number) &&
             agreed != answer->number) {
    lab_wrong(l, "key-%d: one caller has value %d, another %d", key, agreed, answer->number);
  }
}
