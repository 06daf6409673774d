/* One application of a row: its recipes, and what they are put in the place of. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"
#include "core/layouts/internal.h"
#include "core/operators/spelling.h"
#include "core/weights/recipe.h"

/* ---- numbers ------------------------------------------------------------------------------------------------------------ */

static bool is_called(const char *text, const char *name, size_t length) {
    return strlen(text) == length && memcmp(text, name, length) == 0;
}

int64_t fb_layout_size(const fb_graph *graph, fb_tensor tensor, int axis) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    bool is_last = axis == fb_shape_rank(graph, row->shape) - 1;
    return fb_shape_size(graph, row->shape, axis) * (is_last ? fb_dtype_packs((fb_dtype)row->dtype) : 1);
}

/* The row whose recipes and shapes name sources. */
static const fb_layout_row *document_row(const fb_layout_application *application) {
    return !application ? NULL : application->row->of ? application->row->of : application->row;
}

static bool find_size(const fb_layout_scope *scope, const char *name, size_t length, int axis, int64_t *out) {
    const fb_layout_application *application = scope->application;
    const fb_layout_row *row = document_row(application);
    for (size_t i = 0; row && i < row->source_count; i++) {
        if (!is_called(row->sources[i].name, name, length)) continue;
        if (scope->stand_ins || application->weights) {
            *out = axis < 2 ? (scope->stand_ins ? scope->stand_ins[i].sizes : application->weights[i].sizes)[axis] : -1;
            return *out >= 0;
        }
        fb_tensor tensor = application->tensors[i][0]->tensor;
        *out = fb_layout_size(scope->graph, tensor, axis);
        return axis < fb_shape_rank(scope->graph, fb_tensor_at(scope->graph, tensor)->shape);
    }
    return false;
}

static bool find_number(const void *context, const char *name, size_t length, int axis, int64_t *out) {
    const fb_layout_scope *scope = context;
    if (axis >= 0) return find_size(scope, name, length, axis, out);
    for (size_t i = 0; i < scope->variable_count; i++) {
        *out = scope->values[i];
        if (is_called(scope->variables[i], name, length)) return true;
    }
    for (size_t i = 0; i < scope->layout->parameter_count; i++) {
        *out = scope->parameters[i];
        if (is_called(scope->layout->parameters[i].name, name, length)) return true;
    }
    return false;
}

fb_layout_names fb_layout_names_of(const fb_layout_scope *scope) {
    return (fb_layout_names){.find = find_number, .context = scope};
}

/* From here on the variable has that value. */
static void count_by(fb_layout_scope *scope, const char *variable, int64_t value) {
    if (scope->variable_count == EACH_MAX) return; /* which reading has excluded */
    scope->variables[scope->variable_count] = variable;
    scope->values[scope->variable_count++] = value;
}

fb_status fb_layout_count_of(const fb_layout_scope *scope, const fb_layout_count *each, int64_t *out, fb_error *error) {
    fb_layout_names names = fb_layout_names_of(scope);
    *out = 1;
    return each->variable ? fb_layout_compute(each->count, &names, out, error) : FB_OK;
}

/* ---- recipes ------------------------------------------------------------------------------------------------------------ */

enum { STEPS_OF_A_PART = 16 };

typedef struct builder {
    fb_graph *graph;
    fb_layout_scope *scope;
    fb_error *error;
} builder;

static fb_value build(builder *b, const json_t *json);

static int64_t number(builder *b, const json_t *json) {
    fb_layout_names names = fb_layout_names_of(b->scope);
    int64_t value = 0;
    fb_layout_number(json, &names, &value, b->error);
    return value;
}

static int64_t member(builder *b, const json_t *json, const char *name) {
    return number(b, json_object_get(json, name));
}

/* ---- numbers that are packed into elements ---- */

#define NUMBERS_OF (INT64_MIN / 2) /* and the tensor's id: the value that a filler has in the place of its numbers */

