/* How functions are spelled, and the nodes and modules that passes insert. What a spelling means is ops.def's business. */
#ifndef FB_OPS_SPELLING_H
#define FB_OPS_SPELLING_H

#include <stdbool.h>
#include <string.h>

/* Where functions are at home: the beginnings of their targets. */
#define FB_ATEN "torch.ops.aten."
#define FB_HIGHER_ORDER "torch.ops.higher_order."
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
#define FB_TARGET_ADD_ATEN "torch.ops.aten.add.Tensor"
#define FB_TARGET_ADD_FUNCTION "torch.add"
#define FB_TARGET_ADDMM "torch.addmm"
#define FB_TARGET_ADDMM_ATEN "torch.ops.aten.addmm.default"
#define FB_TARGET_ATTENTION "torch._C._nn.scaled_dot_product_attention"
#define FB_TARGET_ATTENTION_ATEN "torch.ops.aten.scaled_dot_product_attention.default"
#define FB_TARGET_BFLOAT16_METHOD "bfloat16"
#define FB_TARGET_CAT "torch.cat"
#define FB_TARGET_CAT_ATEN "torch.ops.aten.cat.default"
#define FB_TARGET_CONTIGUOUS "contiguous"
#define FB_TARGET_CONTIGUOUS_ATEN "torch.ops.aten.contiguous.default"
#define FB_TARGET_COPY_ATEN "torch.ops.aten.copy_.default"
#define FB_TARGET_EXPAND_ATEN "torch.ops.aten.expand.default"
#define FB_TARGET_GETATTR "builtins.getattr"
#define FB_TARGET_GETITEM "operator.getitem"
#define FB_TARGET_HALF_METHOD "half"
#define FB_TARGET_INDEX_ATEN "torch.ops.aten.index.Tensor"
#define FB_TARGET_INT8PACK_MM "torch._weight_int8pack_mm"
#define FB_TARGET_INT8PACK_MM_ATEN "torch.ops.aten._weight_int8pack_mm.default"
#define FB_TARGET_LINEAR "torch._C._nn.linear"
#define FB_TARGET_LINEAR_ATEN "torch.ops.aten.linear.default"
#define FB_TARGET_LOGICAL_NOT "torch.logical_not"
#define FB_TARGET_LOGICAL_NOT_ATEN "torch.ops.aten.logical_not.default"
#define FB_TARGET_MASKED_FILL "torch.masked_fill"
#define FB_TARGET_MASKED_FILL_ATEN "torch.ops.aten.masked_fill.Scalar"
#define FB_TARGET_MUL "operator.mul"
#define FB_TARGET_MUL_FUNCTION "torch.mul"
#define FB_TARGET_MUL_METHOD "mul"
#define FB_TARGET_MUL_ATEN "torch.ops.aten.mul.Tensor"
#define FB_TARGET_MUL_ATEN_SCALAR "torch.ops.aten.mul.Scalar"
#define FB_TARGET_NEG "torch.neg"
#define FB_TARGET_NEG_ATEN "torch.ops.aten.neg.default"
#define FB_TARGET_ONES "torch.ones"
#define FB_TARGET_ONES_LIKE_ATEN "torch.ops.aten.ones_like.default"
#define FB_TARGET_PERMUTE "permute"
#define FB_TARGET_PERMUTE_ATEN "torch.ops.aten.permute.default"
#define FB_TARGET_REPEAT "repeat_interleave"
#define FB_TARGET_REPEAT_ATEN "torch.ops.aten.repeat_interleave.self_int"
#define FB_TARGET_RESHAPE "reshape"
#define FB_TARGET_RESHAPE_ATEN "torch.ops.aten.reshape.default"
#define FB_TARGET_RESHAPE_FUNCTION "torch.reshape"
#define FB_TARGET_ROLL "torch.roll"
#define FB_TARGET_ROLL_ATEN "torch.ops.aten.roll.default"
#define FB_TARGET_SHIFT_RIGHT "torch.bitwise_right_shift"
#define FB_TARGET_SHIFT_RIGHT_ATEN "torch.ops.aten.bitwise_right_shift.Tensor_Scalar"
#define FB_TARGET_SLICE_ATEN "torch.ops.aten.slice.Tensor"
#define FB_TARGET_SUB "torch.sub"
#define FB_TARGET_SUB_ATEN "torch.ops.aten.sub.Tensor"
#define FB_TARGET_TO_ATEN "torch.ops.aten.to.dtype"
#define FB_TARGET_TO_METHOD "to"
#define FB_TARGET_TRANSPOSE "transpose"
#define FB_TARGET_TRANSPOSE_ATEN "torch.ops.aten.transpose.int"
#define FB_TARGET_UNFLATTEN "torch.unflatten"
#define FB_TARGET_WHERE "torch.where"
#define FB_TARGET_WHERE_ATEN "torch.ops.aten.where.ScalarOther"
#define FB_TARGET_ZEROS_LIKE "torch.zeros_like"
#define FB_TARGET_ZEROS_LIKE_ATEN "torch.ops.aten.zeros_like.default"
#define FB_TYPE_GRAPH_MODULE "torch.fx.GraphModule"
#define FB_TYPE_LINEAR "torch.nn.Linear"
#define FB_TYPE_MODULE "torch.nn.Module"

#endif
