/* plugin.h: the interface between corral and a plugin: a store, or an origin (at the end).
 *
 * A store plugin is a corral_store table filled by designated initializers, and one line
 * CORRAL_PLUGIN(my_store). It never retries, reconnects or sleeps: it reports, and the core
 * decides.
 *
 *   open        parse the URI's parameters; no I/O                    (once per corral)
 *   connect     make a handle: a connection, or whatever I/O needs    (lazily, and anew)
 *   perform     a batch of operations, in order, each with its own result
 *   disconnect  free a handle;   close   free the store
 *   watch, changes, unwatch   optional: report changes as they happen
 *   list        optional: the keys of locks, for operators
 *
 * The record. One key of the store holds value and lease (below). A store that can read and write a
 * record atomically (under its own mutex, in a transaction, by compare-and-swap) needs no logic of
 * its own: host->decide says what each verb does to the record. A store whose server runs scripts
 * does the same in its scripts.
 *
 * Time. The ends of leases and of lives are judged by ONE clock that all users of the store share
 * (the server's, or the host's monotonic one): "store time", in ms since any moment; 0 is not a
 * store time. */
#ifndef CORRAL_PLUGIN_H
#define CORRAL_PLUGIN_H

#include <corral.h>
#include <corral/page.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Layout of the structs below. Fields that are added at a struct's end don't change it. */
#define CORRAL_PLUGIN_ABI 3

/* ---- records ------------------------------------------------------------------------------- */

#define CORRAL_HEAD 48   /* bytes of a record's head */
#define CORRAL_LEASE 40  /* bytes of its lease, without parts */
#define CORRAL_FRONT 192 /* most bytes of head and lease together */
#define CORRAL_TOKEN 16
#define CORRAL_DIGEST 16
#define CORRAL_NOTE 64
#define CORRAL_LEASE_KEPT_MS 2000 /* the key outlives its lease by this time (below) */

/* States of a record: no lease, a lease, a verdict (a remembered failure). */
enum { CORRAL_FREE = 0, CORRAL_LEASED = 1, CORRAL_VERDICT = 2 };
enum { CORRAL_FLAG_EXPIRED = 1 /* set by corral_expire: the soft TTL has ended */ };

/* A record is the head; the body (payload and metadata, which only the core reads); and, in the
 * states LEASED and VERDICT, the lease. Whatever follows the lease, or the body of a FREE record,
 * is skipped. Numbers are little-endian.
 *
 * offset size field of the head
 *      0    3 magic "crl"
 *      3    1 format: '2'. A record of a later format is left alone (CORRAL_ENEWER), one of an
 *           earlier format counts as none
 *      4    1 state: FREE, LEASED, VERDICT
 *      5    1 flags
 *      6    1 kind of the value      7  1 its encoding
 *      8    8 life_end: when the body's life ends, store time; zero without a body
 *     16    4 bytes of the body     20  2 how many of them, at its end, are metadata
 *     22    2 failures in a row
 *     24   16 digest of the key
 *     40    8 stamp of the body (its checksum): equal stamps, equal bodies; zero without a body
 *
 * offset size field of the lease
 *      0    2 bytes of the lease, parts included
 *      2    2 zero
 *      4    4 length_ms: what the lease or verdict was last taken for
 *      8    8 until: when it ends, store time. 0, of a lease without a body: CORRAL_LEASE_KEPT_MS
 *           before the store drops the key. For stores that know a key's time left; a plugin hands
 *           such a record out with `until` and `since` set. A lease whose key has no end is over
 *     16    8 since: when it began, store time; 0 where `until` is
 *     24   16 token; zero unless LEASED
 *     40      parts: kind (1), length (1), bytes. 1 note: the lease's holder, or the verdict's
 *             text. 2 cost_ms: expected cost of the compute. 3 code: a verdict's number. Other
 *             kinds are skipped
 *
 * The front of a record is its head and, right behind, its lease: all that the verbs need.
 *
 * The end of a lease. At `until` it ends for others: GET shows no lease any more, CLAIM is granted.
 * For its holder it lasts until another is granted the lease, or the key goes: until then EXTEND,
 * SETTLE, RENEW and RELEASE with its token count, however late. So that they can, the key of a
 * record with a lease stays until CORRAL_LEASE_KEPT_MS after `until`, or until life_end if that is
 * later: it is the `expires` of a change. */
typedef struct corral_header {
  uint8_t state, flags, kind, encoding;
  uint16_t metadata;
  uint32_t body, failures;
  int64_t life_end;
  uint8_t digest[CORRAL_DIGEST];
  uint64_t stamp;
  /* of the lease; all zero when FREE */
  int64_t until, since;
  uint32_t length_ms, cost_ms;
  int32_t code;
  uint8_t token[CORRAL_TOKEN];
  char note[CORRAL_NOTE]; /* not necessarily terminated */
} corral_header;

/* ---- operations ---------------------------------------------------------------------------- */

typedef enum corral_verb {
  CORRAL_VERB_GET = 1, /* the record and its remaining life, in ONE round trip: the hit path */
  /* read the record and, if it has no lease and no verdict in force, take the lease, atomically */
  CORRAL_VERB_CLAIM,
  /* store the record and end the lease, if the lease still has this token */
  CORRAL_VERB_SETTLE,
  /* end the lease if it has this token, and leave the verdict in its place if one is given */
  CORRAL_VERB_RELEASE,
  CORRAL_VERB_EXTEND,     /* lengthen the lease if it has this token */
  CORRAL_VERB_INVALIDATE, /* remove the key, and so value and lease together */
  /* end the soft TTL and any lease; the body stays. Without a body the key goes */
  CORRAL_VERB_EXPIRE,
  /* as SETTLE with the body that the record has: the body gets a new life, the EXPIRED flag and the
   * failures end. Without a body: EMISS, and nothing changes. A store without this verb answers
   * EUNSUPPORTED */
  CORRAL_VERB_RENEW,
  /* Users' own locks (below). Their keys are never those of values. A store without locks answers
   * EUNSUPPORTED. */
  CORRAL_VERB_LOCK,        /* give this token a hold if no other hold is in its way, atomically */
  CORRAL_VERB_LOCK_EXTEND, /* lengthen this token's hold, if it still has one */
  CORRAL_VERB_UNLOCK,      /* end this token's hold, and its place in the queue */
  CORRAL_VERB_LOCK_SHOW    /* read the holds; changes nothing */
} corral_verb;

