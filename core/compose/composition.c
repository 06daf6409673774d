#include "core/compose/composition.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buffer.h"
#include "core/base/grow.h"
#include "core/base/sha256.h"
#include "core/compose/run.h"
#include "core/json/json.h"
#include "core/passes/passes.h"

/* Checks a client's parameters of a pass against the pass's schema. */

typedef struct checker {
    const fb_pass *pass;
    fb_buffer *pointer;
    fb_error *error;
} checker;

static fb_status fail(checker *c, const char *code, const char *format, const char *name) {
    const char *pointer = fb_buffer_text(c->pointer);
    char shown[84];
    fb_copy_text(shown, sizeof shown, name);
    return pointer ? fb_fail(c->error, FB_INVALID, code, pointer, format, c->pass->name, shown) : fb_fail_memory(c->error);
}

/* JSON Schema counts 3.0 as an integer. */
static bool is_of_type(const json_t *value, const char *type) {
    if (!strcmp(type, "boolean")) return json_is_boolean(value);
    if (!strcmp(type, "string")) return json_is_string(value);
    if (!strcmp(type, "array")) return json_is_array(value);
    if (!strcmp(type, "object")) return json_is_object(value);
    double number = json_number_value(value);
    return json_is_number(value) && (strcmp(type, "integer") || number == floor(number));
}

static fb_status fail_type(checker *c, const char *type, const char *name) {
    const char *format = "%s takes a number as \"%s\"";
    if (!strcmp(type, "integer")) format = "%s takes an integer as \"%s\"";
    if (!strcmp(type, "boolean")) format = "%s takes true or false as \"%s\"";
    if (!strcmp(type, "string")) format = "%s takes a string as \"%s\"";
    if (!strcmp(type, "array")) format = "%s takes a list as \"%s\"";
    if (!strcmp(type, "object")) format = "%s takes an object as \"%s\"";
    return fail(c, "wrong-type", format, name);
}

static bool is_in_range(const json_t *schema, const json_t *value) {
    double number = json_number_value(value);
    const json_t *least = json_object_get(schema, "minimum"), *most = json_object_get(schema, "maximum");
    const json_t *above = json_object_get(schema, "exclusiveMinimum");
    return !(least && number < json_number_value(least)) && !(most && number > json_number_value(most)) &&
           !(above && number <= json_number_value(above));
}

static bool is_listed(const json_t *list, const json_t *value) {
    size_t index;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)list, index, item) {
        if (json_equal(item, value)) return true;
    }
    return false;
}

static fb_status check_value(checker *c, const json_t *schema, const json_t *value, const char *name) {
    const char *type = json_string_value(json_object_get(schema, "type"));
    const json_t *choices = json_object_get(schema, "enum"), *items = json_object_get(schema, "items");
    if (type && !is_of_type(value, type)) return fail_type(c, type, name);
    if (choices && !is_listed(choices, value)) return fail(c, "bad-parameter", "%s does not take this as \"%s\"", name);
    if (json_is_number(value) && !is_in_range(schema, value))
        return fail(c, "bad-parameter", "%s takes no such number as \"%s\"", name);
    if (!json_is_array(value)) return FB_OK;
    if (json_array_size(value) < (size_t)json_integer_value(json_object_get(schema, "minItems")))
        return fail(c, "bad-parameter", "%s takes no list as short as this as \"%s\"", name);
    size_t index;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)value, index, item) {
        size_t mark = fb_pointer_enter_item(c->pointer, index);
        fb_status status = items ? check_value(c, items, item, name) : FB_OK;
        if (status) return status;
        c->pointer->size = mark;
    }
    return FB_OK;
}

static fb_status check_all(checker *c, const json_t *schema, const json_t *params) {
    const json_t *known = json_object_get(schema, "properties"), *required = json_object_get(schema, "required");
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)params, name, value) {
        const json_t *of = json_object_get(known, name);
        size_t mark = fb_pointer_enter(c->pointer, name);
        if (!of) return fail(c, "unknown-parameter", "%s has no parameter \"%s\"", name);
        fb_status status = check_value(c, of, value, name);
        if (status) return status;
        c->pointer->size = mark;
    }
    size_t index;
    json_array_foreach((json_t *)(uintptr_t)required, index, value) {
        if (!json_object_get(params, json_string_value(value)))
            return fail(c, "missing-parameter", "%s needs the parameter \"%s\"", json_string_value(value));
    }
    return FB_OK;
}

