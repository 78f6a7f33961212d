/* world.c: the store under test and its clients; keys, tokens and records. */
#include "conformance.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/env.h"
#include "record/envelope.h"
#include "record/record.h"
#include "store/registry.h"
#include "store/secret.h"
#include "store/uri.h"

enum { KEYS = 1024, CLIENTS = 64, TOKENS = 4096, TOLD = 4096, HOPS = 5 };

struct client {
  void **handles; /* one for each server; NULL: not connected */
  size_t servers;
  corral_error error;
};

static struct world {
  const char *uri;
  corral_store_info declared;
  const corral_store *plugin;
  void *store; /* NULL: not opened yet */
  client *clients[CLIENTS];
  size_t client_count;
  key *keys[KEYS];
  size_t key_count;
  unsigned serial;
  atomic_bool trespassed; /* a plugin wrote beyond an operation */
} world;

static uint8_t tokens[TOKENS][CORRAL_TOKEN];

const corral_host *host(void) { return crl_registry_host(); }
const corral_store_info *declared(void) { return &world.declared; }
const char *world_uri(void) { return world.uri; }

void world_set(const char *uri, const corral_store_info *info) {
  world.uri = uri;
  world.declared = *info;
}

/* ---- open, close --------------------------------------------------------------------------- */

static bool is_parallel(void) { return world.plugin->threads == CORRAL_THREADS_PARALLEL; }

static void hang_up(client *c) {
  for (size_t i = 0; i < c->servers; i++) {
    if (c->handles[i] != NULL) world.plugin->disconnect(c->handles[i]);
    c->handles[i] = NULL;
  }
}

/* Removes all keys of the case, and so their leases. */
static void remove_keys(void) {
  client c = {.handles = world.clients[0]->handles, .servers = world.declared.servers};
  locks_end(&c);
  for (size_t i = 0; i < world.key_count; i++) {
    if (world.keys[i]->is_lock) continue;
    corral_op op = op_of(CORRAL_VERB_INVALIDATE, world.keys[i], 0);
    if (client_perform(&c, &op, 1, now_ms() + LIMIT_MS) == CORRAL_OK && op.status == CORRAL_OK)
      continue;
    op.status = CORRAL_EINDOUBT;
    (void)client_perform(&c, &op, 1, now_ms() + LIMIT_MS); /* on a new handle */
  }
}

static void close_world(void *unused) {
  (void)unused;
  proxies_set(FAULT_NONE, 0);
  if (world.client_count > 0) remove_keys();
  size_t own = is_parallel() && world.client_count > 0 ? 1 : world.client_count;
  for (size_t i = 0; i < own; i++) hang_up(world.clients[i]);
  world.plugin->close(world.store);
  world.store = NULL;
}

static void watch_hears(void *arg, uint64_t hash);

/* Changes that a watch may have missed count as told. */
static void open_world(void) {
  static corral_host own;
  crl_uri uri;
  corral_error error = {0};
  corral_store_info info = world.declared;
  own = *host();
  own.missed = watch_hears;
  int status = crl_uri_parse(&uri, world.uri, &error);
  if (status != CORRAL_OK) failed("%s", error.text);
  status = crl_secret_resolve(&uri, &error);
  if (status == CORRAL_OK) status = crl_registry_find(uri.view.scheme, &world.plugin, &error);
  if (status == CORRAL_OK)
    status = world.plugin->open(&own, &uri.view, &world.store, &info, &error);
  crl_uri_free(&uri);
  if (status != CORRAL_OK) failed("opening: %s: %s", corral_status_name(status), error.text);
  undo_later(close_world, NULL);
}

bool servers_come_and_go(void) { return world.plugin->refresh != NULL; }

void world_refresh(void) {
  corral_error error = {0};
  int status = world.plugin->refresh(world.store, now_ms() + LIMIT_MS, &error);
  check(status == CORRAL_OK, "refresh: %s: %s", corral_status_name(status), error.text);
}

