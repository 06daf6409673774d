#include "core/compose/composition.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/graph/document.h"

#define MAX_NESTING 64 /* lists in lists */

void fb_composition_free(fb_composition *composition) {
    for (size_t i = 0; i < composition->count; i++) free(composition->calls[i].params);
    free(composition->calls);
    *composition = (fb_composition){0};
}

/* Takes `params`. */
static fb_status add_call(fb_composition *composition, const fb_pass *pass, char *params, const char *pointer,
                          fb_error *error) {
    fb_status status = FB_OK;
    if (!params) status = fb_fail_memory(error);
    else if (composition->count == FB_MAX_PASSES)
        status = fb_fail(error, FB_INVALID, "too-many-passes", pointer, "a composition has at most %d passes", FB_MAX_PASSES);
    if (!status && composition->count == composition->capacity) {
        size_t capacity = composition->capacity ? composition->capacity * 2 : 8;
        fb_pass_call *calls = realloc(composition->calls, capacity * sizeof *calls);
        if (calls) {
            composition->calls = calls;
            composition->capacity = capacity;
        } else {
            status = fb_fail_memory(error);
        }
    }
    fb_pass_call call = {.pass = pass, .params = params};
    if (!status && !fb_pass_signature(pass->name, pass->version, params, call.signature)) status = fb_fail_memory(error);
    if (status) free(params);
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

/* ---- reading ----------------------------------------------------------------------------------------------------------- */

static fb_status find_pass(const char *name, int64_t version, const char *pointer, const fb_pass **out, fb_error *error) {
    const fb_pass *newest = fb_pass_find(name);
    if (!newest) {
        return fb_fail(error, FB_INVALID, "unknown-pass", pointer,
                       "there is no pass named \"%.80s\"; GET /v1/passes lists them", name);
    }
    *out = newest;
    if (version == 0 || version == newest->version) return FB_OK;
    for (size_t i = 0; fb_pass_at(i); i++) {
        *out = fb_pass_at(i);
        if (strcmp((*out)->name, name) == 0 && (*out)->version == version) return FB_OK;
    }
    return fb_fail(error, FB_INVALID, "unknown-version", pointer, "%s has no version %lld; the newest is %d", name,
                   (long long)version, newest->version);
}

/* Every parameter must be one that the pass's schema names. */
static fb_status check_params(const fb_pass *pass, const json_t *params, const char *pointer, fb_error *error) {
    json_t *schema = json_loads(pass->parameters, 0, NULL);
    if (!schema) return fb_fail_memory(error);
    const json_t *known = json_object_get(schema, "properties");
    const char *key;
    json_t *value;
    fb_status status = FB_OK;
    json_object_foreach((json_t *)(uintptr_t)params, key, value) {
        if (json_object_get(known, key)) continue;
        fb_buffer at = {0};
        fb_buffer_string(&at, pointer);
        fb_buffer_pointer_token(&at, key, strlen(key));
        status = fb_fail(error, FB_INVALID, "unknown-parameter", fb_buffer_text(&at), "%s has no parameter \"%.80s\"",
                         pass->name, key);
        fb_buffer_free(&at);
        break;
    }
    json_decref(schema);
    return status;
}

static fb_status read_object(const json_t *entry, const char *pointer, fb_composition *out, fb_error *error) {
    const char *key, *name = NULL;
    char at[FB_POINTER_MAX];
    json_t *value;
    const json_t *params = NULL;
    int64_t version = 0;
    json_object_foreach((json_t *)(uintptr_t)entry, key, value) {
        snprintf(at, sizeof at, "%s/%s", pointer, key);
        if (strcmp(key, "name") == 0 && json_is_string(value)) name = json_string_value(value);
        else if (strcmp(key, "params") == 0 && json_is_object(value)) params = value;
        else if (strcmp(key, "version") == 0 && json_is_number(value) && json_number_value(value) >= 1 &&
                 json_number_value(value) < 1e6 && json_number_value(value) == (double)(int64_t)json_number_value(value))
            version = (int64_t)json_number_value(value);
        else if (strcmp(key, "name") && strcmp(key, "params") && strcmp(key, "version"))
            return fb_fail(error, FB_INVALID, "unknown-member", pointer, "a pass has name, params and version, not \"%.80s\"",
                           key);
        else
            return fb_fail(error, FB_INVALID, "wrong-type", at,
                           "name is a string, params an object, version a positive integer");
    }
    if (!name) return fb_fail(error, FB_INVALID, "missing-member", pointer, "a pass needs a name");
    const fb_pass *pass;
    snprintf(at, sizeof at, "%s/name", pointer);
    fb_status status = find_pass(name, version, at, &pass, error);
    if (status) return status;
    snprintf(at, sizeof at, "%s/params", pointer);
    if (params && (status = check_params(pass, params, at, error))) return status;
    fb_buffer canonical = {0};
    if (!params) fb_buffer_string(&canonical, "{}");
    else if ((status = fb_free_json_canonical(params, &canonical))) {
        fb_buffer_free(&canonical);
        return fb_fail(error, status, "bad-parameter", at, "the parameters cannot be held exactly");
    }
    return add_call(out, pass, fb_buffer_take(&canonical, NULL), pointer, error);
}

static fb_status read_list(const json_t *list, const char *pointer, int depth, fb_composition *out, fb_error *error) {
    if (!json_is_array(list)) return fb_fail(error, FB_INVALID, "wrong-type", pointer, "a list of passes is an array");
    if (depth > MAX_NESTING) return fb_fail(error, FB_INVALID, "nesting-too-deep", pointer, "lists are nested too deeply");
    size_t index;
    json_t *entry;
    json_array_foreach((json_t *)(uintptr_t)list, index, entry) {
        char at[FB_POINTER_MAX];
        const fb_pass *pass;
        snprintf(at, sizeof at, "%s/%zu", pointer, index);
        fb_status status;
        if (json_is_string(entry)) {
            status = find_pass(json_string_value(entry), 0, at, &pass, error);
            if (!status) status = add_call(out, pass, strdup("{}"), at, error);
        } else if (json_is_object(entry)) {
            status = read_object(entry, at, out, error);
        } else if (json_is_array(entry)) {
            status = read_list(entry, at, depth + 1, out, error);
        } else {
            status = fb_fail(error, FB_INVALID, "wrong-type", at, "a pass is a name, an object or a list of passes");
        }
        if (status) return status;
    }
    return FB_OK;
}

fb_status fb_composition_read(const json_t *list, const char *pointer, fb_composition *out, fb_error *error) {
    fb_composition composition = {0};
    fb_status status = read_list(list, pointer, 1, &composition, error);
    if (!status && composition.count == 0) {
        status = fb_fail(error, FB_INVALID, "no-passes", pointer, "the list of passes is empty");
    }
    if (!status) status = finish(&composition, error);
    if (status) fb_composition_free(&composition);
    else *out = composition;
    return status;
}

void fb_composition_write(const fb_composition *composition, fb_buffer *out) {
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < composition->count; i++) {
        const fb_pass_call *call = &composition->calls[i];
        fb_buffer_printf(out, "%s{\"name\":\"%s\",\"version\":%d,\"params\":", i ? "," : "", call->pass->name,
                         call->pass->version);
        fb_buffer_string(out, call->params);
        fb_buffer_char(out, '}');
    }
    fb_buffer_char(out, ']');
}

