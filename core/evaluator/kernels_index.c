/* Indexing: x[…] with all that Python and torch allow in the brackets, read and written; aten.index and index_put. */
#include <string.h>

#include "core/evaluator/internal.h"

#define STEPS_OF_AN_INDEX 5
#define STEPS_OF_A_TARGET 100 /* whose elements are assigned by themselves */

/* ---- basic indices give a view ------------------------------------------------------------------------------------------- */

/* An index split into a view, and the tensors (or none) that then index its dimensions. */
typedef struct indexing {
    fb_array *view;
    fb_array *tensors[FB_MAX_RANK]; /* by dimension of the view; owned; bool ones cover as many dimensions as they have */
    bool has_tensors;
} indexing;

static void end_indexing(indexing *ix) {
    fb_array_drop(ix->view);
    for (int i = 0; i < FB_MAX_RANK; i++) fb_array_drop(ix->tensors[i]);
}

static bool select_one(fb_kernel_call *call, fb_array *view, int dim, int64_t index) {
    int64_t size = view->sizes[dim];
    if (index < -size || index >= size) {
        fb_kernel_fail(call, "index %lld is out of a dimension of size %lld", (long long)index, (long long)size);
        return false;
    }
    view->offset += (index < 0 ? index + size : index) * view->strides[dim];
    fb_array_remove_dim(view, dim);
    return true;
}

static bool slice_dim(fb_kernel_call *call, fb_array *view, int dim, const fb_items *slice) {
    int64_t bounds[3] = {0, INT64_MAX, 1};
    for (int i = 0; i < 3; i++) {
        const fb_object *bound = &slice->objects[i];
        if (bound->kind != FB_OBJECT_NONE && !fb_object_int(bound, &bounds[i]))
            return fb_kernel_unsupported(call, "a bound of a slice is not an int") == FB_OK;
    }
    if (bounds[2] <= 0) return fb_kernel_fail(call, "the step of a slice must be positive") == FB_OK;
    fb_array_slice(view, dim, bounds[0], bounds[1], bounds[2]);
    return true;
}

/* A list of ints (or bools) in brackets is a tensor. */
static fb_array *tensor_of_list(fb_kernel_call *call, const fb_object *list) {
    fb_array *array = fb_make_array_of(call, list, FB_DTYPE_UNKNOWN);
    if (!array || !fb_dtype_is_floating(array->dtype) || fb_array_count(array)) return array;
    fb_array *none = fb_make_cast(call, array, FB_INT64); /* [] */
    fb_array_drop(array);
    return none;
}

/* Dimensions that an item of an index takes. */
static int taken_by(const fb_object *item) {
    switch (item->kind) {
    case FB_OBJECT_NONE:
    case FB_OBJECT_ELLIPSIS:
    case FB_OBJECT_BOOL: return 0;
    case FB_OBJECT_ARRAY: return item->array->dtype == FB_BOOL ? item->array->rank : 1;
    default: return 1;
    }
}

static bool put_tensor(fb_kernel_call *call, indexing *ix, int dim, fb_array *tensor) {
    if (!tensor) return false;
    bool is_index = tensor->dtype == FB_INT64 || tensor->dtype == FB_INT32 || tensor->dtype == FB_BOOL;
    if (tensor->dtype == FB_UINT8) { /* a mask, in old code */
        fb_array_drop(tensor);
        return fb_kernel_unsupported(call, "a tensor of uint8 indexes") == FB_OK;
    }
    if (!is_index || dim >= ix->view->rank) {
        if (is_index) fb_kernel_fail(call, "there are too many indices");
        else fb_kernel_fail(call, "a tensor of %s is not an index", fb_dtype_name(tensor->dtype));
        fb_array_drop(tensor);
        return false;
    }
    ix->tensors[dim] = tensor;
    ix->has_tensors = true;
    return true;
}

