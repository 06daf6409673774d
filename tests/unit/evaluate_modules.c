#include <math.h>
#include <string.h>

#include "tests/unit/evaluate_machine.h"

static double add(double a, double b) {
    return a + b;
}

static value parameter(machine *m, fb_module module, const char *name) {
    return machine_tensor(m, fb_module_tensor(m->graph, module, name));
}

static bool flag(const machine *m, fb_module module, const char *key, bool fallback) {
    fb_value given = fb_module_config(m->graph, module, key);
    return given.id ? fb_value_kind(m->graph, given) == FB_TRUE : fallback;
}

/* An int of the config, or one for each dimension. */
static void pair_of(const machine *m, fb_module module, const char *key, int64_t fallback, int64_t out[2]) {
    fb_value given = fb_module_config(m->graph, module, key);
    out[0] = out[1] = fallback;
    if (!given.id) return;
    if (fb_value_is_int(m->graph, given, &out[0])) out[1] = out[0];
    else machine_ints(m, given, out);
}

static value call_conv(machine *m, fb_module module, const value *x) {
    convolution options;
    int64_t groups[2];
    pair_of(m, module, "stride", 1, options.stride);
    pair_of(m, module, "padding", 0, options.padding);
    pair_of(m, module, "dilation", 1, options.dilation);
    pair_of(m, module, "groups", 1, groups);
    options.groups = groups[0];
    value weight = parameter(m, module, "weight"), bias = parameter(m, module, "bias");
    return convolve(&m->arena, x, &weight, &bias, &options);
}

static void batch_statistics(const value *x, int64_t channel, double *mean, double *var) {
    int64_t channels = x->sizes[1], inner = 1, count = element_count(x), used = 0;
    for (int i = 2; i < x->rank; i++) inner *= x->sizes[i];
    for (int pass = 0; pass < 2; pass++) {
        double sum = 0;
        used = 0;
        for (int64_t i = 0; i < count; i++) {
            if (i / inner % channels != channel) continue;
            double number = *element(x, i);
            sum += pass ? (number - *mean) * (number - *mean) : number;
            used++;
        }
        *(pass ? var : mean) = used ? sum / (double)used : 0;
    }
}

static value call_norm(machine *m, fb_module module, const value *x, int rank, int other_rank) {
    value weight = parameter(m, module, "weight"), bias = parameter(m, module, "bias"), unusable = {0};
    value mean = parameter(m, module, "running_mean"), var = parameter(m, module, "running_var");
    double eps = 1e-5;
    fb_value given = fb_module_config(m->graph, module, "eps");
    if (given.id) fb_value_is_number(m->graph, given, &eps);
    if (x->kind != V_TENSOR || (x->rank != rank && x->rank != other_rank)) return unusable;
    const value *vectors[] = {&weight, &bias, &mean, &var};
    for (int i = 0; i < 4; i++) {
        if (vectors[i]->kind == V_TENSOR && element_count(vectors[i]) != x->sizes[1]) return unusable;
    }
    bool training = fb_module_at(m->graph, module)->training, has_running = mean.kind == V_TENSOR && var.kind == V_TENSOR;
    value result = copy_of(&m->arena, x);
    int64_t inner = 1, count = element_count(x);
    for (int i = 2; i < x->rank; i++) inner *= x->sizes[i];
    for (int64_t c = 0; c < x->sizes[1]; c++) {
        double center = 0, spread = 1;
        if (training || !has_running) batch_statistics(x, c, &center, &spread);
        else {
            center = *element(&mean, c);
            spread = *element(&var, c);
        }
        if (training && has_running) {
            *element(&mean, c) = *element(&mean, c) * 0.9 + 0.1 * center;
            *element(&var, c) = *element(&var, c) * 0.9 + 0.1 * spread;
        }
        double scale = (weight.kind == V_TENSOR ? *element(&weight, c) : 1) / sqrt(spread + eps);
        double shift = bias.kind == V_TENSOR ? *element(&bias, c) : 0;
        for (int64_t i = 0; i < count; i++) {
            if (i / inner % x->sizes[1] == c) result.data[i] = (result.data[i] - center) * scale + shift;
        }
    }
    return result;
}

static value call_layer_norm(machine *m, fb_module module, const value *x, bool is_centred) {
    value weight = parameter(m, module, "weight"), bias = parameter(m, module, "bias");
    fb_value shape = fb_module_config(m->graph, module, "normalized_shape"), given = fb_module_config(m->graph, module, "eps");
    double eps = is_centred ? 1e-5 : 1e-7;
    int64_t ignored;
    if (given.id) fb_value_is_number(m->graph, given, &eps);
    int axes = shape.id && !fb_value_is_int(m->graph, shape, &ignored) ? (int)fb_value_at(m->graph, shape)->count : 1;
    return layer_normalised(&m->arena, x, axes, &weight, &bias, eps, is_centred);
}

