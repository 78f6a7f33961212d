/* case_many.c: several handles, threads and processes on one store. */
#include "conformance.h"

#include <pthread.h>

#include "os/env.h"

enum { OWNER = 1, OTHER = 2, THREADS = 4, RACES = 100, WRITES = 150, LEASE_MS = 400 };

void case_each_key_has_one_server(void) {
  if (declared()->servers < 2) cant("the store declares one server");
  client *c = client_new();
  check(client_connect(c, now_ms() + LIMIT_MS) == CORRAL_OK, "connecting to each server: %s",
        client_error(c));
  size_t counts[CORRAL_SERVERS] = {0};
  for (size_t i = 0; i < 100 * declared()->servers && i < 1000; i++) {
    const key *k = key_new("k");
    size_t server = key_server(k);
    check(server < declared()->servers, "route: of %zu servers it named number %zu",
          declared()->servers, server);
    check(key_server(k) == server, "route named two servers for one key");
    counts[server]++;
  }
  if (servers_come_and_go()) return; /* and no more are declared than there may be */
  for (size_t i = 0; i < declared()->servers && i < 10; i++)
    check(counts[i] > 0, "route: none of many keys is for server %zu", i);
}

void case_two_handles_see_the_same(void) {
  client *a = client_new(), *b = client_new();
  const key *k = key_new("k");
  const record *r = record_new(k, 5000, 1);
  wants("a claim through one handle", claim(a, k, OWNER, LONG_MS).status, CORRAL_OK);
  wants("a claim through the other", claim(b, k, OTHER, LONG_MS).status, CORRAL_EBUSY);
  wants("a settle through the other, with the token", settle(b, k, OWNER, r, LONG_MS), CORRAL_OK);
  wants_value("GET through the first", get(a, k), r);
  wants("an invalidate through the first", invalidate(a, k), CORRAL_OK);
  wants_nothing("GET through the other", get(b, k));
}

/* ---- threads ------------------------------------------------------------------------------- */

typedef struct racer {
  client *client;
  pthread_t thread;
  const key *const *keys;
  unsigned holder;
  atomic_uint *go;
  uint8_t won[RACES];
  int broke; /* CORRAL_OK, or a status other than OK and EBUSY that came */
} racer;

static int64_t limit(void) { return now_ms() + LIMIT_MS; }

static void race_once(racer *r, unsigned i) {
  corral_op op = op_of(CORRAL_VERB_CLAIM, r->keys[i], r->holder);
  int status = client_perform(r->client, &op, 1, limit());
  if (status == CORRAL_OK && op.status != CORRAL_OK && op.status != CORRAL_EBUSY)
    status = op.status;
  if (status != CORRAL_OK) r->broke = status;
  r->won[i] = op.status == CORRAL_OK;
  op_drop(&op);
}

static void *race(void *arg) {
  racer *r = arg;
  for (unsigned i = 0; i < RACES; i++) {
    atomic_fetch_add(&r->go[i], 1); /* all threads start on a key together */
    for (int64_t until = limit(); atomic_load(&r->go[i]) < THREADS && now_ms() < until;) continue;
    race_once(r, i);
  }
  return NULL;
}

static void start_thread(pthread_t *thread, void *(*run)(void *), void *arg) {
  check(crl_env_thread(thread, run, arg) == 0, "this system starts no further thread");
}

void case_of_many_threads_one_claims(void) {
  racer *racers = room(THREADS * sizeof *racers);
  const key **keys = room(RACES * sizeof *keys);
  atomic_uint *go = room(RACES * sizeof *go);
  for (unsigned i = 0; i < RACES; i++) keys[i] = key_new("k");
  for (unsigned i = 0; i < THREADS; i++) {
    racers[i] = (racer){.client = client_new(), .keys = keys, .holder = i + 1, .go = go};
    check(client_connect(racers[i].client, limit()) == CORRAL_OK, "connecting: %s",
          client_error(racers[i].client));
  }
  for (unsigned i = 0; i < THREADS; i++) start_thread(&racers[i].thread, race, &racers[i]);
  for (unsigned i = 0; i < THREADS; i++) pthread_join(racers[i].thread, NULL);
  for (unsigned i = 0; i < THREADS; i++)
    check(racers[i].broke == CORRAL_OK, "a claim in a race: %s: %s",
          corral_status_name(racers[i].broke), client_error(racers[i].client));
  for (unsigned i = 0; i < RACES; i++) {
    unsigned winners = 0;
    for (unsigned j = 0; j < THREADS; j++) winners += racers[j].won[i];
    check(winners == 1, "of %d threads that claimed one key, %u were granted it", THREADS, winners);
  }
}

