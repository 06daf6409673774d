/* Rules as data: what is refused when they are read, and that they do what the passes do that they restate. */
#include "tests/unit/checks.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/run.h"
#include "core/document/document.h"
#include "core/rules/rule.h"
#include "tests/unit/chaos.h"
#include "tests/unit/documents.h"
#include "tests/unit/evaluate.h"
#include "tests/unit/generator.h"
#include "tests/unit/rules.h"
#include "tests/unit/run_tests.h"

static json_t *json_of(const char *text) {
    json_error_t error;
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    ck_assert_msg(json != NULL, "%s: %s", error.text, text);
    return json;
}

static fb_status read_rule(const char *text, fb_rule **out, fb_error *error) {
    json_t *json = json_of(text);
    fb_status status = fb_rule_read(json, "/rule", 1, out, error);
    if (!status) status = fb_rule_check(*out, error);
    json_decref(json);
    if (status) {
        fb_rule_free(*out);
        *out = NULL;
    }
    return status;
}

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

#define RULE(pattern, rest) "{\"name\": \"R\", \"exactness\": \"changes\", \"pattern\": " pattern ", " rest "}"
#define MUL "{\"operator\": \"mul\", \"args\": [\"?a\", \"?b\"], \"as\": \"?y\"}"
#define BECOMES(term) "\"replacement\": {\"?y\": " term "}"
#define ADD BECOMES("{\"operator\": \"add\", \"args\": [\"?a\", \"?b\"]}")
#define WHERE(condition) RULE(MUL, "\"conditions\": [" condition "], " ADD)

