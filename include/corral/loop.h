/* loop.h: get-or-compute for event loops: no call here blocks, and no waiter costs a thread.
 *
 *   corral_loop *loop;
 *   corral_loop_open(&loop, c, &error);             one for each thread that runs an event loop
 *   watch corral_fd(loop) for reading;              level-triggered or edge-triggered
 *   when it is readable: corral_dispatch(loop);     runs the callbacks
 *   corral_get_async(loop, "key", 3, policy,
 *                    CORRAL_ASYNC(.done = on_value, .start = begin_query, .arg = request), &call);
 *
 * Ten thousand calls for one key are one flight; a call that waits for it takes some 700 bytes.
 * What talks to the store is a few threads of the corral, each with many calls' operations at a
 * time.
 *
 * Threads: a loop and its calls belong to the thread that dispatches it: open, dispatch, close,
 * get, run and cancel are called there, and all callbacks run there, from corral_dispatch. The
 * functions of a fill may be called from any thread, one at a time. In a callback everything is
 * allowed but corral_dispatch and corral_loop_close of the same loop. A fork leaves the loop, like
 * its corral, to the parent. */
#ifndef CORRAL_LOOP_H
#define CORRAL_LOOP_H

#include <corral.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct corral_loop corral_loop;
/* a call under way: from its beginning until `done` is called, or it is cancelled */
typedef struct corral_call corral_call;

/* What a call needs of its caller. Copied. */
typedef struct corral_async {
  size_t size; /* sizeof(corral_async), set by CORRAL_ASYNC */
  /* Required. Once per call, never from within the function that began it: what
   * corral_get_or_compute would have returned. `value` is the callee's, to be given to
   * corral_value_unref; NULL unless the status is CORRAL_OK. `error` is valid until it returns, and
   * all zero when the status is CORRAL_OK. */
  void (*done)(void *arg, int status, corral_value *value, const corral_error *error);
  /* The compute, when this call shall rebuild the value: begins it, and returns. It ends, then or
   * later, on any thread, with corral_fill_done, corral_fill_failed or corral_fill_abandon, of
   * which exactly one must be called once; until then `fill` is valid. `key` is valid as long.
   * Called before `done`, or after it: when a stale value was answered and is rebuilt behind the
   * answer, or the call's deadline came just before. Once, and once more at the deadline of a call
   * whose policy has at_deadline CORRAL_DEADLINE_COMPUTE; and after corral_fill_abandon again, as
   * long as the call waits. Not called for a call that was cancelled. NULL: the compute, or the
   * origin, that was bound at open; without one the call only looks. */
  void (*start)(void *arg, corral_fill *fill, const void *key, size_t key_len);
  /* The last callback: `arg` isn't used any more. Also for a call that was cancelled. After the end
   * of each compute that the call began, so a compute that hangs keeps it back; only
   * corral_loop_close doesn't wait for that: then the compute has its fill, and not this call.
   * NULL: none. */
  void (*gone)(void *arg);
  void *arg;
} corral_async;

/* The callbacks in place (C only): CORRAL_ASYNC(.done = f, .arg = x). */
#define CORRAL_ASYNC(...) (&(corral_async){.size = sizeof(corral_async), __VA_ARGS__})

/* A loop of this corral, for the thread that will dispatch it. No I/O, no thread. CORRAL_EINVAL,
 * CORRAL_EIO (no file descriptor left), CORRAL_ENOMEM, CORRAL_EFORKED, CORRAL_ECLOSED. */
CORRAL_API int corral_loop_open(corral_loop **ret, corral *c, corral_error *error);
/* Cancels its calls, calls `gone` of each, and frees it; before corral_close. Computes that it
 * began are given up: others who want their keys lead on; their fills stay valid until they are
 * ended, which is to be done all the same, from any thread, if need be after corral_close, and does
 * nothing else then. Blocks as long as operations on the store by which they are given up, and
 * functions of corral_run_async that run; those that don't yet never will. NULL is allowed. */
