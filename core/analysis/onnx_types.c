/* The walk over programs, and what rules ask of a call. */
#include "core/analysis/onnx_types.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/analysis/onnx.h"
#include "core/analysis/onnx_call.h"
#include "core/base/base64.h"
#include "core/base/map.h"
#include "core/graph/build.h"
#include "core/graph/namespace.h"
#include "core/operators/onnx.h"
#include "core/operators/spelling.h"

enum { MAX_DEPTH = 32, VISITS = 8 }; /* programs in one another; looks at a node, on average */

/* The types of a node: of one result, or of the results of a call that has several. */
typedef struct look {
    const type *results;
    uint32_t count;
    bool is_seen; /* `now` is of an earlier look at it */
} look;

struct fb_onnx_types {
    const fb_graph *graph;
    fb_work *work;
    fb_onnx_sizes *sizes;
    fb_arena arena;
    look *now;       /* by node: in the look at hand */
    type *all;       /* by node: what holds of all looks */
    bool *is_any;    /* by node: `all` is of one or more */
    uint64_t left;   /* looks at nodes */
    bool is_partial; /* a program was not looked at in all ways that it may run: nothing is known of those within */
    bool failed;
};

static const type unknown = {.rank = -1};

const type *fb_onnx_type_of(const fb_onnx_types *t, fb_node node) {
    bool is_known = node.id && t->is_any[node.id] && (!t->is_partial || !fb_is_nested(t->graph, node));
    return is_known ? &t->all[node.id] : &unknown;
}

bool fb_onnx_is_number(const fb_onnx_types *t, size a, int64_t *out) {
    return fb_size_is_number(t->sizes, a, out);
}

bool fb_onnx_numbers(const fb_onnx_types *t, const type *of, int64_t *out) {
    for (uint32_t i = 0; of->elements && i < of->count; i++)
        if (of->elements[i].kind != FB_ONNX_INT || !fb_size_is_number(t->sizes, of->elements[i].integer, &out[i])) return false;
    return of->elements != NULL;
}

static void *take(fb_onnx_types *t, size_t bytes) {
    void *made = fb_arena_alloc(&t->arena, bytes ? bytes : 1);
    t->failed |= !made;
    return made;
}

/* ---- arguments ---------------------------------------------------------------------------------------------------------- */

uint32_t fb_onnx_inputs(const fb_onnx_call *c) {
    return c->args->count;
}

bool fb_onnx_has(const fb_onnx_call *c, uint32_t index) {
    return index < c->args->count && fb_value_kind(c->graph, c->args->items[index]) == FB_NODE;
}

static const type *now(const fb_onnx_types *t, fb_node node) {
    const look *f = node.id ? &t->now[node.id] : NULL;
    return f && f->count == 1 ? f->results : &unknown;
}

const type *fb_onnx_in(fb_onnx_call *c, uint32_t index) {
    return fb_onnx_has(c, index) ? now(c->types, fb_value_node(c->graph, c->args->items[index])) : &unknown;
}

/* Of one that refers to an attribute of the function around it, what the function's call gives. */
static fb_value resolved(const fb_graph *g, const fb_onnx_scope *scope, fb_value value) {
    while (value.id && fb_value_kind(g, value) == FB_OPAQUE && scope) {
        const char *name = fb_value_text(g, value);
        value = fb_map_value(g, scope->kwargs, name);
        if (!value.id) value = fb_map_value(g, scope->defaults, name);
        scope = scope->outer;
    }
    return value.id && fb_value_kind(g, value) != FB_OPAQUE ? value : (fb_value){0};
}

fb_value fb_onnx_attribute(const fb_onnx_call *c, const char *name) {
    return resolved(c->graph, c->scope, fb_node_kwarg(c->graph, c->node, name));
}

int64_t fb_onnx_int(const fb_onnx_call *c, const char *name, int64_t fallback) {
    int64_t found = fallback;
    fb_value value = fb_onnx_attribute(c, name);
    return value.id && fb_value_is_int(c->graph, value, &found) ? found : fallback;
}

const char *fb_onnx_text(const fb_onnx_call *c, const char *name, const char *fallback) {
    fb_value value = fb_onnx_attribute(c, name);
    return value.id && fb_value_kind(c->graph, value) == FB_STRING ? fb_value_text(c->graph, value) : fallback;
}

int fb_onnx_ints(const fb_onnx_call *c, const char *name, int64_t out[FB_ONNX_ELEMENTS]) {
    fb_value value = fb_onnx_attribute(c, name);
    const fb_value_row *row = value.id ? fb_value_at(c->graph, value) : NULL;
    if (!row || row->kind != FB_LIST || row->count > FB_ONNX_ELEMENTS) return -1;
    for (uint32_t i = 0; i < row->count; i++)
        if (!fb_value_is_int(c->graph, row->items[i], &out[i])) return -1;
    return (int)row->count;
}

