/* How functions are spelled, and the nodes and modules that passes insert. What a spelling means is ops.def's business. */
#ifndef FB_OPS_SPELLING_H
#define FB_OPS_SPELLING_H

#include <stdbool.h>
#include <string.h>

/* Where functions are at home: the beginnings of their targets. */
#define FB_ATEN "torch.ops.aten."
#define FB_HIGHER_ORDER "torch.ops.higher_order."
#define FB_ONEDNN "torch.ops.mkldnn."
#define FB_REGISTERED "torch.ops." /* operators of ATen, of torch.library, of higher order */
#define FB_FUNCTIONAL "torch.nn.functional."
#define FB_FUNCTIONAL_IN_C "torch._C._nn."
#define FB_TORCH "torch."
#define FB_TORCH_IN_PYTHON "torch.functional." /* as torch.fx prints torch.split */
#define FB_TENSOR_METHOD "torch.Tensor."       /* methods as functions */
#define FB_PYTHON_OPERATOR "operator."

static inline bool fb_is_spelled(const char *target, const char *beginning) {
    return strncmp(target, beginning, strlen(beginning)) == 0;
}

/* The name of an operator of ATen ("add.Tensor"), or of oneDNN ("mkldnn._linear_pointwise.default"); NULL for other targets. */
static inline const char *fb_registered_name(const char *target) {
    if (fb_is_spelled(target, FB_ATEN)) return target + strlen(FB_ATEN);
    return fb_is_spelled(target, FB_ONEDNN) ? target + strlen(FB_REGISTERED) : NULL;
}

/* Is it a function of torch itself, as it is written or as torch.fx prints it? */
static inline bool fb_is_of_torch(const char *target) {
    bool is_direct = fb_is_spelled(target, FB_TORCH) && !strchr(target + strlen(FB_TORCH), '.');
    return is_direct || fb_is_spelled(target, FB_TORCH_IN_PYTHON);
}

/* Is it a function or module of PyTorch, or a function of Python's that its tracers write? */
static inline bool fb_is_of_pytorch(const char *target) {
    return fb_is_spelled(target, FB_TORCH) || fb_is_spelled(target, FB_PYTHON_OPERATOR) ||
           fb_is_spelled(target, "_operator.") || fb_is_spelled(target, "builtins.") || fb_is_spelled(target, "math.");
}

#define FB_APPLIED_INDEX "torch._dynamo._trace_wrapped_higher_order_op.ModIndex" /* what flat_apply applies: x[i, …] */
#define FB_TARGET_ADD "operator.add"
#define FB_TARGET_BFLOAT16_METHOD "bfloat16"
#define FB_TARGET_COPY_ATEN "torch.ops.aten.copy_.default"
#define FB_TARGET_EXPAND_ATEN "torch.ops.aten.expand.default"
#define FB_TARGET_GETATTR "builtins.getattr"
#define FB_TARGET_GETITEM "operator.getitem"
#define FB_TARGET_HALF_METHOD "half"
#define FB_TARGET_INDEX_ATEN "torch.ops.aten.index.Tensor"
#define FB_TARGET_MUL "operator.mul"
#define FB_TARGET_MUL_FUNCTION "torch.mul"
#define FB_TARGET_MUL_METHOD "mul"
#define FB_TARGET_MUL_ATEN "torch.ops.aten.mul.Tensor"
#define FB_TARGET_MUL_ATEN_SCALAR "torch.ops.aten.mul.Scalar"
#define FB_TARGET_ONES "torch.ones"
#define FB_TARGET_RESHAPE_ATEN "torch.ops.aten.reshape.default"
#define FB_TYPE_GRAPH_MODULE "torch.fx.GraphModule"
#define FB_TYPE_LINEAR "torch.nn.Linear"
#define FB_TYPE_MODULE "torch.nn.Module"

#endif