/* The tensor; in the place of one that packs numbers a filler, with as many elements as it has numbers. */
static fb_value numbers_of(fb_graph *graph, fb_tensor tensor) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    int64_t sizes[FB_RECIPE_MAX_RANK];
    int rank = fb_shape_rank(graph, row->shape);
    if (fb_dtype_packs((fb_dtype)row->dtype) == 1 || rank > FB_RECIPE_MAX_RANK) return fb_recipe_tensor(graph, tensor);
    for (int axis = 0; axis < rank; axis++) sizes[axis] = fb_layout_size(graph, tensor, axis);
    return fb_recipe_full(graph, sizes, (size_t)rank, fb_make_int(graph, NUMBERS_OF + tensor.id));
}

static fb_value packed_leaf(const void *context, fb_graph *graph, fb_value fine, int64_t blocks[FB_RECIPE_MAX_RANK]) {
    const fb_layout_application *application = context;
    int64_t number;
    if (fb_recipe_op_of(graph, fine) != FB_RECIPE_FULL ||
        !fb_value_is_int(graph, fb_recipe_value(graph, fine, "value"), &number))
        return (fb_value){0};
    for (size_t s = 0; s < application->row->source_count; s++) {
        for (size_t i = 0; i < application->counts[s]; i++) {
            fb_tensor tensor = application->tensors[s][i]->tensor;
            if (number != NUMBERS_OF + tensor.id) continue;
            const fb_tensor_row *row = fb_tensor_at(graph, tensor);
            int rank = fb_shape_rank(graph, row->shape);
            for (int axis = 0; axis < rank; axis++) blocks[axis] = axis == rank - 1 ? fb_dtype_packs((fb_dtype)row->dtype) : 1;
            return fb_recipe_tensor(graph, tensor);
        }
    }
    return (fb_value){0};
}

/* The recipe of numbers as one of elements. */
static fb_value pack(fb_graph *graph, const fb_layout_scope *scope, fb_value fine, fb_error *error) {
    const fb_layout_owned *first = fb_layout_first(scope->application);
    int64_t packs = fb_dtype_packs((fb_dtype)fb_tensor_at(graph, first->tensor)->dtype), blocks[FB_RECIPE_MAX_RANK];
    fb_recipe_type type;
    if (packs == 1 || !fine.id || error->status) return fine;
    fb_value made = fb_layout_in_blocks(graph, fine, packed_leaf, scope->application, false, blocks, error);
    if (!made.id || fb_recipe_type_of(graph, fine, &type, error)) return (fb_value){0};
    if (type.rank && blocks[type.rank - 1] == packs) return made;
    fb_fail(error, FB_INVALID, "cuts-block", NULL, "the row would put %lld numbers of %s apart that are one element",
            (long long)packs, first->name);
    return (fb_value){0};
}

static fb_value tensor_named(builder *b, const char *name) {
    const fb_layout_application *application = b->scope->application;
    size_t index = 0;
    while (strcmp(document_row(application)->sources[index].name, name) != 0) index++;
    if (b->scope->stand_ins) return b->scope->stand_ins[index].value;
    const char *variable = application->row->sources[index].each.variable;
    int64_t which = 0;
    if (variable) find_number(b->scope, variable, strlen(variable), -1, &which);
    if (which < (int64_t)application->counts[index]) return numbers_of(b->graph, application->tensors[index][which]->tensor);
    fb_fail(b->error, FB_INVALID, "out-of-range", NULL, "%s has no number %lld", name, (long long)which);
    return (fb_value){0};
}