static fb_onnx_list list_of_attribute(fb_onnx_call *c, const char *name) {
    fb_onnx_list list = {.is_given = true};
    fb_value value = fb_onnx_attribute(c, name);
    const fb_value_row *row = value.id ? fb_value_at(c->graph, value) : NULL;
    int64_t integer;
    if (!row || row->count > FB_ONNX_ELEMENTS || (row->kind != FB_LIST && row->kind != FB_INT)) return list;
    uint32_t count = row->kind == FB_LIST ? row->count : 1;
    element *items = take(c->types, count * sizeof *items);
    if (!items) return list;
    for (uint32_t i = 0; i < count; i++) {
        fb_value item = row->kind == FB_LIST ? row->items[i] : value;
        bool is_int = fb_value_is_int(c->graph, item, &integer);
        items[i] = (element){.kind = is_int ? FB_ONNX_INT : FB_ONNX_REAL};
        if (is_int) items[i].integer = fb_size_of(c->sizes, integer);
        else if (!fb_value_is_number(c->graph, item, &items[i].real)) items[i].kind = FB_ONNX_UNKNOWN;
    }
    list.is_known = true;
    list.count = count;
    list.items = items;
    return list;
}

fb_onnx_list fb_onnx_list_of(fb_onnx_call *c, const char *name, uint32_t input) {
    if (fb_onnx_attribute(c, name).id) return list_of_attribute(c, name);
    if (!fb_onnx_has(c, input)) return (fb_onnx_list){0};
    const type *in = fb_onnx_in(c, input);
    if (in->elements) return (fb_onnx_list){true, true, in->count, in->elements};
    fb_onnx_list list = {.is_given = true};
    int64_t count;
    bool is_counted = in->rank == 0 || (in->rank == 1 && fb_size_is_number(c->sizes, in->sizes[0], &count));
    if (is_counted && in->rank == 0) count = 1;
    if (!is_counted || count < 0 || count > FB_ONNX_ELEMENTS) return list;
    element *items = take(c->types, (size_t)count * sizeof *items);
    if (!items) return list;
    memset(items, 0, (size_t)count * sizeof *items);
    return (fb_onnx_list){true, true, (uint32_t)count, items};
}

bool fb_onnx_all_ints(fb_onnx_call *c, const fb_onnx_list *list, int64_t out[FB_ONNX_ELEMENTS]) {
    for (uint32_t i = 0; list->is_known && i < list->count; i++)
        if (list->items[i].kind != FB_ONNX_INT || !fb_size_is_number(c->sizes, list->items[i].integer, &out[i])) return false;
    return list->is_known;
}

fb_dtype fb_onnx_dtype(int64_t number) {
    static const char *const words[] = {
#define ONNX_DTYPE(number, NAME, word, bits, field, per) [number] = word,
#include "core/operators/onnx_dtypes.def"
#undef ONNX_DTYPE
    };
    return number > 0 && number < (int64_t)(sizeof words / sizeof *words) ? fb_dtype_find(words[number]) : FB_DTYPE_UNKNOWN;
}

int64_t fb_onnx_dtype_number(fb_dtype dtype) {
    static const struct {
        int64_t number;
        const char *word;
    } rows[] = {
#define ONNX_DTYPE(number, NAME, word, bits, field, per) {number, word},
#include "core/operators/onnx_dtypes.def"
#undef ONNX_DTYPE
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].word, fb_dtype_name(dtype)) == 0) return rows[i].number;
    return 0;
}

/* ---- results ------------------------------------------------------------------------------------------------------------ */

void fb_onnx_give(fb_onnx_call *c, uint32_t index, fb_dtype dtype, int rank, const size *sizes) {
    if (index >= FB_ONNX_RESULTS) return;
    type *result = &c->results[index];
    *result = (type){.dtype = dtype, .rank = -1};
    size *kept = rank >= 0 && rank <= FB_ONNX_RANK ? take(c->types, (size_t)rank * sizeof *kept) : NULL;
    if (!kept) return;
    for (int i = 0; i < rank; i++) kept[i] = sizes[i] ? sizes[i] : fb_size_fresh(c->sizes);
    result->rank = rank;
    result->sizes = kept;
}

void fb_onnx_give_dtype(fb_onnx_call *c, uint32_t index, fb_dtype dtype) {
    if (index < FB_ONNX_RESULTS) c->results[index] = (type){.dtype = dtype, .rank = -1};
}

void fb_onnx_give_same(fb_onnx_call *c, uint32_t index, fb_dtype dtype, const type *as) {
    fb_onnx_give(c, index, dtype, as->rank, as->sizes);
}

