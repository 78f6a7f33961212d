/* replay.h: replays the changes of the outbox to a store that is back. */
#ifndef CRL_REPLAY_H
#define CRL_REPLAY_H

#include "stats/event.h"
#include "outbox/outbox.h"
#include "store/pool.h"

typedef struct crl_replay {
  crl_outbox *outbox;
  crl_events *events;
  int64_t lease_ms;
} crl_replay;

/* For crl_pool_options.on_return; `replay` is a crl_replay. Replays the entries of the outbox of
 * this server's keys, in batches, each once: invalidations; and fills, where the store has a value
 * of an earlier version and no lease. 0 when the server failed again: entries that were not sent
 * stay. */
int crl_replay_all(void *replay, crl_pool *pool, size_t server);
/* For crl_pool_options.on_moved; `replay` is a crl_replay. Has the outbox replayed to the servers
 * that its keys have now, which may be others than those that didn't hear the changes. */
void crl_replay_moved(void *replay, crl_pool *pool);
/* True when a fill may replace the record that a granted CLAIM found: a value of an earlier
 * version, not expired. Pure. */
int crl_replay_is_newer(const crl_outbox_fill *fill, const corral_op *claimed);
/* Forgets the fills of the outbox that carry a tag. */
void crl_replay_void(crl_replay *replay, const void *tag, size_t len);

#endif
