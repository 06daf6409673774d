/* Shape rules of arithmetic, matrix products, joins, reductions and factories. */
#include <string.h>

#include "core/ops/shape.h"

bool fb_shape_same_as_first(const fb_call *call, fb_type *out) {
    return fb_first_tensor_of(call, out);
}

bool fb_shape_same_as_second(const fb_call *call, fb_type *out) {
    return fb_tensor_named(call, "other", out) || (call->op == FB_OP_SEARCHSORTED && fb_tensor_named(call, "input", out));
}

/* ---- element by element ---------------------------------------------------------------------------------------------- */

static bool broadcast_named(const fb_call *call, const char *const *names, int count, fb_type *out) {
    bool has_tensor = false;
    fb_type joined = {.rank = 0};
    for (int i = 0; i < count; i++) {
        fb_operand operand = fb_operand_named(call, names[i]);
        if (operand.kind == FB_OPERAND_OTHER) return false;
        if (operand.kind != FB_OPERAND_TENSOR) continue;
        if (operand.type.rank < 0 || !fb_broadcast(&joined, &operand.type)) return false;
        has_tensor = true;
    }
    if (has_tensor) *out = joined;
    return has_tensor;
}

bool fb_shape_broadcast(const fb_call *call, fb_type *out) {
    static const char *const names[] = {"input", "other",   "exponent", "end", "weight",
                                        "mask",  "tensor1", "tensor2",  "min", "max"};
    return broadcast_named(call, names, sizeof names / sizeof *names, out);
}

bool fb_shape_division(const fb_call *call, fb_type *out) {
    fb_value mode = fb_call_argument(call->graph, call->node, "rounding_mode");
    bool rounds = mode.id && fb_value_kind(call->graph, mode) != FB_NONE;
    fb_dtype dtype = fb_promote_two(call, "input", "other");
    bool is_known = fb_shape_broadcast(call, out);
    out->dtype = rounds ? dtype : fb_to_floating(dtype);
    return is_known;
}

bool fb_shape_where(const fb_call *call, fb_type *out) {
    static const char *const names[] = {"condition", "input", "other"};
    fb_dtype dtype = fb_promote_two(call, "input", "other");
    bool is_known = broadcast_named(call, names, 3, out);
    out->dtype = dtype;
    return is_known;
}

/* ---- products -------------------------------------------------------------------------------------------------------- */

/* torch.matmul = numpy.matmul: a vector on the left is a row, on the right a column, and that dimension is dropped again. */
static bool multiply(fb_type a, fb_type b, fb_type *out) {
    if (a.rank == 0 || b.rank == 0) return false;
    bool left_is_vector = a.rank == 1, right_is_vector = b.rank == 1;
    if (left_is_vector && !fb_insert_dim(&a, 0, fb_dim_of(1))) return false;
    if (right_is_vector && !fb_insert_dim(&b, 1, fb_dim_of(1))) return false;
    fb_dim rows = a.sizes[a.rank - 2], columns = b.sizes[b.rank - 1];
    if (!fb_dim_equal(a.sizes[a.rank - 1], b.sizes[b.rank - 2])) return false;
    a.rank -= 2;
    b.rank -= 2;
    if (!fb_broadcast(&a, &b)) return false;
    if (!left_is_vector) a.sizes[a.rank++] = rows;
    if (!right_is_vector) a.sizes[a.rank++] = columns;
    *out = a;
    return true;
}

bool fb_shape_matmul(const fb_call *call, fb_type *out) {
    static const char *const seconds[] = {"other", "mat2", "vec", "tensor"};
    fb_type a, b;
    if (!fb_first_tensor_of(call, &a)) return false;
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        if (fb_tensor_named(call, seconds[i], &b)) return multiply(a, b, out);
    }
    return false;
}

bool fb_shape_addmm(const fb_call *call, fb_type *out) {
    fb_type a, b;
    bool is_batched = call->op == FB_OP_BADDBMM;
    if (!fb_tensor_named(call, is_batched ? "batch1" : "mat1", &a)) return false;
    return fb_tensor_named(call, is_batched ? "batch2" : "mat2", &b) && multiply(a, b, out);
}

/* ---- joins and gathers ----------------------------------------------------------------------------------------------- */

