/* The shape rules: what each operator makes of the shapes of its operands. */
#include "core/analysis/shape.h"

#include <string.h>

/* A tensor of known shape. */
static bool tensor_named(const fb_shape_call *call, const char *parameter, fb_type *type) {
    fb_operand operand = fb_operand_named(call, parameter);
    if (operand.kind != FB_OPERAND_TENSOR || operand.type.rank < 0) return false;
    *type = operand.type;
    return true;
}

/* The first parameter. */
static bool first_tensor_of(const fb_shape_call *call, fb_type *type) {
    fb_operand operand = fb_operand_of(call->graph, fb_first_argument(call->graph, call->node));
    if (operand.kind != FB_OPERAND_TENSOR || operand.type.rank < 0) return false;
    *type = operand.type;
    return true;
}

/* NumPy's broadcasting of `b` into `a`. */
static bool broadcast(fb_type *a, const fb_type *b) {
    fb_type wide = a->rank >= b->rank ? *a : *b;
    const fb_type *narrow = a->rank >= b->rank ? b : a;
    int shift = wide.rank - narrow->rank;
    for (int i = 0; i < narrow->rank; i++) {
        fb_dim *size = &wide.sizes[i + shift];
        if (fb_dim_is(*size, 1)) *size = narrow->sizes[i];
        else if (!fb_dim_is(narrow->sizes[i], 1) && !fb_dim_equal(narrow->sizes[i], *size)) return false;
    }
    a->rank = wide.rank;
    memcpy(a->sizes, wide.sizes, sizeof a->sizes);
    return true;
}

static void erase_dim(fb_type *type, int axis) {
    memmove(type->sizes + axis, type->sizes + axis + 1, (size_t)(type->rank - axis - 1) * sizeof *type->sizes);
    type->rank--;
}

static bool insert_dim(fb_type *type, int axis, fb_dim dim) {
    if (type->rank == FB_MAX_RANK) return false;
    memmove(type->sizes + axis + 1, type->sizes + axis, (size_t)(type->rank - axis) * sizeof *type->sizes);
    type->sizes[axis] = dim;
    type->rank++;
    return true;
}

static bool shape_same_as_first(const fb_shape_call *call, fb_type *out) {
    return first_tensor_of(call, out);
}

static bool shape_same_as_second(const fb_shape_call *call, fb_type *out) {
    return tensor_named(call, "other", out) || (call->op == FB_OP_SEARCHSORTED && tensor_named(call, "input", out));
}

/* ---- element by element ---------------------------------------------------------------------------------------------- */

static bool broadcast_named(const fb_shape_call *call, const char *const *names, int count, fb_type *out) {
    bool has_tensor = false;
    size_t left = fb_operand_limit(call);
    fb_type joined = {.rank = 0};
    for (int i = 0; i < count && left; i++) {
        fb_operand operand = fb_operand_named(call, names[i]);
        left -= operand.kind != FB_OPERAND_ABSENT;
        if (operand.kind == FB_OPERAND_OTHER) return false;
        if (operand.kind != FB_OPERAND_TENSOR) continue;
        if (operand.type.rank < 0 || !broadcast(&joined, &operand.type)) return false;
        has_tensor = true;
    }
    if (has_tensor) *out = joined;
    return has_tensor;
}

static bool shape_broadcast(const fb_shape_call *call, fb_type *out) {
    static const char *const names[] = {"input",   "other",   "exponent", "end", "weight", "mask",
                                        "tensor1", "tensor2", "min",      "max", "logits", "tau"};
    return broadcast_named(call, names, sizeof names / sizeof *names, out);
}

/* As v, into which g broadcasts. */
static bool shape_weight_norm(const fb_shape_call *call, fb_type *out) {
    fb_type v, g;
    if (!tensor_named(call, "v", &v) || !tensor_named(call, "g", &g)) return false;
    *out = v;
    if (!broadcast(&v, &g) || v.rank != out->rank) return false;
    for (int i = 0; i < v.rank; i++) {
        if (!fb_dim_equal(v.sizes[i], out->sizes[i])) return false;
    }
    return true;
}

static fb_dtype promote_two(const fb_shape_call *call, const char *first, const char *second) {
    fb_operand operands[] = {fb_operand_named(call, first), fb_operand_named(call, second)};
    return fb_promote_all(operands, 2);
}

static bool shape_division(const fb_shape_call *call, fb_type *out) {
    fb_value mode = fb_call_argument(call->graph, call->node, "rounding_mode");
    bool rounds = !fb_is_absent(call->graph, mode);
    fb_dtype dtype = promote_two(call, "input", "other");
    bool is_known = shape_broadcast(call, out);
    out->dtype = rounds ? dtype : fb_to_floating(dtype);
    return is_known;
}

static bool shape_where(const fb_shape_call *call, fb_type *out) {
    static const char *const names[] = {"condition", "input", "other"};
    fb_dtype dtype = promote_two(call, "input", "other");
    bool is_known = broadcast_named(call, names, 3, out);
    out->dtype = dtype;
    return is_known;
}

/* ---- products -------------------------------------------------------------------------------------------------------- */

