#include "tests/unit/computations.h"

#include "tests/unit/checks.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/build.h"
#include "tests/unit/numbers.h"

#define MAX_RANK 5
#define MAX_ELEMENTS 3000
#define EXACT 0x1p50 /* integers up to here can be added in any order */

static size_t below(computations *c, size_t limit) {
    return random_below(&c->random, limit);
}

static const fb_dtype dtypes[] = {FB_FLOAT32, FB_FLOAT64, FB_FLOAT16, FB_BFLOAT16};

static fb_dtype any_dtype(computations *c) {
    return dtypes[below(c, 4)];
}

/* ---- numbers ------------------------------------------------------------------------------------------------------------- */

static double any_number(computations *c) {
    static const double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1, -1, 0x1p-149, -0x1p-24, 65504, 0x1.8p-133};
    if (below(c, 12) == 0) return special[below(c, sizeof special / sizeof *special)];
    double size = ldexp(1 + (double)below(c, 1 << 24) * 0x1p-24, (int)below(c, 12) - 6);
    return below(c, 2) ? size : -size;
}

/* What a tensor of that dtype holds of them. */
static void round_numbers(fb_dtype dtype, computed *is) {
    fb_buffer bytes = {0};
    size_t count = (size_t)element_count(&is->numbers);
    encode_numbers(dtype, is->numbers.data, count, &bytes);
    decode_numbers(dtype, (const unsigned char *)bytes.data, count, is->numbers.data);
    fb_buffer_free(&bytes);
    if (dtype == FB_FLOAT16 && is->bound > 2048) is->bound = 0;
    if (is->bound > 0x1p20) is->bound = 0;
}

static computed keep(computations *c, fb_tensor tensor, computed is, bool is_source) {
    if (c->count == MAX_COMPUTED) abort();
    is.expression = fb_recipe_tensor(c->graph, tensor);
    c->tensors[c->count++] = (computed_tensor){tensor, is, is_source};
    return is;
}

static computed new_source(computations *c, int rank, const int64_t *sizes, bool is_integral) {
    char name[32];
    snprintf(name, sizeof name, "source%zu", c->count);
    fb_dtype dtype = any_dtype(c);
    computed is = {.numbers = tensor_value(&c->arena, rank, sizes), .bound = is_integral ? 3 : 0};
    size_t count = (size_t)element_count(&is.numbers);
    for (size_t i = 0; i < count; i++) is.numbers.data[i] = is_integral ? (double)below(c, 7) - 3 : any_number(c);
    round_numbers(dtype, &is);
    fb_buffer bytes = {0};
    encode_numbers(dtype, is.numbers.data, count, &bytes);
    fb_tensor tensor = put_tensor(c->graph, name, dtype, sizes, rank, bytes.data ? bytes.data : "", bytes.size);
    fb_buffer_free(&bytes);
    return keep(c, tensor, is, true);
}

static computed new_full(computations *c, int rank, const int64_t *sizes) {
    computed is = {.numbers = tensor_value(&c->arena, rank, sizes)};
    double number = below(c, 2) ? (double)below(c, 9) - 4 : any_number(c);
    for (int64_t i = 0, count = element_count(&is.numbers); i < count; i++) is.numbers.data[i] = number;
    is.bound = number == rint(number) && fabs(number) < 10 ? fabs(number) + 1 : 0;
    is.expression = fb_recipe_full(c->graph, sizes, (size_t)rank, fb_make_float(c->graph, number));
    return is;
}

static computed pick(computations *c) {
    return c->tensors[below(c, c->count)].is;
}

/* ---- what computes ------------------------------------------------------------------------------------------------------ */

