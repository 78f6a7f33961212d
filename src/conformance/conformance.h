/* conformance.h: what the files of corral-conformance share.
 *
 *   main.c      options; each URI: what it declares, its cases, the totals
 *   table.c     the cases: name, function, needs
 *   trial.c     runs one case in a process of its own; its verdict and its cleanup
 *   world.c     the store under test and its clients; keys, tokens, records
 *   verbs.c     a function for each verb, and checks of its result
 *   locks.c     the same for the verbs of locks
 *   proxy.c     a proxy in front of the store's server that closes, hangs and trickles on demand
 *   case_*.c    the cases
 *
 * A case is a function that returns when all is as it should be, and otherwise leaves by failed()
 * or cant(), on its first thread. It runs in a process of its own, which opens the store anew; so a
 * plugin that crashes or hangs fails one case. */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include <corral/plugin.h>

/* ---- trial.c ------------------------------------------------------------------------------- */

enum {
  NEEDS_PROCESSES = 1,
  NEEDS_SERVER = 2,
  NEEDS_NO_VALUES = 4, /* also for a store that has locks only */
  NEEDS_MOVES = 8,     /* keys that a program moves to other servers */
  NEEDS_PERMITS = 16   /* a store that declares that it has permits */
};

typedef struct test_case {
  const char *name;
  void (*run)(void);
  unsigned needs;
} test_case;

typedef enum verdict { VERDICT_NONE, VERDICT_OK, VERDICT_CANT, VERDICT_FAILED } verdict;

/* The result of a case, shared with its parent. */
typedef struct report {
  _Atomic verdict verdict;
  char text[640];
} report;

/* Runs a case on a store; the report is valid until the next trial. */
const report *trial_run(const test_case *test, const char *uri, const corral_store_info *declared);

