/* lock_chaos.c: many processes take one lock in turn, and under it change a counter in a SQLite
 * table. */
#include "lock_chaos.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <corral/lock.h>
#include <errno.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/env.h"
#include "fork_kit.h"
#include "room.h"

enum { PROCESSES = 64, PATIENCE_MS = 300000, CALM_TTL_MS = 20000 };

typedef struct arena {
  const lock_chaos *plan;
  char table[96];
  atomic_int taken, inside, most, refused, lost, errors, quiet, doubles;
  _Atomic int64_t ttl_ms;
  atomic_int holder;                  /* number + 1 of the latest process inside; 0: none yet */
  _Atomic int64_t entered[PROCESSES]; /* ttl_ms of the hold of each process; 0: not inside */
  atomic_int disturbed;               /* the kills and stops are over */
  atomic_int to_last, of[PROCESSES];  /* in the first half, with what follows */
  _Atomic int64_t longest_ms;
  atomic_flag said;
  char error[240];
  pid_t pids[PROCESSES];
} arena;

static void say(arena *a, const char *what, const char *text) {
  if (!atomic_flag_test_and_set(&a->said))
    snprintf(a->error, sizeof a->error, "%s: %s", what, text);
}

/* ---- the table ----------------------------------------------------------------------------- */

static sqlite3 *open_table(const char *path) {
  sqlite3 *db;
  if (sqlite3_open(path, &db) != SQLITE_OK) abort();
  sqlite3_busy_timeout(db, PATIENCE_MS);
  if (sqlite3_exec(db, "PRAGMA synchronous = OFF", NULL, NULL, NULL) != SQLITE_OK) abort();
  return db;
}

/* Returns the first column of the first row; -1 without a row. */
static long long ask(sqlite3 *db, const char *sql, long long a, long long b) {
  sqlite3_stmt *statement;
  long long found = -1;
  if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK) abort();
  if (sqlite3_bind_parameter_count(statement) > 0) sqlite3_bind_int64(statement, 1, a);
  if (sqlite3_bind_parameter_count(statement) > 1) sqlite3_bind_int64(statement, 2, b);
  int status = sqlite3_step(statement);
  if (status == SQLITE_ROW)
    found = sqlite3_column_int64(statement, 0);
  else if (status != SQLITE_DONE)
    fprintf(stderr, "sqlite: %s: %s\n", sql, sqlite3_errmsg(db));
  while (status == SQLITE_ROW) status = sqlite3_step(statement);
  sqlite3_finalize(statement);
  return found;
}

static void make_table(const char *path) {
  sqlite3 *db = open_table(path);
  const char *sql = "PRAGMA journal_mode = WAL;"
                    "CREATE TABLE resource (fence INTEGER NOT NULL, value INTEGER NOT NULL);"
                    "CREATE TABLE written (fence INTEGER PRIMARY KEY);"
                    "CREATE TABLE granted (fence INTEGER PRIMARY KEY);"
                    "INSERT INTO resource VALUES (0, 0);";
  if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) abort();
  sqlite3_close(db);
}

/* Under the lock: reads the value and raises the table's fencing token to this one. -1: the table
 * has a later token. */
static long long read_value(sqlite3 *db, long long fence) {
  return ask(db, "UPDATE resource SET fence = ?1 WHERE fence <= ?1 RETURNING value", fence, 0);
}

/* 1: the write was accepted. */
static int write_value(sqlite3 *db, long long fence, long long value) {
  sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
  int accepted =
      ask(db, "UPDATE resource SET value = ?2 WHERE fence = ?1 RETURNING 1", fence, value) == 1;
  if (accepted) ask(db, "INSERT INTO written VALUES (?1)", fence, 0);
  sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
  return accepted;
}

/* ---- a process ----------------------------------------------------------------------------- */

