/* herd.c: broken invariants of a herd. */
#include "herd/herd.h"
#include "herd/map.h"
#include "checks/checks.h"

static const crl_name name = {.key = "k", .key_len = 1};
static crl_herd *herd;
static crl_entry *entry;
static crl_waiter waiter;
static crl_listener listener;
static crl_stub stub, other;

static uint64_t hash(void) { return crl_name_hash(&name); }

/* Leads the flight of the key, and listens to it. */
static void lead(void) {
  uint64_t tick;
  crl_entrance entrance = {.name = &name, .hash = hash()};
  herd = crl_herd_new();
  assert_int_equal(crl_herd_enter(herd, &entrance, &entry, &tick), CRL_ENTER_LEADS);
  crl_herd_listen(entry, &listener, &waiter, 0);
}

static void break_an_entry(int which) {
  static crl_table_node *elsewhere;
  static crl_bytes bytes;
  lead();
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

static void break_a_shard(int which) {
  lead();
  crl_shard *home = entry->home;
  crl_herd_detach(entry);
  assert_true(crl_herd_stub(herd, &name, hash(), &stub));
  switch (which) {
    case 0: stub.link = &other.next; break;
    case 1: stub.entry = entry; break;
    case 2: stub.hash++; break;
    default:
      crl_table_put(&home->entries, &entry->node, hash());
      entry->home = &herd->shards[(hash() + 1) % CRL_SHARDS];
  }
  crl_herd_count(herd);
}

/* ---- each function checks ------------------------------------------------------------------ */

enum { OF_A_SHARD = 10, FUNCTIONS = 26 };

static void heed(void *arg) { (void)arg; }

static void call_with_a_shard(int which) {
  uint64_t tick;
  crl_entry *found;
  crl_entrance entrance = {.name = &name, .hash = hash()};
  switch (which) {
    case 0: crl_herd_enter(herd, &entrance, &found, &tick); break;
    case 1: crl_herd_stub(herd, &name, hash(), &other); break;
    case 2: crl_herd_unstub(&stub); break;
    case 3: crl_herd_keep_stub(&stub); break;
    case 4: crl_herd_private(herd, &name, hash()); break;
    case 5: crl_herd_detach_key(herd, &name); break;
    case 6: crl_herd_detach_all(herd); break;
    case 7: crl_herd_count(herd); break;
    case 8: crl_herd_waiting(herd, &name); break;
    default: crl_entry_unref(entry);
  }
}

static void call_with_an_entry(int which) {
  static const crl_patience patience;
  static const crl_outcome outcome;
  crl_outcome got;
  switch (which - OF_A_SHARD) {
    case 0: crl_herd_wait(entry, &patience, &got); break;
    case 1: crl_herd_listen(entry, &listener, &waiter, 0); break;
    case 2: crl_herd_look(entry, &patience, &got); break;
    case 3: crl_herd_unlisten(entry, &listener, CRL_WAIT_LEFT); break;
    case 4: crl_herd_lent(entry, NULL); break;
    case 5: crl_herd_heed(entry, heed, NULL); break;
    case 6: crl_herd_if_alone(entry, heed, NULL); break;
    case 7: crl_herd_limit(entry, 1); break;
    case 8: crl_herd_confirm(entry, 1); break;
    case 9: crl_herd_interim(entry, &outcome, 0, 0); break;
    case 10: crl_herd_publish(entry, &outcome, 0); break;
    case 11: crl_herd_land(entry, &outcome, 1); break;
    case 12: crl_herd_lose(entry); break;
    case 13: crl_herd_pass(entry); break;
    case 14: crl_herd_give_up(entry); break;
    default: crl_herd_detach(entry);
  }
}

/* The entry has left the map; a stub is in its shard. */
static void call_with_broken(int which) {
  lead();
  crl_herd_unlisten(entry, &listener, CRL_WAIT_LEFT);
  crl_herd_detach(entry);
  assert_true(crl_herd_stub(herd, &name, hash(), &stub));
  if (which < OF_A_SHARD) {
    stub.entry = entry;
    call_with_a_shard(which);
  } else {
    entry->refs = 0;
    call_with_an_entry(which);
  }
}

void of_the_herd(void **state) {
  (void)state;
  breaks(break_an_entry, 0, "herd: an entry that is used has a reference");
  breaks(break_an_entry, 1, "herd: the link of an entry leads to it");
  breaks(break_an_entry, 2, "herd: only a flight under way, for all, may be joined");
  breaks(break_an_entry, 3, "herd: only a landed flight has an outcome");
  breaks(break_an_entry, 4, "herd: only a landed flight has a successor");
  breaks(break_an_entry, 5, "herd: a listener knows the link to it");
  breaks(break_an_entry, 6, "herd: a listener counts as waiting");
  breaks(break_a_shard, 0, "herd: a stub knows the link to it");
  breaks(break_a_shard, 1, "herd: a stub has left the map when it has an entry");
  breaks(break_a_shard, 2, "herd: a stub is in the shard of its hash");
  breaks(break_a_shard, 3, "herd: an entry is in its own shard");
}

void each_function_of_the_herd_checks(void **state) {
  (void)state;
  for (int which = 0; which < FUNCTIONS; which++)
    breaks(call_with_broken, which,
           which < OF_A_SHARD ? "herd: a stub has left the map when it has an entry"
                              : "herd: an entry that is used has a reference");
}
