/* map.c: the map of a herd: entries, and stubs that have none yet. */
#include "herd/map.h"

#include <string.h>

#include "base/value.h"

crl_entry *crl_map_entry(crl_table_node *node) {
  return (crl_entry *)(void *)((char *)node - offsetof(crl_entry, node));
}

#ifdef CORRAL_CHECKS
static void check_listeners(const crl_entry *entry) {
  int listeners = 0;
  crl_listener *const *link = &entry->listeners;
  for (; *link != NULL && listeners < CRL_CHECK_MOST; link = &(*link)->next, listeners++)
    CRL_MUST((*link)->link == link, "herd: a listener knows the link to it");
  CRL_MUST(entry->waiting >= (size_t)listeners, "herd: a listener counts as waiting");
}

void crl_map_check_entry(const crl_entry *entry) {
  CRL_MUST(entry->refs > 0, "herd: an entry that is used has a reference");
  CRL_MUST(entry->node.link == NULL || *entry->node.link == &entry->node,
           "herd: the link of an entry leads to it");
  CRL_MUST(entry->node.link == NULL || (entry->state == FLYING && !entry->passes),
           "herd: only a flight under way, for all, may be joined");
  CRL_MUST(entry->state == LANDED || entry->outcome.bytes == NULL,
           "herd: only a landed flight has an outcome");
  CRL_MUST(entry->state == LANDED || entry->successor == NULL,
           "herd: only a landed flight has a successor");
  check_listeners(entry);
}

static void check_stubs(const crl_shard *home) {
  crl_stub *const *link = &home->stubs;
  for (int left = CRL_CHECK_MOST; *link != NULL && left > 0; link = &(*link)->next, left--) {
    const crl_stub *stub = *link;
    CRL_MUST(stub->link == link, "herd: a stub knows the link to it");
    CRL_MUST(stub->entry == NULL, "herd: a stub has left the map when it has an entry");
    CRL_MUST(&stub->herd->shards[stub->hash % CRL_SHARDS] == home,
             "herd: a stub is in the shard of its hash");
  }
}

void crl_map_check(const crl_shard *home) {
  int left = CRL_CHECK_MOST;
  for (size_t i = 0; i < home->entries.size && i < CRL_CHECK_MOST; i++)
    for (crl_table_node *at = home->entries.buckets[i]; at != NULL && left > 0; left--) {
      CRL_MUST(crl_map_entry(at)->home == home, "herd: an entry is in its own shard");
      crl_map_check_entry(crl_map_entry(at));
      at = at->next;
    }
  check_stubs(home);
}
#endif

static int is_of(const crl_entry *entry, const crl_name *name) {
  if (entry->key_len != name->key_len || entry->variant_len != name->variant_len ||
      memcmp(entry->name, name->key, name->key_len) != 0)
    return 0;
  return name->variant_len == 0 ||
         memcmp(entry->name + name->key_len, name->variant, name->variant_len) == 0;
}

crl_entry *crl_map_find(crl_shard *home, uint64_t hash, const crl_name *name) {
  for (crl_table_node *at = crl_table_first(&home->entries, hash); at != NULL; at = at->next)
    if (at->hash == hash && is_of(crl_map_entry(at), name)) return crl_map_entry(at);
  return NULL;
}

void crl_map_take_out(crl_entry *entry) { crl_table_take(&entry->home->entries, &entry->node); }

crl_entry *crl_map_put_in(crl_shard *home, uint64_t hash, const crl_name *name) {
  crl_entry *entry = crl_alloc_more(NULL, sizeof *entry + name->key_len + name->variant_len);
  if (entry == NULL) return NULL;
  memset(entry, 0, offsetof(crl_entry, outcome));
  entry->outcome.bytes = entry->interim.bytes = NULL;
  entry->home = home;
  entry->key_len = name->key_len;
  entry->variant_len = name->variant_len;
  memcpy(entry->name, name->key, name->key_len);
  if (name->variant_len > 0) memcpy(entry->name + name->key_len, name->variant, name->variant_len);
  crl_table_put(&home->entries, &entry->node, hash);
  return entry;
}

static int same_name(const crl_name *a, const crl_name *b) {
  return a->key_len == b->key_len && a->variant_len == b->variant_len &&
         memcmp(a->key, b->key, a->key_len) == 0 &&
         (a->variant_len == 0 || memcmp(a->variant, b->variant, a->variant_len) == 0);
}

crl_stub *crl_map_find_stub(crl_shard *home, uint64_t hash, const crl_name *name) {
  crl_stub *stub = home->stubs;
  while (stub != NULL && (stub->hash != hash || !same_name(stub->name, name))) stub = stub->next;
  return stub;
}

void crl_map_take_out_stub(crl_stub *stub) {
  if (stub->link == NULL) return;
  *stub->link = stub->next;
  if (stub->next != NULL) stub->next->link = stub->link;
  stub->link = NULL;
}

/* Makes the entry of a flight that has none yet. A stub that is out of the map leads a flight that
 * nobody joins. */
crl_entry *crl_map_grow(crl_shard *home, crl_stub *stub) {
  int is_in = stub->link != NULL;
  crl_entry *entry = crl_map_put_in(home, stub->hash, stub->name);
  if (entry == NULL) return NULL;
  entry->refs = 1;
  if (!is_in) crl_map_take_out(entry);
  crl_map_take_out_stub(stub);
  return stub->entry = entry;
}