static computed random_unary(computations *c, computed a) {
    size_t way = below(c, 7);
    fb_graph *g = c->graph;
    if (way == 0) return (computed){fb_recipe_neg(g, a.expression), map_unary(&c->arena, &a.numbers, negative_of), a.bound};
    if (way == 1) return (computed){fb_recipe_sqrt(g, a.expression), map_unary(&c->arena, &a.numbers, sqrt), 0};
    if (way == 2) return (computed){fb_recipe_round(g, a.expression), map_unary(&c->arena, &a.numbers, rint), a.bound};
    if (way == 3) return (computed){fb_recipe_exp(g, a.expression), map_unary(&c->arena, &a.numbers, exp), 0};
    if (way == 4) return (computed){fb_recipe_sin(g, a.expression), map_unary(&c->arena, &a.numbers, sin), 0};
    if (way == 5) return (computed){fb_recipe_cos(g, a.expression), map_unary(&c->arena, &a.numbers, cos), 0};
    return (computed){fb_recipe_rsqrt(g, a.expression), map_unary(&c->arena, &a.numbers, inverse_root_of), 0};
}

static computed random_absmax(computations *c, computed a) {
    int64_t dims[MAX_DIMS];
    int count = 0;
    for (int i = 0; i < a.numbers.rank; i++) {
        if (a.numbers.sizes[i] && below(c, 2)) dims[count++] = i;
    }
    value plain = copy_of(&c->arena, &a.numbers);
    return (computed){fb_recipe_absmax(c->graph, a.expression, dims, (size_t)count), absmax(&c->arena, &plain, dims, count),
                      a.bound};
}

static computed random_index_select(computations *c, computed a) {
    if (a.numbers.rank == 0) return a;
    int axis = (int)below(c, (size_t)a.numbers.rank), rank = 1 + (int)below(c, 2);
    int64_t size = a.numbers.sizes[axis], sizes[] = {size ? (int64_t)below(c, 9) : 0, 1 + (int64_t)below(c, 2)}, wide[16];
    int32_t narrow[16];
    value index = tensor_value(&c->arena, rank, sizes);
    for (int64_t i = 0, count = element_count(&index); i < count; i++) {
        bool goes_on = i && index.data[i - 1] >= 0 && index.data[i - 1] + 1 < (double)size && below(c, 2);
        index.data[i] = goes_on ? index.data[i - 1] + 1 : (double)below(c, (size_t)size) - (below(c, 4) ? 0 : (double)size);
        narrow[i] = (int32_t)(wide[i] = (int64_t)index.data[i]);
    }
    char name[32];
    bool is_wide = below(c, 2);
    snprintf(name, sizeof name, "index%zu", c->indices++);
    fb_tensor tensor = put_tensor(c->graph, name, is_wide ? FB_INT64 : FB_INT32, sizes, rank,
                                  is_wide ? (void *)wide : (void *)narrow, (size_t)element_count(&index) * (is_wide ? 8 : 4));
    return (computed){fb_recipe_index_select(c->graph, a.expression, axis, tensor),
                      index_select(&c->arena, &a.numbers, axis, &index), a.bound};
}

/* Something that broadcasts with it: dimensions left out, made 1, or made more where they are 1. */
static computed partner(computations *c, const computed *a) {
    int64_t sizes[MAX_DIMS];
    int rank = 0;
    size_t way = below(c, 6), wider = (size_t)element_count(&a->numbers) < MAX_ELEMENTS / 8;
    if (way == 0) return *a;
    for (size_t tries = 0; way == 1 && tries < 4; tries++) {
        computed other = pick(c);
        if (is_same_shape(&other.numbers, &a->numbers)) return other;
    }
    int first = below(c, 3) == 0 ? (int)below(c, (size_t)a->numbers.rank + 1) : 0;
    if (first == 0 && a->numbers.rank < MAX_RANK && wider && below(c, 8) == 0) sizes[rank++] = 1 + (int64_t)below(c, 3);
    for (int i = first; i < a->numbers.rank; i++) {
        int64_t size = a->numbers.sizes[i];
        if (size == 1 && wider && below(c, 3) == 0) size = 1 + (int64_t)below(c, 4);
        sizes[rank++] = below(c, 3) == 0 ? 1 : size;
    }
    if (below(c, 6) == 0 || c->count > MAX_COMPUTED - 12) return new_full(c, rank, sizes);
    return new_source(c, rank, sizes, a->bound != 0);
}

