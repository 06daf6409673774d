/* oneDNN's convolutions and Linears that compute element by element what they give: computed in float32, and rounded once. */
#include <math.h>
#include <string.h>

#include "core/evaluator/internal.h"

#define ARRAY(item)                                                                                                            \
    { .kind = (item) ? FB_OBJECT_ARRAY : FB_OBJECT_NONE, .array = (item) }
#define TEXT(words)                                                                                                            \
    { .kind = FB_OBJECT_STRING, .text = (words) }
#define LAST_PART                                                                                                              \
    {                                                                                                                          \
        NULL, {                                                                                                                \
            .kind = FB_OBJECT_NONE                                                                                             \
        }                                                                                                                      \
    }

static fb_array *part(fb_kernel_call *call, fb_op op, const char *spelling, const fb_part_argument *arguments) {
    fb_object made;
    if (fb_evaluate_part(call, op, spelling, arguments, &made)) return NULL;
    return made.array;
}

/* ---- element by element -------------------------------------------------------------------------------------------------- */

/* At most two numbers, in `scalars`. */
static bool read_scalars(fb_kernel_call *call, const char *name, double out[2], size_t wanted) {
    const fb_object *list = fb_argument(call, name);
    size_t count = list && fb_object_is_sequence(list) ? list->items->count : 0;
    for (size_t i = 0; i < count && i < wanted; i++) {
        const fb_object *item = &list->items->objects[i];
        if (item->kind != FB_OBJECT_FLOAT && item->kind != FB_OBJECT_INT) count = 0;
        else out[i] = item->kind == FB_OBJECT_INT ? (double)item->integer : item->number;
    }
    return call->status || count >= wanted || fb_kernel_unsupported(call, "%s has no %zu numbers", name, wanted) == FB_OK;
}

/* Into [least, most]; a nan becomes `least`, which ATen keeps. */
static fb_array *clamp(fb_kernel_call *call, fb_array *x, double least, double most) {
    fb_array *out = fb_make_contiguous(call, x);
    fb_array *made = out ? fb_make_array(call, FB_FLOAT32, out->rank, out->sizes) : NULL;
    int64_t count = made ? fb_array_count(made) : 0;
    for (int64_t i = 0; i < count && fb_kernel_goes_on(call, 1); i++) {
        double value = fb_array_get(out, i);
        fb_array_put(made, i, fmin(value > least ? value : least, most));
    }
    fb_array_drop(out);
    return made;
}

/* Gives up `x`, which is NULL after a failure. */
static fb_array *activate(fb_kernel_call *call, fb_array *x, const char *attr, const char *scalars, const char *algorithm) {
    const char *word, *formula = "";
    double ends[2] = {0, INFINITY};
    if (!x || !fb_argument_text(call, attr, &word) || !fb_argument_text(call, algorithm, &formula)) goto fail;
    bool is_hardtanh = strcmp(word, "hardtanh") == 0, is_clamped = is_hardtanh || strcmp(word, "relu") == 0;
    bool is_none = !*word || strcmp(word, "none") == 0;
    fb_op op = fb_op_of_onednn(word);
    if (!op && !is_none) fb_kernel_unsupported(call, "it computes %s", word);
    if (!read_scalars(call, scalars, ends, is_hardtanh ? 2 : 0) || call->status) goto fail;
    if (is_none) return x;
    bool has_formula = strcmp(word, "gelu") == 0;
    const fb_part_argument arguments[] = {{"input", ARRAY(x)}, {has_formula ? "approximate" : NULL, TEXT(formula)}, LAST_PART};
    fb_array *made = is_clamped ? clamp(call, x, ends[0], ends[1]) : part(call, op, fb_op_facts_of(op)->names, arguments);
    fb_array_drop(x);
    return made;
fail:
    fb_array_drop(x);
    return NULL;
}

/* ---- operands ------------------------------------------------------------------------------------------------------------ */

typedef struct operands {
    fb_dtype dtype;
    fb_array *input, *weight, *bias, *other; /* of float32; the last two, or none */
} operands;

static void close_operands(operands *o) {
    fb_array_drop(o->input);
    fb_array_drop(o->weight);
    fb_array_drop(o->bias);
    fb_array_drop(o->other);
}

