/* Padding: with a number, or with elements of the tensor itself; negative padding cuts off. */
#include <string.h>

#include "core/evaluator/internal.h"

#define STEPS_OF_A_PART 200 /* that is assigned by itself */

typedef enum pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_REPLICATE, PAD_CIRCULAR } pad_mode;

/* One dimension: before, after (from -size on). */
typedef struct padding {
    int64_t before, after;
} padding;

static fb_array *pad_with_number(fb_kernel_call *call, const fb_array *input, const padding *pads, const fb_object *value) {
    int64_t sizes[FB_MAX_RANK];
    double number = 0;
    if (value && value->kind != FB_OBJECT_NONE && !fb_object_number(value, &number)) {
        fb_kernel_unsupported(call, "its value is not a number");
        return NULL;
    }
    for (int i = 0; i < input->rank; i++) {
        sizes[i] = input->sizes[i] + pads[i].before + pads[i].after;
        if (sizes[i] < 0) {
            fb_kernel_fail(call, "less than nothing is left of a dimension");
            return NULL;
        }
    }
    fb_array *out = fb_make_array(call, input->dtype, input->rank, sizes);
    fb_array *from = out ? fb_make_view(call, input, input->rank) : NULL,
             *to = from ? fb_make_view(call, out, out->rank) : NULL;
    if (to) fb_array_fill(out, number, value && value->kind == FB_OBJECT_INT ? value->integer : (int64_t)number);
    for (int i = 0; i < input->rank && to; i++) { /* what both have */
        int64_t cut = pads[i].before < 0 ? -pads[i].before : 0,
                stop = input->sizes[i] + (pads[i].after < 0 ? pads[i].after : 0);
        fb_array_slice(from, i, cut, stop > cut ? stop : cut, 1);
        int64_t start = pads[i].before > 0 ? pads[i].before : 0;
        fb_array_slice(to, i, start, start + from->sizes[i], 1);
    }
    if (to) call->status = fb_array_assign(to, from, call->error);
    fb_array_drop(from);
    fb_array_drop(to);
    return out;
}

/* Which element of a dimension is at `at`, counted from the first, when it is outside. */
static int64_t element_for(pad_mode mode, int64_t at, int64_t size) {
    if (mode == PAD_REPLICATE) return at < 0 ? 0 : at >= size ? size - 1 : at;
    if (mode == PAD_CIRCULAR) return (at % size + size) % size;
    return at < 0 ? -at : at >= size ? 2 * (size - 1) - at : at;
}

static fb_array *pad_with_itself(fb_kernel_call *call, const fb_array *input, const padding *pads, pad_mode mode) {
    fb_array *now = fb_make_cast(call, input, input->dtype);
    for (int d = 0; d < input->rank && now && !call->status; d++) {
        int64_t size = now->sizes[d], count = size + pads[d].before + pads[d].after, sizes[FB_MAX_RANK];
        int64_t most = mode == PAD_REFLECT ? size - 1 : mode == PAD_CIRCULAR ? size : INT64_MAX;
        if (!pads[d].before && !pads[d].after) continue;
        if (pads[d].before > most || pads[d].after > most || count < 1 || !size) {
            fb_kernel_fail(call, "a dimension of %lld is too small for its padding", (long long)size);
            break;
        }
        memcpy(sizes, now->sizes, sizeof sizes);
        sizes[d] = count;
        fb_array *next = fb_make_array(call, now->dtype, now->rank, sizes);
        fb_kernel_takes(call, STEPS_OF_A_PART * (double)count);
        for (int64_t i = 0; i < count && next && fb_kernel_goes_on(call, STEPS_OF_A_PART); i++) {
            fb_array *from = fb_make_view(call, now, now->rank), *to = from ? fb_make_view(call, next, next->rank) : NULL;
            int64_t at = element_for(mode, i - pads[d].before, size);
            if (to) {
                fb_array_slice(from, d, at, at + 1, 1);
                fb_array_slice(to, d, i, i + 1, 1);
                call->status = fb_array_assign(to, from, call->error);
            }
            fb_array_drop(from);
            fb_array_drop(to);
        }
        fb_array_drop(now);
        now = next;
    }
    return now;
}

