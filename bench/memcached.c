/* memcached.c: the cost of the plugin, and of libmemcached for comparison. A hit, and a CLAIM with
 * its SETTLE, through the plugin's table and through libmemcached's own functions, against the same
 * commands written by hand in the text protocol on a raw socket; in turns within one run, medians
 * of the rounds. All of them are clients on one processor, of a server with one thread on another,
 * where the program may use two.
 *
 *   cmake --preset release -DCORRAL_BENCH=ON && cmake --build --preset release
 *   build/release/bench/bench_memcached [SIZE]
 *
 * A value of SIZE bytes (100; at most 1000000). Starts its own memcached on a port of 127.0.0.1. */
#include <libmemcached/memcached.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kit.h"
#include "record/record.h"
#include "store/registry.h"
#include "support/memcached_server.h"
#include "support/server_process.h"
#include "support/op_kit.h"
#include "store/uri.h"

extern const corral_store crl_plugin_memcached;

enum { ROUNDS = 15, HITS = 4000, FILLS = 1000, HOUR = 3600000, ROOM = 1 << 21 };

static int port;
static size_t value_size = 100;
static char *room; /* buffer for raw commands and replies */
static uint8_t *record;

/* ---- raw commands -------------------------------------------------------------------------- */

static int raw_connect(void) {
  const int on = 1;
  int fd = server_process_dial(port);
  if (fd < 0) die("can't connect to the memcached");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

/* Sends the command in `room` and reads into `room` until `end` comes. */
static void raw_ask(int fd, size_t len, const char *end) {
  size_t got = 0, end_len = strlen(end);
  for (size_t sent = 0; sent < len;) {
    ssize_t n = send(fd, room + sent, len - sent, MSG_NOSIGNAL);
    if (n <= 0) die("a raw command can't be sent");
    sent += (size_t)n;
  }
  do {
    ssize_t n = recv(fd, room + got, ROOM - got, 0);
    if (n <= 0) die("a raw command got no reply");
    got += (size_t)n;
  } while (got < end_len || memcmp(room + got - end_len, end, end_len) != 0);
}

static void raw_store(int fd, const char *command, const char *key, size_t size, const char *cas) {
  int len = snprintf(room, ROOM, "%s %s 0 3600 %zu%s\r\n", command, key, size, cas);
  memset(room + len, 'x', size);
  memcpy(room + (size_t)len + size, "\r\n", 2);
  raw_ask(fd, (size_t)len + size + 2, "STORED\r\n");
}

static void raw_hits(int fd, int count) {
  for (int i = 0; i < count; i++)
    raw_ask(fd, (size_t)snprintf(room, ROOM, "get raw\r\n"), "END\r\n");
}

/* The plugin's three commands: add of a lease, gets, cas. */
static void raw_fills(int fd, int count) {
  for (int i = 0; i < count; i++) {
    char key[32], cas[32] = "";
    snprintf(key, sizeof key, "raw%d", i);
    raw_store(fd, "add", key, CORRAL_HEAD + CORRAL_LEASE, "");
    raw_ask(fd, (size_t)snprintf(room, ROOM, "gets %s\r\n", key), "END\r\n");
    unsigned long long id;
    if (sscanf(room, "VALUE %*s %*u %*u %llu", &id) != 1) die("no cas id");
    snprintf(cas, sizeof cas, " %llu", id);
    raw_store(fd, "cas", key, CORRAL_HEAD + value_size, cas);
  }
}

/* ---- through libmemcached ------------------------------------------------------------------ */

static memcached_st *library_connect(void) {
  static const memcached_behavior_t on[] = {
      MEMCACHED_BEHAVIOR_NO_BLOCK, MEMCACHED_BEHAVIOR_TCP_NODELAY, MEMCACHED_BEHAVIOR_TCP_KEEPALIVE,
      MEMCACHED_BEHAVIOR_SUPPORT_CAS};
  memcached_st *library = memcached_create(NULL);
  for (size_t i = 0; library != NULL && i < sizeof on / sizeof *on; i++)
    memcached_behavior_set(library, on[i], 1);
  if (library == NULL ||
      memcached_failed(memcached_server_add(library, "127.0.0.1", (in_port_t)port)))
    die("no libmemcached");
  return library;
}

static void library_hits(memcached_st *library, int count) {
  for (int i = 0; i < count; i++) {
    size_t len;
    uint32_t flags;
    memcached_return_t rc;
    char *value = memcached_get(library, "raw", 3, &len, &flags, &rc);
    if (rc != MEMCACHED_SUCCESS) die("libmemcached: no hit");
    free(value);
  }
}

static void library_fills(memcached_st *library, int count) {
  for (int i = 0; i < count; i++) {
    char key[32];
    const char *const keys[] = {key};
    size_t len = (size_t)snprintf(key, sizeof key, "lib%d", i);
    memcached_result_st result;
    memcached_return_t rc;
    if (memcached_failed(memcached_add(library, key, len, (const char *)record,
                                       CORRAL_HEAD + CORRAL_LEASE, 3600, 0)) ||
        memcached_failed(memcached_mget(library, keys, &len, 1)) ||
        memcached_result_create(library, &result) == NULL ||
        memcached_fetch_result(library, &result, &rc) == NULL)
      die("libmemcached: add and gets");
    uint64_t cas = memcached_result_cas(&result);
    while (memcached_fetch_result(library, &result, &rc) != NULL) {
    }
    memcached_result_free(&result);
    if (memcached_failed(memcached_cas(library, key, len, (const char *)record,
                                       CORRAL_HEAD + value_size, 3600, 0, cas)))
      die("libmemcached: cas");
  }
}

/* ---- through the plugin -------------------------------------------------------------------- */

static const uint8_t token[CORRAL_TOKEN] = {1};

static void perform(void *handle, corral_op *op) {
  corral_error error = {0};
  op->error = &error;
  if (perform_ops(&crl_plugin_memcached, handle, op, 1, crl_registry_host()->now_ms() + 5000,
                  &error) != CORRAL_OK ||
      op->status != CORRAL_OK)
    die(error.text);
  if (op->found.record != NULL) op->found.drop(op->found.owner);
}

static corral_op op_of(corral_verb verb, const char *key) {
  corral_op op = {.verb = (uint32_t)verb, .key = key, .key_len = strlen(key), .token = token};
  op_lasts(&op, HOUR);
  op_keeps(&op, HOUR);
  return op;
}

static void fill(void *handle, const char *key) {
  corral_op claim = op_of(CORRAL_VERB_CLAIM, key), settle = op_of(CORRAL_VERB_SETTLE, key);
  settle.settle.record = record;
  settle.settle.record_len = CORRAL_HEAD + value_size;
  perform(handle, &claim);
  perform(handle, &settle);
}

static void hits(void *handle, int count) {
  for (int i = 0; i < count; i++) {
    corral_op op = op_of(CORRAL_VERB_GET, "hit");
    perform(handle, &op);
  }
}

static void fills(void *handle, int count) {
  for (int i = 0; i < count; i++) {
    char key[32];
    snprintf(key, sizeof key, "ours%d", i);
    fill(handle, key);
  }
}

static void *connected(void **store) {
  char text[64];
  crl_uri uri;
  corral_error error = {0};
  corral_store_info info = {.size = sizeof info};
  void *handle;
  snprintf(text, sizeof text, "memcached://127.0.0.1:%d", port);
  if (crl_uri_parse(&uri, text, &error) != CORRAL_OK) die(error.text);
  if (crl_plugin_memcached.open(crl_registry_host(), &uri.view, store, &info, &error) != CORRAL_OK)
    die(error.text);
  crl_uri_free(&uri);
  if (crl_plugin_memcached.connect(*store, crl_registry_host()->now_ms() + 5000, &handle, &error) !=
      CORRAL_OK)
    die(error.text);
  return handle;
}

/* ---- server and rounds --------------------------------------------------------------------- */

enum { RAW, LIBRARY, PLUGIN, WAYS };
static double took[2][WAYS][ROUNDS]; /* hits, fills */

static void report(const char *what, double (*times)[ROUNDS]) {
  double us[WAYS];
  for (int i = 0; i < WAYS; i++) us[i] = median(times[i], ROUNDS);
  printf("%-15s %zu bytes   raw protocol %7.2f us   libmemcached %7.2f us, ratio %.2f   plugin "
         "%7.2f us, ratio %.2f\n",
         what, value_size, us[RAW], us[LIBRARY], us[LIBRARY] / us[RAW], us[PLUGIN],
         us[PLUGIN] / us[RAW]);
}

static double lap(double *since, int count) {
  double now = now_us(), each = (now - *since) / count;
  *since = now;
  return each;
}

static void one_round(int i, int fd, memcached_st *library, void *handle) {
  raw_store(fd, "set", "raw", CORRAL_HEAD + value_size, "");
  fill(handle, "hit");
  double since = now_us();
  raw_hits(fd, HITS);
  took[0][RAW][i] = lap(&since, HITS);
  library_hits(library, HITS);
  took[0][LIBRARY][i] = lap(&since, HITS);
  hits(handle, HITS);
  took[0][PLUGIN][i] = lap(&since, HITS);
  raw_fills(fd, FILLS);
  took[1][RAW][i] = lap(&since, FILLS);
  library_fills(library, FILLS);
  took[1][LIBRARY][i] = lap(&since, FILLS);
  fills(handle, FILLS);
  took[1][PLUGIN][i] = lap(&since, FILLS);
  raw_ask(fd, (size_t)snprintf(room, ROOM, "flush_all\r\n"), "OK\r\n");
}

int main(int argc, char **argv) {
  uint8_t front[CORRAL_FRONT];
  void *store;
  if (argc > 1) value_size = strtoul(argv[1], NULL, 10);
  if (value_size > 1000000) die("at most 1000000 bytes");
  room = malloc(ROOM);
  record = calloc(1, CORRAL_FRONT + value_size);
  if (room == NULL || record == NULL) die("no memory");
  const corral_header header = {
      .stamp = 1, .life_end = crl_registry_host()->now_ms() + HOUR, .body = (uint32_t)value_size};
  (void)crl_record_write(&header, front);
  memcpy(record, front, CORRAL_HEAD);
  memcached_server *server;
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof all, &all) != 0) die("sched_getaffinity");
  stay_on(&all, 1);
  if (!memcached_server_start(&server, (const char *const[]){"-m", "1024", "-t", "1", NULL}))
    return 1;
  stay_on(&all, 0);
  port = memcached_server_tcp_port(server);
  int fd = raw_connect();
  void *handle = connected(&store);
  memcached_st *library = library_connect();
  for (int i = 0; i < ROUNDS; i++) one_round(i, fd, library, handle);
  report("hit", took[0]);
  report("claim + settle", took[1]);
  memcached_free(library);
  crl_plugin_memcached.disconnect(handle);
  crl_plugin_memcached.close(store);
  close(fd);
  free(record);
  free(room);
  memcached_server_stop(server);
  return 0;
}
