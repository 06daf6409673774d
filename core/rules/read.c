/* A rule's document: its outer members, its replacement, and what all parts of the reader share. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/sha256.h"
#include "core/base/sort.h"
#include "core/document/document.h"
#include "core/json/json.h"
#include "core/operators/spelling.h"
#include "core/rules/internal.h"

/* ---- what the parts share ----------------------------------------------------------------------------------------------- */

/* ---- variables ---------------------------------------------------------------------------------------------------------- */

/* ---- literals ----------------------------------------------------------------------------------------------------------- */

/* The literals are read as the arguments of a node in a document of their own, so that they are what they would be in any. */
static fb_status write_literals(fb_rule_reader *reader, fb_buffer *out) {
    const json_t *const *literals = (const json_t *const *)(const void *)reader->literals.data;
    size_t count = reader->literals.size / sizeof *literals;
    fb_buffer_string(out, "{\"format\":\"" FB_DOCUMENT_FORMAT "\",\"nodes\":[{\"name\":\"literals\",\"op\":\"call_function\","
                          "\"target\":\"builtins.tuple\",\"args\":[");
    for (size_t i = 0; i < count; i++) {
        char *text = fb_dump_json(literals[i], JSON_ENCODE_ANY | JSON_COMPACT);
        if (!text) return fb_fail_memory(reader->error);
        if (i) fb_buffer_char(out, ',');
        fb_buffer_string(out, text);
        free(text);
    }
    fb_buffer_string(out, "]},{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[null]}],"
                          "\"modules\":[{\"path\":\"\",\"type\":\"" FB_TYPE_MODULE "\"}],\"tensors\":[]}");
    return out->failed ? fb_fail_memory(reader->error) : FB_OK;
}

/* An error of that document, at its place in the rule. */
static fb_status fail_literal(fb_rule_reader *reader, fb_status status, const fb_errors *errors) {
    static const char before[] = "/nodes/0/args/";
    const fb_error *first = errors->count ? &errors->items[0] : NULL;
    if (!first || strncmp(first->pointer, before, sizeof before - 1) != 0) {
        if (status == FB_NO_MEMORY || !first) return fb_fail_memory(reader->error);
        return fb_fail(reader->error, FB_INVALID, first->code, fb_buffer_text(&reader->pointer), "%s", first->message);
    }
    char *rest;
    size_t index = strtoul(first->pointer + sizeof before - 1, &rest, 10);
    const char *const *places = (const char *const *)(const void *)reader->places.data;
    fb_buffer pointer = {0};
    fb_buffer_printf(&pointer, "%s%s", places[index], rest);
    const char *text = fb_buffer_text(&pointer);
    fb_fail(reader->error, FB_INVALID, first->code, text ? text : "", "%s", first->message);
    fb_buffer_free(&pointer);
    return FB_INVALID;
}

static fb_status read_literals(fb_rule_reader *reader) {
    fb_buffer text = {0};
    fb_errors errors = {.limit = 1};
    fb_status status = reader->literals.failed || reader->places.failed ? fb_fail_memory(reader->error) : FB_OK;
    if (!status) status = write_literals(reader, &text);
    if (!status && (status = fb_document_read(text.data, text.size, NULL, "", &reader->rule->given, &errors)))
        status = fail_literal(reader, status, &errors);
    fb_errors_free(&errors);
    fb_buffer_free(&text);
    return status;
}

/* ---- a replacement ------------------------------------------------------------------------------------------------ */

static fb_status read_lets(fb_rule_reader *reader, const json_t *json) {
    fb_rule *rule = reader->rule;
    if (!json) return FB_OK;
    size_t mark = fb_pointer_enter(&reader->pointer, "let"), i;
    json_t *item;
    if (!json_is_array(json)) return fb_rule_fail(reader, "wrong-type", "\"let\" is a list of calls with names");
    reader->is_shared = true;
    json_array_foreach(json, i, item) {
        size_t inner = fb_pointer_enter_item(&reader->pointer, i);
        const fb_rule_call *call = NULL;
        fb_status status = fb_rule_read_call(reader, item, &call);
        if (status) return status;
        if (call->variable < 0) return fb_rule_fail(reader, "missing-member", "a call of \"let\" has a name: \"as\": \"?y\"");
        rule->lets[rule->let_count++] = call;
        reader->pointer.size = inner;
    }
    reader->is_shared = false;
    reader->pointer.size = mark;
    return FB_OK;
}

