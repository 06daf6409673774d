/* Everything that is not a layer: arithmetic, divisions, views, writes, sizes. */
#include "tests/unit/generator_motifs.h"

#include <string.h>

/* ---- elementwise --------------------------------------------------------------------------------------------------------- */

static void add_elementwise(generator *g) {
    const result *picked = pick_float(g, 0);
    if (!picked) return;
    result x = *picked;
    const char *ref = node_ref(g, picked);
    switch (below(g, 7)) {
    case 0: add_node(g, "relu", "call_function", "torch.nn.functional.relu", ref, "", x); break;
    case 1: add_node(g, "tanh", "call_method", "tanh", ref, "", x); break;
    case 2: add_node(g, "add", "call_function", "operator.add", text(g, "%s,0.5", ref), "", x); break;
    case 3: add_node(g, "mul", "call_function", "torch.mul", text(g, "%s,%s", ref, ref), "", x); break;
    case 4: add_node(g, "cat", "call_function", "torch.cat", text(g, "[%s]", ref), "\"dim\":-1", x); break;
    case 5: {
        const char *path = fresh_path(g, "act");
        add_module(g, path, "torch.nn.ReLU", "\"inplace\":false", "", "", false, "");
        add_call(g, path, picked, x);
        break;
    }
    default: add_node(g, "sub", "call_function", "operator.sub", text(g, "1,%s", ref), "", x);
    }
}

/* ---- writes -------------------------------------------------------------------------------------------------------------- */

static void write_through_view(generator *g, const result *x) {
    result view = *x;
    int64_t flat = 1;
    for (int i = 0; i < x->rank; i++) flat *= x->sizes[i];
    view.rank = 1;
    view.sizes[0] = flat;
    result made = *add_node(g, "view", "call_method", "view", text(g, "%s,-1", node_ref(g, x)), "", view);
    add_node(g, "add_", "call_method", "add_", text(g, "%s,0.125", node_ref(g, &made)), "", view);
}

static void write_by_module(generator *g, const result *x) {
    const char *path = fresh_path(g, "inplace");
    add_module(g, path, "torch.nn.ReLU", "\"inplace\":true", "", "", false, "");
    add_call(g, path, x, *x);
}

void write_into_value(generator *g, const result *given) {
    result x = *given, none = {.sort = SORT_SHAPE};
    if (x.sort != SORT_TENSOR || !fb_dtype_is_floating(x.dtype)) return;
    const char *ref = node_ref(g, &x);
    switch (below(g, 9)) {
    case 0: add_node(g, "add_", "call_method", "add_", text(g, "%s,1.5", ref), "", x); break;
    case 1: add_node(g, "relu_", "call_function", "torch.relu_", ref, "", x); break;
    case 2: add_node(g, "iadd", "call_function", "operator.iadd", text(g, "%s,{\"$float\":\"2.0\"}", ref), "", x); break;
    case 3: add_node(g, "relu", "call_function", "torch.nn.functional.relu", ref, "\"inplace\":true", x); break;
    case 4: write_by_module(g, &x); break;
    case 5:
        add_node(g, "setitem", "call_function", "operator.setitem",
                 text(g, "%s,{\"$tuple\":[{\"$ellipsis\":true},0]},0.75", ref), "", none);
        break;
    case 6: add_node(g, "kernel", "call_function", "custom.kernel", ref, "", x); break;
    case 7: add_node(g, "add", "call_function", "torch.add", text(g, "%s,1", ref), text(g, "\"out\":%s", ref), x); break;
    default: write_through_view(g, &x);
    }
}

static void add_write(generator *g) {
    const result *x = pick_float(g, 0);
    if (x) write_into_value(g, x);
}

/* ---- views --------------------------------------------------------------------------------------------------------------- */

void add_flat_view(generator *g, const result *x) {
    int64_t flat = 1;
    for (int i = 0; i < x->rank; i++) flat *= x->sizes[i];
    result view = tensor_result(x->dtype, 1, &flat);
    add_node(g, "view", "call_method", "view", text(g, "%s,-1", node_ref(g, x)), "", view);
}

static void add_view(generator *g) {
    const result *picked = pick_float(g, 0);
    if (!picked) return;
    result x = *picked, about = x;
    const char *ref = node_ref(g, &x);
    switch (below(g, 4)) {
    case 0: add_flat_view(g, &x); break;
    case 1:
        if (x.rank < 2) return;
        about.sizes[x.rank - 2] = x.sizes[x.rank - 1];
        about.sizes[x.rank - 1] = x.sizes[x.rank - 2];
        add_node(g, "transpose", "call_method", "transpose", text(g, "%s,-1,-2", ref), "", about);
        break;
    case 2:
        about = tensor_result(x.dtype, 1, x.sizes);
        for (int i = 1; i < x.rank; i++) about.sizes[0] *= x.sizes[i];
        add_node(g, "flatten", "call_function", "torch.flatten", ref, "", about);
        break;
    default:
        about.rank = x.rank - 1;
        if (about.rank == 0) return;
        memmove(about.sizes, x.sizes + 1, (size_t)about.rank * sizeof *about.sizes);
        add_node(g, "getitem", "call_function", "operator.getitem", text(g, "%s,0", ref), "", about);
    }
}

