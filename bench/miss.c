/* miss.c: the cost of a cold miss on Redis: time, round trips and the server's time, against a lock
 * of two commands, SET NX GET and SET, by hiredis on the same server, in turns within one run; of a
 * miss that the process expects, because it has invalidated the key; of both with settle_behind.
 *
 *   bench_miss
 *
 * It starts its own redis-server, and takes round trips and times from its INFO. */
#include <corral.h>
#include <hiredis/hiredis.h>
#include <sched.h>
#include <string.h>

#include "kit.h"
#include "support/redis_server.h"

enum { ROUNDS = 7, MISSES = 1000, SIZE = 100 };

typedef struct cost {
  double us, reads;          /* of each miss: time; requests that the server read */
  double behind;             /* those of them behind the caller's value */
  double cpu_us, execute_us; /* of the server: all of its work, and executing claim and settle */
} cost;

/* Sum of the numbers behind each `name` in the server's INFO. */
static double info(redisContext *r, const char *section, const char *name) {
  double sum = 0;
  redisReply *reply = redisCommand(r, "INFO %s", section);
  if (reply == NULL || reply->type != REDIS_REPLY_STRING) die("INFO failed");
  for (const char *at = strstr(reply->str, name); at != NULL; at = strstr(at + 1, name))
    sum += strtod(at + strlen(name), NULL);
  freeReplyObject(reply);
  return sum;
}

/* The time of one command's executions, in us. */
static double executed(redisContext *r, const char *command) {
  char name[64];
  double us = 0;
  redisReply *reply = redisCommand(r, "INFO commandstats");
  if (reply == NULL || reply->type != REDIS_REPLY_STRING) die("INFO failed");
  snprintf(name, sizeof name, "cmdstat_%s:", command);
  const char *at = strstr(reply->str, name);
  if (at != NULL && (at = strstr(at, "usec=")) != NULL) us = strtod(at + strlen("usec="), NULL);
  freeReplyObject(reply);
  return us;
}

/* Of the server since its start. A script's time contains that of its commands: of two SETs, one is
 * the claim, and one the settle's. */
static cost totals(redisContext *r, int has_scripts) {
  double set = executed(r, "set");
  return (cost){.us = now_us(),
                .reads = info(r, "stats", "total_reads_processed:"),
                .cpu_us =
                    1e6 * (info(r, "cpu", "used_cpu_user:") + info(r, "cpu", "used_cpu_sys:")),
                .execute_us = has_scripts ? executed(r, "evalsha") + set / 2 : set};
}

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  void *room = corral_fill_reserve(fill, SIZE);
  if (room == NULL) return CORRAL_ENOMEM;
  memset(room, 'x', SIZE);
  return CORRAL_OK;
}

static void corral_misses(corral *c, int from) {
  for (int i = 0; i < MISSES; i++) {
    char key[32];
    corral_value *value;
    size_t len = (size_t)snprintf(key, sizeof key, "key %d", from + i);
    if (corral_get_or_compute(c, key, len, NULL, compute, NULL, &value) != CORRAL_OK)
      die("a call failed");
    if (corral_value_how(value) != CORRAL_COMPUTED) die("a miss was none");
    corral_value_unref(value);
  }
}

static void await_settles(const corral *c, uint64_t count) {
  while (corral_counter(c, CORRAL_EVENT_FILL) < count) sched_yield();
}

/* Misses one by one: the next begins when the settle of the last one is over. With `expected` this
 * process has just invalidated the key, in a round trip that isn't counted. */
static cost single_misses(corral *c, redisContext *asks, int from, int expected, int behind) {
  enum { READINGS = 5 };
  const corral_call *call = CORRAL_CALL(.policy = CORRAL_POLICY(.settle_behind = behind));
  uint64_t fills = corral_counter(c, CORRAL_EVENT_FILL);
  cost ret = {.us = 0}, before = totals(asks, 1);
  int handed = 0;
  for (int i = 0; i < MISSES; i++) {
    char key[32];
    corral_value *value;
    size_t len = (size_t)snprintf(key, sizeof key, "key %d", from + i);
    if (expected && corral_invalidate(c, key, len, NULL) != CORRAL_OK)
      die("an invalidation failed");
    double began = now_us();
    if (corral_get_or_compute(c, key, len, call, compute, NULL, &value) != CORRAL_OK)
      die("a call failed");
    ret.us += (now_us() - began) / MISSES;
    if (corral_value_how(value) != CORRAL_COMPUTED) die("a miss was none");
    handed += corral_value_kept(value) == CORRAL_KEPT_UNKNOWN;
    corral_value_unref(value);
    await_settles(c, ++fills);
  }
  ret.reads = (totals(asks, 1).reads - before.reads - READINGS) / MISSES - expected;
  ret.behind = (double)handed / MISSES;
  return ret;
}

