/* lease.c: the leases of an LMDB store, and the holds of locks, that belong to live processes.
 *
 * A process that is granted a lease locks one byte of PATH-lease, at an offset made from the
 * lease's token, before the record shows the lease, and unlocks it after the record no longer shows
 * it. The kernel drops the lock when the process ends, in whatever way; so a record that shows a
 * lease whose byte is unlocked is that of a dead process, and can be claimed at once. The offset
 * comes from the token, not from the key, so that two leases of one key (the first one ran out, and
 * its holder doesn't know yet) never share a byte.
 *
 * The same goes for a hold that is tied to its process (lock.c), but its byte outlasts the files: a
 * store that is opened anew, or leaves files that were replaced, may still have holders who
 * believe. While one has a byte, the descriptor stays open, until the last store of the process is
 * closed: then nobody believes.
 *
 * OFD locks belong to the open file description: one for each process and file, whatever its
 * threads do. It is closed at exec, and in a child of a fork by a handler (env.c), since a child
 * that kept it would keep its dead parent's leases alive. A child made by a bare clone or vfork
 * without exec does keep it: its parent's leases then end by time.
 *
 * A mapping refers to the open file description, too. It is never read: with it the bytes stay
 * locked when a program closes all its descriptors, as daemons do. Children of a fork don't have
 * it. An overlay's mappings refer to other files, and there it is of no use. */
#include "lmdb.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 1 };

struct crl_lmdb_lease {
  crl_lmdb_lease *next;
  int64_t until;
  int is_hold; /* of a lock */
  uint8_t token[CORRAL_TOKEN];
};

static struct flock byte_lock(short type, int64_t offset) {
  struct flock lock;
  memset(&lock, 0, sizeof lock);
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = offset;
  lock.l_len = 1;
  return lock;
}

static int byte_set(int fd, short type, int64_t offset) {
  struct flock lock = byte_lock(type, offset);
  int rc;
  do rc = fcntl(fd, F_OFD_SETLK, &lock);
  while (rc != 0 && errno == EINTR);
  return rc == 0 ? 0 : errno == EACCES ? EAGAIN : errno;
}

/* Offset of a token's byte; byte 0 is the gate. Tokens are random, so 62 bits of one identify it
 * well enough. */
static int64_t offset_of(const uint8_t *token) {
  uint64_t number;
  memcpy(&number, token, sizeof number);
  return (int64_t)(number >> 2) + 1;
}

static crl_lmdb_lease **chain_of(crl_lmdb_leases *leases, const uint8_t *token) {
  return &leases->chains[token[CORRAL_TOKEN - 1] % CRL_LMDB_LEASE_CHAINS];
}

static crl_lmdb_lease **find(crl_lmdb_leases *leases, const uint8_t *token) {
  crl_lmdb_lease **at = chain_of(leases, token);
  while (*at != NULL && memcmp((*at)->token, token, CORRAL_TOKEN) != 0) at = &(*at)->next;
  return at;
}

static void forget(crl_lmdb_leases *leases, crl_lmdb_lease **at) {
  crl_lmdb_lease *gone = *at;
  (void)byte_set(leases->fd, F_UNLCK, offset_of(gone->token));
  *at = gone->next;
  free(gone);
}

/* Unlocks the bytes of leases that were never ended and are over by time. */
static void forget_lapsed(crl_lmdb_leases *leases, crl_lmdb_lease **at, int64_t now) {
  while (*at != NULL) {
    if ((*at)->until < now)
      forget(leases, at);
    else
      at = &(*at)->next;
  }
}

static int take_locked(crl_lmdb_leases *leases, const crl_lmdb_lease *wanted, int *fresh) {
  crl_lmdb_lease *lease = *find(leases, wanted->token);
  if (lease != NULL) {
    if (wanted->until > lease->until) lease->until = wanted->until;
    return 0;
  }
  lease = malloc(sizeof *lease);
  if (lease == NULL) return ENOMEM;
  int rc = byte_set(leases->fd, F_WRLCK, offset_of(wanted->token));
  if (rc != 0) {
    free(lease);
    return rc;
  }
  *lease = *wanted;
  lease->next = *chain_of(leases, lease->token);
  *chain_of(leases, lease->token) = lease;
  *fresh = 1;
  return 0;
}

static int take(crl_lmdb_leases *leases, const crl_lmdb_lease *wanted, int64_t now, int *fresh) {
  *fresh = 0;
  pthread_mutex_lock(&leases->lock);
  int rc = take_locked(leases, wanted, fresh);
  forget_lapsed(leases, chain_of(leases, wanted->token), now);
  pthread_mutex_unlock(&leases->lock);
  return rc;
}

int crl_lmdb_lease_take(crl_lmdb_leases *leases, const uint8_t *token, int64_t until, int64_t now,
                        int *fresh) {
  crl_lmdb_lease wanted = {.until = until};
  memcpy(wanted.token, token, CORRAL_TOKEN);
  return take(leases, &wanted, now, fresh);
}

int crl_lmdb_lease_hold(crl_lmdb_leases *leases, const uint8_t *token, int64_t until, int64_t now,
                        int *fresh) {
  crl_lmdb_lease wanted = {.until = until, .is_hold = 1};
  memcpy(wanted.token, token, CORRAL_TOKEN);
  return take(leases, &wanted, now, fresh);
}