static const struct {
    const char *rule, *code, *pointer;
} wrong[] = {
    {"[]", "wrong-type", ""},
    {"{}", "missing-member", ""},
    {"{\"name\": \"1\"}", "bad-name", "/name"},
    {"{\"name\": \"a b\"}", "bad-name", "/name"},
    {"{\"name\": 1}", "wrong-type", "/name"},
    {"{\"name\": \"R\", \"colour\": 1}", "unknown-member", "/colour"},
    {"{\"name\": \"R\"}", "missing-member", ""},
    {"{\"name\": \"R\", \"exactness\": \"exact\"}", "bad-exactness", "/exactness"},
    {"{\"name\": \"R\", \"exactness\": \"moves\", \"preserves_computation\": false}", "contradictory-exactness",
     "/preserves_computation"},
    {"{\"name\": \"R\", \"exactness\": \"moves\"}", "missing-member", "/pattern"},
    {RULE("[]", ADD), "binds-nothing", "/pattern"},
    {RULE("7", ADD), "wrong-type", "/pattern"},
    {RULE("{}", ADD), "missing-member", "/pattern"},
    {RULE("{\"operator\": []}", ADD), "binds-nothing", "/pattern/operator"},
    {RULE("{\"operator\": \"mull\"}", ADD), "unknown-operator", "/pattern/operator"},
    {RULE("{\"operator\": [\"mul\", \"add_\"]}", ADD), "has-effects", "/pattern/operator/1"},
    {RULE("{\"operator\": \"mul\", \"target\": \"torch.mul\"}", ADD), "missing-member", "/pattern"},
    {RULE("{\"target\": \"import os; x\"}", ADD), "bad-target", "/pattern/target"},
    {RULE("{\"operator\": \"mul\", \"args\": [1, 2, 3]}", ADD), "unknown-parameter", "/pattern/args/2"},
    {RULE("{\"operator\": \"mul\", \"kwargs\": {\"dim\": 1}}", ADD), "unknown-parameter", "/pattern/kwargs/dim"},
    {RULE("{\"operator\": \"mul\", \"args\": [1, 2], \"kwargs\": {\"other\": 1}}", ADD), "duplicate-parameter",
     "/pattern/kwargs/other"},
    {RULE("{\"target\": \"f\", \"kwargs\": {\"class\": 1}}", ADD), "bad-keyword", "/pattern/kwargs/class"},
    {RULE("{\"operator\": \"mul\", \"args\": [\"?1\", 2]}", ADD), "bad-variable", "/pattern/args/0"},
    {RULE("{\"operator\": \"mul\", \"args\": [\"?a\", {\"$node\": \"x\"}]}", ADD), "bad-value", "/pattern/args/1"},
    {RULE("{\"operator\": \"mul\", \"args\": [\"?a\", {\"$float\": \"one\"}], \"as\": \"?y\"}", BECOMES("\"?a\"")), "bad-value",
     "/pattern/args/1/$float"},
    {RULE("{\"operator\": \"mul\", \"args\": [\"?a\", [1, {\"x\": [\"?b\"]}]]}", ADD), "bad-value", "/pattern/args/1/1"},
    {RULE("{\"operator\": \"mul\", \"args\": [\"?a\", {\"compute\": \"1\"}]}", ADD), "bad-pattern", "/pattern/args/1/compute"},
    {RULE("{\"operator\": \"mul\", \"args\": [\"?a\", {\"optional\": \"?b\"}]}", ADD), "bad-pattern",
     "/pattern/args/1/optional"},
    {RULE("{\"operator\": \"sub\", \"args\": [\"?a\", \"?b\"], \"any_order\": true}", ADD), "not-commutative",
     "/pattern/any_order"},
    {RULE("{\"operator\": \"neg\", \"args\": [\"?y\"], \"as\": \"?y\"}", ADD), "duplicate-variable", "/pattern/as"},
    {RULE("[" MUL ", {\"operator\": \"neg\", \"args\": [\"?c\"]}]", ADD), "unconnected-root", "/pattern/1"},
    {RULE(MUL, "\"conditions\": 1, " ADD), "wrong-type", "/conditions"},
    {WHERE("{\"users\": 1}"), "missing-member", "/conditions/0"},
    {WHERE("{\"of\": \"?a\"}"), "missing-member", "/conditions/0"},
    {WHERE("{\"of\": \"?z\", \"users\": 1}"), "unbound-variable", "/conditions/0/of"},
    {WHERE("{\"of\": \"?a\", \"users\": \"1\"}"), "wrong-type", "/conditions/0/users"},
    {WHERE("{\"of\": \"?a + 1\", \"users\": 1}"), "bad-condition", "/conditions/0/users"},
    {WHERE("{\"of\": \"?a +\", \"equals\": 1}"), "bad-expression", "/conditions/0/of"},
    {WHERE("{\"of\": \"?a\", \"dtype\": [\"float32\", \"float33\"]}"), "unknown-dtype", "/conditions/0/dtype/1"},
    {WHERE("{\"of\": \"?a\", \"shape\": [1, -1]}"), "wrong-type", "/conditions/0/shape/1"},
    {WHERE("{\"of\": \"?a\", \"same_shape\": \"?z\"}"), "unbound-variable", "/conditions/0/same_shape"},
    {WHERE("{\"of\": \"?a\", \"kind\": \"loop\"}"), "bad-condition", "/conditions/0/kind"},
    {WHERE("{\"of\": \"?a\", \"equals\": 1, \"reason\": \"Not good\"}"), "bad-reason", "/conditions/0/reason"},
    {RULE(MUL, "\"once\": 1, " ADD), "wrong-type", "/once"},
    {"{\"name\": \"R\", \"exactness\": \"moves\", \"pattern\": " MUL "}", "missing-member", ""},
    {RULE(MUL, "\"replacement\": {}"), "replaces-nothing", "/replacement"},
    {RULE(MUL, BECOMES("\"?y\"")), "replaces-nothing", "/replacement/?y"},
    {RULE(MUL, "\"replacement\": {\"?a\": \"?b\"}"), "not-a-root", "/replacement/?a"},
    {RULE(MUL, "\"replacement\": {\"?z\": \"?b\"}"), "unbound-variable", "/replacement/?z"},
    {RULE(MUL, BECOMES("\"?z\"")), "unbound-variable", "/replacement/?y"},
    {RULE(MUL, BECOMES("7")), "wrong-type", "/replacement/?y"},
    {RULE(MUL, BECOMES("{\"operator\": \"add\", \"args\": [\"?a\", \"?\"]}")), "unbound-variable", "/replacement/?y/args/1"},
    {RULE(MUL, BECOMES("{\"operator\": \"add\", \"args\": [\"?a\", {\"compute\": \"1 / ?z\"}]}")), "unbound-variable",
     "/replacement/?y/args/1/compute"},
    {RULE(MUL, BECOMES("{\"operator\": \"add\", \"args\": [\"?a\", {\"compute\": \"(1\"}]}")), "bad-expression",
     "/replacement/?y/args/1/compute"},
    {RULE(MUL, BECOMES("{\"operator\": \"add\", \"args\": [\"?a\"], \"as\": \"?z\"}")), "unknown-member", "/replacement/?y/as"},
    {RULE(MUL, BECOMES("{\"operator\": \"relu_\", \"args\": [\"?a\"]}")), "has-effects", "/replacement/?y/operator"},
    {RULE(MUL, BECOMES("{\"target\": {\"method\": \"add_\"}, \"args\": [\"?a\"]}")), "has-effects",
     "/replacement/?y/target/method"},
    {RULE(MUL, BECOMES("{\"target\": {\"jax\": \"add\"}}")), "unknown-member", "/replacement/?y/target/jax"},
    {RULE(MUL, "\"replacement\": {\"let\": [{\"operator\": \"neg\", \"args\": [\"?a\"]}], \"?y\": \"?a\"}"), "missing-member",
     "/replacement/let/0"},
    {RULE(MUL, "\"replacement\": {\"weights\": {\"?a\": {\"weight\": \"?a.weight * 2\"}}, \"?y\": \"?a\"}"), "not-a-layer",
     "/replacement/weights/?a"},
    {RULE(MUL, "\"replacement\": {\"weights\": {\"?y\": {\"gain\": \"1\"}}, \"?y\": \"?a\"}"), "unknown-member",
     "/replacement/weights/?y/gain"},
    {RULE(MUL, "\"replacement\": {\"weights\": {\"?y\": {\"weight\": \"exp(?y.weight)\"}}, \"?y\": \"?a\"}"), "bad-expression",
     "/replacement/weights/?y/weight"},
    {RULE(MUL, "\"replacement\": {\"weights\": {\"?y\": {\"weight\": \"2\"}}, \"?y\": \"?a\"}"), "bad-expression",
     "/replacement/weights/?y/weight"},
    {RULE(MUL, BECOMES("{\"operator\": \"add\", \"args\": [\"?a\", {\"compute\": \"?a.weight\"}]}")), "bad-expression",
     "/replacement/?y/args/1/compute"},
    /* What makes what it matches. */
    {RULE("{\"operator\": \"linear\", \"args\": [\"?x\"], \"as\": \"?l\"}",
          "\"replacement\": {\"weights\": {\"?l\": {\"weight\": \"?l.weight * 2\"}}}"),
     "rule-loops", "/replacement"},
    {RULE(MUL, BECOMES("{\"operator\": \"mul\", \"args\": [\"?b\", \"?a\"]}")), "rule-loops", "/replacement/?y"},
    {RULE(MUL, BECOMES("{\"target\": \"torch.mul\", \"args\": [\"?b\", \"?a\"]}")), "rule-loops", "/replacement/?y"},
    {RULE(MUL, BECOMES("{\"operator\": \"neg\", \"args\": [{\"operator\": \"mul\", \"args\": [1, \"?a\"]}]}")), "rule-loops",
     "/replacement/?y"},
    {RULE("{\"operator\": \"mul\", \"args\": [\"?a\", 2], \"as\": \"?y\"}",
          BECOMES("{\"operator\": \"mul\", \"args\": [\"?a\", {\"compute\": \"4 / 2\"}]}")),
     "rule-loops", "/replacement/?y"},
    {RULE(MUL, "\"replacement\": {\"let\": [{\"operator\": \"mul\", \"args\": [\"?a\", 1], \"as\": \"?z\"}], \"?y\": \"?z\"}"),
     "rule-loops", "/replacement/let/0"},
    /* Calls that are none. */
    {RULE("{\"operator\": \"add\", \"args\": [\"?x\"], \"as\": \"?y\"}", BECOMES("\"?x\"")), "missing-argument", "/pattern"},
    {RULE("{\"operator\": \"neg\", \"args\": [{\"operator\": \"gelu\"}], \"as\": \"?y\"}",
          BECOMES("{\"operator\": \"add\", \"args\": [1, 2]}")),
     "missing-argument", "/pattern/args/0"},
    {RULE("{\"operator\": [\"linear\", \"mm\"], \"args\": [\"?x\"], \"as\": \"?y\"}", BECOMES("\"?x\"")), "missing-argument",
     "/pattern"},
    {RULE("{\"target\": [\"torch.neg\", \"torch.mul\"], \"args\": [\"?x\"], \"as\": \"?y\"}", BECOMES("\"?x\"")),
     "missing-argument", "/pattern"},
    {RULE("{\"operator\": \"softmax\", \"args\": [\"?x\", 1, 3], \"kwargs\": {\"half_to_float\": false}, \"as\": \"?y\"}",
          BECOMES("\"?x\"")),
     "unknown-parameter", "/pattern/kwargs/half_to_float"},
    {RULE("{\"operator\": \"elu\", \"args\": [\"?x\"], \"kwargs\": {\"inplace\": false, \"scale\": 1}, \"as\": \"?y\"}",
          BECOMES("\"?x\"")),
     "unknown-parameter", "/pattern"},
    {RULE(MUL, BECOMES("{\"operator\": \"add\", \"args\": [\"?a\"]}")), "missing-argument", "/replacement/?y"},
    {RULE(MUL, BECOMES("{\"operator\": \"gelu\"}")), "missing-argument", "/replacement/?y"},
    {RULE(MUL, BECOMES("{\"operator\": \"linear\", \"args\": [\"?a\"]}")), "missing-argument", "/replacement/?y"},
    {RULE(MUL, BECOMES("{\"operator\": \"neg\", \"args\": [{\"operator\": \"view\", \"args\": [\"?a\"]}]}")),
     "missing-argument", "/replacement/?y/args/0"},
    {RULE(MUL, BECOMES("{\"target\": {\"torch\": \"torch.add\", \"method\": \"add\"}, \"args\": [\"?a\"]}")),
     "missing-argument", "/replacement/?y"},
    {RULE(MUL, BECOMES("{\"target\": {\"method\": \"add\"}, \"args\": [\"?a\"]}")), "missing-argument", "/replacement/?y"},
    {RULE(MUL, "\"replacement\": {\"let\": [{\"operator\": \"pow\", \"args\": [\"?a\"], \"as\": \"?z\"}], \"?y\": \"?z\"}"),
     "missing-argument", "/replacement/let/0"},
    /* Calls that PyTorch lacks, whatever the variables are. */
    {RULE(MUL, BECOMES("{\"target\": \"torch.maximum\", \"args\": [\"?a\", 0]}")), "no-such-call", "/replacement/?y"},
    {RULE(MUL, BECOMES("{\"operator\": \"maximum\", \"args\": [\"?a\", 0]}")), "no-such-call", "/replacement/?y"},
    {RULE(MUL, BECOMES("{\"target\": {\"method\": \"add\"}, \"args\": [2, \"?a\"]}")), "no-such-call", "/replacement/?y"},
    {RULE(MUL, BECOMES("{\"target\": {\"torch\": \"torch.add\", \"method\": \"add\"}, \"args\": [2, \"?a\"]}")), "no-such-call",
     "/replacement/?y"},
    {RULE(MUL, BECOMES("{\"target\": \"torch.ops.aten.div.Tensor\", \"args\": [\"?a\", \"two\"]}")), "no-such-call",
     "/replacement/?y"},
    {RULE(MUL, BECOMES("{\"target\": \"torch.nn.functional.softmax\", \"args\": [\"?a\", \"rows\"]}")), "no-such-call",
     "/replacement/?y"},
    {RULE(MUL, BECOMES("{\"target\": \"torch.nn.functional.leaky_relu\", \"args\": [\"?a\", [0.1]]}")), "no-such-call",
     "/replacement/?y"},
    {RULE(MUL, BECOMES("{\"operator\": \"neg\", \"args\": [{\"target\": \"torch.nn.functional.normalize\", \"args\": [\"?a\"], "
                       "\"kwargs\": {\"p\": \"2\"}}]}")),
     "no-such-call", "/replacement/?y/args/0"},
    {RULE(MUL, "\"replacement\": {\"let\": [{\"target\": \"torch.split\", \"args\": [\"?a\", \"2\"], \"as\": \"?z\"}], "
               "\"?y\": \"?z\"}"),
     "no-such-call", "/replacement/let/0"},
    /* Conditions that never hold. */
    {WHERE("{\"of\": \"?b\", \"at_least\": 3, \"below\": 3}"), "never-holds", "/conditions/0"},
    {WHERE("{\"of\": \"?b\", \"above\": 3}, {\"of\": \"?b\", \"equals\": 3}"), "never-holds", "/conditions/1"},
    {WHERE("{\"of\": \"?b\", \"not_equals\": 3}, {\"of\": \"?b\", \"equals\": 3}"), "never-holds", "/conditions/1"},
    {WHERE("{\"of\": \"1 / ?b\", \"below\": 3}, {\"of\": \"?b\", \"is_integer\": true}, {\"of\": \"1 / ?b\", \"above\": 3}"),
     "never-holds", "/conditions/2"},
    {WHERE("{\"of\": \"?b\", \"equals\": 0.5}, {\"of\": \"?b\", \"is_integer\": true}"), "never-holds", "/conditions/1"},
    {WHERE("{\"of\": \"?a\", \"users\": {\"at_least\": 2, \"at_most\": 1}}"), "never-holds", "/conditions/0"},
    {WHERE("{\"of\": \"?a\", \"rank\": 2}, {\"of\": \"?a\", \"shape\": [1, null, 3]}"), "never-holds", "/conditions/1"},
    {WHERE("{\"of\": \"?a\", \"shape\": [1, 2]}, {\"of\": \"?a\", \"shape\": [null, 3]}"), "never-holds", "/conditions/1"},
    {WHERE("{\"of\": \"?a\", \"dtype\": \"floating\"}, {\"of\": \"?a\", \"dtype\": \"int64\"}"), "never-holds",
     "/conditions/1"},
    {WHERE("{\"of\": \"?a\", \"dtype\": []}"), "never-holds", "/conditions/0"},
    {WHERE("{\"of\": \"?a\", \"is_output\": true}, {\"of\": \"?a\", \"is_output\": false}"), "never-holds", "/conditions/1"},
    {WHERE("{\"of\": \"?a\", \"kind\": \"constant\"}, {\"of\": \"?a\", \"users\": 1}"), "never-holds", "/conditions/1"},
    {WHERE("{\"of\": \"?a\", \"kind\": \"get_attr\"}, {\"of\": \"?a\", \"kind\": \"placeholder\"}"), "never-holds",
     "/conditions/1"},
    {WHERE("{\"of\": \"?y\", \"kind\": \"placeholder\"}"), "never-holds", "/conditions/0"},
    {WHERE("{\"of\": \"?y\", \"equals\": 1}"), "never-holds", "/conditions/0"},
    {WHERE("{\"of\": \"?b\", \"equals\": 1}, {\"of\": \"?b\", \"rank\": 0}"), "never-holds", "/conditions/1"},
    {RULE(MUL, BECOMES("{\"operator\": \"add\", \"args\": [\"?a\", {\"compute\": \"1 / ?y\"}]}")), "never-holds", "/pattern"},
};