/* torch.matmul = numpy.matmul: a vector on the left is a row, on the right a column, and that dimension is dropped again. */
static bool multiply_matrices(fb_type a, fb_type b, fb_type *out) {
    if (a.rank == 0 || b.rank == 0) return false;
    bool left_is_vector = a.rank == 1, right_is_vector = b.rank == 1;
    if (left_is_vector && !insert_dim(&a, 0, fb_dim_of(1))) return false;
    if (right_is_vector && !insert_dim(&b, 1, fb_dim_of(1))) return false;
    fb_dim rows = a.sizes[a.rank - 2], columns = b.sizes[b.rank - 1];
    if (!fb_dim_equal(a.sizes[a.rank - 1], b.sizes[b.rank - 2])) return false;
    a.rank -= 2;
    b.rank -= 2;
    if (!broadcast(&a, &b)) return false;
    if (!left_is_vector) a.sizes[a.rank++] = rows;
    if (!right_is_vector) a.sizes[a.rank++] = columns;
    *out = a;
    return true;
}

static bool shape_matmul(const fb_shape_call *call, fb_type *out) {
    static const char *const seconds[] = {"other", "mat2", "vec", "tensor"};
    fb_type a, b;
    if (!first_tensor_of(call, &a)) return false;
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        if (tensor_named(call, seconds[i], &b)) return multiply_matrices(a, b, out);
    }
    return false;
}

static bool shape_addmm(const fb_shape_call *call, fb_type *out) {
    fb_type a, b;
    bool is_batched = call->op == FB_OP_BADDBMM;
    if (!tensor_named(call, is_batched ? "batch1" : "mat1", &a)) return false;
    return tensor_named(call, is_batched ? "batch2" : "mat2", &b) && multiply_matrices(a, b, out);
}

/* ---- joins and gathers ----------------------------------------------------------------------------------------------- */

static bool part_of(const fb_shape_call *call, fb_value value, fb_type *type) {
    fb_operand part = fb_operand_of(call->graph, value);
    *type = part.type;
    return part.kind == FB_OPERAND_TENSOR && type->rank >= 0;
}

