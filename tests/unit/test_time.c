/* No call of an evaluation can be asked for that goes on when it is to stop. Every operator that has a kernel is given the
 * worst call that we know, which has to end soon after its deadline, and to be refused before it begins where it takes more
 * steps than the evaluation has left. Times are those of the thread's CPU, which a busy machine does not make longer.
 *
 * FOLDBACK_WHOLE_CALLS=1 lets calls of up to 2·10^10 steps go on to their end and prints the longest time between two looks at
 * the clock: that takes minutes. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buffer.h"
#include "core/evaluator/evaluator.h"
#include "core/evaluator/kernel.h"
#include "tests/unit/cpu_watch.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

#define DEADLINE (20 * MS)

/* ---- calls -------------------------------------------------------------------------------------------------------------- */

/* In arguments, @f[2,3] is a tensor of float32 (@h float16, @i int64, @w int32, @s int8, @u uint8, @b bool) of that shape,
 * @g[64,…] one that no view flattens, @r a new one of float32, and @l a list of a million ints.
 */
typedef struct worst {
    const char *ops; /* ids of ops.def */
    const char *arguments;
    enum { HEAVY, LIGHT } weight; /* LIGHT: whatever it is given, it ends at once */
    const char *target;           /* NULL: torch.<the first name> or the first of the other functions */
    const char *kwargs, *module;  /* module: type and config of what is called */
} worst;

#define BIG "[16384,4096]"
#define LONG "[67108864]"
#define IMAGE "@f[1,64,512,512]"
#define NORM(module)                                                                                                           \
    "{\"path\":\"m\",\"type\":\"torch.nn." module                                                                              \
    "\",\"training\":true,\"config\":{\"num_features\":64,\"eps\":1e-5,\"momentum\":0.1,\"affine\":false,"                     \
    "\"track_running_stats\":false}}"