START_TEST(test_wrong_rules) {
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fb_rule *rule = NULL;
        fb_error error = {0};
        fb_status status = read_rule(wrong[i].rule, &rule, &error);
        ck_assert_msg(status == FB_INVALID && !rule, "taken: %s", wrong[i].rule);
        ck_assert(strncmp(error.pointer, "/rule", 5) == 0);
        ck_assert_msg(strcmp(error.code, wrong[i].code) == 0 && strcmp(error.pointer + 5, wrong[i].pointer) == 0,
                      "%s at \"%s\" (%s) for %s", error.code, error.pointer, error.message, wrong[i].rule);
    }
}
END_TEST

static const char *const right[] = {
    RULE(MUL, ADD),
    /* These look as if they could match again, and cannot. */
    RULE("{\"operator\": \"mul\", \"args\": [\"?a\", 2], \"as\": \"?y\"}",
         BECOMES("{\"operator\": \"mul\", \"args\": [\"?a\", 4]}")),
    RULE("{\"operator\": \"mul\", \"args\": [\"?a\", \"?b\"], \"as\": \"?y\"}",
         "\"conditions\": [{\"of\": \"?b\", \"below\": 3}], " BECOMES("{\"operator\": \"mul\", \"args\": [\"?a\", 4]}")),
    RULE("{\"operator\": \"neg\", \"args\": [{\"operator\": \"neg\", \"args\": [\"?a\"]}], \"as\": \"?y\"}",
         BECOMES("{\"operator\": \"neg\", \"args\": [\"?a\"]}")),
    RULE("{\"target\": \"torch.mul\", \"args\": [\"?a\", \"?b\"], \"as\": \"?y\"}",
         BECOMES("{\"target\": \"torch.multiply\", \"args\": [\"?a\", \"?b\"]}")),
    RULE(MUL, "\"once\": true, " BECOMES("{\"operator\": \"mul\", \"args\": [\"?b\", \"?a\"]}")),
    /* Calls that PyTorch has for some values of the variables, or in one spelling at least. */
    RULE(MUL, BECOMES("{\"operator\": \"maximum\", \"args\": [\"?a\", \"?b\"]}")),
    RULE(MUL, BECOMES("{\"operator\": \"add\", \"args\": [2, \"?a\"]}")),
    RULE(MUL, BECOMES("{\"operator\": \"permute\", \"args\": [\"?a\", [1, \"?b\"]]}")),
    RULE(MUL, BECOMES("{\"target\": \"permute\", \"args\": [\"?a\", 1, \"?b\"]}")),
    RULE(MUL, BECOMES("{\"target\": \"torch.nn.functional.softmax\", \"args\": [\"?a\", {\"compute\": \"1 / (?b - 1)\"}]}")),
    RULE(MUL,
         BECOMES("{\"target\": \"torch.nn.functional.leaky_relu\", \"args\": [\"?a\", 1], \"kwargs\": {\"inplace\": false}}")),
    RULE(MUL, BECOMES("{\"target\": \"my.own.function\", \"args\": [\"?a\", \"text\"]}")),
    RULE(MUL, BECOMES("{\"operator\": \"elu\", \"args\": [\"?a\"], \"kwargs\": {\"scale\": 2}}")),
    /* Calls that are complete in one spelling at least, and conditions that can hold together. */
    RULE("{\"operator\": [\"linear\", \"conv2d\"], \"args\": [\"?x\"], \"as\": \"?y\"}", BECOMES("\"?x\"")),
    RULE("{\"operator\": [\"div\", \"true_divide\"], \"args\": [\"?a\", \"?b\"], "
         "\"kwargs\": {\"rounding_mode\": {\"optional\": null}}, \"as\": \"?y\"}",
         ADD),
    RULE("{\"operator\": \"mul\", \"kwargs\": {\"input\": \"?a\", \"other\": \"?b\"}, \"as\": \"?y\"}", ADD),
    RULE("{\"operator\": \"where\", \"args\": [\"?a\", \"?b\"], \"as\": \"?y\"}", ADD),
    RULE("{\"target\": \"my.mul\", \"args\": [\"?a\"], \"as\": \"?y\"}", BECOMES("{\"target\": \"my.add\"}")),
    RULE(MUL, BECOMES("{\"target\": \"torch.arange\", \"kwargs\": {\"end\": 3}}")),
    RULE(MUL, BECOMES("{\"operator\": \"view\", \"args\": [\"?a\", [2, 3]]}")),
    WHERE("{\"of\": \"?b\", \"at_least\": 3, \"at_most\": 3}, {\"of\": \"?b\", \"is_integer\": true, \"not_equals\": 4}"),
    WHERE("{\"of\": \"?a\", \"shape\": [1, null]}, {\"of\": \"?a\", \"shape\": [null, 3], \"rank\": {\"at_most\": 2}}"),
    WHERE("{\"of\": \"?a\", \"users\": 1}, {\"of\": \"?b\", \"users\": 2}, {\"of\": \"?y\", \"kind\": \"call_module\"}"),
};

