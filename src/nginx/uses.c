/* uses.c: counts the requests of each key, for corral_min_uses: a table in the zone's shared
 * memory, for all workers of this host. Two keys with the same place forget each other: then a page
 * is stored a little later. */
#include "module.h"

ngx_uint_t crl_ngx_is_rare(crl_ngx_ctx *ctx) {
  uint32_t place = ngx_murmur_hash2(ctx->key.data, ctx->key.len) % CRL_NGX_USES;
  ngx_atomic_uint_t print = ngx_crc32_long(ctx->key.data, ctx->key.len);
  ngx_atomic_uint_t least = (ngx_atomic_uint_t)ctx->conf->min_uses;
  ngx_atomic_t *slot = &ctx->zone->counters->uses[place];
  for (;;) {
    ngx_atomic_uint_t old = *slot, count = (old >> 32) == print ? (old & 0xffffffff) : 0;
    if (count >= least) return 0;
    if (ngx_atomic_cmp_set(slot, old, print << 32 | (count + 1))) return count + 1 < least;
  }
}