/* Flags of an operation. */
enum {
  /* LOCK, set by the host: the store's watch will report the key's next change, so until_ms may
   * stay unknown if finding it out costs a request */
  CORRAL_OP_WATCH = 1,
  /* LOCK: a shared hold, beside other shared ones. LOCK_EXTEND: an exclusive hold becomes a shared
   * one */
  CORRAL_OP_SHARED = 4,
  /* LOCK_SHOW: if the key has foreign data (EFOREIGN) without a TTL, give it a TTL of foreign_ms,
   * atomically with the check that it has none */
  CORRAL_OP_REPAIR = 8,
  /* LOCK, set by the plugin with EBUSY: this token has a place in a queue, until a LOCK of it is
   * granted or UNLOCK */
  CORRAL_OP_QUEUED = 16,
  /* GET, set by the host: a record of more than 1 MiB may be left unread, so that it doesn't delay
   * other operations */
  CORRAL_OP_LESS = 32,
  /* GET, set by the plugin: the record was left unread and the status stays EINDOUBT; the host asks
   * for this key again, alone and without LESS */
  CORRAL_OP_LARGE = 64,
  /* CLAIM, set by the host: there was no such key a moment ago. A hint, for stores where a key that
   * isn't there is claimed at less cost */
  CORRAL_OP_ABSENT = 128,
  /* CLAIM, set by the host with ABSENT: this is also the first look at the key. Where a record is
   * after all, the plugin may leave it alone and answer EBUSY, with what a GET would find; then the
   * host judges that, and claims again if it must */
  CORRAL_OP_LOOKS = 256,
  /* set by the plugin with CORRAL_EMOVED, and still there when the operation comes to that server:
   * the key is on its way there, and this one operation is to be served ahead of that */
  CORRAL_OP_ASKING = 512,
  /* INVALIDATE, SETTLE, set by the host: the change voids what was stored before it. A store whose
   * replicas must confirm such changes (info.confirms) answers OK when enough of them have, else
   * EINDOUBT: it is done here, and may be undone by a replica that takes over */
  CORRAL_OP_CONFIRM = 1024,
  /* set by the plugin with CORRAL_EMOVED: `route` names that server by now anyway, so nothing is to
   * be learnt from this */
  CORRAL_OP_MAPPED = 2048,
  /* LOCK, LOCK_EXTEND, set by the plugin with OK: the hold lasts longer than left_ms, which is how
   * long the last sign of its session is good for. The host asks in time, by a LOCK_EXTEND that
   * doesn't lengthen the hold */
  CORRAL_OP_MORE = 4096,
  /* LOCK, set by the host for a store with info.turns: in turn ("Turns" below) */
  CORRAL_OP_FAIR = 8192,
  /* LOCK, and LOCK_EXTEND with `from`, set by the host for a store with info.ties: the hold, or the
   * place in the queue, is tied to this process ("Ties" below) */
  CORRAL_OP_TIED = 16384,
  /* LOCK_EXTEND, set by the host for a store with info.ties: the hold isn't tied to its process any
   * more */
  CORRAL_OP_LOOSE = 32768
};

/* ---- the arguments of each verb; GET, INVALIDATE, EXPIRE and UNLOCK have none. */

typedef struct corral_claim_args {
  int64_t lease_ms;     /* the lease's length from now */
  const uint8_t *front; /* NULL, or a front whose digest, note and cost_ms go into the record */
  size_t front_len;
  /* stamp of the body that the host has already, 0: none. If the record's body has that stamp,
   * op->found may be the front alone, with op->state.same set */
  uint64_t seen;
  /* token of a lease that counts as over, because its holder is known to be dead; NULL: none */
  const uint8_t *over;
} corral_claim_args;

typedef struct corral_settle_args {
  const uint8_t *record; /* head (FREE) and body */
  size_t record_len;
  int64_t ttl_ms; /* the body's life */
} corral_settle_args;

typedef struct corral_renew_args {
  int64_t ttl_ms; /* the body's new life */
} corral_renew_args;

typedef struct corral_release_args {
  const uint8_t *verdict; /* NULL, or a front with note, code and failures */
  size_t verdict_len;
  int64_t verdict_ms; /* the verdict's life */
  int64_t keep_ms;    /* how long to keep the key of a verdict without a body */
} corral_release_args;

typedef struct corral_extend_args {
  int64_t lease_ms; /* the lease's length from now */
} corral_extend_args;

typedef struct corral_lock_args {
  int64_t hold_ms;  /* the hold's life */
  int64_t wish_ms;  /* how long the wish stands (see below); 0: no wish */
  const char *note; /* at most CORRAL_LOCK_NOTE bytes, not terminated; NULL: none */
  size_t note_len;
  /* a permit is asked for, of so many (1 to CORRAL_LOCK_HOLDS); 0: no permit. Only of a store with
   * info.permits, and without SHARED */
  uint32_t permits;
  uint32_t zero;
} corral_lock_args;

typedef struct corral_lock_extend_args {
  int64_t hold_ms; /* the hold ends no earlier than this from now */
  uint64_t fence;  /* least fencing token from now on */
  /* NULL; or, where info.adopts, the token of a hold that becomes the op's token's, see below */
  const uint8_t *from;
  const char *note; /* with `from`, as in corral_lock_args: in place of the hold's */
  size_t note_len;
} corral_lock_extend_args;

typedef struct corral_unlock_args {
  /* the hold's fencing token: with it a store can tell a record that has this hold alone; 0: it
   * isn't known */
  uint64_t fence;
} corral_unlock_args;

typedef struct corral_lock_show_args {
  int64_t foreign_ms; /* REPAIR: TTL for foreign data that has none */
} corral_lock_show_args;

/* ---- the results. */

/* The key's record as it is now, given to the host. */
typedef struct corral_found {
  uint8_t *record; /* NULL: none */
  size_t len;
  /* called by the host with `owner` when it no longer needs `record`; NULL when `record` is */
  void (*drop)(void *owner);
  void *owner;
} corral_found;

/* The state of a record, for GET and CLAIM; CLAIM: after its change. */
typedef struct corral_record_state {
  int64_t life_ms; /* the body's remaining life; 0: over, or no body; -1: unknown */
  /* remaining time of the lease or verdict; 0: none; -1: unknown. GET: 0 also when its end
   * contradicts its length, so that a CLAIM dates it anew */
  int64_t left_ms;
  int same; /* CLAIM: the body has the stamp `seen`, and op->found is the front alone */
  uint32_t zero;
} corral_record_state;

/* The state of a lock, for the lock verbs; each verb's part is said below. */
typedef struct corral_lock_state {
  uint64_t fence;  /* the hold's fencing token */
  int64_t left_ms; /* remaining time of the hold, or of what is in its way; -1: unknown, no end */
  int64_t now;     /* LOCK_SHOW: the store time to read the holds' ends by */
} corral_lock_state;

