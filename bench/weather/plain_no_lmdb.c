/* plain_no_lmdb.c: in place of plain_lmdb.c where corral is built without the lmdb: store. */
#include "weather.h"

#include "../kit.h"

void plain_lmdb_open(const char *path) {
  (void)path;
  die("this build has no lmdb: store");
}

plain_status plain_lmdb_get(const char *key, char *value) {
  (void)key, (void)value;
  return PLAIN_AWAY;
}

plain_status plain_lmdb_store(const char *key, const char *value, int64_t ttl_us, int adds) {
  (void)key, (void)value, (void)ttl_us, (void)adds;
  return PLAIN_AWAY;
}

plain_status plain_lmdb_delete(const char *key) {
  (void)key;
  return PLAIN_AWAY;
}

plain_status plain_lmdb_flush(void) { return PLAIN_AWAY; }
