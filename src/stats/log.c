/* log.c: the ready hook for events: levels, lines, and how many of a kind are told. */
#include "stats/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <corral/stats.h>

#include "os/env.h"

enum { KINDS = sizeof((corral_log *)NULL)->state / sizeof(uint64_t), PER_S = 5 };
_Static_assert((int)CORRAL_EVENT_COUNT <= (int)KINDS, "each kind has a state");
enum { PREFIX = 32, SHORT = 64 };

/* ---- levels -------------------------------------------------------------------------------- */

corral_level corral_event_level(corral_event event) {
  switch (event) {
    case CORRAL_EVENT_CORRUPT:
    case CORRAL_EVENT_LOCK_LOST:
    case CORRAL_EVENT_STORE_ANEW:
    case CORRAL_EVENT_LOCK_FENCE: return CORRAL_LEVEL_ERROR;
    case CORRAL_EVENT_UNSTORED:
    case CORRAL_EVENT_FAILURE:
    case CORRAL_EVENT_ABANDONED:
    case CORRAL_EVENT_LEASE_LOST:
    case CORRAL_EVENT_DEADLINE:
    case CORRAL_EVENT_STORE_ERROR:
    case CORRAL_EVENT_STORE_DOWN:
    case CORRAL_EVENT_DEGRADED:
    case CORRAL_EVENT_FOREIGN:
    case CORRAL_EVENT_HOST_ERROR:
    case CORRAL_EVENT_LOCK_FOREIGN:
    case CORRAL_EVENT_NEWER:
    case CORRAL_EVENT_WARNING:
    case CORRAL_EVENT_DIFFERS: return CORRAL_LEVEL_WARNING;
    case CORRAL_EVENT_FENCED:
    case CORRAL_EVENT_STORE_UP:
    case CORRAL_EVENT_OLDER:
    case CORRAL_EVENT_LOCK_REPAIRED:
    case CORRAL_EVENT_WATCH:
    case CORRAL_EVENT_CONTROL: return CORRAL_LEVEL_NOTICE;
    case CORRAL_EVENT_FILL:
    case CORRAL_EVENT_REFRESH:
    case CORRAL_EVENT_LIMITED:
    case CORRAL_EVENT_OUTBOX:
    case CORRAL_EVENT_REPLAYED:
    case CORRAL_EVENT_PASS:
    case CORRAL_EVENT_LOCKED:
    case CORRAL_EVENT_UNLOCKED:
    case CORRAL_EVENT_COMPUTED:
    case CORRAL_EVENT_VERIFIED:
    case CORRAL_EVENT_UNVERIFIED: return CORRAL_LEVEL_INFO;
    case CORRAL_EVENT_HIT:
    case CORRAL_EVENT_STALE:
    case CORRAL_EVENT_MISS:
    case CORRAL_EVENT_NEGATIVE:
    case CORRAL_EVENT_JOIN:
    case CORRAL_EVENT_WAIT:
    case CORRAL_EVENT_POLL:
    case CORRAL_EVENT_CLAIM:
    case CORRAL_EVENT_COMPUTE:
    case CORRAL_EVENT_VERDICT:
    case CORRAL_EVENT_EXTEND:
    case CORRAL_EVENT_HOST_WAIT:
    case CORRAL_EVENT_OUTBOX_HIT:
    case CORRAL_EVENT_EARLY:
    case CORRAL_EVENT_NEAR:
    case CORRAL_EVENT_LOCK_WAIT:
    case CORRAL_EVENT_LOCK_ASKED:
    case CORRAL_EVENT_LOCK_EXTENDED: return CORRAL_LEVEL_DEBUG;
    case CORRAL_EVENT_COUNT: break;
  }
  return CORRAL_LEVEL_DEBUG;
}

const char *corral_level_name(corral_level level) {
  switch (level) {
    case CORRAL_LEVEL_ERROR: return "error";
    case CORRAL_LEVEL_WARNING: return "warning";
    case CORRAL_LEVEL_NOTICE: return "notice";
    case CORRAL_LEVEL_INFO: return "info";
    case CORRAL_LEVEL_DEBUG: return "debug";
  }
  return "?";
}

/* ---- lines --------------------------------------------------------------------------------- */

/* Appends a text; returns the new length. */
static size_t put(char *text, size_t size, size_t used, const char *before, const char *more) {
  int n = snprintf(text + used, size - used, "%s%s", before, more);
  if (n < 0) return used;
  return (size_t)n < size - used ? used + (size_t)n : size - 1;
}

static size_t put_key(char *text, size_t size, size_t used, const corral_event_info *info) {
  char key[4 * CORRAL_STATS_KEY + 8];
  if (info->key == NULL || info->key_len == 0) return used;
  int is_cut = info->key_len > CORRAL_STATS_KEY;
  (void)corral_text_show(info->key, is_cut ? CORRAL_STATS_KEY : info->key_len, key, sizeof key);
  used = put(text, size, used, " ", key);
  return is_cut ? put(text, size, used, "", "...") : used;
}

