/* marks.h: the marks of tags: a record of the store each, by which all values that carry a tag are
 * invalidated or expired at once.
 *
 * A mark has two versions, drawn at random: `hard` is changed by an invalidation, `soft` by that
 * and by an expiry. A value remembers those that its tags' marks had before it was computed
 * (metadata.h), and counts as long as they are the same. A mark that the store has lost voids what
 * remembers it: forgetting is safe. The key of a mark is of a kind of its own (key.h). The tag of
 * length 0 is that of the whole namespace. */
#ifndef CRL_MARKS_H
#define CRL_MARKS_H

#include "drive.h"
#include "metadata.h"

typedef struct crl_mark {
  /* CORRAL_OK: what follows was read; EMISS: the store has none; another: that error;
   * CRL_MARK_WANTED */
  int status;
  uint64_t hard, soft;
  int changed;    /* it was invalidated or expired, not only made by the first value of its tag */
  int64_t age_ms; /* since it was made or changed */
  int made_here;  /* by crl_marks_stamp, just now */
  uint8_t len;
  uint8_t name[CRL_TAG_MOST];
} crl_mark;

enum { CRL_MARK_WANTED = 1 };

#define CRL_NEAR_ANY_AGE INT64_MAX
#define CRL_SINCE_NOW (-CRL_ENVELOPE_LIFE_MOST)

/* Those that somebody looked at. */
typedef struct crl_marks {
  size_t count, room;
  crl_mark *mark;
} crl_marks;

typedef enum crl_standing { CRL_STANDS = 0, CRL_STANDS_EXPIRED, CRL_STANDS_VOID } crl_standing;

/* Lists a mark as wanted, unless it is listed. 0 without memory. */
int crl_marks_want(crl_marks *marks, const void *name, size_t len);
int crl_marks_want_all(crl_marks *marks, const crl_tags *tags);
const crl_mark *crl_marks_find(const crl_marks *marks, const void *name, size_t len);
/* Asks for all that are wanted: the near tier, when what it knows is not older than near_ms (0 or
 * less: not at all), and the store, in one batch, by `deadline`. CORRAL_OK, or the first error. */
int crl_marks_fetch(crl_station *station, crl_marks *marks, int64_t near_ms, int64_t deadline,
                    corral_error *error);

/* Where marks may be read: in the near tier when they aren't older than near_ms (CRL_NEAR_ANY_AGE:
 * it may have missed changes; for a store that is away), and in the store, by `deadline`; 0: not
 * there. */
typedef struct crl_marks_source {
  int64_t near_ms, deadline;
} crl_marks_source;

/* All that for one record, by its metadata (size 0: it has no tags). Void also where a mark can't
 * be read, or the tag of the whole namespace is missing. */
crl_standing crl_marks_standing(crl_station *station, const uint8_t *metadata, size_t metadata_len,
                                const crl_marks_source *source);
/* What the marks, all of them read, say of a value with these tags. */
crl_standing crl_marks_judge(const crl_marks *marks, const crl_tags *tags);
void crl_marks_forget(crl_marks *marks);
void crl_marks_clean(crl_marks *marks);

/* Sets the versions that a value remembers whose compute began `elapsed_ms` ago (CRL_SINCE_NOW: it
 * is of now, whatever changed before). `before`: the marks as they were known then. What isn't
 * known from then is asked for, and made where there is none. CORRAL_ELOST: a tag was invalidated
 * since, or may have been; else an error of the store. */
int crl_marks_stamp(crl_station *station, crl_tags *tags, const crl_marks *before,
                    int64_t elapsed_ms, corral_error *error);
/* Invalidates (or only expires) all values of a tag. */
int crl_marks_change(crl_station *station, const void *name, size_t len, int only_expire,
                     corral_error *error);

/* A mark's GET, as one operation of a batch of the caller's. The struct must not be moved. */
typedef struct crl_mark_look {
  crl_mark *mark;
  crl_key key;
  uint64_t hash, ticket;
  int64_t looked;
} crl_mark_look;

/* Sets up *op for a mark that is wanted. CORRAL_ENOMEM; else crl_mark_looked is to follow. */
int crl_mark_look_up(crl_station *station, crl_mark *mark, crl_mark_look *look, corral_op *op);
/* Takes the result. */
void crl_mark_looked(crl_station *station, crl_mark_look *look, corral_op *op);

#endif
