/* plugin.h: everything the author of a store needs.
 *
 * A store is one file: a corral_store filled by designated initializers, and one line
 * CORRAL_PLUGIN(my_store). corral calls it through the verbs below; it never retries, never
 * reconnects, never sleeps: it reports, and the core decides.
 *
 *   open        parse the URI's parameters; no I/O                    (once per corral)
 *   connect     make a handle: a connection, or whatever I/O needs    (lazily, and anew)
 *   perform     a batch of operations, in order, each with its own result
 *   disconnect  free a handle;   close   free the store
 *   watch, changes, unwatch   optional: tell of changes as they happen
 *
 * The record. One key of the store holds value and lease (below). A store that can read and write a
 * record atomically (under its own mutex, in a transaction, by compare-and-swap) needs no logic of
 * its own: host->decide tells what each verb does to the record. A server that runs scripts does
 * the same there.
 *
 * Time. Lease ends and lives are judged by ONE clock that all users of the store share (the
 * server's, or the host's monotonic one): "store time", in ms, with any origin that is not zero. */
#ifndef CORRAL_PLUGIN_H
#define CORRAL_PLUGIN_H

#include <corral.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CORRAL_PLUGIN_ABI 2

/* ---- records ------------------------------------------------------------------------------- */

#define CORRAL_HEAD 48   /* bytes of a record's head */
#define CORRAL_LEASE 40  /* bytes of its lease, without parts */
#define CORRAL_FRONT 192 /* most bytes of head and lease together */
#define CORRAL_TOKEN 16
#define CORRAL_DIGEST 16
#define CORRAL_NOTE 64

enum { CORRAL_FREE = 0, CORRAL_LEASED = 1, CORRAL_VERDICT = 2 };
enum { CORRAL_FLAG_EXPIRED = 1 /* corral_expire: the soft life ended by decree */ };

/* A record: the head; the body (payload and metadata), which is the core's own business; and, in
 * the states LEASED and VERDICT, the lease. Behind that, or behind the body of a FREE record,
 * anything may follow: it is skipped. Numbers are little-endian.
 *
 * offset size field of the head
 *      0    3 magic "crl"
 *      3    1 format: '2'. A later one is left alone (CORRAL_ENEWER), an earlier one is as good as
 *           nothing
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
 *      8    8 until: when it ends, store time
 *     16    8 since: when it began, store time
 *     24   16 token; zero unless LEASED
 *     40      parts: kind (1), length (1), bytes. 1 note: who holds the lease, or the verdict's
 *             text. 2 cost_ms: what the rebuild is expected to cost. 3 code: a verdict's number.
 *             Other kinds are skipped
 *
 * The front of a record is its head and, right behind, its lease: all that the verbs look at. */
typedef struct corral_header {
  uint8_t state, flags, kind, encoding;
  uint16_t metadata;
  uint32_t body, failures;
  int64_t life_end;
  uint8_t digest[CORRAL_DIGEST];
  uint64_t stamp;
  /* Of the lease; zero when FREE. */
  int64_t until, since;
  uint32_t length_ms, cost_ms;
  int32_t code;
  uint8_t token[CORRAL_TOKEN];
  char note[CORRAL_NOTE]; /* not necessarily terminated */
} corral_header;

/* ---- operations ---------------------------------------------------------------------------- */

