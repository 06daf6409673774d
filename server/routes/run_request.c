#include "server/routes/input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LABELS_MAX 64
#define LABEL_VALUE_MAX 1024 /* characters */

/* ---- includes ----------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    unsigned bit;
} includes[] = {{"graph", FB_INCLUDE_GRAPH}, {"code", FB_INCLUDE_CODE}, {"edits", FB_INCLUDE_EDITS}};
#define INCLUDE_COUNT (sizeof includes / sizeof *includes)

unsigned fb_include_find(const char *name) {
    for (size_t i = 0; i < INCLUDE_COUNT; i++) {
        if (strcmp(includes[i].name, name) == 0) return includes[i].bit;
    }
    return 0;
}

void fb_includes_write(unsigned wanted, fb_buffer *out) {
    for (size_t i = 0; i < INCLUDE_COUNT; i++) {
        if (!(wanted & includes[i].bit)) continue;
        if (out->size) fb_buffer_char(out, ' ');
        fb_buffer_string(out, includes[i].name);
    }
}

unsigned fb_includes_read(const char *text, size_t size) {
    unsigned found = 0;
    for (size_t i = 0; i < INCLUDE_COUNT; i++) {
        if (memmem(text, size, includes[i].name, strlen(includes[i].name))) found |= includes[i].bit;
    }
    return found;
}

/* ---- the query in the form of a body ------------------------------------------------------------------------------------ */

static bool is_position(const char *text) {
    size_t length = strlen(text);
    return length > 0 && length < 10 && strspn(text, "0123456789") == length;
}

static bool append_text(json_t *object, const char *name, json_t *value) {
    json_t *list = json_object_get(object, name);
    if (!list) {
        list = json_array();
        if (json_object_set_new(object, name, list)) list = NULL;
    }
    bool ok = list && value && !json_array_append(list, value);
    json_decref(value);
    return ok;
}

static json_t *query_object(json_t *query, const char *name) {
    json_t *object = json_object_get(query, name);
    if (object) return object;
    object = json_object();
    return json_object_set_new(query, name, object) ? NULL : object;
}

static fb_status read_label(json_t *query, const char *text, fb_error *error) {
    const char *equals = strchr(text, '=');
    if (!equals)
        return fb_fail(error, FB_INVALID, "bad-label", "?label=", "a label is written label=key=value, not \"%.80s\"", text);
    json_t *labels = query_object(query, "labels");
    char *key = strndup(text, (size_t)(equals - text));
    bool is_there = key && json_object_get(labels, key);
    bool ok = is_there || (key && !json_object_set_new(labels, key, json_string(equals + 1)));
    free(key);
    if (is_there) return fb_fail(error, FB_INVALID, "bad-label", "?label=", "a label is given twice: \"%.80s\"", text);
    return ok ? FB_OK : fb_fail_memory(error);
}

static fb_status read_flag(json_t *options, const char *name, const char *text, fb_error *error) {
    bool is_true = !*text || !strcmp(text, "true") || !strcmp(text, "1");
    if (!is_true && strcmp(text, "false") && strcmp(text, "0")) {
        char pointer[32];
        snprintf(pointer, sizeof pointer, "?%s=", name);
        return fb_fail(error, FB_INVALID, "wrong-type", pointer, "%s is true or false, not \"%.80s\"", name, text);
    }
    return json_object_set_new(options, name, json_boolean(is_true)) ? fb_fail_memory(error) : FB_OK;
}

static fb_status read_seed(json_t *options, const char *text, fb_error *error) {
    char *end;
    errno = 0;
    long long seed = strtoll(text, &end, 10);
    if (errno || *end || end == text || seed < 0)
        return fb_fail(error, FB_INVALID, "wrong-type", "?seed=", "a seed is an integer, 0 or greater, not \"%.80s\"", text);
    return json_object_set_new(options, "seed", json_integer(seed)) ? fb_fail_memory(error) : FB_OK;
}

