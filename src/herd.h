/* herd.h: one flight per key per process; everyone else joins it.
 *
 * The first caller of a key leads: it runs the flight. Others wait for its outcome, each to its own
 * deadline. An entry stands in the map only while its flight may still answer newcomers: it is
 * taken out when the flight lands, when the key is invalidated (callers that come later must not
 * get what was computed from before), when its lease is lost, and when its leader leaves early.
 * Whoever waits on an entry that was given up without an outcome enters anew, and one of them
 * leads. Memory belongs to whoever still holds a reference. */
#ifndef CRL_HERD_H
#define CRL_HERD_H

#include "key.h"
#include "ticket.h"
#include "value.h"

typedef struct crl_herd crl_herd;
typedef struct crl_entry crl_entry;

/* What a flight came to, for everybody who shares it. */
typedef struct crl_outcome {
  int status;          /* CORRAL_OK, ENOTFOUND, or why not */
  crl_bytes *bytes;    /* CORRAL_OK */
  size_t offset, size; /* the value within */
  corral_how how;
  corral_kept kept;
  int64_t age_ms;
  uint64_t version;
  corral_error error;
} crl_outcome;

/* How somebody waits. */
typedef struct crl_patience {
  int64_t deadline;
  int64_t soft_until;    /* from then on a stale answer for the last moment will do; 0 never */
  corral_ticket *ticket; /* NULL: none */
  int owns;              /* the flight is this caller's own, flown by the workers */
} crl_patience;

typedef enum crl_wait {
  CRL_WAIT_LANDED = 1, /* *outcome holds a reference of the caller's */
  CRL_WAIT_GIVEN_UP,   /* enter anew */
  CRL_WAIT_DEADLINE,
  CRL_WAIT_PASS, /* the answer can't be shared: compute for yourself */
  CRL_WAIT_LEFT  /* by the ticket */
} crl_wait;

/* One who waits for several things at once, an entry among them; in its owner's memory. */
typedef struct crl_listener {
  struct crl_listener *next, **link;
  crl_nap *nap;
  _Atomic int stirred; /* the entry has changed since this was 0 */
} crl_listener;

/* NULL without memory. */
crl_herd *crl_herd_new(void);
void crl_herd_free(crl_herd *herd);
/* The entry of a key (and variant), with a reference; *leads tells whether the caller shall run the
 * flight. NULL without memory. */
crl_entry *crl_herd_enter(crl_herd *herd, const crl_name *name, int *leads);
/* An entry that nobody else finds. NULL without memory. */
crl_entry *crl_herd_private(crl_herd *herd, const crl_name *name);
/* Waits until the entry's flight has something for this caller. */
crl_wait crl_herd_wait(crl_entry *entry, const crl_patience *patience, crl_outcome *outcome);
/* The same in parts: from listen to unlisten the caller counts as waiting, and its nap is woken,
 * with `stirred` set, by every change; look tells what there is for it now, 0 nothing. */
void crl_herd_listen(crl_entry *entry, crl_listener *listener, crl_nap *nap);
crl_wait crl_herd_look(crl_entry *entry, const crl_patience *patience, crl_outcome *outcome);
/* `came`: what the last look told. */
void crl_herd_unlisten(crl_entry *entry, crl_listener *listener, crl_wait came);
/* A stale answer while the flight goes on: for all who wait and who come, until `until` (0: not at
 * once), and for those whose deadline comes, until `last`. */
void crl_herd_interim(crl_entry *entry, const crl_outcome *outcome, int64_t until, int64_t last);
/* The end of the flight; copies the outcome with a reference of its own. */
void crl_herd_land(crl_entry *entry, const crl_outcome *outcome);
/* Whatever comes is for the entry's owner alone: all others, now and later, are told to pass. */
void crl_herd_pass(crl_entry *entry);
/* From now on `alone` is called, under a mutex, whenever somebody leaves without an outcome and
 * nobody waits any more; NULL ends that. */
void crl_herd_heed(crl_entry *entry, void (*alone)(void *arg), void *arg);
/* Calls it now, unless somebody waits. */
void crl_herd_if_alone(crl_entry *entry, void (*alone)(void *arg), void *arg);
/* The end without an outcome: those who wait enter anew. No effect after a landing. */
void crl_herd_give_up(crl_entry *entry);
/* Nobody joins from now on; those who did still get the outcome. */
void crl_herd_detach(crl_entry *entry);
void crl_herd_detach_key(crl_herd *herd, const crl_name *name);
void crl_herd_detach_all(crl_herd *herd);
crl_entry *crl_entry_ref(crl_entry *entry);
void crl_entry_unref(crl_entry *entry);
/* How many keys have an entry in the map now; for tests. */
size_t crl_herd_count(crl_herd *herd);
/* How many callers wait on a key now; for tests. */
size_t crl_herd_waiting(crl_herd *herd, const crl_name *name);

#endif