element *fb_onnx_elements(fb_onnx_call *c, uint32_t index, uint32_t *count) {
    type *result = &c->results[index];
    int64_t all = 1, one;
    for (int i = 0; i < result->rank; i++)
        if (!fb_size_is_number(c->sizes, result->sizes[i], &one) || one < 0 || __builtin_mul_overflow(all, one, &all))
            return NULL;
    if (result->rank < 0 || all > FB_ONNX_ELEMENTS) return NULL;
    element *made = take(c->types, (size_t)all * sizeof *made);
    if (!made) return NULL;
    memset(made, 0, (size_t)all * sizeof *made);
    result->elements = made;
    *count = result->count = (uint32_t)all;
    return made;
}

/* The type that includes both. */
type fb_onnx_join(fb_onnx_types *t, const type *a, const type *b) {
    type made = {.dtype = a->dtype == b->dtype ? a->dtype : FB_DTYPE_UNKNOWN, .rank = -1};
    if (a->rank != b->rank || a->rank < 0) return made;
    size *sizes = take(t, (size_t)a->rank * sizeof *sizes);
    if (!sizes) return made;
    for (int i = 0; i < a->rank; i++) sizes[i] = a->sizes[i] == b->sizes[i] ? a->sizes[i] : fb_size_fresh(t->sizes);
    made.rank = a->rank;
    made.sizes = sizes;
    bool is_same = a->elements && b->elements && a->count == b->count &&
                   memcmp(a->elements, b->elements, a->count * sizeof *a->elements) == 0;
    if (is_same) made.elements = a->elements, made.count = a->count;
    return made;
}

/* ---- nodes -------------------------------------------------------------------------------------------------------------- */

static void set(fb_onnx_types *t, fb_node node, const type *results, uint32_t count) {
    t->now[node.id] = (look){results, count, true};
    if (count != 1) return;
    t->all[node.id] = t->is_any[node.id] ? fb_onnx_join(t, &t->all[node.id], results) : *results;
    t->is_any[node.id] = true;
}

static void set_one(fb_onnx_types *t, fb_node node, const type *result) {
    type *kept = take(t, sizeof *kept);
    if (!kept) return;
    *kept = *result;
    set(t, node, kept, 1);
}

static void shape_of_value(fb_onnx_types *t, fb_value shape, type *out) {
    const fb_graph *g = t->graph;
    int rank = fb_shape_rank(g, shape);
    size *sizes = rank >= 0 && rank <= FB_ONNX_RANK ? take(t, (size_t)rank * sizeof *sizes) : NULL;
    out->rank = -1;
    if (!sizes) return;
    for (int i = 0; i < rank; i++) {
        fb_value item = fb_value_item(g, shape, (size_t)i);
        int64_t number;
        sizes[i] =
            fb_value_is_int(g, item, &number) ? fb_size_of(t->sizes, number) : fb_size_named(t->sizes, fb_value_text(g, item));
    }
    out->rank = rank;
    out->sizes = sizes;
}

/* Numbers that are in the document. */
static void read_elements(fb_onnx_types *t, fb_tensor tensor, type *out) {
    const fb_tensor_row *row = fb_tensor_at(t->graph, tensor);
    const char *text = row->data.id ? fb_text(t->graph, row->data) : NULL;
    fb_dtype dtype = (fb_dtype)row->dtype;
    size_t width = fb_dtype_size(dtype), bytes = text ? fb_base64_size(text, fb_text_length(t->graph, row->data)) : 0;
    bool is_real = dtype == FB_FLOAT32 || dtype == FB_FLOAT64;
    if (!text || (!fb_dtype_is_integer(dtype) && !is_real) || dtype == FB_UINT64 || bytes / width > FB_ONNX_ELEMENTS) return;
    uint32_t count = (uint32_t)(bytes / width);
    element *items = take(t, count * sizeof *items);
    if (!items) return;
    memset(items, 0, count * sizeof *items);
    for (uint32_t i = 0; i < count; i++) {
        unsigned char raw[8] = {0};
        uint64_t bits = 0;
        fb_base64_decode(text, i * width, width, raw);
        for (size_t k = 0; k < width; k++) bits |= (uint64_t)raw[k] << (8 * k);
        bool is_signed = dtype == FB_INT8 || dtype == FB_INT16 || dtype == FB_INT32;
        if (is_signed && bits >> (8 * width - 1)) bits |= ~(uint64_t)0 << (8 * width);
        if (is_real) {
            uint32_t half = (uint32_t)bits;
            float single;
            memcpy(&single, &half, sizeof single);
            if (width == 8) memcpy(&items[i].real, &bits, sizeof bits);
            else items[i].real = (double)single;
        } else {
            items[i].integer = fb_size_of(t->sizes, (int64_t)bits);
        }
        items[i].kind = is_real ? FB_ONNX_REAL : FB_ONNX_INT;
    }
    out->elements = items;
    out->count = count;
}