static bool part_of(const fb_call *call, fb_value value, fb_type *type) {
    fb_operand part = fb_operand_of(call->graph, value);
    *type = part.type;
    return part.kind == FB_OPERAND_TENSOR && type->rank >= 0;
}

static const fb_value_row *parts_of(const fb_call *call) {
    fb_value tensors = fb_call_argument(call->graph, call->node, "tensors");
    fb_kind kind = tensors.id ? fb_value_kind(call->graph, tensors) : FB_NONE;
    const fb_value_row *row = kind == FB_LIST || kind == FB_TUPLE ? fb_value_at(call->graph, tensors) : NULL;
    return row && row->count ? row : NULL;
}

static bool append(fb_type *whole, const fb_type *part, int axis) {
    if (part->rank != whole->rank) return false;
    for (int i = 0; i < whole->rank; i++) {
        if (i != axis && !fb_dim_equal(whole->sizes[i], part->sizes[i])) return false;
    }
    if (whole->sizes[axis].symbol.id || part->sizes[axis].symbol.id) return false;
    return !__builtin_add_overflow(whole->sizes[axis].size, part->sizes[axis].size, &whole->sizes[axis].size);
}

/* Of the old days torch.cat still skips tensors of shape (0,), whatever the others' rank. */
static bool is_legacy_empty(const fb_type *type) {
    return type->rank == 1 && fb_dim_is(type->sizes[0], 0);
}

bool fb_shape_cat(const fb_call *call, fb_type *out) {
    const fb_value_row *parts = parts_of(call);
    fb_type part;
    bool has_first = false;
    int axis = 0;
    for (uint32_t i = 0; parts && i < parts->count; i++) {
        if (!part_of(call, parts->items[i], &part)) return false;
        if (is_legacy_empty(&part)) continue;
        if (has_first && !append(out, &part, axis)) return false;
        if (has_first) continue;
        *out = part;
        has_first = true;
        if (!fb_option_axis(call, "dim", 0, part.rank, &axis)) return false;
    }
    return has_first;
}

bool fb_shape_stack(const fb_call *call, fb_type *out) {
    const fb_value_row *parts = parts_of(call);
    fb_type part;
    int axis;
    if (!parts || !part_of(call, parts->items[0], out)) return false;
    for (uint32_t i = 1; i < parts->count; i++) {
        if (!part_of(call, parts->items[i], &part) || part.rank != out->rank) return false;
        for (int k = 0; k < part.rank; k++) {
            if (!fb_dim_equal(part.sizes[k], out->sizes[k])) return false;
        }
    }
    return fb_option_axis(call, "dim", 0, out->rank + 1, &axis) && fb_insert_dim(out, axis, fb_dim_of(parts->count));
}

bool fb_shape_gather(const fb_call *call, fb_type *out) {
    return fb_tensor_named(call, "index", out);
}

bool fb_shape_index_select(const fb_call *call, fb_type *out) {
    fb_type index;
    int axis;
    if (!fb_tensor_named(call, "index", &index) || index.rank != 1 || !fb_first_tensor_of(call, out)) return false;
    if (!fb_option_axis(call, "dim", 0, out->rank, &axis)) return false;
    out->sizes[axis] = index.sizes[0];
    return true;
}

/* ---- reductions ------------------------------------------------------------------------------------------------------ */

static bool choose_axes(const fb_call *call, int rank, bool *is_reduced) {
    fb_sizes dims;
    fb_value value = fb_call_argument(call->graph, call->node, "dim");
    bool is_all = !value.id || fb_value_kind(call->graph, value) == FB_NONE;
    if (!is_all && !fb_evaluate_sizes(call->graph, value, &dims)) return false;
    is_all |= !is_all && dims.is_sequence && dims.count == 0;
    for (int i = 0; i < rank; i++) is_reduced[i] = is_all;
    for (int i = 0; !is_all && i < dims.count; i++) {
        int axis;
        if (dims.items[i].symbol.id) return false;
        if (rank == 0) continue; /* dim 0 or -1 of a scalar */
        if (!fb_normalise_axis(dims.items[i].size, rank, &axis)) return false;
        is_reduced[axis] = true;
    }
    return true;
}