START_TEST(test_right_rules) {
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        fb_rule *rule = NULL;
        fb_error error = {0};
        ck_assert_msg(read_rule(right[i], &rule, &error) == FB_OK, "%s at %s for %s", error.message, error.pointer, right[i]);
        fb_rule_free(rule);
    }
}
END_TEST

/* The order of members is no part of a rule, what they say is. */
START_TEST(test_digest) {
    fb_rule *one = NULL, *two = NULL, *three = NULL;
    ck_assert_int_eq(read_rule(RULE(MUL, ADD), &one, NULL), FB_OK);
    ck_assert_int_eq(read_rule("{" ADD ", \"pattern\": " MUL ", \"exactness\": \"changes\", \"name\": \"R\"}", &two, NULL),
                     FB_OK);
    ck_assert_int_eq(read_rule(RULE(MUL, "\"description\": \"another\", " ADD), &three, NULL), FB_OK);
    ck_assert_str_eq(fb_rule_pass(one)->digest, fb_rule_pass(two)->digest);
    ck_assert_str_ne(fb_rule_pass(one)->digest, fb_rule_pass(three)->digest);
    ck_assert_str_eq(fb_rule_document(one), fb_rule_document(two));
    fb_rule_free(one);
    fb_rule_free(two);
    fb_rule_free(three);
}
END_TEST