/* The sizes of a list; one of them may be -1, which is what the others leave of `from`. */
static size_t read_sizes(builder *b, const json_t *list, fb_value from, int64_t sizes[FB_RECIPE_MAX_RANK]) {
    size_t index, unknown = SIZE_MAX;
    int64_t product = 1;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)list, index, item) {
        if (index == FB_RECIPE_MAX_RANK) break;
        if (json_is_integer(item) && json_integer_value(item) == -1) {
            unknown = index;
            continue;
        }
        sizes[index] = number(b, item);
        if (__builtin_mul_overflow(product, sizes[index], &product)) product = 0;
    }
    fb_recipe_type type;
    if (unknown == SIZE_MAX || !from.id || fb_recipe_type_of(b->graph, from, &type, b->error)) return index;
    int64_t elements = 1;
    bool fits = true;
    for (int i = 0; i < type.rank; i++) fits &= !__builtin_mul_overflow(elements, type.sizes[i], &elements);
    if (!fits || product <= 0 || elements % product)
        fb_fail(b->error, FB_INVALID, "does-not-divide", NULL, "%lld elements cannot be reshaped into rows of %lld",
                (long long)elements, (long long)product);
    sizes[unknown] = product > 0 ? elements / product : 0;
    return index;
}

static fb_value concat(builder *b, const json_t *json) {
    const json_t *args = json_object_get(json, "args"), *each = json_object_get(json, "each");
    void *first = each ? json_object_iter((json_t *)(uintptr_t)each) : NULL;
    const json_t *range = first ? json_object_iter_value(first) : NULL;
    int64_t begin = json_is_array(range) ? number(b, json_array_get(range, 0)) : 0;
    int64_t rounds = range ? number(b, json_is_array(range) ? json_array_get(range, 1) : range) - begin : 1;
    size_t count = json_array_size(args), total;
    if (rounds < 0) rounds = 0;
    bool fits = !__builtin_mul_overflow((size_t)rounds, count, &total) && total <= FB_LAYOUT_PARTS_MAX - b->scope->parts;
    if (!fits) {
        fb_fail(b->error, FB_INVALID, "out-of-range", NULL, "a tensor is made from at most %d parts", FB_LAYOUT_PARTS_MAX);
        return (fb_value){0};
    }
    b->scope->parts += total;
    fb_value *parts = malloc((total + 1) * sizeof *parts), made = {0};
    if (!parts) fb_fail_memory(b->error);
    size_t outer = b->scope->variable_count;
    for (size_t i = 0; parts && i < total && !b->error->status; i++) {
        b->scope->variable_count = outer;
        if (first) count_by(b->scope, json_object_iter_key(first), begin + (int64_t)(i / count));
        parts[i] = build(b, json_array_get(args, i % count));
    }
    b->scope->variable_count = outer;
    int64_t axis = member(b, json, "axis");
    if (!b->error->status && !total) fb_fail(b->error, FB_INVALID, "out-of-range", NULL, "a tensor is joined from no parts");
    if (!b->error->status) made = fb_recipe_concat(b->graph, axis, parts, total);
    free(parts);
    return made;
}

static fb_value build(builder *b, const json_t *json) {
    fb_value none = {0};
    if (b->scope->work && !fb_work_goes_on(b->scope->work, STEPS_OF_A_PART)) fb_work_status(b->scope->work, b->error);
    if (b->error->status) return none;
    if (json_is_string(json)) return tensor_named(b, json_string_value(json));
    fb_recipe_op op = fb_recipe_op_find(json_string_value(json_object_get(json, "op")));
    if (op == FB_RECIPE_CONCAT) return concat(b, json);
    fb_value from = op == FB_RECIPE_FULL ? none : build(b, json_array_get(json_object_get(json, "args"), 0));
    int64_t sizes[FB_RECIPE_MAX_RANK];
    if (op == FB_RECIPE_SLICE) {
        int64_t axis = member(b, json, "axis"), start = member(b, json, "start"), stop = member(b, json, "stop");
        return b->error->status ? none : fb_recipe_slice(b->graph, from, axis, start, stop);
    }
    size_t rank = read_sizes(b, json_object_get(json, op == FB_RECIPE_PERMUTE ? "dims" : "shape"), from, sizes);
    if (b->error->status) return none;
    if (op == FB_RECIPE_RESHAPE) return fb_recipe_reshape(b->graph, from, sizes, rank);
    if (op == FB_RECIPE_PERMUTE) return fb_recipe_permute(b->graph, from, sizes, rank);
    const json_t *value = json_object_get(json, "value");
    return fb_recipe_full(b->graph, sizes, rank,
                          json_is_integer(value) ? fb_make_int(b->graph, json_integer_value(value))
                                                 : fb_make_float(b->graph, json_real_value(value)));
}