static size_t put_duration(char *text, size_t size, size_t used, int64_t us) {
  char time[SHORT];
  if (us < 0) return used;
  if (us >= 1000)
    (void)corral_duration_show(us / 1000, time, sizeof time);
  else
    (void)snprintf(time, sizeof time, "%dus", (int)us);
  return put(text, size, used, ", ", time);
}

size_t corral_event_show(const corral_event_info *info, char *text, size_t size) {
  char number[SHORT];
  if (size == 0) return 0;
  size_t used = put(text, size, 0, "", corral_event_name(info->event));
  used = put_key(text, size, used, info);
  used = put_duration(text, size, used, info->duration_us);
  (void)snprintf(number, sizeof number, "%lld bytes", (long long)info->bytes);
  if (info->bytes >= 0) used = put(text, size, used, ", ", number);
  (void)snprintf(number, sizeof number, "server %d", info->server);
  if (info->server >= 0) used = put(text, size, used, ", ", number);
  if (info->status != CORRAL_OK)
    used = put(text, size, used, ", ", corral_status_name(info->status));
  if (info->detail == NULL || info->detail[0] == '\0') return used;
  used = put(text, size, used, ": ", "");
  return used + corral_text_show(info->detail, strlen(info->detail), text + used, size - used);
}

/* ---- the log ------------------------------------------------------------------------------- */

static void write_line(const corral_log *log, corral_level level, const char *line, size_t len) {
  char text[CORRAL_EVENT_LINE + PREFIX];
  if (log->write != NULL) {
    log->write(level, line, len, log->write_arg);
    return;
  }
  int before = errno, cancel = crl_env_cancel_off();
  size_t used = put(text, sizeof text, 0, "corral: ", corral_level_name(level));
  used = put(text, sizeof text, used, ": ", line);
  used = put(text, sizeof text, used, "\n", "");
  ssize_t ignored = write(STDERR_FILENO, text, used);
  (void)ignored;
  crl_env_cancel_as(cancel);
  errno = before;
}

static void write_more(const corral_log *log, corral_event event, uint32_t more) {
  char line[2 * SHORT];
  int n = snprintf(line, sizeof line, "%lu more of %s within a second", (unsigned long)more,
                   corral_event_name(event));
  if (n > 0) write_line(log, corral_event_level(event), line, (size_t)n);
}

/* The most lines of a kind in a second. */
static uint32_t limit_of(const corral_log *log) {
  return log->per_s > 0 ? (uint32_t)log->per_s : log->per_s < 0 ? UINT32_MAX : PER_S;
}

/* Events of a kind's last second that were not told. */
static uint32_t left_of(uint64_t state, uint32_t limit) {
  uint32_t count = (uint32_t)state;
  return count > limit ? count - limit : 0;
}

/* Counts an event. The state has its second above, and how many of it there were below; a thread
 * with an earlier second counts there, too. True: it is told. *ret_more: those of the second before
 * that were not. */
static int admit(uint64_t *state, uint32_t second, uint32_t limit, uint32_t *ret_more) {
  uint64_t was = __atomic_load_n(state, __ATOMIC_RELAXED), next;
  do {
    int is_new = was >> 32 < second;
    next = is_new ? (uint64_t)second << 32 | 1 : was + 1;
    *ret_more = is_new ? left_of(was, limit) : 0;
  } while (!__atomic_compare_exchange_n(state, &was, next, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return (uint32_t)next <= limit;
}

void crl_log_tell(corral_log *log, const corral_event_info *info, uint32_t second) {
  char line[CORRAL_EVENT_LINE];
  uint32_t more;
  corral_level level = corral_event_level(info->event);
  if (level > (log->level == 0 ? CORRAL_LEVEL_NOTICE : log->level)) return;
  int is_told = admit(&log->state[(unsigned)info->event % KINDS], second, limit_of(log), &more);
  if (more > 0) write_more(log, info->event, more);
  if (is_told) write_line(log, level, line, corral_event_show(info, line, sizeof line));
}

static corral_log *log_of(corral_log *log) {
  static corral_log standard = CORRAL_LOG(.per_s = PER_S);
  return log != NULL && log->size >= sizeof *log ? log : &standard;
}

void corral_log_event(const corral_event_info *info, void *log) {
  crl_log_tell(log_of(log), info, (uint32_t)(crl_env_now_ms() / 1000 + 1));
}

void corral_log_flush(corral_log *log) {
  log = log_of(log);
  for (int e = 0; e < CORRAL_EVENT_COUNT; e++) {
    uint32_t limit = limit_of(log), more;
    uint64_t was = __atomic_load_n(&log->state[e], __ATOMIC_RELAXED);
    do more = left_of(was, limit);
    while (more > 0 && !__atomic_compare_exchange_n(&log->state[e], &was, was - more, 1,
                                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    if (more > 0) write_more(log, (corral_event)e, more);
  }
}
