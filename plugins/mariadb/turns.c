/* turns.c: waiters in turn: the server's own queue of a lock, which grants in the order of arrival.
 *
 * A waiter has a session that blocks in GET_LOCK; UNLOCK ends it. A lock with a queue is never free
 * in between, so GET_LOCK(name, 0) of others isn't granted. A look whether the turn has come asks
 * the server nothing. The place is looked up on another session, in the list of processes: at once,
 * so that a LOCK that returns is in the queue for sure; at each look of one of the first NEAR, more
 * seldom farther back. A waiter that is neither there nor answered has lost its session.
 *
 * The statement tells the waiter's note, as a comment. The server ends the session of a waiter that
 * is dead within a second, or when its turn comes, whichever is sooner; that of one that is stopped
 * or cut off when it has not answered within TURN_MS of its turn. */
#include <ctype.h>
#include <mysqld_error.h>
#include <stdio.h>
#include <stdlib.h>

#include "mariadb.h"

enum {
  TURN_MS = 1000,  /* the shortest wait_timeout */
  PAUSE_MS = 2,    /* between looks for a waiter that is on its way into the queue, or out of it */
  FIRST_MS = 1000, /* from look to look at the first place, which shows that the session lives */
  NEAR = 8,
  PLACE_MS = 20 /* from look to look, for each place before one that is not NEAR */
};

/* Up to the note, in hex, and its end. `quote` is a wildcard where the text is looked for. */
#define STATEMENT                                                                                  \
  "SELECT IF(GET_LOCK(%c%s%c, 31536000), UUID_SHORT(), 0), UNIX_TIMESTAMP(SYSDATE()) /*"
#define ENDING "*/"

/* ---- the server's list --------------------------------------------------------------------- */

/* Asks for the waiters of a lock in their order. A session is seen in this state when its request
 * is in the queue, not before. Statuses as crl_mariadb_ask. */
static int ask_queue(crl_mariadb_session *s, const char *name, int noted, int64_t deadline) {
  char sql[CRL_MARIADB_SQL], head[160], more[48] = "";
  int len = snprintf(head, sizeof head, STATEMENT, '_', name, '_');
  if (noted) snprintf(more, sizeof more, ", TIME_MS, SUBSTRING(INFO, %d)", len + 1);
  snprintf(sql, sizeof sql,
           "SELECT ID%s FROM information_schema.PROCESSLIST WHERE COMMAND = 'Query' AND STATE = "
           "'User lock' AND INFO LIKE '%s%%' ORDER BY QUERY_ID",
           more, head);
  int status = crl_mariadb_ask(s, sql, deadline, NULL);
  int answers = status != CORRAL_OK && !s->broken && s->stage == CRL_MARIADB_READY;
  if (answers && mysql_errno(s->mysql) == ER_BAD_FIELD_ERROR) atomic_store(&s->st->no_queue, 1);
  return status;
}

static unsigned long id_of(const crl_mariadb_session *s) {
  return crl_mariadb_cell(s, 0) == NULL ? 0 : strtoul(crl_mariadb_cell(s, 0), NULL, 10);
}

/* Looks for a waiter in the queue, by another session: *place is 0 where it isn't there. */
static int find_place(crl_mariadb_session *other, const crl_mariadb_session *s, int64_t deadline,
                      size_t *place) {
  int status = ask_queue(other, s->name, 0, deadline);
  size_t number = 0;
  *place = 0;
  if (status != CORRAL_OK) return status;
  for (int more = other->row != NULL; more && *place == 0; more = crl_mariadb_next(other)) {
    number++;
    if (id_of(other) == s->id) *place = number;
  }
  return CORRAL_OK;
}

/* Looks up the waiter's place, when that is due. 0: it is not in the queue. */
static int is_queued(const crl_mariadb_batch *b, crl_mariadb_session *s) {
  crl_mariadb_batch aside = {.st = b->st, .deadline = b->deadline};
  crl_mariadb_session *other = NULL;
  int64_t now = b->st->host->now_ms();
  size_t place;
  if (atomic_load(&b->st->no_queue) || now < s->look_at) return 1;
  s->look_at = now + FIRST_MS;
  if (crl_mariadb_take_session(&aside, 1, &other, NULL) != CORRAL_OK) return 1;
  int status = find_place(other, s, b->deadline, &place);
  crl_mariadb_put_idle(other);
  if (status != CORRAL_OK) return 1;
  if (place != 1) s->look_at = place <= NEAR ? 0 : now + PLACE_MS * (int64_t)place;
  if (place > 0) s->place = place;
  return place > 0;
}