static const fb_value_row *parts_of(const fb_shape_call *call) {
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

/* For compatibility torch.cat still skips tensors of shape (0,), for any rank of the others. */
static bool is_legacy_empty(const fb_type *type) {
    return type->rank == 1 && fb_dim_is(type->sizes[0], 0);
}

static bool shape_cat(const fb_shape_call *call, fb_type *out) {
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

static bool shape_stack(const fb_shape_call *call, fb_type *out) {
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
    return fb_option_axis(call, "dim", 0, out->rank + 1, &axis) && insert_dim(out, axis, fb_dim_of(parts->count));
}

static bool shape_gather(const fb_shape_call *call, fb_type *out) {
    return tensor_named(call, "index", out);
}

static bool shape_index_select(const fb_shape_call *call, fb_type *out) {
    fb_type index;
    int axis;
    if (!tensor_named(call, "index", &index) || index.rank != 1 || !first_tensor_of(call, out)) return false;
    if (!fb_option_axis(call, "dim", 0, out->rank, &axis)) return false;
    out->sizes[axis] = index.sizes[0];
    return true;
}

/* ---- reductions ------------------------------------------------------------------------------------------------------ */

static bool choose_axes(const fb_shape_call *call, int rank, bool *is_reduced) {
    fb_sizes dims;
    fb_value value = fb_call_argument(call->graph, call->node, "dim");
    bool is_all = fb_is_absent(call->graph, value);
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

static bool shape_reduce(const fb_shape_call *call, fb_type *out) {
    bool is_reduced[FB_MAX_RANK];
    if (!first_tensor_of(call, out) || !choose_axes(call, out->rank, is_reduced)) return false;
    fb_value keep = fb_call_argument(call->graph, call->node, "keepdim");
    fb_kind kind = keep.id ? fb_value_kind(call->graph, keep) : FB_FALSE;
    if (kind != FB_TRUE && kind != FB_FALSE) return false;
    for (int i = out->rank - 1; i >= 0; i--) {
        if (!is_reduced[i]) continue;
        if (kind == FB_TRUE) out->sizes[i] = fb_dim_of(1);
        else erase_dim(out, i);
    }
    return true;
}

static bool shape_reduce_all(const fb_shape_call *call, fb_type *out) {
    (void)call; /* fb_infer has seen that self is the only argument */
    out->rank = 0;
    return true;
}

/* ---- factories ------------------------------------------------------------------------------------------------------- */

static bool give_sizes(const fb_shape_call *call, fb_type *out) {
    fb_sizes sizes;
    if (!fb_sizes_named(call, "size", &sizes)) return false;
    for (int i = 0; i < sizes.count; i++) {
        if (!sizes.items[i].symbol.id && sizes.items[i].size < 0) return false;
        out->sizes[i] = sizes.items[i];
    }
    out->rank = sizes.count;
    return true;
}

static bool shape_factory(const fb_shape_call *call, fb_type *out) {
    if (call->op != FB_OP_FULL) return give_sizes(call, out);
    /* full(size, value) is not variadic: a lone int as size is an error of the program. */
    fb_sizes sizes;
    fb_value size = fb_call_argument(call->graph, call->node, "size");
    return size.id && fb_evaluate_sizes(call->graph, size, &sizes) && sizes.is_sequence && give_sizes(call, out);
}

static bool shape_factory_like(const fb_shape_call *call, fb_type *out) {
    return give_sizes(call, out);
}

static bool shape_arange(const fb_shape_call *call, fb_type *out) {
    const fb_graph *graph = call->graph;
    uint32_t count = fb_value_at(graph, fb_node_at(graph, call->node)->args)->count;
    fb_value ends[3] = {fb_node_arg(graph, call->node, 0), fb_node_arg(graph, call->node, 1),
                        fb_node_arg(graph, call->node, 2)};
    int64_t start = 0, stop, step = 1;
    fb_value dtype = fb_node_kwarg(graph, call->node, "dtype");
    bool has_dtype = !fb_is_absent(graph, dtype);
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

/* torch.tensor and torch.scalar_tensor of one number; lists are unknown. */
static bool shape_scalar_tensor(const fb_shape_call *call, fb_type *out) {
    fb_operand data = fb_operand_named(call, call->op == FB_OP_SCALAR_TENSOR ? "s" : "data");
    fb_value dtype = fb_node_kwarg(call->graph, call->node, "dtype");
    bool has_dtype = !fb_is_absent(call->graph, dtype);
    if (data.kind != FB_OPERAND_NUMBER || !data.number) return false;
    out->rank = 0;
    out->dtype = data.number;
    if (has_dtype)
        out->dtype = fb_value_kind(call->graph, dtype) == FB_DTYPE ? fb_dtype_find(fb_value_text(call->graph, dtype)) : 0;
    return true;
}

/* ---- reshaping ------------------------------------------------------------------------------------------------------- */

/* Number of elements as an int times symbols; symbols are taken out one by one. */
typedef struct product {
    int64_t number;
    int symbols;
    fb_symbol names[FB_MAX_RANK];
} product;

static bool multiply(product *p, fb_dim dim) {
    if (dim.symbol.id) {
        if (p->symbols == FB_MAX_RANK) return false;
        p->names[p->symbols++] = dim.symbol;
        return true;
    }
    return !__builtin_mul_overflow(p->number, dim.size, &p->number);
}

static bool remove_symbol(product *p, fb_symbol symbol) {
    for (int i = 0; i < p->symbols; i++) {
        if (p->names[i].id != symbol.id) continue;
        p->names[i] = p->names[--p->symbols];
        return true;
    }
    return false;
}

/* Solves `from` = the product of `sizes` for their one -1. */
static bool fill_in_missing(const fb_dim *from, int from_count, fb_dim *sizes, int count) {
    product whole = {.number = 1}, known = {.number = 1};
    int missing = -1;
    for (int i = 0; i < from_count; i++) {
        if (!multiply(&whole, from[i])) return false;
    }
    for (int i = 0; i < count; i++) {
        if (fb_dim_is(sizes[i], -1)) {
            if (missing >= 0) return false;
            missing = i;
        } else if (sizes[i].symbol.id ? !remove_symbol(&whole, sizes[i].symbol) : !multiply(&known, sizes[i])) {
            return false;
        }
    }
    if (missing < 0) return whole.symbols == 0 && whole.number == known.number;
    if (known.number <= 0 || whole.number % known.number) return false;
    int64_t rest = whole.number / known.number;
    if (whole.symbols > 1 || (whole.symbols == 1 && rest != 1)) return false; /* "2*s0" is not ours to spell */
    sizes[missing] = whole.symbols ? (fb_dim){-1, whole.names[0]} : fb_dim_of(rest);
    return true;
}

static bool shape_view(const fb_shape_call *call, fb_type *out) {
    fb_type from;
    fb_sizes sizes;
    fb_value first_size = fb_node_arg(call->graph, call->node, 1);
    if (first_size.id && fb_value_kind(call->graph, first_size) == FB_DTYPE) return false; /* view(dtype) */
    out->dtype = fb_operand_of(call->graph, fb_first_argument(call->graph, call->node)).type.dtype;
    if (!fb_sizes_named(call, "size", &sizes) && !fb_sizes_named(call, "shape", &sizes)) return false;
    bool is_complete = true;
    for (int i = 0; i < sizes.count; i++) is_complete &= !fb_dim_is(sizes.items[i], -1);
    if (first_tensor_of(call, &from)) {
        if (!fill_in_missing(from.sizes, from.rank, sizes.items, sizes.count)) return false;
    } else if (!is_complete) {
        return false;
    }
    out->rank = sizes.count;
    memcpy(out->sizes, sizes.items, sizeof out->sizes);
    return true;
}

static bool shape_flatten(const fb_shape_call *call, fb_type *out) {
    int start, end;
    if (!first_tensor_of(call, out)) return false;
    if (out->rank == 0) return insert_dim(out, 0, fb_dim_of(1));
    if (!fb_option_axis(call, "start_dim", call->is_module ? 1 : 0, out->rank, &start)) return false;
    if (!fb_option_axis(call, "end_dim", -1, out->rank, &end) || end < start) return false;
    fb_dim joined = fb_dim_of(-1);
    if (!fill_in_missing(out->sizes + start, end - start + 1, &joined, 1)) return false;
    out->sizes[start] = joined;
    while (end-- > start) erase_dim(out, start + 1);
    return true;
}

static bool shape_unflatten(const fb_shape_call *call, fb_type *out) {
    fb_sizes sizes;
    int axis;
    fb_value value = fb_option(call, call->is_module ? "unflattened_size" : "sizes");
    if (!first_tensor_of(call, out) || !fb_option_axis(call, "dim", 0, out->rank, &axis)) return false;
    if (!value.id || !fb_evaluate_sizes(call->graph, value, &sizes) || !sizes.is_sequence || sizes.count == 0) return false;
    if (!fill_in_missing(out->sizes + axis, 1, sizes.items, sizes.count)) return false;
    out->sizes[axis] = sizes.items[0];
    for (int i = 1; i < sizes.count; i++) {
        if (!insert_dim(out, axis + i, sizes.items[i])) return false;
    }
    return true;
}

static bool shape_expand(const fb_shape_call *call, fb_type *out) {
    fb_type from;
    fb_sizes sizes;
    if (!first_tensor_of(call, &from) || !fb_sizes_named(call, "size", &sizes) || sizes.count < from.rank) return false;
    int shift = sizes.count - from.rank;
    for (int i = 0; i < sizes.count; i++) {
        out->sizes[i] = sizes.items[i];
        if (!fb_dim_is(sizes.items[i], -1)) continue;
        if (i < shift) return false;
        out->sizes[i] = from.sizes[i - shift];
    }
    out->rank = sizes.count;
    return true;
}

static bool shape_repeat(const fb_shape_call *call, fb_type *out) {
    fb_sizes repeats;
    if (!first_tensor_of(call, out) || !fb_sizes_named(call, "repeats", &repeats) || repeats.count < out->rank) return false;
    while (out->rank < repeats.count) {
        if (!insert_dim(out, 0, fb_dim_of(1))) return false;
    }
    for (int i = 0; i < out->rank; i++) {
        fb_dim *size = &out->sizes[i];
        if (fb_dim_is(repeats.items[i], 1)) continue;
        if (fb_dim_is(*size, 1)) *size = repeats.items[i];
        else if (size->symbol.id || repeats.items[i].symbol.id) return false;
        else if (__builtin_mul_overflow(size->size, repeats.items[i].size, &size->size)) return false;
    }
    return true;
}

/* ---- permuting ------------------------------------------------------------------------------------------------------- */

static bool shape_permute(const fb_shape_call *call, fb_type *out) {
    fb_type from;
    fb_sizes dims;
    if (!first_tensor_of(call, &from) || !fb_sizes_named(call, "dims", &dims) || dims.count != from.rank) return false;
    for (int i = 0; i < from.rank; i++) {
        int axis;
        if (dims.items[i].symbol.id || !fb_normalise_axis(dims.items[i].size, from.rank, &axis)) return false;
        out->sizes[i] = from.sizes[axis];
    }
    out->rank = from.rank;
    return true;
}

static void swap_dims(fb_type *type, int a, int b) {
    fb_dim kept = type->sizes[a];
    type->sizes[a] = type->sizes[b];
    type->sizes[b] = kept;
}

static bool shape_transpose(const fb_shape_call *call, fb_type *out) {
    int a, b;
    if (!fb_call_argument(call->graph, call->node, "dim0").id || !fb_call_argument(call->graph, call->node, "dim1").id) {
        return false;
    }
    if (!first_tensor_of(call, out) || out->rank == 0) return false;
    if (!fb_option_axis(call, "dim0", 0, out->rank, &a) || !fb_option_axis(call, "dim1", 0, out->rank, &b)) return false;
    swap_dims(out, a, b);
    return true;
}

static bool shape_matrix_transpose(const fb_shape_call *call, fb_type *out) {
    if (!first_tensor_of(call, out) || out->rank > 2) return false;
    if (out->rank == 2) swap_dims(out, 0, 1);
    return true;
}

static bool shape_movedim(const fb_shape_call *call, fb_type *out) {
    int from, to;
    if (!fb_call_argument(call->graph, call->node, "destination").id || !first_tensor_of(call, out)) return false;
    if (!fb_option_axis(call, "source", 0, out->rank, &from) || !fb_option_axis(call, "destination", 0, out->rank, &to)) {
        return false;
    }
    fb_dim moved = out->sizes[from];
    erase_dim(out, from);
    return insert_dim(out, to, moved);
}

static bool shape_attribute(const fb_shape_call *call, fb_type *out) {
    fb_value name = fb_node_arg(call->graph, call->node, 1);
    fb_type from;
    if (!name.id || fb_value_kind(call->graph, name) != FB_STRING || !first_tensor_of(call, &from)) return false;
    const char *text = fb_value_text(call->graph, name);
    bool is_matrix = strcmp(text, "mT") == 0 && from.rank >= 2;
    if (is_matrix) swap_dims(&from, from.rank - 2, from.rank - 1);
    bool is_reversed = strcmp(text, "T") == 0;
    for (int i = 0; is_reversed && i < from.rank / 2; i++) swap_dims(&from, i, from.rank - 1 - i);
    if (!is_matrix && !is_reversed && strcmp(text, "data") != 0) return false;
    *out = from;
    return true;
}

static bool shape_unsqueeze(const fb_shape_call *call, fb_type *out) {
    int axis;
    if (!fb_call_argument(call->graph, call->node, "dim").id || !first_tensor_of(call, out)) return false;
    return fb_option_axis(call, "dim", 0, out->rank + 1, &axis) && insert_dim(out, axis, fb_dim_of(1));
}

static bool shape_squeeze(const fb_shape_call *call, fb_type *out) {
    fb_sizes dims;
    if (!first_tensor_of(call, out)) return false;
    fb_value value = fb_call_argument(call->graph, call->node, "dim");
    bool is_all = !value.id;
    if (!is_all && !fb_evaluate_sizes(call->graph, value, &dims)) return false;
    bool is_chosen[FB_MAX_RANK] = {false};
    for (int i = 0; !is_all && i < dims.count; i++) {
        int axis;
        if (dims.items[i].symbol.id || !fb_normalise_axis(dims.items[i].size, out->rank, &axis)) return false;
        is_chosen[axis] = true;
    }
    for (int i = out->rank - 1; i >= 0; i--) {
        if (!is_all && !is_chosen[i]) continue;
        if (out->sizes[i].symbol.id) return false;
        if (out->sizes[i].size == 1) erase_dim(out, i);
    }
    return true;
}

/* ---- indexing -------------------------------------------------------------------------------------------------------- */

/* An end of a slice, clipped as Python clips it. */
static bool read_end(const fb_graph *graph, fb_value value, int64_t fallback, int64_t size, int64_t *out) {
    *out = fallback;
    if (fb_is_absent(graph, value)) return true;
    int64_t at;
    if (!fb_evaluate_int(graph, value, &at)) return false;
    if (at < 0) at += size;
    *out = at < 0 ? 0 : at > size ? size : at;
    return true;
}

/* The size that a slice leaves. A symbolic size stays when all of it is taken. */
static bool slice_dim(const fb_graph *graph, fb_value start, fb_value stop, fb_value step, fb_dim *dim) {
    int64_t by = 1, from, to;
    if (!fb_is_absent(graph, step) && (!fb_evaluate_int(graph, step, &by) || by < 1)) return false;
    if (dim->symbol.id) {
        bool from_start = fb_is_absent(graph, start) || (fb_evaluate_int(graph, start, &from) && from == 0);
        bool to_end = fb_is_absent(graph, stop) || (fb_evaluate_int(graph, stop, &to) && to == INT64_MAX);
        return from_start && to_end && by == 1;
    }
    if (!read_end(graph, start, 0, dim->size, &from) || !read_end(graph, stop, dim->size, dim->size, &to)) return false;
    dim->size = to > from ? (to - from - 1) / by + 1 : 0;
    return true;
}

static bool shape_slice(const fb_shape_call *call, fb_type *out) {
    int axis;
    if (!first_tensor_of(call, out) || !fb_option_axis(call, "dim", 0, out->rank, &axis)) return false;
    return slice_dim(call->graph, fb_option(call, "start"), fb_option(call, "end"), fb_option(call, "step"), &out->sizes[axis]);
}

static bool shape_narrow(const fb_shape_call *call, fb_type *out) {
    int axis;
    int64_t length;
    if (!first_tensor_of(call, out) || !fb_option_axis(call, "dim", 0, out->rank, &axis)) return false;
    if (!fb_option_int(call, "length", -1, &length) || length < 0) return false;
    out->sizes[axis] = fb_dim_of(length);
    return true;
}

static bool shape_select_index(const fb_shape_call *call, fb_type *out) {
    int axis;
    if (!first_tensor_of(call, out) || !fb_option_axis(call, "dim", 0, out->rank, &axis)) return false;
    erase_dim(out, axis);
    return true;
}

bool fb_is_split(const fb_graph *graph, fb_node node) {
    if (!node.id) return false;
    fb_op op = fb_node_op(graph, node);
    return op == FB_OP_SPLIT || op == FB_OP_CHUNK || op == FB_OP_SPLIT_WITH_SIZES;
}

/* Piece `index` of torch.split, where `size` elements go to each but the last. */
static bool even_piece(int64_t whole, int64_t size, int64_t index, int64_t *out) {
    if (size <= 0 || index < 0 || index > whole / size) return false;
    int64_t left = whole - index * size;
    *out = left < size ? left : size;
    return *out > 0;
}

static bool piece_size(const fb_shape_call *split, int64_t whole, int64_t index, int64_t *out) {
    fb_sizes sizes;
    const char *parameter = split->op == FB_OP_SPLIT ? "split_size_or_sections" : "split_sizes";
    if (split->op == FB_OP_CHUNK) {
        int64_t chunks;
        if (!fb_option_int(split, "chunks", 0, &chunks) || chunks < 1) return false;
        return even_piece(whole, whole / chunks + (whole % chunks != 0), index, out);
    }
    fb_value value = fb_call_argument(split->graph, split->node, parameter);
    if (!value.id) value = fb_call_argument(split->graph, split->node, "split_size");
    if (!value.id || !fb_evaluate_sizes(split->graph, value, &sizes)) return false;
    int position;
    if (!sizes.is_sequence) return split->op == FB_OP_SPLIT && even_piece(whole, sizes.items[0].size, index, out);
    if (!fb_normalise_axis(index, sizes.count, &position) || sizes.items[position].symbol.id) return false;
    *out = sizes.items[position].size;
    return true;
}

static bool take_piece(const fb_shape_call *call, fb_node from, fb_type *out) {
    fb_shape_call split = {call->graph, from, fb_node_op(call->graph, from), false};
    out->dtype = fb_operand_of(call->graph, fb_first_argument(call->graph, from)).type.dtype;
    const char *target = fb_node_target(call->graph, from);
    int64_t index;
    int axis;
    if (strstr(target, "tensor_split")) return false; /* sections or indices: another rule */
    if (!fb_evaluate_int(call->graph, fb_node_arg(call->graph, call->node, 1), &index)) return false;
    if (!first_tensor_of(&split, out) || !fb_option_axis(&split, "dim", 0, out->rank, &axis)) return false;
    return !out->sizes[axis].symbol.id && piece_size(&split, out->sizes[axis].size, index, &out->sizes[axis].size);
}

/* Ints remove a dimension, None adds one, slices shorten one, `...` skips. Tensors, lists and bools as indices: unknown. */
static bool index_once(const fb_shape_call *call, fb_value index, int skipped, int *axis, fb_type *out) {
    const fb_value_row *row = fb_value_at(call->graph, index);
    int64_t ignored;
    switch (row->kind) {
    case FB_NONE: return insert_dim(out, (*axis)++, fb_dim_of(1));
    case FB_ELLIPSIS: *axis += skipped; return true;
    case FB_SLICE:
        if (*axis >= out->rank) return false;
        return slice_dim(call->graph, row->items[0], row->items[1], row->items[2], &out->sizes[(*axis)++]);
    case FB_INT:
    case FB_NODE:
        if (*axis >= out->rank || !fb_evaluate_int(call->graph, index, &ignored)) return false;
        erase_dim(out, *axis);
        return true;
    default: return false;
    }
}

static bool shape_getitem(const fb_shape_call *call, fb_type *out) {
    const fb_graph *graph = call->graph;
    fb_value index = fb_node_arg(graph, call->node, 1);
    fb_node from = fb_arg_node(graph, call->node, 0);
    if (!index.id) return false;
    if (fb_is_split(graph, from)) return take_piece(call, from, out);
    out->dtype = fb_operand_of(graph, fb_node_arg(graph, call->node, 0)).type.dtype;
    if (!first_tensor_of(call, out)) return false;
    const fb_value_row *row = fb_value_at(graph, index);
    bool is_tuple = row->kind == FB_TUPLE;
    uint32_t count = is_tuple ? row->count : 1;
    int consumed = 0, axis = 0;
    for (uint32_t i = 0; i < count; i++) {
        fb_kind kind = fb_value_kind(graph, is_tuple ? row->items[i] : index);
        consumed += kind != FB_NONE && kind != FB_ELLIPSIS;
    }
    if (consumed > out->rank) return false;
    int skipped = out->rank - consumed;
    for (uint32_t i = 0; i < count; i++) {
        if (!index_once(call, is_tuple ? row->items[i] : index, skipped, &axis, out)) return false;
    }
    return true;
}

/* ---- linear, embedding, attention ------------------------------------------------------------------------------------ */

static bool shape_linear(const fb_shape_call *call, fb_type *out) {
    fb_type weight;
    if (!tensor_named(call, "input", out) || !tensor_named(call, "weight", &weight)) return false;
    if (out->rank < 1 || weight.rank < 1 || weight.rank > 2) return false;
    fb_dim features = out->sizes[out->rank - 1]; /* where they are a symbol, the weight has them */
    if (!features.symbol.id && !fb_dim_equal(features, weight.sizes[weight.rank - 1])) return false;
    if (weight.rank == 1) erase_dim(out, out->rank - 1);
    else out->sizes[out->rank - 1] = weight.sizes[0];
    return true;
}

/* Two numbers in a byte. */
static bool shape_int4pack(const fb_shape_call *call, fb_type *out) {
    if (!tensor_named(call, "input", out) || out->rank != 2 || out->sizes[1].symbol.id || out->sizes[1].size % 2) return false;
    out->sizes[1].size /= 2;
    out->dtype = FB_UINT8;
    return true;
}

static bool shape_int4pack_mm(const fb_shape_call *call, fb_type *out) {
    fb_type weight;
    if (!tensor_named(call, "input", out) || !tensor_named(call, "weight", &weight)) return false;
    if (out->rank != 2 || weight.rank != 2) return false;
    out->sizes[1] = weight.sizes[0];
    return true;
}

static bool shape_bilinear(const fb_shape_call *call, fb_type *out) {
    fb_type weight;
    if (!tensor_named(call, "input1", out) || !tensor_named(call, "weight", &weight)) return false;
    if (out->rank < 1 || weight.rank != 3) return false;
    out->sizes[out->rank - 1] = weight.sizes[0];
    return true;
}

static bool shape_embedding(const fb_shape_call *call, fb_type *out) {
    fb_type weight;
    bool has_indices = tensor_named(call, "indices", out) || tensor_named(call, "input", out);
    if (!has_indices || !tensor_named(call, "weight", &weight) || weight.rank != 2) return false;
    return insert_dim(out, out->rank, weight.sizes[1]);
}

static bool shape_attention(const fb_shape_call *call, fb_type *out) {
    fb_type value;
    if (!tensor_named(call, "query", out) || !tensor_named(call, "value", &value)) return false;
    if (out->rank < 2 || value.rank != out->rank) return false;
    out->sizes[out->rank - 1] = value.sizes[value.rank - 1];
    return true;
}

static bool shape_glu(const fb_shape_call *call, fb_type *out) {
    int axis;
    if (!first_tensor_of(call, out) || !fb_option_axis(call, "dim", -1, out->rank, &axis)) return false;
    if (out->sizes[axis].symbol.id || out->sizes[axis].size % 2) return false;
    out->sizes[axis].size /= 2;
    return true;
}

static bool shape_pad(const fb_shape_call *call, fb_type *out) {
    fb_sizes pad;
    fb_value value = fb_option(call, "pad");
    if (!value.id) value = fb_option(call, "padding");
    if (!value.id || !fb_evaluate_sizes(call->graph, value, &pad) || !pad.is_sequence || pad.count % 2) return false;
    if (!first_tensor_of(call, out) || pad.count / 2 > out->rank) return false;
    for (int i = 0; i < pad.count; i++) {
        fb_dim *size = &out->sizes[out->rank - 1 - i / 2];
        if (fb_dim_is(pad.items[i], 0)) continue;
        if (size->symbol.id || pad.items[i].symbol.id) return false;
        if (__builtin_add_overflow(size->size, pad.items[i].size, &size->size) || size->size < 0) return false;
    }
    return true;
}

/* ---- windows --------------------------------------------------------------------------------------------------------- */

/* Sizes beyond this are not from a real network, and arithmetic on them could overflow. */
static const int64_t reasonable = (int64_t)1 << 40;

typedef struct window {
    int64_t kernel, stride, padding, dilation, output_padding;
    bool is_ceil;
} window;

static bool is_reasonable(const window *w) {
    return w->kernel > 0 && w->stride > 0 && w->dilation > 0 && w->padding >= 0 && w->output_padding >= 0 &&
           w->kernel < INT32_MAX && w->stride < INT32_MAX && w->dilation < 256 && w->padding < INT32_MAX;
}

static bool slide(const window *w, fb_dim *size) {
    if (size->symbol.id || size->size > reasonable || !is_reasonable(w)) return false;
    int64_t span = size->size + 2 * w->padding - w->dilation * (w->kernel - 1) - 1;
    if (span < 0) return false;
    int64_t count = span / w->stride + 1;
    if (w->is_ceil && span % w->stride) {
        count++;
        if ((count - 1) * w->stride >= size->size + w->padding) count--; /* the last window must begin inside */
    }
    size->size = count;
    return true;
}

static bool slide_back(const window *w, fb_dim *size) {
    if (size->symbol.id || size->size > reasonable || size->size < 1 || !is_reasonable(w)) return false;
    int64_t count;
    if (__builtin_mul_overflow(size->size - 1, w->stride, &count)) return false;
    count += w->dilation * (w->kernel - 1) + 1 - 2 * w->padding + w->output_padding;
    if (count < 1) return false;
    size->size = count;
    return true;
}

static bool read_windows(const fb_shape_call *call, int count, window *windows) {
    int64_t stride[3], padding[3], dilation[3], output_padding[3];
    if (!fb_option_ints(call, "stride", 1, count, stride) || !fb_option_ints(call, "padding", 0, count, padding)) return false;
    if (!fb_option_ints(call, "dilation", 1, count, dilation)) return false;
    if (!fb_option_ints(call, "output_padding", 0, count, output_padding)) return false;
    for (int i = 0; i < count; i++) {
        windows[i] =
            (window){.stride = stride[i], .padding = padding[i], .dilation = dilation[i], .output_padding = output_padding[i]};
    }
    return true;
}

/* ---- convolution ----------------------------------------------------------------------------------------------------- */

/* "valid" pads nothing; "same" (stride 1) keeps the size. Otherwise ints. */
typedef enum padding_kind { PADDING_INTS, PADDING_VALID, PADDING_SAME } padding_kind;

static padding_kind padding_of(const fb_shape_call *call) {
    fb_value value = fb_option(call, "padding");
    if (!value.id || fb_value_kind(call->graph, value) != FB_STRING) return PADDING_INTS;
    return strcmp(fb_value_text(call->graph, value), "same") == 0 ? PADDING_SAME : PADDING_VALID;
}

static bool read_conv_windows(const fb_shape_call *call, int count, window *windows) {
    padding_kind kind = padding_of(call);
    if (kind == PADDING_INTS) return read_windows(call, count, windows);
    int64_t stride[3], dilation[3];
    if (!fb_option_ints(call, "stride", 1, count, stride) || !fb_option_ints(call, "dilation", 1, count, dilation))
        return false;
    for (int i = 0; i < count; i++) windows[i] = (window){.stride = stride[i], .dilation = dilation[i]};
    return true;
}

/* Input (N, C, …) or (C, …), weight of `spatial` + 2 dimensions, groups. */
static bool read_conv(const fb_shape_call *call, int spatial, fb_type *out, fb_type *weight, int64_t *groups) {
    if (!tensor_named(call, "input", out) || !tensor_named(call, "weight", weight)) return false;
    if (weight->rank != spatial + 2 || (out->rank != spatial + 2 && out->rank != spatial + 1)) return false;
    return fb_option_int(call, "groups", 1, groups) && *groups > 0;
}

static bool shape_convolution(const fb_shape_call *call, fb_type *out) {
    int spatial = fb_op_facts_of(call->op)->spatial;
    fb_type weight;
    window windows[3];
    int64_t groups, channels;
    if (!read_conv(call, spatial, out, &weight, &groups) || !read_conv_windows(call, spatial, windows)) return false;
    int first = out->rank - spatial;
    if (__builtin_mul_overflow(weight.sizes[1].size, groups, &channels)) return false;
    if (!fb_dim_is(out->sizes[first - 1], channels)) return false;
    out->sizes[first - 1] = weight.sizes[0];
    if (padding_of(call) == PADDING_SAME) return true;
    for (int i = 0; i < spatial; i++) {
        windows[i].kernel = weight.sizes[2 + i].size;
        if (!slide(&windows[i], &out->sizes[first + i])) return false;
    }
    return true;
}

static bool shape_transposed_convolution(const fb_shape_call *call, fb_type *out) {
    int spatial = fb_op_facts_of(call->op)->spatial;
    fb_type weight;
    window windows[3];
    int64_t groups, channels;
    fb_value output_size = call->is_module ? fb_call_argument(call->graph, call->node, "output_size") : (fb_value){0};
    if (!fb_is_absent(call->graph, output_size)) return false;
    if (!read_conv(call, spatial, out, &weight, &groups) || !read_windows(call, spatial, windows)) return false;
    int first = out->rank - spatial;
    if (!fb_dim_equal(out->sizes[first - 1], weight.sizes[0])) return false;
    if (__builtin_mul_overflow(weight.sizes[1].size, groups, &channels)) return false;
    out->sizes[first - 1] = fb_dim_of(channels);
    for (int i = 0; i < spatial; i++) {
        windows[i].kernel = weight.sizes[2 + i].size;
        if (!slide_back(&windows[i], &out->sizes[first + i])) return false;
    }
    return true;
}

/* aten.convolution: the number of dimensions is the weight's, and an argument may say that it is transposed. */
static bool shape_any_convolution(const fb_shape_call *call, fb_type *out) {
    static const fb_op plain[] = {FB_OP_CONV1D, FB_OP_CONV2D, FB_OP_CONV3D};
    static const fb_op transposed[] = {FB_OP_CONV_TRANSPOSE1D, FB_OP_CONV_TRANSPOSE2D, FB_OP_CONV_TRANSPOSE3D};
    fb_type weight;
    fb_value flag = fb_call_argument(call->graph, call->node, "transposed");
    fb_kind kind = flag.id ? fb_value_kind(call->graph, flag) : FB_NONE;
    if (!tensor_named(call, "weight", &weight)) return false;
    unsigned spatial = (unsigned)weight.rank - 3;
    if (spatial > 2) return false;
    fb_shape_call now = *call;
    now.op = (kind == FB_TRUE ? transposed : plain)[spatial];
    if (kind == FB_TRUE) return shape_transposed_convolution(&now, out);
    return (!flag.id || kind == FB_FALSE) && shape_convolution(&now, out);
}

/* ---- pooling --------------------------------------------------------------------------------------------------------- */

static bool pool(const fb_shape_call *call, bool has_dilation, fb_type *out) {
    int spatial = fb_op_facts_of(call->op)->spatial;
    window windows[3];
    int64_t kernel[3], stride[3], ones[3] = {1, 1, 1};
    if (!first_tensor_of(call, out) || (out->rank != spatial + 1 && out->rank != spatial + 2)) return false;
    if (!fb_option_ints(call, "kernel_size", 0, spatial, kernel)) return false;
    fb_value given = fb_option(call, "stride");
    fb_kind kind = given.id ? fb_value_kind(call->graph, given) : FB_NONE;
    bool is_kernel = kind == FB_NONE || ((kind == FB_LIST || kind == FB_TUPLE) && fb_value_at(call->graph, given)->count == 0);
    memcpy(stride, kernel, sizeof stride);
    if (!is_kernel && !fb_option_ints(call, "stride", 1, spatial, stride)) return false;
    int64_t padding[3], *dilation = ones, given_dilation[3];
    if (!fb_option_ints(call, "padding", 0, spatial, padding)) return false;
    if (has_dilation) {
        if (!fb_option_ints(call, "dilation", 1, spatial, given_dilation)) return false;
        dilation = given_dilation;
    }
    for (int i = 0; i < spatial; i++) {
        windows[i] = (window){kernel[i], stride[i], padding[i], dilation[i], 0, fb_option_is_set(call, "ceil_mode")};
        if (!slide(&windows[i], &out->sizes[out->rank - spatial + i])) return false;
    }
    return true;
}

static bool shape_max_pool(const fb_shape_call *call, fb_type *out) {
    return pool(call, true, out);
}

static bool shape_any_max_pool(const fb_shape_call *call, fb_type *out) {
    fb_shape_call now = *call;
    bool is_flat = strstr(fb_node_target(call->graph, call->node), "max_pool2d") != NULL;
    now.op = is_flat ? FB_OP_MAX_POOL2D : FB_OP_MAX_POOL3D;
    return shape_max_pool(&now, out);
}

static bool shape_average_pool(const fb_shape_call *call, fb_type *out) {
    return pool(call, false, out);
}

/* output_size: an int, or a sequence whose None keeps the input's size. */
static bool adaptive_pool(const fb_shape_call *call, int spatial, fb_type *out) {
    fb_value size = fb_option(call, "output_size");
    if (!size.id || !first_tensor_of(call, out) || out->rank < spatial + 1) return false;
    const fb_value_row *row = fb_value_at(call->graph, size);
    bool is_sequence = row->kind == FB_LIST || row->kind == FB_TUPLE || row->kind == FB_SIZE;
    if (is_sequence && row->count != (uint32_t)spatial) return false;
    for (int i = 0; i < spatial; i++) {
        fb_value one = is_sequence ? row->items[i] : size;
        if (fb_value_kind(call->graph, one) == FB_NONE) continue;
        if (!fb_evaluate_size(call->graph, one, &out->sizes[out->rank - spatial + i])) return false;
    }
    return true;
}

static bool shape_adaptive_pool1(const fb_shape_call *call, fb_type *out) {
    return adaptive_pool(call, 1, out);
}

static bool shape_adaptive_pool2(const fb_shape_call *call, fb_type *out) {
    return adaptive_pool(call, 2, out);
}

static bool shape_adaptive_pool3(const fb_shape_call *call, fb_type *out) {
    return adaptive_pool(call, 3, out);
}

fb_shape_function *const fb_shape_rules[] = {
    [FB_SHAPE_UNKNOWN] = NULL,
#define FB_SHAPE_RULE(id, function) [FB_SHAPE_##id] = shape_##function,
#include "core/operators/shapes.def"
#undef FB_SHAPE_RULE
};