/* ---- compositions ------------------------------------------------------------------------------------------------------- */

static fb_composition composition_of(const char *list) {
    fb_composition composition;
    fb_error error = {0};
    json_t *json = json_of(list);
    ck_assert_msg(fb_composition_read(json, "", &test_rules, &composition, &error) == FB_OK, "%s", error.message);
    json_decref(json);
    return composition;
}

START_TEST(test_compositions_name_rules) {
    fb_composition first = composition_of("[\"FuseSilu\", [\"MergeLinears\", {\"name\": \"FuseSilu\", \"version\": 1}]]");
    fb_buffer text = {0};
    fb_composition_write(&first, &text);
    fb_composition again = composition_of(fb_buffer_text(&text));
    ck_assert_uint_eq(first.count, 3);
    ck_assert_str_eq(first.signature, again.signature);
    ck_assert_str_eq(first.calls[0].signature, first.calls[2].signature);
    ck_assert(first.reversible && first.preserves_computation);
    fb_composition_free(&first);
    fb_composition_free(&again);
    fb_buffer_free(&text);
}
END_TEST

START_TEST(test_compositions_refuse_rules) {
    static const char *const lists[][3] = {
        {"[\"NoSuchRule\"]", "unknown-pass", "/0"},
        {"[{\"name\": \"FuseSilu\", \"version\": 2}]", "unknown-version", "/0/version"},
        {"[{\"name\": \"FuseSilu\", \"params\": {\"a\": 1}}]", "unknown-parameter", "/0/params/a"},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        fb_composition composition;
        fb_error error = {0};
        json_t *json = json_of(lists[i][0]);
        ck_assert_int_eq(fb_composition_read(json, "", &test_rules, &composition, &error), FB_INVALID);
        ck_assert_str_eq(error.code, lists[i][1]);
        ck_assert_str_eq(error.pointer, lists[i][2]);
        json_decref(json);
    }
}
END_TEST

