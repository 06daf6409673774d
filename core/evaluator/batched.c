/* torch.vmap as torch.export writes it: values that each represent a batch at one or several levels.
 *
 *     level = _vmap_increment_nesting(size, …)     x' = _add_batch_dim(x, 0, level)     … x' is one element of x
 *     y = _remove_batch_dim(y', level, size, 0)    _vmap_decrement_nesting()
 *
 * A batched array has, behind the dimensions that it says it has, one for each level up to its highest: of level 3 (…, n3, n2,
 * n1), size 1 where it is not batched at a level. So operators on single elements, element by element, broadcast batches as
 * they are; this is what masks of attention are made of, and all that is evaluated. */
#include <string.h>

#include "core/evaluator/internal.h"

/* An argument by position, to be dropped. */
static bool get(fb_kernel_call *call, uint32_t index, fb_object *out) {
    fb_value value = fb_node_arg(call->graph, call->node, index);
    *out = (fb_object){.kind = FB_OBJECT_NONE};
    if (!call->status && value.id) call->status = fb_evaluate_value(call->evaluator, value, out);
    return !call->status;
}

static int64_t get_int(fb_kernel_call *call, uint32_t index) {
    fb_object object;
    int64_t number = -1;
    if (get(call, index, &object) && !fb_object_int(&object, &number)) fb_kernel_unsupported(call, "an argument is not an int");
    fb_object_drop(&object);
    return number;
}

/* An array and the level at hand, which must be the innermost. */
static fb_array *get_array(fb_kernel_call *call, int64_t level) {
    fb_object object;
    if (level < 1 || level != call->evaluator->levels) fb_kernel_unsupported(call, "its level is not the innermost");
    if (get(call, 0, &object) && object.kind == FB_OBJECT_ARRAY) return object.array;
    fb_object_drop(&object);
    fb_kernel_unsupported(call, "it is given no tensor");
    return NULL;
}

static fb_status kernel_add_batch(fb_kernel_call *call, fb_object *result) {
    int64_t dim = get_int(call, 1), level = get_int(call, 2);
    fb_array *array = get_array(call, level);
    if (array && (array->rank != 1 || array->levels || dim != 0)) fb_kernel_unsupported(call, "its batch is not a vector");
    fb_array *view = array ? fb_make_view(call, array, 1) : NULL;
    for (int64_t i = 1; i < level && view; i++)
        if (!fb_array_insert_dim(view, view->rank)) fb_kernel_unsupported(call, "it has too many dimensions");
    if (view) view->levels = 1U << (level - 1);
    fb_array_drop(array);
    return fb_return_array(call, view, result);
}

/* The hidden dimension of the level becomes the first of the array's own. */
static fb_status kernel_remove_batch(fb_kernel_call *call, fb_object *result) {
    int64_t level = get_int(call, 1), size = get_int(call, 2), dim = get_int(call, 3);
    fb_array *array = get_array(call, level);
    if (dim != 0) fb_kernel_unsupported(call, "the batch does not become the first dimension");
    fb_array *view = array ? fb_make_view(call, array, array->rank) : NULL;
    int hidden = array ? fb_array_hidden_rank(array) : 0, at = array ? array->rank - hidden : 0;
    int64_t stride = 0;
    if (view && hidden == level) { /* batched at this level: its dimension moves to the front */
        size = view->sizes[at];
        stride = view->strides[at];
        fb_array_remove_dim(view, at);
    }
    if (view && !fb_array_insert_dim(view, 0)) fb_kernel_unsupported(call, "it has too many dimensions");
    if (view && !call->status) {
        view->sizes[0] = size;
        view->strides[0] = stride;
        view->levels &= ~(1U << (level - 1));
        /* Levels below may be batched less high: the dimensions of size 1 between are left out. */
        for (int left = fb_array_hidden_rank(view), there = hidden == level ? (int)level - 1 : hidden; there > left; there--)
            fb_array_remove_dim(view, view->rank - there);
    }
    fb_array_drop(array);
    return fb_return_array(call, view, result);
}

static fb_status kernel_enter_level(fb_kernel_call *call, fb_object *result) {
    if (call->evaluator->levels == FB_MAX_RANK / 2) return fb_kernel_unsupported(call, "it is nested too deep");
    *result = (fb_object){.kind = FB_OBJECT_INT, .integer = ++call->evaluator->levels};
    return FB_OK;
}

static fb_status kernel_exit_level(fb_kernel_call *call, fb_object *result) {
    if (!call->evaluator->levels) return fb_kernel_unsupported(call, "no level is open");
    *result = (fb_object){.kind = FB_OBJECT_INT, .integer = --call->evaluator->levels};
    return FB_OK;
}

static fb_status kernel_load_nothing(fb_kernel_call *call, fb_object *result) {
    (void)result;
    return call->status;
}

/* ---- flat_apply of ModIndex: x[i, j …], where each index is one (batched) element --------------------------------------- */

enum { FIRST = 4, MOST = FB_WALK_ARRAYS - 1 }; /* of the indices among the arguments */

