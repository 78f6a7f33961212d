/* herd.h: one flight per key per process; everyone else joins it.
 *
 * The first caller of a key leads: it runs the flight. Others wait for its outcome, each to its own deadline. An entry stands in the
 * map only while its flight may still answer newcomers: it is taken out when the flight lands, when the key is invalidated
 * (callers that come later must not get what was computed from before), when its lease is lost, and when its leader
 * leaves early. Whoever waits on an entry that was given up without an outcome enters anew, and one of them leads. Memory
 * belongs to whoever still holds a reference. */
#ifndef CRL_HERD_H
#define CRL_HERD_H

#include "value.h"

typedef struct crl_herd crl_herd;
typedef struct crl_entry crl_entry;

/* What a flight came to, for everybody who shares it. */
typedef struct crl_outcome {
  int status;            /* CORRAL_OK, ENOTFOUND, or why not */
  crl_bytes *bytes;      /* CORRAL_OK */
  size_t offset, size;   /* the value within */
  corral_how how;
  corral_kept kept;
  int64_t age_ms;
  corral_error error;
} crl_outcome;

typedef enum crl_wait {
  CRL_WAIT_LANDED = 1, /* *outcome holds a reference of the caller's */
  CRL_WAIT_GIVEN_UP,   /* enter anew */
  CRL_WAIT_DEADLINE
} crl_wait;

/* NULL without memory. */
crl_herd *crl_herd_new(uint64_t seed);
void crl_herd_free(crl_herd *herd);
/* The entry of a key, with a reference; *leads tells whether the caller shall run the flight. NULL without memory. */
crl_entry *crl_herd_enter(crl_herd *herd, const void *key, size_t key_len, int *leads);
/* Waits until the entry's flight has something for this caller. */
crl_wait crl_herd_wait(crl_entry *entry, int64_t deadline, crl_outcome *outcome);
/* A stale answer while the flight goes on: for all who wait and who come, until `until` (0: not at once), and for those whose
 * deadline comes, until `last`. */
void crl_herd_interim(crl_entry *entry, const crl_outcome *outcome, int64_t until, int64_t last);
/* The end of the flight; copies the outcome with a reference of its own. */
void crl_herd_land(crl_entry *entry, const crl_outcome *outcome);
/* The end without an outcome: those who wait enter anew. No effect after a landing. */
void crl_herd_give_up(crl_entry *entry);
/* Nobody joins from now on; those who did still get the outcome. */
void crl_herd_detach(crl_entry *entry);
void crl_herd_detach_key(crl_herd *herd, const void *key, size_t key_len);
crl_entry *crl_entry_ref(crl_entry *entry);
void crl_entry_unref(crl_entry *entry);
/* How many keys have an entry in the map now; for tests. */
size_t crl_herd_count(crl_herd *herd);
/* How many callers wait on a key now; for tests. */
size_t crl_herd_waiting(crl_herd *herd, const void *key, size_t key_len);

#endif
