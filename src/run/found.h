/* found.h: the looks at one key: what is asked of the store, what was found, and how it stands.
 *
 * The first look of a call needs no more than this: if it is a hit, it answers the call, and there
 * is no run. Otherwise the run takes over the struct, and looks with it again. */
#ifndef CRL_FOUND_H
#define CRL_FOUND_H

#include "context/context.h"
#include "flight/flight.h"
#include "record/envelope.h"
#include "tags/tag_versions.h"

typedef struct crl_found {
  crl_context *context;
  const corral_policy *policy;   /* of the call; outlives the looks */
  uint64_t self;                 /* hash of the name in this context */
  crl_bytes *record;             /* of the last look that found one */
  crl_bytes *plain;              /* its payload unpacked; NULL: not yet, or not packed */
  crl_tag_versions tag_versions; /* of its tags, as of the last GET */
  crl_tags *tags;                /* of `record`, if has_tags */
  int has_tags, is_void;         /* `record` has tags; they were invalidated */
  int is_own;   /* `record` is what this process has while the store is away: see offline.c */
  int has_over; /* the last look found a dead leader's lease: `over` */
  /* length of another's lease that the looks so far found; 0: none, or a dead leader's */
  uint32_t other_lease_ms;
  uint64_t stored_version;
  /* crl_watch_print of the record that the last look found, if it has a lease or verdict; else 0 */
  uint64_t print;
  int64_t age_ms;
  int64_t took_us; /* by the last look, if there is a hook; -1: unknown */
  crl_envelope envelope;
  corral_header header;
  /* crl_found_init zeroes only the fields above, to save time. */
  uint8_t over[CORRAL_TOKEN]; /* its lease token */
  uint64_t hash;              /* crl_key_hash */
  uint64_t cost_hash;         /* crl_context_cost_hash */
  crl_key key;
  corral_error error; /* of the store's last failed operation, or of the compute */
} crl_found;

/* One ask of the store on its way: GET, CLAIM, SETTLE or RELEASE. The struct must not be moved. */
typedef struct crl_request {
  corral_op op[1];
  size_t count;     /* 0: the op is not to be performed, `status` tells why */
  int64_t limit;    /* by when; crl_env_now_ms */
  int64_t began_us; /* crl_env_now_us; 0: nobody asks */
  int status, read; /* of the ops; of reading the record found */
  /* what was read; a payload is judged after the versions of its tags were fetched */
  int has_header, has_payload, is_void;
  int fetched; /* status of that fetch, set by the driver */
  int keeps;   /* the near tier wants a copy */
  int watched; /* the watch was up before the ops */
  uint64_t epoch;
  int64_t looked;
  /* crl_request_begin zeroes only the fields above. */
  uint8_t front[CORRAL_FRONT];
} crl_request;

/* The run that looks; a first look has none. */
typedef struct crl_looker {
  const uint8_t *token;       /* a lease with it is the looker's own; NULL: it has none */
  const crl_watcher *watcher; /* that waits for the next change; NULL: none */
  int hold;                   /* on the host's lock; -1: none */
} crl_looker;

/* CORRAL_OK; or CORRAL_ENOMEM, with nothing to clean. `name_hash`: crl_name_hash of the name. */
int crl_found_init(crl_found *found, crl_context *context, const corral_policy *policy,
                   const crl_name *name, uint64_t name_hash);
void crl_found_clean(crl_found *found);
/* `to` takes over everything; `from` is as if cleaned. */
void crl_found_move(crl_found *to, crl_found *from);
/* A hash of the name in this context. */
uint64_t crl_found_self(const crl_context *context, uint64_t name_hash);

/* ---- one look: prepare; the driver performs the op, and reads with it the tag versions that are
 * wanted already; complete; the driver fetches those that are wanted then; interpret ---------- */

void crl_request_begin(const crl_found *found, crl_request *e, int64_t limit);
/* An operation on the key; its detail goes to found->error, which is emptied. */
corral_op crl_found_op(crl_found *found, corral_verb verb);
/* Wants the versions of the tags that the key is known to have. `watches`: the looker has joined
 * the watch. */