static fb_status read_root(fb_rule_reader *reader, const char *name, const json_t *json) {
    fb_rule *rule = reader->rule;
    fb_rule_root root = {.call = SIZE_MAX};
    fb_status status = fb_rule_bound_variable(reader, name, &root.variable);
    if (status) return status;
    for (size_t i = 0; i < rule->root_count; i++) {
        if (rule->roots[i]->variable == root.variable) root.call = rule->roots[i]->index;
    }
    if (root.call == SIZE_MAX)
        return fb_rule_fail(reader, "not-a-root", "%s is not an outermost call of the pattern; only those are replaced", name);
    status = fb_rule_read_term(reader, json, &root.term);
    if (status) return status;
    if (root.term.kind != FB_TERM_CALL && root.term.kind != FB_TERM_VARIABLE)
        return fb_rule_fail(reader, "wrong-type", "a call or a variable is expected here");
    if (root.term.kind == FB_TERM_VARIABLE && root.term.variable == root.variable)
        return fb_rule_fail(reader, "replaces-nothing", "%s would stay what it is", name);
    rule->replaced[rule->replaced_count++] = root;
    rule->pass.only_removes &= root.term.kind == FB_TERM_VARIABLE;
    return FB_OK;
}

/* Beyond the first, a root is looked for among the readers of a node that is known by then. */
static fb_status check_roots(fb_rule_reader *reader) {
    const fb_rule *rule = reader->rule;
    bool is_known[FB_RULE_VARIABLES_MAX] = {false};
    for (size_t r = 0; r < rule->root_count; r++) {
        const fb_rule_call *root = rule->roots[r];
        bool is_connected = r == 0;
        for (size_t i = 0; i < root->argument_count; i++) {
            const fb_rule_term *term = &root->arguments[i].term;
            is_connected |= term->kind == FB_TERM_VARIABLE && is_known[term->variable];
        }
        for (size_t i = 0; i < root->argument_count; i++) {
            const fb_rule_term *term = &root->arguments[i].term;
            if (term->kind == FB_TERM_VARIABLE) is_known[term->variable] = true;
        }
        if (is_connected) continue;
        reader->pointer.size = reader->start;
        fb_pointer_enter(&reader->pointer, "pattern");
        fb_pointer_enter_item(&reader->pointer, r);
        return fb_rule_fail(reader, "unconnected-root",
                            "it must read, as an argument of its own, a variable of the calls before it");
    }
    return FB_OK;
}

static fb_status rule_read_replacement(fb_rule_reader *reader, const json_t *json) {
    if (!json) return fb_rule_fail(reader, "missing-member", "a rule needs a replacement");
    size_t mark = fb_pointer_enter(&reader->pointer, "replacement");
    if (!json_is_object(json)) return fb_rule_fail(reader, "wrong-type", "a replacement is an object: {\"?y\": …}");
    const char *names[FB_RULE_MEMBERS_MAX];
    size_t count;
    fb_status status = fb_rule_sorted_keys(reader, json, names, &count);
    if (!status) status = read_lets(reader, json_object_get(json, "let"));
    for (size_t i = 0; i < count && !status; i++) {
        if (strcmp(names[i], "let") == 0 || strcmp(names[i], "weights") == 0) continue;
        size_t inner = fb_pointer_enter(&reader->pointer, names[i]);
        status = read_root(reader, names[i], json_object_get(json, names[i]));
        if (!status) reader->pointer.size = inner;
    }
    if (!status) status = fb_rule_read_weights(reader, json_object_get(json, "weights"));
    if (status) return status;
    if (!reader->rule->replaced_count && !reader->rule->weights_count)
        return fb_rule_fail(reader, "replaces-nothing", "no outermost call of the pattern is replaced");
    reader->pointer.size = mark;
    return check_roots(reader);
}

