/* Value numbering over two graphs. A call is written down with numbers in place of the values that it reads, and equal texts
 * get equal numbers.
 *
 * Calls that write, draw random numbers or switch a mode form a chain, whose last number is part of the text of all that comes
 * after. Where there are such calls, two equal values of one graph are still two pieces of memory, so each gets a number of its
 * own: one may be written and the other not. */
#include "core/validation/equal_values.h"

#include <stdlib.h>
#include <string.h>

#include "core/analysis/infer.h"
#include "core/analysis/rearrange.h"
#include "core/analysis/view.h"
#include "core/base/map.h"
#include "core/operators/onnx.h"
#include "core/weights/evaluate.h"
#include "core/weights/recipe.h"

#define STEPS_OF_A_NODE 64
#define MOST_NESTED 64 /* programs in one another, in which calls of functions are looked for */

#define LONG_TEXT 512 /* bytes: from here on its SHA-256 is kept in its place */

typedef struct text_place {
    size_t at, size;
} text_place;

/* Numbers by text. */
typedef struct numbers {
    fb_map first;     /* hash -> number */
    fb_buffer texts;  /* one after the other */
    fb_buffer places; /* text_place, by number - 1 */
    uint32_t count;
} numbers;

typedef struct side {
    const fb_graph *graph;
    uint32_t *of_node;   /* of all programs */
    uint32_t *of_tensor; /* 0 = not asked for yet */
    uint32_t *memory_of; /* by tensor: the how-manieth that is read; where memory is written */
    uint32_t *of_module;
    unsigned char *has_inner;      /* by module: others are inside it */
    unsigned char *has_true_shape; /* by node: its recorded shape follows from operators and inputs */
    uint32_t state, drawn, memories;
    fb_map times; /* number -> how often it came up; where memory is written */
} side;

typedef struct numbering {
    const fb_equality *asked;
    side sides[2];
    numbers known;
    fb_map places; /* hash of a tensor's place -> bit 0: a has it, bit 1: b has it */
    bool has_writes, by_movement;
    fb_status status;
    fb_error *error;
} numbering;

static void fail(numbering *n) {
    if (!n->status) n->status = fb_fail_memory(n->error);
}

/* ---- texts and their numbers --------------------------------------------------------------------------------------------- */

static void put(fb_buffer *to, int64_t number) {
    fb_buffer_append(to, &number, sizeof number);
}
static void put_text(fb_buffer *to, const char *text) {
    put(to, (int64_t)strlen(text));
    fb_buffer_append(to, text, strlen(text));
}

static uint32_t find_number(const numbers *known, const char *text, size_t size, uint64_t hash) {
    const text_place *places = (const text_place *)(const void *)known->places.data;
    uint32_t cursor = 0, found;
    while ((found = fb_map_next(&known->first, hash, &cursor))) {
        const text_place *place = &places[found - 1];
        if (place->size == size && memcmp(known->texts.data + place->at, text, size) == 0) return found;
    }
    return 0;
}

/* Takes the text. */
static uint32_t number_of(numbering *n, fb_buffer *text) {
    char id[FB_ID_LENGTH + 1]; /* no text begins like one */
    numbers *known = &n->known;
    bool is_long = text->size > LONG_TEXT;
    if (text->failed || (is_long && !fb_sha256_id(text->data, text->size, id))) fail(n);
    const char *data = is_long ? id : text->data;
    size_t size = is_long ? sizeof id : text->size;
    uint64_t hash = n->status ? 0 : fb_hash(data, size, 0);
    uint32_t number = n->status ? 0 : find_number(known, data, size, hash);
    if (!number && !n->status) {
        text_place place = {known->texts.size, size};
        fb_buffer_append(&known->texts, data, size);
        fb_buffer_append(&known->places, &place, sizeof place);
        number = ++known->count;
        if (known->texts.failed || known->places.failed || !fb_map_add(&known->first, hash, number)) fail(n);
    }
    fb_buffer_free(text);
    return number;
}

static uint32_t number_of_tensor(numbering *n, side *s, fb_tensor tensor);
static uint32_t number_program(numbering *n, side *s, fb_program program);

