/* What the main of a unit program ends with. */
#ifndef FB_TESTS_RUN_TESTS_H
#define FB_TESTS_RUN_TESTS_H

#include "tests/unit/checks.h"

/* Runs the tests; what main returns. */
int run_tests(const char *name, TCase *tests);
/* The same for several cases. */
int run_suite(Suite *suite);
/* The same for tests that measure time, up to three times: what is too long is so each time, and what a busy machine (or the
 * host of a virtual one) has taken is not. The suite is made anew by `make`. */
int run_timed_suite(Suite *make(void));

#endif