static value call_embedding(machine *m, fb_module module, const value *x) {
    value weight = parameter(m, module, "weight");
    if (x->kind != V_TENSOR || weight.kind != V_TENSOR || weight.rank != 2 || x->rank + 1 > MAX_DIMS) return (value){0};
    int64_t sizes[MAX_DIMS], width = weight.sizes[1], count = element_count(x);
    memcpy(sizes, x->sizes, sizeof sizes);
    sizes[x->rank] = width;
    value result = tensor_value(&m->arena, x->rank + 1, sizes);
    for (int64_t i = 0; i < count * width; i++) {
        int64_t row = (int64_t)(fabs(*element(x, i / width)) * 7) % weight.sizes[0];
        result.data[i] = *element(&weight, row * width + i % width);
    }
    return result;
}

/* Numbers of a module's own parameters, each by its place; and written a little when asked. */
static double sum_of_parameters(machine *m, const fb_module_row *row, bool is_written) {
    const fb_value_row *parameters = fb_value_at(m->graph, row->parameters);
    double sum = 0;
    for (uint32_t i = 0; i + 1 < parameters->count; i += 2) {
        fb_tensor owned = fb_value_tensor(m->graph, parameters->items[i + 1]);
        value tensor = owned.id ? machine_tensor(m, owned) : (value){0};
        int64_t count = tensor.kind == V_TENSOR ? element_count(&tensor) : 0;
        for (int64_t k = 0; k < count; k++) {
            sum += *element(&tensor, k) * (double)(k + 1);
            if (is_written) *element(&tensor, k) *= 0.9;
        }
    }
    return sum;
}

/* A module of an unknown type may use everything that it owns, and everything below it, and write into what it is given. */
static value call_unknown(machine *m, fb_module module, const call *c) {
    const fb_graph *g = m->graph;
    const char *path = fb_text(g, fb_module_at(g, module)->path);
    size_t length = strlen(path);
    double sum = 0;
    for (fb_module at = fb_first_module(g); at.id; at = fb_module_at(g, at)->next) {
        const fb_module_row *row = fb_module_at(g, at);
        const char *other = fb_text(g, row->path);
        bool is_below = strncmp(other, path, length) == 0 && (other[length] == '.' || other[length] == '\0');
        if (is_below) sum += sum_of_parameters(m, row, true);
    }
    return do_anything(c, sum);
}

static bool is_named_like_linear(const char *type) {
    const char *dot = strrchr(type, '.'), *last = dot ? dot + 1 : type;
    size_t length = strlen(last);
    return strncmp(last, "Linear", 6) == 0 || (length >= 6 && strcmp(last + length - 6, "Linear") == 0);
}

/* A subclass of Linear may write into what it owns and give its input back, but does not write into that. */
static value call_linear_like(machine *m, fb_module module, const value *x) {
    const fb_module_row *row = fb_module_at(m->graph, module);
    double sum = sum_of_parameters(m, row, true);
    if (x->kind != V_TENSOR || machine_number(m->seed, fb_text(m->graph, row->path), 0) < 0.6) return *x;
    value number = number_value(0.01 * sum, false);
    return map_binary(&m->arena, x, &number, add);
}

value evaluate_module(machine *m, fb_module module, const call *c) {
    if (!module.id) return (value){0};
    const fb_module_row *row = fb_module_at(m->graph, module);
    const char *type = fb_text(m->graph, row->type);
    value x = argument(c, 0, "input"), result = {0};
    if (row->program.id) {
        machine_run(m, row->program, c->args, c->count, &result);
    } else if (strcmp(type, "torch.nn.Linear") == 0) {
        value weight = parameter(m, module, "weight"), bias = parameter(m, module, "bias");
        result = linear(&m->arena, &x, &weight, &bias);
    } else if (strcmp(type, "torch.nn.Conv2d") == 0 || strcmp(type, "torch.nn.Conv1d") == 0) {
        result = call_conv(m, module, &x);
    } else if (strcmp(type, "torch.nn.BatchNorm2d") == 0) {
        result = call_norm(m, module, &x, 4, 4);
    } else if (strcmp(type, "torch.nn.BatchNorm1d") == 0) {
        result = call_norm(m, module, &x, 2, 3);
    } else if (strcmp(type, "torch.nn.LayerNorm") == 0 || strcmp(type, "torch.nn.RMSNorm") == 0) {
        result = call_layer_norm(m, module, &x, strcmp(type, "torch.nn.LayerNorm") == 0);
    } else if (strcmp(type, "torch.nn.ReLU") == 0) {
        result = map_unary(&m->arena, &x, relu_of);
        if (x.kind == V_TENSOR && flag(m, module, "inplace", false)) {
            write_into(&x, &result);
            result = x;
        }
    } else if (strcmp(type, "torch.nn.Sigmoid") == 0) {
        result = map_unary(&m->arena, &x, sigmoid_of);
    } else if (strcmp(type, "torch.nn.Identity") == 0 || (strstr(type, "Dropout") && !row->training)) {
        result = x;
    } else if (strcmp(type, "torch.nn.Flatten") == 0) {
        result = of_recorded_sizes(c, &x);
    } else if (strcmp(type, "torch.nn.Embedding") == 0) {
        result = call_embedding(m, module, &x);
    } else if (is_named_like_linear(type)) {
        result = call_linear_like(m, module, &x);
        result = of_recorded_sizes(c, &result);
    } else {
        result = call_unknown(m, module, c);
    }
    return result;
}