/* Two tensors of the same bytes are two memories, of which one may be written and the other not; read twice, one is one. */
static void put_tensor(numbering *n, side *s, fb_tensor tensor, fb_buffer *to) {
    put(to, number_of_tensor(n, s, tensor));
    if (!n->has_writes) return;
    if (!s->memory_of[tensor.id]) s->memory_of[tensor.id] = ++s->memories;
    put(to, s->memory_of[tensor.id]);
}

static void put_value(numbering *n, side *s, fb_value value, fb_buffer *to) {
    if (!value.id) {
        put(to, 0);
        return;
    }
    const fb_value_row *row = fb_value_at(s->graph, value);
    put(to, row->kind);
    put(to, row->count);
    switch ((fb_kind)row->kind) {
    case FB_NODE: put(to, s->of_node[fb_value_node(s->graph, value).id]); break;
    case FB_TENSOR: put_tensor(n, s, fb_value_tensor(s->graph, value), to); break;
    case FB_INT: put(to, row->integer); break;
    case FB_FLOAT: fb_buffer_append(to, &row->real, sizeof row->real); break;
    default: {
        const char *text = fb_value_text(s->graph, value);
        if (text) put_text(to, text);
    }
    }
    for (uint32_t i = 0; i < row->count && fb_work_goes_on(n->asked->work, 1); i++) put_value(n, s, row->items[i], to);
}

/* ---- weights ------------------------------------------------------------------------------------------------------------- */

static bool is_at_a_place(const fb_tensor_row *row) {
    return row->blob.id && !row->recipe.id && !row->data.id;
}

static void put_place(const fb_graph *graph, fb_tensor tensor, fb_buffer *to) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    put_text(to, fb_text(graph, row->blob));
    put(to, row->offset);
    put(to, (int64_t)fb_tensor_bytes(graph, tensor));
}

static uint64_t hash_of_place(numbering *n, const fb_graph *graph, fb_tensor tensor) {
    fb_buffer text = {0};
    put_place(graph, tensor, &text);
    if (text.failed) fail(n);
    uint64_t hash = text.failed ? 0 : fb_hash(text.data, text.size, 0);
    fb_buffer_free(&text);
    return hash;
}

static void find_places(numbering *n, int k) {
    const fb_graph *graph = n->sides[k].graph;
    for (fb_tensor t = fb_first_tensor(graph); t.id && !n->status; t = fb_tensor_at(graph, t)->next) {
        if (!is_at_a_place(fb_tensor_at(graph, t))) continue;
        uint64_t hash = hash_of_place(n, graph, t);
        if (!n->status && !fb_map_put(&n->places, hash, fb_map_get(&n->places, hash) | 1U << k)) fail(n);
    }
}

/* Tensors that both graphs read at one place are equal without a look at their bytes; all others are what their bytes are. */
static void put_bytes(numbering *n, side *s, fb_tensor tensor, fb_buffer *to) {
    const fb_tensor_row *row = fb_tensor_at(s->graph, tensor);
    char digest[FB_ID_LENGTH + 1];
    fb_error ignored = {0};
    if (n->asked->any_weights) return;
    if (is_at_a_place(row) && fb_map_get(&n->places, hash_of_place(n, s->graph, tensor)) == 3) {
        put(to, 'p');
        put_place(s->graph, tensor, to);
        return;
    }
    fb_status status = fb_evaluation_digest_of_bytes(s->graph, tensor, n->asked->blobs, digest, &ignored);
    if (status == FB_NO_MEMORY || status == FB_BUSY) {
        if (!n->status) n->status = fb_fail(n->error, status, ignored.code, NULL, "%s", ignored.message);
    } else if (!status) {
        put(to, 'b');
        put_text(to, digest);
    } else if (row->digest.id && !row->recipe.id && !row->blob.id && !row->data.id) {
        put(to, 'b');
        put_text(to, fb_text(s->graph, row->digest));
    } else if (row->recipe.id) {
        put(to, 'r');
        put_value(n, s, row->recipe, to);
    } else if (n->asked->random_weights) {
        put(to, 'n');
        put_text(to, fb_text(s->graph, row->name));
    } else { /* unknown: it is equal to itself alone */
        put(to, s->graph == n->asked->a ? 'x' : 'y');
        put(to, tensor.id);
    }
}

