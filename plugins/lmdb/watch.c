/* watch.c: changes, told to all processes that share the file.
 *
 * PATH-watch is mapped by each: a ring of the prints (digests, cut) of keys that changed. Each process has hashes of its own for keys, so a watch keeps
 * the prints of keys that were looked at to be told of, each with the key's hash here, until it is told: HEEDED of them; one more, and all are told
 * of and forgotten. A writer takes the next number, fills the slot of that number,
 * and says in the slot which number it is for. A watch reads from where it was; what it finds half-done for longer than a moment (its
 * writer was killed there), or overwritten, it tells as "any may have changed". A writer that is killed after its commit and before it
 * has a number tells nothing: a hint, as hints are, can be missing.
 *
 * A futex can't be polled together with a descriptor. So an open watch has a thread, its ear, which waits at the futex, costs nothing
 * while nothing happens, and makes an eventfd readable when something does. `waiting` counts the ears that may be asleep, so that
 * a writer need not ring where nobody listens; a killed process leaves it too high, which costs each later write a system call. */
#include "lmdb.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SLOTS = 4096, MOMENT = 1000, STACK = 256 << 10, HEEDED = 4096, PLACES = 2 * HEEDED };

/* `proof` is the slot's number, and the print folded to half of it: a slot of two writers is recognized. */
typedef struct slot {
  _Atomic uint64_t print, proof;
} slot;

/* What is in the file; nothing of it is trusted. */
struct crl_lmdb_ring {
  _Atomic uint32_t head;    /* the number of the next change */
  _Atomic uint32_t waiting; /* how many ears may be asleep */
  _Atomic uint32_t bell;    /* the futex */
  uint32_t zero[13];
  slot slots[SLOTS];
};

typedef struct heeded {
  uint64_t print, hash; /* print 0: nothing */
} heeded;

typedef struct crl_lmdb_watch {
  crl_lmdb_env *env;
  struct crl_lmdb_watch *next; /* of its env */
  pid_t pid;
  int fd;
  pthread_t ear;
  atomic_int stop;
  uint32_t from; /* the number of the first change after it was opened */
  uint32_t at;   /* that of the first that wasn't told yet */
  size_t count;  /* of places that are taken */
  int forgot;    /* there were too many */
  heeded places[PLACES];
} watch;

/* ---- the file -------------------------------------------------------------------------------------------- */

/* Every byte is written, so that no page of the mapping lacks room on the disk. */
static int make_room(int fd) {
  static const uint8_t zeros[4096];
  for (size_t at = 0; at < sizeof(crl_lmdb_ring); at += sizeof zeros) {
    size_t size = sizeof(crl_lmdb_ring) - at < sizeof zeros ? sizeof(crl_lmdb_ring) - at : sizeof zeros;
    ssize_t put = pwrite(fd, zeros, size, (off_t)at);
    if (put != (ssize_t)size) return put < 0 ? errno : ENOSPC;
  }
  return 0;
}

/* Made in full under another name, so that there never is half a one. */
static int make_file(const char *path, int *ret) {
  char made[PATH_MAX];
  size_t len = strlen(path);
  if (len + sizeof ".new" > sizeof made) return ENAMETOOLONG;
  memcpy(made, path, len);
  memcpy(made + len, ".new", sizeof ".new");
  if (unlink(made) != 0 && errno != ENOENT) return errno;
  int fd = open(made, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return errno;
  int code = make_room(fd);
  if (code == 0 && rename(made, path) != 0) code = errno;
  if (code == 0) {
    *ret = fd;
    return 0;
  }
  unlink(made);
  close(fd);
  return code;
}

static int open_file(const char *path, int *ret) {
  struct stat st;
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return errno == ENOENT ? make_file(path, ret) : errno;
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == (off_t)sizeof(crl_lmdb_ring)) {
    *ret = fd;
    return 0;
  }
  close(fd);
  return EINVAL;
}

