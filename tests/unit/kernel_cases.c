#include "tests/unit/kernel_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "core/base/base64.h"
#include "core/base/buffer.h"
#include "tests/unit/documents.h"

const char *const kernel_families[KERNEL_FAMILIES] = {
    "python",   "index",  "binary",  "unary",       "choice",    "create",  "reduce",  "view",   "copying",
    "matmul",   "conv",   "pool",    "norm",        "attention", "moves",   "batches", "layout", "kinds",
    "upsample", "einsum", "patches", "layer_kinds", "complex",   "fourier", "linalg",  "losses"};

json_t *kernel_cases_open(const char *family) {
    char path[200], part[1 << 16];
    snprintf(path, sizeof path, "tests/fixtures/kernels/%s.json.gz", family);
    gzFile file = gzopen(path, "rb");
    fb_buffer text = {0};
    if (!file) {
        fprintf(stderr, "%s cannot be read\n", path);
        abort();
    }
    for (int count; (count = gzread(file, part, sizeof part)) > 0;) fb_buffer_append(&text, part, (size_t)count);
    gzclose(file);
    json_error_t error;
    json_t *cases = json_loadb(text.data, text.size, JSON_ALLOW_NUL, &error);
    fb_buffer_free(&text);
    if (!json_array_size(cases)) {
        fprintf(stderr, "%s: %s\n", path, error.text);
        abort();
    }
    return cases;
}

const char *kernel_case_name(const json_t *item) {
    return json_string_value(json_object_get(item, "name"));
}

fb_graph *kernel_case_graph(const json_t *item) {
    char *text = json_dumps(json_object_get(item, "graph"), JSON_COMPACT | JSON_REAL_PRECISION(17));
    fb_graph *graph = graph_of(text, strlen(text));
    free(text);
    return graph;
}

fb_status kernel_case_run(const fb_graph *graph, fb_precision precision, fb_array_memory *memory, fb_object *output,
                          fb_error *error) {
    fb_eval_options options = {.precision = precision};
    return fb_evaluate_graph(graph, &options, NULL, memory, output, error);
}

/* ---- comparing ----------------------------------------------------------------------------------------------------------- */

typedef struct comparison {
    const json_t *outputs;
    size_t next; /* output */
    double relative, absolute;
    bool is_exact, is_loose;
    char *why;
    size_t size;
} comparison;