static void look_at_read(fb_onnx_types *t, fb_node node) {
    const fb_node_row *row = fb_node_at(t->graph, node);
    if (!row->module.id || !row->attribute.id) return;
    fb_tensor tensor = fb_module_tensor(t->graph, row->module, fb_text(t->graph, row->attribute));
    if (!tensor.id) return;
    const fb_tensor_row *of = fb_tensor_at(t->graph, tensor);
    type made = {.dtype = (fb_dtype)of->dtype, .rank = -1};
    if (made.dtype == FB_DTYPE_OTHER) made.dtype = FB_DTYPE_UNKNOWN;
    shape_of_value(t, of->shape, &made);
    if (made.rank >= 0) read_elements(t, tensor, &made);
    set_one(t, node, &made);
}

static bool look_at_program(fb_onnx_types *t, fb_program program, const type *inputs, uint32_t input_count,
                            const fb_value_row *captures, const fb_onnx_scope *scope, int depth);

typedef struct call_state { /* beside the call that rules see */
    fb_onnx_call call;
    int depth;
} call_state;

typedef struct name_key {
    const char *name;
    size_t length;
} name_key;

static int by_name(const void *a, const void *b) {
    const name_key *key = a;
    const char *name = ((const fb_onnx_operator *)b)->name;
    int order = strncmp(key->name, name, key->length);
    return order ? order : name[key->length] ? -1 : 0;
}

/* Of a version that is known. */
static const fb_onnx_operator *operator_of(const char *target, int *version) {
    if (!fb_is_spelled(target, FB_ONNX_DEFAULT)) return NULL;
    const char *name = target + strlen(FB_ONNX_DEFAULT), *dot = strchr(name, '.');
    if (!dot || dot[1] != 'v' || strchr(dot + 1, '.')) return NULL;
    const name_key key = {name, (size_t)(dot - name)};
    const fb_onnx_operator *found =
        bsearch(&key, fb_onnx_operators, fb_onnx_operator_count, sizeof *fb_onnx_operators, by_name);
    bool is_known = false;
    *version = atoi(dot + 2);
    for (int i = 0; found && i < 16 && found->versions[i]; i++) is_known |= found->versions[i] == *version;
    return is_known ? found : NULL;
}

fb_onnx_exact fb_onnx_exact_of(const fb_graph *graph, fb_node node) {
    int version;
    if (fb_node_at(graph, node)->opcode != FB_CALL_FUNCTION) return FB_ONNX_EXACT_NEVER;
    if (strcmp(fb_node_target(graph, node), FB_TARGET_GETITEM) == 0) return FB_ONNX_EXACT_ANY;
    const fb_onnx_operator *found = operator_of(fb_node_target(graph, node), &version);
    return found ? found->exact : FB_ONNX_EXACT_NEVER;
}

/* The node's metadata say how many results it has; without it is one. */
static uint32_t results_of(const fb_graph *g, fb_node node) {
    static const char member[] = "\"results\":"; /* quotes within a text have a backslash */
    fb_value rest = fb_node_at(g, node)->meta_rest;
    const char *text = rest.id ? fb_value_text(g, fb_map_value(g, rest, "onnx")) : NULL;
    const char *at = text ? strstr(text, member) : NULL;
    return at ? (uint32_t)strtoul(at + strlen(member), NULL, 10) : 0;
}

static fb_program program_read_by(const fb_graph *g, fb_value value) {
    return fb_onnx_program_read_by(g, fb_value_node(g, value));
}

/* Which of the call's programs is it: its captures are at that place. */
static fb_value captures_of(const fb_onnx_call *c, const char *name) {
    fb_value all = fb_node_kwarg(c->graph, c->node, "captures");
    size_t at = 0;
    for (uint32_t i = 0; i + 1 < c->kwargs->count; i += 2) {
        const char *key = fb_text(c->graph, fb_value_at(c->graph, c->kwargs->items[i])->symbol);
        if (strcmp(key, name) == 0) return fb_value_item(c->graph, all, at);
        at += program_read_by(c->graph, c->kwargs->items[i + 1]).id != 0;
    }
    return (fb_value){0};
}

static const fb_value_row *outputs_of(const fb_graph *g, fb_program program) {
    fb_node last = fb_last_node(g, program);
    if (!last.id || fb_node_at(g, last)->opcode != FB_OUTPUT) return NULL;
    fb_value given = fb_node_arg(g, last, 0);
    fb_kind kind = given.id ? fb_value_kind(g, given) : FB_NONE;
    return kind == FB_TUPLE || kind == FB_LIST ? fb_value_at(g, given) : NULL;
}