/* One item at dimension *dim, which moves on. */
static bool apply_item(fb_kernel_call *call, indexing *ix, const fb_object *item, int skipped, int *dim) {
    int64_t integer;
    switch (item->kind) {
    case FB_OBJECT_NONE:
        if (fb_array_insert_dim(ix->view, (*dim)++)) return true;
        return fb_kernel_unsupported(call, "a tensor gets too many dimensions") == FB_OK;
    case FB_OBJECT_ELLIPSIS: *dim += skipped; return true;
    case FB_OBJECT_INT: return *dim < ix->view->rank && select_one(call, ix->view, *dim, item->integer);
    case FB_OBJECT_SLICE: return *dim < ix->view->rank && slice_dim(call, ix->view, (*dim)++, item->items);
    case FB_OBJECT_LIST:
    case FB_OBJECT_TUPLE: return put_tensor(call, ix, (*dim)++, tensor_of_list(call, item));
    case FB_OBJECT_ARRAY:
        if (item->array->rank == 0 && item->array->held == FB_HELD_INT && fb_object_int(item, &integer))
            return *dim < ix->view->rank && select_one(call, ix->view, *dim, integer);
        if (item->array->rank == 0) return fb_kernel_unsupported(call, "a bool tensor without dimensions indexes") == FB_OK;
        if (!put_tensor(call, ix, *dim, fb_array_keep(item->array))) return false;
        *dim += taken_by(item);
        return true;
    default: return fb_kernel_unsupported(call, "an index is neither int, slice, None, ... nor tensor") == FB_OK;
    }
}

/* A list that holds more than numbers is taken for a tuple: treatSequenceAsTuple in python_variable_indexing.cpp. */
static bool is_list_of_indices(const fb_object *index) {
    if (index->kind != FB_OBJECT_LIST || index->items->count >= 32) return false;
    for (size_t i = 0; i < index->items->count; i++) {
        const fb_object *item = &index->items->objects[i];
        bool is_index = fb_object_is_sequence(item) || item->kind == FB_OBJECT_ARRAY || item->kind == FB_OBJECT_SLICE ||
                        item->kind == FB_OBJECT_ELLIPSIS || item->kind == FB_OBJECT_NONE;
        if (is_index) return true;
    }
    return false;
}

static bool begin_indexing(fb_kernel_call *call, const fb_array *array, const fb_object *index, indexing *ix) {
    *ix = (indexing){0};
    /* A list at the top is an index of its own, a tuple is several. */
    const fb_object *items = index;
    size_t count = 1;
    if (index->kind == FB_OBJECT_TUPLE || is_list_of_indices(index)) {
        items = index->items->objects;
        count = index->items->count;
    }
    int taken = 0, dim = 0;
    for (size_t i = 0; i < count; i++) taken += taken_by(&items[i]);
    ix->view = fb_make_view(call, array, array->rank);
    if (!ix->view) return false;
    if (taken > array->rank) fb_kernel_fail(call, "%d indices are too many for a tensor of %d dimensions", taken, array->rank);
    for (size_t i = 0; i < count && !call->status; i++) {
        if (!apply_item(call, ix, &items[i], array->rank - taken, &dim) && !call->status)
            fb_kernel_fail(call, "there are too many indices");
    }
    return !call->status;
}

/* ---- tensors as indices -------------------------------------------------------------------------------------------------- */

/* Where each element of the broadcast indices points: `offsets` into the view, for `sizes` of them; what is left of the view
 * are the dimensions that no tensor indexes. */
typedef struct targets {
    int64_t *offsets; /* a workspace for all of them */
    int64_t count;
    int rank; /* of the broadcast indices */
    int64_t sizes[FB_MAX_RANK];
    fb_array *rest; /* the view without the indexed dimensions */
    int position;   /* of the broadcast dimensions among the rest's, in the result */
} targets;

static void end_targets(fb_kernel_call *call, targets *t) {
    fb_free_workspace(call, t->offsets, t->count, sizeof *t->offsets);
    fb_array_drop(t->rest);
}

/* A mask becomes one tensor of positions for each of its dimensions. */
static bool expand_mask(fb_kernel_call *call, indexing *ix, int dim) {
    fb_array *mask = ix->tensors[dim];
    int64_t count = 0, total = fb_array_count(mask), found = 0;
    for (int i = 0; i < mask->rank; i++) {
        if (mask->sizes[i] == ix->view->sizes[dim + i]) continue;
        fb_kernel_fail(call, "a mask has another size than the dimension that it indexes");
        return false;
    }
    fb_kernel_takes(call, STEPS_OF_AN_INDEX * 2 * (double)total);
    for (int64_t i = 0; i < total && fb_kernel_goes_on(call, STEPS_OF_AN_INDEX); i++) count += fb_array_int(mask, i) != 0;
    ix->tensors[dim] = NULL;
    for (int d = 0; d < mask->rank; d++) ix->tensors[dim + d] = fb_make_array(call, FB_INT64, 1, &count);
    for (int64_t i = 0; i < total && fb_kernel_goes_on(call, STEPS_OF_AN_INDEX); i++) {
        if (!fb_array_int(mask, i)) continue;
        int64_t at = i;
        for (int d = mask->rank - 1; d >= 0; d--) {
            ((int64_t *)fb_array_data(ix->tensors[dim + d]))[found] = at % mask->sizes[d];
            at /= mask->sizes[d];
        }
        found++;
    }
    fb_array_drop(mask);
    return !call->status;
}