typedef enum corral_verb {
  CORRAL_VERB_GET = 1, /* the record and its remaining life; ONE round trip: the hit path */
  /* atomically the record as it stands and, if nobody holds it, the lease */
  CORRAL_VERB_CLAIM,
  /* store the record and end the lease, only if the lease is still this token's */
  CORRAL_VERB_SETTLE,
  /* end the lease if it is this token's; with a verdict left in its place, if one is given */
  CORRAL_VERB_RELEASE,
  CORRAL_VERB_EXTEND,     /* lengthen the lease if it is this token's */
  CORRAL_VERB_INVALIDATE, /* value and lease vanish together: the key goes */
  /* the soft life and any lease end; the body stays. Without a body the key goes */
  CORRAL_VERB_EXPIRE,
  /* as SETTLE, with the body that is there: a new life for it, EXPIRED and failures end. Without a
   * body: EMISS, and nothing changes. A store that can't answers EUNSUPPORTED */
  CORRAL_VERB_RENEW,
  /* Users' own locks (below). Their keys are never those of values. A store that can't answers
   * EUNSUPPORTED. */
  CORRAL_VERB_LOCK,        /* atomically a hold for this token, if no other one is in its way */
  CORRAL_VERB_LOCK_EXTEND, /* lengthen this token's hold, if it still is one */
  CORRAL_VERB_UNLOCK,      /* end this token's hold, and its place in the queue */
  CORRAL_VERB_LOCK_SHOW    /* who holds it; changes nothing */
} corral_verb;

/* Flags of an operation. */
enum {
  /* GET, LOCK, LOCK_SHOW, set by the host: the store's watch is to tell the next change of this key
   * after this look */
  CORRAL_OP_WATCH = 1,
  /* set by the plugin: it will. LOCK: where that costs nothing, else by LOCK_SHOW alone */
  CORRAL_OP_WATCHED = 2,
  /* LOCK: beside other shared holds. LOCK_EXTEND: an exclusive hold becomes a shared one */
  CORRAL_OP_SHARED = 4,
  /* LOCK_SHOW: what something else than corral left at this key without any end of its life shall
   * live for lease_ms more; one atomic step with seeing that it has none */
  CORRAL_OP_REPAIR = 8,
  /* LOCK, set by the plugin with EBUSY: this token has a place in a queue, until its LOCK is
   * granted or UNLOCK */
  CORRAL_OP_QUEUED = 16,
  CORRAL_OP_LESS = 32, /* GET, set by the host: a record of more than a MiB may be left alone, so
                          that it isn't in the way of others */
  CORRAL_OP_LARGE = 64 /* GET, set by the plugin: it was, and the status stays EUNKNOWN: the host
                          asks again for this key, alone and without LESS */
};

/* One operation. The host sets the first part and presets status to CORRAL_EUNKNOWN; the plugin
 * sets the second. */
typedef struct corral_op {
  uint32_t verb;
  uint32_t flags;  /* CORRAL_OP_...; WATCH only for stores that have a watch */
  const void *key; /* 1 to max_key bytes, of any value */
  size_t key_len;
  const uint8_t *token; /* CORRAL_TOKEN bytes; CLAIM, SETTLE, RELEASE, EXTEND, RENEW */
  /* CLAIM, EXTEND: from now, store time. RELEASE with a verdict: how long it rules */
  int64_t lease_ms;
  /* SETTLE, RENEW: the body's life. RELEASE with a verdict and no body: how long to keep the key */
  int64_t ttl_ms;
  /* SETTLE: head (FREE) and body. CLAIM: a front with digest, note and cost_ms to take over.
   * RELEASE: NULL, or a front with note, code and failures: the verdict */
  const uint8_t *record;
  size_t record_len;
  /* of locks: the fencing token. CLAIM: stamp of the body the host has already; 0 none. When equal,
   * `found` may be the front alone, with `same` set */
  uint64_t seen;
  /* CLAIM: a lease with this token counts as over, for its holder is known to be dead; NULL:
   * none */
  const uint8_t *over;

  /* GET: OK or EMISS. CLAIM: OK or EBUSY (held, or a verdict rules). SETTLE, RELEASE, EXTEND,
   * RENEW: OK or ELOST (RENEW: or EMISS). INVALIDATE, EXPIRE: OK. All: EUNKNOWN (sent, no reply),
   * or an error */
  int status;
  int same; /* CLAIM: the body is the one of `seen`, and `found` is the front alone */
  /* GET, CLAIM: the record as it now stands (CLAIM: after the change); NULL when none */
  uint8_t *found;
  size_t found_len;
  /* called by the host with found_owner when it is done with `found`; NULL where that is NULL */
  void (*found_free)(void *found_owner);
  void *found_owner;
  /* GET, CLAIM: the body's remaining life; 0 none (over, or no body), -1 unknown */
  int64_t life_ms;
  /* GET, CLAIM: what is left of the lease or verdict; 0 none, -1 unknown. GET: 0 also for one with
   * an end that contradicts its length: a CLAIM dates it anew */
  int64_t until_ms;
  corral_error *error; /* where detail of an error status goes; may be NULL */
} corral_op;

