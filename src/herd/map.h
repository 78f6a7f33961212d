/* map.h: the map of a herd: entries, and stubs that have none yet. Internal to src/herd; each
 * function but crl_map_lock and crl_map_waits is called with the shard's latch held. */
#ifndef CRL_MAP_H
#define CRL_MAP_H

#include "base/check.h"
#include "base/table.h"
#include "herd/entry.h"
#include "stats/flights.h"

enum { CRL_SHARDS = 16, CRL_LENT = 2 /* bits of what may be lent */ };

typedef enum crl_entry_state { FLYING, LANDED, GIVEN_UP } crl_entry_state;

typedef enum crl_published { CRL_FOR_JOINERS = 1, CRL_FOR_OWNER /* and joiners */ } crl_published;

typedef struct crl_shard {
  crl_latch latch;
  _Atomic uint64_t ticks;
  crl_table entries;
  crl_stub *stubs;
} crl_shard;

struct crl_entry {
  crl_table_node node; /* by the hash of its name; node.link is NULL once it is out of the map */
  crl_shard *home;
  _Atomic size_t refs, waiting;
  /* the row that shows `waiting` to other processes, NULL: none; and the number of the flight
   * there, which is set before it */
  crl_flight_row *_Atomic shown;
  uint32_t shown_number;
  _Atomic int state;  /* once this is not FLYING it never changes, and neither does `outcome` */
  _Atomic int passes; /* the outcome is for the entry's owner alone */
  _Atomic int slow;   /* the flight's last look found the store slow */
  /* `interim` is the value of a flight that is settled now; from now on it never changes */
  _Atomic int published;  /* crl_published */
  int lost;               /* so is its lease */
  int vacant;             /* the next caller leads its flight */
  uint64_t latest;        /* the largest tick of those who joined */
  crl_entry *successor;   /* for those whom the outcome isn't good for; NULL: none */
  _Atomic uint64_t good;  /* its answers are good for ticks below; fixed when it has landed */
  uint64_t limit;         /* no ask under way confirms for ticks from here on; 0: none */
  _Atomic uint64_t asked; /* tick of the last ask; 0: none was sent yet */
  uint64_t first_late;    /* the earliest of those that began after it; 0: none */
  uint32_t answered;      /* the bits of those that the published value may be an answer for */
  _Atomic uint32_t changes;
  /* how many sleepers at most are left to be woken for the last change, whose number is in its high
   * half: nobody is tried in vain */
  _Atomic uint64_t unwoken;
  /* ends of the stale value that was offered, also when it has been replaced: see
   * crl_herd_interim */
  int64_t interim_until, interim_last;
  uint64_t interim_good; /* it is good for callers with ticks below */
  void (*alone)(void *arg);
  void *alone_arg;
  int deserted;             /* a last waiter has left without an outcome */
  size_t lenders[CRL_LENT]; /* by bit of what they lend */
  crl_waiter *borrower;     /* NULL, or waits for a place to compute */
  crl_listener *listeners;
  size_t key_len, variant_len;
  crl_outcome outcome, interim; /* not zeroed, but for `bytes` */
  uint8_t name[];               /* key and variant */
};

struct crl_herd {
  crl_shard shards[CRL_SHARDS];
};

#ifdef CORRAL_CHECKS
void crl_map_check(const crl_shard *home);
void crl_map_check_entry(const crl_entry *entry);
#endif

static inline void crl_map_lock(crl_shard *home) {
  crl_latch_take(&home->latch);
  CRL_CHECK_BY(crl_map_check, home);
}

static inline void crl_map_unlock(crl_shard *home) {
  CRL_CHECK_BY(crl_map_check, home);
  crl_latch_give(&home->latch);
}

/* After `waiting` has changed: shows it to other processes, where the flight is listed. The latch
 * need not be held. */
void crl_map_show_waiting(crl_entry *entry);
static inline void crl_map_waits(crl_entry *entry) {
  if (atomic_load(&entry->shown) != NULL) crl_map_show_waiting(entry);
}

/* The entry of a node of the table. */
crl_entry *crl_map_entry(crl_table_node *node);
crl_entry *crl_map_find(crl_shard *home, uint64_t hash, const crl_name *name);
/* A new entry, without a reference. NULL without memory. */
crl_entry *crl_map_put_in(crl_shard *home, uint64_t hash, const crl_name *name);
/* No effect on an entry that is out already. */
void crl_map_take_out(crl_entry *entry);
crl_stub *crl_map_find_stub(crl_shard *home, uint64_t hash, const crl_name *name);
/* No effect on a stub that is out already. */
void crl_map_take_out_stub(crl_stub *stub);
/* Makes the entry of a stub, which has a reference to it. NULL without memory. */
crl_entry *crl_map_grow(crl_shard *home, crl_stub *stub);

#endif
