/* event.c: counts events, logs them, and tells the user's hook. Names and texts come from the table
 * in corral/event.h. */
#include "stats/event.h"

#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "base/value.h"

enum { DEFERRED_MOST = 1024 };

CRL_NAMES(event, corral_event, CORRAL_EVENT_MAP, CORRAL_EVENT_COUNT)

/* ---- the hook ------------------------------------------------------------------------------ */

static _Thread_local int defers;

static void call(crl_events *events, const corral_event_info *info) {
  crl_frame frame;
  crl_frame_enter(&frame, events);
  events->hook(info, events->arg);
  crl_frame_leave(&frame);
}

/* ---- deferred events ----------------------------------------------------------------------- */

/* An event with copies of its texts. */
typedef struct deferred {
  crl_notice notice;
  crl_events *events;
  corral_event_info info;
  char texts[]; /* key, detail */
} deferred;

static void tell(crl_notice *notice) {
  deferred *d = (deferred *)(void *)notice;
  call(d->events, &d->info);
  free(d);
}

static void defer(crl_events *events, const corral_event_info *info) {
  size_t kept = info->key == NULL ? 0 : info->key_len,
         size = info->detail == NULL ? 0 : strlen(info->detail) + 1;
  deferred *d = crl_alloc(sizeof *d + kept + size);
  if (d == NULL) return;
  *d = (deferred){.notice = {.tell = tell}, .events = events, .info = *info};
  if (info->key != NULL) d->info.key = d->texts;
  if (kept > 0) memcpy(d->texts, info->key, kept);
  if (size > 0) d->info.detail = memcpy(d->texts + kept, info->detail, size);
  if (!crl_notifier_post(events->notifier, &d->notice, DEFERRED_MOST)) free(d);
}

int crl_event_defer(int thread_defers) {
  int before = defers;
  defers = thread_defers;
  return before;
}

/* ---- public -------------------------------------------------------------------------------- */

void crl_event_tell(crl_events *events, const corral_event_info *info) {
  crl_ring *ring = crl_ring_of(&events->stats);
  crl_event_count(events, info->event);
  if (ring != NULL) crl_ring_write(ring, info);
  if (events->hook == NULL) return;
  if (defers && events->notifier != NULL)
    defer(events, info);
  else
    call(events, info);
}

uint64_t crl_event_counted(const crl_events *events, corral_event event) {
  return crl_stats_counted(&events->stats, CRL_COUNTER_EVENT + (size_t)event);
}

void crl_event_emit(crl_events *events, corral_event event, const void *key, size_t key_len,
                    const char *detail) {
  if (!crl_event_is_told(events, event)) {
    crl_event_count(events, event);
    return;
  }
  corral_event_info info = crl_event_info(event, key, key_len);
  info.detail = detail;
  crl_event_tell(events, &info);
}