/* ---- locks
 * ---------------------------------------------------------------------------------------
 *
 * A lock is a name with holds: one exclusive, or any number of shared ones. Each hold has a token
 * (fresh for every acquisition), an end of its own in store time, and a fencing token: a number
 * that is larger than that of every earlier hold of this name, also of those that the store has
 * forgotten (so: not below the store's wall clock in microseconds, or a counter that is never
 * lost).
 *
 *   LOCK         token; lease_ms: the hold's life; ttl_ms: how long the wish stands, 0: no wish;
 *                record, record_len: note, a text of at most CORRAL_LOCK_NOTE bytes; flags: SHARED
 *     OK         seen: the fencing token; until_ms: time left of the hold, at most what the server
 *                grants. A token that has a hold already gets this too: its life begins anew
 *     EBUSY      until_ms: in how long those in the way will be gone at the latest; -1 unknown
 *     EREFUSED   no room for one more hold, or not confirmed
 *     EFOREIGN   the key holds something else; until_ms: its time left, -1: it has no end
 *   LOCK_EXTEND  token; lease_ms; flags: SHARED; seen: the least fencing token from now on
 *     OK         seen; until_ms: the hold ends no earlier than lease_ms from now (nor than before)
 *     ELOST      until_ms as for UNLOCK
 *   UNLOCK       token
 *     ELOST      it held nothing (any more); until_ms 0: nobody holds it, else somebody does
 *   LOCK_SHOW    flags: WATCH, REPAIR
 *     OK         found: the lock's record; life_ms: the store's time, to read it by
 *     EMISS      nothing there. EFOREIGN as LOCK
 *
 * A wish: a LOCK with ttl_ms > 0 that is refused is going to be repeated, with the same token, and
 * should not be starved: where readers are in the way of a writer, no more readers are let in for
 * that long. A store that has a queue of its own keeps the token's place there (QUEUED). A LOCK
 * whose reply was lost, or that wasn't granted though QUEUED, is followed by UNLOCK of its token. A
 * store whose locks belong to a connection holds one for each hold, and sees to it that the server
 * ends the hold after lease_ms of silence.
 *
 * The record of a lock: CORRAL_LOCK_HEAD bytes, then CORRAL_LOCK_HOLD for each hold; numbers
 * little-endian. A store that can write bytes atomically keeps this very record, by
 * host->lock_decide; others make it for LOCK_SHOW, by host->lock_write.
 *
 * offset size field of the head               offset size field of a hold
 *      0    4 magic "crk1"                         0   16 token
 *      4    2 number of holds                     16    1 mode: 1 exclusive, 2 shared
 *      6    2 zero                                17    3 zero
 *                                                 20    4 length, ms: last taken for; 0 unknown
 *      8    8 the last fencing token              24    8 until, store time
 *     16    8 a writer waits until, store time    32    8 since, store time
 *     24    8 zero                                40    8 fencing token
 *                                                 48   80 note, zero-padded
 *
 * A hold's end is no further away than its length, and a wish's than CORRAL_LOCK_WISH_MS, but for
 * CORRAL_LOCK_SLACK_MS: else the store's clock was set back, or a stranger wrote it. Then the next
 * LOCK, granted or not, writes an end of one length from now: a living holder extends that, a dead
 * one's comes. */
