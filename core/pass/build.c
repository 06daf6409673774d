/* The builder: see build.h. */
#include "core/pass/build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/analysis/infer.h"
#include "core/analysis/onnx.h"
#include "core/base/base64.h"
#include "core/operators/onnx.h"
#include "core/operators/spelling.h"
#include "core/weights/dtype.h"

typedef enum dialect { TORCH, ATEN, ONNX, DIALECTS } dialect;

static dialect dialect_of(const fb_graph *g, fb_node like) {
    return fb_graph_is_onnx(g) ? ONNX : fb_is_aten(g, like) ? ATEN : TORCH;
}

static const struct {
    fb_opcode opcode; /* of torch.fx's */
    const char *names[DIALECTS];
} made_calls[] = {
#define FB_MADE(id, opcode, torch, aten, onnx) {FB_CALL_##opcode, {torch, aten, onnx}},
#include "core/operators/made.def"
#undef FB_MADE
};

const char *fb_made_target(const fb_graph *g, fb_node like, fb_made made) {
    return made_calls[made].names[dialect_of(g, like)];
}

/* Of ONNX's operator, at the model's opset; 0: it is newer. */
static int64_t version_of(const fb_graph *g, fb_made made) {
    const char *name = made_calls[made].names[ONNX];
    return fb_onnx_version(name, strlen(name), fb_graph_opset(g));
}

/* The call's opcode, and its target in `out`; NULL after a failure. */
static const char *spell(fb_graph *g, fb_made made, dialect in, fb_opcode *opcode, fb_buffer *out) {
    const char *name = made_calls[made].names[in];
    *opcode = in == TORCH ? made_calls[made].opcode : FB_CALL_FUNCTION;
    if (in != ONNX) return name;
    fb_buffer_printf(out, FB_ONNX_DEFAULT "%s.v%lld", name, (long long)version_of(g, made));
    const char *text = fb_buffer_text(out);
    if (!text) fb_graph_fail_memory(g);
    return text;
}

static fb_node build_in(fb_rewrite *rw, fb_node before, dialect in, fb_made made, fb_value args, fb_value kwargs) {
    fb_buffer out = {0};
    fb_opcode opcode;
    const char *target = spell(fb_rewrite_graph(rw), made, in, &opcode, &out);
    fb_node node = target ? fb_insert_before(rw, before, opcode, target, args, kwargs) : (fb_node){0};
    fb_buffer_free(&out);
    return node;
}

fb_node fb_build(fb_rewrite *rw, fb_node before, fb_made made, fb_value args, fb_value kwargs) {
    return build_in(rw, before, dialect_of(fb_rewrite_graph(rw), before), made, args, kwargs);
}

void fb_build_over(fb_rewrite *rw, fb_node node, fb_made made, fb_value args, fb_value kwargs) {
    fb_buffer out = {0};
    fb_opcode opcode;
    fb_graph *g = fb_rewrite_graph(rw);
    const char *target = spell(g, made, dialect_of(g, node), &opcode, &out);
    if (target) fb_set_target(rw, node, opcode, target);
    if (target) fb_set_args(rw, node, args, kwargs);
    fb_buffer_free(&out);
}

fb_value fb_build_padding(fb_graph *g, fb_node like, const int64_t *before, const int64_t *after, int count) {
    fb_value sizes[6]; /* three dimensions at most */
    for (int i = 0; i < count; i++) sizes[i] = fb_make_int(g, before[i]);
    for (int i = 0; i < count; i++) sizes[count + i] = fb_make_int(g, after[i]);
    size_t all = (size_t)count;
    switch (dialect_of(g, like)) {
    case TORCH: return fb_make_tuple(g, sizes, all);
    case ATEN: return fb_make_list(g, sizes, all);
    default: return fb_make_list(g, sizes, 2 * all);
    }
}

fb_value fb_build_number(fb_graph *g, fb_node like, fb_value number) {
    return dialect_of(g, like) == TORCH ? number : FB_ARGS(g, number);
}

fb_value fb_spread_args(fb_graph *g, fb_node like, fb_value x, const fb_value *ints, size_t count) {
    fb_value args[FB_MAX_RANK + 1] = {x};
    if (dialect_of(g, like) == ATEN) return FB_ARGS(g, x, fb_make_list(g, ints, count));
    for (size_t i = 0; i < count; i++) args[i + 1] = ints[i];
    return fb_make_list(g, args, count + 1);
}

