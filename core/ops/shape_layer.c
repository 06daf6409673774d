/* Shape rules of layers: linear, convolution, pooling, embedding, attention, padding. */
#include <string.h>

#include "core/ops/shape.h"

/* ---- linear, embedding, attention ------------------------------------------------------------------------------------ */

bool fb_shape_linear(const fb_call *call, fb_type *out) {
    fb_type weight;
    if (!fb_tensor_named(call, "input", out) || !fb_tensor_named(call, "weight", &weight)) return false;
    if (out->rank < 1 || weight.rank < 1 || weight.rank > 2) return false;
    if (!fb_dim_equal(out->sizes[out->rank - 1], weight.sizes[weight.rank - 1])) return false;
    if (weight.rank == 1) fb_erase_dim(out, out->rank - 1);
    else out->sizes[out->rank - 1] = weight.sizes[0];
    return true;
}

bool fb_shape_bilinear(const fb_call *call, fb_type *out) {
    fb_type weight;
    if (!fb_tensor_named(call, "input1", out) || !fb_tensor_named(call, "weight", &weight)) return false;
    if (out->rank < 1 || weight.rank != 3) return false;
    out->sizes[out->rank - 1] = weight.sizes[0];
    return true;
}

bool fb_shape_embedding(const fb_call *call, fb_type *out) {
    fb_type weight;
    bool has_indices = fb_tensor_named(call, "indices", out) || fb_tensor_named(call, "input", out);
    if (!has_indices || !fb_tensor_named(call, "weight", &weight) || weight.rank != 2) return false;
    return fb_insert_dim(out, out->rank, weight.sizes[1]);
}

bool fb_shape_attention(const fb_call *call, fb_type *out) {
    fb_type value;
    if (!fb_tensor_named(call, "query", out) || !fb_tensor_named(call, "value", &value)) return false;
    if (out->rank < 2 || value.rank != out->rank) return false;
    out->sizes[out->rank - 1] = value.sizes[value.rank - 1];
    return true;
}

bool fb_shape_glu(const fb_call *call, fb_type *out) {
    int axis;
    if (!fb_first_tensor_of(call, out) || !fb_option_axis(call, "dim", -1, out->rank, &axis)) return false;
    if (out->sizes[axis].symbol.id || out->sizes[axis].size % 2) return false;
    out->sizes[axis].size /= 2;
    return true;
}

bool fb_shape_pad(const fb_call *call, fb_type *out) {
    fb_sizes pad;
    fb_value value = fb_option(call, "pad");
    if (!value.id) value = fb_option(call, "padding");
    if (!value.id || !fb_evaluate_sizes(call->graph, value, &pad) || !pad.is_sequence || pad.count % 2) return false;
    if (!fb_first_tensor_of(call, out) || pad.count / 2 > out->rank) return false;
    for (int i = 0; i < pad.count; i++) {
        fb_dim *size = &out->sizes[out->rank - 1 - i / 2];
        if (fb_dim_is(pad.items[i], 0)) continue;
        if (size->symbol.id || pad.items[i].symbol.id) return false;
        if (__builtin_add_overflow(size->size, pad.items[i].size, &size->size) || size->size < 0) return false;
    }
    return true;
}

/* ---- windows --------------------------------------------------------------------------------------------------------- */

/* Sizes beyond this are no real network, and arithmetic on them could overflow. */
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

static int spatial_of(fb_op op) {
    switch (op) {
    case FB_OP_CONV1D:
    case FB_OP_CONV_TRANSPOSE1D:
    case FB_OP_MAX_POOL1D:
    case FB_OP_AVG_POOL1D: return 1;
    case FB_OP_CONV2D:
    case FB_OP_CONV_TRANSPOSE2D:
    case FB_OP_MAX_POOL2D:
    case FB_OP_AVG_POOL2D: return 2;
    default: return 3;
    }
}

