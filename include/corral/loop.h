/* loop.h: get-or-compute, and locks, for event loops: no call here blocks, and no waiter costs a
 * thread.
 *
 *   corral_loop *loop;
 *   corral_loop_open(c, &loop, &error);               one for each thread that runs an event loop
 *   watch corral_loop_fd(loop) for reading;           level-triggered or edge-triggered
 *   when it is readable: corral_loop_dispatch(loop);  runs the callbacks
 *   corral_loop_get(loop, "key", 3, NULL,
 *                   CORRAL_ASYNC(.done = on_value, .start = begin_query, .arg = request), &call);
 *
 * Ten thousand calls for one key are one flight; a call that waits for it takes some 850 bytes. A
 * few threads of the corral talk to the store, each with the operations of many calls at a time.
 * Hits are answered without them where the store allows it: docs/loops.md.
 *
 * Threads: a loop and its calls belong to the thread that dispatches the loop: open, dispatch,
 * close, get, run and cancel are called there, and all callbacks run there, within
 * corral_loop_dispatch. The functions of a fill may be called from any thread, one at a time. A
 * callback may call everything but corral_loop_dispatch and corral_loop_close of the same loop.
 * After a fork a loop, like its corral, is the parent's. */
#ifndef CORRAL_LOOP_H
#define CORRAL_LOOP_H

#include <corral.h>
#include <corral/lock.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The calls of one thread's event loop. */
typedef struct corral_loop corral_loop;
/* A call under way, until its `done` was called or it was cancelled. */
typedef struct corral_async_call corral_async_call;

/* Callbacks of a call. Copied. */
typedef struct corral_async {
  size_t size; /* sizeof(corral_async), set by CORRAL_ASYNC */
  /* Required. Called once per call that isn't cancelled, never from within the function that began
   * the call, with what corral_get_or_compute would have returned. `value` is the callback's, to be
   * given to corral_value_unref; NULL unless the status is CORRAL_OK, and always for
   * corral_loop_run.
   * `error` is valid until the callback returns, and all zero when the status is CORRAL_OK. */
  void (*done)(void *arg, int status, corral_value *value, const corral_error *error);
  /* Begins the compute, when this call leads the flight of its key, and returns without waiting.
   * The compute ends, then or later and on any thread, with exactly one call of corral_fill_done
   * or corral_fill_abandon; `fill` and `key` are valid until then.
   * Called before `done`; or after it, when a stale value was answered and is rebuilt in the
   * background, or when the call's deadline came just before. Called once; once more at the
   * deadline of a call whose policy has CORRAL_DEADLINE_COMPUTE; and again after
   * corral_fill_abandon, as long as the call waits. Not called for a cancelled call.
   * NULL: the compute or origin bound at open; without one the call only looks. */
  void (*start)(void *arg, corral_fill *fill, const void *key, size_t key_len);
  /* The last callback, also of a cancelled call: `arg` isn't used any more. It comes after the end
   * of every compute that the call began, so a compute that hangs delays it; corral_loop_close
   * alone doesn't wait for that: then the compute keeps its fill, and the call is gone. NULL:
   * none. */
  void (*gone)(void *arg);
  void *arg;
} corral_async;

/* The callbacks in place: CORRAL_ASYNC(.done = f, .arg = x); in C++
 * CORRAL_ASYNC(.done(f).arg(x)). */
#ifndef __cplusplus
#define CORRAL_ASYNC(...) (&(corral_async){.size = sizeof(corral_async), __VA_ARGS__})
#endif

/* Opens a loop of this corral, for the thread that will dispatch it. No I/O, no thread.
 * CORRAL_EINVAL, CORRAL_EIO (no file descriptor left), CORRAL_ENOMEM, CORRAL_EFORKED,
 * CORRAL_ECLOSED. */
CORRAL_API int corral_loop_open(corral *c, corral_loop **ret, corral_error *error);
/* Cancels the loop's calls, calls `gone` of each, and frees the loop; to be called before
 * corral_close. Computes that the loop began are given up: other callers of their keys lead. The
 * fills of these computes stay valid and must still be ended, from any thread, if need be after
 * corral_close; that has no other effect then.
 * Blocks while the store is told of the given-up leases and takings of locks, and while functions
 * of corral_loop_run run; functions that have not begun never will. NULL is allowed. */
CORRAL_API void corral_loop_close(corral_loop *loop);
/* Descriptor that is readable when corral_loop_dispatch has something to do; -1 for NULL. It
 * belongs to the loop: not to be read or closed by the caller. The same for the loop's life; an
 * eventfd, or an epoll descriptor. */
CORRAL_API int corral_loop_fd(const corral_loop *loop);
/* Runs the callbacks that are due, and those of up to 64 calls that these begin and that need no
 * waiting; never waits. Returns the number of notices that it handled, 0 when there were none. */
CORRAL_API int corral_loop_dispatch(corral_loop *loop);

/* Begins a corral_get_or_compute with `start` as the compute, or a corral_get where `start` is
 * NULL. A stale value inside swr_ms is answered at once and rebuilt in the background. The call
 * ends by its deadline, except for a compute of its own by at_deadline. The call's `error` is not
 * used after this function returns; its cancel token is used until `done`, or until `gone` of a
 * cancelled call. *ret (`ret` may be NULL) is valid until the first of `done` and `gone`.
 * CORRAL_OK: `done` will be called. Any other status: no callback will. CORRAL_EINVAL,
 * CORRAL_EOPTION, CORRAL_ENOMEM, CORRAL_ERECURSION (within `start` of that same key),
 * CORRAL_EFORKED, CORRAL_ECLOSED; detail goes to the call's error. */