fb_value fb_part_args(fb_graph *g, fb_node like, fb_value x, int64_t dim, int behind, int64_t from, int64_t to) {
    fb_value start = fb_make_int(g, from), end = fb_make_int(g, to), none = FB_VALUE_NONE;
    if (dialect_of(g, like) == ATEN) return FB_ARGS(g, x, fb_make_int(g, dim), start, end);
    fb_value whole = behind ? fb_make_slice(g, none, none, none) : none;
    fb_value place[] = {FB_TEXT(g, FB_ELLIPSIS, ""), fb_make_slice(g, start, end, none), whole, whole, whole};
    return FB_ARGS(g, x, fb_make_tuple(g, place, 2 + (size_t)behind));
}

/* Opsets. */
enum {
    DEQUANTIZE_HAS_AXIS = 13,
    DEQUANTIZE_GIVES_HALF = 19,
    DEQUANTIZE_HAS_BLOCKS = 21,
    PADS_ARE_AN_INPUT = 11,
    GEMM_NEEDS_NO_BIAS = 11,
    SPLIT_SIZES_ARE_AN_INPUT = 13,
    PAD_TAKES_BFLOAT16 = 13
};

/* A buffer of the module, and a read of it. */
static fb_node put_constant(fb_rewrite *rw, fb_node before, fb_module owner, fb_constant constant, const unsigned char *bytes,
                            size_t size) {
    char *text = malloc(fb_base64_length(size) + 1);
    constant.base64 = text;
    constant.length = fb_base64_length(size);
    if (text) fb_base64_encode(bytes, size, text);
    if (text) fb_put_constants(rw, owner, &constant, 1);
    else fb_graph_fail_memory(fb_rewrite_graph(rw));
    free(text);
    return fb_insert_read(rw, before, owner, constant.attribute);
}

static fb_node put_ints(fb_rewrite *rw, fb_node before, fb_module owner, const char *name, const int64_t *ints, size_t count) {
    const fb_constant constant = {.attribute = name, .dtype = FB_INT64, .rank = 1, .sizes = (int64_t[]){(int64_t)count}};
    unsigned char *bytes = malloc(count * sizeof *ints); /* little-endian, as documents have them */
    for (size_t i = 0; bytes && i < count * 8; i++) bytes[i] = (unsigned char)((uint64_t)ints[i / 8] >> i % 8 * 8);
    fb_node read = bytes ? put_constant(rw, before, owner, constant, bytes, count * sizeof *ints) : (fb_node){0};
    if (!bytes) fb_graph_fail_memory(fb_rewrite_graph(rw));
    free(bytes);
    return read;
}

fb_module fb_put_owner(fb_rewrite *rw, fb_module after, fb_node call) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_module around = fb_program_at(g, fb_node_at(g, call)->program)->owner;
    fb_buffer path = {0};
    if (around.id) fb_buffer_printf(&path, "%s.", fb_text(g, fb_module_at(g, around)->path));
    fb_buffer_string(&path, fb_node_name(g, call));
    size_t length = path.size;
    const char *text = fb_buffer_text(&path); /* NULL: memory is out, which fb_put_module passes on */
    for (unsigned number = 1; text && fb_module_find(g, text).id; number++, text = fb_buffer_text(&path)) {
        path.size = length; /* of an earlier call of that name */
        fb_buffer_printf(&path, "_%u", number);
    }
    fb_module made = fb_put_module(rw, around.id ? around : after, text, FB_TYPE_MODULE, FB_VALUE_EMPTY_MAP, false);
    fb_buffer_free(&path);
    return made;
}

/* A new constant whose elements are all the number. */
static fb_node put_numbers(fb_rewrite *rw, fb_node before, fb_module after, fb_dtype dtype, int rank, const int64_t *sizes,
                           double number) {
    fb_graph *g = fb_rewrite_graph(rw);
    size_t count = 1, width = fb_dtype_size(dtype);
    for (int i = 0; i < rank; i++) count *= (size_t)sizes[i];
    unsigned char *bytes = malloc(count * width + 1), one[16];
    fb_encode_numbers(dtype, &number, 1, one);
    for (size_t i = 0; bytes && i < count; i++) memcpy(bytes + i * width, one, width);
    if (!bytes) fb_graph_fail_memory(g);
    fb_module owner = fb_put_owner(rw, after, before);
    const fb_constant constant = {.attribute = "number", .dtype = dtype, .rank = rank, .sizes = sizes};
    fb_node read = bytes ? put_constant(rw, before, owner, constant, bytes, count * width) : (fb_node){0};
    free(bytes);
    return read;
}

fb_node fb_build_constant(fb_rewrite *rw, fb_node before, fb_node like, double number) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_node_row *row = fb_node_at(g, like);
    int64_t ones[FB_MAX_RANK];
    int rank = fb_shape_rank(g, row->shape);
    for (int i = 0; i < rank; i++) ones[i] = 1;
    return put_numbers(rw, before, row->module, (fb_dtype)row->dtype, rank, ones, number);
}