static uint32_t number_of_tensor(numbering *n, side *s, fb_tensor tensor) {
    if (s->of_tensor[tensor.id]) return s->of_tensor[tensor.id];
    const fb_tensor_row *row = fb_tensor_at(s->graph, tensor);
    fb_buffer text = {0};
    put(&text, 'T');
    put_text(&text, fb_tensor_dtype_name(s->graph, tensor));
    put_value(n, s, row->shape, &text);
    put_bytes(n, s, tensor, &text);
    return s->of_tensor[tensor.id] = number_of(n, &text);
}

static size_t tensors_of(const numbering *n) {
    return (size_t)fb_tensor_limit(n->sides[0].graph) + fb_tensor_limit(n->sides[1].graph);
}

/* Only moves bytes of other tensors. */
static bool is_moved(const fb_graph *graph, fb_tensor tensor) {
    fb_recipe_type type;
    fb_error ignored;
    fb_value recipe = fb_tensor_at(graph, tensor)->recipe;
    return recipe.id && fb_recipe_type_of(graph, recipe, &type, &ignored) == FB_OK && type.is_movement;
}

typedef struct source_walk {
    numbering *numbering;
    side *side;
} source_walk;

static void number_source(void *context, fb_tensor tensor) {
    source_walk *walk = context;
    number_of_tensor(walk->numbering, walk->side, tensor);
}

/* Of the weights that are read, and those that they are moved from, how many each graph reads alone. */
static void count_lonely_weights(numbering *n, size_t lonely[2]) {
    unsigned char *has = calloc((size_t)n->known.count + tensors_of(n) + 1, 1);
    if (!has) fail(n);
    for (int k = 0; k < 2 && !n->status; k++) {
        side *s = &n->sides[k];
        source_walk walk = {n, s};
        for (fb_tensor t = fb_last_tensor(s->graph); t.id && !n->status; t = fb_tensor_at(s->graph, t)->previous)
            if (s->of_tensor[t.id] && is_moved(s->graph, t))
                fb_value_visit_tensors(s->graph, fb_tensor_at(s->graph, t)->recipe, number_source, &walk);
    }
    for (int look = 0; look < 2 && !n->status; look++) {
        for (int k = 0; k < 2; k++) {
            const side *s = &n->sides[k];
            for (fb_tensor t = fb_first_tensor(s->graph); t.id; t = fb_tensor_at(s->graph, t)->next) {
                uint32_t number = s->of_tensor[t.id];
                if (!number) continue;
                if (!look) has[number] |= (unsigned char)(1U << k);
                else if (has[number] != 3 && !is_moved(s->graph, t)) lonely[k]++;
            }
        }
    }
    free(has);
}

/* ---- modules ------------------------------------------------------------------------------------------------------------- */

static void put_module_row(numbering *n, side *s, fb_module module, fb_buffer *to) {
    const fb_module_row *row = fb_module_at(s->graph, module);
    put_text(to, fb_text(s->graph, row->type));
    put(to, row->training);
    put_value(n, s, row->config, to);
    put_value(n, s, row->attributes, to);
    put_value(n, s, row->parameters, to);
    put_value(n, s, row->buffers, to);
    put_value(n, s, row->rest, to);
    if (row->program.id) put(to, number_program(n, s, row->program));
}

/* Marks the modules that others are inside. */
static void find_inner(numbering *n, side *s) {
    const fb_graph *graph = s->graph;
    for (fb_module m = fb_first_module(graph); m.id && !n->status; m = fb_module_at(graph, m)->next) {
        char *path = strdup(fb_text(graph, fb_module_at(graph, m)->path)), *dot;
        if (!path) fail(n);
        while (path && (dot = strrchr(path, '.')) && fb_work_goes_on(n->asked->work, 4)) {
            *dot = '\0';
            fb_module outer = fb_module_find(graph, path);
            if (outer.id && s->has_inner[outer.id]) break; /* and so have all that it is in */
            if (outer.id) s->has_inner[outer.id] = true;
        }
        free(path);
    }
}