#define CORRAL_LOCK_HEAD 32
#define CORRAL_LOCK_HOLD 128
#define CORRAL_LOCK_NOTE 80
#define CORRAL_LOCK_HOLDS 1024          /* at most, of one lock */
#define CORRAL_LOCK_LONGEST_MS 86400000 /* the longest length of a hold */
/* The longest wish: a waiting writer's stands until it has asked again, or died. */
#define CORRAL_LOCK_WISH_MS 2000
/* By so much may the clocks of a store's users differ, or step, and no end is written anew. */
#define CORRAL_LOCK_SLACK_MS 2000
/* the record outlives its last hold by so much, for the fencing token */
#define CORRAL_LOCK_MEMORY_MS 60000

enum { CORRAL_LOCK_EXCLUSIVE = 1, CORRAL_LOCK_SHARED = 2 };

typedef struct corral_hold {
  uint8_t token[CORRAL_TOKEN];
  int mode;
  uint32_t length_ms;   /* 0: not known */
  int64_t until, since; /* store time */
  uint64_t fence;
  char note[CORRAL_LOCK_NOTE]; /* not necessarily terminated */
} corral_hold;

/* What a lock verb does to a record. */
typedef struct corral_lock_change {
  /* CORRAL_ACTION_KEEP, or CORRAL_ACTION_REPLACE: the record is now the first `size` bytes of the
   * room */
  int action;
  size_t size;
  int64_t expires; /* when the store forgets the key, store time */
} corral_lock_change;

/* ---- what the host offers ------------------------------------------------------------------ */

/* A store URI, taken apart and percent-decoded. All text is the host's and lives until `open`
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
  const char *path;     /* all between the authority (or the scheme's colon) and "?" */
  const corral_uri_param *params;
  size_t param_count;
} corral_uri;

enum { CORRAL_ACTION_KEEP = 0, CORRAL_ACTION_EDIT, CORRAL_ACTION_REPLACE, CORRAL_ACTION_REMOVE };

/* What a verb does to a record. */
typedef struct corral_change {
  /* KEEP; EDIT: the front changes, the body stays; REPLACE: front and body change; REMOVE: the key
   * goes */
  int action;
  uint8_t front[CORRAL_FRONT];
  size_t front_len;
  const uint8_t *body; /* REPLACE: borrowed from op->record; EDIT: NULL */
  size_t body_len;     /* of the new record, EDIT too */
  int64_t expires;     /* EDIT, REPLACE: when the store forgets the key, store time */
} corral_change;