/* One operation. The host sets the first part, and presets status to CORRAL_EINDOUBT and the other
 * results to zero; the plugin sets the second part.
 *
 * Growth. A later corral may append fields to this struct, and to the arguments of a verb as far as
 * CORRAL_OP_ARGS reaches. Nothing is moved, and 0 means what was before. So a plugin finds the ops
 * of a batch by corral_batch_op, never by sizeof(corral_op), and leaves alone what follows the
 * fields that it knows. No op is shorter than the op_size of the plugin's table: the op of an older
 * host ends in zeros. */
enum { CORRAL_OP_ARGS = 48 };
typedef struct corral_op {
  uint32_t verb;
  uint32_t flags;  /* CORRAL_OP_... */
  const void *key; /* 1 to max_key bytes, of any value */
  size_t key_len;
  /* CORRAL_TOKEN bytes; CLAIM, SETTLE, RELEASE, EXTEND, RENEW, LOCK, LOCK_EXTEND, UNLOCK */
  const uint8_t *token;
  corral_error *error; /* receives the detail of an error status; may be NULL */
  union {              /* by the verb */
    corral_claim_args claim;
    corral_settle_args settle;
    corral_renew_args renew;
    corral_release_args release;
    corral_extend_args extend;
    corral_lock_args lock;
    corral_lock_extend_args lock_extend;
    corral_unlock_args unlock;
    corral_lock_show_args lock_show;
    uint64_t args[CORRAL_OP_ARGS / 8];
  };

  /* GET: OK or EMISS. CLAIM: OK, or EBUSY (a lease or a verdict is in force). SETTLE, RELEASE,
   * EXTEND: OK or ELOST. RENEW: OK, ELOST or EMISS. INVALIDATE, EXPIRE: OK. All: EINDOUBT (sent, no
   * reply), EMOVED (see `server`), or an error */
  int status;
  uint32_t zero;
  corral_found found; /* GET, CLAIM: the record; LOCK_SHOW: the lock's record */
  union {
    corral_record_state state;    /* verbs of values */
    corral_lock_state lock_state; /* lock verbs */
  };

  /* set by the host: host->hash64 of the key; 0: the host hasn't computed it */
  uint64_t hash;
  /* For a store whose servers come and go. Set by the host: the server that is asked. Set by the
   * plugin with CORRAL_EMOVED, which says that this server did nothing: the one to ask instead. The
   * host asks that one within the same time limit, a bounded number of times */
  uint32_t server;
  uint32_t zero2;
} corral_op;

/* The hold's life of a LOCK or LOCK_EXTEND. */
static inline int64_t corral_op_hold_ms(const corral_op *op) {
  return op->verb == CORRAL_VERB_LOCK_EXTEND ? op->lock_extend.hold_ms : op->lock.hold_ms;
}

/* The operations of one perform. */
typedef struct corral_batch {
  corral_op *ops; /* the first; the others by corral_batch_op alone */
  size_t count;   /* 1 or more */
  size_t op_size; /* bytes from one op to the next: at least the plugin's sizeof(corral_op) */
  int64_t now;    /* host->now_ms a moment ago; 0: the host hasn't read it */
} corral_batch;

static inline corral_op *corral_batch_op(const corral_batch *batch, size_t number) {
  return (corral_op *)(void *)((char *)batch->ops + number * batch->op_size);
}

/* `count` operations of a batch, from number `first` on. */
static inline corral_batch corral_batch_part(const corral_batch *batch, size_t first,
                                             size_t count) {
  corral_batch part = {corral_batch_op(batch, first), count, batch->op_size, batch->now};
  return part;
}

/* ---- locks --------------------------------------------------------------------------------------
 *
 * A lock is a name with holds: one exclusive hold, or any number of shared ones, or permits, of
 * which a LOCK is given one if there are fewer than it says. Each hold has a token (fresh for every
 * taking), an end of its own in store time, and a fencing token: a number larger than that of every
 * earlier hold of this name, even of holds that the store has forgotten (so: not below the store's
 * wall clock in microseconds, or a counter that is never lost).
 *
 *   LOCK         token; lock: hold_ms, wish_ms, note, permits; flags: SHARED
 *     OK         fence; left_ms: time left of the hold, at most what the server grants. A token
 *                that has a hold already gets OK too: the hold's life begins anew
 *     EBUSY      left_ms: ms until the holds in the way are over at the latest, or a turn; where
 *                only permits are, until the first of them is over; -1 unknown
 *     EREFUSED   no room for one more hold, or not confirmed
 *     EFOREIGN   the key has foreign data; left_ms: the data's time left, -1: it has no end
 *   LOCK_EXTEND  token; lock_extend: hold_ms, fence; flags: SHARED (a permit stays one)
 *     OK         fence; left_ms: the hold ends no earlier than hold_ms from now (nor than before)
 *     ELOST      left_ms as for UNLOCK
 *     from: where the op's token has no hold, that of `from` becomes its own, atomically, with a
 *     fencing token larger than all before. ELOST: `from` has none either, or it is a shared one
 *     and SHARED isn't set. A repeated request finds the op's token's hold, and only extends it
 *   UNLOCK       token; unlock: fence
 *     OK         the token had a hold, or a place
 *     ELOST      the token had none (any more); left_ms 0: the lock is free, else it is held
 *   LOCK_SHOW    lock_show: foreign_ms; flags: REPAIR
 *     OK         op->found: the lock's record; now
 *     EMISS      no record. EFOREIGN as LOCK
 *
 * A wish: a LOCK with wish_ms > 0 that is refused will be repeated with the same token, and must
 * not starve: where shared holds or permits are in the way of an exclusive LOCK, no more of them
 * are granted for that long. A store with a queue of its own keeps the token's place there
 * (QUEUED). The host follows a LOCK whose reply was lost, or that wasn't granted though QUEUED,
 * with an UNLOCK of its token. A store whose locks belong to a connection keeps one connection per
 * hold, and makes the server end the hold after hold_ms of silence.
 *
 * Turns. A LOCK with FAIR and wish_ms > 0 that is refused gets a place at the end of a queue, which
 * it has until it is granted, or UNLOCK, or CORRAL_LOCK_PLACE_MS without a LOCK of its token. When
 * no hold is in the way of the first place any more, its turn begins: for CORRAL_LOCK_TURN_MS no
 * other LOCK is granted. A turn that is over is passed on by the next LOCK of another token, and
 * its place goes. A LOCK without FAIR is granted only when the queue is empty. A queue has
 * CORRAL_LOCK_PLACES places at most; where it is full, a token gets one later. With EBUSY `fence`
 * is the token's place, of which the first is 1; 0: it has none, or the store doesn't tell. A store
 * with a queue of its own (QUEUED) grants in the order of that.
 *
 * Ties. A hold that is tied to its process ends when that has died, as far as the store can prove
 * it: by what the kernel frees with the process, never by its number. A store that can't prove it,
 * or whose means have failed, takes the tie away. Versions without ties take it away, too, from all
 * holds of a record that they write: these end by their time.
 *
 * The record of a lock: CORRAL_LOCK_HEAD bytes, then CORRAL_LOCK_HOLD for each hold; numbers
 * little-endian. A store that can write bytes atomically stores this very record, by
 * host->lock_decide; others make it for LOCK_SHOW, by host->lock_write.
 *
 * offset size field of the head               offset size field of a hold
 *      0    4 magic "crk1"                         0   16 token
 *      4    2 number of holds                     16    1 mode: 1 exclusive, 2 shared, 3 permit; 4
 *                                                        more: no hold, a place in the queue
 *      6    2 zero                                17    1 1: tied to its process
 *                                                 18    2 zero
 *                                                 20    4 length, ms: last taken for; 0 unknown
 *      8    8 the last fencing token              24    8 until, store time
 *     16    8 an exclusive wish's end, store time 32    8 since, store time
 *     24    8 a turn's end, store time; 0 none    40    8 fencing token
 *                                                 48   80 note, zero-padded
 *
 * Places stand among the holds, in the order of the queue; `since`: the arrival; `fence`: of one
 * for a permit, how many permits there may be.
 *
 * The end of a hold is at most the hold's length away, the end of a wish at most
 * CORRAL_LOCK_WISH_MS, and that of a turn CORRAL_LOCK_TURN_MS, plus CORRAL_LOCK_SLACK_MS. An end
 * further away means that the store's clock was set back or a stranger wrote it. Then the next
 * LOCK, granted or not, sets the end to one length from now: a living holder extends the hold, a
 * dead holder's hold ends. */
