/* door.c: many may be inside at once, or one alone.
 *
 * As a rule nobody closes it: entering and leaving are an atomic addition each. */
#include "lmdb.h"

int crl_lmdb_door_init(crl_lmdb_door *door) {
  atomic_init(&door->inside, 0);
  int code = pthread_mutex_init(&door->lock, NULL);
  if (code != 0) return code;
  code = pthread_cond_init(&door->moved, NULL);
  if (code != 0) pthread_mutex_destroy(&door->lock);
  return code;
}

void crl_lmdb_door_free(crl_lmdb_door *door) {
  pthread_cond_destroy(&door->moved);
  pthread_mutex_destroy(&door->lock);
}

static void tell(crl_lmdb_door *door) {
  pthread_mutex_lock(&door->lock);
  pthread_cond_broadcast(&door->moved);
  pthread_mutex_unlock(&door->lock);
}

/* Waits, under the lock, until it is open, or with `inside` CLOSED until all have left. */
static void wait_while(crl_lmdb_door *door, uint32_t inside) {
  for (uint32_t now; (now = atomic_load(&door->inside)) >= CRL_LMDB_CLOSED && now != inside;)
    pthread_cond_wait(&door->moved, &door->lock);
}

void crl_lmdb_door_enter_late(crl_lmdb_door *door) {
  do {
    crl_lmdb_door_leave(door);
    pthread_mutex_lock(&door->lock);
    wait_while(door, 0);
    pthread_mutex_unlock(&door->lock);
  } while (atomic_fetch_add(&door->inside, 1) >= CRL_LMDB_CLOSED);
}

void crl_lmdb_door_last_left(crl_lmdb_door *door) { tell(door); }

void crl_lmdb_door_close(crl_lmdb_door *door) {
  pthread_mutex_lock(&door->lock);
  wait_while(door, 0);
  atomic_fetch_or(&door->inside, CRL_LMDB_CLOSED);
  wait_while(door, CRL_LMDB_CLOSED);
  pthread_mutex_unlock(&door->lock);
}

void crl_lmdb_door_open(crl_lmdb_door *door) {
  atomic_fetch_and(&door->inside, ~CRL_LMDB_CLOSED);
  tell(door);
}