/* ---- what would make a rule repeat itself ------------------------------------------------------------------------------ */

/* A pattern's call beside one that the replacement makes. Where it is not certain that they differ, they may be the same. */
typedef struct comparison {
    const fb_rule *rule;
    const fb_rule_term *stands_for[FB_RULE_VARIABLES_MAX]; /* what the pattern's variables would be */
} comparison;

static bool may_be_call(comparison *c, const fb_rule_call *pattern, const fb_rule_call *made);

static bool literal_number(const comparison *c, const fb_rule_term *term, double *out) {
    fb_number number;
    fb_rule_binding nothing = {0};
    if (term->kind == FB_TERM_LITERAL) return fb_value_is_number(c->rule->given, fb_rule_literal(c->rule, term->literal), out);
    bool is_known = term->kind == FB_TERM_NUMBER;
    for (size_t i = 0; i < term->number.count; i++)
        is_known &= term->number.steps[i].kind != FB_STEP_VARIABLE && term->number.steps[i].kind != FB_STEP_SIZE;
    if (!is_known || !fb_rule_compute(c->rule->given, &term->number, &nothing, &number)) return false;
    *out = number.real;
    return true;
}

static bool is_numeric(const comparison *c, const fb_rule_term *term) {
    double number;
    if (term->kind == FB_TERM_VARIABLE) return c->rule->is_number[term->variable];
    return term->kind == FB_TERM_NUMBER || (term->kind == FB_TERM_LITERAL && literal_number(c, term, &number));
}

static bool may_be_term(comparison *c, const fb_rule_term *pattern, const fb_rule_term *made) {
    double x, y;
    const fb_rule *rule = c->rule;
    switch (pattern->kind) {
    case FB_TERM_ANYTHING: return true;
    case FB_TERM_VARIABLE:
        if (rule->is_number[pattern->variable] && !is_numeric(c, made)) return false;
        if (!c->stands_for[pattern->variable]) c->stands_for[pattern->variable] = made;
        return true;
    case FB_TERM_CALL: return made->kind == FB_TERM_CALL && may_be_call(c, pattern->call, made->call);
    case FB_TERM_LITERAL:
        if (made->kind == FB_TERM_LITERAL)
            return fb_rule_same_value(rule->given, fb_rule_literal(rule, pattern->literal), rule->given,
                                      fb_rule_literal(rule, made->literal));
        /* A variable that need not be a number is taken for a node. */
        return literal_number(c, pattern, &x) && (literal_number(c, made, &y) ? x == y : is_numeric(c, made));
    default: return made->kind == FB_TERM_VARIABLE || made->kind == FB_TERM_SEQUENCE || made->kind == FB_TERM_LITERAL;
    }
}

static bool may_be_callee(const fb_rule_call *pattern, const fb_rule_call *made) {
    bool may_be = false;
    for (size_t i = 0; i < pattern->operator_count; i++) {
        may_be |= made->operator_count && pattern->operators[i] == made->operators[0];
        for (size_t k = 0; k < FB_SPELLING_FAMILIES; k++) {
            const char *spelling = made->spellings[k];
            if (spelling) may_be |= fb_op_of_function(spelling, strlen(spelling)) == pattern->operators[i];
        }
    }
    for (size_t i = 0; i < pattern->target_count; i++) {
        const char *target = pattern->targets[i];
        for (size_t k = 0; k < FB_SPELLING_FAMILIES; k++) may_be |= made->spellings[k] && !strcmp(made->spellings[k], target);
        may_be |= made->operator_count && fb_op_of_function(target, strlen(target)) == made->operators[0];
    }
    return may_be;
}

static const fb_rule_argument *same_argument(const fb_rule_call *made, const fb_rule_argument *argument) {
    for (size_t i = 0; i < made->argument_count; i++) {
        const fb_rule_argument *one = &made->arguments[i];
        bool is_named = one->name && argument->name && strcmp(one->name, argument->name) == 0;
        if (is_named || (one->position == argument->position && one->position != SIZE_MAX)) return one;
    }
    return NULL;
}

