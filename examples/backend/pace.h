/* pace.h: regions whose reports are to be expired, each at most once per pause.
 *
 * The first change of a region is due at once. After an expiry the region is at rest: changes that
 * come meanwhile are due, together, when its rest ends. So a report that changes all the time has
 * time to be computed, stored and served. One thread. */
#ifndef BACKEND_PACE_H
#define BACKEND_PACE_H

#include <stddef.h>
#include <stdint.h>

/* All reports, in the place of a region. */
#define PACE_ALL "*"

typedef struct pace pace;

/* NULL without memory. */
pace *pace_new(void);
/* NULL is allowed. */
void pace_free(pace *p);
/* Notes that a region has changed. A name that is no region's stands for all. 0: no memory. */
int pace_note(pace *p, const char *region);
/* Notes each region of a text from pace_text. 0: no memory. */
int pace_note_text(pace *p, const char *text);
/* A noted region that isn't at rest, valid until the next call; NULL: none. */
const char *pace_due(const pace *p, int64_t now_ms);
/* The region that pace_due returned has been expired, and rests for so long. */
void pace_expired(pace *p, const char *region, int64_t now_ms, int64_t rest_ms);
/* Moment at which a noted region is due; INT64_MAX: none is noted. */
int64_t pace_next(const pace *p);
/* Names of the noted regions, separated by spaces; to be freed. NULL without memory. */
char *pace_text(const pace *p);

#endif