/* With the modules inside, which the call may read: the projection behind attention is one of them. */
static uint32_t number_of_module(numbering *n, side *s, fb_module module) {
    if (s->of_module[module.id]) return s->of_module[module.id];
    const char *path = fb_text(s->graph, fb_module_at(s->graph, module)->path);
    size_t length = strlen(path);
    fb_buffer text = {0};
    put(&text, 'M');
    put_module_row(n, s, module, &text);
    bool has_inner = s->has_inner[module.id] || !length;
    for (fb_module m = fb_first_module(s->graph); m.id && has_inner && fb_work_goes_on(n->asked->work, 4);
         m = fb_module_at(s->graph, m)->next) {
        const char *inner = fb_text(s->graph, fb_module_at(s->graph, m)->path);
        if (m.id == module.id || strncmp(inner, path, length) != 0 || (length && inner[length] != '.')) continue;
        put_text(&text, inner + length);
        put_module_row(n, s, m, &text);
    }
    return s->of_module[module.id] = number_of(n, &text);
}

/* ---- nodes --------------------------------------------------------------------------------------------------------------- */

static void put_attribute(numbering *n, side *s, fb_node node, fb_buffer *to) {
    const fb_node_row *row = fb_node_at(s->graph, node);
    const fb_module_row *module = fb_module_at(s->graph, row->module);
    if (!row->attribute.id) {
        put(to, 'g');
        put(to, number_program(n, s, module->program));
        return;
    }
    const char *attribute = fb_text(s->graph, row->attribute);
    fb_tensor tensor = fb_module_tensor(s->graph, row->module, attribute);
    put(to, tensor.id ? 't' : 'a');
    if (tensor.id) put_tensor(n, s, tensor, to);
    else put_value(n, s, fb_map_value(s->graph, module->attributes, attribute), to);
}

bool fb_changes_state(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    if (row->opcode < FB_CALL_MODULE || row->opcode > FB_CALL_METHOD) return false;
    fb_effects effects = fb_op_effects(graph, node);
    uint64_t flags = fb_op_facts_of(fb_node_op(graph, node))->flags;
    return effects.is_unknown || effects.mutates_input || effects.mutates_module || flags & FB_FACT_VMAP_LEVEL ||
           (effects.has_effect && !(flags & FB_FACT_ASSERTS) && !fb_asserts_type_only(graph, node));
}

/* The function of ONNX that is called, or none: another graph may have another one of that name. */
static fb_module function_of(const fb_graph *graph, fb_node node) {
    const char *target = fb_node_at(graph, node)->opcode == FB_CALL_FUNCTION ? fb_node_target(graph, node) : "";
    fb_module module = {0};
    if (strncmp(target, FB_ONNX_FUNCTION, strlen(FB_ONNX_FUNCTION)) == 0) module = fb_module_find(graph, target);
    return module.id && fb_module_at(graph, module)->program.id ? module : (fb_module){0};
}

static void put_call(numbering *n, side *s, fb_node node, fb_buffer *to) {
    const fb_node_row *row = fb_node_at(s->graph, node);
    fb_effects effects = fb_op_effects(s->graph, node);
    fb_module function = function_of(s->graph, node);
    put(to, row->opcode);
    if (function.id && s->of_module[function.id]) { /* number_functions has been there */
        put(to, 'F');
        put(to, s->of_module[function.id]);
    } else if (function.id) { /* it calls itself, which only another reader could have let in */
        put(to, s->graph == n->asked->a ? 'x' : 'y');
        put(to, function.id);
    }
    if (row->opcode == FB_CALL_MODULE) put(to, number_of_module(n, s, row->module));
    else if (row->opcode == FB_GET_ATTR) put_attribute(n, s, node, to);
    else if (row->opcode != FB_OUTPUT && !function.id) put_text(to, fb_text(s->graph, row->target));
    put_value(n, s, row->args, to);
    put_value(n, s, row->kwargs, to);
    put(to, s->state);
    if (effects.is_random || effects.is_unknown) put(to, s->drawn);
}

