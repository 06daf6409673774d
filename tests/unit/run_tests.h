/* What the main of a unit program ends with. */
#ifndef FB_TESTS_RUN_TESTS_H
#define FB_TESTS_RUN_TESTS_H

#include "tests/unit/checks.h"

/* Runs the tests; what main returns. */
int run_tests(const char *name, TCase *tests);
/* The same for several cases. */
int run_suite(Suite *suite);

#endif
