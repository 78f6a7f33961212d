/* server.c: broken invariants of a server and of its seats. */
#include "store/server.c" /* NOLINT(bugprone-suspicious-include) */

#include "checks/checks.h"

/* All handles are in use, and two seats wait for one. */
static void queue_two(crl_seats *all, crl_seat *queued) {
  all->open_count = all->most;
  all->queued = 2;
  all->head = &queued[0];
  queued[0] = (crl_seat){.next = &queued[1], .seats = all};
  queued[1] = (crl_seat){.seats = all};
  all->tail = &queued[1].next;
}

static void break_the_server(int which) {
  static const corral_store plugin;
  static const crl_pool_options options = {.plugin = &plugin, .handles = 4};
  static crl_seat queued[2];
  static int handle;
  crl_server *server = crl_server_new(&options, 0);
  queue_two(&server->usual, queued);
  crl_server_lock(server);
  switch (which) {
    case 0: server->large.idle_count = 1; break;
    case 1: server->usual.open_count = 0; break;
    case 2: queued[1].state = CRL_SEAT_SERVED; break;
    case 3: queued[1].seats = &server->large; break;
    case 4: server->usual.tail = &queued[0].next; break;
    case 5:
      server->large.idle[0] = server->large.idle[1] = &handle;
      server->large.idle_count = server->large.open_count = 2;
      break;
    case 6:
      server->retired = &handle;
      atomic_store(&server->shared, &handle);
      break;
    case 7: server->large.open_count = server->large.most + 1; break;
    case 8: server->large.unused = 1; break;
    case 9: server->large.called = 1; break;
    case 10: server->usual.queued = 1; break;
    default: server->health.breaker.probing = 1;
  }
  crl_server_unlock(server);
}

void of_the_server(void **state) {
  (void)state;
  breaks(break_the_server, 0, "server: only open handles are idle");
  breaks(break_the_server, 1, "server: a queue only where a handle is in use");
  breaks(break_the_server, 2, "server: a seat is queued, in its own queue");
  breaks(break_the_server, 3, "server: a seat is queued, in its own queue");
  breaks(break_the_server, 4, "server: a queue knows its end");
  breaks(break_the_server, 5, "server: a handle is idle once");
  breaks(break_the_server, 6, "server: a shared handle is opened after the broken one was closed");
  breaks(break_the_server, 7, "server: no more handles are open than `most`");
  breaks(break_the_server, 8, "server: only idle handles are unused");
  breaks(break_the_server, 9, "server: a leader that was called has a handle in use");
  breaks(break_the_server, 10, "server: a queue knows its length");
  breaks(break_the_server, 11, "server: only an open breaker has a probe");
}