/* `pointer` is the place of the parameters, and of the fault after a failure. FB_INVALID: unknown-parameter, missing-parameter,
 * wrong-type, bad-parameter. Of JSON Schema passes may use `properties`, `required`, and of one value `type`, `enum`,
 * `minimum`, `maximum`, `exclusiveMinimum`, `minItems` and `items`. */
static fb_status params_check(const fb_pass *pass, const json_t *params, fb_buffer *pointer, fb_error *error) {
    bool takes_none = json_object_size(params) == 0 && !strstr(pass->parameters, "\"required\"");
    if (takes_none) return FB_OK; /* most calls: the schema need not be read for them */
    json_t *schema = fb_load_json(pass->parameters);
    if (!schema) return fb_fail_memory(error);
    checker c = {.pass = pass, .pointer = pointer, .error = error};
    fb_status status = check_all(&c, schema, params);
    json_decref(schema);
    return status;
}

#define MAX_NESTING 64 /* lists in lists */

/* The beginning of a client's text, for a message. */
typedef struct beginning {
    char text[84];
} beginning;

static beginning brief(const char *text) {
    beginning cut;
    fb_copy_text(cut.text, sizeof cut.text, text);
    return cut;
}

static void free_call(fb_pass_call *call) {
    free(call->params);
    free(call->chosen);
    free(call->pointer);
    fb_pass_free(call->pass);
}

void fb_composition_free(fb_composition *composition) {
    for (size_t i = 0; i < composition->count; i++) free_call(&composition->calls[i]);
    free(composition->calls);
    fb_buffer_free(&composition->requested);
    *composition = (fb_composition){0};
}

/* Takes what the call has. */
static fb_status add_call(fb_composition *composition, fb_pass_call call, fb_error *error) {
    const fb_pass *pass = call.pass;
    fb_status status = FB_OK;
    if (!call.params) status = fb_fail_memory(error);
    if (!status && !FB_GROW(composition->calls, composition->count, composition->capacity)) status = fb_fail_memory(error);
    if (!status && !fb_pass_signature(pass->name, pass->version, pass->digest, call.params, call.chosen, call.signature))
        status = fb_fail_memory(error);
    if (status) free_call(&call);
    else composition->calls[composition->count++] = call;
    return status;
}

/* Derives what follows from the calls. */
static fb_status finish(fb_composition *composition, fb_error *error) {
    const char **signatures = malloc((composition->count + 1) * sizeof *signatures);
    if (!signatures) return fb_fail_memory(error);
    composition->reversible = composition->preserves_computation = true;
    for (size_t i = 0; i < composition->count; i++) {
        signatures[i] = composition->calls[i].signature;
        composition->reversible &= composition->calls[i].pass->reversible;
        composition->preserves_computation &= composition->calls[i].pass->preserves_computation;
    }
    bool ok = fb_composition_signature(signatures, composition->count, composition->signature);
    free(signatures);
    return ok ? FB_OK : fb_fail_memory(error);
}

fb_status fb_composition_settle(fb_composition *composition, const fb_run *run, fb_error *error) {
    size_t kept = 0;
    for (size_t i = 0; i < composition->count; i++) {
        fb_pass_call *call = &composition->calls[i];
        if (kept == run->count || run->passes[kept].position != i) {
            free_call(call);
            continue;
        }
        composition->calls[kept] = *call;
        composition->calls[kept].round_size = composition->calls[kept].rounds_left = 0;
        kept++;
    }
    composition->count = kept;
    return finish(composition, error);
}

/* ---- reading ----------------------------------------------------------------------------------------------------------- */

/* The reader's place in the list, as a JSON Pointer that grows and shrinks. */
typedef struct reader {
    fb_composition *out;
    const fb_pass_library *library;
    size_t may_name; /* how many passes and presets a client's list may still name */
    bool is_clients;
    const char *preset; /* whose own list it reads */
    fb_buffer pointer;
    fb_error *error;
} reader;

static const char *here(reader *r) {
    return fb_buffer_text(&r->pointer);
}

static fb_status wrong_type(reader *r, const char *what) {
    return fb_fail(r->error, FB_INVALID, "wrong-type", here(r), "%s", what);
}

/* The pass of this binary, or of the library; `version` 0, or one that a pass of this binary lacks, is the newest. */
static fb_status find_version(reader *r, const char *name, int version, const fb_pass **out) {
    *out = version ? fb_pass_find_version(name, version) : NULL;
    if (!*out) *out = fb_pass_find(name);
    return *out || !r->library ? FB_OK : r->library->find(r->library->context, name, version, out, r->error);
}

