#include "tests/unit/rules.h"
#include "core/rules/rule.h"

json_t *read_test_rule(const char *name) {
    json_t *all = json_load_file("tests/golden/rules.json", JSON_REJECT_DUPLICATES, NULL);
    json_t *rule = json_incref(json_object_get(all, name));
    json_decref(all);
    return rule;
}

static fb_status find_rule(void *context, const char *name, int version, const fb_pass **out, fb_error *error) {
    (void)context;
    json_t *document = version < 2 ? read_test_rule(name) : NULL;
    fb_rule *rule = NULL;
    fb_status status = document ? fb_rule_read(document, "", 1, &rule, error) : FB_OK;
    *out = rule ? fb_rule_pass(rule) : NULL;
    json_decref(document);
    return status;
}

const fb_pass_library test_rules = {.find = find_rule};