fb_node fb_build_ints(fb_rewrite *rw, fb_node before, const int64_t *ints, size_t count) {
    fb_graph *g = fb_rewrite_graph(rw);
    return put_ints(rw, before, fb_put_owner(rw, fb_module_find(g, ""), before), "sizes", ints, count);
}

fb_node fb_build_int(fb_rewrite *rw, fb_node before, int64_t number) {
    return put_numbers(rw, before, fb_module_find(fb_rewrite_graph(rw), ""), FB_INT64, 0, NULL, (double)number);
}

fb_node fb_build_reshape(fb_rewrite *rw, fb_node before, fb_node x, const int64_t *sizes, int rank) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_node read = fb_build_ints(rw, before, sizes, (size_t)rank);
    if (!read.id) return read;
    fb_dtype dtype = (fb_dtype)fb_node_at(g, x)->dtype;
    fb_node made =
        fb_build(rw, before, FB_MADE_RESHAPE, FB_ARGS(g, fb_make_node(g, x), fb_make_node(g, read)), FB_VALUE_EMPTY_MAP);
    if (made.id) fb_set_result_type(rw, made, fb_make_shape(g, sizes, (size_t)rank), dtype);
    return made;
}

fb_node fb_build_split(fb_rewrite *rw, fb_node before, fb_module owner, fb_node x, int axis, const int64_t *sizes,
                       size_t count) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value kwargs = fb_map_with(g, FB_VALUE_EMPTY_MAP, "axis", fb_make_int(g, axis));
    fb_value args = FB_ARGS(g, fb_make_node(g, x));
    if (fb_graph_opset(g) < SPLIT_SIZES_ARE_AN_INPUT) {
        kwargs = fb_map_with(g, kwargs, "split", fb_make_shape(g, sizes, count));
    } else {
        args = FB_ARGS(g, fb_make_node(g, x), fb_make_node(g, put_ints(rw, before, owner, "sizes", sizes, count)));
    }
    fb_node split = fb_build(rw, before, FB_MADE_SPLIT, args, kwargs);
    char results[40]; /* all of them, also where one is not read */
    snprintf(results, sizeof results, "{\"results\":%zu}", count);
    if (split.id) fb_put_meta(rw, split, "onnx", results);
    return split;
}

fb_obstacle fb_linear_obstacle(const fb_graph *g, fb_dtype dtype) {
    if (fb_graph_is_onnx(g) && !fb_dtype_is_computed(dtype))
        return (fb_obstacle){"dtype", "runtimes have no Gemm of that dtype"};
    return fb_graph_is_onnx(g) && !version_of(g, FB_MADE_LINEAR)
               ? (fb_obstacle){"opset-too-old", "the model's opset does not have the operator yet"}
               : FB_NO_OBSTACLE;
}

bool fb_lacks_operator(const fb_graph *g, fb_node like, fb_made made) {
    return dialect_of(g, like) == ONNX && !version_of(g, made);
}

fb_obstacle fb_unscaled_obstacle(const fb_graph *g, const fb_norm *norm) {
    bool lacks =
        norm->unscaled.id && fb_lacks_operator(g, norm->node, norm->is_centred ? FB_MADE_LAYER_NORM : FB_MADE_RMS_NORM);
    return lacks ? FB_TOO_OLD_FOR_A_FORMULA : FB_NO_OBSTACLE;
}

fb_new_linear fb_linear_call(fb_graph *g, fb_value x, fb_value weight, fb_value bias, bool is_packed) {
    bool is_gemm = fb_graph_is_onnx(g), is_addmm = is_packed && !is_gemm;
    fb_new_linear made = {is_addmm ? FB_MADE_ADDMM : FB_MADE_LINEAR, {0}, FB_VALUE_EMPTY_MAP};
    made.args = is_addmm ? FB_ARGS(g, bias, x, weight) : bias.id ? FB_ARGS(g, x, weight, bias) : FB_ARGS(g, x, weight);
    if (is_gemm && !is_packed) made.kwargs = fb_map_with(g, made.kwargs, "transB", fb_make_int(g, 1));
    return made;
}

void fb_build_wide_linear(fb_rewrite *rw, fb_node node, fb_value x, fb_value weight, fb_value bias) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value args = FB_ARGS(g, x, weight);
    if (dialect_of(g, node) != ONNX) {
        fb_new_linear made = fb_linear_call(g, x, weight, bias, false);
        fb_build_over(rw, node, made.made, made.args, made.kwargs);
    } else if (bias.id) {
        fb_node product = fb_build(rw, node, FB_MADE_MATMUL, args, FB_VALUE_EMPTY_MAP);
        fb_build_over(rw, node, FB_MADE_ADD, FB_ARGS(g, fb_make_node(g, product), bias), FB_VALUE_EMPTY_MAP);
    } else {
        fb_build_over(rw, node, FB_MADE_MATMUL, args, FB_VALUE_EMPTY_MAP);
    }
}