bool fb_shape_reduce(const fb_call *call, fb_type *out) {
    bool is_reduced[FB_MAX_RANK];
    if (!fb_first_tensor_of(call, out) || !choose_axes(call, out->rank, is_reduced)) return false;
    fb_value keep = fb_call_argument(call->graph, call->node, "keepdim");
    fb_kind kind = keep.id ? fb_value_kind(call->graph, keep) : FB_FALSE;
    if (kind != FB_TRUE && kind != FB_FALSE) return false;
    for (int i = out->rank - 1; i >= 0; i--) {
        if (!is_reduced[i]) continue;
        if (kind == FB_TRUE) out->sizes[i] = fb_dim_of(1);
        else fb_erase_dim(out, i);
    }
    return true;
}

bool fb_shape_reduce_all(const fb_call *call, fb_type *out) {
    (void)call; /* fb_infer has seen that self is the only argument */
    out->rank = 0;
    return true;
}

/* ---- factories ------------------------------------------------------------------------------------------------------- */

static bool give_sizes(const fb_call *call, fb_type *out) {
    fb_sizes sizes;
    if (!fb_sizes_named(call, "size", &sizes)) return false;
    for (int i = 0; i < sizes.count; i++) {
        if (!sizes.items[i].symbol.id && sizes.items[i].size < 0) return false;
        out->sizes[i] = sizes.items[i];
    }
    out->rank = sizes.count;
    return true;
}

bool fb_shape_factory(const fb_call *call, fb_type *out) {
    if (call->op != FB_OP_FULL) return give_sizes(call, out);
    /* full(size, value) is not variadic: a lone int as size is an error of the program. */
    fb_sizes sizes;
    fb_value size = fb_call_argument(call->graph, call->node, "size");
    return size.id && fb_evaluate_sizes(call->graph, size, &sizes) && sizes.is_sequence && give_sizes(call, out);
}

bool fb_shape_factory_like(const fb_call *call, fb_type *out) {
    return give_sizes(call, out);
}

bool fb_shape_arange(const fb_call *call, fb_type *out) {
    const fb_graph *graph = call->graph;
    uint32_t count = fb_value_at(graph, fb_node_at(graph, call->node)->args)->count;
    fb_value ends[3] = {fb_node_arg(graph, call->node, 0), fb_node_arg(graph, call->node, 1),
                        fb_node_arg(graph, call->node, 2)};
    int64_t start = 0, stop, step = 1;
    fb_value dtype = fb_node_kwarg(graph, call->node, "dtype");
    bool has_dtype = dtype.id && fb_value_kind(graph, dtype) != FB_NONE;
    if (has_dtype)
        out->dtype = fb_value_kind(graph, dtype) == FB_DTYPE ? fb_dtype_find(fb_value_text(graph, dtype)) : out->dtype;
    if (count < 1 || count > 3) return false;
    fb_dim length;
    if (count == 1) {
        if (!fb_evaluate_size(graph, ends[0], &length)) return false;
        stop = length.size;
    } else {
        if (!fb_evaluate_int(graph, ends[0], &start) || !fb_evaluate_int(graph, ends[1], &stop)) return false;
        if (count == 3 && (!fb_evaluate_int(graph, ends[2], &step) || step < 1)) return false;
    }
    int64_t span;
    if (!has_dtype) out->dtype = FB_INT64;
    out->rank = 1;
    if (count == 1 && length.symbol.id) return out->sizes[0] = length, true;
    if (__builtin_sub_overflow(stop, start, &span) || span < 0) return false;
    out->sizes[0] = fb_dim_of(span / step + (span % step != 0));
    return true;
}

/* torch.tensor of one number; lists are unknown. */
bool fb_shape_scalar_tensor(const fb_call *call, fb_type *out) {
    fb_operand data = fb_operand_named(call, "data");
    fb_value dtype = fb_node_kwarg(call->graph, call->node, "dtype");
    bool has_dtype = dtype.id && fb_value_kind(call->graph, dtype) != FB_NONE;
    if (data.kind != FB_OPERAND_NUMBER || !data.number) return false;
    out->rank = 0;
    out->dtype = data.number;
    if (has_dtype)
        out->dtype = fb_value_kind(call->graph, dtype) == FB_DTYPE ? fb_dtype_find(fb_value_text(call->graph, dtype)) : 0;
    return true;
}
