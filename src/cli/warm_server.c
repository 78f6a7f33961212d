/* warm_server.c: values from a database server, of whichever kind (warm_server in warm.h).
 *
 * A connection belongs to one thread. A broken one is made anew, and the statement repeated
 * once. */
#include "run.h"
#include "warm.h"

#include <stdlib.h>

enum { RECONNECT_MS = 1000 };

/* A seat's own. */
typedef struct server_link {
  const warm_server *server;
  void *connection;  /* NULL: none */
  int64_t failed_ms; /* when connecting last failed, by cli_now_ms; 0: it didn't */
} server_link;

static void disconnect(server_link *l) {
  if (l->connection != NULL) l->server->disconnect(l->connection);
  l->connection = NULL;
}

void warm_server_close(warm_seat *seat) {
  if (seat->own != NULL) disconnect(seat->own);
  free(seat->own);
  seat->own = NULL;
}

/* Connects at most once a second to a server that is away. */
static bool be_connected(warm_seat *seat, server_link *l, char *text, size_t size) {
  if (l->connection != NULL) return true;
  (void)snprintf(text, size, "interrupted");
  if (l->failed_ms != 0 && !warm_sleep_until(seat->w, (l->failed_ms + RECONNECT_MS) * 1000000))
    return false;
  l->connection = l->server->connect(&seat->w->o, seat->w->o.query, text, size);
  l->failed_ms = l->connection == NULL ? cli_now_ms() : 0;
  return l->connection != NULL;
}

void warm_server_compute(const warm_server *server, warm_seat *seat, corral_fill *fill,
                         const void *key, size_t key_len) {
  char text[WARM_REASON] = "out of memory";
  if (seat->own == NULL) seat->own = calloc(1, sizeof(server_link));
  server_link *l = seat->own;
  bool done = false;
  if (l != NULL) l->server = server;
  for (int i = 0; i < 2 && !done && l != NULL && be_connected(seat, l, text, sizeof text); i++) {
    done = server->query(seat, fill, l->connection, key, key_len, text, sizeof text);
    if (!done || server->is_broken(l->connection)) disconnect(l);
  }
  if (!done) warm_fail(seat, fill, RUN_FAIL_CODE + CLI_FAILED, "%s", text);
}

void warm_server_ended(warm_seat *seat, corral_fill *fill) {
  warm_fail(seat, fill, RUN_FAIL_CODE + CLI_DEADLINE,
            "the statement was ended: it ran longer than --compute, or its lease was lost");
}

bool warm_server_accepts(unsigned long parameters, unsigned long columns, const char *parameter) {
  if (parameters == 1 && columns > 0) return true;
  cli_say("warm: --query has %lu parameters and %lu columns: a statement with %s, the key, that "
          "answers a column is accepted",
          parameters, columns, parameter);
  return false;
}
