/* herd.h: one flight per key per process; all other callers join it.
 *
 * The first caller of a key leads: it flies the flight. Later callers wait for its outcome, each
 * until its own deadline. An entry is in the map only while its flight may answer new callers: it
 * is taken out when the flight lands, when the key is invalidated (later callers must not get what
 * was computed before that), when its lease is lost, and when its leader leaves early. Waiters on
 * an entry that was given up without an outcome enter anew, and one of them leads. An entry is
 * freed with its last reference.
 *
 * An answer is good for a caller if the store confirmed it after the call began. A clock of ticks
 * tells that: a call takes a tick when it begins, an ask of the store before it is sent. An ask
 * confirms for those whose tick is smaller. The others look anew, together: an entry that lands
 * leaves them a successor, which the first of them leads. The owner of a flight takes any of its
 * answers. */
#ifndef CRL_HERD_H
#define CRL_HERD_H

#include "herd/entry.h"
#include "os/cancel.h"
#include "stats/flights.h"

/* The limits of a wait. */
typedef struct crl_patience {
  uint64_t since; /* the tick of the call's beginning */
  int looked;     /* has looked at the store since: isn't sent to look for a stale answer */
  int64_t deadline;
  int64_t soft_until; /* from then on a stale answer for the deadline is accepted; 0: never */
  corral_cancel_token *cancel_token; /* NULL: none */
  int owns;                          /* the flight is this caller's own, flown by another thread */
  unsigned lends; /* what the caller has of a place to compute, one bit each: it lends that while it
                     waits */
} crl_patience;

typedef enum crl_wait {
  CRL_WAIT_LANDED = 1, /* *outcome holds a reference of the caller's */
  CRL_WAIT_GIVEN_UP,   /* no outcome that is good for the caller: it enters anew */
  CRL_WAIT_DEADLINE,
  CRL_WAIT_PASS, /* the answer can't be shared: the caller computes for itself */
  CRL_WAIT_LEFT  /* the cancel token was cancelled */
} crl_wait;

/* NULL without memory. */
crl_herd *crl_herd_new(void);
void crl_herd_free(crl_herd *herd);
typedef enum crl_enter {
  CRL_ENTER_NOT = 0, /* no memory */
  CRL_ENTER_LEADS,   /* the flight of *entry */
  CRL_ENTER_JOINS,
  CRL_ENTER_APART /* there is a flight that the caller need not join, or should not before a look at
                     the store: it offers a stale answer, from before this call. No *entry */
} crl_enter;

/* A caller who enters. */
typedef struct crl_entrance {
  const crl_name *name;
  uint64_t hash;         /* crl_name_hash */
  uint64_t since;        /* tick of the call's beginning; 0: it begins now, and this is set */
  int looked;            /* has looked at the store: joins in any case */
  int is_served;         /* has an answer, and leads the rebuild or does nothing: never joins */
  const crl_entry *from; /* waited there, and was sent on; NULL: nowhere */
} crl_entrance;

/* CRL_STUB_LEADS: the caller leads the flight of this name (which outlives the stub) until one of
 * the two below. Else there is a look, or a flight, already: crl_herd_enter. */
typedef enum crl_stubbed { CRL_STUB_LOOKS, CRL_STUB_FLIES, CRL_STUB_LEADS } crl_stubbed;
crl_stubbed crl_herd_stub(crl_herd *herd, const crl_name *name, uint64_t hash, crl_stub *stub);
/* The stub's look is sent only now: it is good for those who have joined meanwhile, too. */
void crl_herd_renew_stub(crl_stub *stub);
/* The look was an answer. Returns the entry, with a reference, to be landed, if others have joined;
 * else NULL: nothing is left. */
crl_entry *crl_herd_unstub(crl_stub *stub);
/* The flight goes on: returns its entry, with a reference. NULL without memory. */
crl_entry *crl_herd_keep_stub(crl_stub *stub);
/* The entry of a key (and variant), with a reference. *tick: of this moment. */
crl_enter crl_herd_enter(crl_herd *herd, crl_entrance *entrance, crl_entry **entry, uint64_t *tick);
/* An entry outside the map, which no other caller finds. NULL without memory. */
crl_entry *crl_herd_private(crl_herd *herd, const crl_name *name, uint64_t hash);
/* Waits until there is a result for this caller. */
crl_wait crl_herd_wait(crl_entry *entry, const crl_patience *patience, crl_outcome *outcome);
/* The same without blocking: from listen to unlisten the caller counts as waiting, and each change
 * sets `stirred` and wakes its waiter; crl_herd_look returns the result for it now, 0: none yet. */
