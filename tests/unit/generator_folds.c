/* What the folding passes look for: arithmetic on weights, constants beside layers, norms before Linears. */
#include <string.h>

#include "tests/unit/generator_motifs.h"

static linear_options linear_for(generator *g, const result *x) {
    return (linear_options){
        .inputs = x->sizes[x->rank - 1], .outputs = 1 + (int64_t)below(g, 4), .dtype = x->dtype, .has_bias = !once_in(g, 4)};
}

/* ---- weights ------------------------------------------------------------------------------------------------------------- */

/* A module that nobody calls, with one tensor, and the node that reads it. */
static result *read_named_weight(generator *g, fb_dtype dtype, int rank, const int64_t *sizes, const char *name) {
    const char *path = fresh_path(g, "weights");
    add_module(g, path, "torch.nn.Module", "", text(g, "\"w\":\"%s\"", name), "", false, "");
    return add_node(g, "w", "get_attr", text(g, "%s.w", path), "", "", tensor_result(dtype, rank, sizes));
}

static result *read_weight(generator *g, fb_dtype dtype, int rank, const int64_t *sizes) {
    return read_named_weight(g, dtype, rank, sizes, add_tensor(g, "weights.w", dtype, rank, sizes, ""));
}

static void switch_mode(generator *g) {
    add_node(g, "grad", "call_function", "torch._C._set_grad_enabled", "false", "", (result){.sort = SORT_SHAPE});
}

/* One step from a matrix to another. */
static result step(generator *g, const result *given) {
    result w = *given, other = w;
    const char *ref = node_ref(g, &w);
    switch (below(g, 10)) {
    case 0: return *add_node(g, "mul", "call_function", "operator.mul", text(g, "%s,0.5", ref), "", w);
    case 1: return *add_node(g, "neg", "call_function", "torch.neg", ref, "", w);
    case 2: return *add_node(g, "sub", "call_function", "torch.sub", text(g, "%s,2", ref), "", w);
    case 3:
        other.sizes[0] = w.sizes[1];
        other.sizes[1] = w.sizes[0];
        return *add_node(g, "transpose", "call_method", "transpose", text(g, "%s,0,1", ref), "", other);
    case 4: return *add_node(g, "clone", "call_method", "clone", ref, "", w);
    case 5:
        other.sizes[0] *= 2;
        return *add_node(g, "cat", "call_function", "torch.cat", text(g, "[%s,%s]", ref, ref), "", other);
    case 6:
        return *add_node(g, "getitem", "call_function", "operator.getitem", text(g, "%s,{\"$slice\":[0,2,null]}", ref), "",
                         tensor_result(w.dtype, 2, (int64_t[]){w.sizes[0] < 2 ? w.sizes[0] : 2, w.sizes[1]}));
    case 8: /* not as a recipe can spell it */
        other.sizes[0] = (w.sizes[0] + 1) / 2;
        return *add_node(g, "getitem", "call_function", "operator.getitem", text(g, "%s,{\"$slice\":[null,null,2]}", ref), "",
                         other);
    case 7: return *add_node(g, "tanh", "call_function", "torch.tanh", ref, "", w);
    default: {
        result v = *read_weight(g, w.dtype, 2, w.sizes);
        return *add_node(g, "add", "call_function", "operator.add", text(g, "%s,%s", ref, node_ref(g, &v)), "", w);
    }
    }
}

/* Of no weight. */
static result *add_ones(generator *g, const result *x) {
    const char *dtype = text(g, "\"dtype\":{\"$dtype\":\"%s\"}", fb_dtype_name(x->dtype));
    return add_node(g, "ones", "call_function", once_in(g, 2) ? "torch.ones" : "torch.zeros",
                    text(g, "3,%lld", (long long)x->sizes[1]), dtype, tensor_result(x->dtype, 2, (int64_t[]){3, x->sizes[1]}));
}

/* x · f(weights)ᵀ, or x + f(weights) where the shapes allow it; f's last steps may be written to, or be an output. Or f of what
 * is made of nothing. */
