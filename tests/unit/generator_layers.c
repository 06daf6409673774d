/* Layers, alone and in the pairs and groups that passes look for. */
#include <string.h>

#include "tests/unit/generator_internal.h"
#include "tests/unit/generator_motifs.h"

static const char *frozen_text(bool is_frozen) {
    return is_frozen ? ",\"requires_grad\":false" : "";
}

static const char *or_null(generator *g, const char *tensor) {
    return tensor ? text(g, "\"%s\"", tensor) : "null";
}

/* ---- Linear -------------------------------------------------------------------------------------------------------------- */

layer *add_linear(generator *g, linear_options o) {
    if (!o.path) o.path = random_path(g);
    int64_t sizes[] = {o.outputs, o.inputs};
    fb_dtype bias_dtype = o.bias_dtype ? o.bias_dtype : o.dtype;
    if (!o.weight) o.weight = add_tensor(g, text(g, "%s.weight", o.path), o.dtype, 2, sizes, frozen_text(o.weight_frozen));
    if (!o.bias && o.has_bias)
        o.bias = add_tensor(g, text(g, "%s.bias", o.path), bias_dtype, 1, sizes, frozen_text(o.bias_frozen));
    add_module(g, o.path, o.type ? o.type : "torch.nn.Linear",
               text(g, "\"in_features\":%lld,\"out_features\":%lld,\"bias\":%s", (long long)o.inputs, (long long)o.outputs,
                    o.bias ? "true" : "false"),
               text(g, "\"weight\":\"%s\",\"bias\":%s", o.weight, or_null(g, o.bias)), "", o.training, "");
    layer made = {.sort = LAYER_LINEAR,
                  .path = o.path,
                  .weight = o.weight,
                  .bias = o.bias,
                  .inputs = o.inputs,
                  .outputs = o.outputs,
                  .dtype = o.dtype};
    return remember_layer(g, made);
}

result *call_linear(generator *g, const layer *linear, const result *x) {
    result about = tensor_result(linear->dtype, x->rank, x->sizes);
    about.sizes[x->rank - 1] = linear->outputs;
    return add_call(g, linear->path, x, about);
}

static linear_options plain_linear(generator *g, const result *x) {
    return (linear_options){
        .inputs = x->sizes[x->rank - 1], .outputs = 1 + (int64_t)below(g, 4), .dtype = x->dtype, .has_bias = !once_in(g, 4)};
}

/* A Linear that shares a tensor with one that is there already, when one fits. */
static void share(generator *g, linear_options *o) {
    for (size_t i = 0; i < g->layer_count; i++) {
        const layer *other = &g->layers[i];
        if (other->sort != LAYER_LINEAR || other->inputs != o->inputs || other->dtype != o->dtype) continue;
        o->weight = other->weight;
        o->outputs = other->outputs;
        if (other->bias && once_in(g, 2)) o->bias = other->bias;
        return;
    }
}

/* What sets a Linear apart from its neighbours. */
static void vary(generator *g, linear_options *o) {
    static const char *const types[] = {"my.LoraLinear", "bitsandbytes.nn.Linear8bitLt", "torch.nn.modules.linear.LinearNorm"};
    switch (below(g, 9)) {
    case 0: o->dtype = o->dtype == FB_FLOAT32 ? FB_FLOAT16 : FB_FLOAT32; break;
    case 1: o->bias_dtype = o->dtype == FB_FLOAT64 ? FB_FLOAT32 : FB_FLOAT64; break;
    case 2: o->weight_frozen = true; break;
    case 3: o->bias_frozen = true; break;
    case 4: o->weight_frozen = o->bias_frozen = true; break;
    case 5: o->training = true; break;
    case 6: o->type = PICK(g, types); break;
    case 7: o->inputs++; break;
    default: share(g, o);
    }
}

/* Writes into a tensor through another module that owns it too. */
static void write_weight(generator *g, const layer *l) {
    if (!l->weight) return;
    const char *path = fresh_path(g, "store");
    add_module(g, path, "custom.Store", "", text(g, "\"value\":\"%s\"", once_in(g, 2) ? base_of(g, l->weight) : l->weight), "",
               false, "");
    result about = {.sort = SORT_SHAPE}, value = *add_node(g, "value", "get_attr", text(g, "%s.value", path), "", "", about);
    add_node(g, "written", "call_method", "add_", text(g, "%s,0.25", node_ref(g, &value)), "", about);
}

/* Autograd's switch: numbers stay, but a rewrite must not move what is computed across it. */
static void switch_mode(generator *g) {
    add_node(g, "mode", "call_function", "torch._C._set_grad_enabled", once_in(g, 2) ? "true" : "false", "",
             (result){.sort = SORT_SHAPE});
}