#define CORRAL_LOCK_HEAD 32
#define CORRAL_LOCK_HOLD 128
#define CORRAL_LOCK_NOTE 80
#define CORRAL_LOCK_HOLDS 1024          /* most holds of one lock */
#define CORRAL_LOCK_LONGEST_MS 86400000 /* longest length of a hold */
/* Longest wish: it stands until a waiting writer has asked again, or is dead. */
#define CORRAL_LOCK_WISH_MS 2000
#define CORRAL_LOCK_TURN_MS 250    /* a turn of the queue's first place */
#define CORRAL_LOCK_PLACE_MS 30000 /* life of a place, from its last LOCK */
#define CORRAL_LOCK_PLACES 256     /* most places of one lock's queue */
/* Differences and steps of the users' clocks up to this size lead to no new end. */
#define CORRAL_LOCK_SLACK_MS 2000
/* the record outlives its last hold by this time, for the fencing token */
#define CORRAL_LOCK_MEMORY_MS 60000

enum {
  CORRAL_LOCK_EXCLUSIVE = 1,
  CORRAL_LOCK_SHARED = 2,
  CORRAL_LOCK_PERMIT = 3,
  CORRAL_LOCK_WAITING = 4
};

typedef struct corral_hold {
  uint8_t token[CORRAL_TOKEN];
  int mode;
  uint32_t length_ms;   /* 0: unknown */
  int64_t until, since; /* store time */
  uint64_t fence;
  char note[CORRAL_LOCK_NOTE]; /* not necessarily terminated */
} corral_hold;

/* Change of a record by a lock verb. */
typedef struct corral_lock_change {
  /* CORRAL_ACTION_KEEP, or CORRAL_ACTION_REPLACE: the record is now the first `size` bytes of the
   * room */
  int action;
  size_t size;
  int64_t expires; /* when the store drops the key, store time */
} corral_lock_change;

/* ---- functions of the host ----------------------------------------------------------------- */

/* A store URI, taken apart and percent-decoded. All text belongs to the host and lives until `open`
 * returns. */
typedef struct corral_uri_param {
  const char *name, *value;
} corral_uri_param;

typedef struct corral_uri {
  const char *text;     /* the whole, for messages, with the password hidden */
  const char *scheme;   /* in lower case */
  const char *user;     /* NULL when not given */
  const char *password; /* NULL when not given */
  const char *hosts;    /* "host:port,host:port", NULL when there is no "//" part */
  const char *host;     /* the first host, without brackets; "" when not given */
  int port;             /* the first port; 0 when not given */
  const char *path;     /* everything between the authority (or the scheme's colon) and "?" */
  const corral_uri_param *params;
  size_t param_count;
} corral_uri;

enum { CORRAL_ACTION_KEEP = 0, CORRAL_ACTION_EDIT, CORRAL_ACTION_REPLACE, CORRAL_ACTION_REMOVE };

/* Change of a record by a verb. */
typedef struct corral_change {
  /* KEEP: none. EDIT: the front changes, the body stays. REPLACE: front and body change. REMOVE:
   * the key goes */
  int action;
  uint8_t front[CORRAL_FRONT];
  size_t front_len;
  const uint8_t *body; /* REPLACE: borrowed from op->settle.record; EDIT: NULL */
  size_t body_len;     /* of the new record, EDIT too */
  int64_t expires;     /* EDIT, REPLACE: when the store drops the key, store time */
} corral_change;