/* ---- sizes and divisions ------------------------------------------------------------------------------------------------- */

static void add_size(generator *g) {
    const result *x = pick_float(g, 0);
    if (!x) return;
    result number = {.sort = SORT_NUMBER};
    const char *ref = node_ref(g, x);
    if (once_in(g, 2)) {
        add_node(g, "size", "call_method", "size", text(g, "%s,-1", ref), "", number);
    } else {
        result shape = *add_node(g, "getattr_1", "call_function", "builtins.getattr", text(g, "%s,\"shape\"", ref), "",
                                 (result){.sort = SORT_SHAPE});
        result size =
            *add_node(g, "getitem", "call_function", "operator.getitem", text(g, "%s,-1", node_ref(g, &shape)), "", number);
        if (once_in(g, 2)) add_node(g, "mul", "call_function", "operator.mul", text(g, "%s,2", node_ref(g, &size)), "", number);
    }
}

static const result *pick_numerator(generator *g) {
    for (int tries = 0; tries < 10; tries++) {
        const result *x = pick_any(g);
        if (x->sort != SORT_SHAPE) return x;
    }
    return &g->values[0];
}

static const char *random_divisor(generator *g) {
    static const char *const usual[] = {"8", "49", "3", "{\"$float\":\"4.0\"}", "0.125", "-7", "{\"$float\":\"10.0\"}", "281"};
    static const char *const odd[] = {"0",
                                      "{\"$float\":\"0.0\"}",
                                      "{\"$float\":\"-0.0\"}",
                                      "{\"$float\":\"inf\"}",
                                      "{\"$float\":\"-inf\"}",
                                      "{\"$float\":\"nan\"}",
                                      "1e-310",
                                      "{\"$float\":\"3e+38\"}",
                                      "{\"$float\":\"1e+308\"}",
                                      "1e-39",
                                      "65520",
                                      "40000",
                                      "true",
                                      "false",
                                      "{\"$int\":\"100000000000000000000000\"}",
                                      "{\"$complex\":[1,0.5]}",
                                      "{\"$int\":\"9007199254740993\"}"};
    return once_in(g, 3) ? PICK(g, odd) : PICK(g, usual);
}

static void add_division(generator *g) {
    const result *numerator = pick_numerator(g);
    result about = *numerator;
    if (about.sort == SORT_TENSOR && !fb_dtype_is_floating(about.dtype) && !fb_dtype_is_complex(about.dtype))
        about.dtype = FB_FLOAT32;
    const char *x = node_ref(g, numerator), *by = random_divisor(g), *more = "";
    if (once_in(g, 10)) more = once_in(g, 2) ? "\"rounding_mode\":\"floor\"" : "\"rounding_mode\":\"trunc\"";
    else if (once_in(g, 12)) more = "\"rounding_mode\":null";
    else if (once_in(g, 25)) more = text(g, "\"out\":%s", x);
    const char *both = text(g, "%s,%s", x, by);
    switch (below(g, 6)) {
    case 0:
    case 1: add_node(g, "truediv", "call_function", "operator.truediv", both, "", about); break;
    case 2: add_node(g, "div", "call_function", "torch.div", both, more, about); break;
    case 3: add_node(g, "div", "call_function", "torch.true_divide", both, "", about); break;
    case 4: add_node(g, "div", "call_method", "div", both, more, about); break;
    default: add_node(g, "div", "call_function", "torch.div", "", text(g, "\"input\":%s,\"other\":%s", x, by), about);
    }
}

/* ---- choosing ------------------------------------------------------------------------------------------------------------ */

void add_motif(generator *g) {
    static void (*const motifs[])(generator *) = {
        add_elementwise,
        add_elementwise,
        add_write,
        add_view,
        add_size,
        add_division,
        add_division,
        add_division,
        add_linear_group,
        add_linear_group,
        add_single_linear,
        add_conv_pair,
        add_conv_pair,
        add_linear_pair,
        add_linear_pair,
        add_sandwich,
        tamper_with_layer,
        tamper_with_layer,
        add_nested_program,
        add_unknown_module,
        add_no_op,
        add_no_op,
        add_views,
        add_again,
        add_effect,
        add_weight_arithmetic,
        add_weight_arithmetic,
        add_scaled_linear,
        add_scaled_linear,
        add_norm_and_linears,
        add_scaled_conv,
        add_scaled_conv,
    };
    if (g->layer_count + 8 < MAX_LAYERS) PICK(g, motifs)(g);
}