void add_linear_group(generator *g) {
    const result *picked = pick_float(g, 0);
    if (!picked) return;
    result x = *picked;
    size_t count = 2 + below(g, 4), extra = below(g, count + 3);
    bool is_uneven = once_in(g, 2), is_training = once_in(g, 8), is_odd = once_in(g, 15);
    static const fb_dtype odd[] = {FB_INT8, FB_UINT8, FB_BOOL, FB_COMPLEX64, FB_FLOAT8_E4M3FN, FB_INT64};
    fb_dtype dtype = is_odd ? PICK(g, odd) : x.dtype;
    for (size_t i = 0; i < count; i++) {
        linear_options o = plain_linear(g, &x);
        o.training = is_training;
        o.dtype = dtype;
        if (is_uneven && once_in(g, 3)) vary(g, &o);
        layer linear = *add_linear(g, o);
        if (once_in(g, 20)) write_weight(g, &linear);
        result y = *call_linear(g, &linear, &x);
        if (i == extra && once_in(g, 3)) call_linear(g, &linear, &x);
        if (i + 1 < count && once_in(g, 8)) write_into_value(g, &x);
        if (i + 1 < count && once_in(g, 25)) switch_mode(g);
        if (once_in(g, 10)) add_flat_view(g, &y);
    }
}

void add_single_linear(generator *g) {
    const result *picked = pick_float(g, 0);
    if (!picked) return;
    result x = *picked;
    linear_options o = plain_linear(g, &x);
    if (once_in(g, 3)) vary(g, &o);
    layer linear = *add_linear(g, o);
    if (once_in(g, 10)) write_weight(g, &linear);
    call_linear(g, &linear, &x);
    if (once_in(g, 20)) write_weight(g, &linear);
    if (once_in(g, 4)) call_linear(g, &linear, &x);
}

/* ---- BatchNorm ----------------------------------------------------------------------------------------------------------- */

layer *add_norm(generator *g, int spatial, int64_t features, fb_dtype dtype, bool training, bool has_statistics) {
    const char *path = fresh_path(g, once_in(g, 2) ? "bn" : "layer.0.norm");
    const char *names[] = {"weight", "bias", "running_mean", "running_var"}, *tensors[4] = {0};
    bool is_affine = !once_in(g, 4);
    static const fb_dtype others[] = {FB_FLOAT64, FB_FLOAT32, FB_FLOAT16, FB_BFLOAT16, FB_FLOAT8_E4M3FN, FB_INT8};
    if (once_in(g, 20)) dtype = PICK(g, others);
    static const char *const eps[] = {",\"eps\":1e-05", ",\"eps\":0.001", "", ",\"eps\":1"};
    for (int i = 0; i < 4; i++) {
        if (i < 2 ? is_affine : has_statistics)
            tensors[i] = add_tensor(g, text(g, "%s.%s", path, names[i]), dtype, 1, &features, "");
    }
    add_module(g, path, text(g, "torch.nn.BatchNorm%dd", spatial),
               text(g, "\"num_features\":%lld,\"affine\":%s,\"track_running_stats\":%s%s", (long long)features,
                    is_affine ? "true" : "false", has_statistics ? "true" : "false", PICK(g, eps)),
               text(g, "\"weight\":%s,\"bias\":%s", or_null(g, tensors[0]), or_null(g, tensors[1])),
               text(g, "\"running_mean\":%s,\"running_var\":%s,\"num_batches_tracked\":null", or_null(g, tensors[2]),
                    or_null(g, tensors[3])),
               training, "");
    layer made = {.sort = LAYER_NORM,
                  .path = path,
                  .weight = is_affine ? tensors[0] : tensors[2],
                  .inputs = features,
                  .outputs = features,
                  .spatial = spatial,
                  .has_statistics = has_statistics,
                  .dtype = dtype};
    return remember_layer(g, made);
}