static bool take(fb_kernel_call *call, const fb_array *x, fb_array *const *indices, int count, const fb_array *out) {
    fb_walk walk;
    size_t element = fb_held_size(x->held);
    for (fb_walk_begin(&walk, out, indices[0], count > 1 ? indices[1] : NULL, count > 2 ? indices[2] : NULL, NULL);
         fb_walk_more(&walk); fb_walk_next(&walk)) {
        for (int64_t i = 0; i < walk.count; i++) {
            int64_t from = 0;
            for (int k = 0; k < count; k++) {
                int64_t at = ((int64_t *)walk.data[k + 1])[i * walk.strides[k + 1]];
                if (at < 0) at += x->sizes[k];
                if (at < 0 || at >= x->sizes[k]) return fb_kernel_fail(call, "an index is out of its size") == FB_OK;
                from += at * x->strides[k];
            }
            memcpy((char *)walk.data[0] + (size_t)(i * walk.strides[0]) * element,
                   (char *)fb_array_data(x) + (size_t)from * element, element);
        }
    }
    return true;
}

static fb_status kernel_apply_index(fb_kernel_call *call, fb_object *result) {
    const fb_value_row *args = fb_value_at(call->graph, fb_node_at(call->graph, call->node)->args);
    int count = (int)args->count - FIRST, rank = 0;
    int64_t sizes[FB_MAX_RANK];
    fb_object x, given[MOST] = {0};
    fb_array *indices[MOST] = {0}, *out = NULL;
    if (count < 1 || count > MOST) return fb_kernel_unsupported(call, "it has %d indices", count);
    if (fb_op_effects(call->graph, call->node).is_unknown) return fb_kernel_unsupported(call, "what it applies is not known");
    get(call, 3, &x);
    unsigned levels = 0;
    bool fits = x.kind == FB_OBJECT_ARRAY && x.array->rank == count && !x.array->levels;
    for (int i = 0; i < count && fits && get(call, (uint32_t)(FIRST + i), &given[i]); i++) {
        const fb_array *index = given[i].kind == FB_OBJECT_ARRAY ? given[i].array : NULL;
        fits = index && index->held == FB_HELD_INT && index->rank == fb_array_hidden_rank(index) &&
               fb_array_join_sizes(index, &rank, sizes);
        levels |= fits ? index->levels : 0;
    }
    if (!fits) fb_kernel_unsupported(call, "it does not index each dimension by one element");
    for (int i = 0; i < count && !call->status; i++)
        call->status = fb_array_broadcast(given[i].array, rank, sizes, &indices[i], call->error);
    if (!call->status) out = fb_make_array(call, x.array->dtype, rank, sizes);
    if (out && take(call, x.array, indices, count, out)) out->levels = levels;
    for (int i = 0; i < count; i++) {
        fb_array_drop(indices[i]);
        fb_object_drop(&given[i]);
    }
    fb_object_drop(&x);
    return fb_return_array(call, out, result);
}

/* ---- operators ----------------------------------------------------------------------------------------------------------- */

/* Does the result hold an element for each of the operand's? */
static bool keeps_batch(fb_op op) {
    return !(fb_op_facts_of(op)->flags & FB_FACT_ASSERTS) && !fb_op_makes_anew(op);
}

static bool is_each(fb_op op) {
    return !keeps_batch(op) || fb_op_maps_elements(op);
}

bool fb_batches_allow(fb_kernel_call *call, unsigned *levels) {
    const fb_graph *graph = call->graph;
    bool is_single = true;
    *levels = 0;
    for (uint32_t e = fb_input_first(graph, call->node); e; e = fb_input_next(graph, e)) {
        const fb_object *object = &call->evaluator->values[fb_edge_input(graph, e).id];
        if (object->kind != FB_OBJECT_ARRAY) continue;
        *levels |= object->array->levels;
        is_single = is_single && object->array->rank == fb_array_hidden_rank(object->array);
    }
    if (!*levels) return true;
    bool is_in_place = fb_node_op(graph, call->node) & FB_OP_IN_PLACE;
    bool is_known = call->op == FB_OP_EXPAND || (is_each(call->op) && is_single);
    if (!is_known || is_in_place) return fb_kernel_unsupported(call, "of a batch of torch.vmap it is not known") == FB_OK;
    if (!keeps_batch(call->op)) *levels = 0;
    return true;
}

const fb_kernel_row fb_kernels_batched[] = {
    FB_KERNEL_BY_POSITION(LOAD_DECOMPOSITIONS, load_nothing),
    FB_KERNEL_BY_POSITION(ENTER_VMAP_LEVEL, enter_level),
    FB_KERNEL_BY_POSITION(EXIT_VMAP_LEVEL, exit_level),
    FB_KERNEL_BY_POSITION(ADD_BATCH_DIM, add_batch),
    FB_KERNEL_BY_POSITION(REMOVE_BATCH_DIM, remove_batch),
    FB_KERNEL_BY_POSITION(FLAT_APPLY, apply_index),
    FB_KERNELS_END,
};