static void put_placeholder(numbering *n, side *s, fb_node node, size_t position, fb_buffer *to) {
    const fb_node_row *row = fb_node_at(s->graph, node);
    bool is_of_b = s == &n->sides[1], is_main = row->program.id == FB_MAIN_PROGRAM.id;
    fb_node matched = is_of_b && is_main ? n->asked->input_of_b[node.id] : node;
    put(to, is_main ? 'P' : 'p');
    if (is_main) put(to, matched.id ? matched.id : -(int64_t)node.id);
    else put(to, (int64_t)position);
    put_value(n, s, row->args, to);
}

/* ---- movements ----------------------------------------------------------------------------------------------------------- */

static bool same_shape(const fb_shape_result *a, const fb_shape_result *b) {
    bool same = a->rank == b->rank && a->rank >= 0;
    for (int i = 0; i < a->rank && same; i++)
        same = a->sizes[i].size == b->sizes[i].size && !a->sizes[i].symbol.id && !b->sizes[i].symbol.id;
    return same;
}

/* Inputs have the shapes that both graphs record of them. */
static void check_inputs(numbering *n) {
    side *a = &n->sides[0], *b = &n->sides[1];
    for (fb_node node = fb_first_node(b->graph, FB_MAIN_PROGRAM); node.id; node = fb_next_node(b->graph, node)) {
        fb_node twin = fb_node_at(b->graph, node)->opcode == FB_PLACEHOLDER ? n->asked->input_of_b[node.id] : (fb_node){0};
        fb_shape_result x, y;
        bool are_known = twin.id && fb_recorded_shape(a->graph, twin, &x) && fb_recorded_shape(b->graph, node, &y);
        a->has_true_shape[twin.id] = b->has_true_shape[node.id] = are_known && x.dtype == y.dtype && same_shape(&x, &y);
    }
}

/* A document may say any shape of a node: it counts where it is what the operators make of the inputs' shapes. */
static void check_shape(side *s, fb_node node) {
    const fb_node_row *row = fb_node_at(s->graph, node);
    fb_shape_result recorded, inferred;
    if (!fb_recorded_shape(s->graph, node, &recorded) || recorded.rank < 0 || !recorded.dtype) return;
    for (int i = 0; i < recorded.rank; i++)
        if (recorded.sizes[i].symbol.id) return;
    bool is_true = s->has_true_shape[node.id];
    if (row->opcode == FB_GET_ATTR && row->attribute.id) {
        fb_tensor tensor = fb_module_tensor(s->graph, row->module, fb_text(s->graph, row->attribute));
        is_true = tensor.id && fb_tensor_at(s->graph, tensor)->dtype == recorded.dtype &&
                  fb_shape_rank(s->graph, fb_tensor_at(s->graph, tensor)->shape) == recorded.rank;
        for (int i = 0; i < recorded.rank && is_true; i++)
            is_true = fb_shape_size(s->graph, fb_tensor_at(s->graph, tensor)->shape, i) == recorded.sizes[i].size;
    } else if (!is_true && fb_infer(s->graph, node, &inferred)) {
        is_true = inferred.dtype == recorded.dtype && same_shape(&inferred, &recorded);
        for (uint32_t e = fb_input_first(s->graph, node); e && is_true; e = fb_input_next(s->graph, e))
            is_true = s->has_true_shape[fb_edge_input(s->graph, e).id];
    }
    s->has_true_shape[node.id] = is_true;
}

/* The number of a value that is a copy, or another shape, of one that is known; 0 = it is neither. The text says "this value in
 * that shape", so that a shape of a shape is one of the first. */
static uint32_t moved_number(numbering *n, side *s, fb_node node, fb_node *base) {
    fb_rearrange view;
    fb_shape_result now, then;
    const fb_graph *graph = s->graph;
    if (!s->has_true_shape[node.id] || !fb_op_is_pure(graph, node) || !fb_rearrange_at(graph, node, &view)) return 0;
    if (view.form == FB_REARRANGE_PERMUTE || !s->has_true_shape[view.input.id]) return 0;
    fb_node from = base[view.input.id].id ? base[view.input.id] : view.input;
    if (!fb_recorded_shape(graph, node, &now) || !fb_recorded_shape(graph, from, &then)) return 0;
    base[node.id] = from;
    if (same_shape(&now, &then)) return s->of_node[from.id];
    fb_buffer text = {0};
    put(&text, 'S');
    put(&text, s->of_node[from.id]);
    put(&text, now.rank);
    for (int i = 0; i < now.rank; i++) put(&text, now.sizes[i].size);
    return number_of(n, &text);
}

