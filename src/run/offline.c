/* offline.c: what a run does for a store that is away: keeps its product and its failure in this
 * process, and looks for a value there. */
#include <stdio.h>
#include <stdlib.h>

#include "os/env.h"
#include "record/record.h"
#include "run/run.h"
#include "base/print.h"

/* ---- what this process remembers of its computes ------------------------------------------- */

/* Keeps a header without a body for `ms` in place of the key's earlier one. */
static void remember(crl_run *r, const corral_header *header, int64_t now, int64_t ms) {
  uint8_t *record = crl_alloc(CORRAL_FRONT);
  if (record == NULL) return;
  crl_bytes *bytes = crl_bytes_wrap(record, crl_record_write(header, record), free, record);
  if (bytes == NULL) free(record);
  if (bytes == NULL) return;
  crl_outbox_fill fill = {.record = bytes, .hard_ttl = ms, .began = now, .made = now};
  crl_outbox_keep(r->context->verdicts, r->found.key.stored, r->found.key.stored_len, &fill);
  crl_bytes_unref(bytes);
}

/* The next compute without the store has to wait for a while; this is remembered as a lease, whose
 * `failures` count such computes in a row. A key that rests for wait_ms begins anew. */
static void keep_pause(crl_run *r) {
  corral_header before, pause = {.state = CORRAL_LEASED, .failures = 1};
  int64_t now = crl_env_now_ms();
  if (crl_found_remembered(&r->found, &before) && before.state == CORRAL_LEASED)
    pause.failures = before.failures + 1;
  int64_t cost_ms = (crl_env_now_us() - r->began_us) / 1000;
  int64_t ms = crl_policy_away(&r->policy, cost_ms, pause.failures, r->flight.dice);
  pause.until = now + ms;
  remember(r, &pause, now, ms + r->policy.wait_ms);
}

void crl_run_keep_fill(crl_run *r) {
  if (r->flight.degraded)
    keep_pause(r);
  else
    crl_outbox_drop(r->context->verdicts, r->found.key.stored, r->found.key.stored_len);
  crl_outbox_fill fill = {.record = r->product.record,
                          .version = r->fill.version,
                          .hard_ttl = r->product.hard_ttl,
                          .began = r->began,
                          .made = crl_env_now_ms()};
  crl_outbox_keep(r->context->outbox, r->found.key.stored, r->found.key.stored_len, &fill);
  crl_found_emit(&r->found, CORRAL_EVENT_OUTBOX, NULL);
}

void crl_run_keep_verdict(crl_run *r) {
  corral_header verdict;
  int64_t now = crl_env_now_ms(), retry_ms = r->flight.retry_ms;
  if (retry_ms <= 0) return;
  memset(&verdict, 0, sizeof verdict);
  verdict.state = CORRAL_VERDICT;
  verdict.until = now + retry_ms;
  verdict.code = r->fill.code;
  verdict.failures = r->flight.failures;
  crl_print_fit(verdict.note, sizeof verdict.note, r->fill.text);
  remember(r, &verdict, now, 3 * retry_ms);
}

/* ---- values -------------------------------------------------------------------------------- */

/* The lives that a fill of this age has left. */
static crl_lives lives_of(const crl_envelope *envelope, int64_t age) {
  int64_t all = crl_policy_hard_ttl(envelope->ttl_ms, envelope->swr_ms, envelope->sie_ms);
  return crl_envelope_judge(envelope, 0, all > age ? all - age : 0, 0);
}

static int take_fill(crl_found *found, int64_t now, crl_lives *lives) {
  crl_outbox_fill entry;
  if (!crl_outbox_find(found->context->outbox, found->key.stored, found->key.stored_len, now,
                       &entry))
    return 0;
  int status = crl_envelope_read(entry.record->data, entry.record->size,
                                 crl_key_digest(&found->key), &found->envelope);
  if (status == CORRAL_OK) {
    crl_found_change(found, entry.record);
    found->is_own = 1;
    found->age_ms = now - entry.made;
    *lives = lives_of(&found->envelope, found->age_ms);
    return 1;
  }
  crl_bytes_unref(entry.record);
  return 0;
}

int crl_found_take_own(crl_found *found, crl_lives *lives) {
  int64_t now = crl_env_now_ms();
  return take_fill(found, now, lives) || crl_found_take_near(found, now, lives);
}

void crl_run_find_outbox(crl_run *r, crl_told *told) {
  told->status = crl_found_take_own(&r->found, &told->look.lives) ? CORRAL_OK : CORRAL_EMISS;
}
