/* pool.h: access to a store: each of its servers has its own handles, queue and breaker (server.h).
 *
 * The servers of some stores come and go (corral_store.refresh): an operation that is sent from one
 * to another follows, and the store is asked, behind the callers, which server has which keys.
 *
 * A server that failed rests: calls that need it are refused at once. A thread, started when first
 * needed, probes the server, so that no caller waits for a dead one. */
#ifndef CRL_POOL_H
#define CRL_POOL_H

#include "store/server.h"

typedef struct crl_pool crl_pool;

/* No I/O, starts no thread. NULL without memory: the store is still the caller's. */
crl_pool *crl_pool_new(const crl_pool_options *options);
/* Before anything is performed: refreshes are shared with the other processes of the host, where
 * the plugin has a map to show. */
void crl_pool_share(crl_pool *pool, const crl_sharing *sharing);
/* No operation may be under way. Waits for a probe that is under way. */
void crl_pool_free(crl_pool *pool);
/* Performs `count` operations and sets op->status of each; those on one server are performed in
 * order. Each ends within op_ms (a body that moves: pace.h), at the latest by `deadline`
 * (crl_env_now_ms). Blocks. Any thread. */
void crl_pool_perform(crl_pool *pool, corral_op *ops, size_t count, int64_t deadline);
/* crl_pool_perform for one GET, with its results preset, whose caller has read the clock (`now`)
 * and can't be cancelled. `why`: room for what its handle has to say. The caller measures it. */
void crl_pool_look(crl_pool *pool, corral_op *op, int64_t now, int64_t deadline, corral_error *why);
/* This server may not have heard of a change that the outbox has by now, or, within on_moved, of
 * all that callers sent to its keys' former server: on_return is called as soon as it answers. */
void crl_pool_doubt(crl_pool *pool, size_t server);
/* Within on_return: performs on the server that is back; 0 when it failed. */
int crl_pool_perform_probe(crl_pool *pool, size_t server, corral_op *ops, size_t count);
/* The index of a key's server, as it is known now. */
size_t crl_pool_route(const crl_pool *pool, const void *key, size_t key_len);
/* 1: the server of this key gave no answer of use to those who asked it last. */
int crl_pool_fails(crl_pool *pool, const void *key, size_t key_len);
const corral_store_info *crl_pool_info(const crl_pool *pool);

/* For lookouts (lookout.h). True when a look may be made there now: see crl_server_is_well_for. */
int crl_pool_is_well_for(crl_pool *pool, const corral_op *op);
const crl_pool_options *crl_pool_options_of(const crl_pool *pool);

#endif
