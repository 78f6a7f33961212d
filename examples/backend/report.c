/* report.c: a region's report, computed by PostgreSQL.
 *
 * No report from before a change is fresh after it. The listener (listen.c) hears of a change when
 * it has committed, and expires the region's tag; a query that begins after that sees the change. A
 * query that began before may have missed it: its tag was read before it began and has been changed
 * since, so its report goes to the callers that were waiting already, and is not stored.
 *
 * The version is a second guard, for reports computed while the store was away, by several
 * processes that can't know of each other: it is the end of the query's snapshot. A later snapshot
 * of the same database never has a smaller one. Two may have the same, and then tags and leases
 * decide. (The position in the WAL would not do: it is read when the snapshot is old already.)
 * After a restore from a backup, or the promotion of an incomplete standby, these numbers go back:
 * then reports are computed and not stored until the old ones' graces end, unless the store is
 * emptied. */
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAILED_QUERY = 1, FAILED_CONNECTION = 2 };

static const char query[] =
    "WITH own AS (SELECT id, name FROM customers WHERE region = $1),"
    " sales AS (SELECT own.id, own.name, o.placed, o.amount FROM orders o JOIN own ON own.id = "
    "o.customer)"
    " SELECT (SELECT count(*) FROM own) = 0, pg_snapshot_xmax(pg_current_snapshot())::text, "
    "json_build_object("
    "  'region', $1::text,"
    "  'customers', (SELECT count(*) FROM own),"
    "  'orders', (SELECT count(*) FROM sales),"
    "  'revenue', (SELECT coalesce(sum(amount), 0) FROM sales),"
    "  'median', (SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY amount) FROM sales),"
    "  'months', (SELECT json_agg(m) FROM (SELECT to_char(placed, 'YYYY-MM') AS month, count(*) AS "
    "orders, sum(amount) AS revenue,"
    "                                             count(DISTINCT id) AS customers FROM sales GROUP "
    "BY 1 ORDER BY 1) m),"
    "  'best', (SELECT json_agg(b) FROM (SELECT name, sum(amount) AS revenue FROM sales GROUP BY "
    "id, name ORDER BY 2 DESC, id LIMIT 5) b)"
    " )::text, (SELECT pg_sleep($2::float8))";

size_t report_tag(char room[REPORT_TAG_ROOM], const void *region, size_t len) {
  return (size_t)snprintf(room, REPORT_TAG_ROOM, "region:%.*s", (int)len, (const char *)region);
}

static void fail(corral_fill *fill, int32_t code, const char *text) {
  char line[200];
  snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
  corral_fill_fail(fill, code, line);
}

/* "No such region" has the tag too: it ends when the region gets its first customer. */
static int fill_from(corral_fill *fill, const PGresult *r, const void *region, size_t len) {
  char tag[REPORT_TAG_ROOM];
  int status = corral_fill_tag(fill, tag, report_tag(tag, region, len));
  if (status != CORRAL_OK) return status;
  corral_fill_version(fill, strtoull(PQgetvalue(r, 0, 1), NULL, 10));
  if (PQgetvalue(r, 0, 0)[0] != 't')
    return corral_fill_bytes(fill, PQgetvalue(r, 0, 2), (size_t)PQgetlength(r, 0, 2));
  corral_fill_negative(fill);
  return CORRAL_OK;
}

int report_compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  report_source *source = arg;
  db_limit limit = {.until = db_now_ms() + REPORT_MS, .stop_fd = source->stop_fd, .fill = fill};
  char region[REGION_MOST + 1], text[200];
  int status = CORRAL_OK;
  if (key_len > REGION_MOST) return CORRAL_EINVAL;
  snprintf(region, sizeof region, "%.*s", (int)key_len, (const char *)key);
  PGconn *conn = db_take(source->pool, &limit, text, sizeof text);
  if (conn == NULL) {
    fail(fill, FAILED_CONNECTION, text);
    return CORRAL_OK;
  }
  PGresult *r = db_ask(conn, query, (const char *const[]){region, source->pause}, 2, &limit);
  if (r != NULL && PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) == 1)
    status = fill_from(fill, r, key, key_len);
  else
    fail(fill, FAILED_QUERY,
         r == NULL ? "the report took too long, or nobody wanted it any more"
                   : PQresultErrorMessage(r));
  PQclear(r);
  db_give(source->pool, conn, r != NULL);
  return status;
}
