/* pace.c: how long a batch on a handle may go on. */
#include "pace.h"

#include "env.h"

static _Thread_local crl_pace *current;

void crl_pace_begin(crl_pace *pace) {
  pace->limit = pace->first;
  pace->bytes = 0;
  current = pace;
}

void crl_pace_end(void) { current = NULL; }

int crl_pace_in_body(const crl_pace *pace) { return pace->bytes >= CRL_PACE_BODY; }

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t crl_pace_moved(size_t bytes, int64_t deadline) {
  crl_pace *pace = current;
  if (pace == NULL || deadline != pace->deadline) return deadline;
  pace->bytes += bytes;
  if (bytes == 0 || !crl_pace_in_body(pace)) return pace->limit;
  int64_t earned = pace->first + (int64_t)(pace->bytes / CRL_PACE_RATE);
  int64_t limit = smaller(smaller(crl_env_now_ms() + pace->quiet_ms, earned), pace->latest);
  if (limit > pace->limit) pace->limit = limit;
  return pace->limit;
}