static computed random_binary(computations *c, computed a) {
    computed b = partner(c, &a);
    fb_graph *g = c->graph;
    if (below(c, 2)) {
        computed kept = a;
        a = b;
        b = kept;
    }
    bool is_exact = a.bound != 0 && b.bound != 0;
    fb_value x = a.expression, y = b.expression;
    const value *m = &a.numbers, *n = &b.numbers;
    double larger = a.bound > b.bound ? a.bound : b.bound;
    switch (below(c, 6)) {
    case 0: return (computed){fb_recipe_add(g, x, y), map_binary(&c->arena, m, n, sum_of), is_exact ? a.bound + b.bound : 0};
    case 1:
        return (computed){fb_recipe_sub(g, x, y), map_binary(&c->arena, m, n, difference_of), is_exact ? a.bound + b.bound : 0};
    case 2: return (computed){fb_recipe_mul(g, x, y), map_binary(&c->arena, m, n, product_of), a.bound * b.bound};
    case 3: return (computed){fb_recipe_maximum(g, x, y), map_binary(&c->arena, m, n, maximum_of), is_exact ? larger : 0};
    case 4: return (computed){fb_recipe_minimum(g, x, y), map_binary(&c->arena, m, n, minimum_of), is_exact ? larger : 0};
    default: return (computed){fb_recipe_div(g, x, y), map_binary(&c->arena, m, n, quotient_of), 0};
    }
}

/* numpy.matmul, one sum after another. */
static value product(computations *c, const value *a, const value *b, int rank, const int64_t *sizes) {
    value result = tensor_value(&c->arena, rank, sizes);
    int64_t inner = a->sizes[a->rank - 1], place[MAX_DIMS];
    int batch = rank - (a->rank > 1) - (b->rank > 1);
    for (int64_t i = 0, count = element_count(&result); i < count; i++) {
        int64_t rest = i, at_a = 0, at_b = 0;
        for (int d = rank - 1; d >= 0; d--) {
            place[d] = rest % sizes[d];
            rest /= sizes[d];
        }
        for (int d = 0; d < a->rank - 2; d++) at_a += a->strides[d] * (a->sizes[d] == 1 ? 0 : place[batch - (a->rank - 2) + d]);
        for (int d = 0; d < b->rank - 2; d++) at_b += b->strides[d] * (b->sizes[d] == 1 ? 0 : place[batch - (b->rank - 2) + d]);
        if (a->rank > 1) at_a += a->strides[a->rank - 2] * place[batch];
        if (b->rank > 1) at_b += b->strides[b->rank - 1] * place[rank - 1];
        int64_t step_a = a->strides[a->rank - 1], step_b = b->strides[b->rank > 1 ? b->rank - 2 : 0];
        for (int64_t k = 0; k < inner; k++) result.data[i] += a->data[at_a + k * step_a] * b->data[at_b + k * step_b];
    }
    return result;
}

/* With a new source on the right or on the left; only of integers. */
static computed random_matmul(computations *c, computed a) {
    int rank = a.numbers.rank;
    bool is_left = below(c, 3) != 0, is_vector = below(c, 4) == 0;
    if (a.bound == 0 || rank == 0 || c->count > MAX_COMPUTED - 12) return a;
    const int64_t *given = a.numbers.sizes;
    int64_t inner = is_left ? given[rank - 1] : given[rank > 1 ? rank - 2 : 0], outer = 1 + (int64_t)below(c, 9);
    int64_t sizes[MAX_DIMS], result[MAX_DIMS];
    if (a.bound * 3 * (double)(inner + 1) > EXACT || element_count(&a.numbers) * outer > 4 * MAX_ELEMENTS) return a;
    int other = 0, made = 0;
    for (int i = 0; i < rank - 2; i++) { /* the same batch, some of it 1, or none */
        result[made++] = given[i];
        if (!is_vector) sizes[other++] = below(c, 3) ? given[i] : 1;
    }
    if (below(c, 3) == 0) other = 0;
    if (is_left || !is_vector) sizes[other++] = is_left ? inner : outer;
    if (!is_left || !is_vector) sizes[other++] = is_left ? outer : inner;
    if (is_vector && !is_left) sizes[0] = inner, other = 1;
    if (is_left ? rank > 1 : !is_vector) result[made++] = is_left ? given[rank - 2] : outer;
    if (is_left ? !is_vector : rank > 1) result[made++] = is_left ? outer : given[rank - 1];
    computed b = new_source(c, other, sizes, true);
    if (below(c, 3) == 0)
        b = (computed){fb_recipe_neg(c->graph, b.expression), map_unary(&c->arena, &b.numbers, negative_of), 3};
    value plain = copy_of(&c->arena, &a.numbers), plain_b = copy_of(&c->arena, &b.numbers);
    fb_value expression = is_left ? fb_recipe_matmul(c->graph, a.expression, b.expression)
                                  : fb_recipe_matmul(c->graph, b.expression, a.expression);
    value numbers = is_left ? product(c, &plain, &plain_b, made, result) : product(c, &plain_b, &plain, made, result);
    return (computed){expression, numbers, a.bound * 3 * (double)(inner + 1)};
}