static bool may_be_arguments(comparison *c, const fb_rule_call *pattern, const fb_rule_call *made, bool is_turned) {
    size_t found = 0;
    for (size_t i = 0; i < pattern->argument_count; i++) {
        const fb_rule_argument *argument = &pattern->arguments[is_turned && i < 2 ? 1 - i : i];
        const fb_rule_argument *other = same_argument(made, argument);
        const fb_rule_term *term = &pattern->arguments[i].term;
        if (!other && !term->is_optional) return false;
        if (other && !may_be_term(c, term, &other->term)) return false;
        found += other != NULL;
    }
    return found == made->argument_count;
}

static bool may_be_call(comparison *c, const fb_rule_call *pattern, const fb_rule_call *made) {
    if (pattern->type || !may_be_callee(pattern, made)) return false;
    comparison before = *c;
    if (may_be_arguments(c, pattern, made, false)) return true;
    *c = before;
    return pattern->takes_any_order && may_be_arguments(c, pattern, made, true);
}

/* True if a condition on numbers excludes the values that the variables would have. */
static bool is_excluded(const comparison *c) {
    for (size_t i = 0; i < c->rule->condition_count; i++) {
        const fb_rule_condition *condition = &c->rule->conditions[i];
        bool is_of_variable = condition->number.count == 1 && condition->number.steps[0].kind == FB_STEP_VARIABLE;
        const fb_rule_term *term = is_of_variable ? c->stands_for[condition->number.steps[0].variable] : NULL;
        double number;
        if (!term || !literal_number(c, term, &number)) continue;
        if (condition->kind == FB_WHERE_NOT_EQUAL && number == condition->least) return true;
        if (condition->kind != FB_WHERE_NUMBER) continue;
        if (number < condition->least || (condition->excludes_least && number == condition->least)) return true;
        if (number > condition->most || (condition->excludes_most && number == condition->most)) return true;
    }
    return false;
}

static bool repeats_term(const fb_rule *rule, const fb_rule_term *term);

static bool repeats_call(const fb_rule *rule, const fb_rule_call *made) {
    comparison c = {.rule = rule};
    bool repeats = may_be_call(&c, rule->roots[0], made) && !is_excluded(&c);
    for (size_t i = 0; i < made->argument_count; i++) repeats |= repeats_term(rule, &made->arguments[i].term);
    return repeats;
}

static bool repeats_term(const fb_rule *rule, const fb_rule_term *term) {
    bool repeats = term->kind == FB_TERM_CALL && repeats_call(rule, term->call);
    for (size_t i = 0; i < term->count; i++) repeats |= repeats_term(rule, &term->items[i]);
    return repeats;
}

/* Refuses a rule whose replacement its own pattern matches. */
static fb_status rule_check_loop(fb_rule_reader *reader) {
    static const char message[] = "the pattern fits what this makes, so the rule could be applied to its own result for ever; "
                                  "\"once\": true allows it";
    const fb_rule *rule = reader->rule;
    size_t mark = fb_pointer_enter(&reader->pointer, "replacement");
    if (!rule->replaced_count) return fb_rule_fail(reader, "rule-loops", message);
    for (size_t i = 0; i < rule->let_count; i++) {
        size_t inner = fb_pointer_enter(&reader->pointer, "let");
        fb_pointer_enter_item(&reader->pointer, i);
        if (repeats_call(rule, rule->lets[i])) return fb_rule_fail(reader, "rule-loops", message);
        reader->pointer.size = inner;
    }
    for (size_t i = 0; i < rule->replaced_count; i++) {
        size_t inner = fb_pointer_enter(&reader->pointer, rule->variables[rule->replaced[i].variable]);
        if (repeats_term(rule, &rule->replaced[i].term)) return fb_rule_fail(reader, "rule-loops", message);
        reader->pointer.size = inner;
    }
    reader->pointer.size = mark;
    return FB_OK;
}

/* ---- the outer members -------------------------------------------------------------------------------------------------- */