typedef struct corral_host {
  size_t size;
  uint32_t abi;
  uint32_t zero;
  /* monotonic clock of the host, in ms, in which every `deadline` is given; starts anew at boot */
  int64_t (*now_ms)(void);
  /* monotonic clock, in ms, shared by all processes of this host; goes on while it sleeps */
  int64_t (*boot_ms)(void);
  /* fills `buffer` with random bytes from the kernel; CORRAL_OK or CORRAL_EIO */
  int (*random)(void *buffer, size_t size);
  /* Sets status and printf-like text of *error (may be NULL); returns `status`. What doesn't fit,
   * in an error or in a %.80s, is left out of the middle, where "..." stands then. */
  int (*fail)(corral_error *error, int status, const char *format, ...)
#if defined(__GNUC__)
      __attribute__((format(printf, 3, 4)))
#endif
      ;
  /* CORRAL_EURI if the URI has a parameter that is not in `names`, a list separated by spaces; the
   * text says which ones are accepted. */
  int (*uri_check)(const corral_uri *uri, const char *names, corral_error *error);
  /* A parameter's value, or NULL. */
  const char *(*uri_get)(const corral_uri *uri, const char *name);
  /* Reads a number within [least, most], with a unit: "" none, "ms" (500ms 2s 1m 1h 1d), "bytes"
   * (64k 10m 2g). *value stays as it is when the parameter isn't given. CORRAL_EURI with a text
   * that says what is accepted. */
  int (*uri_number)(const corral_uri *uri, const char *name, const char *unit, int64_t least,
                    int64_t most, int64_t *value, corral_error *error);
  /* Writes the front of a whole record; returns its length. A record whose body is cut short has a
   * front without a body. */
  size_t (*front)(const void *record, size_t size, uint8_t front[CORRAL_FRONT]);
  /* Reads a front. CORRAL_OK: *header is set. CORRAL_EFOREIGN: these bytes are no front.
   * CORRAL_ENEWER, CORRAL_EMISS: a front of a later, an earlier format. */
  int (*header_read)(const void *front, size_t size, corral_header *header);
  /* Writes a front; returns its length. */
  size_t (*header_write)(const corral_header *header, uint8_t front[CORRAL_FRONT]);
  /* Decides what op's verb does to the record that the store has now, given by its front (NULL:
   * none, or its `expires` has passed), at store time `now`: sets op->status and op->state, and
   * *change. Pure. For GET and CLAIM the plugin still sets op->found, after the change was
   * made. A record that isn't corral's is CORRAL_EFOREIGN and KEEP, for INVALIDATE too. decide and
   * lock_decide use only the fields that every op of this ABI has, so the op may be a copy. */
  void (*decide)(corral_op *op, const uint8_t *front, size_t size, int64_t now,
                 corral_change *change);
  /* For EDIT and REPLACE: writes the new record, front_len + body_len bytes, from the change and
   * the body: change->body, or for EDIT the old record from offset CORRAL_HEAD, which must not
   * overlap `record`. */
  void (*join)(const corral_change *change, const uint8_t *body, uint8_t *record);
  /* 64-bit hash, keyed with random bytes and so different in each process: for tables of this
   * process, and for what a watch reports. */
  uint64_t (*hash64)(const void *data, size_t size);
  /* Hash for names that several processes or hosts share: the first 16 bytes of a cryptographic
   * hash, the same everywhere (BLAKE2b with 16 bytes of output, RFC 7693). */
  void (*digest)(const void *data, size_t size, uint8_t digest[16]);
  /* Wall clock, ms since 1970, which may jump: for stores whose servers have no better time, and to
   * be read once there. */
  int64_t (*wall_ms)(void);
  /* Decides what op's lock verb does to the lock record that the store has now (NULL: none, or its
   * `expires` has passed) at store time `now`: sets *change, op->status and op->lock_state
   * (LOCK_SHOW: the plugin hands out the record when the status is OK). `floor`: least value of a
   * new fencing token: the store's wall clock in microseconds, if possible one that doesn't jump
   * back. `room`: `size` + CORRAL_LOCK_HOLD + CORRAL_LOCK_HEAD bytes of the plugin's that don't
   * overlap `record`. Pure. */
  void (*lock_decide)(corral_op *op, const uint8_t *record, size_t size, int64_t now,
                      uint64_t floor, uint8_t *room, corral_lock_change *change);
  /* Writes a lock record with these holds: CORRAL_LOCK_HEAD + count * CORRAL_LOCK_HOLD bytes. */
  void (*lock_write)(uint64_t fence, const corral_hold *holds, size_t count, uint8_t *record);
  /* For origins: functions of corral.h and corral/loop.h. */
  const struct corral_fill_calls *fill;
  /* Reports progress of perform, on its thread. `bytes` were sent to the server or came from it; 0:
   * the plugin is about to wait. Returns (now_ms) when that wait must end if nothing more moves:
   * for perform's `deadline` that one or, as bytes move, another one; any other `deadline` is
   * returned as it is. A plugin that never calls it keeps perform's deadline. */
  int64_t (*moved)(size_t bytes, int64_t deadline);
  /* own_fd takes a descriptor that the plugin has just opened and returns it, or a copy above 2,
   * closed on exec; -1 with errno (then the given one is closed). Reason: in a process that was
   * started with its standard streams closed, a socket or a file gets one of their numbers, and
   * prints go into it. guard_standard, to be called before a library opens descriptors, opens
   * /dev/null for those of 0, 1 and 2 that are closed. Any thread; cheap. */
  int (*own_fd)(int fd);
  void (*guard_standard)(void);
  /* corral_uri_show, for texts that the host hasn't parsed. */
  void (*uri_show)(const char *uri, char *text, size_t size);
  /* For origins, whose URLs the host doesn't parse: *ret is a copy of the password that
   * password_file=, password_fd= or password_env= among uri->params names, for the plugin to wipe
   * and free; NULL when none is given. CORRAL_EURI when there is more than one, uri->password
   * included. For a store the host has put it into uri->password already, and removed the
   * parameter. */
  int (*uri_secret)(const corral_uri *uri, char **ret, corral_error *error);
  /* decide for a GET, by the whole record that the store has: sets op->status, which it returns,
   * and op->state. Pure, and cheaper than front and decide. */
  int (*look)(corral_op *op, const void *record, size_t size, int64_t now);
  /* Memory for a record that a GET or CLAIM finds: the value that the caller gets is made of it
   * without another allocation or a copy. To be handed out with found.owner == found.record and
   * found.drop == record_drop; else given back by record_drop. NULL without memory. Any thread. */
  uint8_t *(*record_new)(size_t size);
  void (*record_drop)(void *record); /* NULL is allowed */
  /* for origins */
  const struct corral_page_calls *page;
  /* the clock of now_ms in microseconds, to measure with */
  int64_t (*now_us)(void);
  /* Within a watch's `changes`, with its `arg`: changes of the key of this hash may have been
   * missed. Copies of it, unlike those of a key that has changed, go on to serve while the store is
   * away. */
  void (*missed)(void *arg, uint64_t hash);
} corral_host;

/* hash64 of the operation's key. */
static inline uint64_t corral_op_hash(const corral_host *host, const corral_op *op) {
  return op->hash != 0 ? op->hash : host->hash64(op->key, op->key_len);
}

/* 64-bit name that several processes or hosts share: the first 8 bytes of a digest, as a
 * little-endian number. */
static inline uint64_t corral_digest_number(const corral_host *host, const void *data,
                                            size_t size) {
  uint8_t digest[16];
  uint64_t number = 0;
  host->digest(data, size, digest);
  for (unsigned i = 0; i < 8; i++) number |= (uint64_t)digest[i] << (8 * i);
  return number;
}

/* corral_fill_bytes and its kin, by their names without the prefix corral_fill_ (failed:
 * corral_fill_fail, then corral_fill_done). */
