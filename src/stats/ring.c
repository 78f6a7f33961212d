/* ring.c: the last events of a process, in memory that other processes read. */
#include "stats/ring.h"

#include <string.h>

#include "os/env.h"

/* The words of a body. From the lowest bit on: EVENT: event: 16, server + 1: 16, status: 32; PLACE:
 * pid: 32, wake + 1: 8, bytes of the key that are kept: 8, of the detail: 8. Then the texts: key,
 * detail. */
enum { MOMENT = 0, EVENT, PLACE, DURATION, BYTES, KEY_LEN, HASH, TEXTS };
enum { PATIENCE_US = 1000000 };
#define NUMBER_MOST (UINT64_MAX / 4) /* more is no number of an event */

_Static_assert((CRL_RING_BODY - TEXTS) * 8 == CRL_RING_TEXT, "a row ends with the texts");
_Static_assert((size_t)CORRAL_STATS_KEY < CRL_RING_TEXT, "a key has room");
_Static_assert(sizeof(crl_ring) == sizeof((crl_parts){0}.RING), "the ring is a part");
_Static_assert((size_t)CRL_RING_BODY <= CRL_SEALED_MOST, "a body can be sealed");

/* ---- writing ------------------------------------------------------------------------------- */

void crl_ring_reset(crl_ring *ring, int64_t pid) {
  for (size_t i = 0; i < CRL_RING; i++) {
    _Atomic uint64_t *number = &ring->rows[i].words[0];
    if (atomic_load(number) & 1) atomic_store(number, 0);
  }
  atomic_store(&ring->owner, (uint64_t)pid);
}

int corral_event_is_logged(corral_event event) {
  switch (event) {
    case CORRAL_EVENT_HIT:
    case CORRAL_EVENT_NEAR:
    case CORRAL_EVENT_STALE:
    case CORRAL_EVENT_NEGATIVE:
    case CORRAL_EVENT_VERDICT:
    case CORRAL_EVENT_OUTBOX_HIT:
    case CORRAL_EVENT_JOIN:
    case CORRAL_EVENT_POLL:
    case CORRAL_EVENT_LOCK_ASKED: return 0;
    default: return (unsigned)event < CORRAL_EVENT_COUNT;
  }
}

/* Copies as much as has room; returns that. */
static size_t keep(uint8_t *to, size_t room, const void *text, size_t len) {
  size_t kept = len < room ? len : room;
  if (kept > 0) memcpy(to, text, kept);
  return kept;
}

static void fill(crl_ring *ring, const corral_event_info *info, uint64_t *body) {
  uint8_t *texts = (uint8_t *)(body + TEXTS);
  uint64_t pid = atomic_load_explicit(&ring->owner, memory_order_relaxed);
  size_t key_len = info->key == NULL ? 0 : info->key_len;
  size_t key = keep(texts, CORRAL_STATS_KEY, info->key, key_len);
  size_t detail = info->detail == NULL
                      ? 0
                      : keep(texts + key, CRL_RING_TEXT - key, info->detail, strlen(info->detail));
  body[MOMENT] = (uint64_t)crl_env_wall_us();
  body[EVENT] = (uint64_t)(uint16_t)info->event | (uint64_t)(uint16_t)(info->server + 1) << 16 |
                (uint64_t)(uint32_t)info->status << 32;
  body[PLACE] = (uint32_t)pid | (uint64_t)(uint8_t)(info->wake + 1) << 32 | (uint64_t)key << 40 |
                (uint64_t)detail << 48;
  body[DURATION] = (uint64_t)info->duration_us;
  body[BYTES] = (uint64_t)info->bytes;
  body[KEY_LEN] = key_len;
  body[HASH] = crl_sealed_hash(info->key, key_len);
}

/* Takes the place of an event's number. 0: another thread writes there, or has written a later
 * one. */