/* True if the query has this already; note and the options may be given once. */
static bool is_repeated(const json_t *query, const char *name) {
    if (!strcmp(name, "weights") || !strcmp(name, "include")) return false;
    return json_object_get(query, name) || json_object_get(json_object_get(query, "options"), name);
}

static fb_status read_parameter(json_t *query, const char *name, const char *value, fb_error *error) {
    bool ok = true;
    if (is_repeated(query, name)) {
        char pointer[96];
        snprintf(pointer, sizeof pointer, "?%.64s=", name);
        return fb_fail(error, FB_INVALID, "given-twice", pointer, "this is in the query twice");
    }
    if (!strcmp(name, "pass"))
        ok = append_text(query, "passes", is_position(value) ? json_integer(atoll(value)) : json_string(value));
    else if (!strcmp(name, "label")) return read_label(query, value, error);
    else if (!strcmp(name, "note")) ok = !json_object_set_new(query, "note", json_string(value));
    else if (!strcmp(name, "weights")) ok = append_text(query, "weights", json_string(value));
    else if (!strcmp(name, "as") || !strcmp(name, "prefix")) ok = !json_object_set_new(query, name, json_string(value));
    else if (!strcmp(name, "dry_run") || !strcmp(name, "strict") || !strcmp(name, "matches"))
        return read_flag(query_object(query, "options"), name, value, error);
    else if (!strcmp(name, "validate"))
        ok = !json_object_set_new(query_object(query, "options"), "validate", json_string(value));
    else if (!strcmp(name, "seed")) return read_seed(query_object(query, "options"), value, error);
    else if (!strcmp(name, "lint")) ok = !json_object_set_new(query_object(query, "options"), "lint", json_string(value));
    else if (!strcmp(name, "assume"))
        ok = !json_object_set_new(query_object(query, "options"), "assume", json_pack("{s:s}", "dtype", value));
    else if (!strcmp(name, "include")) ok = append_text(query_object(query, "options"), "include", json_string(value));
    return ok ? FB_OK : fb_fail_memory(error);
}

static fb_status read_query(const fb_request *request, fb_run_request *out, fb_error *error) {
    out->query = json_object();
    if (!out->query) return fb_fail_memory(error);
    fb_status status = FB_OK;
    for (size_t i = 0; i < fb_request_query_count(request) && !status; i++)
        status = read_parameter(out->query, fb_request_query_name(request, i), fb_request_query_value(request, i), error);
    return status;
}

/* ---- members and options ------------------------------------------------------------------------------------------------ */

static fb_status wrong_type(const char *pointer, const char *what, fb_error *error) {
    return fb_fail(error, FB_INVALID, "wrong-type", pointer, "%s", what);
}

static fb_status unknown_value(const char *pointer, const json_t *value, const char *known, fb_error *error) {
    return fb_fail(error, FB_INVALID, "unknown-option-value", pointer, "\"%.80s\" is not one of %s", json_string_value(value),
                   known);
}

static fb_status read_include(const json_t *value, const char *pointer, bool is_query, fb_run_request *out, fb_error *error) {
    if (!json_is_array(value)) return wrong_type(pointer, "include is an array of strings", error);
    size_t index;
    json_t *entry;
    json_array_foreach((json_t *)(uintptr_t)value, index, entry) {
        char at[64];
        snprintf(at, sizeof at, is_query ? "%s" : "%s/%zu", pointer, index);
        if (!json_is_string(entry)) return wrong_type(at, "include is an array of strings", error);
        unsigned include = fb_include_find(json_string_value(entry));
        if (!include) return unknown_value(at, entry, FB_INCLUDES, error);
        out->includes |= include;
    }
    return FB_OK;
}

static fb_status read_lint(const json_t *value, const char *pointer, fb_run_request *out, fb_error *error) {
    static const char *const names[] = {[FB_LINT_END] = "end", [FB_LINT_EACH] = "each", [FB_LINT_NONE] = "none"};
    if (!json_is_string(value)) return wrong_type(pointer, "lint is a string: end, each or none", error);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(json_string_value(value), names[i]) != 0) continue;
        out->lint = (fb_lint)i;
        return FB_OK;
    }
    return unknown_value(pointer, value, "end, each, none", error);
}

