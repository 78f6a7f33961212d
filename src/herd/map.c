/* map.c: the map of a herd: entries, and stubs that have none yet. */
#include "herd/map.h"

#include <string.h>

#include "base/value.h"

crl_entry *crl_map_entry(crl_table_node *node) {
  return (crl_entry *)(void *)((char *)node - offsetof(crl_entry, node));
}

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
