/* test_answers_near_live.c: test_answers_near.c on real servers. */
#define LIVE
#include "test_answers_near.c"