static fb_status find_pass(reader *r, const char *name, int version, const char *version_pointer, const fb_pass **out) {
    fb_status status = find_version(r, name, version, out);
    if (status || (*out && (!version || (*out)->version == version))) return status;
    const fb_pass *newest = *out;
    if (!newest && version) status = find_version(r, name, 0, &newest);
    if (status) return status;
    if (newest)
        fb_fail(r->error, FB_INVALID, "unknown-version", version_pointer, "%s has no version %d; the newest is %d",
                newest->name, version, newest->version);
    else
        fb_fail(r->error, FB_INVALID, "unknown-pass", here(r), "there is no pass named \"%s\"; GET /v1/passes lists them",
                brief(name).text);
    fb_pass_free(newest);
    return FB_INVALID;
}

/* 3.0 is 3 where an integer is meant. */
static bool is_equal(const json_t *a, const json_t *b) {
    bool are_numbers = json_is_number(a) && json_is_number(b);
    return are_numbers ? json_number_value(a) == json_number_value(b) : json_equal(a, b);
}

/* A default that is spelled out is the same pass. False when memory is out. */
static bool drop_defaults(const fb_pass *pass, json_t *params) {
    json_t *schema = json_object_size(params) ? fb_load_json(pass->parameters) : json_object(), *value;
    const json_t *known = json_object_get(schema, "properties");
    const char *name;
    void *next;
    json_object_foreach_safe(params, next, name, value) {
        const json_t *without = json_object_get(json_object_get(known, name), "default");
        if (without && is_equal(value, without)) json_object_del(params, name);
    }
    json_decref(schema);
    return schema != NULL;
}

/* `only` and `except` of a call: the names of matches, each once and in order. An empty `except` is the same as none. */
static fb_status read_chosen(reader *r, const json_t *entry, fb_pass_call *call) {
    static const char *const names[] = {"only", "except"};
    json_t *kept = json_object();
    fb_status status = kept ? FB_OK : fb_fail_memory(r->error);
    for (size_t k = 0; k < 2 && !status; k++) {
        const json_t *list = json_object_get(entry, names[k]);
        json_t *name;
        json_t *set = list ? json_object() : NULL, *once = list ? json_array() : NULL;
        size_t mark = fb_pointer_enter(&r->pointer, names[k]), index;
        if (list && !json_is_array(list)) status = wrong_type(r, "only and except are lists of names of matches");
        json_array_foreach((json_t *)(uintptr_t)list, index, name) {
            if (status) break;
            size_t at = fb_pointer_enter_item(&r->pointer, index);
            const char *text = json_string_value(name);
            if (!text) status = wrong_type(r, "a match is named by its first marked node, a string");
            else if (!json_object_get(set, text) && (json_object_set(set, text, name) || json_array_append(once, name)))
                status = fb_fail_memory(r->error);
            if (!status) r->pointer.size = at;
        }
        if (!status && (k == 0 ? once != NULL : json_array_size(once) > 0) && json_object_set(kept, names[k], once))
            status = fb_fail_memory(r->error);
        json_decref(once);
        json_decref(set);
        if (!status) r->pointer.size = mark;
    }
    if (!status && json_object_size(kept)) {
        fb_buffer text = {0};
        if (fb_free_json_canonical(kept, &text)) status = fb_fail_memory(r->error);
        else if (!(call->chosen = fb_buffer_take(&text, NULL)) || !(call->pointer = strdup(here(r))))
            status = fb_fail_memory(r->error);
    }
    json_decref(kept);
    return status;
}

/* Takes what the call has. The parameters are at the reader's pointer. */
static fb_status add_with_params(reader *r, fb_pass_call call, const json_t *given) {
    const fb_pass *pass = call.pass;
    json_t *params = given ? json_copy((json_t *)(uintptr_t)given) : json_object();
    fb_buffer canonical = {0};
    fb_status status = params ? params_check(pass, params, &r->pointer, r->error) : fb_fail_memory(r->error);
    if (!status && r->is_clients && !drop_defaults(pass, params)) status = fb_fail_memory(r->error);
    if (!status) {
        status = fb_free_json_canonical(params, &canonical);
        if (status == FB_NO_MEMORY) fb_fail_memory(r->error);
        else if (status) fb_fail(r->error, status, "bad-parameter", here(r), "the parameters cannot be held exactly");
    }
    json_decref(params);
    if (status) {
        fb_buffer_free(&canonical);
        free_call(&call);
        return status;
    }
    call.params = fb_buffer_take(&canonical, NULL);
    call.preset = r->preset;
    return add_call(r->out, call, r->error);
}

