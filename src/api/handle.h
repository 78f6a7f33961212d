/* handle.h: the checks with which calls about values begin. */
#ifndef CRL_HANDLE_H
#define CRL_HANDLE_H

#include "control/follower.h"
#include "driver/block.h"

/* crl_context_enter for a call about values: also CORRAL_EUNSUPPORTED where the store has locks
 * only. */
int crl_handle_values(corral *c, crl_context **ret, corral_error *error);
/* crl_handle_values for a call about the value of a key: also CORRAL_EINVAL if the key is empty or
 * too long. */
int crl_handle_key(corral *c, const void *key, size_t key_len, crl_context **ret,
                   corral_error *error);
int crl_handle_check_key(const void *key, size_t key_len, corral_error *error);
/* `room` is for a policy that the corral doesn't keep; it outlives the call. NULL: there is none
 * yet, and such a call is CRL_HANDLE_ROOM, which is no status: to be repeated with it. */
enum { CRL_HANDLE_ROOM = 1 };
/* Fills *call, except for its key and compute, from the user's struct (may be NULL) over the
 * corral's policy.
 * `set`: receives the user's struct, if there is one; NULL: what is for corral_set alone is
 * refused. Detail goes to the user's error. */
int crl_handle_user(const corral_call *user, crl_context *context, corral_policy *room,
                    crl_call *call, corral_call *set);
/* crl_handle_key and crl_handle_user: fills *call, except for its compute. */
int crl_handle_call(corral *c, const void *key, size_t key_len, const corral_call *user,
                    corral_policy *room, crl_context **ret, crl_call *call);
/* Sets the compute, or origin, that was bound at open, if any. */
void crl_handle_bind(corral *c, crl_call *call);
/* Has a call that gets values obey an operator's orders, once its compute is set. `room` as above;
 * also CRL_HANDLE_ROOM. `may_wait`: the call may ask the store. CORRAL_EMISS: the cache is
 * bypassed, and there is no compute; crl_handle_missed counts that. */
int crl_handle_ordered(crl_context *context, corral_policy *room, crl_call *call, int may_wait);
static inline int crl_handle_obey(crl_context *context, corral_policy *room, crl_call *call,
                                  int may_wait) {
  return atomic_load_explicit(&context->orders, memory_order_relaxed) == 0
             ? CORRAL_OK
             : crl_handle_ordered(context, room, call, may_wait);
}
/* After crl_handle_obey: counts CORRAL_EMISS as the result of a call for one value. */
static inline void crl_handle_missed(const crl_context *context, int status) {
  if (status == CORRAL_EMISS) crl_stats_result(&context->events.stats, CORRAL_RESULT_MISS, 0);
}
/* user->error; NULL without a struct, or when it is too short to have one. */
corral_error *crl_handle_error(const corral_call *user);
#endif