/* ---- what moves --------------------------------------------------------------------------------------------------------- */

static computed random_slice(computations *c, computed a) {
    if (a.numbers.rank == 0) return a;
    int axis = (int)below(c, (size_t)a.numbers.rank);
    int64_t size = a.numbers.sizes[axis], start = (int64_t)below(c, (size_t)size / 2 + 1);
    int64_t stop = size - (int64_t)below(c, (size_t)(size - start) / 2 + 1);
    return (computed){fb_recipe_slice(c->graph, a.expression, axis, start, stop), slice_of(&a.numbers, axis, start, stop, 1),
                      a.bound};
}

static computed random_permute(computations *c, computed a) {
    int64_t dims[MAX_DIMS];
    for (int i = 0; i < a.numbers.rank; i++) {
        size_t at = below(c, (size_t)i + 1);
        dims[i] = dims[at];
        dims[at] = i;
    }
    return (computed){fb_recipe_permute(c->graph, a.expression, dims, (size_t)a.numbers.rank), permuted(&a.numbers, dims),
                      a.bound};
}

/* The elements dealt out anew over up to four dimensions. */
static computed random_reshape(computations *c, computed a) {
    int64_t sizes[MAX_DIMS], left = element_count(&a.numbers);
    int rank = 0;
    while (rank < 3 && below(c, 4)) {
        int64_t factor = 1 + (int64_t)below(c, 7);
        if (left % factor) continue;
        sizes[rank++] = factor;
        left /= factor;
    }
    if (left != 1 || below(c, 4) == 0) sizes[rank++] = left;
    return (computed){fb_recipe_reshape(c->graph, a.expression, sizes, (size_t)rank),
                      reshaped(&c->arena, &a.numbers, rank, sizes), a.bound};
}