static const worst calls[] = {
    /* kernels_python.c */
    {.ops = "GETATTR", "@f" BIG ",\"shape\"", LIGHT},
    {.ops = "SIZE SYM_SIZE DIM NUMEL DEVICE_COPY LIFT_FRESH REQUIRES_GRAD", "@f" BIG, LIGHT},
    {.ops = "LEN", "@l", LIGHT},
    {.ops = "ITEM", "@f[1]", LIGHT},
    {.ops = "SCALAR_TENSOR", "2", LIGHT},
    {.ops = "NUMBER_OF", "@l", LIGHT, "math.prod"},
    {.ops = "NUMBER_MAX", "@l", LIGHT, "builtins.sum"},
    {.ops = "COLLECTION", "@l", LIGHT, "builtins.tuple"},
    {.ops = "BROADCAST_SHAPES", "[2,3],[1,3]", LIGHT},
    {.ops = "DTYPE_INFO", "{\"$dtype\":\"float32\"}", LIGHT},
    {.ops = "DEVICE", "[2,3]", LIGHT, "torch.Size"},
    {.ops = "QUESTION", "@f" BIG, LIGHT, "torch.is_floating_point"},
    {.ops = "IS", "@f" BIG ",@f" BIG, LIGHT, "operator.is_"},
    {.ops = "GRAD_QUESTION", "", LIGHT},
    {.ops = "ASSERT", "true", LIGHT, "torch._assert"},

    /* kernels_index.c */
    {.ops = "GETITEM", "@f[16384,1],@i" LONG, HEAVY},
    {.ops = "GETITEM", "@f[16384,4096],@b[16384,4096]", HEAVY},
    {.ops = "GETITEM", "@f[2,33554432],[@i[2]]", HEAVY},
    {.ops = "SETITEM", "@f[1],@i" LONG ",0.5", HEAVY},
    {.ops = "INDEX", "@f[4,4],[@i[8192,4096],@i[8192,4096]]", HEAVY, "torch.ops.aten.index.Tensor"},
    {.ops = "INDEX_PUT", "@f[4,4],[@i" LONG "],@f[67108864,4],true", HEAVY},
    {.ops = "INDEX_PUT", "@f" BIG ",[@i[2]],@f[4096]", HEAVY},

    /* kernels_binary.c */
    {.ops = "ADD SUB RSUB MUL TRUE_DIVIDE DIV FLOOR_DIVIDE REMAINDER FMOD POW FLOAT_POWER ATAN2 HYPOT COPYSIGN MAXIMUM MINIMUM "
            "EQ NE "
            "LT LE "
            "GT GE LOGICAL_AND LOGICAL_OR LOGICAL_XOR ISCLOSE",
     "@f" BIG ",@f" BIG,
     HEAVY},
    {.ops = "ADD SUB RSUB MUL TRUE_DIVIDE DIV REMAINDER FMOD POW ATAN2 HYPOT COPYSIGN MAXIMUM MINIMUM EQ",
     "@h" BIG ",@h" BIG,
     HEAVY},
    {.ops = "DIFF", "@f[16384,2048]", HEAVY, NULL, "\"n\":2000"},
    {.ops = "BITWISE_AND BITWISE_OR BITWISE_XOR SHIFT_LEFT SHIFT_RIGHT POW MUL FLOAT_POWER", "@i" BIG ",@i" BIG, HEAVY},
    {.ops = "FLOOR_DIVIDE REMAINDER FMOD", "@i" BIG ",7", HEAVY},
    {.ops = "MUL", "@l,1", LIGHT, "operator.mul"},
    {.ops = "EQ", "@l,@l", HEAVY, "operator.eq"},
    {.ops = "POW", "-1,9000000000000000001", LIGHT, "operator.pow"},

    /* kernels_unary.c */
    {.ops =
         "NEG ABS FLOOR CEIL ROUND NAN_TO_NUM GLU SIGN SGN SQUARE TRUNC RELU RELU6 RECIPROCAL SQRT RSQRT EXP EXP2 EXPM1 LOG "
         "LOG2 "
         "LOG10 "
         "LOG1P SIN COS TAN ASIN ACOS ATAN SINH COSH TANH ERF ERFC ERFINV LGAMMA FRAC SILU MISH SIGMOID LOG_SIGMOID "
         "HARD_SIGMOID "
         "HARD_SWISH SELU SOFTSIGN TANH_SHRINK GELU LOGICAL_NOT ISNAN ISINF ISFINITE LEAKY_RELU ELU CELU HARD_TANH HARD_SHRINK "
         "SOFT_SHRINK SOFTPLUS",
     "@f" BIG,
     HEAVY},
    {.ops = "ERFINV LGAMMA TAN MISH GELU", "@h" BIG, HEAVY},
    {.ops = "ROUND", "@f" BIG, HEAVY, NULL, "\"decimals\":3"},
    {.ops = "POSITIVE", "@f" BIG, LIGHT},
    {.ops = "BITWISE_NOT", "@i" BIG, HEAVY},
    {.ops = "THRESHOLD", "@f" BIG ",0.5,0.25", HEAVY},

    /* kernels_matmul.c */
    {.ops = "MATMUL MM", "@f[8192,8192],@f[8192,8192]", HEAVY},
    {.ops = "MATMUL", "@i[8192,8192],@i[8192,8192]", HEAVY, "torch.matmul"},
    {.ops = "MATMUL", "@f[16384,64,64],@f[16384,64,64]", HEAVY, "torch.matmul"},
    {.ops = "MATMUL", "@f[1,134217728],@f[134217728,1]", HEAVY, "torch.matmul"},
    {.ops = "BMM", "@f[16,2048,2048],@f[16,2048,2048]", HEAVY},
    {.ops = "MV", "@f[16384,8192],@f[8192]", HEAVY},
    {.ops = "DOT", "@f[134217728],@f[134217728]", HEAVY},
    {.ops = "INT4PACK", "@w[8192,16384],1", HEAVY},
    {.ops = "INT4PACK_MM", "@f[8192,8192],@u[8192,4096],32,@r[256,8192,2]", HEAVY},
    {.ops = "INT8PACK_MM", "@f[8192,8192],@s[8192,8192],@f[8192]", HEAVY},
    {.ops = "ADDMM", "@f[8192],@f[8192,8192],@f[8192,8192]", HEAVY, NULL, "\"beta\":0.5,\"alpha\":2.0"},
    {.ops = "ADDMM", "@f[8192,8192],@f[8192,1],@f[1,8192]", HEAVY, NULL, "\"beta\":0.5,\"alpha\":2.0"},
    {.ops = "BADDBMM", "@f[16,2048,2048],@f[16,2048,2048],@f[16,2048,2048]", HEAVY, NULL, "\"beta\":0.5,\"alpha\":2.0"},
    {.ops = "ADDMV", "@f[16384],@f[16384,8192],@f[8192]", HEAVY, NULL, "\"beta\":0.5,\"alpha\":2.0"},
    {.ops = "LINEAR", "@f[8192,8192],@f[8192,8192],@f[8192]", HEAVY, "torch.nn.functional.linear"},
    {.ops = "LINEAR", "@f[8192,1],@f[8192,1],@f[8192]", HEAVY, "torch.nn.functional.linear"},
    {.ops = "OUTER", "@f[8192],@f[8192]", HEAVY},

    /* kernels_view.c; a view that has to copy is as heavy as a copy */
    {.ops = "VIEW", "@f[16384,4096],[16384,64,64]", LIGHT, "torch.ops.aten.view.default"},
    {.ops = "UNSAFE_VIEW RESHAPE", "@g[64,1048576],[67108864]", HEAVY},
    {.ops = "VIEW_AS", "@f[16384,4096],@f[16384,4096]", LIGHT},
    {.ops = "FLATTEN RAVEL", "@g[64,1048576]", HEAVY},
    {.ops = "UNFLATTEN", "@f" BIG ",1,[64,64]", LIGHT},
    {.ops = "PERMUTE", "@f" BIG ",[1,0]", LIGHT},
    {.ops = "TRANSPOSE MOVEDIM", "@f" BIG ",0,1", LIGHT},
    {.ops = "T", "@f" BIG, LIGHT},
    {.ops = "NUMPY_T", "@f" BIG, LIGHT, "torch.ops.aten.numpy_T.default"},
    {.ops = "ADJOINT", "@f" BIG, LIGHT, "torch.adjoint"},
    {.ops = "UNSQUEEZE", "@f" BIG ",0", LIGHT},
    {.ops = "SQUEEZE", "@f" BIG, LIGHT},
    {.ops = "EXPAND", "@f[1,1],[16384,4096]", LIGHT, "torch.ops.aten.expand.default"},
    {.ops = "EXPAND_AS", "@f[1,1],@f" BIG, LIGHT},
    {.ops = "SELECT", "@f" BIG ",0,0", LIGHT},
    {.ops = "SLICE", "@f" BIG ",0,1,9000,2", LIGHT, "torch.ops.aten.slice.Tensor"},
    {.ops = "NARROW", "@f" BIG ",0,1,9000", LIGHT},
    {.ops = "SPLIT", "@f[1000000],1", HEAVY},
    {.ops = "BROADCAST_TENSORS", "@f[4096,1],@f[4096]", LIGHT, "torch.broadcast_tensors"},
    {.ops = "MESHGRID", "@f[4096],@f[4096]", LIGHT, "torch.meshgrid"},
    {.ops = "SPLIT_WITH_SIZES", "@f[1000000],1000000", HEAVY, "torch.tensor_split"},
    {.ops = "CHUNK", "@f[1000000],1000000", HEAVY},
    {.ops = "UNBIND", "@f[1000000]", HEAVY},
    {.ops = "UNFOLD", "@f[67108864],0,1,1", LIGHT, "torch.ops.aten.unfold.default"},
    {.ops = "DIAGONAL", "@f" BIG, LIGHT},

    /* kernels_copy.c */
    {.ops = "IDENTITY", "@f" BIG, LIGHT, NULL, NULL, "{\"path\":\"m\",\"type\":\"torch.nn.Identity\",\"config\":{}}"},
    {.ops = "ALIAS DETACH", "@f" BIG, LIGHT},
    {.ops = "CONTIGUOUS CLONE LIFT_FRESH_COPY", "@f" BIG, HEAVY},
    {.ops = "DROPOUT FEATURE_DROPOUT ALPHA_DROPOUT", "@f" BIG ",0.5,false", LIGHT},
    {.ops = "RAND", "[16384,4096]", LIGHT},
    {.ops = "RAND_LIKE", "@f" BIG, LIGHT},
    {.ops = "RANDINT", "0,7,[16384,4096]", LIGHT},
    {.ops = "RANDPERM", "67108864", LIGHT},
    {.ops = "TO", "@f" BIG ",{\"$dtype\":\"float16\"}", HEAVY, "torch.ops.aten.to.dtype"},
    {.ops = "TO_OTHER", "@f" BIG ",@i[1]", HEAVY, "torch.ops.aten.to.other"},
    {.ops = "TO_COPY", "@f" BIG, HEAVY, NULL, "\"dtype\":{\"$dtype\":\"bfloat16\"}"},
    {.ops = "TYPE", "@f" BIG ",{\"$dtype\":\"int32\"}", HEAVY},
    {.ops = "TYPE_AS", "@f" BIG ",@h[1]", HEAVY},
    {.ops = "CAST_DOUBLE CAST_HALF CAST_BFLOAT16 CAST_LONG CAST_INT CAST_BOOL", "@f" BIG, HEAVY},
    {.ops = "CAST_FLOAT", "@i" BIG, HEAVY},
    {.ops = "CAT STACK", "[@f" BIG ",@f" BIG ",@f[16384,4096]]", HEAVY},
    {.ops = "REPEAT TILE", "@f[64,64],[512,64]", HEAVY},
    {.ops = "REPEAT_INTERLEAVE", "@f[4096],30000", HEAVY},
    {.ops = "REPEAT_INTERLEAVE", "@f[67108864],@i[67108864]", HEAVY},
    {.ops = "FLIP", "@f[4096,16384],[0,1]", HEAVY},
    {.ops = "ROLL", "@f[67108864],3", HEAVY},
    {.ops = "ROLL", "@f[4096,16384],[3,5],[0,1]", HEAVY},
    {.ops = "INDEX_SELECT", "@f[4,4],0,@i[60000000]", HEAVY},

    /* kernels_reduce.c */
    {.ops = "SUM PROD MEAN AMAX AMIN ARGMAX ARGMIN ALL ANY COUNT_NONZERO MAX MIN VAR STD VAR_MEAN AMINMAX NORM VECTOR_NORM",
     "@f[16384,16384]",
     HEAVY},
    {.ops = "SUM MEAN AMAX ARGMAX LOGSUMEXP VAR STD VAR_MEAN MAX", "@f[16384,16384],1", HEAVY},
    {.ops = "SUM MEAN AMAX ARGMAX LOGSUMEXP VAR STD VAR_MEAN MAX", "@f[16384,16384],0", HEAVY},
    {.ops = "NORM VECTOR_NORM", "@f[16384,16384],3.5", HEAVY},
    {.ops = "NORMALIZE", "@f" BIG, HEAVY},
    {.ops = "NORMALIZE", "@f" BIG ",3.5,0", HEAVY},
    {.ops = "LOGSUMEXP", "@f[268435456],0", HEAVY},
    {.ops = "SUM", "@i[67108864,2],1", HEAVY},

    /* kernels_scan.c */
    {.ops = "SOFTMAX LOG_SOFTMAX SOFTMIN CUMSUM CUMPROD", "@f" BIG ",1", HEAVY, "torch.nn.functional.%s"},
    {.ops = "SOFTMAX LOG_SOFTMAX SOFTMIN CUMSUM CUMPROD", "@f[67108864],0", HEAVY, "torch.nn.functional.%s"},
    {.ops = "NATIVE_SOFTMAX NATIVE_LOG_SOFTMAX", "@f" BIG ",0,false", HEAVY},
    {.ops = "CUMSUM CUMPROD", "@i" BIG ",0", HEAVY},

    /* kernels_sort.c */
    {.ops = "SORT ARGSORT", "@f[10000000]", HEAVY},
    {.ops = "SORT ARGSORT", "@i[8192,2048],0", HEAVY},
    {.ops = "TOPK", "@f[10000000],1000", HEAVY},

    /* kernels_norm.c */
    {.ops = "BATCH_NORM", IMAGE ",null,null,null,null,true", HEAVY, "torch.nn.functional.batch_norm"},
    {.ops = "BATCH_NORM", IMAGE ",@f[64],@f[64],@f[64],@f[64],false", HEAVY, "torch.nn.functional.batch_norm"},
    {.ops = "BATCH_NORM_INFERENCE",
     IMAGE ",@f[64],@f[64],@f[64],@f[64],0.1,1e-5",
     HEAVY,
     "torch.ops.aten._native_batch_norm_legit_no_training.default"},
    {.ops = "BATCH_NORM1D", "@f[1,64,262144]", HEAVY, NULL, NULL, NORM("BatchNorm1d")},
    {.ops = "BATCH_NORM2D", IMAGE, HEAVY, NULL, NULL, NORM("BatchNorm2d")},
    {.ops = "BATCH_NORM3D", "@f[1,64,64,64,64]", HEAVY, NULL, NULL, NORM("BatchNorm3d")},
    {.ops = "SYNC_BATCH_NORM", IMAGE, HEAVY, NULL, NULL, NORM("SyncBatchNorm")},
    {.ops = "NATIVE_BATCH_NORM",
     IMAGE ",@f[64],@f[64],@f[64],@f[64],false,0.1,1e-5",
     HEAVY,
     "torch.ops.aten.native_batch_norm.default"},
    {.ops = "INSTANCE_NORM", IMAGE, HEAVY, "torch.nn.functional.instance_norm"},
    {.ops = "GROUP_NORM", IMAGE ",2", HEAVY, "torch.nn.functional.group_norm"},
    {.ops = "LAYER_NORM RMS_NORM", "@f" BIG ",[4096]", HEAVY, "torch.nn.functional.%s"},
    {.ops = "LAYER_NORM RMS_NORM", "@f[1,67108864],[67108864]", HEAVY, "torch.nn.functional.%s"},
    {.ops = "NATIVE_GROUP_NORM", IMAGE ",@f[64],@f[64],1,64,262144,2,1e-5", HEAVY, "torch.ops.aten.native_group_norm.default"},
    {.ops = "NATIVE_LAYER_NORM", "@f" BIG ",[4096],@f[4096],@f[4096],1e-5", HEAVY, "torch.ops.aten.native_layer_norm.default"},
    {.ops = "NATIVE_LAYER_NORM", "@f[67108864,1],[1],null,null,1e-5", HEAVY, "torch.ops.aten.native_layer_norm.default"},
    {.ops = "WEIGHT_NORM", "@f" BIG ",@f[16384,1],0", HEAVY},

    /* kernels_conv.c */
    {.ops = "CONV1D", "@f[1,256,65536],@f[256,256,9]", HEAVY},
    {.ops = "CONV2D", IMAGE ",@f[64,64,3,3]", HEAVY},
    {.ops = "CONV2D", "@f[1,1024,256,256],@f[1024,1,3,3],null,1,1,1,1024", HEAVY},
    {.ops = "CONV3D", "@f[1,16,64,64,64],@f[16,16,3,3,3]", HEAVY},
    {.ops = "CONV_TRANSPOSE1D", "@f[1,256,65536],@f[256,256,3]", HEAVY},
    {.ops = "CONV_TRANSPOSE2D", "@f[1,64,256,256],@f[64,64,3,3]", HEAVY},
    {.ops = "CONV_TRANSPOSE3D", "@f[1,16,48,48,48],@f[16,16,3,3,3]", HEAVY},
    {.ops = "CONV_POINTWISE", IMAGE ",@f[64,64,3,3],null,[0,0],[1,1],[1,1],1,\"gelu\",[],\"none\"", HEAVY},
    {.ops = "CONV_POINTWISE_BINARY",
     IMAGE "," IMAGE ",@f[64,64,3,3],null,[1,1],[1,1],[1,1],1,\"add\",null,\"relu\",[],\"\"",
     HEAVY},
    {.ops = "LINEAR_POINTWISE", "@f[8192,8192],@f[8192,8192],@f[8192],\"gelu\",[],\"tanh\"", HEAVY},
    {.ops = "CONVOLUTION", IMAGE ",@f[64,64,3,3],null,[1,1],[0,0],[1,1],false,[0,0],1", HEAVY},

    /* kernels_pool.c */
    {.ops = "MAX_POOL2D AVG_POOL2D", "@f[1,1,6000,6000],[3000,3000],[1,1]", HEAVY, "torch.nn.functional.%s"},
    {.ops = "MAX_POOL1D AVG_POOL1D", "@f[1,1,8000000],4000000,1", HEAVY, "torch.nn.functional.%s"},
    {.ops = "MAX_POOL3D AVG_POOL3D", "@f[1,1,300,300,300],150,1", HEAVY, "torch.nn.functional.%s"},
    {.ops = "MAX_POOL1D AVG_POOL1D", "@f[1,1,60000000],1,1", HEAVY, "torch.nn.functional.%s"},
    {.ops = "ADAPTIVE_AVG_POOL1D", "@f[1,1,60000000],7", HEAVY, "torch.nn.functional.%s"},
    {.ops = "ADAPTIVE_AVG_POOL2D", "@f[1,1,6000,6000],[7,7]", HEAVY, "torch.nn.functional.%s"},
    {.ops = "ADAPTIVE_AVG_POOL3D", "@f[1,1,300,300,300],[300,300,300]", HEAVY, "torch.nn.functional.%s"},
    {.ops = "MAX_POOL_WITH_INDICES",
     "@f[1,1,6000,6000],[3000,3000],[1,1]",
     HEAVY,
     "torch.ops.aten.max_pool2d_with_indices.default"},
    {.ops = "ADAPTIVE_MAX_POOL", "@f[1,1,6000,6000],[7,7]", HEAVY, "torch.nn.functional.adaptive_max_pool2d"},

    /* kernels_select.c */
    {.ops = "WHERE", "@b" BIG ",@f" BIG ",@f" BIG, HEAVY},
    {.ops = "MASKED_FILL", "@f" BIG ",@b" BIG ",0.5", HEAVY},
    {.ops = "TRIU TRIL", "@f" BIG, HEAVY},
    {.ops = "TRIL", "@f[67108864,1],-67108864", HEAVY},
    {.ops = "CLAMP", "@f" BIG ",0.25,0.5", HEAVY},
    {.ops = "CLAMP_MIN CLAMP_MAX", "@f" BIG ",0.5", HEAVY},
    {.ops = "ELEMENT_LOSS SMOOTH_L1_LOSS HUBER_LOSS", "@f" BIG ",@f" BIG, HEAVY},
    {.ops = "ADDCMUL ADDCDIV LERP", "@f" BIG ",@f" BIG ",@f" BIG, HEAVY},
    {.ops = "PRELU", "@f" BIG ",@f[4096]", HEAVY},

    /* kernels_create.c */
    {.ops = "ZEROS ONES", "[16384,8192]", HEAVY},
    {.ops = "FULL", "[16384,8192],0.5", HEAVY},
    {.ops = "ZEROS_LIKE ONES_LIKE", "@f[16384,8192]", HEAVY},
    {.ops = "FULL_LIKE", "@f[16384,8192],0.5", HEAVY},
    {.ops = "NEW_ZEROS NEW_ONES", "@f[1],[16384,8192]", HEAVY},
    {.ops = "NEW_FULL", "@f[1],[16384,8192],0.5", HEAVY},
    {.ops = "ARANGE", "100000000", HEAVY},
    {.ops = "TENSOR AS_TENSOR", "@l", HEAVY},
    {.ops = "NEW_TENSOR", "@i[1],@l", HEAVY},
    {.ops = "LINSPACE", "0,1,100000000", HEAVY},
    {.ops = "TRIL_INDICES", "9000,9000,0", HEAVY},
    {.ops = "TRIL_INDICES", "2147483646,2147483646,-2147483646", HEAVY},
    {.ops = "TRIL_INDICES", "2147483646,2147483646,2147483646", HEAVY, "torch.triu_indices"},
    {.ops = "FILL", "@f[16384,8192],0.5", HEAVY},
    {.ops = "ZERO", "@f[16384,8192]", HEAVY},
    {.ops = "COPY", "@f[16384,8192],@h[16384,8192]", HEAVY},
    {.ops = "EYE", "12000", HEAVY},

    /* kernels_upsample.c */
    {.ops = "UNFOLD_PATCHES", "@f[1,1,2048,2048],3,1,1", HEAVY, "torch.nn.functional.unfold"},
    {.ops = "FOLD_PATCHES", "@f[1,9,4194304],[2048,2048],3,1,1", HEAVY, "torch.nn.functional.fold"},
    {.ops = "EINSUM", "\"ij,jk->ik\",@f[2048,2048],@f[2048,2048]", HEAVY, "torch.einsum"},
    {.ops = "EINSUM", "\"i->\",@f[60000000]", HEAVY, "torch.einsum"},
    {.ops = "INTERPOLATE", "@f[1,1,2048,2048],[8192,8192],null,\"bicubic\"", HEAVY, "torch.nn.functional.interpolate"},
    {.ops = "INTERPOLATE", "@f[1,1,1],60000000,null,\"linear\"", HEAVY, "torch.nn.functional.interpolate"},
    {.ops = "UPSAMPLE_NEAREST", "@f[1,1,2048,2048],[8192,8192],null", HEAVY, "torch.ops.aten.upsample_nearest2d.vec"},
    {.ops = "UPSAMPLE_BILINEAR", "@f[1,1,64,64,64],null,true,[6.5,6.5,6.5]", HEAVY, "torch.ops.aten.upsample_trilinear3d.vec"},
    {.ops = "UPSAMPLE_NEAREST1D_TO", "@f[1,1,64],[60000000]", HEAVY},
    {.ops = "UPSAMPLE_NEAREST2D_TO", "@f[1,1,64,64],[8192,8192]", HEAVY},
    {.ops = "UPSAMPLE_NEAREST3D_TO", "@f[1,1,64,64,64],[400,400,400]", HEAVY},
    {.ops = "UPSAMPLE_LINEAR1D_TO", "@f[1,1,64],[60000000],false", HEAVY},
    {.ops = "UPSAMPLE_LINEAR2D_TO", "@f[1,1,64,64],[8192,8192],false", HEAVY, "torch.ops.aten.upsample_bicubic2d.default"},
    {.ops = "UPSAMPLE_LINEAR3D_TO", "@f[1,1,64,64,64],[400,400,400],false", HEAVY},

    /* kernels_pad.c */
    {.ops = "PAD", "@f[16384,4096],[100,100]", HEAVY},
    {.ops = "PAD", "@f[1,60000000],[1,1],\"reflect\"", HEAVY},
    {.ops = "CONSTANT_PAD", "@f[16384,4096],[100,100,7,7],0.5", HEAVY},
    {.ops = "ZERO_PAD_LAYER",
     "@f[1,60000000]",
     HEAVY,
     NULL,
     NULL,
     "{\"path\":\"m\",\"type\":\"torch.nn.ZeroPad1d\",\"config\":{\"padding\":[1,1]}}"},
    {.ops = "CONSTANT_PAD_LAYER",
     "@f[1,60000000]",
     HEAVY,
     NULL,
     NULL,
     "{\"path\":\"m\",\"type\":\"torch.nn.ConstantPad1d\",\"config\":{\"padding\":[1,1],\"value\":0.5}}"},
    {.ops = "PAD_LAYER",
     "@f[1,60000000]",
     HEAVY,
     NULL,
     NULL,
     "{\"path\":\"m\",\"type\":\"torch.nn.ReflectionPad1d\",\"config\":{\"padding\":[1,1]}}"},
    {.ops = "EDGE_PAD", "@f[1,64,512,512],[1,1,1,1]", HEAVY, "torch.ops.aten.replication_pad2d.default"},

    /* kernels_gather.c */
    {.ops = "GATHER", "@f[8192,4096],1,@i[8192,4096]", HEAVY},
    {.ops = "SCATTER SCATTER_ADD", "@f[8192,4096],1,@i[8192,4096],@f[8192,4096]", HEAVY},
    {.ops = "INDEX_ADD", "@f[8192,4096],0,@i[8192],@f[8192,4096]", HEAVY},
    {.ops = "HISTC", "@f[60000000],100,0,1", HEAVY},

    /* kernels_attention.c */
    {.ops = "EMBEDDING", "@i[65536],@f[1024,1024]", HEAVY, "torch.nn.functional.embedding"},
    {.ops = "EMBEDDING", "@i[1],@f[2,60000000]", HEAVY, "torch.nn.functional.embedding"},
    {.ops = "EMBEDDING", "@i[60000000],@f[2,1]", HEAVY, "torch.nn.functional.embedding"},
    {.ops = "ONE_HOT", "@i[1000000],100", HEAVY},
    {.ops = "ONE_HOT", "@i[60000000]", HEAVY},
    {.ops = "ATTENTION", "@f[1,8,8192,64],@f[1,8,8192,64],@f[1,8,8192,64]", HEAVY},
    {.ops = "ATTENTION", "@f[1,1,1,4],@f[1,1,60000000,4],@f[1,1,60000000,4]", HEAVY},

    /* kernels_complex.c */
    {.ops = "VIEW_AS_REAL REAL IMAG", "@c" BIG, LIGHT},
    {.ops = "VIEW_AS_COMPLEX", "@p", LIGHT},
    {.ops = "CONJUGATE ANGLE ABS NEG EXP", "@c" BIG, HEAVY},
    {.ops = "COMPLEX POLAR", "@f" BIG ",@f" BIG, HEAVY},
    {.ops = "ADD SUB MUL DIV", "@c" BIG ",@c" BIG, HEAVY},
    {.ops = "MATMUL", "@c[4096,4096],@c[4096,4096]", HEAVY, "torch.matmul"},
    {.ops = "EINSUM", "\"ij,jk->ik\",@c[2048,2048],@c[2048,2048]", HEAVY, "torch.einsum"},
    {.ops = "SUM", "@c" BIG ",0", HEAVY},

    /* kernels_fft.c */
    {.ops = "FFT", "@f[4000037]", HEAVY, "torch.fft.fft"},
    {.ops = "FFT", "@f[16,1048576]", HEAVY, "torch.fft.irfft"},
    {.ops = "FFT", "@f[1048576,16]", HEAVY, "torch.fft.rfft"},
    {.ops = "FFT_MANY", "@f[1000,4099]", HEAVY, "torch.fft.fft2"},
    {.ops = "FFT_MANY", "@f[2,2],[3000,3001]", HEAVY, "torch.fft.fft2"},
    {.ops = "FFT_R2C", "@f[1000,4099],[0,1],0,true", HEAVY},
    {.ops = "FFT_C2C", "@c[1000,4099],[0,1],0,true", HEAVY},
    {.ops = "FFT_C2R", "@c[1000,2050],[0,1],0,4099", HEAVY},
    {.ops = "FFT_FREQUENCIES", "60000000", HEAVY},
    {.ops = "MATRIX_EXP", "@f[3000,3000]", HEAVY},
    {.ops = "MATRIX_EXP", "@f[1000,100,100]", HEAVY},
    {.ops = "MATRIX_EXP", "@f[10000,10000]", HEAVY},
    {.ops = "HOUSEHOLDER_PRODUCT", "@f[3000,3000],@f[3000]", HEAVY, "torch.linalg.householder_product"},
    {.ops = "LINALG_SOLVE", "@f[1,1],@f[1,60000000]", HEAVY, "torch.linalg.solve"},
    {.ops = "LINALG_SOLVE", "@f[2000,2000],@f[2000,2000]", HEAVY, "torch.linalg.solve"},
    {.ops = "FFT_SHIFT", "@c[16384,2048]", HEAVY, "torch.fft.fftshift"},
};
enum { CALLS = sizeof calls / sizeof *calls };

