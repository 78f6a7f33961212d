/* herd_lab.h: many processes with many threads each on one store, and what they did, in memory that
 * all of them share.
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
 * by its threads, whose events are counted in l->events. They die with the test. What they find
 * wrong they tell by lab_wrong: a child can't use assertions. */
#ifndef TESTS_HERD_LAB_H
#define TESTS_HERD_LAB_H

#include <corral.h>
#include <stdatomic.h>
#include <sys/types.h>

enum { LAB_PROCESSES = 8, LAB_KEYS = 32, LAB_MARKS = 16, LAB_LOG = 64, LAB_PATIENCE_MS = 12000 };

/* What happened to one key. */
typedef struct lab_key {
  atomic_int computes;  /* begun */
  atomic_int now, most; /* at a time, anywhere */
  atomic_int process_now[LAB_PROCESSES], process_most[LAB_PROCESSES];
  atomic_int agreed;     /* the number of the value that all callers must have: lab_agree */
  atomic_llong begun_us; /* when the latest compute began: lab_now_us */
  atomic_int logged;     /* computes in the log; the first LAB_LOG of them */
  struct {
    atomic_llong begun_us, ended_us; /* 0: not yet */
  } log[LAB_LOG];
} lab_key;

typedef struct lab {
  pid_t owner, pids[LAB_PROCESSES]; /* 0: gone */
  int count;
  atomic_int marks[LAB_MARKS]; /* the test's own */
  atomic_int events[LAB_PROCESSES][CORRAL_EVENT_COUNT];
  lab_key keys[LAB_KEYS];
  atomic_int computing, most_computing; /* of all keys at a time, anywhere */
  atomic_int numbers;                   /* values made so far; the latest one's number */
  atomic_llong longest_ms;              /* of all lab_ask, their own computes excepted */
  atomic_int wrongs;
  char wrong[400];                      /* the first of them */
  char detail[CORRAL_EVENT_COUNT][160]; /* of the latest event that had one, about */
  atomic_flag writing;
  char folder[40]; /* for files; removed by lab_free */
} lab;

/* One thread of one process. */
typedef struct lab_seat {
  lab *lab;
  corral *corral;
  int process, thread;
  void *arg;
} lab_seat;

typedef struct lab_plan {
  const char *uri;
  int processes, threads;
  corral_options options; /* store, size and hook are the lab's */
  /* the compute bound at open does this, for lab_get; NULL: none is bound */
  const struct lab_work *bound;
  void (*body)(lab_seat *seat);
  void *arg;
} lab_plan;

/* What lab_compute shall do. */
typedef struct lab_work {
  int key;          /* of lab->keys: the key's name is "key-N" */
  int64_t cost_ms;  /* how long it takes */
  atomic_int *gate; /* it goes on when this is 1 or more; NULL: at once */
  /* it fails with this text and code 7; NULL: it fills a value that has a number */
  const char *failure;
  atomic_int *broken; /* it fails only if this is 1 or more at its end; NULL: always */
  uint64_t version;   /* of the value; 0 none */
  const char *tag;    /* of the value; NULL none */
  lab_seat *seat;     /* set by lab_ask */
  int64_t took_us;    /* set by lab_compute */
} lab_work;

typedef struct lab_answer {
  int status, number; /* number: of the value; 0 none */
  corral_how how;
  corral_kept kept;
  corral_error error;
  int64_t took_ms, took_us; /* the call, its own compute excepted */
} lab_answer;

lab *lab_new(void);
/* Setup and teardown of a test that needs no more than a lab's folder: lab_room. */
extern lab *lab_room;
int lab_make_room(void **state);
int lab_leave_room(void **state);
/* Kills who still lives. */
void lab_free(lab *l);
/* "lmdb:FOLDER/NAME"; static storage, until the next call. */
const char *lab_lmdb(const lab *l, const char *name);
void lab_spawn(lab *l, const lab_plan *plan);
void lab_end(lab *l);

/* kill -9, and gone; stopped; going on. */
void lab_kill(lab *l, int process);
void lab_stop(lab *l, int process);
void lab_continue(lab *l, int process);

/* Adds to a counter of the lab and wakes who awaits it; waits until it is at least `least`, at most
 * LAB_PATIENCE_MS. */
void lab_add(atomic_int *counter, int n);
void lab_await(lab *l, atomic_int *counter, int least);
/* The same; 0 when it didn't come within `ms`. */
int lab_await_ms(atomic_int *counter, int least, int64_t ms);
/* All `count` callers wait for each other, for the `round`th time (from 1) at this counter. */
void lab_meet(lab *l, atomic_int *counter, int count, int round);

int64_t lab_now_us(void);
void lab_sleep_ms(int64_t ms);
void lab_sleep_until_us(int64_t until); /* of lab_now_us */
__attribute__((format(printf, 2, 3))) void lab_wrong(lab *l, const char *format, ...);

/* Asks for work->key by corral_get_or_compute with lab_compute; what it gets is checked. */
lab_answer lab_ask(lab_seat *seat, const corral_policy *policy, lab_work *work);
/* Asks for key N by corral_get, with the plan's bound compute; what it gets is checked. */
lab_answer lab_get(lab_seat *seat, const corral_policy *policy, int key);
/* Looks for key N by corral_get. */
lab_answer lab_look(lab *l, corral *c, int key);
int lab_compute(corral_fill *fill, const void *key, size_t key_len, void *work);
/* All answers for this key must have the same number. */
void lab_agree(lab *l, int key, const lab_answer *answer);
/* The key's name, into room for 16; returns its length. */
size_t lab_key_name(char name[16], int key);

#endif
