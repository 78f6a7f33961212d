/* env.c: clock, sleep, randomness, pid. The only file of the core that asks the system for them. */
#include "os/env.h"

#include <corral.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int64_t read_clock(clockid_t clock, int64_t per_second) {
  struct timespec ts;
  clock_gettime(clock, &ts);
  return (int64_t)ts.tv_sec * per_second + (int64_t)ts.tv_nsec / (1000000000 / per_second);
}

int64_t crl_env_now_ms(void) { return read_clock(CLOCK_MONOTONIC, 1000); }
int64_t crl_env_coarse_ms(void) { return read_clock(CLOCK_MONOTONIC_COARSE, 1000); }
int64_t crl_env_now_us(void) { return read_clock(CLOCK_MONOTONIC, 1000000); }
int64_t crl_env_boot_ms(void) { return read_clock(CLOCK_BOOTTIME, 1000); }
int64_t crl_env_wall_ms(void) { return read_clock(CLOCK_REALTIME, 1000); }
int64_t crl_env_wall_us(void) { return read_clock(CLOCK_REALTIME, 1000000); }

static struct timespec as_timespec(int64_t ms) {
  struct timespec ts = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
  return ts;
}

void crl_env_pause_us(int64_t us) {
  struct timespec ts = {us / 1000000, (long)(us % 1000000 * 1000)};
  nanosleep(&ts, NULL);
}

void crl_env_sleep_until(int64_t until) {
  struct timespec ts = as_timespec(until);
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
}

static _Atomic unsigned forks;

static void in_child(void) { atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed); }
/* Registered when the library is loaded: a fork in the middle of pthread_once would register the
 * handler twice. */
__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }

unsigned crl_env_forks(void) { return atomic_load_explicit(&forks, memory_order_relaxed); }

/* ---- randomness ---------------------------------------------------------------------------- */

static int ask_kernel(uint8_t *at, size_t size) {
  while (size > 0) {
    ssize_t n = getrandom(at, size, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return CORRAL_EIO;
    at += n;
    size -= (size_t)n;
  }
  return CORRAL_OK;
}

/* Random bytes of the kernel that this thread hasn't handed out yet: the first `left`. */
static _Thread_local struct {
  uint8_t bytes[256];
  size_t left;
  unsigned of; /* forks + 1 when they were drawn */
} drawn;

/* Bytes that are handed out are wiped. A forked child uses none of its parent's. */
int crl_env_random(void *buffer, size_t size) {
  unsigned of = crl_env_forks() + 1;
  if (size > sizeof drawn.bytes) return ask_kernel(buffer, size);
  if (drawn.of != of || drawn.left < size) {
    drawn.left = 0;
    if (ask_kernel(drawn.bytes, sizeof drawn.bytes) != CORRAL_OK) return CORRAL_EIO;
    drawn.left = sizeof drawn.bytes;
    drawn.of = of;
  }
  drawn.left -= size;
  memcpy(buffer, drawn.bytes + drawn.left, size);
  memset(drawn.bytes + drawn.left, 0, size);
  return CORRAL_OK;
}

static _Thread_local uint64_t dice;
static _Thread_local unsigned dice_of; /* forks + 1 when it was seeded */

/* A forked child takes a seed of its own. */
static void seed_dice(void) {
  uint64_t seed = 0;
  if (crl_env_random(&seed, sizeof seed) != CORRAL_OK) seed = (uint64_t)crl_env_now_us();
  dice = seed;
  dice_of = crl_env_forks() + 1;
}

uint64_t crl_env_dice(void) {
  if (dice_of != crl_env_forks() + 1) seed_dice();
  uint64_t x = dice += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

/* ---- the caller ---------------------------------------------------------------------------- */

/* The name of the calling thread: "host/pid/thread". */
static _Thread_local struct {
  char text[96];
  size_t of_process; /* length of "host/pid" */
  size_t len;
  unsigned of; /* forks + 1 when it was written */
} self;

static __attribute__((noinline)) void introduce_self(void) {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0) snprintf(name, sizeof name, "?");
  self.of_process =
      (size_t)snprintf(self.text, sizeof self.text, "%.48s/%ld", name, (long)getpid());
  self.len = self.of_process + (size_t)snprintf(self.text + self.of_process,
                                                sizeof self.text - self.of_process, "/%ld",
                                                (long)syscall(SYS_gettid));
  self.of = crl_env_forks() + 1;
}

static size_t put_self(char *text, size_t size, size_t len) {
  if (len >= size) len = size - 1;
  memcpy(text, self.text, len);
  text[len] = '\0';
  return len;
}

size_t crl_env_holder(char *text, size_t size) {
  if (self.of != crl_env_forks() + 1) introduce_self();
  return put_self(text, size, self.of_process);
}

size_t crl_env_holder_thread(char *text, size_t size) {
  if (self.of != crl_env_forks() + 1) introduce_self();
  return put_self(text, size, self.len);
}

void crl_env_cond_init(pthread_cond_t *cond) {
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(cond, &attr);
  pthread_condattr_destroy(&attr);
}

int crl_env_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until) {
  struct timespec ts = as_timespec(until);
  return pthread_cond_timedwait(cond, mutex, &ts) != ETIMEDOUT;
}

/* Where a long is shorter than a time, futex(2) has a second number, which takes the long times. */
static long futex_number(void) {
#ifdef SYS_futex_time64
  if (sizeof(time_t) > sizeof(long)) return SYS_futex_time64;
#endif
  return SYS_futex;
}

void crl_env_word_wait_bits(_Atomic uint32_t *word, uint32_t seen, uint32_t bits, int64_t until) {
  struct timespec ts = {.tv_sec = (time_t)(until / 1000),
                        .tv_nsec = (long)(until % 1000) * 1000000};
  syscall(futex_number(), word, FUTEX_WAIT_BITSET_PRIVATE, seen, until == INT64_MAX ? NULL : &ts,
          NULL, bits);
}

void crl_env_word_wait(_Atomic uint32_t *word, uint32_t seen, int64_t until) {
  crl_env_word_wait_bits(word, seen, FUTEX_BITSET_MATCH_ANY, until);
}

void crl_env_word_wake(_Atomic uint32_t *word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

int crl_env_word_wake_bits(_Atomic uint32_t *word, int count, uint32_t bits) {
  return (int)syscall(SYS_futex, word, FUTEX_WAKE_BITSET_PRIVATE, count, NULL, NULL, bits);
}

int crl_env_processors(void) {
  static _Atomic int known;
  int count = atomic_load_explicit(&known, memory_order_relaxed);
  if (count > 0) return count;
  count = (int)sysconf(_SC_NPROCESSORS_ONLN);
  atomic_store_explicit(&known, count > 0 ? count : 1, memory_order_relaxed);
  return count > 0 ? count : 1;
}

int crl_env_thread(pthread_t *thread, void *(*run)(void *), void *arg) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int error = pthread_create(thread, NULL, run, arg);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return error;
}

int crl_env_cancel_off(void) {
  int before = PTHREAD_CANCEL_ENABLE;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  return before;
}

void crl_env_cancel_as(int before) { pthread_setcancelstate(before, NULL); }

void crl_env_cancel_back(const int *before) { crl_env_cancel_as(*before); }

void crl_env_thread_name(const char *name) { pthread_setname_np(pthread_self(), name); }

int crl_env_own_fd(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), number = errno;
  close(fd);
  errno = number;
  return moved;
}

void crl_env_guard_standard(void) {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    int made = open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_NOCTTY);
    if (made > STDERR_FILENO) close(made); /* another thread has just taken `fd` */
  }
}