static void come_in(arena *a, int number, int64_t ttl_ms) {
  int now = atomic_fetch_add(&a->inside, 1) + 1, most = atomic_load(&a->most);
  while (atomic_load(&a->quiet) && now > most &&
         !atomic_compare_exchange_weak(&a->most, &most, now)) {
  }
  atomic_store(&a->entered[number], ttl_ms);
  int before = atomic_exchange(&a->holder, number + 1);
  if (!atomic_load(&a->quiet)) return;
  atomic_fetch_add(&a->to_last, before == number + 1);
  atomic_fetch_add(&a->of[number], 1);
}

static void note_wait(arena *a, int64_t ms) {
  int64_t longest = atomic_load(&a->longest_ms);
  while (atomic_load(&a->quiet) && ms > longest &&
         !atomic_compare_exchange_weak(&a->longest_ms, &longest, ms)) {
  }
}

static void go_out(arena *a, int number) {
  atomic_store(&a->entered[number], 0);
  atomic_fetch_sub(&a->inside, 1);
}

static void work(arena *a, sqlite3 *db, int number, corral_lock *lock, int64_t ttl_ms) {
  long long fence = (long long)(corral_lock_fence(lock) & INT64_MAX);
  come_in(a, number, ttl_ms);
  if (ask(db, "INSERT INTO granted VALUES (?1) RETURNING 1", fence, 0) != 1)
    atomic_fetch_add(&a->doubles, 1);
  long long value = read_value(db, fence);
  if (value < 0 || !write_value(db, fence, value + 1)) atomic_fetch_add(&a->refused, 1);
  go_out(a, number);
}

static void contend(arena *a, int number) {
  corral *c;
  corral_lock *lock;
  corral_error error;
  sqlite3 *db = open_table(a->table);
  if (corral_open(CORRAL_OPTIONS(.store = a->plan->uri, .op_ms = 5000, .breaker_failures = 1000),
                  &c, &error) != CORRAL_OK) {
    say(a, "open", error.text);
    atomic_fetch_add(&a->errors, 1);
    _exit(1);
  }
  while (!atomic_load(&a->disturbed) || atomic_load(&a->taken) < a->plan->acquisitions) {
    int64_t ttl_ms = atomic_load(&a->ttl_ms), asked = crl_env_now_ms();
    corral_lock_options *options =
        CORRAL_LOCK(.ttl_ms = ttl_ms, .wait_ms = PATIENCE_MS, .fair = a->plan->fair);
    int status = corral_lock_take(c, "chaos", 5, options, &lock, &error);
    if (status != CORRAL_OK) {
      say(a, corral_status_name(status), error.text);
      if (atomic_fetch_add(&a->errors, 1) > 100) break;
      continue;
    }
    atomic_fetch_add(&a->taken, 1);
    note_wait(a, crl_env_now_ms() - asked);
    work(a, db, number, lock, ttl_ms);
    if (corral_lock_release(lock, &error) == CORRAL_ELOST) atomic_fetch_add(&a->lost, 1);
  }
  corral_close(c);
  sqlite3_close(db);
}

static void spawn(arena *a, int number) {
  pid_t parent = getpid(), pid = fork_at_rest();
  if (pid != 0) {
    a->pids[number] = pid;
    return;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() == parent) contend(a, number);
  _exit(0);
}

/* ---- the parent ---------------------------------------------------------------------------- */

static void until_taken(arena *a, int least) {
  int64_t end = crl_env_now_ms() + 2 * PATIENCE_MS;
  while (atomic_load(&a->taken) < least) {
    if (crl_env_now_ms() > end || atomic_load(&a->errors) > 100)
      fail_msg("%s: %d of %d acquisitions, %d errors (%s)", a->plan->uri, atomic_load(&a->taken),
               least, atomic_load(&a->errors), a->error);
    crl_env_pause_us(500);
  }
}

/* Waits for a process that is inside with a hold of plan->ttl_ms; returns its number. */
static int find_holder(arena *a) {
  for (int64_t end = crl_env_now_ms() + PATIENCE_MS; crl_env_now_ms() < end;) {
    int number = atomic_load(&a->holder) - 1;
    if (number >= 0 && atomic_load(&a->entered[number]) == a->plan->ttl_ms) return number;
  }
  fail_msg("%s: nobody came in", a->plan->uri);
  return 0;
}

