/* lease.c: the leases of an LMDB store that belong to live processes.
 *
 * A process that is granted a lease locks one byte of PATH-lease, at an offset made from the
 * lease's token, before the record shows the lease, and unlocks it after the record no longer shows
 * it. The kernel drops the lock when the process ends, in whatever way; so a record that shows a
 * lease whose byte is unlocked is that of a dead process, and can be claimed at once. The offset
 * comes from the token, not from the key, so that two leases of one key (the first one ran out, and
 * its holder doesn't know yet) never share a byte.
 *
 * OFD locks belong to the open file description: one for each process and file, whatever its
 * threads do. It is closed at exec, and in a child of a fork by a handler (env.c), since a child
 * that kept it would keep its dead parent's leases alive. A child made by a bare clone or vfork
 * without exec does keep it: its parent's leases then end by time. */
#include "lmdb.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct crl_lmdb_lease {
  crl_lmdb_lease *next;
  int64_t until;
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

static int take_locked(crl_lmdb_leases *leases, const uint8_t *token, int64_t until, int *fresh) {
  crl_lmdb_lease *lease = *find(leases, token);
  if (lease != NULL) {
    if (until > lease->until) lease->until = until;
    return 0;
  }
  lease = malloc(sizeof *lease);
  if (lease == NULL) return ENOMEM;
  int rc = byte_set(leases->fd, F_WRLCK, offset_of(token));
  if (rc != 0) {
    free(lease);
    return rc;
  }
  memcpy(lease->token, token, CORRAL_TOKEN);
  lease->until = until;
  lease->next = *chain_of(leases, token);
  *chain_of(leases, token) = lease;
  *fresh = 1;
  return 0;
}

int crl_lmdb_lease_take(crl_lmdb_leases *leases, const uint8_t *token, int64_t until, int64_t now,
                        int *fresh) {
  *fresh = 0;
  pthread_mutex_lock(&leases->lock);
  int rc = take_locked(leases, token, until, fresh);
  forget_lapsed(leases, chain_of(leases, token), now);
  pthread_mutex_unlock(&leases->lock);
  return rc;
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

int crl_lmdb_leases_init(crl_lmdb_leases *leases, int fd) {
  memset(leases, 0, sizeof *leases);
  leases->fd = fd;
  return pthread_mutex_init(&leases->lock, NULL);
}

void crl_lmdb_leases_drop(crl_lmdb_leases *leases) {
  pthread_mutex_lock(&leases->lock);
  for (size_t i = 0; i < CRL_LMDB_LEASE_CHAINS; i++) {
    while (leases->chains[i] != NULL) forget(leases, &leases->chains[i]);
  }
  pthread_mutex_unlock(&leases->lock);
}

void crl_lmdb_leases_free(crl_lmdb_leases *leases) {
  crl_lmdb_leases_drop(leases);
  if (leases->fd >= 0) close(leases->fd);
  pthread_mutex_destroy(&leases->lock);
}

int crl_lmdb_gate_try(int fd) { return byte_set(fd, F_WRLCK, 0); }
void crl_lmdb_gate_leave(int fd) { (void)byte_set(fd, F_UNLCK, 0); }