/* ---- what they do ------------------------------------------------------------------------------------------------------- */

static void structure_after(const fb_graph *graph, const char *list, char id[FB_ID_LENGTH + 1], size_t *applied) {
    fb_composition composition = composition_of(list);
    fb_run run;
    fb_error error = {0};
    ck_assert_msg(fb_composition_run(&composition, graph, FB_LINT_END, NULL, &run, &error) == FB_OK, "%s", error.message);
    ck_assert(fb_document_structure(run.result, id));
    *applied = run.passes[0].applied;
    fb_run_free(&run);
    fb_composition_free(&composition);
}

/* The pass in C, in the version that asked for a floating tensor, and the rule that says the same. */
START_TEST(test_division_like_the_pass) {
    DIR *folder = opendir("build/golden/ChangeTrueDivToMulByInverse");
    ck_assert_ptr_nonnull(folder);
    size_t cases = 0, changed = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        char *path = NULL;
        ck_assert_int_gt(asprintf(&path, "build/golden/ChangeTrueDivToMulByInverse/%s/before.json", entry->d_name), 0);
        size_t size, by_pass, by_rule;
        char *text = read_file(path, &size), expected[FB_ID_LENGTH + 1], id[FB_ID_LENGTH + 1];
        fb_graph *graph = graph_of(text, size);
        structure_after(graph, "[{\"name\": \"ChangeTrueDivToMulByInverse\", \"version\": 1}]", expected, &by_pass);
        structure_after(graph, "[\"DivisionToMultiplication\"]", id, &by_rule);
        ck_assert_msg(by_pass == by_rule, "%s: %zu by the pass, %zu by the rule", entry->d_name, by_pass, by_rule);
        ck_assert_msg(strcmp(expected, id) == 0, "%s: the rule gives another graph", entry->d_name);
        cases++;
        changed += by_pass > 0;
        fb_graph_free(graph);
        free(text);
        free(path);
    }
    closedir(folder);
    ck_assert_uint_gt(cases, 40);
    ck_assert_uint_gt(changed, 15);
}
END_TEST

