/* text.h: durations, sizes and names of options as people write them. Pure. */
#ifndef CRL_TEXT_H
#define CRL_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Parses "500ms", "0.2s", "1h30m", or a bare number of `bare_ms` units. A part of a millisecond
 * counts as a whole one; what is too large is INT64_MAX. 0; -1: it is no duration. */
int crl_text_duration(const char *text, int64_t bare_ms, int64_t *ret);
/* Parses "4096", "64k", "1m" or "2g" into bytes; what is too large is INT64_MAX. 0; -1: it is no
 * size. */
int crl_text_size(const char *text, int64_t *ret);
/* Parses "0.1%", or a bare number of `bare_ppm` units, into millionths. A part of one counts as a
 * whole one; what is too large is INT64_MAX. 0; -1: it is no share. */
int crl_text_share(const char *text, int64_t bare_ppm, int64_t *ret);
/* Parses a whole number that isn't negative; what is too large is INT64_MAX. 0; -1: it is none. */
int crl_text_number(const char *text, int64_t *ret);

/* Write what the functions above parse into the same number; `room` has 32 bytes. */
const char *crl_text_show_duration(char room[32], int64_t ms);
const char *crl_text_show_size(char room[32], int64_t bytes);
const char *crl_text_show_share(char room[32], int64_t ppm);

/* True for equal names; '-' and '_' are the same. */
int crl_text_same_name(const char *a, const char *b);
/* Number of letters to insert, remove, replace or swap to turn one name into the other; large for
 * names of more than 31 letters. */
unsigned crl_text_distance(const char *a, const char *b);

#endif
