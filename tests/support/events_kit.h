/* events_kit.h: events that are counted in memory of the test. */
#ifndef EVENTS_KIT_H
#define EVENTS_KIT_H

#include <string.h>

#include "stats/event.h"

static crl_stats_block events_block;

/* Nothing was counted yet. */
static inline crl_events events_anew(void) {
  memset(&events_block, 0, sizeof events_block);
  return (crl_events){.stats = {.block = &events_block}};
}

#endif