typedef struct reader {
  client *client;
  pthread_t thread;
  const key *key;
  const record *const *records;
  size_t count;
  atomic_int *stop;
  unsigned looks, wrong;
} reader;

static void *read_on(void *arg) {
  reader *r = arg;
  while (!atomic_load(r->stop)) {
    corral_op op = op_of(CORRAL_VERB_GET, r->key, 0);
    int known = 0;
    if (client_perform(r->client, &op, 1, limit()) != CORRAL_OK)
      r->wrong++;
    else {
      sight s = sight_of(&op, client_error(r->client));
      for (size_t i = 0; i < r->count; i++) known |= is_value(&s, r->records[i]);
      r->wrong += !known;
    }
    r->looks++;
  }
  return NULL;
}

void case_readers_never_see_half_a_value(void) {
  enum { READERS = 2, KINDS = 3 };
  client *c = client_new();
  const key *k = key_new("k");
  const record *records[KINDS] = {record_new(k, 100, 1), record_new(k, 3000, 2),
                                  record_new(k, 60000, 3)};
  reader readers[READERS];
  atomic_int stop;
  atomic_init(&stop, 0);
  fill(c, k, OWNER, records[0], LONG_MS);
  for (size_t i = 0; i < READERS; i++) {
    readers[i] = (reader){
        .client = client_new(), .key = k, .records = records, .count = KINDS, .stop = &stop};
    check(client_connect(readers[i].client, limit()) == CORRAL_OK, "connecting: %s",
          client_error(readers[i].client));
  }
  for (size_t i = 0; i < READERS; i++) start_thread(&readers[i].thread, read_on, &readers[i]);
  int status = CORRAL_OK;
  for (unsigned i = 0; i < WRITES && status == CORRAL_OK; i++) {
    corral_op ops[] = {op_of(CORRAL_VERB_CLAIM, k, i + 1),
                       op_settle(k, i + 1, records[i % KINDS], LONG_MS)};
    for (int j = 0; j < 2 && status == CORRAL_OK; j++) {
      status = client_perform(c, &ops[j], 1, limit());
      if (status == CORRAL_OK) status = ops[j].status;
      op_drop(&ops[j]);
    }
  }
  atomic_store(&stop, 1);
  unsigned looks = 0, wrong = 0;
  for (size_t i = 0; i < READERS; i++) {
    pthread_join(readers[i].thread, NULL);
    looks += readers[i].looks;
    wrong += readers[i].wrong;
  }
  wants("a claim or settle under readers", status, CORRAL_OK);
  check(wrong == 0, "of %u GETs while values were settled, %u gave something that nobody settled",
        looks, wrong);
}

/* ---- processes ----------------------------------------------------------------------------- */

/* Memory that the processes of a case share: made by the first before it starts the second. */
typedef struct board {
  const key *key;
  const key *keys[RACES];
  atomic_uint first, second; /* progress of each process */
  atomic_uchar won[2][RACES];
} board;

static board *board_new(void) {
  board *b = shared_room(sizeof *b);
  b->key = key_new("k");
  for (unsigned i = 0; i < RACES; i++) b->keys[i] = key_new("race");
  return b;
}

static void see_and_settle(void *arg) {
  board *b = arg;
  client *c = client_new();
  wait_for(&b->first, 1, "for its value");
  wants_value("GET of what another process settled", get(c, b->key), record_new(b->key, 5000, 1));
  wants("a claim by a second process", claim(c, b->key, OTHER, LONG_MS).status, CORRAL_OK);
  atomic_store(&b->second, 1);
  wait_for(&b->first, 2, "to be told BUSY");
  wants("a settle by a second process",
        settle(c, b->key, OTHER, record_new(b->key, 400, 2), LONG_MS), CORRAL_OK);
  atomic_store(&b->second, 2);
}

void case_two_processes_see_the_same(void) {
  board *b = board_new();
  pid_t pid = process_start(see_and_settle, b);
  client *c = client_new();
  fill(c, b->key, OWNER, record_new(b->key, 5000, 1), LONG_MS);
  atomic_store(&b->first, 1);
  wait_for(&b->second, 1, "for its claim");
  sight s = claim(c, b->key, OWNER, LONG_MS);
  wants("a claim while another process holds the lease", s.status, CORRAL_EBUSY);
  wants_lease("a claim while another process holds the lease", s, OTHER);
  atomic_store(&b->first, 2);
  wait_for(&b->second, 2, "for its value");
  wants_value("GET of what another process settled", get(c, b->key), record_new(b->key, 400, 2));
  process_join(pid);
}

