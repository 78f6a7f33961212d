/* test_set_live.c: test_set.c on real servers. */
#define LIVE
#include "test_set.c"