/* Random graphs: valid afterwards, and the same is computed. */
START_TEST(test_random_graphs) {
    fb_composition composition =
        composition_of("[\"RemovePlusZero\", \"RemoveMinusZero\", \"RemoveTimesOne\", \"RemoveOverOne\", "
                       "\"NegateTwice\", \"FuseSilu\", \"DivisionToMultiplication\"]");
    size_t applied = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        fb_buffer text = {0}, why = {0};
        generate_document(seed, &text);
        fb_graph *graph = graph_of(text.data, text.size);
        fb_run run;
        fb_error error = {0};
        ck_assert_msg(fb_composition_run(&composition, graph, FB_LINT_EACH, NULL, &run, &error) == FB_OK, "seed %lu: %s",
                      (unsigned long)seed, error.message);
        for (size_t i = 0; i < run.count; i++) applied += run.passes[i].applied;
        evaluation before, after;
        evaluate(graph, seed, &before);
        evaluate(run.result, seed, &after);
        ck_assert_msg(evaluations_agree(&before, &after, 1e-9, &why), "seed %lu: %s", (unsigned long)seed,
                      fb_buffer_text(&why));
        evaluation_free(&before);
        evaluation_free(&after);
        fb_run_free(&run);
        fb_graph_free(graph);
        fb_buffer_free(&text);
        fb_buffer_free(&why);
    }
    ck_assert_uint_gt(applied, 20);
    fb_composition_free(&composition);
}
END_TEST

