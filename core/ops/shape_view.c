/* Shape rules of views and of other movements of one tensor's dimensions. */
#include <string.h>

#include "core/ops/shape.h"

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

bool fb_shape_view(const fb_call *call, fb_type *out) {
    fb_type from;
    fb_sizes sizes;
    fb_value first_size = fb_node_arg(call->graph, call->node, 1);
    if (first_size.id && fb_value_kind(call->graph, first_size) == FB_DTYPE) return false; /* view(dtype) */
    out->dtype = fb_operand_of(call->graph, fb_first_argument(call->graph, call->node)).type.dtype;
    if (!fb_sizes_named(call, "size", &sizes) && !fb_sizes_named(call, "shape", &sizes)) return false;
    bool is_complete = true;
    for (int i = 0; i < sizes.count; i++) is_complete &= !fb_dim_is(sizes.items[i], -1);
    if (fb_first_tensor_of(call, &from)) {
        if (!fill_in_missing(from.sizes, from.rank, sizes.items, sizes.count)) return false;
    } else if (!is_complete) {
        return false;
    }
    out->rank = sizes.count;
    memcpy(out->sizes, sizes.items, sizeof out->sizes);
    return true;
}

bool fb_shape_flatten(const fb_call *call, fb_type *out) {
    int start, end;
    if (!fb_first_tensor_of(call, out)) return false;
    if (out->rank == 0) return fb_insert_dim(out, 0, fb_dim_of(1));
    if (!fb_option_axis(call, "start_dim", call->is_module ? 1 : 0, out->rank, &start)) return false;
    if (!fb_option_axis(call, "end_dim", -1, out->rank, &end) || end < start) return false;
    fb_dim joined = fb_dim_of(-1);
    if (!fill_in_missing(out->sizes + start, end - start + 1, &joined, 1)) return false;
    out->sizes[start] = joined;
    while (end-- > start) fb_erase_dim(out, start + 1);
    return true;
}

bool fb_shape_unflatten(const fb_call *call, fb_type *out) {
    fb_sizes sizes;
    int axis;
    fb_value value = fb_option(call, call->is_module ? "unflattened_size" : "sizes");
    if (!fb_first_tensor_of(call, out) || !fb_option_axis(call, "dim", 0, out->rank, &axis)) return false;
    if (!value.id || !fb_evaluate_sizes(call->graph, value, &sizes) || !sizes.is_sequence || sizes.count == 0) return false;
    if (!fill_in_missing(out->sizes + axis, 1, sizes.items, sizes.count)) return false;
    out->sizes[axis] = sizes.items[0];
    for (int i = 1; i < sizes.count; i++) {
        if (!fb_insert_dim(out, axis + i, sizes.items[i])) return false;
    }
    return true;
}