bool fb_dequantize_takes_vector(const fb_graph *g) {
    return fb_graph_is_onnx(g);
}

fb_obstacle fb_dequantize_obstacle(const fb_graph *g, fb_dtype dtype, int64_t block) {
    if (!fb_graph_is_onnx(g)) return FB_NO_OBSTACLE;
    if (block && fb_graph_opset(g) < DEQUANTIZE_HAS_BLOCKS)
        return (fb_obstacle){"opset-too-old", "at the model's opset DequantizeLinear has no scale for each block"};
    if (dtype == FB_FLOAT64) return (fb_obstacle){"unsupported-dtype", "DequantizeLinear gives no float64"};
    return fb_graph_opset(g) < (dtype == FB_FLOAT32 ? DEQUANTIZE_HAS_AXIS : DEQUANTIZE_GIVES_HALF)
               ? (fb_obstacle){"opset-too-old",
                               "at the model's opset DequantizeLinear has no scale for each channel of the dtype"}
               : FB_NO_OBSTACLE;
}

fb_value fb_build_dequantized(fb_rewrite *rw, fb_node before, fb_value integers, fb_value scale, int axis, int64_t block,
                              fb_value shape) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value args = FB_ARGS(g, integers, scale);
    if (!fb_dequantize_takes_vector(g)) return fb_make_node(g, fb_build(rw, before, FB_MADE_MUL, args, (fb_value){0}));
    fb_value kwargs = fb_map_with(g, FB_VALUE_EMPTY_MAP, "axis", fb_make_int(g, axis));
    if (block) kwargs = fb_map_with(g, kwargs, "block_size", fb_make_int(g, block));
    fb_node made = fb_build(rw, before, FB_MADE_DEQUANTIZE, args, kwargs);
    if (made.id) fb_set_result_type(rw, made, shape, (fb_dtype)fb_node_at(g, fb_value_node(g, scale))->dtype);
    return fb_make_node(g, made);
}

/* A call of ATen, or an item of what it gives. */
static bool comes_of_aten(const fb_graph *g, fb_node n) {
    uint32_t edge = fb_op_is(g, n, FB_OP_GETITEM) ? fb_input_first(g, n) : 0;
    return fb_is_aten(g, edge ? fb_edge_input(g, edge) : n);
}

fb_node fb_build_cast(fb_rewrite *rw, fb_node before, fb_node reader, fb_node x, fb_dtype dtype) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value args = FB_ARGS(g, fb_make_node(g, x), FB_TEXT(g, FB_DTYPE, fb_dtype_name(dtype)));
    if (fb_graph_is_onnx(g)) {
        fb_value to = fb_map_with(g, FB_VALUE_EMPTY_MAP, "to", fb_make_int(g, fb_onnx_dtype_number(dtype)));
        fb_node made = fb_build(rw, before, FB_MADE_CAST, FB_ARGS(g, fb_make_node(g, x)), to);
        if (made.id) fb_set_result_type(rw, made, fb_node_at(g, x)->shape, dtype);
        if (made.id) fb_mark(rw, made);
        return made;
    }
    dialect in = comes_of_aten(g, x) ? ATEN : dialect_of(g, reader);
    return build_in(rw, before, in, FB_MADE_CAST, args, FB_VALUE_EMPTY_MAP);
}

/* ---- a column of ones ---------------------------------------------------------------------------------------------------- */

fb_obstacle fb_ones_obstacle(const fb_graph *g, const fb_linear *linear) {
    int64_t opset = fb_graph_opset(g), least = linear->form == FB_LINEAR_GEMM ? GEMM_NEEDS_NO_BIAS : 0;
    if (linear->dtype == FB_BFLOAT16) least = PAD_TAKES_BFLOAT16;
    bool is_onnx = dialect_of(g, linear->node) == ONNX;
    if (is_onnx && !linear->input.id) return (fb_obstacle){"unsupported-form", "it transposes its input"};
    if (is_onnx && !fb_dtype_is_computed(linear->dtype))
        return (fb_obstacle){"dtype", "it computes in another dtype than floats"};
    if (is_onnx && opset < least)
        return (fb_obstacle){"opset-too-old", "at the model's opset a Gemm needs its bias, or Pad does not take the dtype"};
    return linear->in_features == 0 && fb_is_aten(g, linear->node)
               ? (fb_obstacle){"no-features", "its input has no column that the column of ones could be made like"}
               : FB_NO_OBSTACLE;
}

