/* test_answers_live.c: test_answers.c on real servers. */
#define LIVE
#include "test_answers.c"