fb_value fb_layout_build(fb_graph *graph, fb_layout_scope *scope, const json_t *recipe, fb_error *error) {
    builder b = {.graph = graph, .scope = scope, .error = error};
    scope->parts = 0;
    return build(&b, recipe);
}

fb_value fb_layout_recipe(fb_graph *graph, fb_layout_scope *scope, const fb_layout_target *target, fb_error *error) {
    fb_recipe_type type;
    fb_error met = {0};
    fb_value made = scope->application->row->of
                        ? fb_layout_belonging(graph, scope, target, error)
                        : pack(graph, scope, fb_layout_build(graph, scope, target->recipe, error), error);
    if (error->status) return (fb_value){0};
    fb_status status = made.id ? fb_recipe_type_of(graph, made, &type, &met) : fb_fail_memory(error);
    if (status == FB_NO_MEMORY) fb_fail_memory(error);
    else if (status) fb_fail(error, FB_INVALID, "shape-mismatch", NULL, "%s", met.message);
    return status ? (fb_value){0} : made;
}

/* ---- editing ------------------------------------------------------------------------------------------------------------ */

/* The name of the target's tensor with that number: the scope counts by it from then on. */
void fb_layout_target_name(fb_layout_scope *scope, const fb_layout_target *target, int64_t number, fb_buffer *out) {
    fb_layout_capture captures[CAPTURES_MAX + 1];
    char digits[24];
    memcpy(captures, scope->application->captures, sizeof captures);
    scope->variable_count = 0;
    if (target->each.variable) {
        count_by(scope, target->each.variable, number);
        captures[EACH] = (fb_layout_capture){digits, (size_t)snprintf(digits, sizeof digits, "%lld", (long long)number)};
    }
    out->size = 0;
    fb_layout_spell(&target->pattern, captures, out);
}

/* A tensor that a module loses, or gets by a recipe. */
typedef struct owner_change {
    fb_module module;
    size_t order; /* of all */
    fb_parameter_change change;
} owner_change;

typedef struct editor {
    fb_rewrite *rewrite;
    fb_graph *graph;
    fb_arena names;
    fb_buffer changes; /* owner_change */
    fb_buffer emptied; /* fb_module: may own nothing any more */
    bool failed;
} editor;

static void add_change(editor *e, fb_module module, fb_parameter_change change) {
    owner_change one = {.module = module, .order = e->changes.size / sizeof one, .change = change};
    e->failed |= !change.attribute;
    fb_buffer_append(&e->changes, &one, sizeof one);
}

static void put(editor *e, const fb_layout_owned *first, fb_buffer *name, fb_value recipe) {
    char *text = fb_arena_alloc(&e->names, name->size + 1);
    e->failed |= !text || name->failed;
    if (e->failed) return;
    memcpy(text, name->data, name->size);
    text[name->size] = '\0';
    char *dot = strrchr(text, '.');
    const char *path = dot ? text : "", *attribute = dot ? dot + 1 : text;
    if (dot) *dot = '\0';
    fb_module module = fb_module_find(e->graph, path);
    if (!module.id) module = fb_put_module(e->rewrite, first->module, path, FB_TYPE_MODULE, FB_VALUE_EMPTY_MAP, false);
    add_change(e, module,
               (fb_parameter_change){.attribute = attribute,
                                     .recipe = recipe,
                                     .requires_grad = fb_tensor_at(e->graph, first->tensor)->requires_grad});
}