CORRAL_API void corral_loop_close(corral_loop *loop);
/* Readable when corral_dispatch has something to do. The loop's: not to be read, nor closed. */
CORRAL_API int corral_fd(const corral_loop *loop);
/* Runs the callbacks of what has ended or is to begin by now; never waits. Returns how many calls
 * it brought on. */
CORRAL_API int corral_dispatch(corral_loop *loop);

/* corral_get_or_compute, with `start` as the compute, or corral_get where that is NULL. The
 * policy's `error` is not used after this call; its ticket is, until `done`, or `gone` of a call
 * that was cancelled. A stale value inside swr_ms is answered at once, and rebuilt behind the
 * answer. The call ends by its deadline, except for a compute of its own by at_deadline. *ret,
 * which may be NULL, is valid until the first of `done` and `gone`. CORRAL_OK: `done` will be
 * called. Else it won't, nor any other callback: CORRAL_EINVAL, CORRAL_EOPTION, CORRAL_ENOMEM,
 * CORRAL_ERECURSION (within `start` of that same key), CORRAL_EFORKED, CORRAL_ECLOSED. Detail goes
 * to the policy's error. */
CORRAL_API int corral_get_async(corral_loop *loop, const void *key, size_t key_len,
                                const corral_policy *policy, const corral_async *async,
                                corral_call **ret);
/* Runs `work` on a thread of the corral, and then `done` with its status and error: by this every
 * blocking function of the library (corral_invalidate, corral_set, corral_invalidate_tag, locks)
 * can be had in a loop. `start` is not used. At most `workers` at once, beside the bound computes.
 * CORRAL_OK, CORRAL_EINVAL, CORRAL_ENOMEM, CORRAL_EFORKED, CORRAL_ECLOSED, CORRAL_EIO (no thread to
 * be had). */
typedef int corral_work(corral *c, void *arg, corral_error *error);
CORRAL_API int corral_run_async(corral_loop *loop, corral_work *work, const corral_async *async,
                                corral_call **ret);
/* Leaves a call: `done` and `start` won't be called any more, `gone` will, by the next dispatch or
 * a later one. A compute, or a function, that it began goes on, and a function that it didn't yet
 * begins all the same. In `done` and after it has no effect. NULL is allowed. */
CORRAL_API void corral_call_cancel(corral_call *call);

/* A copy of this process's near tier, if it may answer: CORRAL_OK and *ret, or CORRAL_ENOTFOUND
 * (remembered), without leaving the thread. CORRAL_EMISS: ask the store (corral_get_async,
 * corral_get). A peek never makes a value be rebuilt ahead of time: that is for the looks at the
 * store, of which a key that is asked for has one in near_ms. Any thread. Errors as corral_get. */
CORRAL_API int corral_peek(corral *c, const void *key, size_t key_len, const corral_policy *policy,
                           corral_value **ret);

/* ---- the end of a compute that was begun by `start` ---------------------------------------- */

/* What was filled is the answer: as a corral_compute's return with CORRAL_OK. The fill is gone. */
CORRAL_API void corral_fill_done(corral_fill *fill);
/* corral_fill_fail and corral_fill_done. */
CORRAL_API void corral_fill_failed(corral_fill *fill, int32_t code, const char *text);
/* There will be no answer, and the origin isn't to blame: who wanted it asks anew, and one of them
 * leads, the caller of this compute among them. Of one that is alone by his deadline: he gets
 * CORRAL_EDEADLINE. Nothing is remembered. */
CORRAL_API void corral_fill_abandon(corral_fill *fill);
/* True when the result is for the caller of this compute alone: the key can't be cached
 * (corral_fill_pass), or his deadline came. */
CORRAL_API int corral_fill_is_alone(const corral_fill *fill);

#ifdef __cplusplus
}
#endif
#endif