static void claim_all(board *b, client *c, int who, atomic_uint *mine, atomic_uint *theirs) {
  for (unsigned i = 0; i < RACES; i++) {
    atomic_store(mine, i + 1);
    for (int64_t until = limit(); atomic_load(theirs) < i + 1 && now_ms() < until;) continue;
    int status = claim(c, b->keys[i], who == 0 ? OWNER : OTHER, LONG_MS).status;
    check(status == CORRAL_OK || status == CORRAL_EBUSY, "a claim in a race: %s",
          corral_status_name(status));
    atomic_store(&b->won[who][i], status == CORRAL_OK);
  }
}

static void race_in_second(void *arg) {
  board *b = arg;
  client *c = client_new();
  (void)get(c, b->key);
  claim_all(b, c, 1, &b->second, &b->first);
  /* a store may end the leases of a process that has ended */
  wait_for(&b->first, RACES + 1, "to look");
}

void case_of_two_processes_one_claims(void) {
  board *b = board_new();
  pid_t pid = process_start(race_in_second, b);
  client *c = client_new();
  (void)get(c, b->key);
  claim_all(b, c, 0, &b->first, &b->second);
  atomic_store(&b->first, RACES + 1);
  process_join(pid);
  for (unsigned i = 0; i < RACES; i++) {
    int winners = b->won[0][i] + b->won[1][i];
    check(winners == 1, "of two processes that claimed one key, %d were granted it", winners);
  }
}

static void lose_a_lease(void *arg) {
  board *b = arg;
  client *c = client_new();
  wants("a claim", claim(c, b->key, OTHER, 100).status, CORRAL_OK);
  atomic_store(&b->second, 1);
  wait_for(&b->first, 1, "to take the lease");
  wants("a settle by a process whose lease was taken",
        settle(c, b->key, OTHER, record_new(b->key, 100, 2), LONG_MS), CORRAL_ELOST);
  wants("a release by it", release(c, b->key, OTHER), CORRAL_ELOST);
}

void case_a_process_whose_lease_was_taken_is_fenced(void) {
  board *b = board_new();
  pid_t pid = process_start(lose_a_lease, b);
  client *c = client_new();
  wait_for(&b->second, 1, "for its claim");
  int64_t until = now_ms() + 100 + LATE_MS;
  while (claim(c, b->key, OWNER, LONG_MS).status != CORRAL_OK) {
    check(now_ms() < until, "the lease of 100 ms of another process was not over after %d ms",
          100 + LATE_MS);
    pause_ms(4);
  }
  atomic_store(&b->first, 1);
  process_join(pid);
  sight s = get(c, b->key);
  wants_lease("after the settle and release of a process whose lease was taken", s, OWNER);
  wants_no_value("after them", s);
  wants("a settle by who took it", settle(c, b->key, OWNER, record_new(b->key, 100, 1), LONG_MS),
        CORRAL_OK);
}

static void hold(void *arg) {
  board *b = arg;
  client *c = client_new();
  wants("a claim", claim(c, b->key, OTHER, LEASE_MS).status, CORRAL_OK);
  atomic_store(&b->second, 1);
  for (;;) pause_ms(1000);
}

void case_a_killed_process_is_replaced_by_the_end_of_its_lease(void) {
  board *b = board_new();
  const record *r = record_new(b->key, 100, 1);
  pid_t pid = process_start(hold, b);
  client *c = client_new();
  wait_for(&b->second, 1, "for its claim");
  wants("a claim while it lives", claim(c, b->key, OWNER, LONG_MS).status, CORRAL_EBUSY);
  process_kill(pid);
  int64_t until = now_ms() + LEASE_MS + LATE_MS;
  while (claim(c, b->key, OWNER, LONG_MS).status != CORRAL_OK) {
    check(now_ms() < until, "a lease of %d ms of a killed process was not over after %d ms",
          LEASE_MS, LEASE_MS + LATE_MS);
    pause_ms(4);
  }
  wants("a settle after it", settle(c, b->key, OWNER, r, LONG_MS), CORRAL_OK);
  wants_value("GET after it", get(c, b->key), r);
}