/* ---- as documents ------------------------------------------------------------------------------------------------------- */

static fb_op op_of(const char *id, size_t length) {
    for (unsigned op = 1; op < FB_OP_COUNT; op++)
        if (strlen(fb_op_table[op].id) == length && !strncmp(fb_op_table[op].id, id, length)) return (fb_op)op;
    ck_abort_msg("%.*s is not an operator", (int)length, id);
}

static void put_call(fb_buffer *nodes, const char *name, const char *target, const char *arguments, const char *kwargs) {
    fb_buffer_printf(nodes, "{\"op\":\"call_function\",\"name\":\"%s\",\"target\":\"%s\",\"args\":[%s],\"kwargs\":{%s}},", name,
                     target, arguments, kwargs ? kwargs : "");
}

/* The arguments as JSON; what they need is put before. */
static char *put_arguments(fb_buffer *nodes, const char *text) {
    fb_buffer out = {0};
    int made = 0;
    for (; *text; text++) {
        if (*text != '@') {
            fb_buffer_char(&out, *text);
            continue;
        }
        char name[20], arguments[200], kind = *++text;
        snprintf(name, sizeof name, "given_%d", made++);
        if (kind == 'l') {
            put_call(nodes, name, "operator.mul", "[0,1,0,1,0,1,0,1,0,1],99999", NULL);
        } else if (kind == 'p') { /* pairs */
            put_call(nodes, name, "torch.view_as_real", "{\"$node\":\"c\"}", NULL);
        } else if (kind == 'r') { /* row-major */
            size_t length = strcspn(text, "]");
            snprintf(arguments, sizeof arguments, "%.*s]", (int)length - 1, text + 1);
            put_call(nodes, name, "torch.ones", arguments, NULL);
            text += length;
        } else {
            size_t length = strcspn(text, "]");
            snprintf(arguments, sizeof arguments, "{\"$node\":\"%c\"},%.*s", kind, (int)length, text + 1);
            put_call(nodes, name, "torch.ops.aten.expand.default", arguments, NULL);
            text += length;
        }
        fb_buffer_printf(&out, "{\"$node\":\"%s\"}", name);
    }
    return fb_buffer_take(&out, NULL);
}