/* SIGSTOP, until another process has taken the lock; then SIGCONT, so two are inside for a
 * moment. */
static void stop_one(arena *a) {
  int victim = find_holder(a), before;
  kill(a->pids[victim], SIGSTOP);
  before = atomic_load(&a->taken);
  until_taken(a, before + 1);
  kill(a->pids[victim], SIGCONT);
}

static void kill_one(arena *a) {
  int victim = find_holder(a);
  kill(a->pids[victim], SIGKILL);
  waitpid(a->pids[victim], NULL, 0);
  if (atomic_exchange(&a->entered[victim], 0)) atomic_fetch_sub(&a->inside, 1);
  spawn(a, victim);
}

/* Kills and stops holders in the second half of the run, which takes more acquisitions where this
 * process comes late. In the first half holds last CALM_TTL_MS, so none ends by itself. */
static void disturb(arena *a) {
  const lock_chaos *plan = a->plan;
  int faults = plan->kills + plan->stops, kills = plan->kills, stops = plan->stops,
      half = plan->acquisitions / 2;
  until_taken(a, half);
  if (faults > 0) {
    atomic_store(&a->quiet, 0);
    atomic_store(&a->ttl_ms, plan->ttl_ms);
  }
  for (int i = 0; i < faults; i++) {
    until_taken(a, half + half * (i + 1) / (faults + 2));
    if (kills > 0 && (i % 2 == 0 || stops == 0))
      kills--, kill_one(a);
    else
      stops--, stop_one(a);
  }
  atomic_store(&a->disturbed, 1);
}

static void await_all(arena *a) {
  int64_t end = crl_env_now_ms() + 2 * PATIENCE_MS;
  for (int i = 0; i < a->plan->processes; i++) {
    int status = 0;
    pid_t gone;
    while ((gone = waitpid(a->pids[i], &status, WNOHANG)) == 0 && crl_env_now_ms() < end)
      crl_env_pause_us(500);
    if (gone != a->pids[i] || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
      fail_msg("%s: process %d ended with %d, or not at all (%d, %s): %s", a->plan->uri, i, status,
               (int)gone, strerror(errno), a->error);
  }
}

lock_chaos_outcome lock_chaos_run(const lock_chaos *plan) {
  char folder[ROOM_PATH], command[128];
  arena *a = mmap(NULL, sizeof *a, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int64_t begun = crl_env_now_ms();
  if (a == MAP_FAILED || plan->processes > PROCESSES) abort();
  room_folder(folder, "chaos");
  a->plan = plan;
  atomic_store(&a->quiet, 1);
  atomic_store(&a->ttl_ms, CALM_TTL_MS);
  snprintf(a->table, sizeof a->table, "%s/table", folder);
  make_table(a->table);
  for (int i = 0; i < plan->processes; i++) spawn(a, i);
  disturb(a);
  until_taken(a, plan->acquisitions);
  await_all(a);
  sqlite3 *db = open_table(a->table);
  lock_chaos_outcome outcome = {.counter = ask(db, "SELECT value FROM resource", 0, 0),
                                .accepted = ask(db, "SELECT count(*) FROM written", 0, 0),
                                .taken = a->taken,
                                .most = a->most,
                                .refused = a->refused,
                                .lost = a->lost,
                                .errors = a->errors,
                                .to_last = a->to_last,
                                .fewest = a->of[0],
                                .longest_ms = a->longest_ms,
                                .took_ms = crl_env_now_ms() - begun};
  for (int i = 0; i < plan->processes; i++) {
    int own = atomic_load(&a->of[i]);
    if (own < outcome.fewest) outcome.fewest = own;
    if (own > outcome.most_of_one) outcome.most_of_one = own;
  }
  sqlite3_close(db);
  memcpy(outcome.error, a->error, sizeof outcome.error);
  int doubles = a->doubles;
  munmap(a, sizeof *a);
  snprintf(command, sizeof command, "rm -rf %s", folder);
  if (system(command) != 0) abort();
  if (doubles > 0) fail_msg("%s: %d fencing tokens were given twice", plan->uri, doubles);
  return outcome;
}
