#include "tests/unit/movements.h"

#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/build.h"
#include "tests/unit/evaluated.h"
#include "tests/unit/numbers.h"

#define MAX_RANK 5
#define MAX_ELEMENTS 600

/* An expression, and what it gives. */
typedef struct moved {
    fb_value expression;
    value elements;
} moved;

int64_t movements_below(movements *m, int64_t limit) {
    return (int64_t)random_below(&m->random, (size_t)limit);
}

fb_tensor put_tensor(fb_graph *graph, const char *name, fb_dtype dtype, const int64_t *sizes, int rank, const void *bytes,
                     size_t size) {
    fb_tensor tensor = fb_graph_add_tensor(graph, fb_intern(graph, name), (fb_tensor){0});
    fb_tensor_row *row = fb_tensor_row_at(graph, tensor);
    row->dtype = (uint8_t)dtype;
    row->shape = fb_make_shape(graph, sizes, (size_t)rank);
    if (!bytes) return tensor;
    fb_buffer text = {0};
    encode_base64(bytes, size, &text);
    row->data = fb_intern_bytes(graph, text.size ? text.data : "", text.size);
    fb_buffer_free(&text);
    return tensor;
}

fb_tensor put_recipe(fb_graph *graph, const char *name, fb_dtype dtype, fb_value recipe) {
    fb_recipe_type type;
    fb_error error = {0};
    if (fb_recipe_type_of(graph, recipe, &type, &error) != FB_OK) {
        fprintf(stderr, "%s: %s %s\n", name, error.pointer, error.message);
        abort();
    }
    fb_tensor tensor = put_tensor(graph, name, type.dtype ? type.dtype : dtype, type.sizes, type.rank, NULL, 0);
    fb_tensor_row_at(graph, tensor)->recipe = recipe;
    return tensor;
}

static void keep(movements *m, fb_tensor tensor, value elements, bool is_source) {
    m->tensors[m->count++] = (moved_tensor){tensor, elements, is_source};
}

/* ---- leaves -------------------------------------------------------------------------------------------------------------- */

static moved new_source(movements *m, int rank, const int64_t *sizes) {
    char name[32];
    snprintf(name, sizeof name, "source%zu", m->count);
    value elements = tensor_value(&m->arena, rank, sizes);
    int64_t count = element_count(&elements);
    int64_t *numbers = calloc((size_t)count + 1, sizeof *numbers);
    for (int64_t i = 0; i < count; i++) {
        numbers[i] = (int64_t)(m->count + 1) * SOURCE_STEP + i;
        elements.data[i] = (double)numbers[i];
    }
    fb_tensor tensor = put_tensor(m->graph, name, FB_INT64, sizes, rank, numbers, (size_t)count * sizeof *numbers);
    free(numbers);
    keep(m, tensor, elements, true);
    return (moved){fb_recipe_tensor(m->graph, tensor), elements};
}

static moved new_filler(movements *m, int rank, const int64_t *sizes) {
    value elements = tensor_value(&m->arena, rank, sizes);
    int64_t number = -1 - movements_below(m, 1000);
    for (int64_t i = 0, count = element_count(&elements); i < count; i++) elements.data[i] = (double)number;
    return (moved){fb_recipe_full(m->graph, sizes, (size_t)rank, fb_make_int(m->graph, number)), elements};
}

static moved pick(movements *m) {
    const moved_tensor *t = &m->tensors[movements_below(m, (int64_t)m->count)];
    return (moved){fb_recipe_tensor(m->graph, t->tensor), t->elements};
}

/* ---- operations ---------------------------------------------------------------------------------------------------------- */

static moved sliced(movements *m, moved from, int axis, int64_t start, int64_t stop) {
    return (moved){fb_recipe_slice(m->graph, from.expression, axis, start, stop),
                   slice_of(&from.elements, axis, start, stop, 1)};
}

static moved random_slice(movements *m, moved from) {
    if (from.elements.rank == 0) return from;
    int axis = (int)movements_below(m, from.elements.rank);
    int64_t size = from.elements.sizes[axis], start = movements_below(m, size / 2 + 1);
    return sliced(m, from, axis, start, size - movements_below(m, size - start + (start == size)));
}

static moved random_permute(movements *m, moved from) {
    int64_t dims[MAX_DIMS];
    int rank = from.elements.rank;
    for (int i = 0; i < rank; i++) {
        int at = (int)movements_below(m, i + 1);
        dims[i] = dims[at];
        dims[at] = i;
    }
    return (moved){fb_recipe_permute(m->graph, from.expression, dims, (size_t)rank), permuted(&from.elements, dims)};
}

/* One change of the shape: two dimensions become one, one becomes two, a 1 comes or goes; or it is made flat. */
static moved random_reshape(movements *m, moved from) {
    int64_t sizes[MAX_DIMS + 1];
    int rank = from.elements.rank;
    memcpy(sizes, from.elements.sizes, sizeof from.elements.sizes);
    for (int64_t times = 1 + movements_below(m, 3); times > 0; times--) {
        int at = rank ? (int)movements_below(m, rank) : 0;
        int64_t way = movements_below(m, 5);
        if (way == 0 && rank >= 2 && at + 1 < rank) { /* merge */
            sizes[at] *= sizes[at + 1];
            memmove(&sizes[at + 1], &sizes[at + 2], (size_t)(rank-- - at - 2) * sizeof *sizes);
        } else if (way <= 2 && rank && rank < MAX_RANK) { /* split */
            int64_t factor = 1 + movements_below(m, sizes[at] + 1);
            if (sizes[at] % factor) continue;
            memmove(&sizes[at + 1], &sizes[at], (size_t)(rank++ - at) * sizeof *sizes);
            sizes[at] = factor;
            sizes[at + 1] /= factor;
        } else if (way == 3 && rank < MAX_RANK) { /* a 1 comes */
            memmove(&sizes[at + 1], &sizes[at], (size_t)(rank++ - at) * sizeof *sizes);
            sizes[at] = 1;
        } else if (way == 4 && rank && sizes[at] == 1) { /* a 1 goes */
            memmove(&sizes[at], &sizes[at + 1], (size_t)(rank-- - at - 1) * sizeof *sizes);
        } else if (movements_below(m, 8) == 0) {
            sizes[0] = element_count(&from.elements);
            rank = 1;
        }
    }
    return (moved){fb_recipe_reshape(m->graph, from.expression, sizes, (size_t)rank),
                   reshaped(&m->arena, &from.elements, rank, sizes)};
}