void crl_herd_listen(crl_entry *entry, crl_listener *listener, crl_waiter *waiter, unsigned lends);
/* The parts of a place to compute (limiter.h) that waiting callers lend to the flight. From now on
 * `waiter` is woken when another lender comes; NULL ends that. */
unsigned crl_herd_lent(crl_entry *entry, crl_waiter *waiter);
crl_wait crl_herd_look(crl_entry *entry, const crl_patience *patience, crl_outcome *outcome);
/* `came`: the result that ended the wait. */
void crl_herd_unlisten(crl_entry *entry, crl_listener *listener, crl_wait came);
/* The clock of this entry's callers and asks; the next tick is taken before an ask is sent. */
_Atomic uint64_t *crl_herd_ticks(crl_entry *entry);
uint64_t crl_herd_tick(crl_entry *entry);
#define CRL_GOOD_FOR_ALL UINT64_MAX
/* Whether the flight's last look found the store slow, for those who wait for it. */
void crl_herd_slow(crl_entry *entry, int slow);
int crl_herd_is_slow(const crl_entry *entry);
/* An ask with this tick was answered: the flight's answers are good for earlier callers. */
void crl_herd_confirm(crl_entry *entry, uint64_t tick);
/* The flight's value depends on tags, whose versions the ask with this tick read. Later asks do not
 * read them: from now on they confirm for no more callers than that one. */
void crl_herd_limit(crl_entry *entry, uint64_t tick);
/* Gives a stale answer while the flight goes on, to callers that the flight's answers are good for
 * now: at once until `until` (0: not at once), and at their deadline until `last`. Later calls are
 * told to look at the store themselves (CRL_ENTER_APART). */
void crl_herd_interim(crl_entry *entry, const crl_outcome *outcome, int64_t until, int64_t last);
/* The value was computed and isn't settled yet: callers it is good for get it at once, the owner
 * too if `to_owner`; all others get it at their deadline, unless the flight lands before. */
void crl_herd_publish(crl_entry *entry, const crl_outcome *outcome, int to_owner);
/* The end of the flight; copies the outcome, with a reference of its own. It is good for callers
 * with ticks below `good`. */
void crl_herd_land(crl_entry *entry, const crl_outcome *outcome, uint64_t good);
/* The lease was lost: no caller joins from now on. Waiters without a confirmation enter anew; the
 * others wait on for the value. */
void crl_herd_lose(crl_entry *entry);
/* Reserves the outcome for the entry's owner: all other waiters, now and later, get
 * CRL_WAIT_PASS. */
void crl_herd_pass(crl_entry *entry);
/* From now on `alone` is called, under a latch, whenever the last waiter leaves without an outcome;
 * at once where it has left before. NULL ends that. */
void crl_herd_heed(crl_entry *entry, void (*alone)(void *arg), void *arg);
/* Calls `alone` now, under the same latch, if there is no waiter. */
void crl_herd_if_alone(crl_entry *entry, void (*alone)(void *arg), void *arg);
/* The end of the flight without an outcome: waiters enter anew. No effect after a landing. */
void crl_herd_give_up(crl_entry *entry);
/* No caller joins from now on; those that did still get the outcome. */
void crl_herd_detach(crl_entry *entry);
void crl_herd_detach_key(crl_herd *herd, const crl_name *name);
void crl_herd_detach_all(crl_herd *herd);
crl_entry *crl_entry_ref(crl_entry *entry);
void crl_entry_unref(crl_entry *entry);
/* shown.c: from now on the row shows how many callers wait for the flight of that number. Once in
 * an entry's life. */
void crl_herd_show(crl_entry *entry, crl_flight_row *row, uint32_t number);
/* Ends that. */
void crl_herd_hide(crl_entry *entry);
/* Number of keys that have an entry in the map; for tests. */
size_t crl_herd_count(crl_herd *herd);
/* Number of callers that wait on a key; for tests. */
size_t crl_herd_waiting(crl_herd *herd, const crl_name *name);

#endif
