/* redlock.h: declarations shared by Redlock's files. Internal to plugins/redis.
 *
 *   redlock.c          the URI; requests to the servers, and the result of their answers
 *   redlock_member.c   one server of several: its thread and its mailbox
 *
 * One mutex, the store's, guards everything; it isn't held during I/O. */
#ifndef CRL_REDLOCK_H
#define CRL_REDLOCK_H

#include "redis.h"

enum {
  CRL_REDLOCK_MEMBERS = 15,
  CRL_REDLOCK_BATCH = 64, /* most requests to a server in one batch */
  /* most UNLOCKs that wait for a server to come back; the oldest are dropped, and their holds end
   * by time */
  CRL_REDLOCK_OWED = 1024,
  CRL_REDLOCK_PENDING = 1 /* in place of a status: no answer yet */
};

struct crl_redlock_task;

/* Answer of a server. */
typedef struct crl_redlock_answer {
  int status;      /* of the operation; CRL_REDLOCK_PENDING */
  int64_t left_ms; /* as in corral_lock_state */
  uint64_t fence;
  int held; /* LOCK_SHOW: `hold` is held, as of this server's time `now` */
  corral_hold hold;
  int64_t now;
} crl_redlock_answer;

/* A task's place in a server's mailbox. */
typedef struct crl_redlock_entry {
  struct crl_redlock_task *task;
  struct crl_redlock_entry *next;
  int tried;  /* it was answered once, and is an UNLOCK that is owed */
  int resent; /* it was sent again, because a broken connection was found before */
} crl_redlock_entry;

/* One verb, sent to the servers. It lives until the caller and all mailboxes have dropped it. */
typedef struct crl_redlock_task {
  int refs;
  uint32_t verb, flags;
  int64_t hold_ms;    /* LOCK, LOCK_EXTEND */
  int64_t foreign_ms; /* LOCK_SHOW */
  uint64_t fence;     /* LOCK_EXTEND: the least fencing token from now on */
  int64_t deadline;   /* of the first try */
  int64_t until;      /* UNLOCK: when it is no longer tried again */
  pthread_cond_t told;
  corral_error why; /* the first failure */
  crl_redlock_answer answers[CRL_REDLOCK_MEMBERS];
  crl_redlock_entry entries[CRL_REDLOCK_MEMBERS];
  uint8_t token[CORRAL_TOKEN];
  uint8_t from[CORRAL_TOKEN];
  int has_from; /* LOCK_EXTEND: the hold of `from` becomes this token's */
  const uint8_t *key;
  const char *note;
  size_t key_len, note_len;
  uint8_t bytes[];
} crl_redlock_task;

typedef struct crl_redlock_member {
  struct crl_redlock *lock;
  size_t index;
  crl_redis_store *store;
  crl_redis_handle *handle; /* NULL: not connected; only the thread uses it */
  pthread_t thread;
  pthread_cond_t wake;
  crl_redlock_entry *first, **end; /* the mailbox */
  size_t queued, fresh;            /* entries; entries not tried yet */
  int64_t retry_at, pause_ms;      /* when owed UNLOCKs are tried again */
  /* this and what follows: only the thread uses them */
  crl_redlock_entry *batch[CRL_REDLOCK_BATCH];
  corral_op ops[CRL_REDLOCK_BATCH];
  corral_error errors[CRL_REDLOCK_BATCH];
} crl_redlock_member;

typedef struct crl_redlock {
  const corral_host *host;
  char name[160]; /* "redlock 10.0.0.1,10.0.0.2,10.0.0.3" */
  size_t count, needed;
  int64_t server_ms;
  pthread_mutex_t mutex;
  int64_t longest_ms; /* longest life of a hold that was asked for */
  size_t started;     /* number of threads */
  int stops;
  crl_redlock_member *members;
} crl_redlock;

/* ---- redlock.c ----------------------------------------------------------------------------- */

extern const corral_store crl_plugin_redlock;

/* ---- inspect_redlock.c --------------------------------------------------------------------- */

/* See corral_store. */
int crl_redlock_inspect(void *store, const corral_inquiry *inquiry, corral_error *error);
int crl_redlock_list(void *store, const corral_listing *listing, corral_error *error);

/* ---- redlock_member.c ---------------------------------------------------------------------- */

/* Makes a cond that waits by host->now_ms. */
void crl_redlock_cond_init(pthread_cond_t *cond);
/* Waits until `until` or a signal; the mutex is held. */
void crl_redlock_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until);
/* Starts the threads that don't run yet. CORRAL_EIO. */
int crl_redlock_start(crl_redlock *lock, corral_error *error);
/* Sends the entries that were never tried, then ends the threads. */
void crl_redlock_stop(crl_redlock *lock);
/* Makes a task with one reference, the caller's; NULL without memory. */
crl_redlock_task *crl_redlock_task_new(const corral_op *op, corral_verb verb, int64_t deadline);
/* Puts a task into the mailboxes of the members in `members`, a set of bits. */
void crl_redlock_post(crl_redlock *lock, crl_redlock_task *task, uint32_t members);
/* Drops a reference; the mutex is held. */
void crl_redlock_drop(crl_redlock_task *task);

#endif
