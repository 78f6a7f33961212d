/* herd_lab.h: many processes with many threads each on one store, and their records in memory
 * shared by all of them.
 *
 *   lab *l = lab_new();
 *   lab_spawn(l, &(lab_plan){.uri = uri, .processes = 4, .threads = 50, .body = storm});
 *   lab_await(l, &l->marks[STARTED], 200);    waits for a counter, never for a time
 *   lab_end(l);                               waits for all; fails the test if one crashed or saw
 *                                             something wrong
 *   assert_int_equal(l->keys[0].computes, 1);
 *   lab_free(l);
 *
 * The processes are numbered in the order in which they were spawned. Each has one corral, shared
 * by its threads, whose events are counted in l->events. The processes die with the test. They
 * report errors by lab_wrong: a child can't use assertions. */
#ifndef TESTS_HERD_LAB_H
#define TESTS_HERD_LAB_H

#include <corral.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "support/room.h"

enum { LAB_PROCESSES = 36, LAB_KEYS = 32, LAB_MARKS = 16, LAB_LOG = 64, LAB_PATIENCE_MS = 30000 };

/* Counters of one key. */
typedef struct lab_key {
  atomic_int computes;  /* computes begun */
  atomic_int now, most; /* computes running in all processes; the largest such number */
  atomic_int process_now[LAB_PROCESSES], process_most[LAB_PROCESSES];
  atomic_int agreed;     /* number of the value that all callers must get: lab_agree */
  atomic_llong begun_us; /* start of the latest compute, lab_now_us */
  atomic_int logged;     /* computes in `log`, which has room for the first LAB_LOG */
  struct {
    atomic_llong begun_us, ended_us; /* 0: not yet */
  } log[LAB_LOG];
} lab_key;

typedef struct lab {
  pid_t owner, pids[LAB_PROCESSES]; /* 0: ended */
  int count;
  atomic_int marks[LAB_MARKS]; /* for the test's own use */
  atomic_int events[LAB_PROCESSES][CORRAL_EVENT_COUNT];
  lab_key keys[LAB_KEYS];
  /* running computes of all keys in all processes; the largest such number */
  atomic_int computing, most_computing;
  atomic_int numbers;      /* values made so far, which is the number of the latest */
  atomic_llong longest_ms; /* longest lab_ask, own computes excepted */
  atomic_int wrongs;
  char wrong[400]; /* text of the first error */
  /* detail of the latest event that had one; concurrent ones may be missed */
  char detail[CORRAL_EVENT_COUNT][160];
  atomic_flag writing;
  char folder[ROOM_PATH];  /* folder for files, removed by lab_free */
  struct history *history; /* NULL: not recorded; see lab_new_recorded in history_kit.h */
} lab;

/* A thread of a process. */
typedef struct lab_seat {
  lab *lab;
  corral *corral;
  int process, thread;
  void *arg;
} lab_seat;

typedef struct lab_plan {
  const char *uri;
  int processes, threads;
  corral_options options; /* the lab sets store, size and hook */
  /* work of the compute bound at open, for lab_get; NULL: none is bound */
  const struct lab_work *bound;
  /* called first in each process, to enter a container; it may go on in a child. 0: it can't be
   * done here, and the process ends with status 77. NULL: none */
  int (*enter)(void);
  void (*body)(lab_seat *seat);
  void *arg;
} lab_plan;

/* Work for lab_compute. */
typedef struct lab_work {
  int key;          /* index into lab->keys; the key's name is "key-N" */
  int64_t cost_ms;  /* duration of the compute */
  atomic_int *gate; /* the compute waits until this is 1 or more; NULL: doesn't wait */
  /* text of a failure with code 7; NULL: the compute fills a numbered value */
  const char *failure;
  atomic_int *broken; /* the compute fails only if this is 1 or more at its end; NULL: always */
  uint64_t version;   /* version of the value; 0: none */
  const char *tag;    /* tag of the value; NULL: none */
  lab_seat *seat;     /* set by lab_ask */
  int64_t took_us;    /* set by lab_compute */
} lab_work;

typedef struct lab_answer {
  int status, number; /* number of the value; 0: no value */
  corral_how how;
  corral_kept kept;
  corral_error error;
  int64_t took_ms, took_us; /* duration of the call, its own compute excepted */
} lab_answer;

lab *lab_new(void);
/* Setup and teardown of a test that needs only a lab's folder: lab_room. */
extern lab *lab_room;
int lab_make_room(void **state);
int lab_leave_room(void **state);
/* Kills the processes that still run. */
void lab_free(lab *l);
/* "lmdb:FOLDER/NAME"; static storage, until the next call. */
const char *lab_lmdb(const lab *l, const char *name);
void lab_spawn(lab *l, const lab_plan *plan);
void lab_end(lab *l);

/* SIGKILL, and waits for the end; SIGSTOP; SIGCONT. */
void lab_kill(lab *l, int process);
void lab_stop(lab *l, int process);
void lab_continue(lab *l, int process);

/* lab_add adds to a counter of the lab and wakes its waiters; lab_await waits until the counter is
 * at least `least`, at most LAB_PATIENCE_MS. */
void lab_add(atomic_int *counter, int n);
void lab_await(lab *l, atomic_int *counter, int least);
/* As lab_await; returns 0 when the counter doesn't reach `least` within `ms`. */
int lab_await_ms(atomic_int *counter, int least, int64_t ms);
/* Barrier: `count` callers wait for each other at this counter, for the `round`th time (from 1). */
void lab_meet(lab *l, atomic_int *counter, int count, int round);

int64_t lab_now_us(void);
void lab_sleep_ms(int64_t ms);
void lab_sleep_until_us(int64_t until); /* `until` as lab_now_us */
__attribute__((format(printf, 2, 3))) void lab_wrong(lab *l, const char *format, ...);

/* corral_get_or_compute of work->key with lab_compute; checks the answer. */
lab_answer lab_ask(lab_seat *seat, const corral_policy *policy, lab_work *work);
/* corral_get of key N with the plan's bound compute; checks the answer. */
lab_answer lab_get(lab_seat *seat, const corral_policy *policy, int key);
/* corral_invalidate of key N by a process of the lab, or by the test itself (process -1). */
int lab_invalidate(lab *l, corral *c, int process, int key);
/* corral_get of key N without a compute; not recorded. */
lab_answer lab_look(lab *l, corral *c, int key);
int lab_compute(corral_fill *fill, const void *key, size_t key_len, void *work);
/* Checks that all answers for this key have the same number. */
void lab_agree(lab *l, int key, const lab_answer *answer);
/* Writes the key's name; returns its length. */
size_t lab_key_name(char name[16], int key);

#endif