static bool join_sizes(fb_kernel_call *call, const indexing *ix, targets *t) {
    for (int d = 0; d < ix->view->rank; d++) {
        if (ix->tensors[d] && !fb_array_join_sizes(ix->tensors[d], &t->rank, t->sizes))
            return fb_kernel_fail(call, "tensors that index together do not broadcast") == FB_OK;
    }
    t->count = 1;
    for (int i = 0; i < t->rank; i++) t->count *= t->sizes[i];
    return true;
}

static bool add_offsets(fb_kernel_call *call, const indexing *ix, int dim, targets *t) {
    fb_array *wide;
    int64_t size = ix->view->sizes[dim], stride = ix->view->strides[dim], at = 0;
    call->status = fb_array_broadcast(ix->tensors[dim], t->rank, t->sizes, &wide, call->error);
    if (call->status) return false;
    fb_walk walk;
    for (fb_walk_begin(&walk, wide, NULL); fb_walk_more(&walk) && !call->status; fb_walk_next(&walk)) {
        for (int64_t i = 0; i < walk.count; i++) {
            int64_t index = ((int64_t *)walk.data[0])[i * walk.strides[0]];
            if (index < -size || index >= size) {
                fb_kernel_fail(call, "index %lld is out of a dimension of size %lld", (long long)index, (long long)size);
                break;
            }
            t->offsets[at++] += (index < 0 ? index + size : index) * stride;
        }
    }
    fb_array_drop(wide);
    return !call->status;
}

static bool find_targets(fb_kernel_call *call, indexing *ix, targets *t) {
    *t = (targets){.position = -1};
    for (int d = 0; d < ix->view->rank; d++) {
        if (ix->tensors[d] && ix->tensors[d]->dtype == FB_BOOL && !expand_mask(call, ix, d)) return false;
    }
    if (!join_sizes(call, ix, t)) return false;
    if (!fb_kernel_takes(call, STEPS_OF_AN_INDEX * (double)t->count)) return false;
    t->offsets = fb_make_workspace(call, t->count, sizeof *t->offsets);
    t->rest = fb_make_view(call, ix->view, ix->view->rank);
    if (!t->offsets || !t->rest) return false;
    for (int64_t i = 0; i < t->count && fb_work_at(fb_call_work(call), i, t->count); i++) t->offsets[i] = 0;
    int kept = 0, last = -1;
    bool are_together = true;
    for (int d = 0; d < ix->view->rank; d++) {
        if (!ix->tensors[d]) {
            t->rest->sizes[kept] = ix->view->sizes[d];
            t->rest->strides[kept++] = ix->view->strides[d];
            continue;
        }
        if (t->position < 0) t->position = kept;
        are_together &= last < 0 || last == d - 1;
        last = d;
        if (!add_offsets(call, ix, d, t)) return false;
    }
    t->rest->rank = kept;
    if (!are_together) t->position = 0;
    return true;
}

/* The result's sizes, and of a result with these strides the view of its dimensions that are the rest's. */
static bool result_sizes(fb_kernel_call *call, const targets *t, int *rank, int64_t sizes[FB_MAX_RANK]) {
    *rank = t->rest->rank + t->rank;
    if (*rank > FB_MAX_RANK) return fb_kernel_unsupported(call, "a tensor gets too many dimensions") == FB_OK;
    for (int i = 0; i < *rank; i++) {
        int at = i - t->position;
        if (at < 0) sizes[i] = t->rest->sizes[i];
        else if (at < t->rank) sizes[i] = t->sizes[at];
        else sizes[i] = t->rest->sizes[i - t->rank];
    }
    return true;
}