/* A function that gives a Python value, not a tensor, and so neither shape nor dtype. */
static fb_value insert_plain(fb_rewrite *rw, fb_node n, const char *target, fb_value a, fb_value b) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value nothing = {0};
    return fb_make_node(g, fb_insert_typed(rw, n, FB_CALL_FUNCTION, target, FB_ARGS(g, a, b), nothing, nothing, 0));
}

/* By the size of x, as Optimum does it. */
static fb_value insert_ones(fb_rewrite *rw, fb_node n, fb_value x, fb_dtype dtype) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value none = fb_make_none(g), last_axis = fb_make_int(g, -1), one = fb_make_int(g, 1);
    fb_value all_but_last = fb_make_slice(g, none, last_axis, none);
    fb_value recorded = fb_node_at(g, n)->shape; /* x may have had other sizes when it was made: x.unsqueeze_(0) */
    if (!recorded.id) recorded = fb_node_at(g, fb_value_node(g, x))->shape;

    fb_value shape = insert_plain(rw, n, FB_TARGET_GETATTR, x, fb_make_string(g, "shape"));
    fb_value batch = insert_plain(rw, n, FB_TARGET_GETITEM, shape, all_but_last);
    fb_value size = insert_plain(rw, n, FB_TARGET_ADD, batch, fb_make_tuple(g, &one, 1));
    fb_value device = insert_plain(rw, n, FB_TARGET_GETATTR, x, fb_make_string(g, "device"));
    fb_value kwargs = fb_map_with(g, (fb_value){0}, "device", device);
    if (dtype != FB_FLOAT32) kwargs = fb_map_with(g, kwargs, "dtype", FB_TEXT(g, FB_DTYPE, fb_dtype_name(dtype)));
    int rank = fb_shape_rank(g, recorded);
    fb_value sizes = FB_ARGS(g, size);
    fb_node ones = rank > 0 ? fb_insert_typed(rw, n, FB_CALL_FUNCTION, FB_TARGET_ONES, sizes, kwargs,
                                              fb_list_with(g, recorded, (size_t)rank - 1, one), dtype)
                            : fb_insert_before(rw, n, FB_CALL_FUNCTION, FB_TARGET_ONES, sizes, kwargs);
    return fb_make_node(g, ones);
}

/* By a Pad. */
static fb_node pad_by_ones(fb_rewrite *rw, fb_node n, fb_value x, fb_dtype dtype) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value shape = fb_node_at(g, fb_value_node(g, x))->shape, kwargs = FB_VALUE_EMPTY_MAP, args = FB_ARGS(g, x);
    int64_t by[2 * FB_MAX_RANK] = {0};
    int rank = fb_shape_rank(g, shape);
    by[2 * rank - 1] = 1;
    if (fb_graph_opset(g) < PADS_ARE_AN_INPUT) {
        kwargs = fb_map_with(g, kwargs, "pads", fb_make_shape(g, by, 2 * (size_t)rank));
        kwargs = fb_map_with(g, kwargs, "value", fb_make_float(g, 1));
    } else {
        fb_linear linear;
        if (!fb_linear_at(g, fb_with_bias(g, n), &linear)) return (fb_node){0};
        fb_node one = put_numbers(rw, n, fb_node_at(g, linear.weight_read)->module, dtype, 0, NULL, 1);
        if (!one.id) return one;
        fb_node pads = put_ints(rw, n, fb_node_at(g, one)->module, "pads", by, 2 * (size_t)rank);
        args = FB_ARGS(g, x, fb_make_node(g, pads), fb_make_node(g, one));
    }
    fb_node made = fb_build(rw, n, FB_MADE_PAD, args, kwargs);
    int64_t size = fb_shape_size(g, shape, rank - 1);
    if (made.id) fb_set_result_type(rw, made, fb_list_with(g, shape, (size_t)rank - 1, fb_make_int(g, size + 1)), dtype);
    return made;
}

fb_node fb_build_ones(fb_rewrite *rw, fb_node n, fb_value x, fb_dtype dtype) {
    fb_graph *g = fb_rewrite_graph(rw);
    if (dialect_of(g, n) == ONNX) return pad_by_ones(rw, n, x, dtype);
    bool is_torch = dialect_of(g, n) == TORCH;
    fb_value last_axis = fb_make_int(g, -1), none = {0}, ones;
    if (is_torch) {
        ones = insert_ones(rw, n, x, dtype);
    } else { /* like a column of x */
        fb_node column = fb_build(rw, n, FB_MADE_PART, fb_part_args(g, n, x, -1, 0, 0, 1), none);
        ones = fb_make_node(g, fb_build(rw, n, FB_MADE_ONES_LIKE, FB_ARGS(g, fb_make_node(g, column)), none));
    }
    fb_value both = FB_ARGS(g, x, ones);
    return fb_build(rw, n, FB_MADE_CAT, is_torch ? FB_ARGS(g, both) : FB_ARGS(g, both, last_axis),
                    is_torch ? fb_map_with(g, none, "dim", last_axis) : none);
}