static void take_outputs(fb_onnx_types *t, fb_program program, type *out, uint32_t count) {
    const fb_value_row *row = outputs_of(t->graph, program);
    for (uint32_t i = 0; i < count; i++)
        out[i] = row && i < row->count ? *now(t, fb_value_node(t->graph, row->items[i])) : unknown;
}

bool fb_onnx_run(fb_onnx_call *c, const char *name, const type *inputs, uint32_t input_count, type *out, uint32_t count) {
    const call_state *state = (const call_state *)(const void *)c;
    fb_program program = program_read_by(c->graph, fb_node_kwarg(c->graph, c->node, name));
    fb_value captures = captures_of(c, name);
    for (uint32_t i = 0; i < count; i++) out[i] = unknown;
    c->types->is_partial |= state->depth >= MAX_DEPTH;
    if (!program.id || state->depth >= MAX_DEPTH) return false;
    const fb_value_row *row = captures.id ? fb_value_at(c->graph, captures) : NULL;
    if (!look_at_program(c->types, program, inputs, input_count, row, c->scope, state->depth + 1)) return false;
    take_outputs(c->types, program, out, count);
    return true;
}

void fb_onnx_run_was_partial(fb_onnx_call *c) {
    c->types->is_partial = true;
}

bool fb_onnx_declared(fb_onnx_call *c, const char *name, uint32_t output, type *out) {
    fb_program program = program_read_by(c->graph, fb_node_kwarg(c->graph, c->node, name));
    fb_node last = program.id ? fb_last_node(c->graph, program) : (fb_node){0};
    fb_value rest = last.id ? fb_node_at(c->graph, last)->meta_rest : (fb_value){0};
    const char *text = rest.id ? fb_value_text(c->graph, fb_map_value(c->graph, rest, "onnx")) : NULL;
    json_t *said = text ? json_loads(text, 0, NULL) : NULL;
    const json_t *one = json_array_get(json_object_get(said, "outputs"), output), *shape = json_object_get(one, "shape");
    const char *dtype = json_string_value(json_object_get(one, "dtype"));
    size_t rank = json_array_size(shape);
    size *sizes = rank <= FB_ONNX_RANK ? take(c->types, rank * sizeof *sizes) : NULL;
    *out = (type){.dtype = dtype ? fb_dtype_find(dtype) : FB_DTYPE_UNKNOWN, .rank = shape && sizes ? (int)rank : -1};
    for (size_t i = 0; i < rank && sizes; i++) {
        const json_t *item = json_array_get(shape, i);
        sizes[i] = json_is_integer(item) ? fb_size_of(c->sizes, json_integer_value(item)) : 0;
    }
    out->sizes = sizes;
    json_decref(said);
    return out->rank >= 0;
}

static void look_at_function(fb_onnx_types *t, fb_onnx_call *c, const char *target, int depth) {
    fb_module module = fb_module_find(t->graph, target);
    fb_program program = module.id ? fb_module_at(t->graph, module)->program : (fb_program){0};
    uint32_t count = c->args->count;
    t->is_partial |= depth >= MAX_DEPTH;
    type *inputs = program.id && depth < MAX_DEPTH ? take(t, count * sizeof *inputs) : NULL;
    if (!inputs) return;
    for (uint32_t i = 0; i < count; i++) inputs[i] = *fb_onnx_in(c, i);
    const fb_onnx_scope scope = {fb_node_at(t->graph, c->node)->kwargs, fb_module_at(t->graph, module)->config, c->scope};
    if (look_at_program(t, program, inputs, count, NULL, &scope, depth + 1)) take_outputs(t, program, c->results, c->wanted);
}

static void look_at_call(fb_onnx_types *t, fb_node node, const fb_onnx_scope *scope, int depth) {
    const fb_graph *g = t->graph;
    const fb_node_row *row = fb_node_at(g, node);
    const char *target = fb_node_target(g, node);
    uint32_t several = results_of(g, node);
    bool is_function = fb_is_spelled(target, FB_ONNX_FUNCTION);
    if (several > FB_ONNX_RESULTS) return;
    call_state state; /* results are many, and only those that are wanted are set */
    fb_onnx_call *c = &state.call;
    state.depth = depth;
    c->types = t;
    c->graph = g;
    c->sizes = t->sizes;
    c->node = node;
    c->args = fb_value_at(g, row->args);
    c->kwargs = fb_value_at(g, row->kwargs);
    c->scope = scope;
    c->version = 0;
    c->wanted = several ? several : 1;
    for (uint32_t i = 0; i < FB_ONNX_RESULTS; i++) c->results[i] = unknown; /* a rule may give more than are wanted */
    const fb_onnx_operator *operator= is_function ? NULL : operator_of(target, &c->version);
    if (is_function) look_at_function(t, c, target, depth);
    else if (operator&& operator->shape) operator->shape(c);
    if (operator&& operator->value) operator->value(c);
    type *kept = take(t, c->wanted * sizeof *kept);
    if (!kept) return;
    memcpy(kept, c->results, c->wanted * sizeof *kept);
    if (several) t->now[node.id] = (look){kept, c->wanted, true};
    else set(t, node, kept, 1);
}