bool fb_rule_name_is_valid(const char *name) {
    if (!isalpha((unsigned char)*name)) return false;
    size_t length = 1;
    while (isalnum((unsigned char)name[length]) || (name[length] && strchr("_-.", name[length]))) length++;
    return !name[length] && length <= FB_RULE_NAME_MAX;
}

/* A member that is a text; `*out` stays as it is when it is not given. */
static fb_status read_text(fb_rule_reader *reader, const json_t *rule, const char *member, const char **out) {
    const json_t *value = json_object_get(rule, member);
    if (!value) return FB_OK;
    size_t mark = fb_pointer_enter(&reader->pointer, member);
    if (!json_is_string(value)) return fb_rule_fail(reader, "wrong-type", "a text is expected here");
    *out = fb_rule_text(reader, json_string_value(value));
    reader->pointer.size = mark;
    return *out ? FB_OK : FB_NO_MEMORY;
}

static fb_status read_flag(fb_rule_reader *reader, const json_t *rule, const char *member, bool *out) {
    const json_t *value = json_object_get(rule, member);
    if (!value) return FB_OK;
    size_t mark = fb_pointer_enter(&reader->pointer, member);
    if (!json_is_boolean(value)) return fb_rule_fail(reader, "wrong-type", "true or false is expected here");
    *out = json_is_true(value);
    reader->pointer.size = mark;
    return FB_OK;
}

static fb_status read_name(fb_rule_reader *reader, const json_t *json) {
    const char *name = NULL;
    fb_status status = read_text(reader, json, "name", &name);
    if (status) return status;
    if (!name) return fb_rule_fail(reader, "missing-member", "a rule needs a name");
    fb_pointer_enter(&reader->pointer, "name");
    if (!fb_rule_name_is_valid(name))
        return fb_rule_fail(reader, "bad-name", "a rule's name is a letter and then letters, digits, _, - and ., %d at most",
                            FB_RULE_NAME_MAX);
    reader->pointer.size = reader->start;
    reader->rule->pass.name = name;
    return FB_OK;
}

static fb_status read_exactness(fb_rule_reader *reader, const json_t *json) {
    fb_pass *pass = &reader->rule->pass;
    const char *name = NULL;
    fb_status status = read_text(reader, json, "exactness", &name);
    if (status) return status;
    if (!name) return fb_rule_fail(reader, "missing-member", "a rule says its exactness: moves, rounds or changes");
    size_t mark = fb_pointer_enter(&reader->pointer, "exactness");
    fb_exactness exactness = FB_MOVES;
    while (exactness <= FB_CHANGES && strcmp(fb_exactness_name(exactness), name) != 0) exactness++;
    if (exactness > FB_CHANGES) return fb_rule_fail(reader, "bad-exactness", "the exactness is moves, rounds or changes");
    reader->pointer.size = mark;
    pass->exactness = exactness;
    pass->preserves_computation = exactness != FB_CHANGES;
    status = read_flag(reader, json, "preserves_computation", &pass->preserves_computation);
    if (!status && pass->preserves_computation != (exactness != FB_CHANGES)) {
        fb_pointer_enter(&reader->pointer, "preserves_computation");
        return fb_rule_fail(reader, "contradictory-exactness",
                            "what preserves the computation moves or rounds, and what does not changes it");
    }
    return status;
}

static fb_status read_pattern(fb_rule_reader *reader, const json_t *json) {
    fb_rule *rule = reader->rule;
    size_t mark = fb_pointer_enter(&reader->pointer, "pattern");
    reader->is_pattern = true;
    bool is_list = json_is_array(json);
    size_t count = is_list ? json_array_size(json) : 1;
    if (!json) return fb_rule_fail(reader, "missing-member", "a rule needs a pattern");
    if (!count) return fb_rule_fail(reader, "binds-nothing", "a pattern has at least one call");
    if (count > FB_RULE_CALLS_MAX)
        return fb_rule_fail(reader, "rule-too-large", "a pattern has at most %d calls", FB_RULE_CALLS_MAX);
    for (size_t i = 0; i < count; i++) {
        size_t item = reader->pointer.size;
        if (is_list) fb_pointer_enter_item(&reader->pointer, i);
        fb_status status = fb_rule_read_call(reader, is_list ? json_array_get(json, i) : json, &rule->roots[i]);
        if (status) return status;
        reader->pointer.size = item;
    }
    rule->root_count = count;
    reader->pointer.size = mark;
    reader->is_pattern = false;
    return FB_OK;
}