static computed random_concat(computations *c, computed a) {
    if (a.numbers.rank == 0 || c->count > MAX_COMPUTED - 12) return a;
    int axis = (int)below(c, (size_t)a.numbers.rank);
    int64_t sizes[MAX_DIMS];
    memcpy(sizes, a.numbers.sizes, sizeof sizes);
    sizes[axis] = (int64_t)below(c, 4);
    computed parts[3] = {a,
                         below(c, 2) ? new_source(c, a.numbers.rank, sizes, a.bound != 0) : new_full(c, a.numbers.rank, sizes),
                         random_slice(c, a)};
    size_t count = 2;
    if (below(c, 2)) {
        computed kept = parts[0];
        parts[0] = parts[1];
        parts[1] = kept;
    }
    bool fits = true;
    for (int i = 0; i < a.numbers.rank; i++) fits &= i == axis || parts[2].numbers.sizes[i] == a.numbers.sizes[i];
    count += fits;
    fb_value expressions[3];
    value numbers[3];
    computed is = {.bound = a.bound};
    for (size_t i = 0; i < count; i++) {
        expressions[i] = parts[i].expression;
        numbers[i] = parts[i].numbers;
        if (parts[i].bound == 0) is.bound = 0;
        else if (is.bound != 0 && is.bound < parts[i].bound) is.bound = parts[i].bound;
    }
    is.expression = fb_recipe_concat(c->graph, axis, expressions, count);
    fb_recipe_type type;
    if (fb_recipe_type_of(c->graph, is.expression, &type, NULL)) return a; /* what moves cannot be of two dtypes */
    is.numbers = concatenate(&c->arena, numbers, count, axis);
    return is;
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------ */

static computed random_expression(computations *c) {
    computed is = pick(c);
    for (size_t steps = 1 + below(c, 8); steps > 0; steps--) {
        size_t way = below(c, 14);
        if (is.bound > 0x1p40) is.bound = 0;
        if (way < 3 && element_count(&is.numbers) < MAX_ELEMENTS) is = random_binary(c, is);
        else if (way < 4) is = random_unary(c, is);
        else if (way < 6) is = random_matmul(c, is);
        else if (way < 7) is = random_slice(c, is);
        else if (way < 8) is = random_permute(c, is);
        else if (way < 10) is = random_reshape(c, is);
        else if (way < 11) is = random_absmax(c, is);
        else if (way < 12 && element_count(&is.numbers) < MAX_ELEMENTS) is = random_index_select(c, is);
        else if (element_count(&is.numbers) < MAX_ELEMENTS) is = random_concat(c, is);
    }
    return is;
}

void computations_make(computations *c, uint64_t seed) {
    *c = (computations){.graph = fb_graph_new(), .random = {seed}};
    int64_t sizes[MAX_RANK];
    for (size_t sources = 2 + below(c, 4); sources > 0; sources--) {
        int rank = (int)below(c, 5);
        for (int i = 0; i < rank; i++) sizes[i] = below(c, 40) ? 1 + (int64_t)below(c, 7) : 0;
        new_source(c, rank, sizes, below(c, 2));
    }
    for (size_t tensors = 1 + below(c, 6); tensors > 0; tensors--) {
        computed is = random_expression(c);
        fb_recipe_type type;
        fb_error error = {0};
        char name[32];
        ck_assert_msg(fb_recipe_type_of(c->graph, is.expression, &type, &error) == FB_OK, "%s: %s", error.pointer,
                      error.message);
        fb_dtype dtype = type.is_movement && type.dtype ? type.dtype : any_dtype(c);
        if (tensors == 1 && !type.is_movement && below(c, 3) == 0) dtype = FB_INT8; /* with which nothing computes */
        snprintf(name, sizeof name, "made%zu", c->count);
        fb_tensor tensor = put_tensor(c->graph, name, dtype, type.sizes, type.rank, NULL, 0);
        fb_tensor_row_at(c->graph, tensor)->recipe = is.expression;
        is.numbers = copy_of(&c->arena, &is.numbers);
        round_numbers(dtype, &is);
        keep(c, tensor, is, false);
        if (c->count > MAX_COMPUTED - 14) return;
    }
}

void computations_free(computations *c) {
    fb_graph_free(c->graph);
    fb_arena_free(&c->arena);
}

void computations_use_blob(computations *c, memory_blobs *blobs) {
    fb_buffer file = {0};
    for (size_t i = 0; i < c->count; i++) {
        fb_tensor_row *row = fb_tensor_row_at(c->graph, c->tensors[i].tensor);
        if (!c->tensors[i].is_source) continue;
        for (size_t gap = below(c, 9); gap > 0; gap--) fb_buffer_char(&file, (char)below(c, 256));
        row->offset = (int64_t)file.size;
        decode_base64(fb_text(c->graph, row->data), &file);
        row->data = (fb_symbol){0};
    }
    const char *digest = memory_blobs_put(blobs, file.data ? file.data : "", file.size);
    for (size_t i = 0; i < c->count; i++) {
        if (c->tensors[i].is_source) fb_tensor_row_at(c->graph, c->tensors[i].tensor)->blob = fb_intern(c->graph, digest);
    }
    fb_buffer_free(&file);
}