/* Pairs (before, after) for the last dimension, the one before it … */
static bool read_pads(fb_kernel_call *call, const char *name, const fb_array *input, int pairs, pad_mode mode,
                      padding pads[FB_MAX_RANK]) {
    int64_t given[FB_MAX_RANK];
    int count;
    if (!fb_argument_ints(call, name, given, &count)) return false;
    bool is_module = fb_node_at(call->graph, call->node)->opcode == FB_CALL_MODULE;
    if (count == 1 && pairs && is_module) { /* a module's single int is all */
        for (int i = 1; i < 2 * pairs; i++) given[i] = given[0];
        count = 2 * pairs;
    }
    if (count < 0 || count % 2 || count / 2 > input->rank || (pairs && count != 2 * pairs))
        return fb_kernel_fail(call, "its padding does not fit") == FB_OK;
    bool is_spatial = input->rank == count / 2 + 1 || input->rank == count / 2 + 2;
    if (mode != PAD_CONSTANT && (!is_spatial || count > 6))
        return fb_kernel_fail(call, "it pads the last one, two or three dimensions behind channels") == FB_OK;
    memset(pads, 0, FB_MAX_RANK * sizeof *pads);
    for (int i = 0; i < count / 2; i++) pads[input->rank - 1 - i] = (padding){given[2 * i], given[2 * i + 1]};
    for (int i = 0; i < input->rank && mode != PAD_CONSTANT; i++) {
        if (pads[i].before < 0 || pads[i].after < 0) return fb_kernel_unsupported(call, "its padding is negative") == FB_OK;
        bool is_batch = i == 0 && input->rank == count / 2 + 2; /* which alone may be empty */
        if (!input->sizes[i] && !is_batch && mode != PAD_CIRCULAR) return fb_kernel_fail(call, "its input is empty") == FB_OK;
    }
    return true;
}

fb_array *fb_make_padded(fb_kernel_call *call, const fb_array *input, const char *mode, int spatial, const int64_t *before,
                         const int64_t *after) {
    static const struct {
        const char *name;
        pad_mode mode;
    } modes[] = {{"reflect", PAD_REFLECT}, {"replicate", PAD_REPLICATE}, {"circular", PAD_CIRCULAR}};
    padding pads[FB_MAX_RANK] = {{0}};
    for (int i = 0; i < spatial; i++) pads[input->rank - spatial + i] = (padding){before[i], after[i]};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(mode, modes[i].name)) return pad_with_itself(call, input, pads, modes[i].mode);
    fb_kernel_unsupported(call, "its padding mode is %s", mode);
    return NULL;
}

static fb_status pad(fb_kernel_call *call, const char *name, int pairs, pad_mode mode, fb_object *result) {
    fb_array *input, *out = NULL;
    padding pads[FB_MAX_RANK];
    if (!fb_argument_array(call, "input", &input) || !read_pads(call, name, input, pairs, mode, pads)) return call->status;
    if (mode == PAD_CONSTANT) out = pad_with_number(call, input, pads, fb_argument(call, "value"));
    else if (input->dtype == FB_BOOL && mode != PAD_CIRCULAR) return fb_kernel_fail(call, "it does not pad bools");
    else out = pad_with_itself(call, input, pads, mode);
    return fb_return_array(call, out, result);
}

static fb_status kernel_pad(fb_kernel_call *call, fb_object *result) {
    static const char *const names[] = {"constant", "reflect", "replicate", "circular"};
    const char *mode = "constant";
    if (fb_argument_is_given(call, "mode") && !fb_argument_text(call, "mode", &mode)) return call->status;
    for (pad_mode i = PAD_CONSTANT; i <= PAD_CIRCULAR; i++) {
        if (strcmp(mode, names[i]) != 0) continue;
        if (i != PAD_CONSTANT && fb_argument_is_given(call, "value")) {
            double value;
            if (!fb_argument_number(call, "value", 0, &value)) return call->status;
            if (value != 0) return fb_kernel_fail(call, "a value is for constant padding alone");
        }
        return pad(call, "pad", 0, i, result);
    }
    return fb_kernel_fail(call, "its mode is %s", mode);
}

/* ZeroPad2d, ReflectionPad1d, aten.replication_pad2d … */
static fb_status kernel_pad_layer(fb_kernel_call *call, fb_object *result) {
    const char *name = fb_call_spelling(call), *digit = strpbrk(name, "123");
    pad_mode mode = PAD_CONSTANT;
    if (strncmp(name, "Reflection", 10) == 0 || strncmp(name, "reflection", 10) == 0) mode = PAD_REFLECT;
    if (strncmp(name, "Replication", 11) == 0 || strncmp(name, "replication", 11) == 0) mode = PAD_REPLICATE;
    if (strncmp(name, "Circular", 8) == 0) mode = PAD_CIRCULAR;
    if (!digit) return fb_kernel_unsupported(call, "it is not known");
    return pad(call, "padding", *digit - '0', mode, result);
}

const fb_kernel_row fb_kernels_pad[] = {
    FB_KERNEL(PAD, pad),
    FB_KERNEL(CONSTANT_PAD, pad),
    FB_KERNEL(PAD_LAYER, pad_layer),
    FB_KERNEL(ZERO_PAD_LAYER, pad_layer),
    FB_KERNEL(CONSTANT_PAD_LAYER, pad_layer),
    FB_KERNEL(EDGE_PAD, pad_layer),
    FB_KERNELS_END,
};
