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
/* `room` is for a policy that the corral doesn't keep, or that an operator's order changes; it
 * outlives the call. NULL: there is none yet, and such a call is CRL_HANDLE_ROOM, which is no
 * status: to be repeated with it. */
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
/* Has a call that gets values obey an operator's orders, once its compute is set. `room` is not
 * NULL. `may_wait`: the call may ask the store, for wait_ms at most. */
void crl_handle_ordered(crl_context *context, corral_policy *room, crl_call *call, int may_wait);
static inline int crl_handle_has_orders(const crl_context *context) {
  return atomic_load_explicit(&((crl_context *)(uintptr_t)context)->orders, memory_order_relaxed) !=
         0;
}
static inline void crl_handle_obey(crl_context *context, corral_policy *room, crl_call *call,
                                   int may_wait) {
  if (crl_handle_has_orders(context)) crl_handle_ordered(context, room, call, may_wait);
}
/* user->error; NULL without a struct, or when it is too short to have one. */
corral_error *crl_handle_error(const corral_call *user);
#endif
