/* The document on which presets are measured: in every block folds, constants, sizes and views, no-ops, calls that are there
 * twice, and dead ones. */
#include "tests/bench/bench.h"

/* What is filled in: # is the block's number, ~ the node that it reads. */
#define SIZED(sizes) "\"meta\":{\"dtype\":\"float32\",\"shape\":[" sizes "]}}"
#define BARE(name, op, target, args) "{\"name\":\"" name "_#\",\"op\":\"" op "\",\"target\":\"" target "\",\"args\":[" args "]"
#define NODE(name, op, target, args) BARE(name, op, target, args) "," SIZED("8,64")
#define MODULE(name, args) NODE(name, "call_module", name ".#", args)
#define FUNCTION(name, target, args) NODE(name, "call_function", target, args)
#define OF(name) "{\"$node\":\"" name "_#\"}"

static const char *const nodes[] = {
    /* normalised, and two Linears that read that: one scaled, one before a BatchNorm */
    MODULE("ln", "{\"$node\":\"~\"}"),
    MODULE("q", OF("ln")),
    MODULE("bn", OF("q")),
    MODULE("k", OF("ln")),
    FUNCTION("half", "operator.mul", OF("k") ",0.125"),
    /* no-ops, the same call twice, one that nobody reads, a check */
    MODULE("drop", OF("bn")),
    FUNCTION("one", "operator.mul", OF("drop") ",1"),
    FUNCTION("t", "torch.tanh", OF("one")),
    FUNCTION("u", "torch.tanh", OF("one")),
    FUNCTION("dead", "torch.exp", OF("one")),
    BARE("check", "call_function", "torch._assert", "true,\"\"") "}",
    /* arithmetic on a weight */
    BARE("w", "get_attr", "w.#.w", "") "," SIZED("64,64"),
    BARE("h", "call_function", "operator.mul", OF("w") ",0.5") "," SIZED("64,64"),
    FUNCTION("f", "torch.nn.functional.linear", OF("t") "," OF("h")),
    /* sizes, and views of the sizes that are there already */
    BARE("s", "call_method", "size", OF("t") ",0") "}",
    NODE("v", "call_method", "view", OF("f") "," OF("s") ",64"),
    BARE("r", "call_method", "reshape", OF("v") ",512") "," SIZED("512"),
    NODE("rr", "call_method", "reshape", OF("r") ",8,64"),
    FUNCTION("a", "operator.add", OF("u") "," OF("half")),
    FUNCTION("b", "operator.add", OF("a") "," OF("rr")),
    FUNCTION("c", "torch.nn.functional.relu", OF("b")),
};

#define OWNER(path, type, config, parameters, buffers)                                                                         \
    "{\"path\":\"" path ".#\",\"type\":\"torch.nn." type "\",\"config\":{" config "},\"parameters\":{" parameters              \
    "},\"buffers\":{" buffers "},\"training\":false}"
#define WEIGHT_AND_BIAS(path) "\"weight\":\"" path ".weight.#\",\"bias\":\"" path ".bias.#\""
#define LINEAR(path) OWNER(path, "Linear", "\"in_features\":64,\"out_features\":64,\"bias\":true", WEIGHT_AND_BIAS(path), "")
#define TENSOR(name, sizes) "{\"name\":\"" name ".#\",\"dtype\":\"float32\",\"shape\":[" sizes "]}"

static const char *const modules[] = {
    OWNER("ln", "LayerNorm", "\"normalized_shape\":{\"$tuple\":[64]},\"eps\":1e-05,\"elementwise_affine\":true,\"bias\":true",
          WEIGHT_AND_BIAS("ln"), ""),
    LINEAR("q"),
    LINEAR("k"),
    OWNER("bn", "BatchNorm1d", "\"num_features\":64,\"eps\":1e-05,\"affine\":true,\"track_running_stats\":true",
          WEIGHT_AND_BIAS("bn"), "\"running_mean\":\"bn.mean.#\",\"running_var\":\"bn.var.#\",\"num_batches_tracked\":null"),
    OWNER("drop", "Dropout", "\"p\":0.5,\"inplace\":false", "", ""),
    OWNER("w", "Module", "", "\"w\":\"w.#\"", ""),
};

static const char *const tensors[] = {
    TENSOR("ln.weight", "64"),   TENSOR("ln.bias", "64"), TENSOR("q.weight", "64,64"), TENSOR("q.bias", "64"),
    TENSOR("k.weight", "64,64"), TENSOR("k.bias", "64"),  TENSOR("bn.weight", "64"),   TENSOR("bn.bias", "64"),
    TENSOR("bn.mean", "64"),     TENSOR("bn.var", "64"),  TENSOR("w", "64,64"),
};

#define COUNT(list) (sizeof(list) / sizeof *(list))

static void fill(fb_buffer *out, const char *row, size_t block) {
    for (const char *c = row; *c; c++) {
        if (*c == '#') fb_buffer_printf(out, "%zu", block);
        else if (*c != '~') fb_buffer_char(out, *c);
        else if (block == 0) fb_buffer_char(out, 'x');
        else fb_buffer_printf(out, "c_%zu", block - 1);
    }
}

/* `first` is the list's first row. */
static void fill_list(fb_buffer *out, const char *first, const char *const *rows, size_t count, size_t blocks) {
    fb_buffer_string(out, first);
    for (size_t block = 0; block < blocks; block++) {
        for (size_t i = 0; i < count; i++) {
            fb_buffer_string(out, ",\n");
            fill(out, rows[i], block);
        }
    }
}

void fb_bench_layers(fb_buffer *out, size_t node_count) {
    size_t blocks = node_count / COUNT(nodes);
    fb_buffer_string(out, "{\"format\":\"foldback.graph/1\",\"name\":\"bench\",\n\"nodes\":[\n");
    fill_list(out, "{\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"x\",\"args\":[]," SIZED("8,64"), nodes, COUNT(nodes),
              blocks);
    fb_buffer_printf(out, ",\n{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"c_%zu\"}]}",
                     blocks - 1);
    fb_buffer_string(out, "],\n\"modules\":[\n");
    fill_list(out, "{\"path\":\"\",\"type\":\"torch.nn.Module\",\"parameters\":{\"unused\":\"unused\"}}", modules,
              COUNT(modules), blocks);
    fb_buffer_string(out, "],\n\"tensors\":[\n");
    fill_list(out, "{\"name\":\"unused\",\"dtype\":\"float32\",\"shape\":[]}", tensors, COUNT(tensors), blocks);
    fb_buffer_string(out, "]}\n");
}