/* ---- parts ------------------------------------------------------------------------------------------------------------- */

static fb_status select_entry(const fb_composition *composition, const json_t *entry, const char *pointer, bool *selected,
                              fb_error *error) {
    if (json_is_string(entry)) {
        bool is_found = false;
        for (size_t i = 0; i < composition->count; i++) {
            if (strcmp(composition->calls[i].pass->name, json_string_value(entry)) == 0) is_found = selected[i] = true;
        }
        if (is_found) return FB_OK;
        return fb_fail(error, FB_INVALID, "unknown-pass", pointer, "the run has no pass named \"%.80s\"",
                       json_string_value(entry));
    }
    if (!json_is_number(entry)) {
        return fb_fail(error, FB_INVALID, "wrong-type", pointer, "a pass is given by its name or its position");
    }
    double position = json_number_value(entry);
    if (!(position >= 0 && position < (double)composition->count && position == (double)(size_t)position)) {
        return fb_fail(error, FB_INVALID, "bad-position", pointer, "positions are the integers from 0 to %zu",
                       composition->count - 1);
    }
    selected[(size_t)position] = true;
    return FB_OK;
}

fb_status fb_composition_select(const fb_composition *composition, const json_t *list, const char *pointer, bool *selected,
                                fb_error *error) {
    if (!json_is_array(list))
        return fb_fail(error, FB_INVALID, "wrong-type", pointer, "passes is an array of names and positions");
    if (json_array_size(list) == 0) return fb_fail(error, FB_INVALID, "no-passes", pointer, "the list of passes is empty");
    size_t index;
    json_t *entry;
    json_array_foreach((json_t *)(uintptr_t)list, index, entry) {
        char at[FB_POINTER_MAX];
        snprintf(at, sizeof at, "%s/%zu", pointer, index);
        fb_status status = select_entry(composition, entry, at, selected, error);
        if (status) return status;
    }
    return FB_OK;
}

fb_status fb_composition_without(const fb_composition *composition, const bool *selected, fb_composition *out,
                                 fb_error *error) {
    fb_composition rest = {0};
    fb_status status = FB_OK;
    for (size_t i = 0; i < composition->count && !status; i++) {
        const fb_pass_call *call = &composition->calls[i];
        if (!selected[i]) status = add_call(&rest, call->pass, strdup(call->params), "", error);
    }
    if (!status) status = finish(&rest, error);
    if (status) fb_composition_free(&rest);
    else *out = rest;
    return status;
}
