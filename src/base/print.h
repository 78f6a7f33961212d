/* print.h: texts of a bounded length that show where something was left out. */
#ifndef CRL_PRINT_H
#define CRL_PRINT_H

#include <stdarg.h>
#include <stddef.h>

enum { CRL_PRINT_MOST = 1024 };

/* Copies a text. One that doesn't fit is shortened in the middle, where it has "..." then. `size`
 * is 8 at least. */
void crl_print_fit(char *to, size_t size, const char *text);

/* vsnprintf for messages: a text with a precision of digits (%.80s) that is longer, and a message
 * that doesn't fit, are shortened like that. %.*s is a part of a text, and stays as it is. */
void crl_print(char *to, size_t size, const char *format, va_list list)
    __attribute__((format(printf, 3, 0)));

#endif