int world_inspect(const corral_inquiry *inquiry, corral_error *error) {
  if (world.plugin->inspect == NULL) cant("the store tells no facts (inspect)");
  return world.plugin->inspect(world.store, inquiry, error);
}

int world_list(const corral_listing *listing, corral_error *error) {
  if (world.plugin->list == NULL) cant("the store lists no locks (list)");
  return world.plugin->list(world.store, listing, error);
}

/* ---- clients ------------------------------------------------------------------------------- */

const char *client_error(const client *c) { return c->error.text; }

static int connect_to(client *c, size_t server, int64_t deadline) {
  void *store = world.store;
  if (c->handles[server] != NULL) return CORRAL_OK;
  if (world.declared.servers > 1)
    return world.plugin->connect_server(store, server, deadline, &c->handles[server], &c->error);
  return world.plugin->connect(store, deadline, &c->handles[server], &c->error);
}

int client_connect(client *c, int64_t deadline) {
  int status = CORRAL_OK;
  size_t count = servers_come_and_go() ? 1 : c->servers;
  for (size_t i = 0; i < count && status == CORRAL_OK; i++) status = connect_to(c, i, deadline);
  return status;
}

client *client_new(void) {
  if (world.store == NULL) open_world();
  if (world.client_count == CLIENTS) failed("this case has more than %d clients", CLIENTS);
  client *c = room(sizeof *c);
  c->servers = world.declared.servers;
  c->handles = is_parallel() && world.client_count > 0 ? world.clients[0]->handles
                                                       : room(c->servers * sizeof(void *));
  world.clients[world.client_count++] = c;
  return c;
}

static size_t server_of(const void *bytes, size_t len) {
  if (world.declared.servers < 2) return 0;
  return world.plugin->route(world.store, bytes, len) % world.declared.servers;
}

void keys_forget(void) {
  world.key_count = 0;
  locks_forget();
}

size_t key_server(const key *k) { return world.plugin->route(world.store, k->bytes, k->len); }

/* Writes what follows each operation, as in a corral whose operations are longer: here a GET that
 * nobody asked for, which a plugin finds that steps by its own sizeof(corral_op). All bytes are
 * set, the padding too, because tails are compared by their bytes. */
static void write_tail(corral_op *tail, const corral_op *op) {
  memset(tail, 0, sizeof *tail);
  tail->verb = CORRAL_VERB_GET;
  tail->key = op->key;
  tail->key_len = op->key_len;
  tail->status = CORRAL_EINDOUBT;
}

static corral_op *tail_at(const corral_batch *batch, size_t i) {
  return corral_batch_op(batch, i) + 1;
}

bool world_trespassed(void) { return atomic_load(&world.trespassed); }

/* Performs a batch on a connected handle; one that breaks is closed. */
static int perform_batch(client *c, size_t server, const corral_batch *batch, int64_t deadline) {
  int status = world.plugin->perform(c->handles[server], batch, deadline, &c->error);
  for (size_t i = 0; i < batch->count; i++) {
    corral_op tail;
    const void *is = tail_at(batch, i), *was = &tail;
    write_tail(&tail, corral_batch_op(batch, i));
    if (memcmp(is, was, sizeof tail) != 0) atomic_store(&world.trespassed, true);
  }
  if (status == CORRAL_OK) return CORRAL_OK;
  world.plugin->disconnect(c->handles[server]);
  c->handles[server] = NULL;
  return status;
}

