/* watch.c: watches: changes, reported to all processes that share the file.
 *
 * Every process maps PATH-watch: a ring of the keys that changed (keys, because each process hashes
 * them with a secret of its own). A writer takes the next number, fills the slot of that number,
 * and writes the number into the slot. A watch reads on from its last position. A slot that is
 * half-done for longer than a moment (its writer was killed), or overwritten, is reported as "any
 * key may have changed". A writer that is killed after its commit and before it took a number
 * reports nothing: hints may be missing.
 *
 * A futex can't be polled together with a descriptor. So an open watch has a thread, its ear, which
 * waits at the futex, costs nothing while nothing happens, and makes an eventfd readable when
 * something does. `waiting` counts the ears that may be asleep, so that a writer need not ring when
 * there is none; a killed process leaves it too high, which costs each later write a system
 * call. */
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

enum { SLOTS = 4096, MOMENT = 1000, STACK = 256 << 10, WORDS = (CRL_LMDB_MAX_KEY + 7) / 8 };

/* A change. `proof`: the change's number, and part of the key's digest, so that a slot written by
 * two writers is recognized. Length 0: any key. */
typedef struct slot {
  _Atomic uint64_t proof, len, key[WORDS];
} slot;

/* Contents of PATH-watch; nothing in it is trusted. */
struct crl_lmdb_ring {
  _Atomic uint32_t head;    /* number of the next change */
  _Atomic uint32_t waiting; /* number of ears that may be asleep */
  _Atomic uint32_t bell;    /* the futex */
  uint32_t zero[13];
  slot slots[SLOTS];
};

typedef struct watch {
  crl_lmdb_env *env;
  const char *path;
  int64_t checked; /* host->now_ms when the path was last seen to lead to env; 0: to be checked */
  pid_t pid;
  int fd;
  pthread_t ear;
  atomic_int stop;
  uint32_t from; /* number of the first change after the watch was opened */
  uint32_t next; /* number of the first change that isn't reported yet */
} watch;

/* ---- the file ------------------------------------------------------------------------------ */

/* Writes every byte, so that no page of the mapping lacks room on the disk. */
static int make_room(int fd) {
  static const uint8_t zeros[4096];
  for (size_t at = 0; at < sizeof(crl_lmdb_ring); at += sizeof zeros) {
    size_t size =
        sizeof(crl_lmdb_ring) - at < sizeof zeros ? sizeof(crl_lmdb_ring) - at : sizeof zeros;
    ssize_t put = pwrite(fd, zeros, size, (off_t)at);
    if (put != (ssize_t)size) return put < 0 ? errno : ENOSPC;
  }
  return 0;
}

/* Makes the file in full under another name and renames it, so that no half-made file is ever
 * seen. */
static int make_file(const char *path, int shared, int *ret) {
  char made[PATH_MAX];
  size_t len = strlen(path);
  if (len + sizeof ".new" > sizeof made) return ENAMETOOLONG;
  memcpy(made, path, len);
  memcpy(made + len, ".new", sizeof ".new");
  if (unlink(made) != 0 && errno != ENOENT) return errno;
  int fd = open(made, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return errno;
  int code = make_room(fd);
  if (code == 0 && shared && fchmod(fd, 0660) != 0) code = errno;
  if (code == 0 && rename(made, path) != 0) code = errno;
  if (code == 0) {
    *ret = fd;
    return 0;
  }
  unlink(made);
  close(fd);
  return code;
}

static int open_file(const char *path, int shared, int *ret) {
  struct stat st;
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return errno == ENOENT ? make_file(path, shared, ret) : errno;
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == (off_t)sizeof(crl_lmdb_ring)) {
    *ret = fd;
    return 0;
  }
  close(fd);
  return EINVAL;
}

