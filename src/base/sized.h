/* sized.h: structs of the public headers that may grow. Their first member is their size, as the
 * caller's header has it. Source of the rule: openat2(2). */
#ifndef CRL_SIZED_H
#define CRL_SIZED_H

#include <corral.h>

/* Checks a struct of which this library knows `known` bytes. CORRAL_EINVAL: its size isn't set;
 * CORRAL_EOPTION: something beyond `known` isn't zero. `name` is the struct's, for the texts. */
int crl_sized_check(const void *user, size_t known, const char *name, corral_error *error);
/* crl_sized_check, then a copy to *ret, of `known` bytes: zeroes beyond the end of a shorter
 * struct. */
int crl_sized_read(void *ret, const void *user, size_t known, const char *name,
                   corral_error *error);
/* Fills a struct of the user's from `known` bytes at `from`: all of its size, with zeroes beyond
 * `known`. Its size stays. */
void crl_sized_write(void *user, const void *from, size_t known);

#endif
