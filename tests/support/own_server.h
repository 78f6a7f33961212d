/* own_server.h: the sources of a store's server, included under other names: its test reads the
 * handles and the queue. */
#ifndef OWN_SERVER_H
#define OWN_SERVER_H

#define crl_server_check own_server_check
#define crl_server_new own_server_new
#define crl_server_free own_server_free
#define crl_server_perform own_server_perform
#define crl_server_look own_server_look
#define crl_server_is_well_for own_server_is_well_for
#define crl_server_self_probing own_server_self_probing
#define crl_server_doubt own_server_doubt
#define crl_server_probe_at own_server_probe_at
#define crl_server_number own_server_number
#define crl_server_answered own_server_answered
#define crl_server_failed own_server_failed
#define crl_server_failures own_server_failures
#define crl_server_lone_take own_server_lone_take
#define crl_server_lone_end own_server_lone_end
#define crl_server_read_large own_server_read_large
#define crl_server_probe own_server_probe
#define crl_server_sweep own_server_sweep
#define crl_server_perform_probe own_server_perform_probe
#include "store/server.c"        /* NOLINT(bugprone-suspicious-include) */
#include "store/server_health.c" /* NOLINT(bugprone-suspicious-include) */

#endif