static void add_elements(const fb_array *to, const fb_array *from) {
    fb_walk walk;
    for (fb_walk_begin(&walk, to, from, NULL); fb_walk_more(&walk); fb_walk_next(&walk)) {
        for (int64_t i = 0; i < walk.count; i++) {
            int64_t x = i * walk.strides[0], y = i * walk.strides[1];
            if (to->held == FB_HELD_DOUBLE) ((double *)walk.data[0])[x] += ((double *)walk.data[1])[y];
            else if (to->held == FB_HELD_FLOAT) ((float *)walk.data[0])[x] += ((float *)walk.data[1])[y];
            else if (to->held == FB_HELD_INT) ((int64_t *)walk.data[0])[x] += ((int64_t *)walk.data[1])[y];
            else if (to->held == FB_HELD_COMPLEX_DOUBLE)
                ((double _Complex *)walk.data[0])[x] += ((double _Complex *)walk.data[1])[y];
            else if (to->held == FB_HELD_COMPLEX_FLOAT)
                ((float _Complex *)walk.data[0])[x] += ((float _Complex *)walk.data[1])[y];
            else ((unsigned char *)walk.data[0])[x] |= ((unsigned char *)walk.data[1])[y];
        }
    }
}

/* Moves elements between the targets and `other`, which has the result's sizes: for each target the rest's dimensions. */
static bool move_elements(fb_kernel_call *call, targets *t, const fb_array *other, bool is_read, bool accumulates) {
    fb_array *part = fb_make_view(call, other, t->rest->rank);
    int64_t index[FB_MAX_RANK] = {0}, first = t->rest->offset, start = other->offset;
    if (!part) return false;
    for (int i = 0; i < t->rest->rank; i++) {
        int from = i < t->position ? i : i + t->rank;
        part->sizes[i] = other->sizes[from];
        part->strides[i] = other->strides[from];
    }
    fb_kernel_takes(call, STEPS_OF_A_TARGET * (double)t->count);
    for (int64_t k = 0; k < t->count && fb_kernel_goes_on(call, STEPS_OF_A_TARGET); k++) {
        int64_t at = start;
        for (int i = 0; i < t->rank; i++) at += index[i] * other->strides[t->position + i];
        part->offset = at;
        t->rest->offset = first + t->offsets[k];
        if (accumulates) add_elements(t->rest, part);
        else call->status = fb_array_assign(is_read ? part : t->rest, is_read ? t->rest : part, call->error);
        for (int i = t->rank - 1; i >= 0 && ++index[i] == t->sizes[i]; i--) index[i] = 0;
    }
    t->rest->offset = first;
    fb_array_drop(part);
    return !call->status;
}

/* x[index] with Python's index: ints, slices, None, `...`, bools, tensors, lists of ints, tuples of these. Basic indices give a
 * view. With `indices` of ATen's index.Tensor: one tensor or None a dimension. */
static fb_status index_array(fb_kernel_call *call, fb_array *array, const fb_object *index, fb_array **out) {
    indexing ix;
    targets t = {0};
    *out = NULL;
    if (begin_indexing(call, array, index, &ix)) {
        int rank;
        int64_t sizes[FB_MAX_RANK];
        if (!ix.has_tensors) {
            *out = ix.view;
            ix.view = NULL;
        } else if (find_targets(call, &ix, &t) && result_sizes(call, &t, &rank, sizes)) {
            *out = fb_make_array(call, array->dtype, rank, sizes);
            if (*out) move_elements(call, &t, *out, true, false);
        }
    }
    end_targets(call, &t);
    end_indexing(&ix);
    if (call->status) {
        fb_array_drop(*out);
        *out = NULL;
    }
    return call->status;
}

/* PyTorch raises then, as it writes without a copy: by index_put_ where tensors index, else by copy_, which only reads
 * elsewhere what it writes if the two differ in strides or place. */
static bool reads_elements_written(fb_kernel_call *call, const indexing *ix, const fb_array *value, int rank,
                                   const int64_t *sizes) {
    fb_array *shown = fb_make_view(call, value, value->rank), *wide = NULL;
    while (shown && shown->rank > rank && shown->sizes[0] == 1) fb_array_remove_dim(shown, 0);
    bool found = shown && ix->has_tensors && fb_arrays_overlap(ix->view, shown);
    if (shown && !ix->has_tensors && !fb_array_broadcast(shown, rank, sizes, &wide, NULL))
        found = fb_arrays_overlap(ix->view, wide) == FB_OVERLAP_PARTIAL;
    fb_array_drop(wide);
    fb_array_drop(shown);
    return found;
}

