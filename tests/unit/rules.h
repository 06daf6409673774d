/* The rules of tests/golden/rules.json. */
#ifndef FB_TESTS_RULES_H
#define FB_TESTS_RULES_H

#include <jansson.h>

#include "core/compose/composition.h"

/* The rule with that name; NULL if there is none, or without memory. To be released with json_decref. */
json_t *read_test_rule(const char *name);

/* All of them in their first version. */
extern const fb_pass_library test_rules;

#endif