static void look_at_item(fb_onnx_types *t, fb_node node) {
    const fb_graph *g = t->graph;
    fb_node of = fb_arg_node(g, node, 0);
    int64_t index;
    if (!of.id || !fb_value_is_int(g, fb_node_arg(g, node, 1), &index)) return;
    const look *f = &t->now[of.id];
    if (index >= 0 && index < f->count && results_of(g, of)) set_one(t, node, &f->results[index]);
}

static void look_at_input(fb_onnx_types *t, fb_node node, const type *given) {
    const fb_graph *g = t->graph;
    const fb_node_row *row = fb_node_at(t->graph, node);
    type made = unknown;
    if (given) {
        made = *given;
        bool is_another = row->shape.id && fb_shape_rank(g, row->shape) != given->rank; /* as runtimes give a turn's number */
        if (is_another) made = (type){.dtype = given->dtype, .rank = -1};
    } else {
        made.dtype = (fb_dtype)row->dtype;
        if (made.dtype == FB_DTYPE_OTHER) made.dtype = FB_DTYPE_UNKNOWN;
        shape_of_value(t, row->shape, &made);
    }
    set_one(t, node, &made);
}

/* `inputs` NULL: those of the model, as recorded. */
static bool look_at_program(fb_onnx_types *t, fb_program program, const type *inputs, uint32_t input_count,
                            const fb_value_row *captures, const fb_onnx_scope *scope, int depth) {
    const fb_graph *g = t->graph;
    uint32_t input = 0, capture = 0;
    bool is_main = program.id == FB_MAIN_PROGRAM.id;
    for (fb_node n = fb_first_node(g, program); n.id; n = fb_next_node(g, n)) {
        const fb_node_row *row = fb_node_at(g, n);
        if (!t->left || t->failed || !fb_work_goes_on(t->work, FB_WORK_NODE)) {
            t->is_partial = true;
            return false;
        }
        t->left--;
        t->now[n.id] = (look){0};
        if (row->opcode == FB_PLACEHOLDER && !is_main && fb_onnx_is_captured(g, n)) {
            fb_node outer = captures && capture < captures->count ? fb_value_node(g, captures->items[capture]) : (fb_node){0};
            capture++;
            look_at_input(t, n, now(t, outer));
        } else if (row->opcode == FB_PLACEHOLDER) {
            const type *given = is_main ? NULL : input < input_count ? &inputs[input] : &unknown;
            input++;
            look_at_input(t, n, given);
        } else if (row->opcode == FB_GET_ATTR) {
            look_at_read(t, n);
        } else if (row->opcode == FB_CALL_FUNCTION && strcmp(fb_node_target(g, n), FB_TARGET_GETITEM) == 0) {
            look_at_item(t, n);
        } else if (row->opcode == FB_CALL_FUNCTION) {
            look_at_call(t, n, scope, depth);
        }
    }
    return true;
}

/* ---- all together -------------------------------------------------------------------------------------------------------- */

void fb_onnx_types_free(fb_onnx_types *t) {
    if (!t) return;
    fb_onnx_sizes_free(t->sizes);
    fb_arena_free(&t->arena);
    free(t->now);
    free(t->all);
    free(t->is_any);
    free(t);
}

fb_onnx_types *fb_onnx_types_find(const fb_graph *graph, fb_work *work) {
    fb_onnx_types *t = calloc(1, sizeof *t);
    size_t limit = (size_t)fb_node_limit(graph) + 1;
    if (!t) return NULL;
    *t = (fb_onnx_types){.graph = graph,
                         .work = work,
                         .sizes = fb_onnx_sizes_new(),
                         .now = calloc(limit, sizeof *t->now),
                         .all = calloc(limit, sizeof *t->all),
                         .is_any = calloc(limit, sizeof *t->is_any),
                         .left = VISITS * limit + 1000};
    t->failed = !t->sizes || !t->now || !t->all || !t->is_any;
    if (!t->failed) look_at_program(t, FB_MAIN_PROGRAM, NULL, 0, NULL, NULL, 0);
    t->failed |= (t->sizes && fb_onnx_sizes_failed(t->sizes)) || work->stopped.status;
    if (!t->failed) return t;
    fb_onnx_types_free(t);
    return NULL;
}