static void raw_misses(redisContext *r, int from) {
  char text[SIZE];
  memset(text, 'x', sizeof text);
  for (int i = 0; i < MISSES; i++) {
    redisReply *reply = redisCommand(r, "SET raw:%d 0123456789abcdef NX GET PX 10000", from + i);
    if (reply == NULL || reply->type != REDIS_REPLY_NIL) die("SET NX GET failed (Redis 7 has it)");
    freeReplyObject(reply);
    reply = redisCommand(r, "SET raw:%d %b PX 60000", from + i, text, sizeof text);
    if (reply == NULL || reply->type != REDIS_REPLY_STATUS) die("a SET failed");
    freeReplyObject(reply);
  }
}

static cost measure(corral *c, redisContext *r, redisContext *asks, int from) {
  enum { READINGS = 5 }; /* requests of one totals(), all but the first behind its own count */
  cost before = totals(asks, c != NULL);
  if (c != NULL)
    corral_misses(c, from);
  else
    raw_misses(r, from);
  cost after = totals(asks, c != NULL);
  return (cost){.us = (after.us - before.us) / MISSES,
                .reads = (after.reads - before.reads - READINGS) / MISSES,
                .cpu_us = (after.cpu_us - before.cpu_us) / MISSES,
                .execute_us = (after.execute_us - before.execute_us) / MISSES};
}

static double middle(const cost *of, size_t offset) {
  double all[ROUNDS];
  for (int i = 0; i < ROUNDS; i++) memcpy(&all[i], (const char *)&of[i] + offset, sizeof all[i]);
  return median(all, ROUNDS);
}

#define MIDDLE(of, field) middle(of, offsetof(cost, field))

static void print(const char *name, const cost *of) {
  printf("%-17s %6.1f us a miss   %.2f round trips, %.2f before the value", name, MIDDLE(of, us),
         MIDDLE(of, reads), MIDDLE(of, reads) - MIDDLE(of, behind));
  if (MIDDLE(of, cpu_us) > 0)
    printf("   the server: %.1f us of CPU, %.1f us executing claim and settle", MIDDLE(of, cpu_us),
           MIDDLE(of, execute_us));
  printf("\n");
}

/* The rows of single misses. */
static const struct {
  const char *name;
  int expected, behind;
} singles[] = {{"expected", 1, CORRAL_OFF}, {"behind", 0, 1}, {"expected, behind", 1, 1}};
enum { SINGLES = 3 };

int main(void) {
  redis_server *server;
  cost ours[ROUNDS], raw[ROUNDS], single[SINGLES][ROUNDS];
  corral *c;
  corral_error error;
  redis_server_start(&server, NULL);
  if (server == NULL) die("no redis-server");
  redisContext *r = redisConnectUnix(redis_server_socket(server)),
               *asks = redisConnectUnix(redis_server_socket(server));
  if (r == NULL || r->err != 0 || asks == NULL || asks->err != 0) die("can't connect");
  if (corral_open(CORRAL_OPTIONS(.store = redis_server_unix_uri(server)), &c, &error) != CORRAL_OK)
    die(error.text);
  corral_misses(c, 0);
  raw_misses(r, 0);
  for (int i = 0; i < ROUNDS; i++) {
    ours[i] = measure(c, r, asks, (i + 1) * MISSES);
    for (int k = 0; k < SINGLES; k++)
      single[k][i] = single_misses(c, asks, ((k + 1) * ROUNDS + i + 1) * MISSES,
                                   singles[k].expected, singles[k].behind);
    raw[i] = measure(NULL, r, asks, (i + 1) * MISSES);
  }
  print("corral", ours);
  for (int k = 0; k < SINGLES; k++) print(singles[k].name, single[k]);
  print("SET NX GET + SET", raw);
  printf("ratio %.2f   of the server's CPU %.2f   of executing %.2f\n",
         MIDDLE(ours, us) / MIDDLE(raw, us), MIDDLE(ours, cpu_us) / MIDDLE(raw, cpu_us),
         MIDDLE(ours, execute_us) / MIDDLE(raw, execute_us));
  corral_close(c);
  redisFree(r);
  redisFree(asks);
  redis_server_stop(server);
  return 0;
}
