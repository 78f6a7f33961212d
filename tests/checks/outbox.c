/* outbox.c: broken invariants of an outbox. */
#include "outbox/outbox.c" /* NOLINT(bugprone-suspicious-include) */

#include "checks/checks.h"

static void owned(void *owner) { (void)owner; }

static void break_the_outbox(int which) {
  crl_outbox *outbox = crl_outbox_new(1 << 20, 60000);
  crl_bytes *bytes = crl_bytes_wrap((const uint8_t *)"record", 6, owned, NULL);
  crl_outbox_fill fill = {.record = bytes, .hard_ttl = 60000};
  crl_outbox_keep(outbox, "a", 1, &fill);
  crl_outbox_keep(outbox, "b", 1, &fill);
  switch (which) {
    case 0: outbox->newest->fill.record = NULL; break;
    case 1: outbox->newest->successor = bytes; break;
    case 2: outbox->oldest->older = outbox->newest; break;
    case 3: outbox->newest = outbox->oldest; break;
    case 4: outbox->newest->older = outbox->newest; break;
    case 5: outbox->most = 1; break;
    case 6: outbox->count = 0; break;
    case 7: outbox->count = 3; break;
    default: bytes->size++;
  }
  crl_outbox_count(outbox);
}

void of_the_outbox(void **state) {
  (void)state;
  breaks(break_the_outbox, 0, "outbox: a node has a fill or invalidates");
  breaks(break_the_outbox, 1, "outbox: only an invalidation has a successor");
  breaks(break_the_outbox, 2, "outbox: the oldest has none before it");
  breaks(break_the_outbox, 3, "outbox: the newest has none behind it");
  breaks(break_the_outbox, 4, "outbox: neighbours know each other");
  breaks(break_the_outbox, 5, "outbox: it weighs no more than outbox_bytes");
  breaks(break_the_outbox, 6, "outbox: it is empty when it has none");
  breaks(break_the_outbox, 7, "outbox: it counts its nodes");
  breaks(break_the_outbox, 8, "outbox: it knows the weight of its nodes");
}