/* ---- rows as they were --------------------------------------------------------------------------------------------------- */

/* A shape as ATen's reshape takes it, with -1 in place of what is symbolic; none: more than one size is, or -1 would not say
 * which it is. */
static fb_value shape_of_reshape(fb_graph *g, fb_value shape) {
    int64_t sizes[FB_RECIPE_MAX_RANK];
    int rank = fb_shape_rank(g, shape), unknown = 0;
    bool is_empty = false;
    for (int i = 0; i < rank && i < FB_RECIPE_MAX_RANK; i++) {
        sizes[i] = fb_shape_size(g, shape, i);
        unknown += sizes[i] < 0;
        is_empty |= sizes[i] == 0;
    }
    bool is_one = rank >= 0 && rank <= FB_RECIPE_MAX_RANK && unknown <= 1 && !is_empty;
    return is_one ? fb_make_shape(g, sizes, (size_t)rank) : (fb_value){0};
}

bool fb_can_build_unflatten(fb_graph *g, fb_node call) {
    return dialect_of(g, call) == TORCH || shape_of_reshape(g, fb_node_at(g, call)->shape).id;
}

/* x.shape[:-1] */
static fb_value batch_of(fb_rewrite *rw, fb_node call, fb_value x) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value none = fb_make_none(g), but_last = fb_make_slice(g, none, fb_make_int(g, -1), none), nothing = {0};
    fb_node shape =
        fb_insert_before(rw, call, FB_CALL_FUNCTION, FB_TARGET_GETATTR, FB_ARGS(g, x, fb_make_string(g, "shape")), nothing);
    fb_value args = FB_ARGS(g, fb_make_node(g, shape), but_last);
    return fb_make_node(g, fb_insert_before(rw, call, FB_CALL_FUNCTION, FB_TARGET_GETITEM, args, nothing));
}

fb_value fb_unflatten_args(fb_rewrite *rw, fb_node call, fb_value rows, fb_value x) {
    fb_graph *g = fb_rewrite_graph(rw);
    if (dialect_of(g, call) == ATEN) return FB_ARGS(g, rows, shape_of_reshape(g, fb_node_at(g, call)->shape));
    return FB_ARGS(g, rows, fb_make_int(g, 0), batch_of(rw, call, x));
}

/* ---- operators by their rows --------------------------------------------------------------------------------------------- */

bool fb_can_build(const fb_graph *g, fb_node like, fb_made made) {
    return made_calls[made].names[dialect_of(g, like)];
}

const char *fb_made_function(fb_made made) {
    return made_calls[made].names[TORCH];
}

bool fb_refuse_too_old(fb_matcher *m, fb_node n, fb_made made) {
    bool is_new = fb_graph_is_onnx(m->graph) && !version_of(m->graph, made);
    const char *name = made_calls[made].names[ONNX];
    if (is_new)
        fb_refuse_node(m, "opset-too-old", n, "the model's opset is %lld, and %s needs %lld",
                       (long long)fb_graph_opset(m->graph), name, (long long)fb_onnx_since(name));
    return is_new;
}

void fb_build_attention(fb_rewrite *rw, fb_node n, fb_value query, fb_value key, fb_value value, fb_value mask, double scale) {
    fb_graph *g = fb_rewrite_graph(rw);
    bool is_onnx = dialect_of(g, n) == ONNX;
    fb_value args = FB_ARGS(g, query, key, value), kwargs = FB_VALUE_EMPTY_MAP;
    if (mask.id && is_onnx) args = FB_ARGS(g, query, key, value, mask);
    else if (mask.id) kwargs = fb_map_with(g, kwargs, "attn_mask", mask);
    kwargs = fb_map_with(g, kwargs, "scale", fb_make_float(g, is_onnx ? (double)(float)scale : scale));
    fb_build_over(rw, n, FB_MADE_ATTENTION, args, kwargs);
}

fb_obstacle fb_attention_obstacle(const fb_graph *g, fb_dim rows, fb_dim queries, double scale) {
    if (!fb_graph_is_onnx(g)) return FB_NO_OBSTACLE;
    bool is_whole = rows.symbol.id == queries.symbol.id && rows.size == queries.size;
    if (!is_whole) return (fb_obstacle){"shape-mismatch", "its mask has one row for all queries, which ONNX Runtime refuses"};
    return scale > 0 ? FB_NO_OBSTACLE
                     : (fb_obstacle){"unsupported-constant", "Attention takes the root of what scores are multiplied by"};
}

