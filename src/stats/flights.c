/* flights.c: the table of the flights of a process, in memory that other processes read. */
#include "stats/flights.h"

#include <string.h>

#include "os/env.h"

/* The words of a body. */
enum {
  HASH = 0,
  SINCE,  /* crl_env_boot_ms: when it came into its state */
  PACKED, /* from the lowest bit on: state: 8; key_len: 24; expected_ms: 32 */
  KEY
};
enum { KEY_LEN_MOST = 0xffffff, WRITES = 16 /* bits of a row's number for its changes */ };
#define CHANGES ((UINT64_C(1) << WRITES) - 1)

_Static_assert((CRL_FLIGHT_BODY - KEY) * 8 == CORRAL_STATS_KEY + 1, "a row ends with the key");
_Static_assert((size_t)CRL_FLIGHT_BODY <= CRL_SEALED_MOST, "a body can be sealed");
_Static_assert(sizeof(crl_flights) == sizeof((crl_parts){0}.FLIGHTS), "the table is a part");
_Static_assert(CRL_FLIGHTS == 64, "the rows that are taken are the bits of a word");

static uint64_t pack(corral_flight_state state, size_t key_len, uint32_t expected_ms) {
  uint64_t len = key_len < KEY_LEN_MOST ? key_len : KEY_LEN_MOST;
  return (uint64_t)state | len << 8 | (uint64_t)expected_ms << 32;
}

/* ---- writing ------------------------------------------------------------------------------- */

/* NULL: all rows are taken. */
static crl_flight_row *take_row(crl_flights *table) {
  uint64_t taken = atomic_load_explicit(&table->taken, memory_order_relaxed);
  while (taken != UINT64_MAX) {
    int free_one = __builtin_ctzll(~taken);
    if (atomic_compare_exchange_weak(&table->taken, &taken, taken | UINT64_C(1) << free_one))
      return &table->rows[free_one];
  }
  return NULL;
}

/* The numbers of a row's bodies for one flight; never 0. */
static uint64_t first_number(uint32_t flight) { return (uint64_t)flight << WRITES | 1; }

static uint64_t next_number(uint64_t number) {
  uint64_t changes = (number + 1) & CHANGES;
  return (number & ~CHANGES) | (changes == 0 ? 1 : changes);
}

void crl_flights_list(crl_flights *table, crl_listing *listing, corral_flight_state state,
                      const crl_flight_about *about) {
  uint64_t body[CRL_FLIGHT_BODY] = {0};
  *listing = (crl_listing){.table = table, .row = take_row(table), .state = state};
  if (listing->row == NULL) {
    atomic_fetch_add(&table->unlisted, 1);
    return;
  }
  size_t kept = about->key_len < CORRAL_STATS_KEY ? about->key_len : CORRAL_STATS_KEY;
  listing->number = (uint32_t)atomic_fetch_add(&table->last, 1) + 1;
  body[HASH] = crl_sealed_hash(about->key, about->key_len);
  body[SINCE] = (uint64_t)crl_env_boot_ms();
  body[PACKED] = pack(state, about->key_len, about->expected_ms);
  memcpy(body + KEY, about->key, kept);
  atomic_store(&listing->row->waiting, (uint64_t)listing->number << 32);
  crl_sealed_write(listing->row->words, first_number(listing->number), body, CRL_FLIGHT_BODY);
}

void crl_flights_change(crl_listing *listing, corral_flight_state state) {
  uint64_t body[CRL_FLIGHT_BODY];
  crl_flight_row *row = listing->row;
  if (listing->table == NULL || listing->state == state) return;
  listing->state = state;
  if (row == NULL) return;
  uint64_t number = crl_sealed_read(row->words, body, CRL_FLIGHT_BODY);
  body[SINCE] = (uint64_t)crl_env_boot_ms();
  body[PACKED] = (body[PACKED] & ~UINT64_C(0xff)) | (uint64_t)state;
  crl_sealed_write(row->words, next_number(number), body, CRL_FLIGHT_BODY);
}

void crl_flights_end(crl_listing *listing) {
  crl_flights *table = listing->table;
  crl_flight_row *row = listing->row;
  listing->table = NULL;
  listing->row = NULL;
  if (table == NULL) return;
  if (row == NULL) {
    atomic_fetch_sub(&table->unlisted, 1);
    return;
  }
  atomic_store(&row->words[0], 0);
  atomic_fetch_and(&table->taken, ~(UINT64_C(1) << (row - table->rows)));
}

void crl_flights_wait(crl_flight_row *row, uint32_t number, size_t waiting) {
  uint64_t before = atomic_load(&row->waiting);
  uint64_t count = waiting < UINT32_MAX ? waiting : UINT32_MAX;
  while (before >> 32 == number &&
         !atomic_compare_exchange_weak(&row->waiting, &before, before >> 32 << 32 | count)) {
  }
}

/* ---- reading ------------------------------------------------------------------------------- */

static int64_t passed_since(uint64_t moment, int64_t now) {
  return moment < (uint64_t)now ? now - (int64_t)moment : 0;
}

/* 0: the row is free, or is being written. */
static int read_row(const crl_flight_row *row, int64_t now, corral_flight *ret) {
  uint64_t body[CRL_FLIGHT_BODY];
  uint64_t number = crl_sealed_read(row->words, body, CRL_FLIGHT_BODY);
  if (number == 0 || (body[PACKED] & 0xff) >= CORRAL_FLIGHT_COUNT) return 0;
  uint64_t waiting = atomic_load(&((crl_flight_row *)(uintptr_t)row)->waiting);
  *ret = (corral_flight){.size = sizeof *ret,
                         .key_len = body[PACKED] >> 8 & KEY_LEN_MOST,
                         .key_hash = body[HASH],
                         .state = (corral_flight_state)(body[PACKED] & 0xff),
                         .since_ms = passed_since(body[SINCE], now),
                         .expected_ms = (int64_t)(body[PACKED] >> 32)};
  if (waiting >> 32 == (uint32_t)(number >> WRITES)) ret->waiters = (uint32_t)waiting;
  ret->key_kept = ret->key_len < CORRAL_STATS_KEY ? ret->key_len : CORRAL_STATS_KEY;
  memcpy(ret->key, body + KEY, ret->key_kept);
  return 1;
}

size_t crl_flights_read(const crl_flights *table, int64_t pid, corral_flight ret[CRL_FLIGHTS]) {
  int64_t now = crl_env_boot_ms();
  size_t count = 0;
  for (size_t i = 0; i < CRL_FLIGHTS; i++) {
    if (!read_row(&table->rows[i], now, &ret[count])) continue;
    ret[count++].pid = pid;
  }
  return count;
}

uint64_t crl_flights_unlisted(const crl_flights *table) {
  return atomic_load(&((crl_flights *)(uintptr_t)table)->unlisted);
}
