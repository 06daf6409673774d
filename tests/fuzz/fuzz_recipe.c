/* libFuzzer: whatever stands as a recipe, the reader answers; one that is typed is taken by the reader, its bytes are the same
 * however they are asked for, and a movement can be inverted: what is joined again is what was moved. The input is rows of the
 * table of tensors, as a JSON array; or else instructions that put an expression together. `make fuzz` builds and runs it. */
#include "tests/fuzz/fuzz.h"

#include <openssl/evp.h>
#include <string.h>

#include "core/weights/evaluate.h"
#include "core/weights/invert.h"
#include "tests/unit/evaluated.h"

#define STACK 12
#define MOST_ELEMENTS 20000

/* ---- the document -------------------------------------------------------------------------------------------------------- */

typedef struct source {
    const char *name, *dtype, *shape;
    size_t size;
} source;

static const source sources[] = {
    {"a", "float32", "[2,3]", 24}, {"b", "float32", "[3]", 12},      {"c", "float64", "[3,2]", 48}, {"d", "float16", "[]", 2},
    {"e", "float32", "[0,3]", 0},  {"f", "bfloat16", "[2,2,3]", 24}, {"i", "int64", "[2,3]", 48},   {"j", "uint8", "[4]", 4},
    {"k", "bool", "[2,3]", 6},     {"n", "int32", "[2,1]", 8},
};
enum { SOURCES = sizeof sources / sizeof *sources };

static void write_source(const source *source, size_t number, fb_buffer *out) {
    unsigned char bytes[64], encoded[100];
    for (size_t i = 0; i < source->size; i++)
        bytes[i] = (unsigned char)(strcmp(source->dtype, "bool") ? 7 * i + number : i % 2);
    if (strcmp(source->dtype, "int32") == 0) memcpy(bytes, (uint32_t[]){0, 1}, 8); /* an index */
    fb_buffer_printf(out, "{\"name\":\"%s\",\"dtype\":\"%s\",\"shape\":%s,\"data\":\"", source->name, source->dtype,
                     source->shape);
    fb_buffer_append(out, encoded, (size_t)EVP_EncodeBlock(encoded, bytes, (int)source->size));
    fb_buffer_string(out, "\"}");
}

/* A module owns the sources, and "made" when `rows` has it. */
static void write_document(const char *rows, size_t size, bool has_made, fb_buffer *out) {
    fb_buffer_string(out,
                     "{\"format\":\"foldback.graph/1\",\"nodes\":[{\"name\":\"m\",\"op\":\"call_module\",\"target\":\"m\"},"
                     "{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"m\"}]}],"
                     "\"modules\":[{\"path\":\"\",\"type\":\"M\"},{\"path\":\"m\",\"type\":\"N\",\"parameters\":{");
    for (size_t i = 0; i < SOURCES; i++)
        fb_buffer_printf(out, "%s\"%s\":\"%s\"", i ? "," : "", sources[i].name, sources[i].name);
    fb_buffer_string(out, has_made ? ",\"made\":\"made\"}}],\"tensors\":[" : "}}],\"tensors\":[");
    for (size_t i = 0; i < SOURCES; i++) {
        if (i) fb_buffer_char(out, ',');
        write_source(&sources[i], i, out);
    }
    if (size) fb_buffer_char(out, ',');
    fb_buffer_append(out, rows, size);
    fb_buffer_string(out, "]}");
    require(!out->failed);
}

/* ---- an expression ------------------------------------------------------------------------------------------------------- */

typedef struct machine {
    fb_graph *graph;
    fuzz_choices choices;
    fb_value stack[STACK];
    size_t count;
} machine;

static fb_value pop(machine *m) {
    if (m->count) return m->stack[--m->count];
    return fb_recipe_tensor(m->graph, fb_tensor_find(m->graph, sources[fuzz_byte(&m->choices) % SOURCES].name));
}

static size_t sizes_of(machine *m, int64_t sizes[4]) {
    size_t rank = fuzz_byte(&m->choices) % 5;
    for (size_t i = 0; i < rank; i++) sizes[i] = fuzz_byte(&m->choices) % 8;
    return rank;
}

