/* options.h: the rows of the tables of options, and their numbers as texts. Pure. */
#ifndef CRL_OPTIONS_H
#define CRL_OPTIONS_H

#include <corral/lock.h>

/* A row of CORRAL_POLICY_MAP, CORRAL_OPTION_MAP or CORRAL_LOCK_MAP. */
typedef struct crl_option {
  const char *field, *name, *unit;
  int64_t def, least, most;
} crl_option;

/* The rows in the order of the struct's fields, from *ret_at bytes of the struct on. */
const crl_option *crl_options_of_policy(size_t *ret_count, size_t *ret_at);
const crl_option *crl_options_of_corral(size_t *ret_count, size_t *ret_at);
const crl_option *crl_options_of_lock(size_t *ret_count, size_t *ret_at);

/* Writes a number as corral_policy_set takes it under the option's name ("5m", "off", "stale");
 * `room` has 32 bytes. */
const char *crl_option_show(const crl_option *option, int64_t number, char room[32]);

#endif