bool fb_shape_expand(const fb_call *call, fb_type *out) {
    fb_type from;
    fb_sizes sizes;
    if (!fb_first_tensor_of(call, &from) || !fb_sizes_named(call, "size", &sizes) || sizes.count < from.rank) return false;
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

bool fb_shape_repeat(const fb_call *call, fb_type *out) {
    fb_sizes repeats;
    if (!fb_first_tensor_of(call, out) || !fb_sizes_named(call, "repeats", &repeats) || repeats.count < out->rank) return false;
    while (out->rank < repeats.count) {
        if (!fb_insert_dim(out, 0, fb_dim_of(1))) return false;
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

bool fb_shape_permute(const fb_call *call, fb_type *out) {
    fb_type from;
    fb_sizes dims;
    if (!fb_first_tensor_of(call, &from) || !fb_sizes_named(call, "dims", &dims) || dims.count != from.rank) return false;
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

bool fb_shape_transpose(const fb_call *call, fb_type *out) {
    int a, b;
    if (!fb_call_argument(call->graph, call->node, "dim0").id || !fb_call_argument(call->graph, call->node, "dim1").id) {
        return false;
    }
    if (!fb_first_tensor_of(call, out) || out->rank == 0) return false;
    if (!fb_option_axis(call, "dim0", 0, out->rank, &a) || !fb_option_axis(call, "dim1", 0, out->rank, &b)) return false;
    swap_dims(out, a, b);
    return true;
}

bool fb_shape_matrix_transpose(const fb_call *call, fb_type *out) {
    if (!fb_first_tensor_of(call, out) || out->rank > 2) return false;
    if (out->rank == 2) swap_dims(out, 0, 1);
    return true;
}

bool fb_shape_movedim(const fb_call *call, fb_type *out) {
    int from, to;
    if (!fb_call_argument(call->graph, call->node, "destination").id || !fb_first_tensor_of(call, out)) return false;
    if (!fb_option_axis(call, "source", 0, out->rank, &from) || !fb_option_axis(call, "destination", 0, out->rank, &to)) {
        return false;
    }
    fb_dim moved = out->sizes[from];
    fb_erase_dim(out, from);
    return fb_insert_dim(out, to, moved);
}

bool fb_shape_attribute(const fb_call *call, fb_type *out) {
    fb_value name = fb_node_arg(call->graph, call->node, 1);
    fb_type from;
    if (!name.id || fb_value_kind(call->graph, name) != FB_STRING || !fb_first_tensor_of(call, &from)) return false;
    const char *text = fb_value_text(call->graph, name);
    bool is_matrix = strcmp(text, "mT") == 0 && from.rank >= 2;
    if (is_matrix) swap_dims(&from, from.rank - 2, from.rank - 1);
    bool is_reversed = strcmp(text, "T") == 0;
    for (int i = 0; is_reversed && i < from.rank / 2; i++) swap_dims(&from, i, from.rank - 1 - i);
    if (!is_matrix && !is_reversed && strcmp(text, "data") != 0) return false;
    *out = from;
    return true;
}

bool fb_shape_unsqueeze(const fb_call *call, fb_type *out) {
    int axis;
    if (!fb_call_argument(call->graph, call->node, "dim").id || !fb_first_tensor_of(call, out)) return false;
    return fb_option_axis(call, "dim", 0, out->rank + 1, &axis) && fb_insert_dim(out, axis, fb_dim_of(1));
}

bool fb_shape_squeeze(const fb_call *call, fb_type *out) {
    fb_sizes dims;
    if (!fb_first_tensor_of(call, out)) return false;
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
        if (out->sizes[i].size == 1) fb_erase_dim(out, i);
    }
    return true;
}

/* ---- indexing -------------------------------------------------------------------------------------------------------- */

static bool is_none(const fb_graph *graph, fb_value value) {
    return !value.id || fb_value_kind(graph, value) == FB_NONE;
}

/* An end of a slice, clipped as Python clips it. */
static bool read_end(const fb_graph *graph, fb_value value, int64_t fallback, int64_t size, int64_t *out) {
    *out = fallback;
    if (is_none(graph, value)) return true;
    int64_t at;
    if (!fb_evaluate_int(graph, value, &at)) return false;
    if (at < 0) at += size;
    *out = at < 0 ? 0 : at > size ? size : at;
    return true;
}

/* The size that a slice leaves. A symbolic size stays when all of it is taken. */
static bool slice_dim(const fb_graph *graph, fb_value start, fb_value stop, fb_value step, fb_dim *dim) {
    int64_t by = 1, from, to;
    if (!is_none(graph, step) && (!fb_evaluate_int(graph, step, &by) || by < 1)) return false;
    if (dim->symbol.id) {
        bool from_start = is_none(graph, start) || (fb_evaluate_int(graph, start, &from) && from == 0);
        bool to_end = is_none(graph, stop) || (fb_evaluate_int(graph, stop, &to) && to == INT64_MAX);
        return from_start && to_end && by == 1;
    }
    if (!read_end(graph, start, 0, dim->size, &from) || !read_end(graph, stop, dim->size, dim->size, &to)) return false;
    dim->size = to > from ? (to - from - 1) / by + 1 : 0;
    return true;
}

bool fb_shape_slice(const fb_call *call, fb_type *out) {
    int axis;
    if (!fb_first_tensor_of(call, out) || !fb_option_axis(call, "dim", 0, out->rank, &axis)) return false;
    return slice_dim(call->graph, fb_option(call, "start"), fb_option(call, "end"), fb_option(call, "step"), &out->sizes[axis]);
}

bool fb_shape_narrow(const fb_call *call, fb_type *out) {
    int axis;
    int64_t length;
    if (!fb_first_tensor_of(call, out) || !fb_option_axis(call, "dim", 0, out->rank, &axis)) return false;
    if (!fb_option_int(call, "length", -1, &length) || length < 0) return false;
    out->sizes[axis] = fb_dim_of(length);
    return true;
}

bool fb_shape_select_index(const fb_call *call, fb_type *out) {
    int axis;
    if (!fb_first_tensor_of(call, out) || !fb_option_axis(call, "dim", 0, out->rank, &axis)) return false;
    fb_erase_dim(out, axis);
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

static bool piece_size(const fb_call *split, int64_t whole, int64_t index, int64_t *out) {
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

static bool take_piece(const fb_call *call, fb_node from, fb_type *out) {
    fb_call split = {call->graph, from, fb_node_op(call->graph, from), false};
    out->dtype = fb_operand_of(call->graph, fb_first_argument(call->graph, from)).type.dtype;
    const char *target = fb_node_target(call->graph, from);
    int64_t index;
    int axis;
    if (strstr(target, "tensor_split")) return false; /* sections or indices: another rule */
    if (!fb_evaluate_int(call->graph, fb_node_arg(call->graph, call->node, 1), &index)) return false;
    if (!fb_first_tensor_of(&split, out) || !fb_option_axis(&split, "dim", 0, out->rank, &axis)) return false;
    return !out->sizes[axis].symbol.id && piece_size(&split, out->sizes[axis].size, index, &out->sizes[axis].size);
}

/* Ints remove a dimension, None adds one, slices shorten one, `...` skips. Tensors, lists and bools as indices: unknown. */
static bool index_once(const fb_call *call, fb_value index, int skipped, int *axis, fb_type *out) {
    const fb_value_row *row = fb_value_at(call->graph, index);
    int64_t ignored;
    switch (row->kind) {
    case FB_NONE: return fb_insert_dim(out, (*axis)++, fb_dim_of(1));
    case FB_ELLIPSIS: *axis += skipped; return true;
    case FB_SLICE:
        if (*axis >= out->rank) return false;
        return slice_dim(call->graph, row->items[0], row->items[1], row->items[2], &out->sizes[(*axis)++]);
    case FB_INT:
    case FB_NODE:
        if (*axis >= out->rank || !fb_evaluate_int(call->graph, index, &ignored)) return false;
        fb_erase_dim(out, *axis);
        return true;
    default: return false;
    }
}

bool fb_shape_getitem(const fb_call *call, fb_type *out) {
    const fb_graph *graph = call->graph;
    fb_value index = fb_node_arg(graph, call->node, 1);
    fb_node from = fb_value_node(graph, fb_node_arg(graph, call->node, 0));
    if (!index.id) return false;
    if (fb_is_split(graph, from)) return take_piece(call, from, out);
    out->dtype = fb_operand_of(graph, fb_node_arg(graph, call->node, 0)).type.dtype;
    if (!fb_first_tensor_of(call, out)) return false;
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