/* ---- both graphs --------------------------------------------------------------------------------------------------------- */

static uint32_t number_call(numbering *n, side *s, fb_node node, size_t position) {
    fb_buffer text = {0};
    if (fb_node_at(s->graph, node)->opcode == FB_PLACEHOLDER) put_placeholder(n, s, node, position, &text);
    else put_call(n, s, node, &text);
    uint32_t number = number_of(n, &text);
    if (!n->has_writes || n->status) return number;
    uint32_t times = fb_map_get(&s->times, number) + 1;
    if (!fb_map_put(&s->times, number, times)) fail(n);
    put(&text, 'O');
    put(&text, number);
    put(&text, times);
    return number_of(n, &text);
}

/* The number of a program is that of its output in the state that it leaves behind. */
static uint32_t number_program(numbering *n, side *s, fb_program program) {
    fb_node *base = calloc(fb_node_limit(s->graph), sizeof *base);
    size_t position = 0;
    uint32_t last = 0;
    if (!base) fail(n);
    for (fb_node node = fb_first_node(s->graph, program);
         node.id && !n->status && fb_work_goes_on(n->asked->work, STEPS_OF_A_NODE); node = fb_next_node(s->graph, node)) {
        fb_effects effects = fb_op_effects(s->graph, node);
        if (n->by_movement) check_shape(s, node);
        uint32_t number = n->by_movement ? moved_number(n, s, node, base) : 0;
        last = s->of_node[node.id] = number ? number : number_call(n, s, node, position++);
        if (fb_changes_state(s->graph, node)) s->state = last;
        if (effects.is_random || effects.is_unknown) s->drawn = last;
    }
    free(base);
    fb_buffer text = {0};
    put(&text, 'G');
    put(&text, last);
    put(&text, s->state);
    return number_of(n, &text);
}

/* A function that the program calls, and that has not been looked at. */
static fb_module unseen_function(const fb_graph *graph, fb_program program, const unsigned char *is_seen, int depth) {
    for (fb_node node = fb_first_node(graph, program); node.id; node = fb_next_node(graph, node)) {
        const fb_node_row *row = fb_node_at(graph, node);
        bool is_program = row->opcode == FB_GET_ATTR && row->module.id && !row->attribute.id && depth < MOST_NESTED;
        fb_module found = function_of(graph, node);
        if (is_program) found = unseen_function(graph, fb_module_at(graph, row->module)->program, is_seen, depth + 1);
        if (found.id && !is_seen[found.id]) return found;
    }
    return (fb_module){0};
}

/* Names do not count, but the defaults of attributes do. */
static void number_function(numbering *n, side *s, fb_module function) {
    const fb_module_row *row = fb_module_at(s->graph, function);
    fb_buffer text = {0};
    put(&text, 'F');
    put_value(n, s, row->config, &text);
    put(&text, number_program(n, s, row->program));
    s->of_module[function.id] = number_of(n, &text);
    s->state = s->drawn = 0;
}

/* The functions of ONNX, each after those that it calls: they may be thousands deep. */
static void number_functions(numbering *n, side *s) {
    const fb_graph *graph = s->graph;
    fb_module *open = calloc(fb_module_limit(graph) + 1, sizeof *open);
    unsigned char *is_seen = calloc(fb_module_limit(graph) + 1, 1);
    size_t count = 0;
    if (!open || !is_seen) fail(n);
    for (fb_module m = fb_first_module(graph); m.id && !n->status; m = fb_module_at(graph, m)->next) {
        const char *path = fb_text(graph, fb_module_at(graph, m)->path);
        bool is_function = strncmp(path, FB_ONNX_FUNCTION, strlen(FB_ONNX_FUNCTION)) == 0;
        if (!is_function || is_seen[m.id] || !fb_module_at(graph, m)->program.id) continue;
        is_seen[(open[count++] = m).id] = true;
        while (count && !n->status && fb_work_goes_on(n->asked->work, STEPS_OF_A_NODE)) {
            fb_module top = open[count - 1], next = unseen_function(graph, fb_module_at(graph, top)->program, is_seen, 0);
            if (next.id) is_seen[(open[count++] = next).id] = true;
            else number_function(n, s, open[--count]);
        }
    }
    free(open);
    free(is_seen);
}

