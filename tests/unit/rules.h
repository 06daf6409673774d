/* The rules of tests/golden/rules/_rules. */
#ifndef FB_TESTS_RULES_H
#define FB_TESTS_RULES_H

#include "core/compose/composition.h"

extern const char *const rule_names[]; /* NULL-terminated */

/* All of them in their first version. */
extern const fb_pass_library test_rules;

#endif