bool fb_onnx_is_constant(const fb_graph *g, fb_node node) {
    fb_value rest = fb_node_at(g, node)->meta_rest;
    const char *text = rest.id ? fb_value_text(g, fb_map_value(g, rest, "onnx")) : NULL;
    return fb_node_at(g, node)->opcode == FB_GET_ATTR && text && strncmp(text, "{\"node\":", 8) == 0;
}

/* ---- views --------------------------------------------------------------------------------------------------------------- */

static const fb_onnx_operator *operator_at(const fb_graph *g, fb_node node) {
    int version;
    bool is_call = fb_node_at(g, node)->opcode == FB_CALL_FUNCTION && !results_of(g, node);
    return is_call ? operator_of(fb_node_target(g, node), &version) : NULL;
}

static bool is_called(const fb_onnx_operator *operator, const char * name) {
    return operator&& strcmp(operator->name, name) == 0;
}

static bool read_permutation(const fb_graph *g, fb_node node, fb_rearrange *found) {
    fb_value perm = fb_node_kwarg(g, node, "perm");
    for (int i = 0; i < found->rank; i++) {
        int64_t axis = found->rank - 1 - i;
        if (perm.id && !fb_value_is_int(g, fb_value_item(g, perm, (size_t)i), &axis)) return false;
        if (axis < 0 || axis >= found->rank) return false;
        found->dims[i] = (int)axis;
    }
    return true;
}

bool fb_onnx_rearrange(const fb_graph *g, fb_node node, int rank, fb_rearrange *found) {
    static const char *const ordered[] = {"Reshape", "Flatten", "Squeeze", "Unsqueeze"};
    const fb_onnx_operator *operator= operator_at(g, node);
    bool is_ordered = false;
    for (size_t i = 0; i < sizeof ordered / sizeof *ordered; i++) is_ordered |= is_called(operator, ordered[i]);
    if ((!is_ordered && !is_called(operator, "Transpose")) || rank < 0 || rank > FB_MAX_RANK) return false;
    fb_value input = fb_node_arg(g, node, 0);
    *found = (fb_rearrange){.node = node, .input = fb_value_node(g, input), .rank = rank};
    found->form = is_ordered ? FB_REARRANGE_RESHAPE : FB_REARRANGE_PERMUTE;
    return found->input.id && (is_ordered || read_permutation(g, node, found));
}

bool fb_onnx_rearrange_at(const fb_onnx_types *t, fb_node node, fb_rearrange *found) {
    return fb_onnx_rearrange(t->graph, node, fb_onnx_type_of(t, node)->rank, found);
}

const char *fb_onnx_operator_name(const fb_graph *graph, fb_node node) {
    const fb_onnx_operator *operator= operator_at(graph, node);
    return operator? operator->name : NULL;
}

bool fb_onnx_is_reshape(const fb_graph *graph, fb_node node) {
    fb_value allows = fb_node_kwarg(graph, node, "allowzero");
    int64_t number = 1;
    bool copies = !allows.id || (fb_value_is_int(graph, allows, &number) && !number);
    return is_called(operator_at(graph, node), "Reshape") && copies;
}

bool fb_onnx_same_shape(const fb_onnx_types *t, fb_node a, fb_node b) {
    const type *x = fb_onnx_type_of(t, a), *y = fb_onnx_type_of(t, b);
    return x->rank >= 0 && x->rank == y->rank && memcmp(x->sizes, y->sizes, (size_t)x->rank * sizeof *x->sizes) == 0;
}

/* 0 for a size that the input has at the same place, and -1 for one that is no number. */
static int sizes_to_give(const fb_onnx_types *t, const type *x, const size *wanted, int count, int64_t sizes[FB_ONNX_RANK]) {
    int open = -1, copied = 0;
    bool has_rest = false;
    for (int i = 0; i < count; i++) {
        bool is_number = fb_size_is_number(t->sizes, wanted[i], &sizes[i]);
        if (!is_number && wanted[i] && i < x->rank && x->sizes[i] == wanted[i]) sizes[i] = 0, is_number = true;
        copied += is_number && sizes[i] == 0;
        has_rest |= is_number && sizes[i] < 0;
        if (is_number) continue;
        if (open >= 0) return -1;
        sizes[open = i] = -1;
    }
    return open >= 0 && (copied || has_rest) ? -1 : count; /* beside -1 a size of 0 at run time fails */
}

