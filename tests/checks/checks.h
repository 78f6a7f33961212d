/* checks.h: stories that break the invariants of structs with a life (base/check.h). Each file of
 * this folder has those of one struct, and includes its source where nobody else reaches what it
 * breaks. */
#ifndef CHECKS_H
#define CHECKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Runs a story in a child; it must abort, and say this. */
void breaks(void (*story)(int), int which, const char *says);

void of_the_cancel_token(void **state);
void of_the_due(void **state);
void of_the_flight(void **state);
void of_the_heap(void **state);
void of_the_herd(void **state);
void each_function_of_the_herd_checks(void **state);
void of_the_hot_keys(void **state);
void of_the_limbo(void **state);
void of_the_limiter(void **state);
void of_the_lock_steps(void **state);
void of_the_locks(void **state);
void of_the_looks(void **state);
void of_the_loop(void **state);
void of_the_near_tier(void **state);
void of_the_notifier(void **state);
void of_stats_files(void **state);
void of_the_outbox(void **state);
void of_the_quota(void **state);
void of_the_renewer(void **state);
void of_the_scheduler(void **state);
void of_the_server(void **state);
void of_the_table(void **state);
void of_the_tag_memory(void **state);
void of_the_task(void **state);
void of_the_timers(void **state);
void of_the_watch(void **state);
void of_the_workers(void **state);

#endif