void add_weight_arithmetic(generator *g) {
    const result *picked = pick_float(g, 2);
    if (!picked) return;
    result x = *picked;
    result w =
        once_in(g, 3) ? *add_ones(g, &x) : *read_weight(g, once_in(g, 25) ? FB_INT64 : x.dtype, 2, (int64_t[]){3, x.sizes[1]});
    size_t steps = 1 + below(g, 4);
    if (once_in(g, 8)) switch_mode(g);
    for (size_t i = 0; i < steps; i++) {
        w = step(g, &w);
        if (once_in(g, 15)) write_into_value(g, &w);
        if (once_in(g, 15)) make_output(g, &w);
    }
    const char *both = text(g, "%s,%s", node_ref(g, &x), node_ref(g, &w));
    if (w.sizes[1] != x.sizes[1]) return;
    add_node(g, "linear", "call_function", "torch.nn.functional.linear", both, "",
             tensor_result(x.dtype, 2, (int64_t[]){x.sizes[0], w.sizes[0]}));
}

/* ---- constants beside layers --------------------------------------------------------------------------------------------- */

static const char *constant_for(generator *g, const result *x) {
    static const char *const numbers[] = {"0.5", "{\"$float\":\"2.0\"}", "3", "-0.25", "0.125"};
    static const char *const odd[] = {"0", "{\"$float\":\"inf\"}", "1e-310", "{\"$float\":\"1e+300\"}"};
    if (once_in(g, 12)) return PICK(g, odd);
    if (!once_in(g, 3)) return PICK(g, numbers);
    int64_t sizes[2] = {1, once_in(g, 10) ? 1 : x->sizes[x->rank - 1] + once_in(g, 10)};
    bool is_vector = !once_in(g, 6);
    result c = *read_weight(g,
                            once_in(g, 15)   ? FB_INT32
                            : once_in(g, 15) ? FB_FLOAT64
                                             : x->dtype,
                            is_vector ? 1 : 2, is_vector ? sizes + 1 : sizes);
    if (once_in(g, 15)) write_into_value(g, &c);
    return node_ref(g, &c);
}

static result scaled(generator *g, const result *given) {
    static const char *const targets[] = {"operator.mul", "torch.mul", "operator.truediv", "operator.add", "torch.sub"};
    result x = *given;
    const char *constant = constant_for(g, &x);
    if (once_in(g, 15)) write_into_value(g, &x);
    if (once_in(g, 20)) make_output(g, &x);
    return *add_node(g, "scaled", "call_function", PICK(g, targets), text(g, "%s,%s", node_ref(g, &x), constant), "", x);
}

void add_scaled_linear(generator *g) {
    const result *picked = pick_float(g, once_in(g, 4) ? 3 : 2);
    if (!picked) return;
    result x = *picked;
    if (once_in(g, 2)) {
        result before = x;
        x = scaled(g, &x);
        if (once_in(g, 10)) write_into_value(g, &before);
    }
    if (once_in(g, 20)) switch_mode(g);
    layer linear = *add_linear(g, linear_for(g, &x));
    result y = *call_linear(g, &linear, &x);
    if (once_in(g, 15)) call_linear(g, &linear, &x);
    if (once_in(g, 4)) {
        result turned = tensor_result(y.dtype, y.rank, y.sizes);
        turned.sizes[y.rank - 2] = y.sizes[y.rank - 1];
        turned.sizes[y.rank - 1] = y.sizes[y.rank - 2];
        y = *add_node(g, "transpose", "call_method", "transpose", text(g, "%s,-1,-2", node_ref(g, &y)), "", turned);
    }
    scaled(g, &y);
}