typedef struct corral_host {
  size_t size;
  uint32_t abi;
  uint32_t zero;
  /* host monotonic clock, the one of every `deadline`; starts again at boot */
  int64_t (*now_ms)(void);
  /* clock shared by all processes of this host, monotonic also while it sleeps */
  int64_t (*boot_ms)(void);
  int (*random)(void *buffer, size_t size); /* from the kernel; CORRAL_OK or CORRAL_EIO */
  /* Sets status and printf-like text of *error (may be NULL); returns status. */
  int (*fail)(corral_error *error, int status, const char *format, ...)
#if defined(__GNUC__)
      __attribute__((format(printf, 3, 4)))
#endif
      ;
  /* Refuses parameters not in `names`, a list separated by spaces; the text says which are
   * accepted. */
  int (*uri_check)(const corral_uri *uri, const char *names, corral_error *error);
  /* A parameter's value, or NULL. */
  const char *(*uri_get)(const corral_uri *uri, const char *name);
  /* A number within [least, most], with a unit: "" none, "ms" (500ms 2s 1m 1h 1d), "bytes" (64k 10m
   * 2g). *value keeps what it was when the parameter isn't given. CORRAL_EURI with a text that
   * names what is accepted. */
  int (*uri_number)(const corral_uri *uri, const char *name, const char *unit, int64_t least,
                    int64_t most, int64_t *value, corral_error *error);
  /* The front of a whole record: how many bytes were put. A record whose body is cut short has a
   * front without a body. */
  size_t (*front)(const void *record, size_t size, uint8_t front[CORRAL_FRONT]);
  /* CORRAL_OK and *header; CORRAL_EFOREIGN: these bytes are no front; CORRAL_ENEWER, CORRAL_EMISS:
   * of a later, an earlier format. */
  int (*header_read)(const void *front, size_t size, corral_header *header);
  /* How many bytes were put. */
  size_t (*header_write)(const corral_header *header, uint8_t front[CORRAL_FRONT]);
  /* What op's verb does to the record that the store has now, given by its front (NULL: none, or
   * its `expires` has passed), at store time `now`: sets op->status, life_ms, until_ms and same,
   * and *change. Pure. For GET and CLAIM the plugin still sets op->found (after the change was
   * made). A record that isn't corral's is CORRAL_EFOREIGN and KEEP, INVALIDATE too. */
  void (*decide)(corral_op *op, const uint8_t *front, size_t size, int64_t now,
                 corral_change *change);
  /* EDIT and REPLACE: the new record, front_len + body_len bytes, from the change and the body:
   * change->body, or for EDIT what lies CORRAL_HEAD bytes into the old record, which must not
   * overlap `record`. */
  void (*join)(const corral_change *change, const uint8_t *body, uint8_t *record);
  /* For tables of this process, and for what a watch tells: keyed with random bytes, so it differs
   * from process to process. */
  uint64_t (*hash64)(const void *data, size_t size);
  /* For names that several processes or hosts share: the first 16 bytes of a cryptographic hash,
   * the same everywhere (BLAKE2b with 16 bytes of output, RFC 7693). */
  void (*digest)(const void *data, size_t size, uint8_t digest[16]);
  /* The wall clock, ms since 1970. It may jump: for stores whose servers know no better time, and
   * then read once. */
  int64_t (*wall_ms)(void);
  /* What op's lock verb does to the lock record that the store has now (NULL: none, or its
   * `expires` has passed) at store time `now`: sets all results of op but `found` (LOCK_SHOW: the
   * plugin hands out the record when the status is OK), and *change. `floor`: no new fencing token
   * is below it: the store's idea of the wall clock in microseconds, which doesn't jump back where
   * that can be had. `room`: `size` + CORRAL_LOCK_HOLD + CORRAL_LOCK_HEAD bytes of the plugin's,
   * apart from `record`. Pure. */
  void (*lock_decide)(corral_op *op, const uint8_t *record, size_t size, int64_t now,
                      uint64_t floor, uint8_t *room, corral_lock_change *change);
  /* Writes a record with these holds: CORRAL_LOCK_HEAD + count * CORRAL_LOCK_HOLD bytes. */
  void (*lock_write)(uint64_t fence, const corral_hold *holds, size_t count, uint8_t *record);
  /* For origins: the functions of corral.h and corral/loop.h. */
  const struct corral_fill_calls *fill;
  /* Within perform, on its thread: `bytes` went to the server or came from it; 0 bytes: a wait is
   * about to begin. Returns by when that must end if nothing more moves: for the `deadline` of
   * perform that one, or another as bytes move; for any other `deadline` that one. A plugin that
   * never calls it keeps the deadline of perform. */
  int64_t (*moved)(size_t bytes, int64_t deadline);
  /* A process may have been begun with its standard streams closed; then a socket or a file gets
   * the number of one, and what somebody prints is written into it. So a plugin passes each
   * descriptor that it opens through own_fd: the same one, or another above 2, closed on exec;
   * or -1 with errno, the first one closed. And before a library opens any it calls
   * guard_standard: of 0, 1 and 2 those that are closed become /dev/null. Any thread; cheap. */
  int (*own_fd)(int fd);
  void (*guard_standard)(void);
  /* corral_uri_show, for texts that the host hasn't taken apart. */
  void (*uri_show)(const char *uri, char *text, size_t size);
  /* For origins, whose URLs the host doesn't take apart: the password that password_file=,
   * password_fd= or password_env= among uri->params names: a copy for the plugin to wipe and
   * free; NULL when none is given. CORRAL_EURI when there is more than one, uri->password
   * included. A store finds it in uri->password, and the parameter gone. */
  int (*uri_secret)(const corral_uri *uri, char **ret, corral_error *error);
} corral_host;