/* The type of what was popped, so that axes and sizes are often right. */
static fb_recipe_type type_of(machine *m, fb_value expression) {
    fb_recipe_type type = {0};
    fb_error error = {0};
    if (fb_recipe_type_of(m->graph, expression, &type, &error) != FB_OK) type.rank = 0;
    return type;
}

static fb_value reshaped(machine *m, fb_value from) {
    fb_recipe_type type = type_of(m, from);
    int64_t sizes[4], flat = 1;
    if (fuzz_byte(&m->choices) % 2) {
        size_t rank = sizes_of(m, sizes);
        return fb_recipe_reshape(m->graph, from, sizes, rank);
    }
    for (int i = 0; i < type.rank; i++) flat *= type.sizes[i];
    int64_t part = 1 + fuzz_byte(&m->choices) % 6;
    bool divides = flat % part == 0;
    return fb_recipe_reshape(m->graph, from, divides ? (int64_t[]){part, flat / part} : (int64_t[]){flat}, divides ? 2 : 1);
}

static fb_value permuted(machine *m, fb_value from) {
    fb_recipe_type type = type_of(m, from);
    int64_t dims[FB_RECIPE_MAX_RANK];
    for (int i = 0; i < type.rank; i++) dims[i] = i;
    for (int i = type.rank - 1; i > 0; i--) {
        int other = fuzz_byte(&m->choices) % (i + 1);
        int64_t kept = dims[i];
        dims[i] = dims[other], dims[other] = kept;
    }
    return fb_recipe_permute(m->graph, from, dims, (size_t)type.rank);
}

static fb_value sliced(machine *m, fb_value from) {
    fb_recipe_type type = type_of(m, from);
    int64_t axis = fuzz_byte(&m->choices) % 4, size = axis < type.rank ? type.sizes[axis] + 1 : 4;
    int64_t start = fuzz_byte(&m->choices) % size, stop = fuzz_byte(&m->choices) % size;
    return fb_recipe_slice(m->graph, from, axis, start < stop ? start : stop, start < stop ? stop : start);
}

static fb_value filled(machine *m) {
    int64_t sizes[4];
    size_t rank = sizes_of(m, sizes);
    uint8_t kind = fuzz_byte(&m->choices), number = fuzz_byte(&m->choices);
    fb_value value = kind % 3 ? fb_make_int(m->graph, (int8_t)number) : fb_make_float(m->graph, number / 16.0);
    return fb_recipe_full(m->graph, sizes, rank, value);
}

static fb_value joined(machine *m) {
    fb_value parts[4];
    int64_t axis = fuzz_byte(&m->choices) % 3;
    size_t count = 1 + fuzz_byte(&m->choices) % 4;
    for (size_t i = 0; i < count; i++) parts[i] = pop(m);
    return fb_recipe_concat(m->graph, axis, parts, count);
}

static fb_value computed(machine *m, fb_recipe_op op) {
    fb_value a = pop(m);
    switch (op) {
    case FB_RECIPE_NEG: return fb_recipe_neg(m->graph, a);
    case FB_RECIPE_SQRT: return fb_recipe_sqrt(m->graph, a);
    case FB_RECIPE_RSQRT: return fb_recipe_rsqrt(m->graph, a);
    case FB_RECIPE_EXP: return fb_recipe_exp(m->graph, a);
    case FB_RECIPE_SIN: return fb_recipe_sin(m->graph, a);
    case FB_RECIPE_COS: return fb_recipe_cos(m->graph, a);
    case FB_RECIPE_ROUND: return fb_recipe_round(m->graph, a);
    case FB_RECIPE_ADD: return fb_recipe_add(m->graph, a, pop(m));
    case FB_RECIPE_SUB: return fb_recipe_sub(m->graph, a, pop(m));
    case FB_RECIPE_MUL: return fb_recipe_mul(m->graph, a, pop(m));
    case FB_RECIPE_DIV: return fb_recipe_div(m->graph, a, pop(m));
    case FB_RECIPE_MAXIMUM: return fb_recipe_maximum(m->graph, a, pop(m));
    case FB_RECIPE_MINIMUM: return fb_recipe_minimum(m->graph, a, pop(m));
    case FB_RECIPE_INDEX_SELECT:
        return fb_recipe_index_select(m->graph, a, fuzz_byte(&m->choices) % 3, fb_tensor_find(m->graph, "n"));
    case FB_RECIPE_MATMUL: return fb_recipe_matmul(m->graph, a, pop(m));
    case FB_RECIPE_ABSMAX: return fb_recipe_absmax(m->graph, a, (int64_t[]){fuzz_byte(&m->choices) % 4}, 1);
    default: return a;
    }
}