void crl_lmdb_lease_drop(crl_lmdb_leases *leases, const uint8_t *token) {
  pthread_mutex_lock(&leases->lock);
  crl_lmdb_lease **at = find(leases, token);
  if (*at != NULL) forget(leases, at);
  pthread_mutex_unlock(&leases->lock);
}

int crl_lmdb_lease_alive(crl_lmdb_leases *leases, const uint8_t *token) {
  pthread_mutex_lock(&leases->lock);
  int mine = *find(leases, token) != NULL;
  pthread_mutex_unlock(&leases->lock);
  if (mine) return 1;
  struct flock lock = byte_lock(F_WRLCK, offset_of(token));
  /* on a file system that can't tell, leases end by time */
  return fcntl(leases->fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static void unmap(crl_lmdb_leases *leases) {
  if (leases->page != MAP_FAILED) (void)munmap(leases->page, PAGE);
  leases->page = MAP_FAILED;
}

int crl_lmdb_leases_init(crl_lmdb_leases *leases, int fd) {
  memset(leases, 0, sizeof *leases);
  int code = pthread_mutex_init(&leases->lock, NULL);
  if (code != 0) return code;
  leases->fd = fd;
  leases->page = mmap(NULL, PAGE, PROT_NONE, MAP_SHARED, fd, 0);
  if (leases->page != MAP_FAILED && madvise(leases->page, PAGE, MADV_DONTFORK) != 0) unmap(leases);
  return 0;
}

void crl_lmdb_leases_drop(crl_lmdb_leases *leases) {
  pthread_mutex_lock(&leases->lock);
  for (size_t i = 0; i < CRL_LMDB_LEASE_CHAINS; i++) {
    for (crl_lmdb_lease **at = &leases->chains[i]; *at != NULL;) {
      if ((*at)->is_hold)
        at = &(*at)->next;
      else
        forget(leases, at);
    }
  }
  pthread_mutex_unlock(&leases->lock);
}

/* A descriptor that stays open, with its mapping, for the holds of files that were closed. */
typedef struct kept {
  struct kept *next;
  int fd;
  void *page;
} kept;

static kept *all_kept;
static size_t stores; /* of this process that are open */

/* Without memory for it, a child has the descriptor, too, and its parent's holds end by time. */
static void keep(const crl_lmdb_leases *leases) {
  kept *it = malloc(sizeof *it);
  if (it == NULL) return;
  *it = (kept){.next = all_kept, .fd = leases->fd, .page = leases->page};
  all_kept = it;
}

static void close_kept(void) {
  for (kept *next, *it = all_kept; it != NULL; it = next) {
    next = it->next;
    if (it->page != MAP_FAILED) (void)munmap(it->page, PAGE);
    close(it->fd);
    free(it);
  }
  all_kept = NULL;
}

/* The mappings aren't in a child; its parent's stores are of no use to it. */
void crl_lmdb_leases_in_child(void) {
  for (kept *it = all_kept; it != NULL; it = it->next) it->page = MAP_FAILED;
  close_kept();
  stores = 0;
}

void crl_lmdb_leases_store(int opens) {
  if (opens)
    stores++;
  else if (stores > 0 && --stores == 0)
    close_kept();
}

void crl_lmdb_leases_free(crl_lmdb_leases *leases, int64_t now) {
  size_t holds = 0;
  crl_lmdb_leases_drop(leases);
  for (size_t i = 0; i < CRL_LMDB_LEASE_CHAINS; i++) {
    forget_lapsed(leases, &leases->chains[i], now);
    for (crl_lmdb_lease *next, *at = leases->chains[i]; at != NULL; at = next, holds++) {
      next = at->next;
      free(at);
    }
  }
  if (holds == 0) unmap(leases);
  if (leases->fd >= 0 && holds == 0) close(leases->fd);
  if (leases->fd >= 0 && holds > 0) keep(leases);
  pthread_mutex_destroy(&leases->lock);
}

void crl_lmdb_leases_ended(crl_lmdb_leases *leases, const corral_batch *batch,
                           const uint8_t *fresh) {
  for (size_t i = 0; i < batch->count; i++) {
    const corral_op *op = corral_batch_op(batch, i);
    int ends = op->verb == CORRAL_VERB_SETTLE || op->verb == CORRAL_VERB_RELEASE ||
               op->verb == CORRAL_VERB_RENEW || op->verb == CORRAL_VERB_UNLOCK ||
               (op->flags & CORRAL_OP_LOOSE) != 0;
    int lasts = op->verb == CORRAL_VERB_EXTEND || op->verb == CORRAL_VERB_LOCK_EXTEND;
    int is_lost = op->status == CORRAL_ELOST && (ends || lasts);
    /* a LOCK that was refused may have a place in the queue */
    int in_vain = fresh[i] && op->status != CORRAL_OK && op->verb != CORRAL_VERB_LOCK;
    if (is_lost || in_vain || (ends && op->status == CORRAL_OK))
      crl_lmdb_lease_drop(leases, op->token);
  }
}

int crl_lmdb_gate_try(int fd) { return byte_set(fd, F_WRLCK, 0); }
void crl_lmdb_gate_leave(int fd) { (void)byte_set(fd, F_UNLCK, 0); }
