#include "tests/unit/run_tests.h"

int run_tests(const char *name, TCase *tests) {
    Suite *suite = suite_create(name);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}

int run_suite(Suite *suite) {
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

int run_timed_suite(Suite *make(void)) {
    int failed = 1;
    for (int i = 0; i < 3 && failed; i++) failed = run_suite(make());
    return failed;
}
