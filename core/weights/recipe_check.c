/* All recipes of a graph: types, agreement with their tensors, and no tensor computed from itself. */
#include <stdio.h>
#include <stdlib.h>

#include "core/weights/recipe.h"

static void check_agreement(const fb_graph *graph, fb_tensor tensor, const fb_recipe_type *type, fb_errors *errors,
                            const char *prefix) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    fb_dtype dtype = (fb_dtype)row->dtype;
    bool is_computable = fb_recipe_rounds_to(dtype);
    if (type->is_movement && type->dtype && type->dtype != dtype) {
        fb_errors_add(errors, "recipe-contradicts-tensor", prefix, "The recipe of %s gives %s, but the tensor is %s.",
                      fb_tensor_name(graph, tensor), fb_dtype_name(type->dtype), fb_dtype_name(dtype));
    } else if (!type->is_movement && !is_computable) {
        fb_errors_add(errors, "recipe-contradicts-tensor", prefix, "The recipe of %s computes, but the tensor is %s.",
                      fb_tensor_name(graph, tensor), fb_dtype_name(dtype));
    }
    bool same = fb_shape_rank(graph, row->shape) == type->rank;
    for (int i = 0; same && i < type->rank; i++) same = fb_shape_size(graph, row->shape, i) == type->sizes[i];
    if (same) return;
    fb_errors_add(errors, "recipe-contradicts-tensor", prefix, "The recipe of %s gives another shape than the tensor has.",
                  fb_tensor_name(graph, tensor));
}

static void check_type(const fb_graph *graph, fb_tensor tensor, size_t position, fb_errors *errors) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    char prefix[48];
    snprintf(prefix, sizeof prefix, "/tensors/%zu/recipe", position);
    fb_recipe_type type;
    fb_error error = {0};
    fb_status status = fb_recipe_type_under(graph, row->recipe, (fb_dtype)row->dtype, prefix, &type, &error);
    if (status == FB_OK) check_agreement(graph, tensor, &type, errors, prefix);
    else if (status == FB_NO_MEMORY) errors->out_of_memory = true;
    else fb_errors_add(errors, error.code, error.pointer, "%s", error.message);
}

/* ---- cycles ---------------------------------------------------------------------------------------------------------- */

/* Which tensors each tensor reads: reads[start[t] .. start[t + 1]]. */
typedef struct dependencies {
    uint32_t *start;
    fb_tensor *reads;
    size_t *position; /* in the document */
    uint32_t reader;
} dependencies;

static void count_read(void *context, fb_tensor source) {
    dependencies *d = context;
    (void)source;
    d->start[d->reader + 2]++;
}

static void put_read(void *context, fb_tensor source) {
    dependencies *d = context;
    d->reads[d->start[d->reader + 1]++] = source;
}

static void each_read(const fb_graph *graph, dependencies *d, void (*visit)(void *, fb_tensor)) {
    for (fb_tensor t = fb_first_tensor(graph); t.id; t = fb_tensor_at(graph, t)->next) {
        fb_value recipe = fb_tensor_at(graph, t)->recipe;
        d->reader = t.id;
        if (recipe.id) fb_value_visit_tensors(graph, recipe, visit, d);
    }
}

static bool find_dependencies(const fb_graph *graph, dependencies *d) {
    uint32_t limit = fb_tensor_limit(graph) + 1;
    each_read(graph, d, count_read);
    for (uint32_t t = 1; t <= limit; t++) d->start[t] += d->start[t - 1];
    d->reads = calloc((size_t)d->start[limit] + 1, sizeof *d->reads);
    if (!d->reads) return false;
    each_read(graph, d, put_read);
    return true;
}

typedef enum mark { UNSEEN, OPEN, DONE } mark;

static void report_cycle(const fb_graph *graph, const dependencies *d, fb_tensor reader, fb_tensor source, fb_errors *errors) {
    char pointer[48];
    snprintf(pointer, sizeof pointer, "/tensors/%zu/recipe", d->position[reader.id]);
    fb_errors_add(errors, "recipe-cycle", pointer, "%s is computed from %s, which is computed from it.",
                  fb_tensor_name(graph, reader), fb_tensor_name(graph, source));
}

/* Depth-first from one tensor, on a stack of its own: chains may be as long as the table. */
static void search_from(const fb_graph *graph, const dependencies *d, fb_tensor from, mark *marks, uint32_t *cursor,
                        fb_tensor *stack, fb_errors *errors) {
    size_t depth = 0;
    stack[depth++] = from;
    marks[from.id] = OPEN;
    while (depth) {
        fb_tensor reader = stack[depth - 1];
        if (d->start[reader.id] + cursor[reader.id] == d->start[reader.id + 1]) {
            marks[reader.id] = DONE;
            depth--;
            continue;
        }
        fb_tensor source = d->reads[d->start[reader.id] + cursor[reader.id]++];
        if (marks[source.id] == OPEN) report_cycle(graph, d, reader, source, errors);
        if (marks[source.id] != UNSEEN) continue;
        marks[source.id] = OPEN;
        stack[depth++] = source;
    }
}

static void check_cycles(const fb_graph *graph, const dependencies *d, fb_errors *errors) {
    size_t limit = (size_t)fb_tensor_limit(graph) + 1;
    mark *marks = calloc(limit, sizeof *marks);
    uint32_t *cursor = calloc(limit, sizeof *cursor);
    fb_tensor *stack = calloc(limit, sizeof *stack);
    if (!marks || !cursor || !stack) errors->out_of_memory = true;
    for (fb_tensor t = fb_first_tensor(graph); t.id && !errors->out_of_memory; t = fb_tensor_at(graph, t)->next) {
        if (marks[t.id] == UNSEEN) search_from(graph, d, t, marks, cursor, stack, errors);
    }
    free(marks);
    free(cursor);
    free(stack);
}

void fb_recipe_check_all(const fb_graph *graph, fb_errors *errors) {
    size_t limit = (size_t)fb_tensor_limit(graph) + 2;
    dependencies d = {.start = calloc(limit, sizeof *d.start), .position = calloc(limit, sizeof *d.position)};
    if (!d.start || !d.position || !find_dependencies(graph, &d)) {
        errors->out_of_memory = true;
    } else {
        size_t position = 0;
        for (fb_tensor t = fb_first_tensor(graph); t.id; t = fb_tensor_at(graph, t)->next) {
            if (fb_tensor_at(graph, t)->recipe.id) check_type(graph, t, position, errors);
            d.position[t.id] = position++;
        }
        if (d.start[fb_tensor_limit(graph)]) check_cycles(graph, &d, errors);
    }
    free(d.start);
    free(d.position);
    free(d.reads);
}