static void print_target(const worst *call, fb_op op, char *out, size_t size) {
    const fb_op_facts *facts = fb_op_facts_of(op);
    int name = (int)strcspn(facts->names, " ");
    if (call->target && !strstr(call->target, "%s")) snprintf(out, size, "%s", call->target);
    else if (call->target) snprintf(out, size, "torch.nn.functional.%.*s", name, facts->names);
    else if (name) snprintf(out, size, "torch.%.*s", name, facts->names);
    else snprintf(out, size, "%.*s", (int)strcspn(facts->functions, " "), facts->functions);
}

static fb_graph *graph_of_call(const worst *call, fb_op op) {
    static const char *const inputs[] = {"f float32",   "g float32", "h float16", "i int64", "b bool",
                                         "c complex64", "s int8",    "w int32",   "u uint8"};
    fb_buffer nodes = {0};
    char target[200] = "m";
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        fb_buffer_printf(&nodes,
                         "{\"op\":\"placeholder\",\"name\":\"%c\",\"target\":\"%c\","
                         "\"meta\":{\"shape\":[%s],\"dtype\":\"%s\"}},",
                         *inputs[i], *inputs[i], *inputs[i] == 'g' ? "64,1" : "1", inputs[i] + 2);
    char *arguments = put_arguments(&nodes, call->arguments);
    if (!call->module) print_target(call, op, target, sizeof target);
    if (call->module)
        fb_buffer_printf(&nodes, "{\"op\":\"call_module\",\"name\":\"call\",\"target\":\"m\",\"args\":[%s]},", arguments);
    else put_call(&nodes, "call", target, arguments, call->kwargs);
    bool is_random = fb_op_facts_of(op)->flags & (FB_FACT_RANDOM | FB_FACT_UNSET); /* which nothing may read */
    fb_buffer_printf(&nodes, "{\"op\":\"output\",\"name\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"%s\"}]}",
                     is_random ? "f" : "call");
    char modules[500];
    snprintf(modules, sizeof modules, "{\"path\":\"\",\"type\":\"torch.nn.Module\"}%s%s", call->module ? "," : "",
             call->module ? call->module : "");
    char *text = document_of(fb_buffer_text(&nodes), modules, "");
    fb_graph *graph = graph_of(text, strlen(text));
    fb_node node = fb_node_find(graph, FB_MAIN_PROGRAM, "call");
    ck_assert_msg(fb_node_op(graph, node) == op, "%s is not %s", target, fb_op_table[op].id);
    free(text);
    free(arguments);
    fb_buffer_free(&nodes);
    return graph;
}

