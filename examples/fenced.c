/* fenced.c: a resource that refuses a holder whose time is over: a bank account in PostgreSQL. It
 * accepts a change only with a fencing token that is no smaller than the largest it has seen, in
 * the same statement that makes the change.
 *
 *   fenced STORE CONNINFO     fenced redis://127.0.0.1 "host=127.0.0.1 dbname=bank"
 *
 * Two clerks take the same lock. The first one falls asleep, and his hold ends; the second one
 * takes the lock and books; the first one wakes up, believes that he still has it, books, and is
 * refused because he is late.
 *
 * cc -std=c11 fenced.c $(pkg-config --cflags --libs corral libpq) -o fenced */
#include <corral/lock.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>

enum { HOLD_MS = 200 };

/* 1: booked; 0: refused, since a later holder was here; -1: the database failed. */
static int book(PGconn *bank, const char *amount, uint64_t fence) {
  char token[24];
  snprintf(token, sizeof token, "%llu", (unsigned long long)fence);
  const char *const values[] = {amount, token};
  PGresult *r = PQexecParams(bank,
                             "UPDATE account SET balance = balance + $1::bigint, fence = "
                             "$2::bigint WHERE id = 1 AND fence <= $2::bigint",
                             2, NULL, values, NULL, NULL, 0);
  int rows = PQresultStatus(r) == PGRES_COMMAND_OK ? (int)strtol(PQcmdTuples(r), NULL, 10) : -1;
  PQclear(r);
  return rows;
}

static int set_up(PGconn *bank) {
  PGresult *r = PQexec(bank, "CREATE TABLE IF NOT EXISTS account (id bigint PRIMARY KEY, balance "
                             "bigint NOT NULL, fence bigint NOT NULL);"
                             "INSERT INTO account VALUES (1, 100, 0) ON CONFLICT DO NOTHING");
  int ok = PQresultStatus(r) == PGRES_COMMAND_OK;
  PQclear(r);
  return ok;
}

static void say(const char *who, int booked) {
  printf("%s %s\n", who,
         booked == 1   ? "booked"
         : booked == 0 ? "is late: somebody else had the lock since, nothing was changed"
                       : "couldn't reach the bank");
}

static int run(corral *first, corral *second, PGconn *bank) {
  corral_error error = {0};
  corral_lock *early, *late;
  if (corral_lock_take(first, "account 1", 9,
                       CORRAL_LOCK(.ttl_ms = HOLD_MS, .note = "the early clerk"), &early,
                       &error) != CORRAL_OK)
    goto failed;
  uint64_t old = corral_lock_fence(early);
  /* The early clerk sleeps: his hold isn't kept, and the late one waits until it ends. */
  if (corral_lock_take(second, "account 1", 9,
                       CORRAL_LOCK(.wait_ms = 10000, .note = "the late clerk"), &late,
                       &error) != CORRAL_OK) {
    corral_lock_release(early, NULL);
    goto failed;
  }
  int second_booked = book(bank, "-70", corral_lock_fence(late)),
      first_booked = book(bank, "-70", old);
  say("the late clerk", second_booked);
  say("the early clerk", first_booked);
  if (corral_lock_release(early, &error) == CORRAL_ELOST)
    printf("the early clerk's release says: %s\n", error.text);
  corral_lock_release(late, NULL);
  return second_booked == 1 && first_booked == 0;
failed:
  fprintf(stderr, "%s\n", error.text);
  return 0;
}

int main(int argc, char **argv) {
  corral *first = NULL, *second = NULL;
  corral_error error = {0};
  if (argc != 3) {
    fprintf(stderr, "usage: fenced STORE CONNINFO\n");
    return 2;
  }
  PGconn *bank = PQconnectdb(argv[2]);
  int ok = PQstatus(bank) == CONNECTION_OK && set_up(bank);
  if (!ok) fprintf(stderr, "%s", PQerrorMessage(bank));
  if (ok)
    ok = corral_open(CORRAL_OPTIONS(.store = argv[1]), &first, &error) == CORRAL_OK &&
         corral_open(CORRAL_OPTIONS(.store = argv[1]), &second, &error) == CORRAL_OK;
  if (error.status != CORRAL_OK) fprintf(stderr, "%s\n", error.text);
  if (ok) ok = run(first, second, bank);
  if (first != NULL) corral_close(first);
  if (second != NULL) corral_close(second);
  PQfinish(bank);
  return ok ? 0 : 1;
}
