/* herd.c: broken invariants of a herd. */
#include "herd/herd.h"
#include "herd/map.h"
#include "checks/checks.h"

static crl_name name = {.key = "k", .key_len = 1};

static void break_the_herd(int which) {
  uint64_t tick;
  crl_entry *entry = NULL;
  static crl_listener listener;
  static crl_table_node *elsewhere;
  static crl_bytes bytes;
  crl_waiter waiter = {0};
  crl_herd *herd = crl_herd_new();
  crl_entrance entrance = {.name = &name, .hash = crl_name_hash(&name)};
  assert_int_equal(crl_herd_enter(herd, &entrance, &entry, &tick), CRL_ENTER_LEADS);
  crl_herd_listen(entry, &listener, &waiter, 0);
  switch (which) {
    case 0: entry->refs = 0; break;
    case 1: entry->node.link = &elsewhere; break;
    case 2: entry->passes = 1; break;
    case 3: entry->outcome.bytes = &bytes; break;
    case 4: entry->successor = entry; break;
    case 5: listener.link = &listener.next; break;
    default: entry->waiting = 0;
  }
  crl_herd_detach(entry);
}

void of_the_herd(void **state) {
  (void)state;
  breaks(break_the_herd, 0, "herd: an entry that is used has a reference");
  breaks(break_the_herd, 1, "herd: the link of an entry leads to it");
  breaks(break_the_herd, 2, "herd: only a flight under way, for all, may be joined");
  breaks(break_the_herd, 3, "herd: only a landed flight has an outcome");
  breaks(break_the_herd, 4, "herd: only a landed flight has a successor");
  breaks(break_the_herd, 5, "herd: a listener knows the link to it");
  breaks(break_the_herd, 6, "herd: a listener counts as waiting");
}
