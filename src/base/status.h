/* status.h: filling a corral_error. */
#ifndef CRL_STATUS_H
#define CRL_STATUS_H

#include <corral.h>
#include <stdarg.h>

/* Sets status and text (crl_print) of *error (may be NULL), zeroes the rest; returns status. */
int crl_status_fail(corral_error *error, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same, with the status's own text. */
int crl_status_plain(corral_error *error, int status);

#endif