/* {"inputs": "sha256:…", "metric": "top1", "at_least": 0.99, "mask": "attention_mask"} */
static fb_status read_task(const json_t *value, fb_run_request *out, fb_error *error) {
    static const char *const known[] = {"inputs", "metric", "at_least", "at_most", "mask", NULL};
    const json_t *inputs = json_object_get(value, "inputs"), *metric = json_object_get(value, "metric");
    const json_t *mask = json_object_get(value, "mask");
    const char *name;
    json_t *member;
    json_object_foreach((json_t *)(uintptr_t)value, name, member) {
        char at[96];
        bool is_known = false;
        for (size_t i = 0; known[i]; i++) is_known |= !strcmp(known[i], name);
        snprintf(at, sizeof at, "/options/validate/%.64s", name);
        if (!is_known)
            return fb_fail(error, FB_INVALID, "unknown-member", at, "validate has inputs, metric, at_least, at_most and mask");
    }
    if (!json_is_string(inputs))
        return wrong_type("/options/validate/inputs", "inputs is the digest of a safetensors file or a .npz", error);
    if (!fb_is_sha256_id(json_string_value(inputs)))
        return fb_fail(error, FB_INVALID, "bad-digest", "/options/validate/inputs",
                       "a file is named by sha256: and the 64 lower-case hex digits of its digest, not \"%.80s\"",
                       json_string_value(inputs));
    if (!json_is_string(metric)) return wrong_type("/options/validate/metric", "metric is a string: " FB_METRIC_NAMES, error);
    if (!fb_metric_find(json_string_value(metric), &out->task.metric))
        return unknown_value("/options/validate/metric", metric, FB_METRIC_NAMES, error);
    if (mask && !json_is_string(mask))
        return wrong_type("/options/validate/mask", "mask is the name of an array in the file of inputs", error);
    bool grows = fb_metric_grows(out->task.metric);
    const json_t *bound = json_object_get(value, grows ? "at_least" : "at_most");
    if (json_object_get(value, grows ? "at_most" : "at_least") || !json_is_number(bound))
        return fb_fail(error, FB_INVALID, "wrong-type", grows ? "/options/validate/at_least" : "/options/validate/at_most",
                       "%s is better the %s it is: give %s, a number, and not %s", fb_metric_name(out->task.metric),
                       grows ? "larger" : "smaller", grows ? "at_least" : "at_most", grows ? "at_most" : "at_least");
    out->task.inputs = json_string_value(inputs);
    out->task.mask = json_string_value(mask);
    out->task.bound = json_number_value(bound);
    return FB_OK;
}

static fb_status read_validate(const json_t *value, const char *pointer, fb_run_request *out, fb_error *error) {
    if (json_is_object(value)) return read_task(value, out, error);
    if (!json_is_string(value))
        return wrong_type(pointer, "validate is off, rewrites or graph, or an object with inputs and a metric", error);
    if (fb_validation_mode_find(json_string_value(value), &out->validate)) return FB_OK;
    return unknown_value(pointer, value, "off, rewrites, graph", error);
}

static fb_status take_flag(const json_t *value, const char *name, const char *pointer, bool *out, fb_error *error) {
    if (!json_is_boolean(value)) return fb_fail(error, FB_INVALID, "wrong-type", pointer, "%s is true or false", name);
    *out = json_is_true(value);
    return FB_OK;
}

static fb_status read_assume(const json_t *value, bool is_query, fb_run_request *out, fb_error *error) {
    out->assume_pointer = is_query ? "?assume=" : "/options/assume";
    if (!json_is_object(value))
        return wrong_type(out->assume_pointer, "assume is an object, such as {\"dtype\": \"float32\"}", error);
    out->assume = value;
    return FB_OK;
}