/* Performs the operations that are routed to this server. */
static int perform_on(client *c, size_t server, const size_t *routes, corral_op *ops, size_t count,
                      int64_t deadline) {
  corral_batch batch = {.ops = calloc(count, 2 * sizeof *ops), .op_size = 2 * sizeof *ops};
  size_t *from = calloc(count, sizeof *from);
  int status = batch.ops == NULL || from == NULL ? CORRAL_ENOMEM : CORRAL_OK;
  for (size_t i = 0; i < count && status == CORRAL_OK; i++) {
    if (routes[i] != server) continue;
    from[batch.count] = i;
    corral_op *op = corral_batch_op(&batch, batch.count);
    *op = ops[i];
    op->error = &c->error;
    write_tail(tail_at(&batch, batch.count++), op);
  }
  if (batch.count > 0) status = connect_to(c, server, deadline);
  if (batch.count > 0 && status == CORRAL_OK)
    status = perform_batch(c, server, &batch, deadline);
  else
    for (size_t i = 0; i < batch.count; i++)
      corral_batch_op(&batch, i)->status = CORRAL_EUNAVAILABLE;
  for (size_t i = 0; i < batch.count; i++) ops[from[i]] = *corral_batch_op(&batch, i);
  free(batch.ops);
  free(from);
  return status;
}

/* True when an operation was not sent: its server is another one by now, or the handle was one of
 * a former server of that number. */
static bool was_not_sent(corral_op *op, int64_t deadline) {
  if (!servers_come_and_go() || op->status != CORRAL_EUNAVAILABLE || now_ms() >= deadline)
    return false;
  world_refresh();
  op->server = (uint32_t)server_of(op->key, op->key_len);
  return true;
}

/* Asks the server that an operation was sent to, as a corral does. Returns how often. */
static unsigned follow(client *c, corral_op *op, int64_t deadline, int *worst) {
  unsigned hops = 0;
  for (; hops < HOPS && (op->status == CORRAL_EMOVED || was_not_sent(op, deadline)); hops++) {
    size_t server = op->server;
    check(servers_come_and_go() && server < c->servers, "EMOVED to server %zu", server);
    op->status = CORRAL_EINDOUBT;
    int status = perform_on(c, server, &server, op, 1, deadline);
    if (status != CORRAL_OK && op->status != CORRAL_EUNAVAILABLE) *worst = status;
  }
  op->flags &= ~(uint32_t)CORRAL_OP_ASKING;
  return hops;
}

/* Where servers go, a handle may break with nothing sent: then its operations were asked again. */
int client_perform(client *c, corral_op *ops, size_t count, int64_t deadline) {
  int worst = CORRAL_OK;
  size_t *routes = calloc(count, sizeof *routes);
  if (routes == NULL) return CORRAL_ENOMEM;
  memset(&c->error, 0, sizeof c->error);
  for (size_t i = 0; i < count; i++) {
    routes[i] = server_of(ops[i].key, ops[i].key_len);
    ops[i].server = (uint32_t)routes[i];
  }
  for (size_t server = 0; server < c->servers; server++) {
    int status = perform_on(c, server, routes, ops, count, deadline);
    if (status != CORRAL_OK) worst = status;
  }
  size_t refused = 0;
  for (size_t i = 0; i < count; i++) {
    (void)follow(c, &ops[i], deadline, &worst);
    refused += ops[i].status == CORRAL_EUNAVAILABLE || ops[i].status == CORRAL_EINDOUBT;
  }
  free(routes);
  return worst == CORRAL_EUNAVAILABLE && servers_come_and_go() && refused == 0 ? CORRAL_OK : worst;
}

unsigned client_hops(client *c, const key *k) {
  corral_op op = op_of(CORRAL_VERB_GET, k, 0);
  int worst = CORRAL_OK;
  size_t server = server_of(k->bytes, k->len);
  op.server = (uint32_t)server;
  (void)perform_on(c, server, &server, &op, 1, now_ms() + LIMIT_MS);
  unsigned hops = follow(c, &op, now_ms() + LIMIT_MS, &worst);
  op_drop(&op);
  return hops;
}

void op_drop(corral_op *op) {
  if (op->found.record != NULL && op->found.drop != NULL) op->found.drop(op->found.owner);
  op->found.record = NULL;
}

/* ---- watches ------------------------------------------------------------------------------- */

struct watch {
  void *open;
  size_t count; /* number of changes told; above TOLD it counts as "any" */
  uint64_t told[TOLD];
};

