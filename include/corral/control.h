/* control.h: an operator's orders to all processes that have a namespace open on a store, without a
 * restart of any: compute nothing, go around the cache, limit the computes, drop the near copies.
 *
 * An order is a record of the store with a TTL, so that it ends by itself. A process follows it
 * that opened the namespace with the option `control`, within a second of its next call: at once
 * where a watch of the store is up, else by a look every 500 ms while calls come. The last order
 * wins. docs/control.md. */
#ifndef CORRAL_CONTROL_H
#define CORRAL_CONTROL_H

#include <corral.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(identifier, name, sentence). New rows go to the end.
 *  NORMAL: ends the order in force.
 *  FREEZE: no compute begins. What is stored serves in any of its graces (swr_ms, sie_ms); without
 *  a value a call returns CORRAL_EFROZEN. It waits for nobody.
 *  BYPASS: each call computes for itself, as if the value could not be cached: at most max_computes
 *  at once, nothing is looked for, and nothing stored. A call without a compute returns
 *  CORRAL_EMISS.
 *  LIMIT: at most `number` computes at once in each process, in place of max_computes. Those under
 *  way go on.
 *  DROP_NEAR: all near copies are forgotten, once. An order in force stays. */
#define CORRAL_CONTROL_MAP(X)                                                                      \
  X(NORMAL, "normal", "no order is in force")                                                      \
  X(FREEZE, "freeze", "compute nothing, and serve stale values")                                   \
  X(BYPASS, "bypass", "go around the cache: each call computes for itself")                        \
  X(LIMIT, "limit", "at most so many computes at once in each process")                            \
  X(DROP_NEAR, "drop-near", "forget the near copies once")

typedef enum corral_control {
#define CORRAL_CONTROL_ENUM(id, name, text) CORRAL_CONTROL_##id,
  CORRAL_CONTROL_MAP(CORRAL_CONTROL_ENUM)
#undef CORRAL_CONTROL_ENUM
      CORRAL_CONTROL_COUNT
} corral_control;

/* Name of a verb ("drop-near") and its sentence; "?" for a number outside of the table. Static
 * storage. */
CORRAL_API const char *corral_control_name(corral_control verb);
CORRAL_API const char *corral_control_text(corral_control verb);

enum {
  CORRAL_CONTROL_FOR_MS = 600000,       /* for_ms where 0 is given */
  CORRAL_CONTROL_FOR_MOST = 86400000,   /* the largest for_ms; the smallest is 1000 */
  CORRAL_CONTROL_NUMBER_MOST = 1000000, /* the largest `number`; the smallest is 1 */
  CORRAL_CONTROL_EVERY_MS = 500         /* between two looks for an order, while calls come */
};

/* Gives an order to all processes that have this corral's namespace open on its store. `number`: of
 * LIMIT, else 0. for_ms: it ends after so long (NORMAL: ignored; DROP_NEAR: processes that are in
 * use within so long hear of it, or until the end of another order that is, or comes, in force).
 * The corral itself need not have the option `control`. CORRAL_OK: the store has it. After
 * CORRAL_EINDOUBT the order may hold, or not: give it again. */
CORRAL_API int corral_control_set(corral *c, corral_control verb, int64_t number, int64_t for_ms,
                                  corral_error *error);

/* An order. */
typedef struct corral_control_state {
  size_t size;         /* sizeof(corral_control_state), set by the caller */
  corral_control verb; /* never DROP_NEAR, which is over at once */
  int64_t number;      /* of LIMIT; else 0 */
  int64_t left_ms;     /* until it ends; 0: NORMAL */
} corral_control_state;

/* The order that the store has: asks it. A damaged or foreign record is none. With the option
 * `control` this process follows it from now on: also the calls of event loops, which wait for no
 * look. */
CORRAL_API int corral_control_read(corral *c, corral_control_state *ret, corral_error *error);
/* The order that this process follows. Asks nobody; allowed in on_event. Without the option
 * `control` it is NORMAL. CORRAL_EINVAL. */
CORRAL_API int corral_control_followed(const corral *c, corral_control_state *ret);

#ifdef __cplusplus
}
#endif
#endif