static fb_status read_options(const json_t *options, bool is_query, unsigned takes, fb_run_request *out, fb_error *error) {
    if (!json_is_object(options)) return wrong_type("/options", "options is an object", error);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)options, name, value) {
        char pointer[96];
        snprintf(pointer, sizeof pointer, is_query ? "?%.64s=" : "/options/%.64s", name);
        fb_status status = FB_OK;
        if (!strcmp(name, "include")) status = read_include(value, pointer, is_query, out, error);
        else if (!strcmp(name, "lint") && takes & FB_TAKES_LINT) status = read_lint(value, pointer, out, error);
        else if (!strcmp(name, "dry_run")) status = take_flag(value, name, pointer, &out->dry_run, error);
        else if (!strcmp(name, "matches") && takes & FB_TAKES_VALIDATION)
            status = take_flag(value, name, pointer, &out->names_matches, error);
        else if (!strcmp(name, "strict") && takes & FB_TAKES_WEIGHTS)
            status = take_flag(value, name, pointer, &out->is_strict, error);
        else if (!strcmp(name, "validate") && takes & FB_TAKES_VALIDATION) status = read_validate(value, pointer, out, error);
        else if (!strcmp(name, "assume") && takes & FB_TAKES_VALIDATION) status = read_assume(value, is_query, out, error);
        else if (!strcmp(name, "seed") && takes & FB_TAKES_VALIDATION) status = fb_read_seed(value, pointer, &out->seed, error);
        else if (!strcmp(name, "tolerance") && takes & FB_TAKES_VALIDATION) {
            out->has_tolerance = true;
            status = fb_read_tolerance(value, pointer, &out->tolerance, error);
        } else
            status = fb_fail(error, FB_INVALID, "unknown-option", pointer, "the options here are include, dry_run%s%s%s",
                             takes & FB_TAKES_LINT ? ", lint" : "", takes & FB_TAKES_WEIGHTS ? ", strict" : "",
                             takes & FB_TAKES_VALIDATION ? ", validate, tolerance, seed, assume, matches" : "");
        if (status) return status;
    }
    return FB_OK;
}

static fb_status read_note(const json_t *note, bool is_query, fb_run_request *out, fb_error *error) {
    const char *pointer = is_query ? "?note=" : "/note";
    if (!json_is_string(note)) return wrong_type(pointer, "note is a string", error);
    out->note = json_string_value(note);
    if (fb_count_characters(out->note) <= FB_NOTE_MAX) return FB_OK;
    return fb_fail(error, FB_INVALID, "note-too-long", pointer, "a note has %d characters at most", FB_NOTE_MAX);
}

static fb_status read_labels(const json_t *labels, bool is_query, fb_run_request *out, fb_error *error) {
    const char *pointer = is_query ? "?label=" : "/labels";
    if (!json_is_object(labels)) return wrong_type(pointer, "labels is an object whose members are strings", error);
    if (json_object_size(labels) > LABELS_MAX)
        return fb_fail(error, FB_INVALID, "too-many-labels", pointer, "a run has %d labels at most", LABELS_MAX);
    out->labels = calloc(json_object_size(labels) + 1, sizeof *out->labels);
    if (!out->labels) return fb_fail_memory(error);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)labels, key, value) {
        fb_buffer at = {0};
        fb_buffer_string(&at, pointer);
        if (!is_query) fb_buffer_pointer_token(&at, key, strlen(key));
        const char *text = fb_buffer_text(&at);
        fb_status status = text ? FB_OK : fb_fail_memory(error);
        if (!status && !json_is_string(value)) status = wrong_type(text, "a label is a string", error);
        else if (!status && (!*key || fb_count_characters(key) > FB_LABEL_KEY_MAX ||
                             fb_count_characters(json_string_value(value)) > LABEL_VALUE_MAX))
            status = fb_fail(error, FB_INVALID, "bad-label", text, "a label's name has 1 to %d characters, its text up to %d",
                             FB_LABEL_KEY_MAX, LABEL_VALUE_MAX);
        fb_buffer_free(&at);
        if (status) return status;
        out->labels[out->label_count++] = (fb_store_label){.key = key, .value = json_string_value(value)};
    }
    return FB_OK;
}