static layer *add_conv(generator *g, const result *x, bool training, fb_dtype dtype) {
    const char *path = fresh_path(g, once_in(g, 2) ? "conv" : "stem.conv"), *bias = NULL;
    int64_t inputs = x->sizes[1], groups = inputs > 1 && once_in(g, 4) ? inputs : 1;
    int64_t outputs = groups > 1 ? groups * (1 + (int64_t)below(g, 2)) : 1 + (int64_t)below(g, 4),
            kernel = once_in(g, 2) ? 3 : 1;
    int64_t sizes[] = {outputs, inputs / groups, kernel, kernel};
    const char *weight = NULL;
    for (size_t i = 0; i < g->layer_count && !weight && once_in(g, 4); i++) {
        const layer *other = &g->layers[i];
        bool fits = other->sort == LAYER_CONV && other->inputs == inputs && other->outputs == outputs && other->dtype == dtype;
        if (fits && other->spatial == kernel * 10 + (groups > 1)) weight = other->weight;
    }
    if (!weight) weight = add_tensor(g, text(g, "%s.weight", path), dtype, 4, sizes, "");
    if (!once_in(g, 3)) bias = add_tensor(g, text(g, "%s.bias", path), dtype, 1, sizes, "");
    add_module(
        g, path, once_in(g, 25) ? "my.Conv" : "torch.nn.Conv2d",
        text(g,
             "\"in_channels\":%lld,\"out_channels\":%lld,\"kernel_size\":{\"$tuple\":[%lld,%lld]},\"padding\":{\"$tuple\":"
             "[%lld,%lld]},\"groups\":%lld,\"bias\":%s",
             (long long)inputs, (long long)outputs, (long long)kernel, (long long)kernel, (long long)kernel / 2,
             (long long)kernel / 2, (long long)groups, bias ? "true" : "false"),
        text(g, "\"weight\":\"%s\",\"bias\":%s", weight, or_null(g, bias)), "", training, "");
    layer made = {.sort = LAYER_CONV,
                  .path = path,
                  .weight = weight,
                  .inputs = inputs,
                  .outputs = outputs,
                  .spatial = (int)(kernel * 10 + (groups > 1)),
                  .dtype = dtype};
    return remember_layer(g, made);
}

/* What stands between two calls of a pair, or beside them. */
typedef enum twist {
    TWIST_NONE,
    TWIST_OUTPUT,
    TWIST_READER,
    TWIST_TWICE,
    TWIST_PAIR_TWICE,
    TWIST_NORM_ELSEWHERE,
    TWIST_ARGUMENTS,
    TWIST_WRITE,
    TWIST_MODE,
    TWIST_COUNT
} twist;

static void call_with_more(generator *g, const char *path, const result *x, result about) {
    add_node(g, "more", "call_module", path, text(g, "%s,true", node_ref(g, x)), "", about);
}

static result with_channels(const result *x, int axis, int64_t channels, fb_dtype dtype) {
    result about = tensor_result(dtype, x->rank, x->sizes);
    about.sizes[axis] = channels;
    return about;
}

static void add_pair(generator *g, const result *x, const layer *first, const layer *second, int axis) {
    twist kind = once_in(g, 2) ? TWIST_NONE : (twist)below(g, TWIST_COUNT);
    result middle_about = with_channels(x, axis, first->outputs, first->dtype);
    result last_about = with_channels(x, axis, second->outputs, second->dtype);
    if (once_in(g, 25)) write_weight(g, once_in(g, 2) ? first : second);
    result middle = *add_call(g, first->path, x, middle_about);
    if (kind == TWIST_READER) add_node(g, "relu", "call_method", "relu", node_ref(g, &middle), "", middle_about);
    if (kind == TWIST_WRITE) write_into_value(g, x);
    if (kind == TWIST_MODE) switch_mode(g);
    add_call(g, second->path, &middle, last_about);
    switch (kind) {
    case TWIST_OUTPUT: make_output(g, &middle); break;
    case TWIST_TWICE: add_call(g, first->path, x, middle_about); break;
    case TWIST_PAIR_TWICE:
        middle = *add_call(g, first->path, x, middle_about);
        add_call(g, second->path, &middle, last_about);
        break;
    case TWIST_NORM_ELSEWHERE: add_call(g, second->path, x, last_about); break;
    case TWIST_ARGUMENTS:
        middle = *add_call(g, first->path, x, middle_about);
        call_with_more(g, second->path, &middle, last_about);
        break;
    default: break;
    }
}

void add_conv_pair(generator *g) {
    const result *picked = pick_float(g, 4);
    if (!picked) return;
    result x = *picked;
    fb_dtype dtype = once_in(g, 20) ? once_in(g, 2) ? FB_INT8 : FB_FLOAT8_E4M3FN : x.dtype;
    layer conv = *add_conv(g, &x, once_in(g, 15), dtype);
    int64_t features = conv.outputs + once_in(g, 15);
    layer norm = *add_norm(g, 2, features, fb_dtype_is_floating(dtype) ? dtype : FB_FLOAT32, once_in(g, 15), !once_in(g, 15));
    norm.outputs = conv.outputs;
    add_pair(g, &x, &conv, &norm, 1);
}