/* ---- memory runs out ---------------------------------------------------------------------------------------------------- */

static char last_code[48]; /* of a failure */

/* The id after the rule, of a graph on which it does something. */
static fb_status read_and_apply(const json_t *document, const fb_graph *source, char id[FB_ID_LENGTH + 1]) {
    fb_rule *rule = NULL;
    fb_error error = {0};
    fb_arena arena = {0};
    fb_status status = fb_rule_read(document, "", 1, &rule, &error);
    fb_graph *graph = status ? NULL : fb_graph_copy(source, &(fb_work){0});
    fb_namespace *names = graph ? fb_namespace_of(source, &(fb_work){0}) : NULL;
    fb_graph_state work = {.graph = graph, .names = names};
    fb_pass_report report = {.params = "{}", .pass = status ? NULL : fb_rule_pass(rule), .signature = "s"};
    if (!status) status = names ? fb_pass_apply(&work, NULL, &report, &arena, &error) : FB_NO_MEMORY;
    if (!status && !fb_document_id(graph, id)) status = FB_NO_MEMORY;
    memcpy(last_code, error.code, sizeof last_code);
    fb_graph_state_forget(&work);
    fb_namespace_free(names);
    fb_graph_free(graph);
    fb_arena_free(&arena);
    fb_rule_free(rule);
    return status;
}

static const char *const chaos_cases[][2] = {
    {"FuseSilu", "silu-of-one-gate-twice"},
    {"SinCosOnce", "two-roots-twice"},
    {"ScaleByWidth", "computed-from-a-size"},
    {"RemoveTimesOne", "times-one-in-a-row"},
    {"CatPairToStack", "by-target"},
    {"GeluForRelu", "gelu-for-relu-module-called-twice"},
    {"DivisionToMultiplication", "division-keyword"},
    {"ScaleIntoLinear", "scale-into-linear-with-bias"},
    {"ScaleIntoLinear", "scale-into-linear-aten"},
};

START_TEST(test_memory_runs_out) {
    char *graph_path = NULL, expected[FB_ID_LENGTH + 1], id[FB_ID_LENGTH + 1];
    ck_assert_int_gt(asprintf(&graph_path, "build/golden/rules/%s/before.json", chaos_cases[_i][1]), 0);
    size_t size;
    char *graph_text = read_file(graph_path, &size);
    json_t *document = read_test_rule(chaos_cases[_i][0]);
    fb_graph *source = graph_of(graph_text, size);
    ck_assert_int_eq(read_and_apply(document, source, expected), FB_OK);
    for (int kind = 0; kind < 2; kind++) {
        for (long k = 0;; k++) {
            if (kind) chaos_fail_once(k);
            else chaos_fail_after(k);
            fb_status status = read_and_apply(document, source, id);
            bool has_failed = chaos_off();
            ck_assert_msg(status == FB_OK || status == FB_NO_MEMORY, "status %d at allocation %ld: %s", status, k, last_code);
            ck_assert_msg(status == FB_OK || has_failed, "failed at allocation %ld without a cause", k);
            ck_assert_msg(status != FB_OK || strcmp(id, expected) == 0, "another result at allocation %ld", k);
            if (!has_failed) break;
        }
    }
    json_decref(document);
    fb_graph_free(source);
    free(graph_text);
    free(graph_path);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("rules");
    tcase_set_timeout(tests, 600);
    tcase_add_test(tests, test_wrong_rules);
    tcase_add_test(tests, test_right_rules);
    tcase_add_test(tests, test_digest);
    tcase_add_test(tests, test_compositions_name_rules);
    tcase_add_test(tests, test_compositions_refuse_rules);
    tcase_add_test(tests, test_division_like_the_pass);
    tcase_add_test(tests, test_random_graphs);
    tcase_add_loop_test(tests, test_memory_runs_out, 0, (int)(sizeof chaos_cases / sizeof *chaos_cases));
    return run_tests("rules", tests);
}