int crl_lmdb_ring_open(const char *path, crl_lmdb_ring **ret) {
  int fd = -1, code = open_file(path, &fd);
  if (code != 0) return code;
  void *map = mmap(NULL, sizeof(crl_lmdb_ring), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  code = map == MAP_FAILED ? errno : 0;
  close(fd);
  if (code == 0) *ret = map;
  return code;
}

void crl_lmdb_ring_close(crl_lmdb_ring *ring) {
  if (ring != NULL) munmap(ring, sizeof *ring);
}

/* ---- telling --------------------------------------------------------------------------------------------- */

static uint64_t proof_of(uint32_t number, uint64_t print) { return (uint64_t)number << 32 | (uint32_t)(print ^ print >> 32); }

/* Never 0, which means any key. */
static uint64_t print_of(const corral_host *host, const void *key, size_t key_len) {
  uint64_t print = corral_digest_number(host, key, key_len);
  return print != 0 ? print : 1;
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen) {
  (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, NULL, NULL, 0);
}

static void ring_bell(crl_lmdb_ring *ring) {
  atomic_fetch_add(&ring->bell, 1);
  (void)syscall(SYS_futex, &ring->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void put(crl_lmdb_ring *ring, uint64_t print) {
  uint32_t number = atomic_fetch_add(&ring->head, 1);
  slot *s = &ring->slots[number % SLOTS];
  atomic_store_explicit(&s->print, print, memory_order_relaxed);
  atomic_store_explicit(&s->proof, proof_of(number, print), memory_order_release);
}

void crl_lmdb_note(const crl_lmdb_env *env, crl_lmdb_news *news, const void *key, size_t key_len) {
  if (env->ring == NULL || news->count > CRL_LMDB_NEWS) return;
  if (news->count < CRL_LMDB_NEWS) news->prints[news->count] = print_of(env->host, key, key_len);
  news->count++;
}

void crl_lmdb_tell(crl_lmdb_env *env, const crl_lmdb_news *news) {
  crl_lmdb_ring *ring = env->ring;
  if (ring == NULL || news->count == 0) return;
  if (news->count > CRL_LMDB_NEWS) put(ring, 0);
  for (size_t i = 0; i < news->count && news->count <= CRL_LMDB_NEWS; i++) put(ring, news->prints[i]);
  if (atomic_load(&ring->waiting) != 0) ring_bell(ring);
}

/* ---- what was looked at: under env->watch_lock ------------------------------------------------------------- */

static size_t home_of(const watch *w, uint64_t print) { return (size_t)w->env->host->hash64(&print, sizeof print) % PLACES; }

/* Where a print is, or would be. */
static heeded *find(watch *w, uint64_t print) {
  size_t at = home_of(w, print);
  while (w->places[at].print != 0 && w->places[at].print != print) at = (at + 1) % PLACES;
  return &w->places[at];
}

/* Takes one out; those behind it that would not be found any more move up. */
static void take_out(watch *w, heeded *gone) {
  size_t hole = (size_t)(gone - w->places);
  for (size_t at = (hole + 1) % PLACES; w->places[at].print != 0; at = (at + 1) % PLACES) {
    size_t home = home_of(w, w->places[at].print);
    if ((at + PLACES - home) % PLACES < (at + PLACES - hole) % PLACES) continue;
    w->places[hole] = w->places[at];
    hole = at;
  }
  w->places[hole].print = 0;
  w->count--;
}

static void heed(watch *w, uint64_t print, uint64_t hash) {
  static const uint64_t one = 1;
  heeded *place = find(w, print);
  if (place->print != 0) return;
  if (w->count == HEEDED) {
    memset(w->places, 0, sizeof w->places);
    w->count = 0;
    w->forgot = 1;
    (void)!write(w->fd, &one, sizeof one);
    place = find(w, print);
  }
  *place = (heeded){.print = print, .hash = hash};
  w->count++;
}

int crl_lmdb_heed(crl_lmdb_env *env, const void *key, size_t key_len) {
  if (atomic_load(&env->watches) == 0) return 0;
  uint64_t print = print_of(env->host, key, key_len), hash = env->host->hash64(key, key_len);
  pthread_mutex_lock(&env->watch_lock);
  int some = env->watch != NULL;
  for (watch *w = env->watch; w != NULL; w = w->next) heed(w, print, hash);
  pthread_mutex_unlock(&env->watch_lock);
  return some;
}

/* The hash of a key that was looked at; 0 when this one wasn't. It is told once. */
static uint64_t heeded_hash(watch *w, uint64_t print) {
  pthread_mutex_lock(&w->env->watch_lock);
  heeded *place = find(w, print);
  uint64_t hash = place->print != 0 ? place->hash : 0;
  if (place->print != 0) take_out(w, place);
  pthread_mutex_unlock(&w->env->watch_lock);
  return hash;
}

static int has_forgotten(watch *w) {
  pthread_mutex_lock(&w->env->watch_lock);
  int forgot = w->forgot;
  w->forgot = 0;
  pthread_mutex_unlock(&w->env->watch_lock);
  return forgot;
}

/* ---- the ear --------------------------------------------------------------------------------------------- */

/* Whoever puts a change after `head` was looked at here finds `waiting` raised, and turns the bell on from `seen`. */
static void *listen_on(void *arg) {
  static const uint64_t one = 1;
  watch *w = arg;
  crl_lmdb_ring *ring = w->env->ring;
  uint32_t heard = w->from;
  while (!atomic_load(&w->stop)) {
    atomic_fetch_add(&ring->waiting, 1);
    uint32_t seen = atomic_load(&ring->bell), head = atomic_load(&ring->head);
    if (head == heard && !atomic_load(&w->stop)) futex_wait(&ring->bell, seen);
    atomic_fetch_sub(&ring->waiting, 1);
    head = atomic_load(&ring->head);
    if (head != heard) (void)!write(w->fd, &one, sizeof one);
    heard = head;
  }
  return NULL;
}

static int start_ear(watch *w) {
  sigset_t all, old;
  pthread_attr_t attr;
  int code = pthread_attr_init(&attr);
  if (code != 0) return code;
  (void)pthread_attr_setstacksize(&attr, STACK);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  code = pthread_create(&w->ear, &attr, listen_on, w);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attr);
  return code;
}

/* ---- a watch --------------------------------------------------------------------------------------------- */

int crl_lmdb_watch_open(crl_lmdb_env *env, void **ret) {
  watch *w = calloc(1, sizeof *w);
  if (w == NULL) return ENOMEM;
  w->env = env;
  w->pid = getpid();
  w->from = w->at = atomic_load(&env->ring->head);
  w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  int code = w->fd < 0 ? errno : start_ear(w);
  if (code != 0) {
    if (w->fd >= 0) close(w->fd);
    free(w);
    return code;
  }
  pthread_mutex_lock(&env->watch_lock);
  w->next = env->watch;
  env->watch = w;
  pthread_mutex_unlock(&env->watch_lock);
  atomic_fetch_add(&env->watches, 1);
  *ret = w;
  return 0;
}

static void leave(watch *w) {
  pthread_mutex_lock(&w->env->watch_lock);
  watch **link = &w->env->watch;
  while (*link != w) link = &(*link)->next;
  *link = w->next;
  pthread_mutex_unlock(&w->env->watch_lock);
}

crl_lmdb_env *crl_lmdb_watch_close(void *watch_) {
  watch *w = watch_;
  crl_lmdb_env *env = w->env;
  if (w->pid == getpid()) { /* else it was inherited by a fork, and the ear wasn't */
    atomic_fetch_sub(&env->watches, 1);
    leave(w);
    atomic_store(&w->stop, 1);
    ring_bell(env->ring);
    pthread_join(w->ear, NULL);
  }
  close(w->fd);
  free(w);
  return env;
}

/* The print of one change; 0 when its slot tells of something else. */
static uint64_t read_slot(crl_lmdb_ring *ring, uint32_t number) {
  slot *s = &ring->slots[number % SLOTS];
  for (int look = 0; look < MOMENT; look++) {
    uint64_t proof = atomic_load_explicit(&s->proof, memory_order_acquire);
    uint64_t print = atomic_load_explicit(&s->print, memory_order_relaxed);
    if (proof == proof_of(number, print)) return print;
    if ((uint32_t)(proof >> 32) - number - 1 < INT32_MAX) return 0; /* overwritten by a later one */
    sched_yield();
  }
  return 0;
}

/* Whether there was something to tell. */
static int tell_new(watch *w, void (*told)(void *arg, uint64_t hash), void *arg) {
  crl_lmdb_ring *ring = w->env->ring;
  uint32_t head = atomic_load(&ring->head);
  int forgot = has_forgotten(w);
  if (head == w->at && !forgot) return 0;
  uint64_t print = forgot || head - w->at > SLOTS ? 0 : 1;
  while (w->at != head && print != 0) {
    print = read_slot(ring, w->at++);
    uint64_t hash = print != 0 ? heeded_hash(w, print) : 0;
    if (hash != 0) told(arg, hash);
  }
  w->at = head;
  if (print == 0) told(arg, 0); /* of all the others */
  return 1;
}

int crl_lmdb_changes(void *watch_, int stop_fd, int64_t until, void (*told)(void *arg, uint64_t hash), void *arg, corral_error *error) {
  watch *w = watch_;
  const corral_host *host = w->env->host;
  struct pollfd fds[] = {{.fd = w->fd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
  for (;;) {
    uint64_t rung;
    (void)!read(w->fd, &rung, sizeof rung);
    if (tell_new(w, told, arg)) return CORRAL_OK;
    int64_t left = until - host->now_ms();
    int ready = poll(fds, 2, left <= 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left);
    if (ready < 0 && errno != EINTR) return host->fail(error, CORRAL_EIO, "%.120s: waiting for changes: %s", w->env->path, strerror(errno));
    if (ready > 0 && fds[1].revents != 0) return CORRAL_OK;
    if (ready == 0 && left <= INT_MAX) return CORRAL_OK;
  }
}