/* x[index] = value (added where `accumulates`, as index_put does). */
static fb_status index_assign(fb_kernel_call *call, fb_array *array, const fb_object *index, const fb_object *value,
                              bool accumulates) {
    indexing ix;
    targets t = {0};
    fb_array *wide = NULL, *from = value->kind == FB_OBJECT_ARRAY ? fb_make_cast(call, value->array, array->dtype)
                                                                  : fb_make_number_of(call, value, array->dtype);
    if (!from) return call->status;
    if (begin_indexing(call, array, index, &ix)) {
        int rank = ix.view->rank;
        int64_t sizes[FB_MAX_RANK];
        memcpy(sizes, ix.view->sizes, sizeof sizes);
        bool strips = call->op == FB_OP_SETITEM; /* dimensions of size 1 at the front */
        if ((ix.has_tensors || !strips) && value->kind == FB_OBJECT_ARRAY && value->array->dtype != array->dtype)
            fb_kernel_fail(call, "a tensor of %s is put into one of %s", fb_dtype_name(value->array->dtype),
                           fb_dtype_name(array->dtype));
        if (!call->status && fb_array_may_overlap(ix.view)) fb_kernel_unsupported(call, FB_WRITES_OVERLAP);
        bool fits = !call->status && (!ix.has_tensors || (find_targets(call, &ix, &t) && result_sizes(call, &t, &rank, sizes)));
        while (fits && strips && from->rank > rank && from->sizes[0] == 1) fb_array_remove_dim(from, 0);
        if (fits) call->status = fb_array_broadcast(from, rank, sizes, &wide, call->error);
        if (wide && value->kind == FB_OBJECT_ARRAY && reads_elements_written(call, &ix, value->array, rank, sizes))
            fb_kernel_unsupported(call, FB_WRITES_OVERLAP);
        if (!call->status && ix.has_tensors) move_elements(call, &t, wide, false, accumulates);
        else if (!call->status && accumulates) add_elements(ix.view, wide);
        else if (!call->status) call->status = fb_array_assign(ix.view, wide, call->error);
        if (!call->status) fb_array_round(ix.view);
    }
    fb_array_drop(wide);
    fb_array_drop(from);
    end_targets(call, &t);
    end_indexing(&ix);
    return call->status;
}

/* ---- operators ----------------------------------------------------------------------------------------------------------- */

/* An item of a list, tuple or dict. */
static fb_status get_from_items(fb_kernel_call *call, const fb_object *items, const fb_object *index, fb_object *result) {
    int64_t at, count = (int64_t)items->items->count;
    if (items->kind == FB_OBJECT_DICT) {
        for (int64_t i = 0; i < count; i += 2) {
            const fb_object *key = &items->items->objects[i];
            bool is_it = key->kind == index->kind && ((key->kind == FB_OBJECT_STRING && strcmp(key->text, index->text) == 0) ||
                                                      (key->kind == FB_OBJECT_INT && key->integer == index->integer));
            if (!is_it) continue;
            *result = key[1];
            fb_object_keep(result);
            return FB_OK;
        }
        return fb_kernel_fail(call, "the dict has no such key");
    }
    if (index->kind == FB_OBJECT_SLICE) {
        int64_t bounds[3] = {0, INT64_MAX, 1};
        for (int i = 0; i < 3; i++) {
            const fb_object *bound = &index->items->objects[i];
            if (bound->kind != FB_OBJECT_NONE && !fb_object_int(bound, &bounds[i]))
                return fb_kernel_unsupported(call, "a bound of a slice is not an int");
        }
        if (bounds[2] <= 0) return fb_kernel_unsupported(call, "the step of a slice is not positive");
        int64_t start = fb_clip_index(bounds[0], count), stop = fb_clip_index(bounds[1], count);
        size_t taken = stop > start ? (size_t)((stop - start - 1) / bounds[2] + 1) : 0;
        call->status = fb_object_sequence(items->kind, taken, result, call->error);
        for (size_t i = 0; i < taken && !call->status; i++) {
            result->items->objects[i] = items->items->objects[start + (int64_t)i * bounds[2]];
            fb_object_keep(&result->items->objects[i]);
        }
        return call->status;
    }
    if (!fb_object_int(index, &at)) return fb_kernel_unsupported(call, "the index of a sequence is not an int");
    if (at < -count || at >= count)
        return fb_kernel_fail(call, "index %lld is out of a sequence of %lld", (long long)at, (long long)count);
    *result = items->items->objects[at < 0 ? at + count : at];
    fb_object_keep(result);
    return FB_OK;
}