int crl_lmdb_ring_open(const crl_lmdb_files *f, crl_lmdb_ring **ret) {
  int fd = -1, code = open_file(f->watch, f->shared, &fd);
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

/* ---- reporting changes --------------------------------------------------------------------- */

static uint64_t proof_of(const corral_host *host, uint32_t number, const void *key, size_t len) {
  return (uint64_t)number << 32 | (uint32_t)corral_digest_number(host, key, len);
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen) {
  (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, NULL, NULL, 0);
}

static void ring_bell(crl_lmdb_ring *ring) {
  atomic_fetch_add(&ring->bell, 1);
  (void)syscall(SYS_futex, &ring->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void put(const crl_lmdb_env *env, const void *key, size_t len) {
  uint32_t number = atomic_fetch_add(&env->ring->head, 1);
  slot *s = &env->ring->slots[number % SLOTS];
  uint64_t words[WORDS] = {0};
  if (len > 0) memcpy(words, key, len);
  atomic_store_explicit(&s->len, len, memory_order_relaxed);
  for (size_t i = 0; i < (len + 7) / 8; i++)
    atomic_store_explicit(&s->key[i], words[i], memory_order_relaxed);
  atomic_store_explicit(&s->proof, proof_of(env->host, number, words, len), memory_order_release);
}

void crl_lmdb_note(const crl_lmdb_env *env, crl_lmdb_news *news, const void *key, size_t key_len) {
  if (env->ring == NULL || news->count > CRL_LMDB_NEWS) return;
  if (news->count == CRL_LMDB_NEWS || key_len > CRL_LMDB_MAX_KEY ||
      key_len > sizeof news->keys - news->used) {
    news->count = CRL_LMDB_NEWS + 1;
    return;
  }
  memcpy(news->keys + news->used, key, key_len);
  news->lens[news->count++] = (uint16_t)key_len;
  news->used += key_len;
}

void crl_lmdb_tell(crl_lmdb_env *env, const crl_lmdb_news *news) {
  crl_lmdb_ring *ring = env->ring;
  const uint8_t *key = news->keys;
  if (ring == NULL || news->count == 0) return;
  if (news->count > CRL_LMDB_NEWS) put(env, NULL, 0);
  for (size_t i = 0; i < news->count && news->count <= CRL_LMDB_NEWS; key += news->lens[i++])
    put(env, key, news->lens[i]);
  if (atomic_load(&ring->waiting) != 0) ring_bell(ring);
}

void crl_lmdb_tell_any(crl_lmdb_env *env) {
  if (env->ring == NULL) return;
  put(env, NULL, 0);
  ring_bell(env->ring);
}

/* ---- the ear ------------------------------------------------------------------------------- */

/* The ear's thread. A writer that puts a change after `head` was read here finds `waiting` raised,
 * and moves the bell on from `seen`. */
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

/* ---- a watch ------------------------------------------------------------------------------- */

int crl_lmdb_watch_open(crl_lmdb_env *env, const char *path, void **ret) {
  watch *w = calloc(1, sizeof *w);
  if (w == NULL) return ENOMEM;
  w->env = env;
  w->path = path;
  w->pid = getpid();
  w->from = w->next = atomic_load(&env->ring->head);
  w->fd = env->host->own_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  int code = w->fd < 0 ? errno : start_ear(w);
  if (code != 0) {
    if (w->fd >= 0) close(w->fd);
    free(w);
    return code;
  }
  *ret = w;
  return 0;
}

crl_lmdb_env *crl_lmdb_watch_close(void *watch_) {
  watch *w = watch_;
  crl_lmdb_env *env = w->env;
  if (w->pid == getpid()) { /* in a child of a fork there is no ear */
    atomic_store(&w->stop, 1);
    ring_bell(env->ring);
    pthread_join(w->ear, NULL);
  }
  close(w->fd);
  free(w);
  return env;
}

/* The hash of a changed key; 0: any key, or its slot has another change. */
static uint64_t read_slot(const crl_lmdb_env *env, uint32_t number) {
  slot *s = &env->ring->slots[number % SLOTS];
  uint64_t words[WORDS] = {0};
  for (int look = 0; look < MOMENT; look++) {
    uint64_t proof = atomic_load_explicit(&s->proof, memory_order_acquire);
    uint64_t len = atomic_load_explicit(&s->len, memory_order_relaxed);
    for (size_t i = 0; i < (len + 7) / 8 && i < WORDS; i++)
      words[i] = atomic_load_explicit(&s->key[i], memory_order_relaxed);
    int whole = (uint32_t)(proof >> 32) == number && len <= CRL_LMDB_MAX_KEY &&
                proof == proof_of(env->host, number, words, (size_t)len);
    if (whole) return len == 0 ? 0 : env->host->hash64(words, (size_t)len);
    /* a later change has overwritten it */
    if ((uint32_t)(proof >> 32) - number - 1 < INT32_MAX) return 0;
    sched_yield();
  }
  return 0;
}

/* Reports the new changes; 0: there were none. */
static int tell_new(watch *w, void (*told)(void *arg, uint64_t hash), void *arg) {
  crl_lmdb_ring *ring = w->env->ring;
  uint32_t head = atomic_load(&ring->head);
  if (head == w->next) return 0;
  uint64_t hash = head - w->next > SLOTS ? 0 : 1;
  while (w->next != head && hash != 0) {
    hash = read_slot(w->env, w->next++);
    if (hash != 0) told(arg, hash);
  }
  w->next = head;
  if (hash == 0) {
    told(arg, 0); /* for all the remaining changes */
    w->checked = 0;
  }
  return 1;
}

/* 1: the files were replaced, so nothing is reported here any more. Checks that every second, and
 * after any report of "any key". */
static int is_left(watch *w) {
  int64_t now = w->env->host->now_ms();
  if (w->checked != 0 && now - w->checked < CRL_LMDB_STALE_MS) return 0;
  w->checked = now;
  return !crl_lmdb_env_leads(w->env, w->path) || !crl_lmdb_env_whole(w->env);
}

int crl_lmdb_changes(void *watch_, int stop_fd, int64_t until,
                     void (*told)(void *arg, uint64_t hash), void *arg, corral_error *error) {
  watch *w = watch_;
  const corral_host *host = w->env->host;
  struct pollfd fds[] = {{.fd = w->fd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
  for (;;) {
    uint64_t rung;
    (void)!read(w->fd, &rung, sizeof rung);
    int is_told = tell_new(w, told, arg);
    if (is_left(w)) {
      told(arg, 0);
      return host->fail(error, CORRAL_EIO, "%.120s: removed or replaced", w->env->path);
    }
    if (is_told) return CORRAL_OK;
    int64_t left = until - host->now_ms();
    int ready = poll(fds, 2,
                     left <= 0                  ? 0
                     : left > CRL_LMDB_STALE_MS ? CRL_LMDB_STALE_MS
                                                : (int)left);
    if (ready < 0 && errno != EINTR)
      return host->fail(error, CORRAL_EIO, "%.120s: waiting for changes: %s", w->env->path,
                        strerror(errno));
    if (ready > 0 && fds[1].revents != 0) return CORRAL_OK;
    if (ready == 0 && left <= CRL_LMDB_STALE_MS) return CORRAL_OK;
  }
}