typedef struct corral_fill_calls {
  size_t size;
  int (*bytes)(corral_fill *fill, const void *data, size_t size);
  void *(*reserve)(corral_fill *fill, size_t size);
  void (*negative)(corral_fill *fill);
  void (*lives)(corral_fill *fill, int64_t ttl_ms, int64_t swr_ms, int64_t sie_ms);
  void (*pass)(corral_fill *fill);
  int (*validator)(corral_fill *fill, const void *data, size_t size);
  const void *(*old)(const corral_fill *fill, size_t *size);
  const void *(*old_validator)(const corral_fill *fill, size_t *size);
  int (*not_modified)(corral_fill *fill);
  int (*should_stop)(const corral_fill *fill);
  void (*done)(corral_fill *fill);
  void (*failed)(corral_fill *fill, int32_t code, const char *text);
  void (*abandon)(corral_fill *fill);
  int (*tag)(corral_fill *fill, const void *tag, size_t len);
  /* The lives of the policy, which hold where `lives` says 0; a grace of -1 is off. */
  void (*policy_lives)(const corral_fill *fill, int64_t *ttl_ms, int64_t *swr_ms, int64_t *sie_ms);
} corral_fill_calls;

/* Functions of corral/page.h, by their names without the prefix corral_page_. */
typedef struct corral_page_calls {
  size_t size; /* of this struct */
  int (*read)(const void *data, size_t size, corral_page *ret);
  size_t (*room)(const corral_page *page, const corral_page_field *fields, size_t count); /* size */
  unsigned char *(*write)(unsigned char *to, const corral_page *page,
                          const corral_page_field *fields, size_t count);
  int (*leaves_out)(const corral_page_field *field);
  size_t (*merge)(const corral_page *old, corral_page_field *fields, size_t count, size_t *ret_old);
  void (*vary)(const unsigned char *names, size_t len, const corral_page_field *request,
               size_t count, unsigned char *ret_hash);
  size_t (*tag)(int kind, const void *text, size_t len, unsigned char *ret);
} corral_page_calls;

/* ---- tables of a plugin -------------------------------------------------------------------- */

enum {
  /* a handle is used by one thread at a time; the host puts operations of several callers into one
   * batch */
  CORRAL_THREADS_HANDLE = 0,
  CORRAL_THREADS_PARALLEL = 1 /* one handle for all, used by any number of threads at once */
};

enum {
  CORRAL_REACH_PROCESS = 1, /* this process alone */
  /* all processes of this host: the store's own election takes the place of host_lock */
  CORRAL_REACH_HOST = 2,
  CORRAL_REACH_FLEET = 3 /* any number of hosts */
};
enum { CORRAL_SERVERS = 1024 };
enum { CORRAL_WARNING = 1 /* not a status: of a text that comes with CORRAL_OK, see `connect` */ };

/* Properties of a store, set by `open`; preset to the defaults in brackets. */
typedef struct corral_store_info {
  size_t size;
  /* [65536] longest key in bytes; longer ones are hashed by the host, and the record's digest tells
   * them apart */
  size_t max_key;
  /* [600 MiB] bytes of the largest record; larger ones are refused before they are sent */
  uint64_t max_record;
  int64_t handles; /* [2] best number of handles for this store */
  /* [0: the policy's] longest pause between a waiter's looks, where a look is cheap */
  int64_t poll_max_ms;
  /* [""] for messages and thread names: "redis 127.0.0.1:6379"; lives as long as the store */
  const char *name;
  int64_t reach; /* [CORRAL_REACH_FLEET] range of the processes that share this store */
  /* [1] independent servers over which the keys are spread (see `route`); at most CORRAL_SERVERS.
   * Where they come and go (see `refresh`): the most that there may be at a time */
  size_t servers;
  /* [0] most that the store times of two users may differ; 0 where one clock serves all */
  int64_t clock_skew_ms;
  /* [0] 1: the store has locks only: it gets no verbs of values, and a resting server is probed by
   * LOCK_SHOW */
  int64_t locks_only;
  /* [0] 1: operations with CORRAL_OP_CONFIRM wait for replicas. The host sends them on handles of
   * their own, where nobody waits behind them */
  int64_t confirms;
  /* [0] 1: LOCK gives permits. The host asks no other store for them */
  int64_t permits;
  /* [0] 1: LOCK keeps turns (CORRAL_OP_FAIR). The host asks no other store for them */
  int64_t turns;
  /* [0] 1: holds of locks belong to no connection, and LOCK_EXTEND knows `from` */
  int64_t adopts;
  /* [0] 1: the store can tell that the process of a hold has died (CORRAL_OP_TIED) */
  int64_t ties;
} corral_store_info;

/* A key that a watch registers. The host sets the first part, the plugin the second one. */
typedef struct corral_registration {
  const void *key;
  size_t key_len;

  /* From now on the watch reports the key's next change: OK: the key has these first bytes, all of
   * a record's head if it has a record; EMISS: there is no such key; EFOREIGN: a key without bytes.
   * Any other status: it won't be reported; nothing is known of the key. */
  int status;
  uint8_t head[CORRAL_HEAD];
  size_t head_len;
} corral_registration;

/* Bytes of a fact's name at the most, and room for each of its other texts: longer ones are cut. */
enum { CORRAL_FACT_NAME = 32, CORRAL_FACT_TEXT = 600 };

/* The argument of `inspect`. */
typedef struct corral_inquiry {
  size_t size;
  int64_t op_ms;  /* time limit of a connect, and of each request */
  uint32_t flags; /* CORRAL_INSPECT_... */
  uint32_t zero;
  /* a key that nobody has written or will write, as those of values or, with
   * CORRAL_INSPECT_LOCKS, of locks */
  const void *key;
  size_t key_len;
  corral_fact_fn *tell;
  void *arg;
} corral_inquiry;

/* Tells a fact. `advice` NULL: the fact is plain. */
static inline void corral_tell(const corral_inquiry *inquiry, const char *server, const char *name,
                               const char *value, int verdict, const char *advice) {
  corral_fact fact = {sizeof(corral_fact),
                      server,
                      name,
                      value,
                      advice != NULL ? verdict : CORRAL_FACT_PLAIN,
                      advice};
  inquiry->tell(&fact, inquiry->arg);
}

/* The text of a failure without the name of its server, with which it may begin. */
static inline const char *corral_reason(const corral_error *why, const char *server) {
  size_t len = strlen(server);
  int is_named = strncmp(why->text, server, len) == 0 && why->text[len] == ':';
  return is_named ? why->text + len + 1 + strspn(why->text + len + 1, " ") : why->text;
}