static fb_status read_call(reader *r, const fb_pass *pass, const json_t *given, const json_t *entry) {
    fb_pass_call call = {.pass = pass};
    fb_status status = read_chosen(r, entry, &call);
    if (status) {
        free_call(&call);
        return status;
    }
    size_t mark = given ? fb_pointer_enter(&r->pointer, "params") : r->pointer.size;
    status = add_with_params(r, call, given);
    if (!status) r->pointer.size = mark;
    return status;
}

/* ---- presets ----------------------------------------------------------------------------------------------------------- */

static fb_status read_list(reader *r, const json_t *list, int depth);

/* One round. */
static json_t *load_round(const fb_preset *preset, bool is_one_token) {
    json_t *list = fb_load_json(preset->passes);
    json_t *more = is_one_token && preset->at_one_token ? fb_load_json(preset->at_one_token) : json_array();
    if (list && (!more || json_array_extend(list, more))) {
        json_decref(list);
        list = NULL;
    }
    json_decref(more);
    return list;
}

static fb_status add_rounds(reader *r, const fb_preset *preset, bool is_one_token) {
    json_t *list = load_round(preset, is_one_token);
    if (!list) return fb_fail_memory(r->error);
    fb_status status = FB_OK;
    size_t start = r->out->count;
    for (int round = 0; round < preset->rounds && !status; round++) {
        size_t first = r->out->count;
        r->preset = preset->name;
        status = read_list(r, list, 1);
        r->preset = NULL;
        if (status || round == 0) continue;
        r->out->calls[first].round_size = first - start;
        r->out->calls[first].rounds_left = (size_t)(preset->rounds - round);
        start = first;
    }
    json_decref(list);
    return status;
}

/* Reads a preset, whose only parameter may be `tokens`: how many rows a Linear gets at once. */
static fb_status read_preset(reader *r, const fb_preset *preset, const json_t *params, int version) {
    const json_t *tokens = preset->at_one_token ? json_object_get(params, "tokens") : NULL;
    double count = json_number_value(tokens);
    if (version || json_object_size(params) > (tokens ? 1 : 0))
        return fb_fail(r->error, FB_INVALID, "unknown-parameter", here(r), "the preset %s has no versions, and takes %s",
                       preset->name, preset->at_one_token ? "the parameter tokens alone" : "no parameters");
    size_t mark = r->pointer.size;
    if (tokens) {
        fb_pointer_enter(&r->pointer, "params");
        fb_pointer_enter(&r->pointer, "tokens");
        if (!json_is_number(tokens)) return wrong_type(r, "tokens is an integer of 1 or more");
        if (count < 1 || count != floor(count))
            return fb_fail(r->error, FB_INVALID, "bad-parameter", here(r), "tokens is an integer of 1 or more");
    }
    r->pointer.size = mark;
    return add_rounds(r, preset, count == 1);
}

/* The version that a number names (1.0 is 1); 0 for anything else. */
static int version_of(const json_t *number) {
    double version = json_number_value(number);
    return version >= 1 && version < 1e6 && version == (double)(int)version ? (int)version : 0;
}

static fb_status read_object(reader *r, const json_t *entry) {
    const char *key, *name = NULL;
    json_t *value;
    const json_t *params = NULL;
    int version = 0;
    json_object_foreach((json_t *)(uintptr_t)entry, key, value) {
        size_t mark = fb_pointer_enter(&r->pointer, key);
        if (strcmp(key, "name") == 0) {
            if (!(name = json_string_value(value))) return wrong_type(r, "a pass's name is a string");
        } else if (strcmp(key, "params") == 0) {
            if (!json_is_object(params = value)) return wrong_type(r, "a pass's params are an object");
        } else if (strcmp(key, "version") == 0) {
            if (!(version = version_of(value))) return wrong_type(r, "a pass's version is a positive integer");
        } else if (strcmp(key, "only") && strcmp(key, "except")) {
            return fb_fail(r->error, FB_INVALID, "unknown-member", here(r),
                           "a pass has name, params, version, only and except");
        }
        r->pointer.size = mark;
    }
    if (!name) return fb_fail(r->error, FB_INVALID, "missing-member", here(r), "a pass needs a name");
    const fb_preset *preset = fb_preset_find(name);
    const char *chosen = json_object_get(entry, "only") ? "only" : json_object_get(entry, "except") ? "except" : NULL;
    if (preset && chosen) {
        fb_pointer_enter(&r->pointer, chosen);
        return fb_fail(r->error, FB_INVALID, "unknown-member", here(r),
                       "%s is a preset: list the passes of its run, and choose the matches of one of them", name);
    }
    if (preset) return read_preset(r, preset, params, version);
    size_t mark = fb_pointer_enter(&r->pointer, "version");
    char version_pointer[FB_POINTER_MAX];
    fb_copy_text(version_pointer, sizeof version_pointer, here(r));
    r->pointer.size = mark;
    fb_pointer_enter(&r->pointer, "name");
    const fb_pass *pass;
    fb_status status = find_pass(r, name, version, version_pointer, &pass);
    r->pointer.size = mark;
    return status ? status : read_call(r, pass, params, entry);
}

