/* layout.h: the bytes of a stats file: a head that names all that follows, and the block, in which
 * a corral counts.
 *
 * The head has a row for each number, text and part: its name, and where it is. So a file of
 * another version of corral is read by the names, in any order. The numbers are of this host's byte
 * order. */
#ifndef CRL_LAYOUT_H
#define CRL_LAYOUT_H

#include "stats/histogram.h"

/* ---- what a block has ---------------------------------------------------------------------- */

/* Counters of a shard: the origin's time saved, the results of calls, the events. Near hits are
 * counted by their event alone, which is their result, too. */
enum {
  CRL_COUNTER_SAVED = 0,
  CRL_COUNTER_RESULT = 1,
  CRL_COUNTER_EVENT = CRL_COUNTER_RESULT + CORRAL_RESULT_COUNT,
  CRL_COUNTERS = CRL_COUNTER_EVENT + CORRAL_EVENT_COUNT
};

/* X(identifier, name). TURN: odd while the file changes hands. */
#define CRL_NUMBER_MAP(X)                                                                          \
  X(ID, "id")                                                                                      \
  X(TURN, "turn")                                                                                  \
  X(PID, "pid")                                                                                    \
  X(STARTED, "started")                                                                            \
  X(USER, "user")

#define CRL_TEXT_MAP(X)                                                                            \
  X(CACHE, "cache")                                                                                \
  X(STORE, "store")                                                                                \
  X(PROGRAM, "program")                                                                            \
  X(VERSION, "version")

/* Tables of entries, whose bytes belong to other files. X(identifier, name, bytes of an entry,
 * entries). When a process takes a stats file over, all are zero but the ring. */
#define CRL_PART_MAP(X)                                                                            \
  X(FLIGHTS, "flights", 128, 65)                                                                   \
  X(RING, "ring", 256, 129)                                                                        \
  X(HOT, "hot", 6720, 1)

typedef enum crl_number {
#define CRL_NUMBER_ENUM(id, name) CRL_NUMBER_##id,
  CRL_NUMBER_MAP(CRL_NUMBER_ENUM)
#undef CRL_NUMBER_ENUM
      CRL_NUMBERS
} crl_number;

typedef enum crl_text {
#define CRL_TEXT_ENUM(id, name) CRL_TEXT_##id,
  CRL_TEXT_MAP(CRL_TEXT_ENUM)
#undef CRL_TEXT_ENUM
      CRL_TEXTS
} crl_text;

typedef enum crl_part_id {
#define CRL_PART_ENUM(id, name, stride, count) CRL_PART_##id,
  CRL_PART_MAP(CRL_PART_ENUM)
#undef CRL_PART_ENUM
      CRL_PARTS
} crl_part_id;

enum { CRL_TEXT_SIZE = 256 };

/* ---- the head ------------------------------------------------------------------------------ */

enum { CRL_STATS_FORMAT = 1, CRL_ROW_NAME = 40, CRL_STATS_LINE = 64, CRL_STATS_SHARDS = 16 };

/* COUNTER: `count` numbers, to be summed. TIMES: sum, longest, and `count` buckets. TEXT: `count`
 * bytes, terminated. PART: `count` entries. GAUGE, NUMBER: one number. */
typedef enum crl_row_kind {
  CRL_ROW_COUNTER = 1,
  CRL_ROW_TIMES,
  CRL_ROW_GAUGE,
  CRL_ROW_NUMBER,
  CRL_ROW_TEXT,
  CRL_ROW_PART
} crl_row_kind;

typedef struct crl_row {
  char name[CRL_ROW_NAME]; /* "event.hit"; terminated */
  uint32_t kind, offset, stride, count;
} crl_row;

enum {
  CRL_ROWS =
      CRL_COUNTERS + CORRAL_TIME_COUNT + CORRAL_GAUGE_COUNT + CRL_NUMBERS + CRL_TEXTS + CRL_PARTS
};

/* The first bytes of every format. */
typedef struct crl_preamble {
  char magic[8];
  uint32_t format;
  uint32_t size; /* of the file */
  uint32_t rows_at, row_size, row_count;
  uint32_t zero;
} crl_preamble;

typedef struct crl_stats_head {
  crl_preamble preamble;
  crl_row rows[CRL_ROWS];
} crl_stats_head;

/* ---- the block ----------------------------------------------------------------------------- */

/* The counters of one thread, on lines that it shares with nobody. */
typedef struct crl_stats_shard {
  _Alignas(CRL_STATS_LINE) _Atomic uint64_t counters[CRL_COUNTERS];
} crl_stats_shard;

typedef struct crl_parts {
#define CRL_PART_FIELD(id, name, stride, count)                                                    \
  _Alignas(CRL_STATS_LINE) uint8_t id[(stride) * (count)];
  CRL_PART_MAP(CRL_PART_FIELD)
#undef CRL_PART_FIELD
} crl_parts;

typedef struct crl_stats_block {
  crl_stats_head head;
  _Atomic uint64_t numbers[CRL_NUMBERS];
  char texts[CRL_TEXTS][CRL_TEXT_SIZE];
  crl_stats_shard
      shards[CRL_STATS_SHARDS + 1]; /* the last one is common to all threads without their own */
  crl_histogram times[CORRAL_TIME_COUNT];
  _Atomic int64_t gauges[CORRAL_GAUGE_COUNT];
  crl_parts parts;
} crl_stats_block;

/* The head of this library's files; its rows stand in the order of CRL_ROWS. */
const crl_stats_head *crl_layout(void);
/* Where a part is in a block, and its size. */
size_t crl_layout_part(crl_part_id part, size_t *ret_size);

#endif