fb_node fb_build_swapped(fb_rewrite *rw, fb_node before, fb_value x) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value last = fb_make_int(g, -1), other = fb_make_int(g, -2);
    if (dialect_of(g, before) != ONNX)
        return fb_build(rw, before, FB_MADE_TRANSPOSE, FB_ARGS(g, x, other, last), FB_VALUE_EMPTY_MAP);
    fb_value perm = fb_make_shape(g, (const int64_t[]){0, 1, 3, 2}, 4);
    return fb_build(rw, before, FB_MADE_TRANSPOSE, FB_ARGS(g, x), fb_map_with(g, FB_VALUE_EMPTY_MAP, "perm", perm));
}

fb_node fb_build_filled(fb_rewrite *rw, fb_node before, fb_value mask, fb_dtype dtype, bool is_kept, double fill) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value number = fb_make_float(g, fill);
    if (dialect_of(g, before) == ONNX) {
        fb_module root = fb_module_find(g, "");
        fb_value zero = fb_make_node(g, put_numbers(rw, before, root, dtype, 0, NULL, 0));
        number = fb_make_node(g, put_numbers(rw, before, root, dtype, 0, NULL, fill));
        fb_value args = is_kept ? FB_ARGS(g, mask, zero, number) : FB_ARGS(g, mask, number, zero);
        return fb_build(rw, before, FB_MADE_WHERE, args, FB_VALUE_EMPTY_MAP);
    }
    fb_value kwargs = fb_map_with(g, FB_VALUE_EMPTY_MAP, "dtype", FB_TEXT(g, FB_DTYPE, fb_dtype_name(dtype)));
    fb_value zeros = fb_make_node(g, fb_build(rw, before, FB_MADE_ZEROS_LIKE, FB_ARGS(g, mask), kwargs));
    return fb_build(rw, before, is_kept ? FB_MADE_WHERE : FB_MADE_MASKED_FILL,
                    is_kept ? FB_ARGS(g, mask, zeros, number) : FB_ARGS(g, zeros, mask, number), FB_VALUE_EMPTY_MAP);
}

enum { SWISH_RUNS_UP_TO = 24 /* opset; findings/onnxruntime-runs-swish-at-opset-24-alone.sh */ };
enum { SOFTMAX_OF_THE_LAST_AXIS = 11, SOFTMAX_OF_ONE_AXIS = 13 }; /* before, of all axes from one on, which is not below 0 */

bool fb_substitute_is_refused(fb_matcher *m, fb_node n, const fb_substitute *s) {
    if (dialect_of(m->graph, n) != ONNX) return false;
    if (fb_refuse_too_old(m, n, s->made)) return true;
    bool is_swish = s->made == FB_MADE_SILU;
    int64_t opset = fb_graph_opset(m->graph), needed = s->axis == -1 ? SOFTMAX_OF_THE_LAST_AXIS : SOFTMAX_OF_ONE_AXIS;
    if (s->has_axis && opset < needed)
        fb_refuse_node(m, "opset-too-old", n, "the model's opset is %lld, and a softmax along its axis needs %lld",
                       (long long)opset, (long long)needed);
    else if (!s->has_axis && fb_node_at(m->graph, n)->dtype == FB_FLOAT64)
        fb_refuse_node(m, "dtype", n, "ONNX's operator works in float32, or no runtime has it in float64");
    else if (is_swish && opset > SWISH_RUNS_UP_TO)
        fb_refuse_node(m, "opset-too-new", n, "the model's opset is %lld, and ONNX Runtime has no kernel for Swish beyond %d",
                       (long long)opset, SWISH_RUNS_UP_TO);
    else if (s->has_eps && (double)(float)s->eps != s->eps)
        fb_refuse_node(m, "unsupported-constant", n, "its number is none of float32, as an attribute is");
    else return false;
    return true;
}