static fb_status read_name(reader *r, const char *name) {
    const fb_preset *preset = fb_preset_find(name);
    if (preset) return add_rounds(r, preset, false);
    const fb_pass *pass;
    fb_status status = find_pass(r, name, 0, "", &pass);
    return status ? status : read_call(r, pass, NULL, NULL);
}

/* An entry that has been read. */
static fb_status keep_requested(reader *r, const json_t *entry) {
    fb_buffer *out = &r->out->requested;
    const char *name = json_string_value(json_is_object(entry) ? json_object_get(entry, "name") : entry);
    fb_buffer_char(out, out->size ? ',' : '[');
    if (json_object_size(entry) < 2) fb_buffer_json_string(out, name, strlen(name));
    else if (fb_free_json_canonical(entry, out)) return fb_fail_memory(r->error); /* its parameters were read */
    return FB_OK;
}

static fb_status read_entry(reader *r, const json_t *entry) {
    if (!json_is_string(entry) && !json_is_object(entry))
        return wrong_type(r, "a pass is a name, an object or a list of passes");
    if (!r->preset && !r->may_name--)
        return fb_fail(r->error, FB_INVALID, "too-many-passes", here(r),
                       "a list names at most %d passes; a preset counts as one", FB_MAX_PASSES);
    fb_status status = json_is_string(entry) ? read_name(r, json_string_value(entry)) : read_object(r, entry);
    return status || r->preset || !r->is_clients ? status : keep_requested(r, entry);
}

static fb_status read_list(reader *r, const json_t *list, int depth) {
    if (!json_is_array(list)) return wrong_type(r, "a list of passes is an array");
    if (depth > MAX_NESTING) return fb_fail(r->error, FB_INVALID, "nesting-too-deep", here(r), "lists are nested too deeply");
    size_t index;
    json_t *entry;
    json_array_foreach((json_t *)(uintptr_t)list, index, entry) {
        size_t mark = fb_pointer_enter_item(&r->pointer, index);
        fb_status status = json_is_array(entry) ? read_list(r, entry, depth + 1) : read_entry(r, entry);
        if (status) return status;
        r->pointer.size = mark;
    }
    return FB_OK;
}

static fb_status read_assumptions(reader *r, const json_t *assume, const char *pointer) {
    const fb_pass *pass;
    fb_buffer_string(&r->pointer, pointer);
    fb_status status = find_pass(r, "RecordTypes", 0, "", &pass);
    if (!status) status = add_with_params(r, (fb_pass_call){.pass = pass}, assume);
    r->pointer.size = 0;
    return status;
}

/* A client's list behind `assume`, or one that fb_composition_write wrote. */
static fb_status read_composition(const json_t *assume, const char *assume_pointer, const json_t *list, const char *pointer,
                                  bool is_clients, const fb_pass_library *library, fb_composition *out, fb_error *error) {
    fb_composition composition = {0};
    fb_error ignored = {0};
    reader r = {.out = &composition,
                .library = library,
                .may_name = is_clients ? FB_MAX_PASSES : SIZE_MAX,
                .is_clients = is_clients,
                .error = error ? error : &ignored};
    fb_status status = assume ? read_assumptions(&r, assume, assume_pointer) : FB_OK;
    size_t assumed = composition.count;
    fb_buffer_string(&r.pointer, pointer);
    if (!status) status = read_list(&r, list, 1);
    if (!status && composition.count == assumed) {
        status = fb_fail(error, FB_INVALID, "no-passes", pointer, "the list of passes is empty");
    }
    if (is_clients) fb_buffer_char(&composition.requested, ']');
    if (!status && composition.requested.failed) status = fb_fail_memory(error);
    if (!status) status = finish(&composition, error);
    fb_buffer_free(&r.pointer);
    if (status) fb_composition_free(&composition);
    else *out = composition;
    return status;
}