void add_linear_pair(generator *g) {
    const result *picked = pick_float(g, once_in(g, 4) ? 3 : 2);
    if (!picked) return;
    result x = *picked;
    int axis = x.rank - 1;
    bool is_linear_first = once_in(g, 2);
    linear_options o = plain_linear(g, &x);
    if (once_in(g, 15)) o.training = true;
    if (once_in(g, 20)) o.dtype = FB_INT8;
    if (!is_linear_first && once_in(g, 15)) o.inputs++;
    if (once_in(g, 15)) share(g, &o);
    if (is_linear_first) {
        layer linear = *add_linear(g, o);
        int64_t features = x.rank == 3 && once_in(g, 2) ? x.sizes[1] : linear.outputs + once_in(g, 15);
        layer norm =
            *add_norm(g, 1, features, fb_dtype_is_floating(o.dtype) ? o.dtype : FB_FLOAT32, once_in(g, 15), !once_in(g, 15));
        norm.outputs = linear.outputs;
        add_pair(g, &x, &linear, &norm, axis);
    } else {
        int64_t features = x.sizes[1] + once_in(g, 15);
        layer norm = *add_norm(g, 1, features, x.dtype, once_in(g, 15), !once_in(g, 15));
        norm.outputs = x.sizes[axis];
        layer linear = *add_linear(g, o);
        add_pair(g, &x, &norm, &linear, axis);
    }
}

/* BatchNorm, Linear, BatchNorm; or Linear, BatchNorm, Linear. */
void add_sandwich(generator *g) {
    const result *picked = pick_float(g, 2);
    if (!picked) return;
    result x = *picked;
    bool is_norm_first = once_in(g, 2);
    for (int i = 0; i < 3; i++) {
        bool is_norm = (i % 2 == 0) == is_norm_first;
        layer made = is_norm ? *add_norm(g, 1, x.sizes[1], x.dtype, false, true) : *add_linear(g, plain_linear(g, &x));
        x = *add_call(g, made.path, &x, with_channels(&x, 1, made.outputs, x.dtype));
    }
}

/* ---- what is done to layers afterwards ---------------------------------------------------------------------------------- */

static void read_weight(generator *g, const layer *l) {
    result about = {.sort = SORT_TENSOR, .dtype = l->dtype};
    if (l->sort == LAYER_LINEAR) about = (result){.dtype = l->dtype, .rank = 2, .sizes = {l->outputs, l->inputs}};
    else about.sort = SORT_SHAPE; /* nobody computes with it */
    add_node(g, "weight", "get_attr", text(g, "%s.%s", l->path, l->sort == LAYER_NORM ? "running_var" : "weight"), "", "",
             about);
}

void tamper_with_layer(generator *g) {
    if (g->layer_count == 0) return;
    const layer *l = &g->layers[below(g, g->layer_count)];
    const result *x = pick_float(g, 0);
    switch (below(g, 4)) {
    case 0:
        if (l->sort != LAYER_NORM || l->has_statistics) read_weight(g, l);
        break;
    case 1: write_weight(g, l); break;
    case 2:
        if (l->sort == LAYER_LINEAR && x && x->sizes[x->rank - 1] == l->inputs) call_linear(g, l, x);
        break;
    default:
        if (l->sort == LAYER_LINEAR && x) call_with_more(g, l->path, x, with_channels(x, x->rank - 1, l->outputs, l->dtype));
    }
}

/* A Linear that a nested program calls too: the program is called, or handed to an operator. */
void add_nested_program(generator *g) {
    const result *picked = pick_float(g, 2);
    if (!picked) return;
    result x = *picked;
    const char *path = fresh_path(g, "part");
    const char *body = "{\"name\":\"y\",\"op\":\"placeholder\",\"target\":\"y\"},{\"name\":\"fc\",\"op\":\"call_module\","
                       "\"target\":\"fc\",\"args\":[{\"$node\":\"y\"}]},{\"name\":\"output\",\"op\":\"output\",\"target\":"
                       "\"output\",\"args\":[{\"$node\":\"fc\"}]}";
    linear_options o = plain_linear(g, &x);
    o.path = fresh_path(g, text(g, "%s.fc", path));
    add_module(g, path, "torch.fx.GraphModule", "", "", "", false, text(g, ",\"graph\":{\"nodes\":[%s]}", body));
    layer linear = *add_linear(g, o);
    result about = with_channels(&x, 1, o.outputs, o.dtype);
    if (once_in(g, 2)) {
        add_call(g, path, &x, about);
    } else {
        result program = *add_node(g, "part", "get_attr", path, "", "", (result){.sort = SORT_SHAPE});
        add_node(g, "wrapped", "call_function", "torch.ops.higher_order.wrap_with_set_grad_enabled",
                 text(g, "false,%s,%s", node_ref(g, &program), node_ref(g, &x)), "", about);
    }
    if (!once_in(g, 3)) call_linear(g, &linear, &x);
}

/* A module of an unknown type, with a Linear below it that is called by itself too. */
void add_unknown_module(generator *g) {
    const result *picked = pick_float(g, 2);
    if (!picked) return;
    result x = *picked;
    const char *path = fresh_path(g, "block");
    add_module(g, path, "custom.Block", "", "", "", once_in(g, 2), "");
    linear_options o = plain_linear(g, &x);
    o.path = fresh_path(g, text(g, "%s.inner", path));
    layer linear = *add_linear(g, o);
    call_linear(g, &linear, &x);
    add_call(g, path, &x, x);
}
