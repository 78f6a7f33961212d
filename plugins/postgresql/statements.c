/* statements.c: the SQL of both kinds of locks, for the reasons given in postgresql.c. '@' stands
 * for the table. */
#include <stdio.h>

#include "postgresql.h"

#define NOW "clock_timestamp()"
#define MICROS "(extract(epoch FROM " NOW ") * 1000000)::bigint"
#define MS_OF(when)                                                                                \
  "floor(extract(epoch FROM greatest('epoch'::timestamptz, least(" when ", " NOW                   \
  " + interval '999 years'))) * 1000)::bigint"
#define LEFT_OF(when)                                                                              \
  "(extract(epoch FROM least(" when ", " NOW " + interval '999 years') - " NOW ") * 1000)"
/* An end that can't be right: the clock was set back, or a stranger wrote it. LENGTH, the length of
 * such a hold, is the time from its taking to its end, at most a day. */
#define IS_FAR                                                                                     \
  "(until > " NOW " + interval '86402 seconds' OR (until > " NOW " AND since > " NOW               \
  " + interval '2 seconds'))"
#define LENGTH                                                                                     \
  "CASE WHEN isfinite(l.since) AND isfinite(l.until) AND l.since < l.until THEN least(l.until - "  \
  "l.since, interval '86400 seconds') ELSE interval '86400 seconds' END"
/* Fencing tokens made from a clock stay below 2^53 microseconds. */
#define NEXT_FENCE                                                                                 \
  "greatest(CASE WHEN l.fence < 9007199254740992 THEN l.fence + 1 ELSE 0 END, " MICROS ")"
#define LIFE NOW " + $3 * interval '1 millisecond'"
#define ITS_HOLD "l.token = excluded.token AND l.until > " NOW
#define LOCKED                                                                                     \
  "WITH old AS (SELECT token, until FROM @ WHERE name = $1 FOR NO KEY UPDATE), done AS (UPDATE @ " \
  "AS l "
#define IF_HELD_BY(tokens)                                                                         \
  " FROM old WHERE l.name = $1 AND old.token IN (" tokens ") AND old.until > " NOW                 \
  " RETURNING l.fence, floor(" LEFT_OF("l.until") ")::bigint AS ms) "
#define IF_HELD IF_HELD_BY("$2")
#define ELSE_WHO                                                                                   \
  " UNION ALL SELECT false, 0, CASE WHEN token = $2 THEN 0 ELSE greatest(0, ceil(" LEFT_OF(        \
      "until") "))::bigint END"                                                                    \
               " FROM old WHERE token IS NOT NULL AND NOT EXISTS (SELECT FROM done)"
#define TELLS "CASE WHEN $5 <> '' THEN pg_notify('corral_lock', $5)::text ELSE '' END"
/* The advisory locks of this number in this database: those that are held, and the queue. */
#define NUMBERED                                                                                   \
  "pg_locks AS l WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND "                            \
  "l.objid::bigint | (l.classid::bigint << 32) = $3 AND"                                           \
  " l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
#define ITS_LOCKS NUMBERED " AND l.granted"
#define ITS_QUEUE NUMBERED " AND NOT l.granted"
#define IN_ORDER "coalesce(l.waitstart, 'infinity'), l.pid"
#define HELD_HERE "EXISTS (SELECT FROM " ITS_LOCKS " AND l.pid = pg_backend_pid())"
/* A second lock beside each: a writer that waits has it, and readers pass through it. */
#define DOOR "($3 # 7640891576956012809)"
#define HAS_DOOR                                                                                   \
  "EXISTS (SELECT FROM pg_locks AS l WHERE l.locktype = 'advisory' AND l.granted AND "             \
  "l.objsubid = 1 AND l.pid = pg_backend_pid() AND l.objid::bigint | (l.classid::bigint << 32) "   \
  "= " DOOR ")"
/* The server ends the session after $4 ms of silence. Its application_name tells others of the
 * hold: "30000ms 2f1.18bcfe56800 note", its life, its fencing token and when it began, both in
 * hex. */
#define SILENCE "set_config('idle_session_timeout', $4::text, false)"
#define NAMED                                                                                      \
  "set_config('application_name', $4::text || 'ms ' || "                                           \
  "to_hex(pg_current_xact_id()::text::bigint) || '.' || to_hex(" MS_OF(                            \
      NOW) ") || ' ' || $5, false)"
#define RENAMED                                                                                    \
  "set_config('application_name', regexp_replace(current_setting('application_name'), "            \
  "'^[0-9]+', $4::text), false)"