static bool read_windows(const fb_call *call, int count, window *windows) {
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

/* "valid" is no padding; "same" (stride 1) keeps the size. Otherwise ints. */
typedef enum padding_kind { PADDING_INTS, PADDING_VALID, PADDING_SAME } padding_kind;

static padding_kind padding_of(const fb_call *call) {
    fb_value value = fb_option(call, "padding");
    if (!value.id || fb_value_kind(call->graph, value) != FB_STRING) return PADDING_INTS;
    return strcmp(fb_value_text(call->graph, value), "same") == 0 ? PADDING_SAME : PADDING_VALID;
}

static bool read_conv_windows(const fb_call *call, int count, window *windows) {
    padding_kind kind = padding_of(call);
    if (kind == PADDING_INTS) return read_windows(call, count, windows);
    int64_t stride[3], dilation[3];
    if (!fb_option_ints(call, "stride", 1, count, stride) || !fb_option_ints(call, "dilation", 1, count, dilation))
        return false;
    for (int i = 0; i < count; i++) windows[i] = (window){.stride = stride[i], .dilation = dilation[i]};
    return true;
}

/* Input (N, C, …) or (C, …), weight of `spatial` + 2 dimensions, groups. */
static bool read_conv(const fb_call *call, int spatial, fb_type *out, fb_type *weight, int64_t *groups) {
    if (!fb_tensor_named(call, "input", out) || !fb_tensor_named(call, "weight", weight)) return false;
    if (weight->rank != spatial + 2 || (out->rank != spatial + 2 && out->rank != spatial + 1)) return false;
    return fb_option_int(call, "groups", 1, groups) && *groups > 0;
}

bool fb_shape_convolution(const fb_call *call, fb_type *out) {
    int spatial = spatial_of(call->op);
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

bool fb_shape_transposed_convolution(const fb_call *call, fb_type *out) {
    int spatial = spatial_of(call->op);
    fb_type weight;
    window windows[3];
    int64_t groups, channels;
    fb_value output_size = call->is_module ? fb_call_argument(call->graph, call->node, "output_size") : (fb_value){0};
    if (output_size.id && fb_value_kind(call->graph, output_size) != FB_NONE) return false;
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

/* aten.convolution: the number of dimensions is the weight's, and an argument says whether it is transposed. */
bool fb_shape_any_convolution(const fb_call *call, fb_type *out) {
    static const fb_op plain[] = {FB_OP_CONV1D, FB_OP_CONV2D, FB_OP_CONV3D};
    static const fb_op transposed[] = {FB_OP_CONV_TRANSPOSE1D, FB_OP_CONV_TRANSPOSE2D, FB_OP_CONV_TRANSPOSE3D};
    fb_type weight;
    fb_value flag = fb_call_argument(call->graph, call->node, "transposed");
    fb_kind kind = flag.id ? fb_value_kind(call->graph, flag) : FB_NONE;
    if (!fb_tensor_named(call, "weight", &weight)) return false;
    unsigned spatial = (unsigned)weight.rank - 3;
    if (spatial > 2) return false;
    fb_call now = *call;
    now.op = (kind == FB_TRUE ? transposed : plain)[spatial];
    if (kind == FB_TRUE) return fb_shape_transposed_convolution(&now, out);
    return kind == FB_FALSE && fb_shape_convolution(&now, out);
}

/* ---- pooling --------------------------------------------------------------------------------------------------------- */

static bool pool(const fb_call *call, bool has_dilation, fb_type *out) {
    int spatial = spatial_of(call->op);
    window windows[3];
    int64_t kernel[3], stride[3], ones[3] = {1, 1, 1};
    if (!fb_first_tensor_of(call, out) || (out->rank != spatial + 1 && out->rank != spatial + 2)) return false;
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

bool fb_shape_max_pool(const fb_call *call, fb_type *out) {
    return pool(call, true, out);
}

bool fb_shape_any_max_pool(const fb_call *call, fb_type *out) {
    fb_call now = *call;
    bool is_flat = strstr(fb_node_target(call->graph, call->node), "max_pool2d") != NULL;
    now.op = is_flat ? FB_OP_MAX_POOL2D : FB_OP_MAX_POOL3D;
    return fb_shape_max_pool(&now, out);
}

bool fb_shape_average_pool(const fb_call *call, fb_type *out) {
    return pool(call, false, out);
}

/* output_size: an int, or a sequence whose None keeps the input's size. */
static bool adaptive_pool(const fb_call *call, int spatial, fb_type *out) {
    fb_value size = fb_option(call, "output_size");
    if (!size.id || !fb_first_tensor_of(call, out) || out->rank < spatial + 1) return false;
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

bool fb_shape_adaptive_pool1(const fb_call *call, fb_type *out) {
    return adaptive_pool(call, 1, out);
}

bool fb_shape_adaptive_pool2(const fb_call *call, fb_type *out) {
    return adaptive_pool(call, 2, out);
}

bool fb_shape_adaptive_pool3(const fb_call *call, fb_type *out) {
    return adaptive_pool(call, 3, out);
}
