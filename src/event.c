/* event.c: counts events and tells the user's hook. Names and texts come from the table in corral/event.h. */
#include "event.h"

static const struct {
  const char *name, *text;
} table[] = {
#define ROW(id, name, text) {name, text},
    CORRAL_EVENT_MAP(ROW)
#undef ROW
};

const char *corral_event_name(corral_event event) {
  return (unsigned)event < CORRAL_EVENT_COUNT ? table[event].name : "?";
}

const char *corral_event_text(corral_event event) {
  return (unsigned)event < CORRAL_EVENT_COUNT ? table[event].text : "?";
}

void crl_event_emit(crl_events *events, corral_event event, const void *key, size_t key_len, const char *detail) {
  atomic_fetch_add_explicit(&events->count[event], 1, memory_order_relaxed);
  if (events->hook != NULL) events->hook(event, key, key_len, detail, events->arg);
}