static void watch_end(void *arg) {
  watch *w = arg;
  world.plugin->unwatch(w->open);
}

/* A plugin may give up before the deadline: a host tries again. */
watch *watch_new(const key *k) {
  corral_error error = {0};
  int status = CORRAL_EUNAVAILABLE;
  if (world.store == NULL) open_world();
  if (world.plugin->watch == NULL) cant("the store has no watch");
  watch *w = room(sizeof *w);
  size_t server = servers_come_and_go() ? 0 : server_of(k->bytes, k->len);
  for (int64_t until = now_ms() + LIMIT_MS; status == CORRAL_EUNAVAILABLE && now_ms() < until;) {
    status = world.plugin->watch(world.store, server, until, &w->open, &error);
    if (status == CORRAL_EUNAVAILABLE) pause_ms(4);
  }
  if (status == CORRAL_EUNSUPPORTED) cant("the store has no watch: %s", error.text);
  check(status == CORRAL_OK, "opening a watch: %s: %s", corral_status_name(status), error.text);
  undo_later(watch_end, w);
  return w;
}

static void watch_hears(void *arg, uint64_t hash) {
  watch *w = arg;
  if (w->count < TOLD) w->told[w->count] = hash;
  w->count++;
}

bool watch_listen(watch *w, int stop_fd, int64_t until) {
  corral_error error = {0};
  size_t before = w->count;
  int status = world.plugin->changes(w->open, stop_fd, until, watch_hears, w, &error);
  check(status == CORRAL_OK, "the watch broke: %s: %s", corral_status_name(status), error.text);
  return w->count > before;
}

bool watch_registers(void) { return world.plugin->register_keys != NULL; }

void watch_register(watch *w, corral_registration *keys, size_t count) {
  corral_error error = {0};
  if (!watch_registers()) return;
  for (size_t i = 0; i < count; i++) keys[i].status = CORRAL_EINDOUBT;
  int status = world.plugin->register_keys(w->open, keys, count, -1, now_ms() + LIMIT_MS, &error);
  check(status == CORRAL_OK, "register_keys: %s: %s", corral_status_name(status), error.text);
  for (size_t i = 0; i < count; i++) {
    int found = keys[i].status;
    check(found == CORRAL_OK || found == CORRAL_EMISS, "a registration: %s",
          corral_status_name(found));
    check(keys[i].head_len <= CORRAL_HEAD, "a head of %zu bytes", keys[i].head_len);
  }
}

corral_registration watch_follow(watch *w, const key *k) {
  corral_registration r = {.key = k->bytes, .key_len = k->len};
  watch_register(w, &r, 1);
  return r;
}

bool watch_told(const watch *w, const key *k) {
  uint64_t hash = host()->hash64(k->bytes, k->len);
  for (size_t i = 0; i < w->count && i < TOLD; i++)
    if (w->told[i] == 0 || w->told[i] == hash) return true;
  return w->count > TOLD;
}

void watch_forget(watch *w) { w->count = 0; }

/* ---- keys and tokens ----------------------------------------------------------------------- */

/* A random number, drawn before the first fork, so that all processes of a run have the same. */
static uint64_t run_number(void) {
  static uint64_t number;
  while (number == 0)
    if (crl_env_random(&number, sizeof number) != CORRAL_OK) number = (uint64_t)crl_env_now_us();
  return number;
}

const uint8_t *token(unsigned number) { return tokens[number % TOKENS]; }

void tokens_make(void) {
  for (unsigned i = 0; i < TOKENS; i++) {
    uint64_t text[2] = {run_number(), i};
    host()->digest(text, sizeof text, tokens[i]);
  }
}

size_t key_prefix(char *text, size_t size) {
  static const char *const long_prefix = "corral-conformance:";
  snprintf(text, size, "%s%016llx:%u:", world.declared.max_key >= 128 ? long_prefix : "",
           (unsigned long long)run_number(), world.serial++);
  return strlen(text);
}