static fb_status read_members(const json_t *members, bool is_query, unsigned takes, fb_run_request *out, fb_error *error) {
    const json_t *passes = json_object_get(members, "passes"), *options = json_object_get(members, "options");
    const json_t *note = json_object_get(members, "note"), *labels = json_object_get(members, "labels");
    const json_t *weights = json_object_get(members, "weights");
    fb_status status = FB_OK;
    if (passes) {
        out->passes = passes;
        out->passes_pointer = is_query ? "?pass=" : "/passes";
    }
    if (weights) {
        out->weights = weights;
        out->weights_pointer = is_query ? "?weights=" : "/weights";
        status = fb_weights_check(weights, out->weights_pointer, error);
    }
    const json_t *as = json_object_get(members, "as"), *prefix = json_object_get(members, "prefix");
    if (!status && as) status = fb_weights_reading_read(as, is_query ? "?as=" : "/as", &out->binding.as, error);
    if (!status && prefix && !(out->binding.prefix = json_string_value(prefix)))
        status = fb_fail(error, FB_INVALID, "wrong-type", is_query ? "?prefix=" : "/prefix",
                         "prefix is a string, bert. for instance");
    if (!status && options) status = read_options(options, is_query, takes, out, error);
    if (!status && note) status = read_note(note, is_query, out, error);
    if (!status && labels) status = read_labels(labels, is_query, out, error);
    return status;
}

/* Refuses members of the body that are in the query too. */
static fb_status refuse_twice(const fb_run_request *run_request, fb_error *error) {
    const char *name;
    json_t *value;
    json_object_foreach(run_request->query, name, value) {
        if (!json_object_get(run_request->body.members, name)) continue;
        char pointer[32];
        snprintf(pointer, sizeof pointer, "/%s", name);
        return fb_fail(error, FB_INVALID, "given-twice", pointer, "this is in the body and in the query as well");
    }
    return FB_OK;
}

static fb_status find_graph(fb_run_request *out, fb_error *error) {
    const json_t *graph = json_object_get(out->body.members, "graph");
    out->graph_pointer = out->body.is_document ? "" : "/graph";
    if (graph && !json_is_string(graph))
        return wrong_type("/graph", "graph is a document (an object) or the id of one (a string)", error);
    out->graph_id = json_string_value(graph);
    return FB_OK;
}

fb_status fb_run_request_read(const fb_request *request, unsigned takes, fb_run_request *out, fb_error *error) {
    static const char *const with_weights[] = {"weights", "as", "prefix", "graph", "passes", "options", "note", "labels", NULL};
    static const char *const of_record[] = {
        "source", "result",  "name", "params", "version", "reversible", "preserves_computation",
        "marked", "options", "note", "labels", NULL};
    const char *const *known = with_weights + (takes & FB_TAKES_WEIGHTS ? 0 : 3) + !(takes & FB_TAKES_GRAPH);
    if (takes & FB_TAKES_RECORD) known = of_record;
    fb_run_request read = {.passes_pointer = "/passes"};
    fb_status status = fb_request_body_read(request, known, &read.body, error);
    if (!status) status = find_graph(&read, error);
    if (!status) status = read_query(request, &read, error);
    if (!status) status = refuse_twice(&read, error);
    if (!status) status = read_members(read.query, true, takes, &read, error);
    if (!status) status = read_members(read.body.members, false, takes, &read, error);
    if (status) fb_run_request_free(&read);
    else *out = read;
    return status;
}

void fb_run_request_free(fb_run_request *run_request) {
    fb_request_body_free(&run_request->body);
    json_decref(run_request->query);
    free(run_request->labels);
    *run_request = (fb_run_request){0};
}