_Noreturn void failed(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void cant(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define check(condition, ...) ((condition) ? (void)0 : failed(__VA_ARGS__))

/* Registers a cleanup for the end of the case; the latest one runs first. */
void undo_later(void (*undo)(void *arg), void *arg);
/* Zeroed memory, freed at the end of the case. */
void *room(size_t size);
/* Zeroed memory that this case's processes share. */
void *shared_room(size_t size);

/* Starts a further process of the case, which must be done before the store is opened. If it fails,
 * the case fails, in process_join. */
pid_t process_start(void (*run)(void *arg), void *arg);
void process_join(pid_t pid);
void process_kill(pid_t pid);

int64_t now_ms(void);
void pause_ms(int64_t ms);
/* Waits until another process of the case has counted up to `least`. */
void wait_for(atomic_uint *counter, unsigned least, const char *what);

/* ---- world.c ------------------------------------------------------------------------------- */

typedef struct key {
  uint8_t *bytes;
  size_t len;
  bool is_lock;
} key;

/* A record as it is settled: head (FREE), payload, metadata. */
typedef struct record {
  uint8_t *bytes;
  size_t len;
  uint64_t hash; /* of the body */
  uint64_t stamp;
} record;

/* A user of the store, for one thread: a handle for each server. On a store with
 * CORRAL_THREADS_PARALLEL all clients share their handles. */
typedef struct client client;

const corral_host *host(void);
/* Sets the store that cases open. `declared`: what its `open` declared; copied. `uri` must outlive
 * the trials. */
void world_set(const char *uri, const corral_store_info *declared);
const corral_store_info *declared(void);
/* True for a store whose servers come and go (corral_store.refresh). */
bool servers_come_and_go(void);
/* Calls corral_store.refresh. */
void world_refresh(void);
/* corral_store.inspect of the open store. Leaves by cant() where the store has none. */
int world_inspect(const corral_inquiry *inquiry, corral_error *error);
/* The same for corral_store.list. */
int world_list(const corral_listing *listing, corral_error *error);
const char *world_uri(void);

client *client_new(void);
const char *client_error(const client *c);
/* Connects the servers that are not connected. client_perform does that too, but not safely from
 * several threads at once. */
int client_connect(client *c, int64_t deadline);
/* Performs by `deadline`, each server's operations as one batch. CORRAL_OK, or why a handle broke;
 * that server is connected again when next needed. */
int client_perform(client *c, corral_op *ops, size_t count, int64_t deadline);
/* The number of times that an operation on this key is sent on, from the server of `route`. */
unsigned client_hops(client *c, const key *k);
/* True when the plugin has written behind an operation. client_perform's operations are longer than
 * corral_op, as those of a later corral may be. */
bool world_trespassed(void);
void op_drop(corral_op *op);

/* Opens a watch on the server of a key, until the end of the case. Leaves by cant() where the store
 * has none. */
typedef struct watch watch;
watch *watch_new(const key *k);
/* Calls corral_store.changes, which must not break, and remembers what was told. True if anything
 * was. */
bool watch_listen(watch *w, int stop_fd, int64_t until);
/* True for a watch that tells changes of registered keys alone. */
bool watch_registers(void);
/* Has keys registered, where the watch needs that, so that their next change is told. */
void watch_register(watch *w, corral_registration *keys, size_t count);
/* The same for one key; returns what was read of it. */
corral_registration watch_follow(watch *w, const key *k);
/* True if this key, or "any", was told since the last watch_forget. */
bool watch_told(const watch *w, const key *k);
void watch_forget(watch *w);

/* A key of this case alone; removed at the end of the case. */
key *key_new(const char *stem);
key *key_of(const void *bytes, size_t len);
/* The name of a lock of this case alone. What this process holds of it at the end of the case is
 * unlocked. */
key *lock_new(const char *stem);
/* The same as key_new, on the same server as `other`. */
key *key_near(const key *other, const char *stem);
/* Sets the command that moves a key, which is its last argument, to another server. */
void key_move_by(const char *command);
void key_move(const key *k);
/* Forgets all keys and holds, for a second process: the first one removes the keys. */
void keys_forget(void);
/* The server that the plugin's `route` tells; for an open store of several servers. */
size_t key_server(const key *k);
/* Writes a prefix that makes a key unique; returns its length. */
size_t key_prefix(char *text, size_t size);
/* The token of a number: 16 bytes, the same in all processes of one run. tokens_make is called
 * before the first trial. */
void tokens_make(void);
const uint8_t *token(unsigned number);

/* A record whose payload is `size` bytes that depend on `seed`. Leaves by cant() where the store
 * declares that it takes no such record. */
record *record_new(const key *k, size_t size, unsigned seed);
record *record_of(const key *k, const void *payload, size_t size);

/* ---- verbs.c ------------------------------------------------------------------------------- */

enum {
  LIMIT_MS = 10000,
  LONG_MS = 60000,
  EARLY_MS = 20,
  LATE_MS = 3000,
  CLOCK_MS = 50,
  KEY_LEAST = 64,
  RECORD_LEAST = 4096
};

/* The result of a GET or CLAIM. */
typedef struct sight {
  int status, same;
  corral_header header;
  size_t len;    /* of `found`; 0: none */
  uint64_t hash; /* of the body, where there is one */
  int64_t life_ms, until_ms;
} sight;

corral_op op_of(corral_verb verb, const key *k, unsigned holder);
corral_op op_settle(const key *k, unsigned holder, const record *r, int64_t ttl_ms);
const char *verb_name(uint32_t verb);
/* Checks what must hold for any answer, copies its result, and frees op->found. */
sight sight_of(corral_op *op, const char *error);
/* Performs one operation; the handle must stay usable. */
sight perform_one(client *c, corral_op *op);

sight get(client *c, const key *k);
sight claim(client *c, const key *k, unsigned holder, int64_t lease_ms);
sight claim_as(client *c, const key *k, unsigned holder, int64_t lease_ms, const char *note,
               uint32_t cost_ms);
int settle(client *c, const key *k, unsigned holder, const record *r, int64_t ttl_ms);
int release(client *c, const key *k, unsigned holder);
int leave_verdict(client *c, const key *k, unsigned holder, int32_t code, const char *text,
                  int64_t rule_ms, int64_t keep_ms);
int extend(client *c, const key *k, unsigned holder, int64_t lease_ms);
int invalidate(client *c, const key *k);
int expire(client *c, const key *k);
/* Leaves by cant() where the store has no RENEW. */
int renew(client *c, const key *k, unsigned holder, int64_t ttl_ms);

bool has_value(const sight *s);
bool is_leased(const sight *s);
bool has_verdict(const sight *s);
bool is_value(const sight *s, const record *r);

/* Each fails with a sentence that begins with its first argument. */
void wants(const char *when, int came, int expected);
void wants_value(const char *when, sight s, const record *r);
void wants_no_value(const char *when, sight s);
/* No value, no lease, no verdict. */
void wants_nothing(const char *when, sight s);
void wants_lease(const char *when, sight s, unsigned holder);
void wants_within(const char *what, int64_t came, int64_t most);
/* Claims and settles. */
void fill(client *c, const key *k, unsigned holder, const record *r, int64_t ttl_ms);
/* Looks until `over` is true, which must be no earlier than life_ms less EARLY_MS after `from`, and
 * no later than life_ms plus LATE_MS. */
void wants_end(const char *what, client *c, const key *k, bool (*over)(const sight *s),
               int64_t from, int64_t life_ms);
/* Claims after a GET showed that the lease or verdict is over. EBUSY is tried again for CLOCK_MS: a
 * GET may judge by a copy of the store's clock. */
sight claim_ended(client *c, const key *k, unsigned holder);
bool lease_is_over(const sight *s);
bool value_is_over(const sight *s);

/* ---- locks.c ------------------------------------------------------------------------------- */

enum {
  LATE_HOLD_MS = 5000 /* a store may count in seconds, and look for silent connections seldom */,
  HOLDS_SHOWN = 32
};

/* The result of a verb of a lock. */
typedef struct told {
  int status;
  uint64_t fence;
  int64_t until_ms;
} told;

/* The result of LOCK_SHOW. */
typedef struct shown_lock {
  int status;
  int64_t now; /* store time */
  size_t live; /* number of holds that are not over; the first HOLDS_SHOWN of them are in `holds` */
  corral_hold holds[HOLDS_SHOWN];
  size_t waiting; /* number of places in the queue */
} shown_lock;

enum { ALONE = 0, SHARED = CORRAL_OP_SHARED };
/* Each leaves by cant() where the store answers EUNSUPPORTED, and fails at any status but: LOCK OK,
 * EBUSY; LOCK_EXTEND and UNLOCK OK, ELOST; LOCK_SHOW OK, EMISS. */
told lock_take(client *c, const key *k, unsigned holder, unsigned flags, int64_t lease_ms);
told lock_as(client *c, const key *k, unsigned holder, unsigned flags, int64_t lease_ms,
             int64_t wish_ms, const char *note);
/* Takes one of so many permits. */
told lock_permit(client *c, const key *k, unsigned holder, uint32_t permits, int64_t lease_ms);
told lock_extend(client *c, const key *k, unsigned holder, unsigned flags, int64_t lease_ms);
told unlock(client *c, const key *k, unsigned holder);
shown_lock lock_show(client *c, const key *k);
/* The hold of this token, or NULL. */
const corral_hold *hold_of(const shown_lock *s, unsigned holder);
/* Checks the answer to a verb of a lock; remembers holds that must be unlocked. */
told told_of(corral_op *op, const key *k, unsigned holder, const char *error);
/* Repeats LOCK until it is granted, which must be no earlier than EARLY_MS before `least` (host
 * time), and no later than LATE_HOLD_MS after it. */
told lock_when_free(client *c, const key *k, unsigned holder, unsigned flags, int64_t least);
/* Unlocks the holds that are left. */
void locks_end(client *c);
void locks_forget(void);

/* ---- proxy.c ------------------------------------------------------------------------------- */

typedef enum fault {
  FAULT_NONE,
  FAULT_CLOSE,   /* hang up after `after` more bytes of replies */
  FAULT_HANG,    /* fall silent after these bytes */
  FAULT_TRICKLE, /* after these bytes, one byte of reply per 20 ms */
  FAULT_DEAF     /* read nothing more from the client */
} fault;

/* The reason why no proxy can be put in front of the store, or NULL. */
const char *proxies_refuse(const char *uri);
/* Starts a proxy in front of each server; the case then reaches the store through them. */
void proxies_start(void);
/* Sets the fault of all proxies from now on, and counts replies anew. */
void proxies_set(fault what, size_t after);
/* Bytes of replies since the last set. */
size_t proxies_replied(void);
/* Number of connections that the proxies have accepted. */
size_t proxies_connections(void);
/* Ends all connections. */
void proxies_cut(void);
/* Points the case's store at ports on which nothing listens. */
void nobody_listens(void);

/* ---- table.c, and the cases ---------------------------------------------------------------- */

extern const test_case test_cases[];
extern const size_t test_case_count;

#define CASES_LEASE(X)                                                                             \
  X(an_absent_key_is_a_miss, 0)                                                                    \
  X(a_claim_is_granted, 0)                                                                         \
  X(a_claim_takes_over_from_a_holder_who_is_dead, 0)                                               \
  X(a_claim_excludes_others, 0)                                                                    \
  X(a_claim_that_is_mine_already_is_granted_again, 0)                                              \
  X(a_lease_ends_by_itself, 0)                                                                     \
  X(what_is_left_shrinks_as_time_passes, 0)                                                        \
  X(an_owner_settles, 0)                                                                           \
  X(a_value_ends_by_itself, 0)                                                                     \
  X(a_thief_settles_nothing, 0)                                                                    \
  X(a_settle_without_a_lease_is_lost, 0)                                                           \
  X(a_settle_after_anothers_claim_is_lost, 0)                                                      \
  X(a_settle_after_invalidate_is_lost, 0)                                                          \
  X(a_settle_after_release_is_lost, 0)                                                             \
  X(a_second_settle_is_lost, 0)                                                                    \
  X(an_owner_extends, 0)                                                                           \
  X(a_thief_extends_nothing, 0)                                                                    \
  X(an_owner_releases, 0)                                                                          \
  X(a_thief_releases_nothing, 0)                                                                   \
  X(a_second_release_is_lost, 0)                                                                   \
  X(a_release_keeps_the_payload, 0)

#define CASES_LATE(X)                                                                              \
  X(a_late_settle_counts, 0)                                                                       \
  X(a_late_settle_over_a_value_counts, 0)                                                          \
  X(a_late_settle_over_a_value_that_is_over_counts, 0)                                             \
  X(a_late_extend_counts, 0)                                                                       \
  X(a_late_renew_counts, 0)                                                                        \
  X(a_late_release_counts, 0)                                                                      \
  X(a_late_holder_loses_to_anothers_claim, 0)                                                      \
  X(a_late_holder_loses_to_an_invalidation, 0)                                                     \
  X(a_thief_gains_nothing_from_a_lease_that_is_over, 0)                                            \
  X(the_key_of_a_lease_ends_by_itself, 0)

#define CASES_VERDICT(X)                                                                           \
  X(a_verdict_rules_until_it_ends, 0)                                                              \
  X(a_verdict_keeps_the_payload, 0)                                                                \
  X(a_thief_leaves_no_verdict, 0)                                                                  \
  X(a_settle_after_a_verdict_is_lost, 0)                                                           \
  X(an_invalidate_ends_a_verdict, 0)                                                               \
  X(an_expire_ends_a_lease_and_keeps_the_payload, 0)                                               \
  X(an_expire_without_payload_invalidates, 0)                                                      \
  X(an_invalidate_removes_value_and_lease, 0)

#define CASES_VALUE(X)                                                                             \
  X(a_claim_keeps_the_payload, 0)                                                                  \
  X(a_claim_knows_a_payload_that_was_seen, 0)                                                      \
  X(a_shorter_value_replaces_a_longer_one, 0)                                                      \
  X(an_empty_value_is_a_value, 0)                                                                  \
  X(a_value_is_any_bytes, 0)                                                                       \
  X(a_value_is_of_any_size, 0)                                                                     \
  X(a_value_of_1_mib, 0)                                                                           \
  X(a_value_of_16_mib, 0)                                                                          \
  X(a_key_is_any_bytes, 0)                                                                         \
  X(a_key_of_one_byte, 0)                                                                          \
  X(a_key_of_max_key_bytes, 0)                                                                     \
  X(keys_that_differ_at_their_end_are_two, 0)                                                      \
  X(what_was_found_stays_as_it_was, 0)                                                             \
  X(a_look_that_tells_the_hash_of_its_key, 0)

#define CASES_BATCH(X)                                                                             \
  X(a_batch_of_longer_operations, 0)                                                               \
  X(a_batch_has_an_answer_for_each, 0)                                                             \
  X(a_batch_is_done_in_order, 0)                                                                   \
  X(a_batch_of_mixed_fates, 0)                                                                     \
  X(a_batch_of_256_gets, 0)                                                                        \
  X(a_batch_of_large_values, 0)                                                                    \
  X(a_deadline_in_the_past_is_answered_at_once, 0)

#define CASES_MANY(X)                                                                              \
  X(each_key_has_one_server, 0)                                                                    \
  X(two_handles_see_the_same, 0)                                                                   \
  X(of_many_threads_one_claims, 0)                                                                 \
  X(readers_never_see_half_a_value, 0)                                                             \
  X(two_processes_see_the_same, NEEDS_PROCESSES)                                                   \
  X(of_two_processes_one_claims, NEEDS_PROCESSES)                                                  \
  X(a_process_whose_lease_was_taken_is_fenced, NEEDS_PROCESSES)                                    \
  X(a_killed_process_is_replaced_by_the_end_of_its_lease, NEEDS_PROCESSES)

#define CASES_RENEW(X)                                                                             \
  X(an_owner_renews, 0)                                                                            \
  X(a_renewed_value_ends_by_itself, 0)                                                             \
  X(a_renew_keeps_each_byte_of_a_large_value, 0)                                                   \
  X(a_renew_ends_expired_and_failures, 0)                                                          \
  X(a_renew_without_payload_changes_nothing, 0)                                                    \
  X(a_thief_renews_nothing, 0)                                                                     \
  X(a_renew_after_invalidate_is_lost, 0)                                                           \
  X(a_second_renew_is_lost, 0)                                                                     \
  X(a_batch_with_renew_is_done_in_order, 0)

#define CASES_WATCH(X)                                                                             \
  X(a_settle_is_told, 0)                                                                           \
  X(a_release_is_told, 0)                                                                          \
  X(a_verdict_is_told, 0)                                                                          \
  X(an_invalidate_is_told, 0)                                                                      \
  X(an_expire_is_told, 0)                                                                          \
  X(a_renew_is_told, 0)                                                                            \
  X(a_missing_key_is_told_when_it_is_filled, 0)                                                    \
  X(a_key_is_told_again_after_another_look, 0)                                                     \
  X(a_registration_reads_the_head, 0)                                                              \
  X(a_registration_shows_a_change_since_a_look, 0)                                                 \
  X(a_registration_of_the_same_keys_again, 0)                                                      \
  X(many_keys_are_told, 0)                                                                         \
  X(a_change_wakes_a_watch_that_waits, 0)                                                          \
  X(a_change_by_another_process_is_told, NEEDS_PROCESSES)                                          \
  X(a_watch_ends_when_it_is_stopped, 0)                                                            \
  X(a_watch_ends_by_its_time, 0)

#define CASES_ROUTE(X)                                                                             \
  X(a_value_goes_with_its_key, NEEDS_MOVES)                                                        \
  X(a_lease_goes_with_its_key, NEEDS_MOVES)                                                        \
  X(a_batch_some_of_whose_keys_have_moved, NEEDS_MOVES)                                            \
  X(batches_while_keys_move, NEEDS_MOVES)                                                          \
  X(a_key_that_was_moved_is_found_at_once_from_then_on, NEEDS_MOVES)                               \
  X(a_refresh_learns_where_keys_are, NEEDS_MOVES)                                                  \
  X(a_watch_tells_that_a_key_has_moved, NEEDS_MOVES)                                               \
  X(a_change_after_a_move_is_told, NEEDS_MOVES)

#define CASES_FAULT(X)                                                                             \
  X(a_reply_cut_before_its_first_byte, NEEDS_SERVER)                                               \
  X(a_reply_cut_after_its_first_byte, NEEDS_SERVER)                                                \
  X(a_reply_cut_in_the_middle, NEEDS_SERVER)                                                       \
  X(a_batch_of_gets_cut_in_the_middle, NEEDS_SERVER)                                               \
  X(a_batch_of_settles_cut_in_the_middle, NEEDS_SERVER)                                            \
  X(a_server_that_never_replies, NEEDS_SERVER)                                                     \
  X(a_server_that_hangs_in_the_middle, NEEDS_SERVER)                                               \
  X(a_server_that_trickles, NEEDS_SERVER)                                                          \
  X(a_server_that_takes_no_more, NEEDS_SERVER)                                                     \
  X(a_connection_closed_while_idle, NEEDS_SERVER)                                                  \
  X(a_server_that_is_silent_from_the_start, NEEDS_SERVER)                                          \
  X(a_port_where_nobody_listens, NEEDS_SERVER)

#define CASES_LOCK(X)                                                                              \
  X(a_lock_excludes_others_until_it_is_unlocked, NEEDS_NO_VALUES)                                  \
  X(a_hold_lasts_as_long_as_asked, NEEDS_NO_VALUES)                                                \
  X(a_hold_ends_by_itself, NEEDS_NO_VALUES)                                                        \
  X(a_lost_hold_is_told, NEEDS_NO_VALUES)                                                          \
  X(a_foreign_token_unlocks_nothing, NEEDS_NO_VALUES)                                              \
  X(a_foreign_token_extends_nothing, NEEDS_NO_VALUES)                                              \
  X(an_unlock_of_nothing_is_lost, NEEDS_NO_VALUES)                                                 \
  X(an_extend_lengthens_and_never_shortens, NEEDS_NO_VALUES)                                       \
  X(a_lock_that_is_mine_already_is_granted_again, NEEDS_NO_VALUES)                                 \
  X(a_lock_shows_its_holders, NEEDS_NO_VALUES)                                                     \
  X(a_lock_of_nobody_shows_nobody, NEEDS_NO_VALUES)                                                \
  X(a_lock_has_any_name, NEEDS_NO_VALUES)                                                          \
  X(a_batch_of_locks_is_done_in_order, NEEDS_NO_VALUES)                                            \
  X(locks_and_values_dont_touch_each_other, 0)                                                     \
  X(a_lock_and_a_value_are_foreign_to_each_other, 0)                                               \
  X(a_store_of_locks_alone_has_no_values, NEEDS_NO_VALUES)

#define CASES_FENCE(X)                                                                             \
  X(fencing_tokens_grow_over_release_and_expiry, NEEDS_NO_VALUES)                                  \
  X(fencing_tokens_grow_over_a_thousand_holds, NEEDS_NO_VALUES)                                    \
  X(an_extend_raises_a_fencing_token, NEEDS_NO_VALUES)                                             \
  X(a_hold_is_taken_over_once, NEEDS_NO_VALUES)

#define CASES_SHARED(X)                                                                            \
  X(shared_holds_stand_together, NEEDS_NO_VALUES)                                                  \
  X(a_writer_is_refused_beside_readers, NEEDS_NO_VALUES)                                           \
  X(each_shared_hold_ends_alone, NEEDS_NO_VALUES)                                                  \
  X(a_writers_wish_bars_new_readers, NEEDS_NO_VALUES)                                              \
  X(a_wish_passes, NEEDS_NO_VALUES)                                                                \
  X(a_downgrade_lets_readers_in, NEEDS_NO_VALUES)

#define CASES_PERMIT(X)                                                                            \
  X(permits_go_to_so_many_and_no_more, NEEDS_NO_VALUES | NEEDS_PERMITS)                            \
  X(each_permit_ends_alone, NEEDS_NO_VALUES | NEEDS_PERMITS)                                       \
  X(a_refusal_of_a_permit_tells_the_first_end, NEEDS_NO_VALUES | NEEDS_PERMITS)                    \
  X(permits_and_other_holds_exclude_each_other, NEEDS_NO_VALUES | NEEDS_PERMITS)                   \
  X(a_writers_wish_bars_new_permits, NEEDS_NO_VALUES | NEEDS_PERMITS)                              \
  X(a_permit_that_is_downgraded_stays_one, NEEDS_NO_VALUES | NEEDS_PERMITS)
#define CASES_TURNS(X)                                                                             \
  X(turns_go_in_the_order_of_arrival, NEEDS_NO_VALUES)                                             \
  X(a_turn_that_isnt_taken_passes_on, NEEDS_NO_VALUES)                                             \
  X(who_gives_up_leaves_the_queue, NEEDS_NO_VALUES)

#define CASES_LOCKERS(X)                                                                           \
  X(of_many_threads_one_holds_a_lock, NEEDS_NO_VALUES)                                             \
  X(of_many_threads_so_many_hold_permits, NEEDS_NO_VALUES | NEEDS_PERMITS)                         \
  X(of_many_processes_one_holds_an_expiring_lock, NEEDS_NO_VALUES | NEEDS_PROCESSES)               \
  X(a_killed_holder_is_replaced_by_the_end_of_its_hold, NEEDS_NO_VALUES | NEEDS_PROCESSES)         \
  X(an_unlock_is_told, NEEDS_NO_VALUES)                                                            \
  X(a_downgrade_is_told, NEEDS_NO_VALUES)                                                          \
  X(an_unlock_by_another_process_is_told, NEEDS_NO_VALUES | NEEDS_PROCESSES)                       \
  X(a_lock_whose_reply_is_cut, NEEDS_NO_VALUES | NEEDS_SERVER)                                     \
  X(a_lock_whose_reply_never_comes, NEEDS_NO_VALUES | NEEDS_SERVER)                                \
  X(a_lock_where_nobody_listens, NEEDS_NO_VALUES | NEEDS_SERVER)

#define CASES_INSPECT(X)                                                                           \
  X(facts_are_bounded_and_nothing_is_changed, NEEDS_NO_VALUES)                                     \
  X(the_locks_that_are_held_are_listed, NEEDS_NO_VALUES)

#define CASES_STREAMS(X)                                                                           \
  X(a_store_takes_no_standard_descriptor, NEEDS_NO_VALUES)                                         \
  X(a_watch_takes_no_standard_descriptor, NEEDS_NO_VALUES)

#define CASES(X)                                                                                   \
  CASES_LEASE(X)                                                                                   \
  CASES_LATE(X)                                                                                    \
  CASES_VERDICT(X)                                                                                 \
  CASES_VALUE(X)                                                                                   \
  CASES_BATCH(X)                                                                                   \
  CASES_MANY(X)                                                                                    \
  CASES_RENEW(X)                                                                                   \
  CASES_WATCH(X)                                                                                   \
  CASES_ROUTE(X)                                                                                   \
  CASES_FAULT(X)                                                                                   \
  CASES_LOCK(X)                                                                                    \
  CASES_FENCE(X)                                                                                   \
  CASES_SHARED(X)                                                                                  \
  CASES_PERMIT(X)                                                                                  \
  CASES_TURNS(X)                                                                                   \
  CASES_LOCKERS(X) CASES_INSPECT(X) CASES_STREAMS(X)

#define CASE_DECLARED(name, needs) void case_##name(void);
CASES(CASE_DECLARED)
#undef CASE_DECLARED

#endif