int fb_onnx_sizes_to_give(const fb_onnx_types *t, fb_node node, int64_t sizes[FB_ONNX_RANK]) {
    const fb_graph *g = t->graph;
    size wanted_sizes[FB_ONNX_RANK];
    if (!fb_onnx_is_reshape(g, node)) return -1;
    fb_node input = fb_arg_node(g, node, 0), asked = fb_arg_node(g, node, 1);
    if (!input.id || !asked.id || fb_node_at(g, asked)->opcode != FB_CALL_FUNCTION) return -1;
    const type *of = fb_onnx_type_of(t, asked);
    if (!of->elements || of->count > FB_ONNX_RANK) return -1;
    for (uint32_t i = 0; i < of->count; i++)
        wanted_sizes[i] = of->elements[i].kind == FB_ONNX_INT ? of->elements[i].integer : 0;
    return sizes_to_give(t, fb_onnx_type_of(t, input), wanted_sizes, (int)of->count, sizes);
}

int fb_onnx_sizes_between(const fb_onnx_types *t, fb_node from, fb_node to, int64_t sizes[FB_ONNX_RANK]) {
    const type *of = fb_onnx_type_of(t, to);
    int count = of->rank < 0 ? -1 : sizes_to_give(t, fb_onnx_type_of(t, from), of->sizes, of->rank, sizes);
    int64_t number;
    for (int i = 0; i < count; i++) /* 0 copies a size of the input */
        if (fb_size_is_number(t->sizes, of->sizes[i], &number) && number == 0) return -1;
    return count;
}

/* ---- recording ----------------------------------------------------------------------------------------------------------- */

/* Names for sizes that are no symbols of the model. */
typedef struct naming {
    fb_namespace *taken;
    fb_map names; /* size -> symbol */
} naming;

static fb_value size_as_value(fb_graph *g, fb_onnx_types *t, naming *n, size of) {
    int64_t number;
    const char *name = fb_size_name(t->sizes, of);
    if (fb_size_is_number(t->sizes, of, &number)) return fb_make_int(g, number);
    if (name) return fb_make_string(g, name);
    fb_symbol made = {fb_map_get(&n->names, of)};
    if (!made.id) {
        const char *fresh = fb_namespace_create(n->taken, "u0");
        made = fresh ? fb_intern(g, fresh) : (fb_symbol){0};
        if (!made.id || !fb_map_put(&n->names, of, made.id)) return fb_graph_fail_memory(g);
    }
    return fb_make_string(g, fb_text(g, made));
}

static bool reserve_symbols(const fb_graph *g, naming *n) {
    for (uint32_t p = FB_MAIN_PROGRAM.id; p < fb_program_limit(g); p++) {
        for (fb_node node = fb_first_node(g, (fb_program){p}); node.id; node = fb_next_node(g, node)) {
            fb_value shape = fb_node_at(g, node)->shape;
            for (int i = 0; i < fb_shape_rank(g, shape); i++) {
                const char *text = fb_value_text(g, fb_value_item(g, shape, (size_t)i));
                if (text && !fb_namespace_reserve(n->taken, text)) return false;
            }
        }
    }
    return true;
}

static void record(fb_graph *g, fb_onnx_types *t, naming *n, fb_node node) {
    const type *of = fb_onnx_type_of(t, node);
    fb_node_row *row = fb_node_row_at(g, node);
    fb_value sizes[FB_ONNX_RANK];
    bool is_negative = false;
    int64_t number;
    if (!row->dtype) row->dtype = (uint8_t)of->dtype;
    if (row->shape.id || of->rank < 0) return;
    for (int i = 0; i < of->rank; i++) {
        is_negative |= fb_size_is_number(t->sizes, of->sizes[i], &number) && number < 0;
        if (!is_negative) sizes[i] = size_as_value(g, t, n, of->sizes[i]);
    }
    fb_value shape = is_negative ? (fb_value){0} : fb_make_list(g, sizes, (size_t)of->rank);
    fb_node_row_at(g, node)->shape = shape;
}

bool fb_onnx_record_types(fb_graph *g, fb_work *work) {
    fb_onnx_types *t = fb_onnx_types_find(g, work);
    naming n = {.taken = t ? fb_namespace_new() : NULL};
    bool ok = n.taken && reserve_symbols(g, &n);
    for (uint32_t p = FB_MAIN_PROGRAM.id; p < fb_program_limit(g) && ok; p++)
        for (fb_node node = fb_first_node(g, (fb_program){p}); node.id; node = fb_next_node(g, node)) {
            fb_opcode opcode = (fb_opcode)fb_node_at(g, node)->opcode;
            if (opcode == FB_CALL_FUNCTION || opcode == FB_PLACEHOLDER) record(g, t, &n, node);
        }
    ok = ok && !fb_graph_out_of_memory(g);
    if (n.taken) fb_namespace_free(n.taken);
    fb_map_free(&n.names);
    fb_onnx_types_free(t);
    return ok;
}
