/* lock_record.h: the record of a user's lock, and the effect of each verb on it. Pure: no I/O, no
 * clock, no memory. The format: plugin.h. */
#ifndef CRL_LOCK_RECORD_H
#define CRL_LOCK_RECORD_H

#include <corral/plugin.h>

/* The head of a record; its holds are read one by one. */
typedef struct crl_lock_head {
  size_t count;
  uint64_t fence;
  int64_t wish_until;
  int64_t turn_until; /* of the first place in the queue; 0: none */
} crl_lock_head;

/* CORRAL_EFOREIGN when the bytes are no lock's record. */
int crl_lock_record_read(const uint8_t *record, size_t size, crl_lock_head *head);
/* Hold or place number `at` of a record that crl_lock_record_read accepted. */
void crl_lock_record_hold(const uint8_t *record, size_t at, corral_hold *hold);
/* 1: no hold, but a place in the queue for one. */
static inline int crl_lock_record_waits(const corral_hold *hold) {
  return hold->mode >= CORRAL_LOCK_WAITING;
}
/* corral_host.lock_write and corral_host.lock_decide; see plugin.h. */
void crl_lock_record_write(uint64_t fence, const corral_hold *holds, size_t count, uint8_t *record);
void crl_lock_record_decide(corral_op *op, const uint8_t *record, size_t size, int64_t now,
                            uint64_t floor, uint8_t *room, corral_lock_change *change);

#endif