/* For names of 64 bits: the first 8 bytes of a digest, as a little-endian number. */
static inline uint64_t corral_digest_number(const corral_host *host, const void *data,
                                            size_t size) {
  uint8_t digest[16];
  uint64_t number = 0;
  host->digest(data, size, digest);
  for (unsigned i = 0; i < 8; i++) number |= (uint64_t)digest[i] << (8 * i);
  return number;
}

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
} corral_fill_calls;

/* ---- what the plugin offers ---------------------------------------------------------------- */

enum {
  /* a handle is used by one thread at a time; the pool combines callers' operations */
  CORRAL_THREADS_HANDLE = 0,
  CORRAL_THREADS_PARALLEL = 1 /* one handle for all, used by any number of threads at once */
};

enum {
  CORRAL_REACH_PROCESS = 1, /* this process alone */
  /* all processes of this host: its own election replaces the host's rung of the ladder */
  CORRAL_REACH_HOST = 2,
  CORRAL_REACH_FLEET = 3 /* any number of hosts */
};
enum { CORRAL_SERVERS = 1024 };

/* What `open` tells about this very store; preset to the defaults in brackets. */
typedef struct corral_store_info {
  size_t size;
  /* [65536] longer keys are hashed by the host; the envelope keeps them whole */
  size_t max_key;
  uint64_t max_record; /* [600 MiB] larger records are refused before they are sent */
  int64_t handles;     /* [2] connections that are best for this store */
  /* [0: the policy's] longest pause between a waiter's looks, where a look is cheap */
  int64_t poll_max_ms;
  /* ["" ] for messages and thread names: "redis 127.0.0.1:6379"; lives as long as the store */
  const char *name;
  int64_t reach; /* [CORRAL_REACH_FLEET] who shares this store */
  /* [1] independent servers that keys are spread over: see `route`; at most CORRAL_SERVERS */
  size_t servers;
  /* [0] by how much the store times of two of its users may differ; 0 where one clock serves all */
  int64_t clock_skew_ms;
  /* [0] 1: the store has no values, only locks: no other verbs are sent to it, a resting server is
   * probed by LOCK_SHOW */
  int64_t locks_only;
} corral_store_info;