static fb_value next_expression(machine *m) {
    fb_recipe_op op = (fb_recipe_op)(fuzz_byte(&m->choices) % (FB_RECIPE_OP_COUNT + 1));
    switch (op) {
    case FB_RECIPE_CONCAT: return joined(m);
    case FB_RECIPE_SLICE: return sliced(m, pop(m));
    case FB_RECIPE_RESHAPE: return reshaped(m, pop(m));
    case FB_RECIPE_PERMUTE: return permuted(m, pop(m));
    case FB_RECIPE_FULL: return filled(m);
    default: return computed(m, op);
    }
}

/* An instruction whose result has no type leaves nothing behind. */
static fb_value expression(machine *m) {
    while (m->choices.next < m->choices.end && m->count < STACK) {
        fb_recipe_type type;
        fb_error error = {0};
        fb_value made = next_expression(m);
        require(made.id != 0);
        fb_status status = fb_recipe_type_of(m->graph, made, &type, &error);
        require(status == FB_OK || (status == FB_INVALID && strcmp(error.code, "bad-recipe") == 0));
        if (status == FB_OK) m->stack[m->count++] = made;
    }
    return m->count ? m->stack[m->count - 1] : (fb_value){0};
}

/* ---- the checks ---------------------------------------------------------------------------------------------------------- */

static unsigned char *bytes_of(const fb_graph *graph, fb_value expression, fb_dtype dtype, size_t *size) {
    fb_evaluation *evaluation = NULL;
    fb_error error = {0};
    unsigned char *bytes = NULL;
    require(fb_evaluation_of(graph, expression, dtype, NULL, &evaluation, &error) == FB_OK);
    require(evaluated_bytes(evaluation, &bytes, size, &error) == FB_OK);
    fb_evaluation_free(evaluation);
    return bytes;
}

/* In parts of every length, the same bytes as at once. */
static void check_parts(const fb_graph *graph, fb_tensor made, fuzz_choices *choices) {
    fb_evaluation *evaluation = NULL;
    fb_error error = {0};
    require(fb_evaluation_new(graph, made, NULL, &evaluation, &error) == FB_OK);
    size_t size, part = 1 + fuzz_byte(choices);
    unsigned char *whole, piece[256];
    fb_status status = evaluated_bytes(evaluation, &whole, &size, &error);
    require(!status || (status == FB_INVALID && !strcmp(error.code, "bad-recipe"))); /* an index beyond its axis */
    fb_evaluation_free(evaluation);
    if (status) return;
    free(whole);
    require(fb_evaluation_new(graph, made, NULL, &evaluation, &error) == FB_OK);
    whole =
        bytes_of(graph, fb_make_tensor((fb_graph *)(uintptr_t)graph, made), (fb_dtype)fb_tensor_at(graph, made)->dtype, &size);
    require(size == fb_evaluation_size(evaluation));
    for (size_t at = size; at;) { /* from the end on */
        size_t count = at < part ? at : part;
        at -= count;
        require(fb_evaluation_read(evaluation, at, piece, count, &error) == FB_OK && !memcmp(piece, whole + at, count));
    }
    fb_evaluation_free(evaluation);
    free(whole);
}

/* Where all of a source can be found again in what was made, it is what it was. */
static void check_source(fb_graph *graph, const fb_pieces *pieces, fb_tensor source) {
    const fb_tensor_row *row = fb_tensor_at(graph, source);
    const fb_piece **own = calloc(pieces->count + 1, sizeof *own);
    int64_t sizes[FB_RECIPE_MAX_RANK];
    size_t count = 0, was_size, is_size;
    int rank = fb_shape_rank(graph, row->shape);
    require(own != NULL);
    for (int i = 0; i < rank; i++) sizes[i] = fb_shape_size(graph, row->shape, i);
    for (size_t i = 0; i < pieces->count; i++)
        if (pieces->items[i].source.id == source.id) own[count++] = &pieces->items[i];
    fb_value whole = count ? fb_pieces_join(graph, own, count, sizes, rank) : (fb_value){0};
    if (whole.id) {
        unsigned char *was = bytes_of(graph, fb_make_tensor(graph, source), (fb_dtype)row->dtype, &was_size);
        unsigned char *is = bytes_of(graph, whole, (fb_dtype)row->dtype, &is_size);
        require(was_size == is_size && memcmp(was, is, was_size) == 0);
        free(was);
        free(is);
    }
    free(own);
}