/* Is something written, or do the strides of a value count? In any program. */
static void look_for_writes(const fb_graph *graph, bool *has_writes, bool *reads_layout) {
    for (uint32_t p = 1; p < fb_program_limit(graph); p++) {
        for (fb_node node = fb_first_node(graph, (fb_program){p}); node.id; node = fb_next_node(graph, node)) {
            *has_writes |= fb_changes_state(graph, node);
            *reads_layout |= (fb_op_facts_of(fb_node_op(graph, node))->flags & FB_FACT_READS_LAYOUT) != 0;
        }
    }
}

static fb_status begin(side *s, const fb_graph *graph, fb_error *error) {
    *s = (side){.graph = graph,
                .of_node = calloc(fb_node_limit(graph), sizeof *s->of_node),
                .of_tensor = calloc(fb_tensor_limit(graph) + 1, sizeof *s->of_tensor),
                .memory_of = calloc(fb_tensor_limit(graph) + 1, sizeof *s->memory_of),
                .of_module = calloc(fb_module_limit(graph) + 1, sizeof *s->of_module),
                .has_inner = calloc(fb_module_limit(graph) + 1, 1),
                .has_true_shape = calloc(fb_node_limit(graph), 1)};
    bool is_complete = s->of_node && s->of_tensor && s->memory_of && s->of_module && s->has_inner && s->has_true_shape;
    return is_complete ? FB_OK : fb_fail_memory(error);
}

static void end(side *s) {
    free(s->of_tensor);
    free(s->memory_of);
    free(s->of_module);
    free(s->has_inner);
    fb_map_free(&s->times);
}

fb_status fb_equal_values_find(const fb_equality *equality, bool by_movement, fb_equal_values *out, fb_error *error) {
    numbering n = {.asked = equality, .error = error};
    const fb_graph *graphs[] = {equality->a, equality->b};
    bool reads_layout = false;
    *out = (fb_equal_values){0};
    for (int k = 0; k < 2 && !n.status; k++) {
        look_for_writes(graphs[k], &n.has_writes, &reads_layout);
        n.status = begin(&n.sides[k], graphs[k], error);
    }
    n.by_movement = by_movement && !n.has_writes && !reads_layout;
    for (int k = 0; k < 2 && !n.status; k++) find_places(&n, k);
    for (int k = 0; k < 2 && !n.status; k++) find_inner(&n, &n.sides[k]);
    if (!n.status && n.by_movement) check_inputs(&n);
    for (int k = 0; k < 2 && !n.status; k++) {
        number_functions(&n, &n.sides[k]);
        if (!n.status) number_program(&n, &n.sides[k], FB_MAIN_PROGRAM);
    }
    if (!n.status) n.status = fb_work_status(equality->work, error);
    size_t lonely[2] = {0};
    if (!n.status) count_lonely_weights(&n, lonely);
    *out = (fb_equal_values){.of_a = n.sides[0].of_node,
                             .of_b = n.sides[1].of_node,
                             .has_shape_of_a = n.sides[0].has_true_shape,
                             .has_shape_of_b = n.sides[1].has_true_shape,
                             .end_of_a = n.sides[0].state,
                             .end_of_b = n.sides[1].state,
                             .lonely_weights = {lonely[0], lonely[1]},
                             .has_writes = n.has_writes};
    end(&n.sides[0]);
    end(&n.sides[1]);
    fb_map_free(&n.known.first);
    fb_buffer_free(&n.known.texts);
    fb_buffer_free(&n.known.places);
    fb_map_free(&n.places);
    if (n.status) fb_equal_values_free(out);
    return n.status;
}

void fb_equal_values_free(fb_equal_values *values) {
    free(values->of_a);
    free(values->of_b);
    free(values->has_shape_of_a);
    free(values->has_shape_of_b);
    *values = (fb_equal_values){0};
}