static bool wrong(comparison *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool wrong(comparison *c, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int used = snprintf(c->why, c->size, "output %zu: ", c->next - 1);
    vsnprintf(c->why + used, c->size - (size_t)used, format, list);
    va_end(list);
    return true;
}

static bool number_is_wrong(const comparison *c, double got, double expected) {
    if (isnan(expected) || isnan(got)) return isnan(expected) != isnan(got);
    if (c->is_exact) return got != expected || signbit(got) != signbit(expected);
    if (isinf(expected) || isinf(got)) return got != expected;
    return fabs(got - expected) > c->absolute + c->relative * fabs(expected);
}

/* In float64 what overflows, or is decided at a step, may come out otherwise: only what is ordinary is compared. */
static bool is_ordinary(double number) {
    return isfinite(number) && fabs(number) < 1e4 && (fabs(number) > 1e-3 || number == 0);
}

static bool elements_are_wrong(comparison *c, const fb_array *array, const fb_array *known) {
    bool is_wrong = false;
    if (fb_dtype_is_complex(known->dtype)) {
        for (int part = 0; part < 2 && !is_wrong; part++) {
            fb_array of_array = fb_array_part_of(array, part), of_known = fb_array_part_of(known, part);
            is_wrong = elements_are_wrong(c, &of_array, &of_known);
        }
        return is_wrong;
    }
    for (int64_t i = 0; i < fb_array_count(known) && !is_wrong; i++) {
        double number = fb_array_number(array, i), wanted = fb_array_number(known, i);
        if (c->is_loose && (!is_ordinary(wanted) || !is_ordinary(number))) continue;
        is_wrong = number_is_wrong(c, number, wanted) ||
                   (array->held == FB_HELD_INT && !c->is_loose && fb_array_int(array, i) != fb_array_int(known, i));
        if (is_wrong) wrong(c, "element %lld is %.17g in place of %.17g", (long long)i, number, wanted);
    }
    return is_wrong;
}

static bool array_is_wrong(comparison *c, const json_t *expected, const fb_array *array) {
    const char *dtype_name = json_string_value(json_object_get(expected, "dtype"));
    const char *text = json_string_value(json_object_get(expected, "data"));
    const json_t *shape = json_object_get(expected, "shape");
    if (!dtype_name) return wrong(c, "a tensor in place of a number");
    fb_dtype dtype = fb_dtype_find(dtype_name);
    if (array->dtype != dtype) return wrong(c, "dtype %s in place of %s", fb_dtype_name(array->dtype), dtype_name);
    bool fits = (int)json_array_size(shape) == array->rank;
    for (int i = 0; i < array->rank && fits; i++)
        fits = json_integer_value(json_array_get(shape, (size_t)i)) == array->sizes[i];
    if (!fits) {
        char *wanted = json_dumps(shape, JSON_COMPACT);
        wrong(c, "%d dimensions (%lld …) in place of %s", array->rank, array->rank ? (long long)array->sizes[0] : 0, wanted);
        free(wanted);
        return true;
    }
    size_t size = fb_base64_size(text, strlen(text));
    unsigned char *bytes = malloc(size + 1);
    fb_base64_decode(text, 0, size, bytes);
    fb_array_memory memory = {0};
    fb_array *known;
    fb_error error = {0};
    fb_status status = fb_array_from_bytes(&memory, dtype, array->rank, array->sizes, bytes, size, &known, &error);
    free(bytes);
    if (status) return wrong(c, "%s", error.message);
    bool is_wrong = elements_are_wrong(c, array, known);
    fb_array_drop(known);
    return is_wrong;
}

static bool value_is_wrong(comparison *c, const json_t *value, const fb_object *object) {
    const char *text;
    json_int_t length;
    double number;
    switch (object->kind) {
    case FB_OBJECT_NONE: return !json_is_null(value) && wrong(c, "None");
    case FB_OBJECT_BOOL: return json_is_boolean(value) && json_is_true(value) == object->boolean ? false : wrong(c, "bool");
    case FB_OBJECT_INT:
        text = json_string_value(json_object_get(value, "$int"));
        length = text ? strtoll(text, NULL, 10) : json_integer_value(value);
        if ((!text && !json_is_integer(value)) || length != object->integer)
            return wrong(c, "the int %lld in place of another", (long long)object->integer);
        return false;
    case FB_OBJECT_FLOAT:
        text = json_string_value(json_object_get(value, "$float"));
        if (!text && !json_is_real(value)) return wrong(c, "a float in place of something else");
        number = text ? strtod(text, NULL) : json_real_value(value);
        if (c->is_loose && fabs(number - object->number) <= 1e-3 * fabs(number)) return false;
        return number_is_wrong(c, object->number, number) ? wrong(c, "%.17g in place of %.17g", object->number, number) : false;
    case FB_OBJECT_STRING:
        text = json_string_value(value);
        return text && strcmp(text, object->text) == 0 ? false : wrong(c, "another string");
    case FB_OBJECT_DTYPE:
        text = json_string_value(json_object_get(value, "$dtype"));
        return text && fb_dtype_find(text) == object->dtype ? false : wrong(c, "another dtype");
    case FB_OBJECT_DEVICE: return json_object_get(value, "$device") ? false : wrong(c, "a device");
    default: return wrong(c, "an object of kind %d", (int)object->kind);
    }
}

/* A torch.Size is one output, any other sequence several. */
static bool object_is_wrong(comparison *c, const fb_object *object) {
    const json_t *expected = json_array_get(c->outputs, c->next), *value = json_object_get(expected, "value");
    const json_t *items = json_object_get(value, "$size");
    bool holds_tensors =
        fb_object_is_sequence(object) && object->items->count && object->items->objects[0].kind > FB_OBJECT_FLOAT;
    if (fb_object_is_sequence(object) && items && !holds_tensors) {
        c->next++;
        if (json_array_size(items) != object->items->count) return wrong(c, "a Size of another length");
        for (size_t i = 0; i < object->items->count; i++)
            if (value_is_wrong(c, json_array_get(items, i), &object->items->objects[i])) return true;
        return false;
    }
    if (fb_object_is_sequence(object)) {
        for (size_t i = 0; i < object->items->count; i++)
            if (object_is_wrong(c, &object->items->objects[i])) return true;
        return false;
    }
    c->next++;
    if (!expected) return wrong(c, "there is no such output");
    if (object->kind == FB_OBJECT_ARRAY) return array_is_wrong(c, expected, object->array);
    return value ? value_is_wrong(c, value, object) : wrong(c, "no tensor");
}

bool kernel_case_is_wrong(const json_t *item, fb_precision precision, fb_status status, const fb_object *output,
                          const fb_error *error, char *why, size_t size) {
    bool must_fail = json_is_true(json_object_get(item, "refused"));
    if (must_fail || status) {
        bool has_failed = status == FB_INVALID || status == FB_TOO_LARGE;
        if (must_fail && has_failed) return false;
        if (has_failed && json_is_true(json_object_get(item, "optional"))) return false;
        snprintf(why, size, must_fail ? "it is computed (%d), which PyTorch refuses (%s)" : "status %d: %s", (int)status,
                 error->message);
        return true;
    }
    const json_t *tolerance = json_object_get(item, "tolerance");
    comparison c = {.outputs = json_object_get(item, "outputs"),
                    .relative = json_number_value(json_object_get(tolerance, "relative")),
                    .absolute = json_number_value(json_object_get(tolerance, "absolute")),
                    .is_exact = !tolerance,
                    .is_loose = precision == FB_PRECISION_DOUBLE,
                    .why = why,
                    .size = size};
    if (c.is_loose) {
        c.is_exact = false;
        c.relative = fmax(4 * c.relative, 0.05);
        c.absolute = fmax(c.absolute, 0.05);
    }
    if (object_is_wrong(&c, output)) return true;
    c.next++;
    return c.next - 1 == json_array_size(c.outputs) ? false : wrong(&c, "there are outputs missing");
}