key *key_of(const void *bytes, size_t len) {
  key *k = room(sizeof *k);
  if (world.key_count == KEYS) failed("this case has more than %d keys", KEYS);
  k->bytes = room(len);
  k->len = len;
  memcpy(k->bytes, bytes, len);
  world.keys[world.key_count++] = k;
  return k;
}

key *key_new(const char *stem) {
  char text[160];
  size_t len = key_prefix(text, sizeof text);
  snprintf(text + len, sizeof text - len, "%s", stem);
  len = strlen(text);
  return key_of(text, len < world.declared.max_key ? len : world.declared.max_key);
}

key *lock_new(const char *stem) {
  char text[160] = "lock:";
  size_t len = 5 + key_prefix(text + 5, sizeof text - 5);
  snprintf(text + len, sizeof text - len, "%s", stem);
  len = strlen(text);
  key *k = key_of(text, len < world.declared.max_key ? len : world.declared.max_key);
  k->is_lock = true;
  return k;
}

static const char *mover;

void key_move_by(const char *command) { mover = command; }

void key_move(const key *k) {
  char text[256], line[512];
  int status = -1;
  snprintf(text, sizeof text, "%.*s", (int)k->len, (const char *)k->bytes);
  snprintf(line, sizeof line, "%s \"$0\"", mover);
  pid_t pid = fork();
  if (pid == 0) {
    execl("/bin/sh", "sh", "-c", line, text, (char *)NULL);
    _exit(127);
  }
  bool ended = pid > 0 && waitpid(pid, &status, 0) == pid;
  check(ended && WIFEXITED(status) && WEXITSTATUS(status) == 0, "--move: '%s %s' failed", mover,
        text);
}

key *key_near(const key *other, const char *stem) {
  char text[160];
  do {
    size_t len = key_prefix(text, sizeof text);
    snprintf(text + len, sizeof text - len, "%s", stem);
  } while (server_of(text, strlen(text)) != server_of(other->bytes, other->len));
  return key_of(text, strlen(text));
}

/* ---- records ------------------------------------------------------------------------------- */

static crl_envelope envelope_of(const uint8_t *digest, size_t size) {
  return (crl_envelope){.kind = CRL_KIND_VALUE,
                        .ttl_ms = LONG_MS,
                        .created_ms = 1,
                        .digest = digest,
                        .payload_len = size};
}

static record *record_room(size_t size) {
  record *r = room(sizeof *r);
  crl_envelope envelope = envelope_of(NULL, size);
  r->len = crl_envelope_size(&envelope);
  if (r->len > world.declared.max_record)
    cant("a value of %zu bytes: the store declares max_record %llu", size,
         (unsigned long long)world.declared.max_record);
  r->bytes = room(r->len);
  return r;
}

static record *finish(record *r, const key *k, size_t size) {
  uint8_t digest[CORRAL_DIGEST];
  host()->digest(k->bytes, k->len, digest);
  crl_envelope envelope = envelope_of(digest, size);
  crl_envelope_size(&envelope);
  crl_envelope_write(&envelope, r->bytes);
  r->hash = host()->hash64(r->bytes + CORRAL_HEAD, r->len - CORRAL_HEAD);
  r->stamp = crl_record_stamp(r->bytes, r->len);
  return r;
}

record *record_new(const key *k, size_t size, unsigned seed) {
  record *r = record_room(size);
  uint8_t *payload = r->bytes + CRL_PAYLOAD_AT;
  uint64_t number = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
  for (size_t i = 0; i < size; i++) {
    number ^= number << 13;
    number ^= number >> 7;
    number ^= number << 17;
    payload[i] = (uint8_t)(number >> 24);
  }
  return finish(r, k, size);
}

record *record_of(const key *k, const void *payload, size_t size) {
  record *r = record_room(size);
  if (size > 0) memcpy(r->bytes + CRL_PAYLOAD_AT, payload, size);
  return finish(r, k, size);
}
