/* table.c: the cases: name, function, needs. */
#include "conformance.h"

#define CASE_ROW(name, needs) {#name, case_##name, needs},
const test_case test_cases[] = {CASES(CASE_ROW)};
#undef CASE_ROW

const size_t test_case_count = sizeof test_cases / sizeof *test_cases;
