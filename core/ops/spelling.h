/* How the nodes and modules that passes insert are spelled, in the torch.fx dialect. Recognising is ops.def's business. */
#ifndef FB_OPS_SPELLING_H
#define FB_OPS_SPELLING_H

#define FB_TARGET_ADD "operator.add"
#define FB_TARGET_CAT "torch.cat"
#define FB_TARGET_GETATTR "builtins.getattr"
#define FB_TARGET_GETITEM "operator.getitem"
#define FB_TARGET_MUL "operator.mul"
#define FB_TARGET_MUL_FUNCTION "torch.mul"
#define FB_TARGET_MUL_METHOD "mul"
#define FB_TARGET_ONES "torch.ones"
#define FB_TYPE_LINEAR "torch.nn.Linear"

#endif