static void edit_application(editor *e, const fb_layout_plan *plan, const fb_layout_application *application) {
    fb_layout_scope scope = {
        .layout = plan->layout, .parameters = plan->parameters, .graph = e->graph, .application = application};
    fb_buffer name = {0};
    fb_error error = {0};
    for (size_t s = 0; s < application->row->source_count; s++) {
        for (size_t i = 0; i < application->counts[s]; i++) {
            const fb_layout_owned *owned = application->tensors[s][i];
            add_change(e, owned->module, (fb_parameter_change){.attribute = owned->attribute});
            fb_buffer_append(&e->emptied, &owned->module, sizeof owned->module);
        }
    }
    for (size_t t = 0; t < application->row->target_count; t++) {
        const fb_layout_target *target = &application->row->targets[t];
        int64_t count = 0;
        scope.variable_count = 0;
        fb_layout_count_of(&scope, &target->each, &count, &error);
        for (int64_t i = 0; i < count && !error.status && !e->failed; i++) {
            fb_layout_target_name(&scope, target, i, &name);
            fb_value recipe = fb_layout_recipe(e->graph, &scope, target, &error);
            put(e, fb_layout_first(application), &name, recipe);
        }
    }
    e->failed |= error.status != FB_OK;
    fb_buffer_free(&name);
}

/* In a module tensors go before others come: one application may make the name that another one reads. */
static int by_module(const void *a, const void *b) {
    const owner_change *one = a, *two = b;
    bool comes = one->change.recipe.id != 0, other_comes = two->change.recipe.id != 0;
    if (one->module.id != two->module.id) return one->module.id < two->module.id ? -1 : 1;
    if (comes != other_comes) return comes ? 1 : -1;
    return (one->order > two->order) - (one->order < two->order);
}

/* A module's changes together: each of them by itself would write all that it owns anew. */
static void make_changes(editor *e) {
    owner_change *changes = (owner_change *)(void *)e->changes.data;
    size_t count = e->changes.size / sizeof *changes;
    fb_parameter_change *list = malloc((count + 1) * sizeof *list);
    e->failed |= !list || e->changes.failed;
    if (!e->failed) fb_sort(changes, count, sizeof *changes, by_module);
    for (size_t from = 0, to; from < count && !e->failed; from = to) {
        for (to = from; to < count && changes[to].module.id == changes[from].module.id; to++)
            list[to - from] = changes[to].change;
        fb_change_parameters(e->rewrite, changes[from].module, list, to - from);
    }
    free(list);
}

static void drop_what_is_empty(editor *e) {
    const fb_module *modules = (const fb_module *)(const void *)e->emptied.data;
    e->failed |= e->emptied.failed;
    for (size_t i = 0; i < e->emptied.size / sizeof *modules && !e->failed; i++) {
        const fb_module_row *row = fb_module_at(e->graph, modules[i]);
        bool is_root = !fb_text_length(e->graph, row->path);
        if (is_root || row->is_erased || fb_value_at(e->graph, row->parameters)->count ||
            fb_value_at(e->graph, row->buffers)->count)
            continue;
        fb_drop_module(e->rewrite, modules[i]);
    }
}

/* All applications with the first of them. Values never change: what a recipe reads stays readable after its owner lost it. */
void fb_layout_edit(fb_rewrite *rewrite, const fb_match *match) {
    const fb_layout_plan *plan = match->plan;
    if (match->nodes[0].id != 1) return;
    editor e = {.rewrite = rewrite, .graph = fb_rewrite_graph(rewrite)};
    for (size_t i = 0; i < plan->count && !e.failed; i++) edit_application(&e, plan, plan->applications[i]);
    make_changes(&e);
    drop_what_is_empty(&e);
    if (e.failed) fb_put_module(rewrite, (fb_module){0}, NULL, FB_TYPE_MODULE, FB_VALUE_EMPTY_MAP, false); /* memory is out */
    fb_arena_free(&e.names);
    fb_buffer_free(&e.changes);
    fb_buffer_free(&e.emptied);
}
