#include "tests/unit/rules.h"
#include "core/rules/rule.h"

#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/documents.h"

const char *const rule_names[] = {"AddInsteadOfMultiply", "AddInverseOfInverse",
                                  "CatPairToStack",       "DivisionToMultiplication",
                                  "DoubleTheDoubles",     "FuseSilu",
                                  "GeluForRelu",          "LeakyForRelu",
                                  "OwnForRelu",           "NegateTwice",
                                  "RemoveMinusZero",      "RemoveOverOne",
                                  "RemovePlusZero",       "RemoveTimesOne",
                                  "ScaleByWidth",         "ScaleIntoLinear",
                                  "SinCosOnce",           NULL};

static fb_status find_rule(void *context, const char *name, int version, const fb_pass **out, fb_error *error) {
    (void)context;
    fb_buffer path = {0};
    fb_buffer_printf(&path, "tests/golden/rules/_rules/%s.json", name);
    size_t size;
    bool is_there = fb_buffer_text(&path) && version < 2 && access(path.data, R_OK) == 0;
    char *text = is_there ? read_file(path.data, &size) : NULL;
    json_t *document = text ? json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL) : NULL;
    *out = NULL;
    fb_rule *rule = NULL;
    fb_status status = text && !document ? fb_fail_memory(error) : FB_OK;
    if (document) status = fb_rule_read(document, "", 1, &rule, error);
    if (rule) *out = fb_rule_pass(rule);
    json_decref(document);
    free(text);
    fb_buffer_free(&path);
    return status;
}

const fb_pass_library test_rules = {.find = find_rule};