void fb_substitute_args(fb_graph *g, fb_node like, const fb_substitute *s, fb_value x, fb_value weight, fb_value bias,
                        fb_value *args, fb_value *kwargs) {
    dialect in = dialect_of(g, like);
    fb_value items[3] = {x}, sizes[FB_MAX_RANK], axis = fb_make_int(g, in == ONNX && s->shape_rank ? -s->shape_rank : s->axis);
    size_t count = 1, rank = (size_t)s->shape_rank;
    bool takes_axis = s->has_axis || (in == ONNX && rank);
    *kwargs = FB_VALUE_EMPTY_MAP;
    for (size_t i = 0; i < rank; i++) sizes[i] = fb_make_int(g, s->shape[i]);
    if (rank && in == ONNX) items[count++] = weight;
    else if (rank) items[count++] = in == ATEN ? fb_make_list(g, sizes, rank) : fb_make_tuple(g, sizes, rank);
    if (in == ONNX && bias.id) items[count++] = bias;
    if (takes_axis && in == ATEN) items[count++] = axis;
    else if (takes_axis) *kwargs = fb_map_with(g, *kwargs, in == ONNX ? "axis" : "dim", axis);
    if (s->option) *kwargs = fb_map_with(g, *kwargs, s->option, fb_make_string(g, s->word));
    if (s->has_eps) *kwargs = fb_map_with(g, *kwargs, in == ONNX ? "epsilon" : "eps", fb_make_float(g, s->eps));
    if (in != ONNX && weight.id) *kwargs = fb_map_with(g, *kwargs, "weight", weight);
    if (in != ONNX && bias.id) *kwargs = fb_map_with(g, *kwargs, "bias", bias);
    *args = fb_make_list(g, items, count);
}

void fb_build_substitute(fb_rewrite *rw, fb_node n, const fb_substitute *s, fb_value x, fb_value weight, fb_value bias) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value args, kwargs;
    if (dialect_of(g, n) == ONNX && s->shape_rank && !weight.id) /* it must be given */
        weight = fb_make_node(
            g, put_numbers(rw, n, fb_module_find(g, ""), (fb_dtype)fb_node_at(g, n)->dtype, s->shape_rank, s->shape, 1));
    fb_substitute_args(g, n, s, x, weight, bias, &args, &kwargs);
    fb_release_call(rw, n);
    fb_build_over(rw, n, s->made, args, kwargs);
}

static bool exists_in(fb_op op, const char *home) {
    return fb_has_word(fb_op_facts_of(op)->homes, home, strlen(home));
}

static void append_name(fb_buffer *out, const char *prefix, const char *names, bool in_place) {
    fb_buffer_string(out, prefix);
    fb_buffer_append(out, names, strcspn(names, " "));
    if (in_place) fb_buffer_char(out, '_');
}

fb_obstacle fb_unspelled(const fb_graph *g, fb_op activation) {
    return fb_graph_is_onnx(g) && fb_op_facts_of(activation)->onnx
               ? (fb_obstacle){"opset-too-old", "the model's opset does not have the operator yet"}
               : (fb_obstacle){"no-spelling", "this dialect has no operator for it"};
}

bool fb_spell_activation(const fb_graph *graph, fb_node call, fb_op activation, bool in_place, fb_buffer *target,
                         fb_activation_spelling *out) {
    static const char torch[] = "torch.";
    const fb_op_facts *facts = fb_op_facts_of(activation);
    fb_opcode opcode = (fb_opcode)fb_node_at(graph, call)->opcode;
    const char *old = fb_node_target(graph, call);
    bool has_form = in_place && (facts->flags & FB_FACT_HAS_IN_PLACE),
         has_flag = in_place && strstr(facts->parameters, "inplace=");
    *out = (fb_activation_spelling){.opcode = FB_CALL_FUNCTION, .is_in_place = has_form};
    if (dialect_of(graph, call) == ONNX) {
        int64_t version = facts->onnx ? fb_onnx_version(facts->onnx, strlen(facts->onnx), fb_graph_opset(graph)) : 0;
        fb_buffer_printf(target, FB_ONNX_DEFAULT "%s.v%lld", version ? facts->onnx : "", (long long)version);
        return version;
    }
    if (dialect_of(graph, call) == ATEN) {
        append_name(target, FB_ATEN, facts->names, has_form);
        fb_buffer_string(target, ".default");
        return exists_in(activation, "aten");
    }
    if (opcode == FB_CALL_MODULE) {
        *out = (fb_activation_spelling){.opcode = opcode, .is_in_place = has_flag, .has_flag = has_flag};
        append_name(target, "torch.nn.", facts->modules, false);
        return true;
    }
    if (opcode == FB_CALL_METHOD && exists_in(activation, "method")) {
        out->opcode = FB_CALL_METHOD;
        append_name(target, "", facts->names, has_form);
        return true;
    }
    bool is_of_torch = strncmp(old, torch, sizeof torch - 1) == 0 && !strchr(old + sizeof torch - 1, '.');
    if (opcode == FB_CALL_FUNCTION && is_of_torch && exists_in(activation, "torch")) {
        append_name(target, torch, facts->names, has_form);
        return true;
    }
    out->is_in_place = out->has_flag = has_flag;
    fb_op_functional_target(activation, target);
    return true;
}