static bool open_operands(fb_kernel_call *call, bool is_binary, operands *o) {
    fb_array *input, *weight, *bias, *other = NULL;
    *o = (operands){0};
    if (!fb_argument_array(call, "input", &input) || !fb_argument_array(call, "weight", &weight) ||
        !fb_argument_optional(call, "bias", &bias) || (is_binary && !fb_argument_array(call, "other", &other)))
        return false;
    o->dtype = input->dtype;
    if (o->dtype != FB_FLOAT32 && o->dtype != FB_BFLOAT16)
        return fb_kernel_unsupported(call, "it is evaluated in float32 and bfloat16") == FB_OK;
    if (weight->dtype != o->dtype || (bias && bias->dtype != o->dtype) || (other && other->dtype != o->dtype))
        return fb_kernel_fail(call, "what it reads has several dtypes") == FB_OK;
    o->input = fb_make_cast(call, input, FB_FLOAT32);
    o->weight = o->input ? fb_make_cast(call, weight, FB_FLOAT32) : NULL;
    o->bias = o->weight && bias ? fb_make_cast(call, bias, FB_FLOAT32) : NULL;
    o->other = o->weight && other ? fb_make_cast(call, other, FB_FLOAT32) : NULL;
    return !call->status;
}

static fb_object object_named(fb_kernel_call *call, const char *name) {
    const fb_object *found = fb_argument(call, name);
    return found ? *found : (fb_object){.kind = FB_OBJECT_NONE};
}

static fb_array *convolve(fb_kernel_call *call, const operands *o) {
    if (o->weight->rank != 4 || o->input->rank != 4) {
        fb_kernel_unsupported(call, "it is evaluated for images in two dimensions");
        return NULL;
    }
    const fb_part_argument arguments[] = {{"input", ARRAY(o->input)},
                                          {"weight", ARRAY(o->weight)},
                                          {"bias", ARRAY(o->bias)},
                                          {"stride", object_named(call, "stride")},
                                          {"padding", object_named(call, "padding")},
                                          {"dilation", object_named(call, "dilation")},
                                          {"groups", object_named(call, "groups")},
                                          LAST_PART};
    return part(call, FB_OP_CONV2D, "conv2d", arguments);
}

/* Gives up `x`. */
static fb_array *add(fb_kernel_call *call, fb_array *x, fb_array *other) {
    bool is_alike = x && x->rank == other->rank && memcmp(x->sizes, other->sizes, (size_t)x->rank * sizeof *x->sizes) == 0;
    if (x && !is_alike) fb_kernel_fail(call, "what it adds has another shape than its result");
    const fb_part_argument arguments[] = {{"input", ARRAY(x)}, {"other", ARRAY(other)}, LAST_PART};
    fb_array *made = is_alike ? part(call, FB_OP_ADD, "add", arguments) : NULL;
    fb_array_drop(x);
    return made;
}

static fb_status finish(fb_kernel_call *call, operands *o, fb_array *wide, fb_object *result) {
    fb_array *out = wide ? fb_make_cast(call, wide, o->dtype) : NULL;
    fb_array_drop(wide);
    close_operands(o);
    return fb_return_array(call, out, result);
}

/* ---- kernels ------------------------------------------------------------------------------------------------------------- */

static fb_status kernel_conv_pointwise(fb_kernel_call *call, fb_object *result) {
    operands o;
    fb_array *wide = open_operands(call, false, &o) ? convolve(call, &o) : NULL;
    return finish(call, &o, activate(call, wide, "attr", "scalars", "algorithm"), result);
}

static fb_status kernel_conv_pointwise_binary(fb_kernel_call *call, fb_object *result) {
    operands o;
    const char *word;
    bool is_open = open_operands(call, true, &o) && fb_argument_text(call, "binary_attr", &word);
    if (is_open && (strcmp(word, "add") != 0 || fb_argument_is_given(call, "alpha")))
        fb_kernel_unsupported(call, "it combines by %s, or with a factor", word);
    fb_array *wide = is_open && !call->status ? convolve(call, &o) : NULL;
    wide = wide ? add(call, wide, o.other) : NULL;
    return finish(call, &o, activate(call, wide, "unary_attr", "unary_scalars", "unary_algorithm"), result);
}

static fb_status kernel_linear_pointwise(fb_kernel_call *call, fb_object *result) {
    operands o;
    fb_array *wide = NULL;
    if (open_operands(call, false, &o)) {
        const fb_part_argument arguments[] = {
            {"input", ARRAY(o.input)}, {"weight", ARRAY(o.weight)}, {"bias", ARRAY(o.bias)}, LAST_PART};
        wide = part(call, FB_OP_LINEAR, "linear", arguments);
    }
    return finish(call, &o, activate(call, wide, "attr", "scalars", "algorithm"), result);
}

const fb_kernel_row fb_kernels_pointwise[] = {
    FB_KERNEL(CONV_POINTWISE, conv_pointwise),
    FB_KERNEL(CONV_POINTWISE_BINARY, conv_pointwise_binary),
    FB_KERNEL(LINEAR_POINTWISE, linear_pointwise),
    FB_KERNELS_END,
};