/* ---- looking at the time ------------------------------------------------------------------------------------------------- */

static fb_status evaluate(const fb_graph *graph, double step_limit, int64_t deadline, double *unasked, fb_error *error) {
    cpu_watch clock;
    cpu_watch_begin(&clock, deadline);
    fb_array_memory memory;
    fb_object output;
    fb_eval_inputs given = {.graph = graph, .memory = &memory, .is_drawn = true, .seed = 1};
    fb_eval_hooks hooks = {.context = &given, .given = fb_give_input};
    fb_eval_options options = {.memory_limit = (size_t)3 << 30, .step_limit = step_limit, .watch = &clock.watch};
    *error = (fb_error){0};
    fb_status status = fb_evaluate_graph(graph, &options, &hooks, &memory, &output, error);
    fb_object_drop(&output);
    *unasked = cpu_watch_end(&clock);
    ck_assert_uint_eq(memory.used, 0);
    return status;
}

static void try(const worst *call, fb_op op) {
    fb_graph *graph = graph_of_call(call, op);
    fb_error error;
    double unasked;
    bool is_whole = getenv("FOLDBACK_WHOLE_CALLS") != NULL;
    char what[300];
    snprintf(what, sizeof what, "%s(%.200s)", fb_op_table[op].id, call->arguments);
    double steps = is_whole ? 2e10 : 1e18; /* some would take a day */
    fb_status status = evaluate(graph, steps, is_whole ? 0 : DEADLINE, &unasked, &error);
    if (is_whole) printf("%6.1f ms unasked: %s%s%s\n", unasked, what, status ? " " : "", error.message);
    bool is_told = call->weight == LIGHT ? !status : is_whole ? !status || status == FB_TOO_LARGE : status == FB_BUSY;
    ck_assert_msg(is_told, "%s: %d %s %s", what, status, error.code, error.message);
    ck_assert_msg(unasked * (double)MS <= (double)MOST_UNASKED, "%s is not asked for %.1f ms", what, unasked);
    status = evaluate(graph, 1e6, 50 * DEADLINE, &unasked, &error);
    bool is_refused = status == FB_TOO_LARGE && !strcmp(error.code, "evaluation-too-large");
    ck_assert_msg(is_refused == (call->weight == HEAVY), "%s, of few steps: %d %s %s", what, status, error.code, error.message);
    ck_assert_msg(unasked * (double)MS <= (double)MOST_UNASKED, "%s is refused after %.1f ms", what, unasked);
    fb_graph_free(graph);
}