static int claim(crl_ring_row *row, uint64_t number) {
  uint64_t before = atomic_load_explicit(&row->words[0], memory_order_relaxed);
  do {
    if ((before & 1) || before >= 2 * number) return 0;
  } while (!atomic_compare_exchange_weak_explicit(&row->words[0], &before, 2 * number - 1,
                                                  memory_order_acquire, memory_order_relaxed));
  return 1;
}

void crl_ring_write(crl_ring *ring, const corral_event_info *info) {
  uint64_t body[CRL_RING_BODY] = {0};
  if (!corral_event_is_logged(info->event)) return;
  fill(ring, info, body);
  uint64_t number = atomic_fetch_add(&ring->last, 1) + 1;
  crl_ring_row *row = &ring->rows[number % CRL_RING];
  if (claim(row, number)) crl_sealed_write(row->words, 2 * number, body, CRL_RING_BODY);
}

/* ---- reading ------------------------------------------------------------------------------- */

static void unpack(const uint64_t *body, uint64_t number, crl_ring_event *ret) {
  const uint8_t *texts = (const uint8_t *)(body + TEXTS);
  size_t key = body[PLACE] >> 40 & 0xff, detail = body[PLACE] >> 48 & 0xff;
  if (key > CORRAL_STATS_KEY) key = CORRAL_STATS_KEY;
  if (detail > CRL_RING_TEXT - key) detail = CRL_RING_TEXT - key;
  ret->logged = (corral_logged){.size = sizeof ret->logged,
                                .number = number,
                                .at_us = (int64_t)body[MOMENT],
                                .event = (int)(body[EVENT] & 0xffff),
                                .name = corral_event_name((corral_event)(body[EVENT] & 0xffff)),
                                .status = (int)(int32_t)(uint32_t)(body[EVENT] >> 32),
                                .key_kept = key,
                                .key_len = body[KEY_LEN] > key ? body[KEY_LEN] : key,
                                .key_hash = body[HASH],
                                .duration_us = (int64_t)body[DURATION],
                                .bytes = (int64_t)body[BYTES],
                                .server = (int)(body[EVENT] >> 16 & 0xffff) - 1,
                                .wake = (int)(body[PLACE] >> 32 & 0xff) - 1,
                                .pid = (uint32_t)body[PLACE]};
  memcpy(ret->logged.key, texts, key);
  memcpy(ret->detail, texts + key, detail);
  ret->detail[detail] = '\0';
  if (detail > 0) ret->logged.detail = ret->detail;
}

/* 1: *ret is the event of that number; 0: it was written over, or never written; -1: it is being
 * written. */
static int read_row(const crl_ring_row *row, uint64_t number, crl_ring_event *ret) {
  uint64_t body[CRL_RING_BODY];
  uint64_t is = crl_sealed_read(row->words, body, CRL_RING_BODY);
  if (is == 2 * number) {
    unpack(body, number, ret);
    return 1;
  }
  uint64_t now = atomic_load(&((crl_ring_row *)(uintptr_t)row)->words[0]);
  return now == 0 || now > 2 * number ? 0 : -1;
}

/* True when an event that isn't written yet is not worth waiting for: a later one was written long
 * ago. Its thread was stopped, or found another one in its place. */
static int is_lost(const crl_ring *ring, uint64_t number, uint64_t last, crl_ring_event *room) {
  while (++number <= last)
    if (read_row(&ring->rows[number % CRL_RING], number, room) > 0)
      return room->logged.at_us < crl_env_wall_us() - PATIENCE_US;
  return 0;
}

int crl_ring_next(const crl_ring *ring, uint64_t *at, crl_ring_event *ret) {
  uint64_t last = atomic_load(&((crl_ring *)(uintptr_t)ring)->last);
  if (*at >= last || last > NUMBER_MOST) return 0;
  uint64_t number = *at + 1;
  if (last - number >= CRL_RING) number = last - CRL_RING + 1;
  for (; number <= last; number++) {
    int is = read_row(&ring->rows[number % CRL_RING], number, ret);
    if (is > 0) {
      *at = number;
      return 1;
    }
    if (is < 0 && !is_lost(ring, number, last, ret)) return 0;
  }
  return 0;
}