/* A convolution of one kind, with and without padding. */
void add_scaled_conv(generator *g) {
    const result *picked = pick_float(g, 4);
    if (!picked) return;
    result x = *picked, y = x;
    bool is_padded = once_in(g, 2);
    int64_t channels = x.sizes[1], kernel[4] = {2, channels, is_padded ? 3 : 1, is_padded ? 3 : 1};
    const char *path = fresh_path(g, "conv"), *weight = add_tensor(g, text(g, "%s.weight", path), x.dtype, 4, kernel, "");
    add_module(g, path, "torch.nn.Conv2d",
               text(g, "\"in_channels\":%lld,\"out_channels\":2,\"kernel_size\":%lld,\"padding\":%d,\"bias\":false",
                    (long long)channels, (long long)kernel[2], is_padded),
               text(g, "\"weight\":\"%s\",\"bias\":null", weight), "", false, "");
    if (once_in(g, 4)) x = *add_call(g, add_norm(g, 2, channels, x.dtype, false, true)->path, &x, x);
    else if (!once_in(g, 4)) x = scaled(g, &x);
    y.sizes[1] = 2;
    y = *add_call(g, path, &x, y);
    if (once_in(g, 2)) scaled(g, &y);
}

/* ---- norms before Linears ------------------------------------------------------------------------------------------------ */

static const char *add_layer_norm(generator *g, const result *x, int axes) {
    const char *path = fresh_path(g, "ln"), *shape = "";
    const int64_t *sizes = x->sizes + x->rank - axes;
    for (int i = 0; i < axes; i++) shape = text(g, "%s%s%lld", shape, i ? "," : "", (long long)sizes[i]);
    bool is_centred = !once_in(g, 3), has_weight = !once_in(g, 8);
    fb_dtype dtype = once_in(g, 15) ? FB_FLOAT64 : x->dtype;
    const char *weight = has_weight ? add_tensor(g, text(g, "%s.weight", path), dtype, axes, sizes, "") : NULL;
    const char *bias =
        has_weight && is_centred && !once_in(g, 4) ? add_tensor(g, text(g, "%s.bias", path), dtype, axes, sizes, "") : NULL;
    const char *parameters = weight ? text(g, "\"weight\":\"%s\"", weight) : "\"weight\":null";
    if (is_centred)
        parameters = bias ? text(g, "%s,\"bias\":\"%s\"", parameters, bias) : text(g, "%s,\"bias\":null", parameters);
    const char *config = text(g, "\"normalized_shape\":{\"$tuple\":[%s]},\"eps\":0.001,\"elementwise_affine\":%s%s", shape,
                              has_weight ? "true" : "false", is_centred && !bias ? ",\"bias\":false" : "");
    add_module(g, path, is_centred ? "torch.nn.LayerNorm" : "torch.nn.RMSNorm", config, parameters, "", once_in(g, 20), "");
    return path;
}

void add_norm_and_linears(generator *g) {
    const result *picked = pick_float(g, once_in(g, 3) ? 3 : 2);
    if (!picked) return;
    result x = *picked;
    const char *path = add_layer_norm(g, &x, once_in(g, 12) ? 2 : 1);
    result y = *add_call(g, path, &x, x);
    if (once_in(g, 15)) add_call(g, path, &y, y);
    if (once_in(g, 15)) make_output(g, &y);
    if (once_in(g, 15)) add_node(g, "relu", "call_function", "torch.nn.functional.relu", node_ref(g, &y), "", y);
    if (once_in(g, 10)) switch_mode(g);
    if (once_in(g, 15))
        add_node(g, "read", "get_attr", text(g, "%s.weight", path), "", "", tensor_result(x.dtype, 1, x.sizes + x.rank - 1));
    size_t count = 1 + below(g, 3);
    for (size_t i = 0; i < count; i++) {
        linear_options o = linear_for(g, &y);
        o.training = once_in(g, 25);
        if (once_in(g, 15)) o.dtype = o.dtype == FB_FLOAT64 ? FB_FLOAT32 : FB_FLOAT64;
        if (once_in(g, 15)) { /* another module owns its weight, and somebody writes into it */
            int64_t sizes[2] = {o.outputs, o.inputs};
            o.weight = add_tensor(g, "shared.w", o.dtype, 2, sizes, "");
            result w = *read_named_weight(g, o.dtype, 2, sizes, o.weight);
            write_into_value(g, &w);
        }
        layer linear = *add_linear(g, o);
        call_linear(g, &linear, &y);
        if (once_in(g, 20)) call_linear(g, &linear, &y);
    }
}
