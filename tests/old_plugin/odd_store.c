/* odd_store.c: the store of examples/store_tiny.c with a table that is odd in one way, which ODD names; it is the scheme too. */
#include <corral/plugin.h>
#undef CORRAL_PLUGIN
#define CORRAL_PLUGIN(table) /* the table below goes in its place */
#include "../../examples/store_tiny.c"

#include <stddef.h>

/* A table of a header to come. */
typedef struct newer_store {
  corral_store table;
  int (*unknown)(void *store, int64_t until);
  uint64_t more[8];
} newer_store;

static int never(void *it, int64_t until) {
  (void)it;
  (void)until;
  abort();
}

static size_t some_route(void *it, const void *key, size_t key_len) {
  (void)it;
  (void)key;
  return key_len & 1;
}

static int some_connect(void *it, size_t server, int64_t deadline, void **ret_handle,
                        corral_error *error) {
  (void)server;
  return tiny_connect(it, deadline, ret_handle, error);
}

/* What a plugin that says nothing gets. */
static int open_preset(const corral_host *host, const corral_uri *uri, void **ret_store,
                       corral_store_info *info, corral_error *error) {
  if (info->size < sizeof *info || info->reach != CORRAL_REACH_FLEET || info->servers != 1)
    return host->fail(error, CORRAL_EURI, "preset are size %zu, reach %d, servers %zu", info->size,
                      (int)info->reach, info->servers);
  return tiny_open(host, uri, ret_store, info, error);
}

/* A plugin of a header to come: its operations have one more field, which is 0 where the host
 * doesn't know it, and which it uses for itself meanwhile. */
typedef struct newer_op {
  corral_op op;
  uint64_t hint;
} newer_op;

static int perform_newer(void *it, const corral_batch *batch, int64_t deadline,
                         corral_error *error) {
  if (batch->op_size < sizeof(newer_op)) abort();
  for (size_t i = 0; i < batch->count; i++) {
    newer_op *op = (newer_op *)(void *)corral_batch_op(batch, i);
    if (op->hint != 0) abort();
    op->hint = UINT64_MAX;
  }
  return tiny_perform(it, batch, deadline, error);
}

/* A plugin that says, once, what the user should know of its server. */
static int connect_warning(void *it, int64_t deadline, void **ret_handle, corral_error *error) {
  const tiny *t = it;
  (void)t->host->fail(error, CORRAL_WARNING, "warns: its disk is slow");
  return tiny_connect(it, deadline, ret_handle, error);
}

static int is(const char *odd) { return strcmp(odd, ODD) == 0; }

CORRAL_API const corral_store *corral_plugin(void);
const corral_store *corral_plugin(void) {
  static newer_store newer;
  corral_store *table = &newer.table;
  *table = store;
  table->schemes = is("stranger") ? "somebody else" : ODD;
  table->open = open_preset;
  newer.unknown = never;
  memset(newer.more, 0xff, sizeof newer.more);
  if (is("warns")) table->connect = connect_warning;
  if (is("longer")) table->size = sizeof newer;
  if (is("shorter")) { /* what is behind its end isn't part of it */
    table->size = offsetof(corral_store, route);
    table->route = some_route;
  }
  if (is("shortop")) table->op_size = 40;
  if (is("hugeop")) table->op_size = (size_t)-1;
  if (is("longop")) table->op_size = sizeof(newer_op);
  if (is("longop")) table->perform = perform_newer;
  if (is("two") || is("twobad")) { /* the scheme is the second table's */
    static corral_store second;
    second = *table;
    table->schemes = "first-of-two";
    table->next = &second;
    if (is("twobad")) second.perform = NULL;
  }
  if (is("otherabi")) table->abi = 7;
  if (is("zerosize")) table->size = 0;
  if (is("hugesize")) table->size = (size_t)-1;
  if (is("shortsize")) table->size = offsetof(corral_store, perform);
  if (is("noperform")) table->perform = NULL;
  if (is("noname")) table->name = NULL;
  if (is("routeonly")) table->route = some_route;
  if (is("connectonly")) table->connect_server = some_connect;
  return is("notable") ? NULL : table;
}
