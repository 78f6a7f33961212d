/* fleet.c: one process of a fleet. Its main thread waits for the scheduled moment of each call and
 * gives it to a thread that is idle, or to a new one: so a call begins when the schedule says,
 * whatever became of the calls before it (an open loop). A balancer stands before the fleet: a call
 * goes to a process that is up. */
#include "weather.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "../kit.h"

enum { THREADS = 640, STACK = 512 * 1024 };

static world *here;
static int number;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t some = PTHREAD_COND_INITIALIZER;
static int queue[ARRIVALS], first, last; /* calls that no thread has yet */
static int threads, idle;

static void answer(arrival *a) {
  const board *b = here->board;
  int64_t due = b->begin_us + a->at_us;
  if (clock_us() - due >= here->plan->deadline_us) return;
  outcome o = guard_ask(a);
  atomic_store(&a->took_us, clock_us() - due);
  atomic_store(&a->outcome, (int)o);
}

static void *serve(void *arg) {
  (void)arg;
  for (;;) {
    pthread_mutex_lock(&mutex);
    for (idle++; first == last;) pthread_cond_wait(&some, &mutex);
    idle--;
    int at = queue[first++];
    pthread_mutex_unlock(&mutex);
    answer(&here->board->arrivals[at]);
  }
  return NULL;
}

static void hand_over(int at) {
  pthread_attr_t small;
  pthread_t thread;
  pthread_mutex_lock(&mutex);
  queue[last++] = at;
  int more = last - first > idle && threads < THREADS;
  threads += more;
  pthread_cond_signal(&some);
  pthread_mutex_unlock(&mutex);
  if (!more) return;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, STACK);
  if (pthread_create(&thread, &small, serve, NULL) != 0) die("no thread");
  pthread_attr_destroy(&small);
}

/* The process that a call goes to: by turns, or the next one that is up; -1: none is. */
static int process_for(int at) {
  int all = here->plan->processes;
  for (int i = 0; i < all; i++)
    if (atomic_load(&here->board->up[(at + i) % all])) return (at + i) % all;
  return -1;
}

/* A process that has just begun also takes the calls that nobody was there for. */
_Noreturn void fleet_process(world *w, int my_number) {
  board *b = w->board;
  here = w;
  number = my_number;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  guard_open(w, number);
  atomic_store(&b->up[number], 1);
  int64_t from = clock_us() - b->begin_us - w->plan->deadline_us;
  for (int at = 0; at < b->arrival_count; at++) {
    arrival *a = &b->arrivals[at];
    if (a->at_us < from) continue;
    sleep_until_us(b->begin_us + a->at_us);
    if (process_for(at) == number && atomic_exchange(&a->taken, 1) == 0) hand_over(at);
  }
  sleep_until_us(clock_us() + 2 * w->plan->deadline_us);
  _exit(0);
}