fb_status fb_composition_read(const json_t *list, const char *pointer, const fb_pass_library *library, fb_composition *out,
                              fb_error *error) {
    return read_composition(NULL, "", list, pointer, false, library, out, error);
}

fb_status fb_composition_read_request(const json_t *assume, const char *assume_pointer, const json_t *list, const char *pointer,
                                      const fb_pass_library *library, fb_composition *out, fb_error *error) {
    return read_composition(assume, assume_pointer, list, pointer, true, library, out, error);
}

static void write_call(const fb_pass_call *call, const char *chosen, fb_buffer *out) {
    fb_buffer_printf(out, "{\"name\":\"%s\",\"version\":%d,\"params\":", call->pass->name, call->pass->version);
    fb_buffer_string(out, call->params);
    fb_put_chosen(out, chosen);
    fb_buffer_char(out, '}');
}

/* A choice that leaves out one more match; to be freed. */
static char *choose_without(const char *chosen, const char *match) {
    json_t *choice = chosen ? fb_load_json(chosen) : json_object();
    if (choice && !json_object_get(choice, "except")) json_object_set_new(choice, "except", json_array());
    fb_buffer text = {0};
    bool ok = choice && !json_array_append_new(json_object_get(choice, "except"), json_string(match)) &&
              !fb_free_json_canonical(choice, &text);
    json_decref(choice);
    if (ok) return fb_buffer_take(&text, NULL);
    fb_buffer_free(&text);
    return NULL;
}

void fb_composition_write_without(const fb_composition *composition, size_t position, const char *match, fb_buffer *out) {
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < composition->count; i++) {
        const fb_pass_call *call = &composition->calls[i];
        char *chosen = match && i == position ? choose_without(call->chosen, match) : NULL;
        out->failed |= match && i == position && !chosen;
        if (i) fb_buffer_char(out, ',');
        write_call(call, chosen ? chosen : call->chosen, out);
        free(chosen);
    }
    fb_buffer_char(out, ']');
}

void fb_composition_write(const fb_composition *composition, fb_buffer *out) {
    fb_composition_write_without(composition, 0, NULL, out);
}

/* ---- signatures --------------------------------------------------------------------------------------------------------- */

static bool sign(fb_buffer *text, fb_signature out) {
    char id[FB_ID_LENGTH + 1];
    bool ok = !text->failed && fb_sha256_id(text->data, text->size, id);
    if (ok) {
        memcpy(out, id + strlen("sha256:"), FB_SIGNATURE_LENGTH);
        out[FB_SIGNATURE_LENGTH] = '\0';
    }
    fb_buffer_free(text);
    return ok;
}

bool fb_pass_signature(const char *name, int version, const char *digest, const char *params, const char *chosen,
                       fb_signature out) {
    fb_buffer text = {0};
    fb_buffer_char(&text, '{');
    if (chosen) fb_buffer_append(&text, chosen + 1, strlen(chosen) - 2);
    fb_buffer_string(&text, chosen ? ",\"params\":" : "\"params\":");
    fb_buffer_string(&text, params);
    fb_buffer_string(&text, ",\"pass\":");
    fb_buffer_json_string(&text, name, strlen(name));
    if (digest) fb_buffer_printf(&text, ",\"rule\":\"%s\"", digest);
    fb_buffer_printf(&text, ",\"version\":%d}", version);
    return sign(&text, out);
}

bool fb_composition_signature(const char *const *signatures, size_t count, fb_signature out) {
    fb_buffer text = {0};
    fb_buffer_char(&text, '[');
    for (size_t i = 0; i < count; i++) fb_buffer_printf(&text, "%s\"%s\"", i ? "," : "", signatures[i]);
    fb_buffer_char(&text, ']');
    return sign(&text, out);
}

/* ---- presets ------------------------------------------------------------------------------------------------------------ */

static const fb_preset presets[] = {
#define FB_PRESET(name_text, summary_text, list, most, more) {name_text, summary_text, list, most, more},
#include "core/compose/presets.def"
#undef FB_PRESET
};

const fb_preset *fb_preset_at(size_t index) {
    return index < sizeof presets / sizeof *presets ? &presets[index] : NULL;
}

const fb_preset *fb_preset_find(const char *name) {
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (strcmp(presets[i].name, name) == 0) return &presets[i];
    }
    return NULL;
}
