/* ticket.c: tickets, by which a hold goes to another process.
 *
 *   lock1-x-<fencing token and token of the hold>-<check>     all in hex; "s" for a shared hold,
 *                                                             "p" for a permit
 *
 * The check covers the lock's key in the store: a ticket of another name, or of another namespace,
 * isn't accepted. Taking over changes the hold's token in the store, so of several who have the
 * ticket one alone gets the hold, and its earlier holder can neither extend nor end it. */
#include "locks/lock.h"

#include <stdio.h>

#include "base/status.h"
#include "os/hash.h"

enum {
  FENCE = 8,
  TOLD = FENCE + CORRAL_TOKEN, /* bytes of both tokens */
  CHECK = 8,
  AT_MODE = 6,
  AT_TOLD = AT_MODE + 2,
  AT_CHECK = AT_TOLD + 2 * TOLD + 1,
  LENGTH = AT_CHECK + 2 * CHECK
};
_Static_assert(LENGTH < CORRAL_LOCK_TICKET, "a ticket has room for its end");

static void write_hex(const uint8_t *bytes, size_t count, char *text) {
  for (size_t i = 0; i < count; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

static int read_hex(const char *text, size_t count, uint8_t *bytes) {
  static const char digits[] = "0123456789abcdef";
  for (size_t i = 0; i < count; i++) {
    const char *high = strchr(digits, text[2 * i]), *low = strchr(digits, text[2 * i + 1]);
    if (high == NULL || low == NULL) return 0;
    bytes[i] = (uint8_t)((high - digits) << 4 | (low - digits));
  }
  return 1;
}

static char letter_of(int mode) {
  return mode == CORRAL_LOCK_SHARED ? 's' : mode == CORRAL_LOCK_PERMIT ? 'p' : 'x';
}

static int mode_of(char letter) {
  return letter == 's'   ? CORRAL_LOCK_SHARED
         : letter == 'p' ? CORRAL_LOCK_PERMIT
                         : CORRAL_LOCK_EXCLUSIVE;
}

static void write_ticket(const crl_hold *hold, const crl_ticket *ticket,
                         char text[CORRAL_LOCK_TICKET]) {
  uint8_t told[TOLD], digest[CRL_DIGEST];
  crl_digester digester;
  for (size_t i = 0; i < FENCE; i++) told[i] = (uint8_t)(ticket->fence >> (56 - 8 * i));
  memcpy(told + FENCE, ticket->token, CORRAL_TOKEN);
  snprintf(text, CORRAL_LOCK_TICKET, "lock1-%c-", letter_of(ticket->mode));
  write_hex(told, TOLD, text + AT_TOLD);
  crl_digester_begin(&digester);
  crl_digester_add(&digester, text, AT_CHECK - 1);
  crl_digester_add(&digester, hold->key.stored, hold->key.stored_len);
  crl_digester_end(&digester, digest);
  text[AT_CHECK - 1] = '-';
  write_hex(digest, CHECK, text + AT_CHECK);
}

int crl_ticket_read(const crl_hold *hold, const char *text, crl_ticket *ret, corral_error *error) {
  char again[CORRAL_LOCK_TICKET];
  uint8_t told[TOLD];
  *ret = (crl_ticket){.fence = 0};
  if (strnlen(text, CORRAL_LOCK_TICKET) == LENGTH && read_hex(text + AT_TOLD, TOLD, told)) {
    for (size_t i = 0; i < FENCE; i++) ret->fence = ret->fence << 8 | told[i];
    memcpy(ret->token, told + FENCE, CORRAL_TOKEN);
    ret->mode = mode_of(text[AT_MODE]);
    write_ticket(hold, ret, again);
    if (strcmp(text, again) == 0) return CORRAL_OK;
  }
  return crl_status_fail(error, CORRAL_EINVAL,
                         "not a ticket of this lock: it is of another name or namespace, or not as "
                         "it was given out");
}

int crl_ticket_check(const crl_context *context, corral_error *error) {
  if (crl_pool_info(context->pool)->adopts) return CORRAL_OK;
  return crl_status_fail(error, CORRAL_EUNSUPPORTED,
                         "a hold of this store belongs to the process that took it, and can't be "
                         "handed over");
}

int corral_lock_ticket(corral_lock *lock, char ticket[CORRAL_LOCK_TICKET], corral_error *error) {
  int status = crl_lock_check_held(lock, "corral_lock_ticket", error);
  if (status == CORRAL_OK && ticket == NULL)
    status = crl_status_fail(error, CORRAL_EINVAL, "corral_lock_ticket: no ticket");
  if (status == CORRAL_OK) status = crl_ticket_check(lock->hold->context, error);
  if (status == CORRAL_OK) status = crl_lock_untie(lock, error);
  if (status != CORRAL_OK) return status;
  const crl_hold *hold = lock->hold;
  int shared = atomic_load(&((crl_hold *)(uintptr_t)hold)->entry.shared);
  crl_ticket told = {.fence = hold->fence,
                     .mode = hold->is_permit ? CORRAL_LOCK_PERMIT
                             : shared        ? CORRAL_LOCK_SHARED
                                             : CORRAL_LOCK_EXCLUSIVE};
  memcpy(told.token, hold->token, CORRAL_TOKEN);
  write_ticket(hold, &told, ticket);
  return CORRAL_OK;
}