static fb_status read_members(fb_rule_reader *reader, const json_t *json) {
    fb_rule *rule = reader->rule;
    if (!json_is_object(json)) return fb_rule_fail(reader, "wrong-type", "a rule is an object");
    fb_status status = fb_rule_check_members(
        reader, json, "name description pattern conditions replacement exactness preserves_computation once");
    rule->pass.summary = "";
    bool is_once = false;
    if (!status) status = read_name(reader, json);
    if (!status) status = read_text(reader, json, "description", &rule->pass.summary);
    if (!status) status = read_exactness(reader, json);
    if (!status) status = read_pattern(reader, json_object_get(json, "pattern"));
    if (!status) status = fb_rule_read_conditions(reader, json_object_get(json, "conditions"));
    if (!status) status = rule_read_replacement(reader, json_object_get(json, "replacement"));
    if (!status) status = read_flag(reader, json, "once", &is_once);
    if (!status) status = read_literals(reader);
    if (!status && !is_once) status = rule_check_loop(reader);
    return status;
}

static fb_status sign(fb_rule_reader *reader, const json_t *json) {
    fb_rule *rule = reader->rule;
    fb_buffer text = {0};
    char digest[FB_ID_LENGTH + 1];
    fb_status status = fb_free_json_canonical(json, &text);
    if (status) {
        fb_buffer_free(&text);
        if (status == FB_NO_MEMORY) return fb_fail_memory(reader->error);
        return fb_rule_fail(reader, "bad-value", "the rule has a text with a NUL character, which documents cannot hold");
    }
    if (text.size > FB_RULE_BYTES_MAX) {
        fb_buffer_free(&text);
        return fb_rule_fail(reader, "rule-too-large", "a rule has at most %d bytes", FB_RULE_BYTES_MAX);
    }
    bool ok = fb_sha256_id(text.data, text.size, digest);
    rule->document = fb_buffer_take(&text, NULL);
    rule->pass.digest = ok ? fb_rule_text(reader, digest) : NULL;
    return rule->document && rule->pass.digest ? FB_OK : fb_fail_memory(reader->error);
}

static void free_pass(const fb_pass *pass) {
    fb_rule_free((fb_rule *)(uintptr_t)pass->data);
}

fb_status fb_rule_read(const json_t *document, const char *pointer, int version, fb_rule **out, fb_error *error) {
    fb_error ignored = {0};
    fb_rule *rule = calloc(1, sizeof *rule);
    if (!rule) return fb_fail_memory(error);
    rule->pass = (fb_pass){.version = version,
                           .parameters = FB_NO_PARAMETERS,
                           .reversible = true,
                           .only_removes = true, /* until a call replaces something */
                           .match_graph = fb_rule_match_graph,
                           .edit = fb_rule_edit,
                           .data = rule,
                           .free = free_pass};
    fb_rule_reader reader = {.rule = rule, .error = error ? error : &ignored};
    fb_buffer_string(&reader.pointer, pointer);
    reader.start = reader.pointer.size;
    fb_status status = fb_buffer_text(&reader.pointer) ? sign(&reader, document) : fb_fail_memory(error);
    if (!status) status = read_members(&reader, document);
    fb_buffer_free(&reader.pointer);
    fb_buffer_free(&reader.literals);
    fb_buffer_free(&reader.places);
    if (status) fb_rule_free(rule);
    else *out = rule;
    return status;
}

void fb_rule_free(fb_rule *rule) {
    if (!rule) return;
    fb_graph_free(rule->given);
    free(rule->document);
    fb_arena_free(&rule->arena);
    free(rule);
}

const fb_pass *fb_rule_pass(const fb_rule *rule) {
    return &rule->pass;
}

const char *fb_rule_document(const fb_rule *rule) {
    return rule->document;
}
