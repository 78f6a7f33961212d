/* hot_keys.c: the heaviest keys of snapshots. */
#include <stdlib.h>
#include <string.h>

#include "base/value.h"
#include "stats/hot.h"
#include "stats/snapshot.h"

#define PART(id, name, stride, count) CRL_SIZE_##id = (stride) * (count),
enum { CRL_PART_MAP(PART) };
#undef PART
_Static_assert(sizeof(crl_hot_table) <= CRL_SIZE_HOT, "the part has room for the table");

static crl_hot_table *table_of(const corral_stats *stats) {
  return (crl_hot_table *)(void *)stats->parts[CRL_PART_HOT];
}

int crl_snapshot_date_hot(corral_stats *stats, int64_t now) {
  crl_hot_table table;
  if (table_of(stats) == NULL) return 1;
  if (!crl_hot_take(&table, table_of(stats))) return 0;
  crl_hot_settle(&table, now);
  memcpy(table_of(stats), &table, sizeof table);
  return 1;
}

void crl_snapshot_drop_hot(corral_stats *stats) {
  free(stats->parts[CRL_PART_HOT]);
  stats->parts[CRL_PART_HOT] = NULL;
}

int crl_snapshot_add_hot(corral_stats *sum, const corral_stats *more) {
  if (table_of(more) == NULL) return CORRAL_OK;
  if (table_of(sum) == NULL && (sum->parts[CRL_PART_HOT] = crl_alloc(CRL_SIZE_HOT)) == NULL)
    return CORRAL_ENOMEM;
  crl_hot_merge(table_of(sum), table_of(more));
  return CORRAL_OK;
}

static void show(const crl_hot_table *table, size_t i, corral_hot_key *ret) {
  crl_hot_name name = crl_hot_name_of(table, i);
  *ret = (corral_hot_key){.size = sizeof *ret,
                          .key_kept = name.key_len < CRL_HOT_NAME ? name.key_len : CRL_HOT_NAME,
                          .key_len = name.key_len,
                          .key_hash = name.sum,
                          .count = table->counts[i],
                          .error = table->errors[i]};
  memcpy(ret->key, name.key, ret->key_kept);
}

size_t corral_stats_hot(const corral_stats *stats, corral_hot_key_fn *tell, void *arg) {
  uint8_t order[CRL_HOT_KEYS];
  corral_hot_key key;
  const crl_hot_table *table = table_of(stats);
  size_t told = 0, count = table == NULL ? 0 : crl_hot_order(table, order);
  while (told < count) {
    show(table, order[told++], &key);
    if (tell(&key, arg) != 0) break;
  }
  return told;
}
