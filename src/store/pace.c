/* pace.c: the time limit of a batch on a handle. */
#include "store/pace.h"

#include "os/env.h"
#include "os/readers.h"

static _Thread_local crl_pace *current CRL_IN_FIRST_BLOCK;

void crl_pace_begin(crl_pace *pace) {
  pace->limit = pace->first;
  pace->bytes = pace->step = 0;
  pace->came = 0;
  current = pace;
}

void crl_pace_go_on(crl_pace *pace) { current = pace; }

void crl_pace_end(void) { current = NULL; }

int crl_pace_in_body(const crl_pace *pace) { return pace->bytes >= CRL_PACE_BODY; }

int64_t crl_pace_moved(size_t bytes, int64_t deadline) {
  crl_pace *pace = current;
  if (pace == NULL || deadline != pace->deadline) return deadline;
  pace->bytes += bytes;
  if (pace->bytes < CRL_PACE_STEP) return pace->limit;
  int64_t now = crl_env_now_ms();
  if (pace->came > 0) pace->limit += now - pace->came;
  pace->came = bytes > 0 ? now : 0;
  pace->step += bytes;
  if (pace->step >= CRL_PACE_STEP) {
    pace->step = 0;
    pace->limit = now + pace->quiet_ms;
  }
  if (pace->limit > pace->latest) pace->limit = pace->latest;
  return pace->limit;
}