#define GRANT                                                                                      \
  "THEN CASE WHEN " SILENCE " || " NAMED                                                           \
  " || pg_logical_emit_message(true, 'corral', '')::text <> '' THEN "                              \
  "pg_current_xact_id()::text::bigint END END"
/* The session waits in the server's queue, and is ended when it is silent for $4 ms after that. */
#define QUEUES                                                                                     \
  "SELECT CASE WHEN " SILENCE " || set_config('application_name', '" CRL_PG_WAITS                  \
  "' || $5, false) <> '' THEN "
#define RESTS                                                                                      \
  "THEN set_config('idle_session_timeout', '0', false) || set_config('application_name', "         \
  "'corral', false) || " TELLS " <> '' ELSE false END"

static const char *const statements[CRL_PG_STATEMENTS] = {
    /* Columns: granted?, fencing token, ms left, and whether that can't be right. */
    [CRL_PG_TAKE] =
        "WITH done AS (INSERT INTO @ AS l (name, token, fence, until, since, note) VALUES ($1, "
        "$2, " MICROS ", " LIFE ", " NOW ", $5)"
        " ON CONFLICT (name) DO UPDATE SET token = excluded.token, note = excluded.note,"
        " fence = CASE WHEN " ITS_HOLD " THEN l.fence ELSE " NEXT_FENCE " END,"
        " since = CASE WHEN " ITS_HOLD " THEN l.since ELSE " NOW " END,"
        " until = CASE WHEN " ITS_HOLD " THEN greatest(l.until, " LIFE ") ELSE " LIFE " END"
        " WHERE l.token IS NULL OR l.until <= " NOW " OR l.token = excluded.token"
        " RETURNING l.fence, floor(" LEFT_OF(
            "l.until") ")::bigint AS ms) SELECT true, fence, ms, false FROM done"
                       " UNION ALL SELECT false, 0, ceil(" LEFT_OF(
                           "until") ")::bigint, " IS_FAR
                                    " FROM @ WHERE name = $1 AND NOT EXISTS (SELECT FROM done)",
    /* Sets a hold's end to one length from now. */
    [CRL_PG_REDATE] = LOCKED "SET until = " NOW " + " LENGTH ", since = least(l.since, " NOW
                             ") FROM old WHERE l.name = $1 AND l.token IS NOT NULL"
                             " AND (SELECT " IS_FAR
                             " FROM (SELECT l.until, l.since) AS it) RETURNING ceil(" LEFT_OF(
                                 "l.until") ")::bigint AS ms) SELECT ms FROM done",
    [CRL_PG_EXTEND] =
        LOCKED "SET until = greatest(l.until, " LIFE "), fence = greatest(l.fence, $4)" IF_HELD
               "SELECT true, fence, ms FROM done" ELSE_WHO,
    /* The hold of the token with which $5 begins, in hex, becomes that of $2; the rest of $5 is its
     * note. */
    [CRL_PG_TAKE_OVER] =
        LOCKED "SET token = $2, note = substr($5, 33), until = greatest(l.until, " LIFE
               "), fence = CASE WHEN l.token = $2 THEN greatest(l.fence, $4) ELSE "
               "greatest($4, " NEXT_FENCE
               ") END" IF_HELD_BY("$2, decode(left($5, 32), 'hex')") "SELECT true, fence, ms FROM "
                                                                     "done" ELSE_WHO,
    [CRL_PG_UNLOCK] = LOCKED "SET token = NULL, note = NULL, since = NULL, until = " NOW IF_HELD
                             "SELECT " TELLS " = '', fence, 0 FROM done" ELSE_WHO,
    /* Columns: held?, fencing token, until, since, the server's time, token, note. */
    [CRL_PG_SHOW] = "SELECT token IS NOT NULL AND until > " NOW ", fence, " MS_OF(
        "until") ", " MS_OF("since") ", " MS_OF(NOW) ", token, note FROM @ WHERE name = $1",
    /* Column: the fencing token; NULL: not granted. */
    [CRL_PG_TRY] = "SELECT CASE WHEN pg_try_advisory_lock($3) " GRANT,
    [CRL_PG_TRY_SHARED] =
        "SELECT CASE WHEN pg_try_advisory_lock_shared(" DOOR ") AND pg_advisory_unlock_shared(" DOOR
        ") AND pg_try_advisory_lock_shared($3) " GRANT,
    /* Column: has the door, and ends with the session after $4 ms of silence? */
    [CRL_PG_WISH] = "SELECT (" HAS_DOOR " OR pg_try_advisory_lock(" DOOR ")) AND " SILENCE " <> ''",
    /* Column: true; the reply is the grant. */
    [CRL_PG_QUEUE] = QUEUES "pg_advisory_lock($3)::text = '' END",
    [CRL_PG_QUEUE_SHARED] = QUEUES "pg_advisory_lock_shared($3)::text = '' END",
    /* Column: the fencing token, of a lock that was granted by QUEUE. */
    [CRL_PG_TURN] = "SELECT CASE WHEN true " GRANT,
    /* Column: the place of the session of process $4 in the queue; 0: it isn't there. */
    [CRL_PG_PLACE] = "WITH queue AS (SELECT l.pid, row_number() OVER (ORDER BY " IN_ORDER
                     ") AS place FROM " ITS_QUEUE
                     ") SELECT coalesce(max(place), 0)::bigint FROM queue WHERE pid = $4",
    /* No row: the process isn't in the queue. Since a restart its number may be another's. */
    [CRL_PG_CANCEL] = "SELECT pg_cancel_backend(l.pid) FROM " ITS_QUEUE " AND l.pid = $4",
    /* Column: may a reader wait in the queue? While others read, not past a writer that wishes: the
     * server would let it in at once. */
    [CRL_PG_PASS] =
        "SELECT NOT EXISTS (SELECT FROM " ITS_LOCKS " AND l.mode = 'ShareLock') OR "
        "(pg_try_advisory_lock_shared(" DOOR ") AND pg_advisory_unlock_shared(" DOOR "))",
    /* Column: still held? */
    [CRL_PG_TOUCH] = "SELECT " HELD_HERE " AND " SILENCE " || " RENAMED " <> ''",
    /* The shared lock is never waited for, since its session has the other one; a mere try would
     * fail while a writer waits. */
    [CRL_PG_DOWNGRADE] =
        "SELECT CASE WHEN " HELD_HERE
        " THEN pg_advisory_lock_shared($3)::text = '' AND pg_advisory_unlock($3) AND"
        " CASE WHEN " HAS_DOOR " THEN pg_advisory_unlock(" DOOR ") ELSE true END AND"
        " set_config('idle_session_timeout', $4::text, false) || " TELLS " <> '' ELSE false END",
    [CRL_PG_END] = "SELECT CASE WHEN pg_advisory_unlock($3) AND pg_advisory_unlock_all()::text IS "
                   "NOT NULL " RESTS,
    [CRL_PG_END_SHARED] =
        "SELECT CASE WHEN pg_advisory_unlock_shared($3) OR pg_advisory_unlock($3) " RESTS,
    /* The holders, then the queue. Columns: exclusive?, pid, when it was last heard, the server's
     * time, its application_name, held?, since when it waits. */
    [CRL_PG_HOLDERS] =
        "SELECT l.mode = 'ExclusiveLock', l.pid::bigint, "
        "coalesce(floor(extract(epoch FROM a.state_change) * 1000)::bigint, "
        "0), " MS_OF(NOW) ", a.application_name, l.granted, " MS_OF(
            "l.waitstart") " FROM pg_stat_activity "
                           "AS a RIGHT JOIN (SELECT * FROM " NUMBERED ") AS l ON a.pid = l.pid "
                           "ORDER BY l.granted DESC, " IN_ORDER " LIMIT 1280",
    [CRL_PG_LISTENS] = "SELECT true FROM pg_listening_channels() AS c WHERE c = 'corral_lock'",
};

#define CREATE                                                                                     \
  "CREATE TABLE @ (name bytea PRIMARY KEY, token bytea, fence bigint NOT NULL, until timestamptz " \
  "NOT NULL, since timestamptz, note text)"

static int put_table(char *room, size_t size, const char *sql, const char *table) {
  size_t len = 0;
  for (; *sql != '\0' && len + CRL_PG_TABLE_ROOM < size; sql++) {
    if (*sql != '@')
      room[len++] = *sql;
    else
      len += (size_t)snprintf(room + len, size - len, "%s", table);
  }
  room[len] = '\0';
  return *sql == '\0';
}

int crl_pg_statement_text(crl_pg_statement what, const char *table, char *room, size_t size) {
  return put_table(room, size, statements[what], table);
}

void crl_pg_create_text(const char *table, char *room, size_t size) {
  (void)put_table(room, size, CREATE, table);
}
