/* marks.h: the marks of tags. A mark is a record in the store by which all values with a tag are
 * invalidated or expired at once.
 *
 * A mark has two random versions: an invalidation changes `hard` and `soft`, an expiry only `soft`.
 * A value remembers the versions that the marks of its tags had before its compute (metadata.h),
 * and counts as long as they are unchanged. When the store loses a mark, the values that remember
 * it are void: losing marks is safe. Marks have a kind of key of their own (key.h). The tag of
 * length 0 is that of the whole namespace. */
#ifndef CRL_MARKS_H
#define CRL_MARKS_H

#include "context/context.h"
#include "record/metadata.h"

typedef struct crl_mark {
  /* CORRAL_OK: the fields below were read; CORRAL_EMISS: the store has no such mark;
   * CRL_MARK_WANTED: not read yet; else the error */
  int status;
  uint64_t hard, soft;
  int changed;    /* 1: by an invalidation or an expiry; 0: made by the first value of its tag */
  int64_t age_ms; /* since the mark was made or changed */
  int made_here;  /* made just now, by crl_marks_stamp */
  uint8_t len;
  uint8_t name[CRL_TAG_MOST];
} crl_mark;

enum { CRL_MARK_WANTED = 1 };

#define CRL_NEAR_ANY_AGE INT64_MAX
#define CRL_SINCE_NOW (-CRL_LIFE_MOST)

/* A list of marks, wanted or read. */
typedef struct crl_marks {
  size_t count, room;
  crl_mark *mark;
} crl_marks;

typedef enum crl_standing { CRL_STANDS = 0, CRL_STANDS_EXPIRED, CRL_STANDS_VOID } crl_standing;

/* Lists a mark as wanted, unless it is listed already. 0 without memory. */
int crl_marks_want(crl_marks *marks, const void *name, size_t len);
int crl_marks_want_all(crl_marks *marks, const crl_tags *tags);
const crl_mark *crl_marks_find(const crl_marks *marks, const void *name, size_t len);
/* Reads all wanted marks: from near-tier copies not older than near_ms (0 or less: from none), the
 * others from the store, in one batch, by `deadline`. CORRAL_OK, or the first error. */
int crl_marks_fetch(crl_context *context, crl_marks *marks, int64_t near_ms, int64_t deadline,
                    corral_error *error);

/* Where marks may be read: from near-tier copies not older than near_ms (CRL_NEAR_ANY_AGE, for a
 * store that is away: of any age, though changes may have been missed), and from the store by
 * `deadline` (0: not from the store). */
typedef struct crl_marks_source {
  int64_t near_ms, deadline;
} crl_marks_source;

/* Reads and judges the marks of one record's tags, by its metadata (size 0: no tags).
 * CRL_STANDS_VOID also when a mark can't be read, or when the tag of the whole namespace is missing
 * though each value carries it. */
crl_standing crl_marks_standing(crl_context *context, const uint8_t *metadata, size_t metadata_len,
                                const crl_marks_source *source);
/* Judges a value with these tags; all their marks have been read. */
crl_standing crl_marks_judge(const crl_marks *marks, const crl_tags *tags);
void crl_marks_forget(crl_marks *marks);
void crl_marks_clean(crl_marks *marks);

/* Sets the versions that a value remembers; its compute began `elapsed_ms` ago (CRL_SINCE_NOW: no
 * change counts as later). `before`: the marks as known when it began; other marks are read, and
 * made where the store has none. CORRAL_ELOST: a tag was invalidated since then, or may have been;
 * else an error of the store. */
int crl_marks_stamp(crl_context *context, crl_tags *tags, const crl_marks *before,
                    int64_t elapsed_ms, corral_error *error);
/* Invalidates, or only expires, all values with a tag. */
int crl_marks_change(crl_context *context, const void *name, size_t len, int only_expire,
                     corral_error *error);

/* The GET of one mark, as one operation in a batch of the caller's. The struct must not be
 * moved. */
typedef struct crl_mark_look {
  crl_mark *mark;
  crl_key key;
  uint64_t hash, ticket;
  int64_t looked;
} crl_mark_look;

/* Sets up *op for a wanted mark. CORRAL_ENOMEM; after CORRAL_OK crl_mark_looked must follow. */
int crl_mark_look_up(crl_context *context, crl_mark *mark, crl_mark_look *look, corral_op *op);
/* Takes the result of *op, and keeps a copy in the near tier. */
void crl_mark_looked(crl_context *context, crl_mark_look *look, corral_op *op);

#endif
