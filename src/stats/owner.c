/* owner.c: the process that has a stats file. */
#include "stats/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "stats/ring.h"

/* ---- the files of this process ------------------------------------------------------------- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static crl_stats_owned *files;

#ifdef CORRAL_CHECKS
static void check(crl_stats_owned *const *first) {
  crl_stats_owned *const *link = first;
  for (int left = CRL_CHECK_MOST; *link != NULL && left > 0; link = &(*link)->next, left--) {
    CRL_MUST((*link)->link == link, "stats: a file knows the link to it");
    CRL_MUST((*link)->fd >= 0, "stats: a file of this process is open");
  }
}
#endif

void crl_stats_files_lock(void) {
  pthread_mutex_lock(&mutex);
  CRL_CHECK(&files);
}

void crl_stats_files_unlock(void) {
  CRL_CHECK(&files);
  pthread_mutex_unlock(&mutex);
}

/* Memory of this process alone, zero, in place of the mapping. */
static void forget(crl_stats_block *block) {
  (void)mmap(block, sizeof *block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
             -1, 0);
}

/* The mapping holds the lock, as the descriptor does: the child has memory of its own instead, with
 * what was counted. */
static void part_from(crl_stats_block *block) {
  const size_t size = sizeof *block;
  void *own = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (own != MAP_FAILED) {
    memcpy(own, block, offsetof(crl_stats_block, parts));
    own = mremap(own, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, block);
  }
  if (own == MAP_FAILED) forget(block);
}

/* True unless the program has closed the descriptor, which may be that of another file by now. */
static int has_descriptor(const crl_stats_owned *owned) {
  struct stat st;
  return fstat(owned->fd, &st) == 0 && owned->dev == st.st_dev && owned->ino == st.st_ino;
}

static void in_child(void) {
  for (crl_stats_owned *file = files; file != NULL; file = file->next) {
    part_from(file->block);
    if (has_descriptor(file)) close(file->fd);
    file->fd = -1;
  }
  files = NULL;
  crl_stats_files_unlock();
}

__attribute__((constructor)) static void watch_forks(void) {
  pthread_atfork(crl_stats_files_lock, crl_stats_files_unlock, in_child);
}

void crl_stats_own_file(crl_stats_owned *owned, crl_stats_block *block, int fd,
                        const struct stat *st) {
  *owned = (crl_stats_owned){.block = block, .fd = fd, .dev = st->st_dev, .ino = st->st_ino};
  owned->next = files;
  owned->link = &files;
  if (owned->next != NULL) owned->next->link = &owned->next;
  files = owned;
  (void)futimens(fd, NULL);
}

/* All that holds the lock is gone before the next fork, whose child would keep it. */
void crl_stats_disown_file(crl_stats_owned *owned) {
  crl_stats_files_lock();
  *owned->link = owned->next;
  if (owned->next != NULL) owned->next->link = owned->link;
  if (has_descriptor(owned)) {
    (void)futimens(owned->fd, NULL);
    close(owned->fd);
  }
  owned->fd = -1;
  forget(owned->block);
  crl_stats_files_unlock();
}

int crl_stats_file_is_owned(int fd) {
  struct flock all = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
  return fcntl(fd, F_OFD_GETLK, &all) == 0 && all.l_type != F_UNLCK;
}

/* ---- signing ------------------------------------------------------------------------------- */

static uint64_t number_of(const crl_stats_block *block, crl_number number) {
  return atomic_load_explicit(&((crl_stats_block *)(uintptr_t)block)->numbers[number],
                              memory_order_relaxed);
}

static void set(crl_stats_block *block, crl_number number, uint64_t to) {
  atomic_store_explicit(&block->numbers[number], to, memory_order_relaxed);
}

static void turn(crl_stats_block *block) {
  atomic_fetch_add_explicit(&block->numbers[CRL_NUMBER_TURN], 1, memory_order_acq_rel);
}

void crl_stats_keep(crl_stats_block *block, crl_stats_sign *ret) {
  for (int i = 0; i < CORRAL_GAUGE_COUNT; i++)
    ret->gauges[i] = atomic_load_explicit(&block->gauges[i], memory_order_relaxed);
  memcpy(ret->cache, block->texts[CRL_TEXT_CACHE], CRL_TEXT_SIZE);
  memcpy(ret->store, block->texts[CRL_TEXT_STORE], CRL_TEXT_SIZE);
}

static void set_gauges(crl_stats_block *block, const int64_t *to) {
  for (int i = 0; i < CORRAL_GAUGE_COUNT; i++)
    atomic_store_explicit(&block->gauges[i], to == NULL ? 0 : to[i], memory_order_relaxed);
}

static int has_head(const crl_stats_block *block) { return block->head.preamble.size != 0; }

/* The last events of the former owner stay until others take their places. */
static void clean_parts(crl_stats_block *block) {
  memset(block->parts.FLIGHTS, 0, sizeof block->parts.FLIGHTS);
  memset(block->parts.HOT, 0, sizeof block->parts.HOT);
}

/* A reader that finds the first bytes finds all rows. */
static void set_head(crl_stats_block *block) {
  const crl_stats_head *head = crl_layout();
  memcpy(block->head.rows, head->rows, sizeof head->rows);
  atomic_thread_fence(memory_order_release);
  block->head.preamble = head->preamble;
}

void crl_stats_sign_block(crl_stats_block *block, const crl_stats_sign *kept, int is_file) {
  uint64_t id = number_of(block, CRL_NUMBER_ID);
  if (id == 0 && is_file) (void)crl_env_random(&id, sizeof id);
  if (number_of(block, CRL_NUMBER_TURN) % 2 != 0) turn(block); /* its taker died over it */
  turn(block);
  set(block, CRL_NUMBER_ID, id);
  set(block, CRL_NUMBER_PID, (uint64_t)getpid());
  set(block, CRL_NUMBER_STARTED, (uint64_t)crl_env_wall_ms());
  set(block, CRL_NUMBER_USER, geteuid());
  memcpy(block->texts[CRL_TEXT_CACHE], kept->cache, CRL_TEXT_SIZE);
  memcpy(block->texts[CRL_TEXT_STORE], kept->store, CRL_TEXT_SIZE);
  snprintf(block->texts[CRL_TEXT_PROGRAM], CRL_TEXT_SIZE, "%s", program_invocation_short_name);
  snprintf(block->texts[CRL_TEXT_VERSION], CRL_TEXT_SIZE, "%s", CORRAL_VERSION);
  set_gauges(block, kept->gauges);
  if (is_file && has_head(block)) clean_parts(block);
  if (is_file) crl_ring_reset((crl_ring *)(void *)block->parts.RING, (int64_t)getpid());
  turn(block);
  if (is_file && !has_head(block)) set_head(block);
}

void crl_stats_unsign_block(crl_stats_block *block) {
  turn(block);
  set(block, CRL_NUMBER_PID, 0);
  set_gauges(block, NULL);
  turn(block);
}
