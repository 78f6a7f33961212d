/* tag_versions.h: the versions of tags. A tag version is a record in the store by which all values
 * with a tag are invalidated or expired at once.
 *
 * A tag version has two random versions: an invalidation changes `hard` and `soft`, an expiry only
 * `soft`. A value remembers the versions that the versions of its tags had before its compute
 * (metadata.h), and counts as long as they are unchanged. When the store loses a tag version, the
 * values that remember it are void: losing tag versions is safe. Marks have a kind of key of their
 * own (key.h). The tag of length 0 is that of the whole namespace. */
#ifndef CRL_TAG_VERSIONS_H
#define CRL_TAG_VERSIONS_H

#include "context/context.h"
#include "record/metadata.h"

typedef struct crl_tag_version {
  /* CORRAL_OK: the fields below were read; CORRAL_EMISS: the store has no such tag version;
   * CRL_TAG_WANTED: not read yet; else the error */
  int status;
  uint64_t hard, soft;
  int changed;    /* 1: by an invalidation or an expiry; 0: made by the first value of its tag */
  int64_t age_ms; /* since the tag version was made or changed */
  int64_t changed_by; /* it was made or changed by then; crl_env_now_ms */
  int made_here;      /* made just now, by crl_tag_versions_stamp */
  int slow;           /* the error is that the store is slow (CRL_OP_SLOW) */
  uint8_t len;
  uint8_t name[CORRAL_TAG_MAX];
} crl_tag_version;

enum { CRL_TAG_WANTED = 1 };

#define CRL_NEAR_ANY_AGE INT64_MAX
#define CRL_SINCE_NOW INT64_MAX

/* A list of tag versions, wanted or read. */
typedef struct crl_tag_versions {
  size_t count, room;
  crl_tag_version *tag_version;
} crl_tag_versions;

typedef enum crl_standing { CRL_STANDS = 0, CRL_STANDS_EXPIRED, CRL_STANDS_VOID } crl_standing;

/* Lists a tag version as wanted, unless it is listed already. 0 without memory. */
int crl_tag_versions_want(crl_tag_versions *tag_versions, const void *name, size_t len);
int crl_tag_versions_want_all(crl_tag_versions *tag_versions, const crl_tags *tags);
const crl_tag_version *crl_tag_versions_find(const crl_tag_versions *tag_versions, const void *name,
                                             size_t len);
/* Reads all wanted tag versions: from near-tier copies not older than near_ms (0 or less: from
 * none), the others from the store, in one batch, by `deadline`. CORRAL_OK, or the first error. */
int crl_tag_versions_fetch(crl_context *context, crl_tag_versions *tag_versions, int64_t near_ms,
                           int64_t deadline, corral_error *error);
/* Performs operations of the caller's, and reads the wanted tag versions in the same batch. Each
 * tag version says how that went; without memory for them they stay wanted. */
void crl_tag_versions_perform(crl_context *context, crl_tag_versions *tag_versions, int64_t near_ms,
                              corral_op *ops, size_t count, int64_t deadline);
/* Wants those anew that could not be read. */
void crl_tag_versions_retry(crl_tag_versions *tag_versions);

/* Where tag versions may be read: from near-tier copies not older than near_ms (CRL_NEAR_ANY_AGE,
 * for a store that is away: of any age, though changes may have been missed), and from the store by
 * `deadline` (0: not from the store). */
typedef struct crl_tag_versions_source {
  int64_t near_ms, deadline;
} crl_tag_versions_source;

/* Reads and judges the tag versions of one record's tags, by its metadata (size 0: no tags).
 * CRL_STANDS_VOID also when a tag version can't be read, or when the tag of the whole namespace is
 * missing though each value carries it. */
crl_standing crl_tag_versions_standing(crl_context *context, const uint8_t *metadata,
                                       size_t metadata_len, const crl_tag_versions_source *source);
/* Judges a value with these tags; all their tag versions have been read. */
crl_standing crl_tag_versions_judge(const crl_tag_versions *tag_versions, const crl_tags *tags);
void crl_tag_versions_forget(crl_tag_versions *tag_versions);
void crl_tag_versions_clean(crl_tag_versions *tag_versions);

/* Sets the versions that a value remembers; its compute began at `began` (crl_env_now_ms;
 * CRL_SINCE_NOW: no change counts as later). `before`: the tag versions as known when it began;
 * other tag versions are read, and made where the store has none. CORRAL_ELOST: a tag was
 * invalidated since then, or may have been; else an error of the store. */
int crl_tag_versions_stamp(crl_context *context, crl_tags *tags, const crl_tag_versions *before,
                           int64_t began, corral_error *error);
/* Invalidates, or only expires, all values with a tag. */
int crl_tag_versions_change(crl_context *context, const void *name, size_t len, int only_expire,
                            corral_error *error);

#endif