static moved joined(movements *m, int axis, const moved *parts, size_t count) {
    fb_value expressions[8];
    value elements[8];
    for (size_t i = 0; i < count; i++) {
        expressions[i] = parts[i].expression;
        elements[i] = parts[i].elements;
    }
    return (moved){fb_recipe_concat(m->graph, axis, expressions, count), concatenate(&m->arena, elements, count, axis)};
}

/* With fillers, new sources, parts of itself, other tensors that happen to fit; or cut in two and put together turned round. */
static moved random_concat(movements *m, moved from) {
    if (from.elements.rank == 0) return from;
    int axis = (int)movements_below(m, from.elements.rank);
    int64_t sizes[MAX_DIMS], size = from.elements.sizes[axis], cut = movements_below(m, size + 1);
    memcpy(sizes, from.elements.sizes, sizeof sizes);
    if (movements_below(m, 3) == 0) {
        return joined(m, axis, (moved[]){sliced(m, from, axis, cut, size), sliced(m, from, axis, 0, cut)}, 2);
    }
    moved parts[4] = {from};
    size_t count = 1;
    for (int64_t times = movements_below(m, 4); times > 0; times--) {
        sizes[axis] = movements_below(m, 4) + (movements_below(m, 4) != 0);
        int64_t way = movements_below(m, 4);
        moved other = pick(m);
        bool fits = other.elements.rank == from.elements.rank;
        for (int i = 0; fits && i < from.elements.rank; i++) fits = i == axis || other.elements.sizes[i] == sizes[i];
        if (way == 0) other = new_filler(m, from.elements.rank, sizes);
        else if (way == 1 && m->count < MAX_MOVED - 8) other = new_source(m, from.elements.rank, sizes);
        else if (way == 2) other = sliced(m, from, axis, cut, size);
        else if (!fits) continue;
        parts[count++] = other;
    }
    size_t place = (size_t)movements_below(m, (int64_t)count);
    parts[0] = parts[place];
    parts[place] = from;
    return joined(m, axis, parts, count);
}

static moved random_expression(movements *m) {
    moved made = pick(m);
    for (int64_t steps = 2 + movements_below(m, 6); steps > 0; steps--) {
        int64_t way = movements_below(m, 10);
        if (way == 0) made = random_slice(m, made);
        else if (way <= 2) made = random_permute(m, made);
        else if (way <= 4) made = random_reshape(m, made);
        else if (element_count(&made.elements) < MAX_ELEMENTS) made = random_concat(m, made);
    }
    return made;
}

void movements_make(movements *m, uint64_t seed) {
    *m = (movements){.graph = fb_graph_new(), .random = {seed}};
    int64_t sizes[MAX_RANK];
    for (int64_t sources = 1 + movements_below(m, 3); sources > 0; sources--) {
        int rank = (int)movements_below(m, 4);
        for (int i = 0; i < rank; i++) sizes[i] = movements_below(m, 40) ? 1 + movements_below(m, 6) : 0;
        new_source(m, rank, sizes);
    }
    for (int64_t tensors = 1 + movements_below(m, 4); tensors > 0; tensors--) {
        char name[32];
        moved made = random_expression(m);
        snprintf(name, sizeof name, "made%zu", m->count);
        keep(m, put_recipe(m->graph, name, FB_INT64, made.expression), made.elements, false);
    }
}

void movements_free(movements *m) {
    fb_graph_free(m->graph);
    fb_arena_free(&m->arena);
}

fb_status evaluate_whole(const fb_graph *graph, fb_value expression, fb_dtype dtype, const fb_blobs *blobs,
                         unsigned char **bytes, size_t *size, fb_error *error) {
    fb_evaluation *evaluation = NULL;
    fb_status status = fb_evaluation_of(graph, expression, dtype, blobs, &evaluation, error);
    if (!status) status = evaluated_bytes(evaluation, bytes, size, error);
    fb_evaluation_free(evaluation);
    return status;
}

int64_t *moved_numbers(const fb_graph *graph, fb_value expression, size_t expected) {
    unsigned char *bytes = NULL;
    size_t size = 0;
    fb_error error = {0};
    fb_status status = evaluate_whole(graph, expression, FB_INT64, NULL, &bytes, &size, &error);
    ck_assert_msg(status == FB_OK, "%s: %s", error.code, error.message);
    ck_assert_uint_eq(size, expected * sizeof(int64_t));
    return (int64_t *)(void *)bytes;
}

fb_value join_pieces(fb_graph *graph, const fb_pieces *pieces, const int64_t *sizes, int rank) {
    const fb_piece **all = calloc(pieces->count + 1, sizeof *all);
    for (size_t i = 0; i < pieces->count; i++) all[i] = &pieces->items[i];
    fb_value joined = fb_pieces_join(graph, all, pieces->count, sizes, rank);
    free(all);
    return joined;
}
