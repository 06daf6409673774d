#include "core/compose/params.h"

#include <math.h>
#include <stdio.h>

#include "core/json/load_json.h"

typedef struct checker {
    const fb_pass *pass;
    fb_buffer *pointer;
    fb_error *error;
} checker;

static void enter(checker *c, const char *token) {
    fb_buffer_pointer_token(c->pointer, token, strlen(token));
}

static fb_status fail(checker *c, const char *code, const char *format, const char *name) {
    const char *pointer = fb_buffer_text(c->pointer);
    char shown[84];
    fb_copy_text(shown, sizeof shown, name);
    return pointer ? fb_fail(c->error, FB_INVALID, code, pointer, format, c->pass->name, shown) : fb_fail_memory(c->error);
}

/* 3.0 is an integer, too. */
static bool is_of_type(const json_t *value, const char *type) {
    if (!strcmp(type, "boolean")) return json_is_boolean(value);
    if (!strcmp(type, "string")) return json_is_string(value);
    if (!strcmp(type, "array")) return json_is_array(value);
    if (!strcmp(type, "object")) return json_is_object(value);
    double number = json_number_value(value);
    return json_is_number(value) && (strcmp(type, "integer") || number == floor(number));
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
    if (type && !is_of_type(value, type)) return fail(c, "wrong-type", "%s takes another type as \"%s\"", name);
    if (choices && !is_listed(choices, value)) return fail(c, "bad-parameter", "%s does not take this as \"%s\"", name);
    if (json_is_number(value) && !is_in_range(schema, value))
        return fail(c, "bad-parameter", "%s takes no such number as \"%s\"", name);
    if (!json_is_array(value)) return FB_OK;
    if (json_array_size(value) < (size_t)json_integer_value(json_object_get(schema, "minItems")))
        return fail(c, "bad-parameter", "%s takes no list as short as this as \"%s\"", name);
    size_t index;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)value, index, item) {
        size_t mark = c->pointer->size;
        fb_buffer_printf(c->pointer, "/%zu", index);
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
        size_t mark = c->pointer->size;
        enter(c, name);
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

fb_status fb_params_check(const fb_pass *pass, const json_t *params, fb_buffer *pointer, fb_error *error) {
    bool takes_none = json_object_size(params) == 0 && !strstr(pass->parameters, "\"required\"");
    if (takes_none) return FB_OK; /* most calls: the schema need not be read for them */
    json_t *schema = fb_load_json(pass->parameters);
    if (!schema) return fb_fail_memory(error);
    checker c = {.pass = pass, .pointer = pointer, .error = error};
    fb_status status = check_all(&c, schema, params);
    json_decref(schema);
    return status;
}