CORRAL_API int corral_loop_get(corral_loop *loop, const void *key, size_t key_len,
                               const corral_call *call, const corral_async *async,
                               corral_async_call **ret);
/* A function for corral_loop_run. It may block; its status and *error go to `done`. */
typedef int corral_work(corral *c, void *arg, corral_error *error);
/* Runs `work` on a thread of the corral, then `done` with its status and error: so every blocking
 * function of the library (corral_invalidate, corral_set, corral_invalidate_tag) can be used in a
 * loop. For locks there are corral_lock_take_async and the like, whose waiters need no thread: a
 * function that waits for a lock here has one of the `workers` until then. `start` is not used. At
 * most `workers` of them run at once, bound computes included. CORRAL_OK, CORRAL_EINVAL,
 * CORRAL_ENOMEM, CORRAL_EFORKED, CORRAL_ECLOSED, CORRAL_EIO (no thread to be had). */
CORRAL_API int corral_loop_run(corral_loop *loop, corral_work *work, const corral_async *async,
                               corral_async_call **ret, corral_error *error);
/* Takes a lock as corral_lock_take does, while no thread waits. The owner is the call, or the name
 * in the options: never a thread. Calls of one process for one lock are served in the order in
 * which they began. *ret_lock is set just before `done`, if its status is CORRAL_OK, so its
 * memory must stay until the first of `done` and `gone`; other statuses as corral_lock_take. The
 * hold belongs to no loop: any function of corral/lock.h may be used with it, on any thread. A hold
 * that was lost before `done` is given all the same, and its on_lost is called: not before
 * *ret_lock is set, but perhaps before `done`, on another thread. A call that is cancelled leaves
 * no hold, and on_lost is not called: what it was granted meanwhile is released. The cancel token
 * of the options is used until then, their texts only within this function. `start` is not used.
 * CORRAL_OK: `done` will be called. Any other status: no callback will. CORRAL_EINVAL,
 * CORRAL_EOPTION, CORRAL_ENOMEM, CORRAL_EFORKED, CORRAL_ECLOSED, CORRAL_EIO (no thread or no
 * randomness to be had). */
CORRAL_API int corral_lock_take_async(corral_loop *loop, const void *name, size_t name_len,
                                      const corral_lock_options *options, const corral_async *async,
                                      corral_lock **ret_lock, corral_async_call **ret,
                                      corral_error *error);
/* corral_lock_release, whose status goes to `done`. CORRAL_OK: `lock` is not valid any more. Any
 * other status (CORRAL_EINVAL: also within its on_lost): nothing was done, and no callback will be
 * called. Cancelling the call leaves the release under way. An on_lost of `lock` that runs is
 * waited for, and one that is due is called, on the thread of the corral that makes the release. */
CORRAL_API int corral_lock_release_async(corral_loop *loop, corral_lock *lock,
                                         const corral_async *async, corral_async_call **ret,
                                         corral_error *error);
/* corral_lock_extend, whose status goes to `done`. `lock` must not be released before `done`, or
 * `gone` of a cancelled call. */
CORRAL_API int corral_lock_extend_async(corral_loop *loop, corral_lock *lock, int64_t ttl_ms,
                                        const corral_async *async, corral_async_call **ret,
                                        corral_error *error);
/* Cancels a call: `done` and `start` won't be called any more, `gone` will, by the next dispatch or
 * a later one. A compute or a function of corral_loop_run that the call began goes on; a function
 * that has not begun yet begins all the same. No effect within `done`. NULL is allowed. */
CORRAL_API void corral_async_call_cancel(corral_async_call *async_call);

/* Answers at once with a fresh value, without leaving the thread: from the near tier of this
 * process; without one for all keys, from a store that asks no other process (memory:, lmdb:).
 * CORRAL_OK and *ret, or CORRAL_ENOTFOUND (remembered in the near tier); CORRAL_EMISS: the key must
 * be asked for (corral_loop_get, corral_get). A peek never starts a rebuild ahead of time. The
 * looks of other calls do, and a key that is asked for has one of those every near_ms; without a
 * near tier a peek leaves a value that may be due for a rebuild to them. Any thread. Other errors
 * as corral_get. */
CORRAL_API int corral_peek(corral *c, const void *key, size_t key_len, const corral_call *call,
                           corral_value **ret);

/* ---- end of a compute begun by `start` ----------------------------------------------------- */

/* Ends the compute with what was filled, as a corral_compute that returns CORRAL_OK. `fill` is not
 * valid any more. Any thread. */
CORRAL_API void corral_fill_done(corral_fill *fill);
/* Ends the compute without an answer and without blame for the origin: its callers enter anew, the
 * caller of this compute among them, and one of them leads. A caller that computes alone, because
 * of its deadline, gets CORRAL_EDEADLINE. Nothing is remembered. `fill` is not valid any more. Any
 * thread. */
CORRAL_API void corral_fill_abandon(corral_fill *fill);
/* Nonzero when the result goes to the caller of this compute alone: the key can't be cached
 * (corral_fill_pass), or the caller's deadline came. */
CORRAL_API int corral_fill_is_alone(const corral_fill *fill);

#ifdef __cplusplus
}

CORRAL_BUILDER_BEGIN(corral_async)
CORRAL_BUILDER_FIELD(corral_async, done)
CORRAL_BUILDER_FIELD(corral_async, start)
CORRAL_BUILDER_FIELD(corral_async, gone)
CORRAL_BUILDER_FIELD(corral_async, arg)
CORRAL_BUILDER_END(corral_async)
#define CORRAL_ASYNC(...) (corral_async_builder() __VA_ARGS__)
#endif
#endif