typedef struct corral_store {
  size_t size;         /* sizeof(corral_store) */
  uint32_t abi;        /* CORRAL_PLUGIN_ABI */
  uint32_t threads;    /* CORRAL_THREADS_... */
  const char *name;    /* "redis" */
  const char *schemes; /* separated by spaces: "redis rediss redis+unix" */
  const char *summary; /* one line */
  /* Required. Checks the URI. No I/O, no threads. `host` lives for ever. */
  int (*open)(const corral_host *host, const corral_uri *uri, void **ret_store,
              corral_store_info *info, corral_error *error);
  /* Required. Frees the store; all handles are disconnected. */
  void (*close)(void *store);
  /* Required. A new handle, by `deadline` (host->now_ms). Any status; CORRAL_EAUTH and the like
   * with a text for the user. With CORRAL_OK, here and of `perform`, a text (host->fail(error,
   * CORRAL_OK, ...)) says that the store had to begin anew: the event store_anew. */
  int (*connect)(void *store, int64_t deadline, void **ret_handle, corral_error *error);
  /* Required. */
  void (*disconnect)(void *handle);
  /* Required. Performs the operations in order and sets the result of each, by `deadline`.
   * CORRAL_OK when the handle may be used again; else it is broken (a limit reached, a half-read
   * reply): the host disconnects it. Operations whose fate isn't known keep CORRAL_EUNKNOWN; those
   * not sent at all get CORRAL_EUNAVAILABLE. Several operations of one batch may name the same
   * key. */
  int (*perform)(void *handle, corral_op *ops, size_t count, int64_t deadline, corral_error *error);
  /* For a store whose info.servers is more than 1, both or neither: a server that is sick must not
   * cost the keys of the others anything, so each has handles, a queue and a breaker of its own.
   * `route` tells the server of a key, 0 to servers - 1, the same in every process, whatever state
   * the servers are in; any thread, no I/O. `connect_server` is then called in place of `connect`;
   * all operations of a batch on its handle are for keys of that server. */
  size_t (*route)(void *store, const void *key, size_t key_len);
  int (*connect_server)(void *store, size_t server, int64_t deadline, void **ret_handle,
                        corral_error *error);
  /* Optional, all three or none: a watch tells of changes of keys as they happen. It is used by one
   * thread, beside the handles. A change is whatever makes a GET answer otherwise: a fill, a
   * release, an invalidation, by whoever, also a foreign DEL; not what time does. It is a hint: one
   * too many, or one that is missing because the connection broke unnoticed, must do no harm.
   *   watch    opens it, by `deadline`; CORRAL_EUNSUPPORTED when this server can't, then it isn't
   *            asked again.
   *   changes  blocks until there is something to tell, `stop_fd` is readable, or `until`; calls
   *            told(arg, hash) with host->hash64 of each key that changed, 0 for "any may have
   *            changed". Keys that were not looked at with CORRAL_OP_WATCH may be left out, and one
   *            is told once per such look. Other than CORRAL_OK: it is broken, is closed, and
   *            another is opened; the plugin notices within seconds when its connection is dead
   *            without a sign.
   *   unwatch  closes it. */
  int (*watch)(void *store, size_t server, int64_t deadline, void **ret_watch, corral_error *error);
  int (*changes)(void *watch, int stop_fd, int64_t until, void (*told)(void *arg, uint64_t hash),
                 void *arg, corral_error *error);
  void (*unwatch)(void *watch);
} corral_store;

/* The entry point of a plugin: corral_plugin_NAME.so exports this function, which returns its
 * table. */
typedef const corral_store *corral_plugin_fn(void);

/* ---- origins
 * -------------------------------------------------------------------------------------
 *
 * An origin rebuilds values from somewhere else, named by a URL: what the option `origin` of
 * corral_open names when it has a "://". */
typedef struct corral_origin {
  size_t size;  /* sizeof(corral_origin) */
  uint32_t abi; /* CORRAL_PLUGIN_ABI */
  uint32_t zero;
  const char *name;    /* "http" */
  const char *schemes; /* separated by spaces: "http https" */
  const char *summary; /* one line */
  /* Required. Checks the URL and its parameters, as the user wrote it. No I/O, no threads.
   * `max_value`: longer ones can't be filled. */
  int (*open)(const corral_host *host, const char *url, uint64_t max_value, void **ret_origin,
              corral_error *error);
  /* Required. Gives up what is under way (fill->abandon), and frees. */
  void (*close)(void *origin);
  /* Required. Begins to rebuild, and returns without having waited for anything; ends with
   * fill->done, failed or abandon, from any thread, at the latest soon after `deadline`
   * (host->now_ms) or should_stop. `key` is valid until then. Any thread, several at once. */
  void (*fetch)(void *origin, corral_fill *fill, const void *key, size_t key_len, int64_t deadline);
} corral_origin;

/* The entry point of an origin's file, corral_plugin_NAME.so. */
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
