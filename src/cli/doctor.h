/* doctor.h: the two examinations of corral doctor: of a store, which is the library's, and of the
 * host, which is here. */
#ifndef CORRAL_CLI_DOCTOR_H
#define CORRAL_CLI_DOCTOR_H

#include "cli.h"

/* Where facts go: to `tell`, about `server`, which is "" for the host itself. */
typedef struct doctor_facts {
  corral_fact_fn *tell;
  void *arg;
  const char *server;
} doctor_facts;

/* Tells a fact. `advice`: one sentence; NULL: the fact is a plain one, whatever the verdict. */
__attribute__((format(printf, 5, 6))) void doctor_tell(const doctor_facts *facts, const char *name,
                                                       int verdict, const char *advice,
                                                       const char *format, ...);

/* doctor_host.c: limits, clocks, shared memory and processors of this host. */
void doctor_host(const doctor_facts *facts);
/* doctor_counts.c: which processes of the host use corral, and what their counts say. False: it was
 * reported why they can't be read. */
bool doctor_counts(const doctor_facts *facts, const char *folder);

#endif