void crl_found_prepare(crl_found *found, crl_request *e, int watches);
/* True for a look: the versions of tags that are wanted already go with it. */
static inline int crl_request_asks_tags(const crl_request *e) {
  return e->count > 0 && e->op[0].verb == CORRAL_VERB_GET;
}
/* Performs the op of this request alone. */
void crl_found_perform(crl_found *found, crl_request *e);
/* After the op: takes over what it found, and lists the tag versions that are wanted. */
void crl_found_complete(crl_found *found, crl_request *e);
/* Sets *told to the result of a GET. `looker`: NULL for a first look. */
void crl_found_interpret(crl_found *found, const crl_request *e, const crl_looker *looker,
                         crl_told *told);
/* After the first look of a call: tells that there was neither a fresh value nor one to be served
 * while it is rebuilt. */
void crl_found_tell_miss(crl_found *found, const crl_told *told);
/* Tells of an answer that the last look gave: a hit, a stale value, "no such thing", a verdict. */
void crl_found_tell_answer(crl_found *found, corral_event event, const crl_outcome *outcome);
/* Fetches the tag versions that a request wants, of this record alone. */
void crl_found_fetch(crl_found *found, crl_request *e);
/* All these steps of a first look; `e` is room. */
void crl_found_look(crl_found *found, crl_request *e, int64_t limit, crl_told *told);

/* The parts of a look that a CLAIM shares. */
int crl_found_read(crl_found *found, crl_request *e);
int crl_found_judge(crl_found *found, const crl_request *e, const crl_looker *looker,
                    crl_look *look);
/* Reads this process's own note about the key, for use when the store didn't answer a look: its
 * failure, noted as a verdict, or the pause after its last compute without the store, noted as a
 * lease. 0: there is no note. */
int crl_found_remembered(const crl_found *found, corral_header *ret);
/* Sets *look by that note. */
void crl_found_recall(crl_found *found, crl_look *look);
/* True when an ask failed because the store is slow. */
int crl_found_met_slow(const crl_found *found, const crl_request *e);

/* ---- the record found ------------------------------------------------------------------------ */

/* Replaces the record found; takes over the reference. */
void crl_found_change(crl_found *found, crl_bytes *bytes);
/* The unpacked payload of the record found: at *offset within *bytes, which stays found's.
 * CORRAL_OK, CORRAL_ENOMEM, CORRAL_ECORRUPT. */
int crl_found_plain(crl_found *found, crl_bytes **bytes, size_t *offset);
/* The outcome of a call that the record answers; with a reference. */
crl_outcome crl_found_outcome(crl_found *found, corral_how how);
/* The cost of the key's compute, as this process remembers it: ms; 0: unknown. */
uint32_t crl_found_recall_cost(const crl_found *found);
void crl_found_note_cost(crl_found *found, uint64_t cost_us);
/* Rounded up, since 0 means unknown. */
uint32_t crl_found_cost_ms(uint64_t cost_us);

/* ---- events ---------------------------------------------------------------------------------- */

void crl_found_emit(crl_found *found, corral_event event, const char *detail);
/* crl_found_emit with what is known besides: a status, a duration, bytes (-1: none of them). */
typedef struct crl_fact {
  int status;
  int64_t duration_us, bytes;
  const char *detail;
} crl_fact;
void crl_found_tell(crl_found *found, corral_event event, const crl_fact *fact);
/* The same about an operation on the store, whose server it names. */
void crl_found_tell_op(crl_found *found, corral_event event, const crl_fact *fact);
/* Status and duration of the request's first operation. */
crl_fact crl_request_fact(const crl_request *e);
void crl_found_tell_trouble(crl_found *found, const crl_request *e);

/* ---- near_copy.c --------------------------------------------------------------------------- */

/* The time for which near-tier copies answer this call: its near_ms, 0 where its key has none. */
int64_t crl_found_near_ms(const crl_found *found);
/* Before an ask is sent whose record the near tier may keep. */
void crl_found_date_near(const crl_found *found, crl_request *e);
/* Keeps a near-tier copy of the record found: of its value, if there is one that is fresh or that
 * is served stale while a failure is remembered; or of that failure alone. */
void crl_found_keep_near(crl_found *found, const crl_look *look, uint64_t epoch, int64_t looked);
/* Takes the value of the key's copy, for a store that is away, as the record found, and sets the
 * lives that it has left: 1. */
int crl_found_take_near(crl_found *found, int64_t now, crl_lives *lives);
/* offline.c: the same of the latest value that this process made for the store, or that copy. */
int crl_found_take_own(crl_found *found, crl_lives *lives);

#endif
