/* plugin.c: the table of redis: (redis.c, greet.c, perform.c, begin.c, watch.c, inspect.c). In the
 * same plugin are those of redis+sentinel: (sentinel.c), redis+cluster: (cluster.c) and redlock:
 * (redlock.c). */
#include "inspect.h"

const corral_store crl_plugin_redis = {
    .size = sizeof(corral_store),
    .abi = CORRAL_PLUGIN_ABI,
    .threads = CORRAL_THREADS_HANDLE,
    .op_size = sizeof(corral_op),
    .name = "redis",
    .schemes = "redis rediss redis+unix",
    .summary = "Redis: value and lease in one key, hits in one round trip",
    .open = crl_redis_open,
    .close = crl_redis_close,
    .connect = crl_redis_connect_telling,
    .disconnect = crl_redis_disconnect,
    .perform = crl_redis_perform,
    .watch = crl_redis_watch,
    .changes = crl_redis_changes,
    .unwatch = crl_redis_unwatch,
    .register_keys = crl_redis_register_keys,
    .next = &crl_plugin_redis_sentinel,
    .descriptor = crl_redis_descriptor,
    .begin = crl_redis_begin,
    .finish = crl_redis_finish,
    .inspect = crl_redis_inspect,
    .list = crl_redis_list,
};

CORRAL_PLUGIN(crl_plugin_redis)
