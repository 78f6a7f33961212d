/* history.h: the history of a run in which several processes use one cache, and its checker, which
 * is pure: a function of the history alone.
 *
 * The source has one version per key, which each change raises. A history has an entry for each
 * change of the source, invalidation, compute and call, with its begin and end by one monotonic
 * clock. An entry without an end is one of a process that was killed: it may have happened at any
 * moment after its begin, or not at all. history_kit.h records histories. */
#ifndef TESTS_HISTORY_H
#define TESTS_HISTORY_H

#include <corral.h>
#include <stddef.h>
#include <stdint.h>

enum { HISTORY_KEYS = 32, HISTORY_PROCESSES = 8 };

typedef enum history_kind {
  HISTORY_CHANGE = 1, /* the source's version becomes `version` */
  /* what was computed from versions before `version`, the source's at the begin, is invalidated */
  HISTORY_INVALIDATE,
  HISTORY_COMPUTE, /* reads `version` from the source */
  HISTORY_CALL,    /* asks the cache for the key */
  HISTORY_FAULT    /* of no key: the store may be silent or away */
} history_kind;

typedef struct history_entry {
  _Atomic int64_t begun, ended; /* ns; ended is 0: no end was recorded */
  history_kind kind;
  int key, process;
  int status; /* of an invalidation, and of a call: CORRAL_OK, or an error */
  uint64_t version;
  /* The answer of a call, if its status is CORRAL_OK; `version` is the value's. */
  corral_how how;
  corral_kept kept;
  size_t compute;   /* index of the entry of the compute that made the value */
  int64_t deadline; /* ns; of a call: no answer at it may come earlier; 0: none was recorded */
} history_entry;

/* Lateness that is allowed; 0: none. Both bounds hold for one process's answers after another
 * process's invalidation; a process's own invalidations act at once. */
typedef struct history_rules {
  int64_t near_ns; /* of a fresh answer where the near tier is on: its bound */
  /* of an answer that may come from a flight of the process which began before the call; promise 2
   * allows none */
  int64_t shared_ns;
  /* a failover may lose what the store was told last: A4 doesn't hold, and A3 does for what all
   * replicas confirmed, which is what CORRAL_OK says then */
  int loses_tail;
  int is_numbered; /* versions are numbers of computes; no source is recorded: no S rules */
} history_rules;

typedef struct history_verdict {
  size_t wrong;    /* broken rules */
  char first[300]; /* the first of them, as a sentence; empty: none */
  size_t calls;    /* calls that ended with a value */
  size_t bound;    /* of these, calls that began after an invalidation of their key had returned */
  size_t how[CORRAL_OUTBOX + 1]; /* of these calls, by how they were answered */
  size_t unsettled;              /* of these, joined ones with CORRAL_KEPT_UNKNOWN */
} history_verdict;

history_verdict history_check(const history_entry *entries, size_t count,
                              const history_rules *rules);

#endif