/* Tells that a server wasn't reached: "reached", and why. */
static inline void corral_tell_unreached(const corral_inquiry *inquiry, const char *server,
                                         const corral_error *why, int verdict, const char *advice) {
  char value[sizeof why->text + 8];
  snprintf(value, sizeof value, "no: %s", corral_reason(why, server));
  corral_tell(inquiry, server, "reached", value, verdict, advice);
}

/* Tells latency_ms, the median, and latency_min_ms of `count` round trips, which it sorts. */
static inline void corral_tell_latency(const corral_inquiry *inquiry, const char *server,
                                       int64_t *us, size_t count) {
  char text[32];
  size_t middle = count / 2;
  if (count == 0) return;
  for (size_t i = 1; i < count; i++)
    for (size_t j = i; j > 0 && us[j] < us[j - 1]; j--) {
      int64_t larger = us[j - 1];
      us[j - 1] = us[j];
      us[j] = larger;
    }
  snprintf(text, sizeof text, "%.3f", (double)us[middle] / 1000);
  corral_tell(inquiry, server, "latency_ms", text, CORRAL_FACT_PLAIN, NULL);
  snprintf(text, sizeof text, "%.3f", (double)us[0] / 1000);
  corral_tell(inquiry, server, "latency_min_ms", text, CORRAL_FACT_PLAIN, NULL);
}

/* The argument of `list`. */
typedef struct corral_listing {
  size_t size;
  int64_t op_ms; /* time limit of a connect, and of each request */
  const void *prefix;
  size_t prefix_len;
  /* Tells a key; any value but 0: no more are wanted. It asks no store. */
  int (*tell)(void *arg, const void *key, size_t key_len);
  void *arg;
} corral_listing;

typedef struct corral_store {
  size_t size;         /* sizeof(corral_store) */
  uint32_t abi;        /* CORRAL_PLUGIN_ABI */
  uint32_t threads;    /* CORRAL_THREADS_... */
  size_t op_size;      /* sizeof(corral_op): no op that the plugin gets is shorter */
  const char *name;    /* "redis" */
  const char *schemes; /* separated by spaces: "redis rediss redis+unix" */
  const char *summary; /* one line */
  /* Required. Checks the URI and makes the store. No I/O, no threads. `host` lives for ever. */
  int (*open)(const corral_host *host, const corral_uri *uri, void **ret_store,
              corral_store_info *info, corral_error *error);
  /* Required. Frees the store, after all its handles were disconnected. */
  void (*close)(void *store);
  /* Required. Makes a handle, by `deadline` (host->now_ms). Any status; CORRAL_EAUTH and the like
   * with a text for the user. A text with CORRAL_OK, here and of `perform` (host->fail(error,
   * CORRAL_OK, ...)), says that the store had to begin anew: the event store_anew. One with
   * CORRAL_WARNING in place of that, and CORRAL_OK returned, is what the user should know of the
   * server, told once: the event warning. CORRAL_EBUSY, for a store whose handle all threads share:
   * the store is well, but others were first. */
  int (*connect)(void *store, int64_t deadline, void **ret_handle, corral_error *error);
  /* Required. Closes a handle and frees it. */
  void (*disconnect)(void *handle);
  /* Required. Performs the operations in order and sets the result of each, by `deadline`.
   * CORRAL_OK: the handle may be used again. Else it is broken (a limit reached, a half-read
   * reply), and the host disconnects it. Operations whose fate isn't known keep CORRAL_EINDOUBT;
   * those not sent at all get CORRAL_EUNAVAILABLE. Several operations of one batch may name the
   * same key. */
  int (*perform)(void *handle, const corral_batch *batch, int64_t deadline, corral_error *error);
  /* For a store whose info.servers is more than 1; both or neither. Each server has handles, a
   * queue and a breaker of its own, so that a failing server costs nothing for the keys of the
   * others. `route` returns the server of a key, 0 to servers - 1, the same in every process and in
   * every state of the servers; any thread, no I/O. `connect_server` is called in place of
   * `connect`; all operations of a batch on its handle are for keys of that server. */
  size_t (*route)(void *store, const void *key, size_t key_len);
  int (*connect_server)(void *store, size_t server, int64_t deadline, void **ret_handle,
                        corral_error *error);
  /* Optional, all three or none: a watch reports changes of keys as they happen. It is used by one
   * thread, beside the handles. A change is whatever makes a GET answer otherwise: a fill, a
   * release, an invalidation, by any process, a foreign DEL too; but not the passing of time. Each
   * report is a hint: one too many, or one missing because the connection broke unnoticed, must do
   * no harm.
   *  watch    opens a watch, by `deadline`; CORRAL_EUNSUPPORTED: this server has none, and watch
   *           isn't called again. A text with CORRAL_OK says how changes are learnt of; it becomes
   *           the detail of the event watch, as the text of an error does. The code in *error is
   *           CORRAL_WAKE_REDIRECT, or as it was: CORRAL_WAKE_PUSH.
   *  changes  blocks until there is a change, `stop_fd` is readable, or `until`; calls
   *           told(arg, hash) with host->hash64 of each key that changed, 0: any key may have
   *           changed. Without register_keys (below) it tells each change of every key that begins
   *           after `watch` returned. Any status but CORRAL_OK: the watch is broken; the host
   *           closes it and opens another. A connection that is dead without a sign is given up
   *           after CORRAL_SILENCE_MS of silence at the latest, in register_keys too.
   *  unwatch  closes the watch. */
  int (*watch)(void *store, size_t server, int64_t deadline, void **ret_watch, corral_error *error);
  int (*changes)(void *watch, int stop_fd, int64_t until, void (*told)(void *arg, uint64_t hash),
                 void *arg, corral_error *error);
  void (*unwatch)(void *watch);
  /* Optional, for a watch whose server reports only what the watch's own connection has asked for.
   * Registers these keys, in one pipeline, by `deadline`: reads each key's first bytes, on the
   * connection on which its changes are reported, so that whatever ends the registration ends the
   * watch. `changes` then reports at least the next change of each key after the moment when its
   * bytes were read; one report may use a registration up. The host compares the bytes with those
   * of the look that it wants to be told about, so a change between that look and the registration
   * is known, too. Changes that become known meanwhile are reported by the next `changes`. On the
   * thread that calls `changes`. Returns early, with any error, when `stop_fd` is readable. Any
   * status but CORRAL_OK: the watch is broken. Several keys may be the same. */
  int (*register_keys)(void *watch, corral_registration *keys, size_t count, int stop_fd,
                       int64_t deadline, corral_error *error);
  /* Another store of the same plugin, NULL: none. */
  const struct corral_store *next;
  /* Optional, all three or none, for stores whose batches take hardly longer than one operation:
   * GETs without waiting, for event loops, and to ask several servers at once. A handle is used by
   * one thread at a time, and for nothing else while a batch is under way; none of these functions
   * ever waits. Bytes that move are told by host->moved(bytes, 0).
   *  descriptor  is readable when `finish` has something to do, also after the connection was
   *              closed. -1: this handle can't do without waiting, and the host disconnects it.
   *  begin       sends a batch of GETs; none may be under way. The batch and its keys stay until it
   *              is finished, or the handle disconnected.
   *  finish      takes what has come, all that is there. *done: 1 when no batch is under way any
   *              more, and all results are set. A key whose record one answer doesn't tell for sure
   *              keeps CORRAL_EINDOUBT: the host asks for it by `perform` of another handle. So it
   *              does for all keys after any status but CORRAL_OK, of `begin` or `finish`: the
   *              handle is broken, and no operation has found anything. */
  int (*descriptor)(void *handle);
  int (*begin)(void *handle, const corral_batch *batch, corral_error *error);
  int (*finish)(void *handle, int *done, corral_error *error);
  /* Optional, for a store whose servers come and go, and keys with them. Then `route` answers by
   * what is known at that moment; a number that it, or an operation with EMOVED, has named stands
   * for one server as long as that is known, and may be given to another one later: a handle of
   * the former one then says that it is broken, with nothing sent. The host opens handles when a
   * server is first needed. There is one watch, of server 0, for all of them.
   *  refresh  learns anew, by `deadline`, which server has which keys. The host calls it after an
   *           operation was EMOVED, or its server wasn't reached: on no caller's thread, one at a
   *           time, with pauses. A text with CORRAL_OK says that something has changed. */
  int (*refresh)(void *store, int64_t deadline, corral_error *error);
  /* Optional: asks each server of the store, over connections that it opens and closes, for what
   * matters to corral, and tells the facts (corral_fact) by inquiry->tell. Commands that would
   * write are sent only in a form that can't change data, on inquiry->key at the most. What a
   * server refuses to tell is no failure; what the user may not do, though corral needs it, is a
   * fact. CORRAL_OK when at least one server was reached: those that weren't are told as the fact
   * "reached". Else the status and text of `connect`. Any thread, beside all else that the store
   * does. */
  int (*inspect)(void *store, const corral_inquiry *inquiry, corral_error *error);
  /* Optional, both or neither: processes of one host share what a refresh has learnt.
   *  map       writes that as bytes; returns how many, 0: there is nothing to be shared.
   *  take_map  takes over what another process wrote, as `refresh` does an answer: the bytes are
   *            foreign. A text with CORRAL_OK as there. */
  size_t (*map)(void *store, void *room, size_t size);
  int (*take_map)(void *store, const void *map, size_t len, corral_error *error);
  /* Optional, both or neither, for a store whose holds of locks belong to connections of this
   * process: the end of such a connection is told at once.
   *  attend  from now on `ends` tells of this token's hold, if its connection ends. 0: it has ended
   *          already. After the grant; any thread; doesn't wait.
   *  ends    blocks until `stop_fd` is readable; calls told(arg, token) for each hold that was
   *          attended to, when its connection has ended. On one thread. */
  int (*attend)(void *store, const uint8_t *token);
  void (*ends)(void *store, int stop_fd, void (*told)(void *arg, const uint8_t *token), void *arg);
  /* Optional: tells the keys of locks that begin with `prefix`, over connections that it opens and
   * closes. Each lock that is held from the call's beginning to its end is told, as far as its key
   * is kept as it is (no longer than max_key). Others may be: keys that come twice, locks that
   * nobody holds, other keys. Nothing in the store is changed, and a file that isn't there isn't
   * made. The host stops the listing when there are too many. CORRAL_EUNSUPPORTED with a text: this
   * server, or kind of lock, keeps no names. Any thread, beside all else that the store does. */
  int (*list)(void *store, const corral_listing *listing, corral_error *error);
} corral_store;

