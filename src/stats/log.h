/* log.h: the ready hook for events (corral/log.h), with a clock of the caller's. */
#ifndef CRL_LOG_H
#define CRL_LOG_H

#include <corral/log.h>

/* corral_log_event in that second, which counts from 1. */
void crl_log_tell(corral_log *log, const corral_event_info *info, uint32_t second);

#endif