static fb_status kernel_getitem(fb_kernel_call *call, fb_object *result) {
    const fb_object *input = fb_argument(call, "input"), *index = fb_argument(call, "index");
    if (!input || !index) return fb_kernel_unsupported(call, "its arguments are not known");
    if (fb_object_is_sequence(input) || input->kind == FB_OBJECT_DICT) return get_from_items(call, input, index, result);
    if (input->kind != FB_OBJECT_ARRAY)
        return fb_kernel_unsupported(call, "what is indexed is neither a tensor nor a sequence");
    fb_array *found;
    if (index_array(call, input->array, index, &found)) return call->status;
    return fb_return_array(call, found, result);
}

static fb_status kernel_setitem(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    const fb_object *index = fb_argument(call, "index"), *value = fb_argument(call, "value");
    if (!fb_argument_array(call, "input", &input)) return call->status;
    if (!index || !value) return fb_kernel_unsupported(call, "its arguments are not known");
    /* The method gives None; the code that torch.fx writes for the function goes on with the tensor (`x[0] = 1; setitem = x`).
     */
    bool is_method = fb_node_at(call->graph, call->node)->opcode == FB_CALL_METHOD;
    if (index_assign(call, input, index, value, false) || is_method) return call->status;
    return fb_return_array(call, fb_array_keep(input), result);
}

/* ATen's indices are a list of tensors and Nones, where None takes a dimension whole. */
static bool indices_of_aten(fb_kernel_call *call, fb_object *out) {
    const fb_object *indices = fb_argument(call, "indices");
    *out = (fb_object){.kind = FB_OBJECT_NONE};
    if (!indices || !fb_object_is_sequence(indices)) return fb_kernel_unsupported(call, "its indices are not a list") == FB_OK;
    size_t count = indices->items->count;
    if (!count) return fb_kernel_fail(call, "it has no indices") == FB_OK;
    size_t given = 0;
    for (size_t i = 0; i < count; i++) given += indices->items->objects[i].kind != FB_OBJECT_NONE;
    if (!given) return fb_kernel_fail(call, "it has no indices") == FB_OK;
    call->status = fb_object_sequence(FB_OBJECT_TUPLE, count, out, call->error);
    for (size_t i = 0; i < count && !call->status; i++) {
        const fb_object *item = &indices->items->objects[i];
        if (item->kind == FB_OBJECT_NONE) {
            call->status = fb_object_sequence(FB_OBJECT_SLICE, 3, &out->items->objects[i], call->error);
            continue;
        }
        if (item->kind != FB_OBJECT_ARRAY) fb_kernel_unsupported(call, "an index is neither a tensor nor None");
        out->items->objects[i] = *item;
        fb_object_keep(item);
    }
    if (call->status) fb_object_drop(out);
    return !call->status;
}

static fb_status kernel_index(fb_kernel_call *call, fb_object *result) {
    fb_array *input, *found;
    fb_object indices;
    if (!fb_argument_array(call, "input", &input) || !indices_of_aten(call, &indices)) return call->status;
    index_array(call, input, &indices, &found);
    fb_object_drop(&indices);
    return call->status ? call->status : fb_return_array(call, found, result);
}

/* index_put(input, indices, values, accumulate): in place the interpreter writes the result back. */
static fb_status kernel_index_put(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    fb_object indices;
    bool accumulates;
    const fb_object *values = fb_argument(call, "values");
    if (!fb_argument_array(call, "input", &input) || !fb_argument_bool(call, "accumulate", false, &accumulates))
        return call->status;
    if (!values) return fb_kernel_unsupported(call, "it has no values");
    if (!indices_of_aten(call, &indices)) return call->status;
    fb_array *copy = fb_make_cast(call, input, input->dtype);
    if (copy) index_assign(call, copy, &indices, values, accumulates);
    fb_object_drop(&indices);
    return fb_return_array(call, copy, result);
}

const fb_kernel_row fb_kernels_index[] = {
    FB_KERNEL_COMPLEX(GETITEM, getitem),
    FB_KERNEL_COMPLEX(SETITEM, setitem),
    FB_KERNEL_COMPLEX(INDEX, index),
    FB_KERNEL_COMPLEX(INDEX_PUT, index_put),
    FB_KERNELS_END,
};