static void read_note(const char *hex, char note[CORRAL_LOCK_NOTE + 1]) {
  size_t len = 0;
  while (len < CORRAL_LOCK_NOTE && isxdigit((unsigned char)hex[0]) &&
         isxdigit((unsigned char)hex[1])) {
    const char pair[] = {hex[0], hex[1], '\0'};
    note[len++] = (char)strtoul(pair, NULL, 16);
    hex += 2;
  }
  note[len] = '\0';
}

size_t crl_mariadb_turn_list(crl_mariadb_session *s, const char *name, int64_t deadline,
                             corral_hold *holds) {
  char note[CORRAL_LOCK_NOTE + 1];
  size_t count = 0;
  if (atomic_load(&s->st->no_queue) || ask_queue(s, name, 1, deadline) != CORRAL_OK) return 0;
  for (int more = s->row != NULL; more && count < CRL_MARIADB_LISTED; more = crl_mariadb_next(s)) {
    const char *ms = crl_mariadb_cell(s, 1), *hex = crl_mariadb_cell(s, 2);
    corral_hold *hold = &holds[count++];
    *hold = (corral_hold){.mode = CORRAL_LOCK_WAITING + CORRAL_LOCK_EXCLUSIVE};
    if (ms != NULL) hold->since = s->st->host->now_ms() - strtoll(ms, NULL, 10);
    read_note(hex != NULL ? hex : "", note);
    crl_mariadb_note_name(note, id_of(s), hold);
  }
  return count;
}

/* ---- a waiter ------------------------------------------------------------------------------ */

int crl_mariadb_turn_begin(crl_mariadb_batch *b, crl_mariadb_session *s, corral_error *error) {
  char sql[CRL_MARIADB_SQL];
  size_t len = strnlen(s->hold.note, sizeof s->hold.note);
  int used = snprintf(sql, sizeof sql, STATEMENT, '\'', s->name, '\'');
  for (size_t i = 0; i < len; i++)
    used += snprintf(sql + used, sizeof sql - (size_t)used, "%02x", (unsigned char)s->hold.note[i]);
  snprintf(sql + used, sizeof sql - (size_t)used, "%s", ENDING);
  int status = crl_mariadb_set_timeout(s, TURN_MS, b->deadline, error);
  if (status == CORRAL_OK) status = crl_mariadb_send(s, sql, b->deadline, error);
  if (status != CORRAL_OK) return status;
  s->waits = 1;
  s->place = 0;
  s->misses = 0;
  s->look_at = 0;
  crl_mariadb_add_held(s, 1);
  return CORRAL_OK;
}

/* A waiter that isn't in the queue, which has no answer either for half of the time allowed, is on
 * its way there at its first look; else its session is over, and nothing has told this side. */
int crl_mariadb_turn(crl_mariadb_batch *b, crl_mariadb_session *s) {
  int64_t until = 0, now = b->st->host->now_ms(), most = now + (b->deadline - now) / 2;
  for (;;) {
    int status = crl_mariadb_answer(s, until, NULL);
    if (status != CORRAL_EINDOUBT)
      return status == CORRAL_OK && id_of(s) != 0 ? CORRAL_OK : CORRAL_ELOST;
    if (is_queued(b, s)) return CORRAL_EBUSY;
    now = b->st->host->now_ms();
    if (now >= most) return s->place > 0 || s->misses++ > 0 ? CORRAL_ELOST : CORRAL_EBUSY;
    until = now + PAUSE_MS;
  }
}

/* A session that isn't in the queue any more isn't killed: since a restart of the server, its
 * number may be another's. Without KILL the server sees the end of a connection within a second. */
void crl_mariadb_turn_end(crl_mariadb_batch *b, crl_mariadb_session *s) {
  crl_mariadb_batch aside = {.st = b->st, .deadline = b->deadline};
  crl_mariadb_session *other = NULL;
  char sql[CRL_MARIADB_SQL];
  size_t place;
  if (crl_mariadb_answer(s, 0, NULL) == CORRAL_EINDOUBT && !atomic_load(&b->st->no_queue) &&
      crl_mariadb_take_session(&aside, 1, &other, NULL) == CORRAL_OK) {
    snprintf(sql, sizeof sql, "KILL %lu", s->id);
    if (find_place(other, s, b->deadline, &place) == CORRAL_OK && place > 0)
      (void)crl_mariadb_ask(other, sql, b->deadline, NULL);
    crl_mariadb_put_idle(other);
  }
  crl_mariadb_drop(s);
}
