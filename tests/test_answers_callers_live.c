/* test_answers_callers_live.c: test_answers_callers.c on real servers. */
#define LIVE
#include "test_answers_callers.c"