/* Entry point of a store plugin: corral_plugin_NAME.so exports this function as corral_plugin; it
 * returns the table, and by `next` those of its other stores. */
typedef const corral_store *corral_plugin_fn(void);

/* ---- origins ------------------------------------------------------------------------------------
 *
 * An origin computes values from another place, named by a URL: the option `origin` of corral_open
 * names an origin when it contains "://". */
typedef struct corral_origin {
  size_t size;  /* sizeof(corral_origin) */
  uint32_t abi; /* CORRAL_PLUGIN_ABI */
  uint32_t zero;
  const char *name;    /* "http" */
  const char *schemes; /* separated by spaces: "http https" */
  const char *summary; /* one line */
  /* Required. Checks the URL and its parameters, as the user wrote it, and makes the origin. No
   * I/O, no threads. `max_value`: bytes of the largest value that can be filled. */
  int (*open)(const corral_host *host, const char *url, uint64_t max_value, void **ret_origin,
              corral_error *error);
  /* Required. Gives up the fetches under way (fill->abandon), and frees the origin. */
  void (*close)(void *origin);
  /* Required. Begins a compute, and returns without having waited for anything; the compute ends
   * with fill->done, failed or abandon, from any thread, soon after `deadline` (host->now_ms) or
   * should_stop at the latest. `fill` and `key` are valid until then. Any thread, several at
   * once. */
  void (*fetch)(void *origin, corral_fill *fill, const void *key, size_t key_len, int64_t deadline);
} corral_origin;

/* Entry point of an origin plugin: corral_plugin_NAME.so exports this function as
 * corral_origin_plugin. */
typedef const corral_origin *corral_origin_plugin_fn(void);

#if defined(CORRAL_BUILTIN)
#define CORRAL_ORIGIN(origin)
#else
#define CORRAL_ORIGIN(origin)                                                                      \
  CORRAL_API const corral_origin *corral_origin_plugin(void);                                      \
  const corral_origin *corral_origin_plugin(void) { return &(origin); }
#endif

#if defined(CORRAL_BUILTIN)
#define CORRAL_PLUGIN(store)
#elif defined(__cplusplus)
#define CORRAL_PLUGIN(store)                                                                       \
  extern "C" CORRAL_API const corral_store *corral_plugin(void) { return &(store); }
#else
#define CORRAL_PLUGIN(store)                                                                       \
  CORRAL_API const corral_store *corral_plugin(void);                                              \
  const corral_store *corral_plugin(void) { return &(store); }
#endif

#ifdef __cplusplus
}
#endif
#endif
