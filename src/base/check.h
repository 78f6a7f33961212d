/* check.h: the invariants of structs with a life. Each such struct has one function `check`, called
 * under its mutex when a public function has locked it and before it unlocks it. Only builds for
 * tests (CORRAL_CHECKS) contain it: a broken invariant ends the process with its text. */
#ifndef CRL_CHECK_H
#define CRL_CHECK_H

#ifdef CORRAL_CHECKS
#include <stdio.h>
#include <stdlib.h>

#define CRL_CHECK(object) check(object)
/* By a check with another name: of a header, or a second one of its file. */
#define CRL_CHECK_BY(check_of, object) check_of(object)
/* "what" says in words what holds, as in "flight: only a lease is released". */
#define CRL_MUST(holds, what)                                                                      \
  do {                                                                                             \
    if (!(holds)) {                                                                                \
      fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, what);                            \
      abort();                                                                                     \
    }                                                                                              \
  } while (0)
/* Lists are followed for so many elements, so that a check stays cheap. */
enum { CRL_CHECK_MOST = 32 };
#else
#define CRL_CHECK(object) ((void)0)
#define CRL_CHECK_BY(check_of, object) ((void)0)
#endif

#endif