START_TEST(every_call_is_stopped_in_time) {
    const worst *call = &calls[_i];
    for (const char *id = call->ops; *id; id += strspn(id, " ")) {
        size_t length = strcspn(id, " ");
        try(call, op_of(id, length));
        id += length;
    }
}
END_TEST

START_TEST(every_row_has_a_call) {
    for (const fb_kernel_row *const *table = fb_kernel_tables; *table; table++) {
        for (const fb_kernel_row *row = *table; row->function; row++) {
            const char *id = fb_op_facts_of(row->op)->id;
            bool has_call = row->is_by_position; /* it needs a program or a level, and cannot be called alone */
            for (size_t k = 0; k < CALLS && !has_call; k++) has_call = fb_has_word(calls[k].ops, id, strlen(id));
            ck_assert_msg(has_call, "%s has a kernel: put the worst call of it into tests/unit/test_time.c", id);
        }
    }
}
END_TEST

static Suite *make_suite(void) {
    Suite *suite = suite_create("time");
    TCase *tests = tcase_create("time");
    tcase_add_test(tests, every_row_has_a_call);
    tcase_add_loop_test(tests, every_call_is_stopped_in_time, 0, CALLS);
    tcase_set_timeout(tests, 600);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void) {
    return run_timed_suite(make_suite);
}
