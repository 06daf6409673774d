/* FuseBiasInLinear: makes a Linear's bias one more column of its weight, and adds a column of ones to its input.
 *
 *     y = x Wᵀ + b          y = [x 1] [W b]ᵀ
 *
 *     x ── Linear ── y      x ── shape ── [:-1] ── + (1,) ── ones(device of x) ── cat([x, ones], -1) ── Linear ── y
 *     of ATen:              x ── slice(-1, 0, 1) ── ones_like ── cat([x, ones], -1) ── linear ── y
 *     of ONNX:              x ── Pad ── Gemm, or MatMul ── y
 *
 * The column of torch.fx has the dtype that the Linear has, as Optimum's has. So convert the model before (model.half()), or
 * with ConvertPrecision behind this pass: one that is converted in PyTorch afterwards fails, since the product is of two
 * dtypes.
 *
 * Adds the column before every call of the Linear. Weight and bias must have the same dtype and requires_grad. Leaves addmm
 * alone, which always needs its addend. Exactness: moves (the weight is a concatenation; the product may sum in another order).
 * Reversible.
 */
#include "core/operators/spelling.h"
#include "core/pass/build.h"
#include "core/pass/layer.h"
#include "core/weights/recipe.h"

/* The Linear that a node calls, when it is its first call and it has a bias. A call that only looks like one is refused. */
static bool find_linear(fb_matcher *m, fb_node n, fb_linear *linear) {
    const fb_graph *g = m->graph;
    fb_module module = fb_node_at(g, n)->opcode == FB_CALL_MODULE ? fb_node_at(g, n)->module : (fb_module){0};
    if (!module.id) return fb_linear_at(g, n, linear) && linear->bias.id;
    if (fb_first_call(m->usage, module).id != n.id) return false; /* a module is matched once, at its first call */
    if (fb_module_is_linear_like(g, module) && fb_module_tensor(g, module, "bias").id) {
        fb_refuse_node(m, "unsupported-type", n, "%s is not exactly torch's Linear", fb_text(g, fb_module_at(g, module)->type));
        return false;
    }
    if (!fb_linear_of_module(g, module, linear)) return false;
    linear->node = n;
    return linear->bias.id;
}

/* A match is the Linear as it was read, and behind it its calls. */
static void match(fb_matcher *m, fb_node n) {
    const fb_graph *g = m->graph;
    fb_linear linear;
    if (!find_linear(m, n, &linear)) return;
    fb_layer layer = fb_linear_layer(&linear);
    fb_buffer found = {0};
    fb_buffer_append(&found, &linear, sizeof linear);
    bool is_marked = false, is_plain = true;
    for (fb_node call = n; call.id; call = fb_layer_next_call(m->usage, &layer, call)) {
        fb_buffer_append(&found, &call, sizeof call);
        is_marked |= fb_is_marked(m, call);
        fb_value input = layer.module.id ? fb_call_only_argument(g, call, "input") : (fb_value){0};
        is_plain &= !layer.module.id || (input.id && fb_value_node(g, input).id);
    }
    const fb_node *nodes = found.failed ? NULL : (const fb_node *)(const void *)(found.data + sizeof linear);
    size_t count = (found.size - sizeof linear) / sizeof *nodes;
    const fb_tensor_row *weight = fb_tensor_at(g, linear.weight), *bias = fb_tensor_at(g, linear.bias);
    fb_obstacle obstacle = fb_ones_obstacle(g, &linear);
    if (!obstacle.code) obstacle = fb_layer_obstacle(m, &layer);
    if (found.failed) m->failed = true;
    else if (is_marked) (void)0; /* refused already, as already-transformed */
    else if (!is_plain) fb_refuse(m, "unsupported-arguments", nodes, count, "a Linear is called with one node as its input");
    else if (linear.form == FB_LINEAR_ADDMM)
        fb_refuse(m, "unsupported-form", nodes, count, "addmm cannot do without its addend");
    else if (obstacle.code) fb_refuse_for(m, obstacle, nodes, count);
    else if (weight->dtype != bias->dtype)
        fb_refuse(m, "dtype", nodes, count, "the weight is %s and the bias %s", fb_dtype_name(weight->dtype),
                  fb_dtype_name(bias->dtype));
    else if (weight->requires_grad != bias->requires_grad)
        fb_refuse(m, "requires-grad", nodes, count,
                  "only one of weight and bias is trained, and one tensor cannot be half trained");
    else fb_match_found_as(m, found.data, found.size);
    fb_buffer_free(&found);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_linear *linear = match->data;
    const fb_node *end = match->nodes + match->count;
    fb_layer layer = fb_linear_layer(linear);
    for (const fb_node *call = (const fb_node *)(const void *)(linear + 1); call < end; call++) {
        fb_node n = layer.module.id ? *call : layer.origin;
        fb_value x = fb_call_argument(g, n, "input");
        fb_set_argument(rw, n, "input", fb_make_node(g, fb_build_ones(rw, n, x, linear->dtype)));
        fb_mark(rw, n);
    }
    int axis = linear->is_packed ? 0 : 1; /* of the weight's inputs */
    int64_t sizes[2] = {linear->out_features, linear->out_features};
    sizes[axis] = 1;
    fb_value column = fb_recipe_reshape(g, fb_layer_bias(g, &layer), sizes, 2);
    fb_layer_set_weight(rw, &layer, fb_recipe_concat(g, axis, (fb_value[]){fb_layer_weight(g, &layer), column}, 2));
    fb_layer_clear_bias(rw, &layer);
}

const fb_pass fb_fuse_bias_in_linear = {
    .name = "FuseBiasInLinear",
    .version = 1,
    .summary = "Makes a Linear's bias one more column of its weight, and adds a column of ones to its input.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_MOVES,
    .gain = FB_GAIN_SAME,
    .reversible = true,
    .preserves_computation = true,
    .reads_onnx = true,
    .match = match,
    .edit = edit,
};