static void check_inverse(fb_graph *graph, fb_tensor made) {
    fb_pieces pieces = {0};
    fb_error error = {0};
    bool is_computed = false;
    fb_status status = fb_recipe_invert(graph, made, made, &pieces, &is_computed, &error);
    require(status == FB_OK || status == FB_TOO_LARGE);
    require(!is_computed || pieces.count == 0);
    for (size_t i = 0; i < SOURCES; i++) check_source(graph, &pieces, fb_tensor_find(graph, sources[i].name));
    fb_pieces_free(&pieces);
}

static void check_expression(const machine *m, fb_value made) {
    fb_recipe_type type;
    fb_error error = {0};
    fb_buffer row = {0}, document = {0};
    fuzz_choices choices = m->choices;
    require(fb_recipe_type_of(m->graph, made, &type, &error) == FB_OK);
    bool was_known = type.dtype != FB_DTYPE_UNKNOWN;
    double elements = 1;
    if (!was_known) type.dtype = FB_FLOAT32;
    fb_buffer_printf(&row, "{\"name\":\"made\",\"dtype\":\"%s\",\"shape\":[", fb_dtype_name(type.dtype));
    for (int i = 0; i < type.rank; i++) {
        fb_buffer_printf(&row, "%s%lld", i ? "," : "", (long long)type.sizes[i]);
        elements *= (double)type.sizes[i];
    }
    fb_buffer_string(&row, "],\"recipe\":");
    fb_value_write(m->graph, made, &row);
    fb_buffer_char(&row, '}');
    write_document(row.data, row.size, true, &document);
    if (elements <= MOST_ELEMENTS) {
        fb_document_limits limits = {.max_nesting = 1000}; /* the default one is less than FB_RECIPE_MAX_DEPTH needs */
        fb_graph *graph = NULL;
        fb_errors errors = {0};
        require(fb_document_read(document.data, document.size, &limits, "", &graph, &errors) == FB_OK);
        fb_tensor tensor = fb_tensor_find(graph, "made");
        check_parts(graph, tensor, &choices);
        check_inverse(graph, tensor);
        fb_graph_free(graph);
    }
    fb_buffer_free(&row);
    fb_buffer_free(&document);
}

static void check_rows(const char *text, size_t size) {
    fb_buffer document = {0};
    write_document(text + 1, size - 1, true, &document);
    fb_graph *graph = fuzz_read(document.data, document.size);
    if (graph) {
        fuzz_choices none = {0};
        fb_tensor made = fb_tensor_find(graph, "made");
        fb_recipe_type type = {0};
        fb_error error = {0};
        fb_value recipe = made.id ? fb_tensor_at(graph, made)->recipe : (fb_value){0};
        if (recipe.id && fb_recipe_type_of(graph, recipe, &type, &error) == FB_OK) {
            double elements = 1;
            for (int i = 0; i < type.rank; i++) elements *= (double)type.sizes[i];
            fb_evaluation *evaluation = NULL;
            bool is_known = elements <= MOST_ELEMENTS && !fb_evaluation_new(graph, made, NULL, &evaluation, &error);
            fb_evaluation_free(evaluation);
            if (is_known) check_parts(graph, made, &none);
        }
        fb_graph_free(graph);
    }
    fb_buffer_free(&document);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 1 && data[0] == '[') {
        check_rows((const char *)data, size);
        return 0;
    }
    fb_buffer document = {0};
    write_document("", 0, false, &document);
    machine m = {.graph = fuzz_read_valid(&document), .choices = {.next = data, .end = data + size}};
    fb_value made = expression(&m);
    if (made.id) check_expression(&m, made);
    fb_graph_free(m.graph);
    fb_buffer_free(&document);
    return 0;
}
