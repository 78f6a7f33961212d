/* hit.h: the first look of a call, by as little as a hit needs: no run, no entry in the herd unless
 * another call comes meanwhile, no copy of the key where it is stored as it is, and one allocation.
 *
 * Whatever is no plain hit goes on as a join (run.h), with what was found. */
#ifndef CRL_HIT_H
#define CRL_HIT_H

#include "record/envelope.h"
#include "run/run.h"

enum { CRL_HIT_KEY = 128 }; /* bytes of a stored key, where it isn't the user's own */

/* Not zeroed, but for `key`; it must not be moved. */
typedef struct crl_hit {
  crl_context *context;
  const crl_call *call;
  crl_name name;
  int64_t now, deadline; /* of the call's beginning; of its wait_ms */
  int64_t began_us;      /* crl_env_now_us */
  uint64_t hash;         /* crl_context_cost_hash */
  int early;             /* a fresh value was found, and is to be rebuilt */
  int has_stub;
  int beside; /* another look at the key was under way: this one is this call's alone */
  crl_stub stub;
  corral_op op;
  crl_envelope envelope; /* of the record that was found */
  uint8_t *key;          /* room of CRL_HIT_KEY bytes, which outlives the look */
} crl_hit;

/* True where some calls may be answered so. */
int crl_hit_is_of(const crl_context *context);
/* Looks for a call that may be answered so. 1: the call has ended, with *ret. 0: crl_hit_join, with
 * crl_hit_mine. -1: there was no look. */
int crl_hit_look(crl_context *context, const crl_call *call, const void *key, size_t key_len,
                 corral_value **ret);
/* The same for a call that only takes a plain hit, and leaves all else to a later one. Where dice
 * decide whether a fresh value is to be rebuilt, the later call throws them: two throws in a row
 * would hardly ever begin a rebuild. 1, or 0: nothing is left of it. */
int crl_hit_peek(crl_context *context, crl_call *call, const void *key, size_t key_len,
                 corral_value **ret);
/* The last look of this thread, until its next one. */
crl_hit *crl_hit_mine(void);
/* After 0: the call goes on by `join` (of crl_join_init), as after crl_join_first. */
void crl_hit_join(crl_hit *hit, crl_join *join);
/* Gives up what was found. */
void crl_hit_drop(crl_hit *hit);

/* The same in two parts, between which the caller makes the look of hit->op, without the text of an
 * error. begin: 1, or 0: there is no look to make. sent: it is about to be sent, a while after
 * `begin`. answered: 1: the call has ended, with *ret; 0: crl_hit_join. `beside`: a look under way
 * for another call is no reason to wait for the next one together. */
int crl_hit_begin(crl_hit *hit, crl_context *context, const crl_call *call, const void *key,
                  size_t key_len, int beside);
void crl_hit_sent(crl_hit *hit);
int crl_hit_answered(crl_hit *hit, corral_value **ret);
/* The look told nothing: the call goes on by `join`, which is to look (CRL_JOIN_LOOKS) or, after a
 * look beside another one, begins by crl_join_enter (0). */
void crl_hit_again(crl_hit *hit, crl_join *join);
/* The call is left; its look may still be under way. */
void crl_hit_leave(crl_hit *hit);

#endif
