"""Calls of each operator of core/operators, for test_memory_layout.py: arguments for one tensor x of three or four dimensions.

Tensors of x's rank are given in each memory layout, others as they are. An operator that is not listed is called with the first
of GENERIC that a spelling takes. None: not of that rank."""

import torch

T = torch.rand


class Call:
    def __init__(self, *args, **kwargs):
        self.args, self.kwargs = args, kwargs


def ints(*sizes, below):
    return torch.randint(0, below, sizes)


def other(x):
    return T(x.shape) + 0.1


def whole(x):
    return (x * 9).to(torch.int64)


GENERIC = [
    lambda x: Call(x),
    lambda x: Call(x, other(x)),
    lambda x: Call(x, T(x.shape[-1:]) + 0.1),
    lambda x: Call(x, 2.0),
    lambda x: Call(x, other(x), other(x)),
    lambda x: Call(x, 0.2, 0.7),
    lambda x: Call(x > 0.5, x, other(x)),
    lambda x: Call(whole(x)),
    lambda x: Call(whole(x), whole(other(x))),
    lambda x: Call(whole(x), 2),
    lambda x: Call(2.0, x),
    lambda x: Call(x > 0.5, x > 0.2),
]
IMAGES, LINES = (lambda x, *a, **k: Call(x, *a, **k) if x.dim() == 4 else None), (
    lambda x, *a, **k: Call(x, *a, **k) if x.dim() == 3 else None)


def volume(x):
    """Five dimensions of an image's four."""
    return T(2, 4, 6, 6, 6) if x.dim() == 4 else None


def of_volume(make):
    return lambda x: make(volume(x)) if x.dim() == 4 else None


def by_channel(x, make):
    return make(T(x.shape[1]), T(x.shape[1]) + 1, T(x.shape[1]), T(x.shape[1]))


def convolution(dims, transposed=False, has_batch=True, **more):
    def call(x):
        rank = dims + 2 if has_batch else dims + 1
        x = x if x.dim() == rank else volume(x) if rank == 5 else None
        if x is None:
            return None
        channels = x.shape[-dims - 1]
        weight = T(channels, 5, *[3] * dims) if transposed else T(5, channels, *[3] * dims)
        return Call(x, weight, T(5), **more)

    return call


def any_convolution(transposed):
    def call(x):
        dims = x.dim() - 2
        weight = T(x.shape[1], 5, *[3] * dims) if transposed else T(5, x.shape[1], *[3] * dims)
        return Call(x, weight, T(5), [1] * dims, [1] * dims, [1] * dims, transposed, [0] * dims, 1)

    return call


def of_sizes(*sizes):
    return lambda x: T(*sizes)


def indices_of(x):
    return ints(*x.shape, below=x.shape[1])


def reductions(*more):
    return [lambda x: Call(x, *more), lambda x: Call(x, *more, 1), lambda x: Call(x, *more, -1, True),
            lambda x: Call(x, *more, [0, 2]), lambda x: Call(x, *more, [-1], True)]


DIM = [lambda x: Call(x, 1), lambda x: Call(x, -1), lambda x: Call(x, 0)]
POOL = [lambda x: Call(x, 3), lambda x: Call(x, 2, 1)]
VOLUME_POOL = [of_volume(lambda x: Call(x, 3)), of_volume(lambda x: Call(x, 2, 1)), lambda x: IMAGES(x, 2, 1)]  # … no batch
FULL_SIZE = [lambda x: Call(3, 4, 5), lambda x: Call([2, 3, 4, 5])]
FACTORY_LIKE = [lambda x: Call(x), lambda x: Call(x, 2.0), lambda x: Call(x, 5), lambda x: Call(x, 1, 9)]
SEQUENCES = [lambda x: Call([x, other(x)]), lambda x: Call([x, other(x)], 1), lambda x: Call([x, other(x)], -1),
             lambda x: Call([x])]
CASTS = [lambda x: Call(x), lambda x: Call(x.double()), lambda x: Call(whole(x))]


def norm_layers(affine=lambda x: x):
    return [lambda x: by_channel(x, lambda m, v, w, b: Call(x, w, b, m, v, False, 0.1, 1e-5)),
            lambda x: by_channel(x, lambda m, v, w, b: Call(x, w, b, m, v, True, 0.1, 1e-5))]


CALLS = {
    "PRELU": [lambda x: Call(x - 0.5, T(x.shape[1])), lambda x: Call(x - 0.5, T(1))],
    "RRELU": [lambda x: Call(x - 0.5), lambda x: Call(x - 0.5, 0.1, 0.3, True)],
    "GLU": [lambda x: Call(x), lambda x: Call(x, -2)],
    **dict.fromkeys(("SOFTMAX", "LOG_SOFTMAX", "SOFTMIN"), DIM),
    **dict.fromkeys(("NATIVE_SOFTMAX", "NATIVE_LOG_SOFTMAX"), [lambda x: Call(x, 1, False), lambda x: Call(x, -1, False)]),
    "GUMBEL_SOFTMAX": [lambda x: Call(x), lambda x: Call(x, 1.0, False, 1e-10, 1), lambda x: Call(x, 1.0, True)],
    "THRESHOLD": [lambda x: Call(x, 0.5, 2.0)],
    "HARD_TANH": [lambda x: Call(x), lambda x: Call(x, 0.2, 0.7)],
    "CLAMP": [lambda x: Call(x, 0.2, 0.7), lambda x: Call(x, 0.2), lambda x: Call(x, other(x), None)],
    "WHERE": [lambda x: Call(x > 0.5, x, other(x)), lambda x: Call(x > 0.5, x, 0.0), lambda x: Call(x > 0.5, 0.0, x),
              lambda x: Call(x, x > 0.5, other(x))],
    "MASKED_FILL": [lambda x: Call(x, x > 0.5, 0.0), lambda x: Call(x, other(x) > 0.5, torch.tensor(0.0)),
                    lambda x: Call(x, T(x.shape[-1:]) > 0.5, 0.0)],
    "DIV": [lambda x: Call(x, other(x)), lambda x: Call(x, 2.0), lambda x: Call(x, other(x), rounding_mode="floor")],
    "LERP": [lambda x: Call(x, other(x), 0.5), lambda x: Call(x, other(x), other(x))],
    **dict.fromkeys(("ADDCMUL", "ADDCDIV"), [lambda x: Call(x, other(x), other(x)),
                                             lambda x: Call(x, other(x), T(x.shape[-1:]) + 0.1)]),
    **dict.fromkeys(("TRIU", "TRIL"), [lambda x: Call(x), lambda x: Call(x, 1)]),
    **dict.fromkeys(("ADD", "SUB", "RSUB", "MUL", "POW", "ATAN2", "EQ", "MAXIMUM", "REMAINDER"), [
        lambda x: Call(x, other(x)), lambda x: Call(x, 2.0), lambda x: Call(2.0, x), lambda x: Call(x, T(x.shape[-1:]) + 0.1),
        lambda x: Call(T(x.shape[-1:]) + 0.1, x), lambda x: Call(x, torch.tensor(2.0))]),
    "MATMUL": [lambda x: Call(x, T(x.shape[-1], 5)), lambda x: Call(x, T(x.shape[-1])), lambda x: Call(x, other(x).mT),
               lambda x: Call(T(5, x.shape[-2]), x), lambda x: Call(T(x.shape[-2]), x), lambda x: Call(x, x[0].mT)],
    "MM": [lambda x: Call(x[0] if x.dim() == 3 else x[0, 0], T(x.shape[-1], 5))],
    "INT4PACK": [lambda x: Call(ints(16, 2 * x.shape[-1], below=16).to(torch.int32), 1),
                 lambda x: Call(ints(2 * x.shape[-1], 16, below=16).to(torch.int32).mT, 1)],
    "INT4PACK_MM": [lambda x: Call((x if x.dim() == 3 else x[0])[0].repeat(1, 32), ints(16, 16 * x.shape[-1], below=256).to(
        torch.uint8), 32, T(x.shape[-1], 16, 2))],
    "INT8PACK_MM": [lambda x: Call((x if x.dim() == 3 else x[0])[0].repeat(1, 16),
                                   ints(5, 16 * x.shape[-1], below=9).to(torch.int8), T(5))],
    "BMM": [lambda x: LINES(x, T(x.shape[0], x.shape[2], 5))],
    "MV": [lambda x: Call(x[0] if x.dim() == 3 else x[0, 0], T(x.shape[-1]))],
    "DOT": [lambda x: Call(T(5), T(5))],
    "ADDMM": [lambda x: Call(T(4, 5), x.reshape(-1, x.shape[-1])[:4], T(x.shape[-1], 5)),
              lambda x: Call(T(5), x.reshape(-1, x.shape[-1])[:4], T(x.shape[-1], 5))],
    "ADDBMM": [lambda x: Call(T(x.shape[1], 5), x, T(x.shape[0], x.shape[2], 5)) if x.dim() == 3 else None],
    "BADDBMM": [lambda x: Call(T(x.shape[0], x.shape[1], 5), x, T(x.shape[0], x.shape[2], 5)) if x.dim() == 3 else None,
                lambda x: Call(T(5), x, T(x.shape[0], x.shape[2], 5)) if x.dim() == 3 else None],
    "ADDMV": [lambda x: Call(T(4), T(4, 5), T(5))],
    "OUTER": [lambda x: Call(T(4), T(5))],
    "EINSUM": [lambda x: Call("abc,cd->abd", x, T(x.shape[-1], 5)) if x.dim() == 3 else None,
               lambda x: Call("abc->cab", x) if x.dim() == 3 else Call("abcd->adcb", x),
               lambda x: Call("abc,abd->acd", x, other(x)) if x.dim() == 3 else Call("abcd,abed->abce", x, other(x))],
    "TENSORDOT": [lambda x: Call(x, T(x.shape[-1], 5), 1), lambda x: Call(x, other(x), ([1], [1]))],
    "KRON": [lambda x: Call(x, T(2, 2))],
    "CROSS": [lambda x: Call(T(3, *x.shape[1:]), T(3, *x.shape[1:]), dim=0)],
    "CDIST": [lambda x: Call(x, other(x)), lambda x: Call(x, T(5, x.shape[-1]), 1.0)],
    # creation
    **dict.fromkeys(("ZEROS", "ONES", "EMPTY", "RAND"), FULL_SIZE),
    "FULL": [lambda x: Call([3, 4, 5], 2.0)],
    "EMPTY_STRIDED": [lambda x: Call([2, 3, 4], [1, 2, 6])],
    "EYE": [lambda x: Call(4), lambda x: Call(4, 5)],
    "ARANGE": [lambda x: Call(5), lambda x: Call(1, 5), lambda x: Call(1, 9, 2)],
    "LINSPACE": [lambda x: Call(0.0, 1.0, 5)],
    "TENSOR": [lambda x: Call([[1.0, 2.0], [3.0, 4.0]]), lambda x: Call(x)],
    "SCALAR_TENSOR": [lambda x: Call(2.0)],
    "AS_TENSOR": [lambda x: Call(x), lambda x: Call([[1.0, 2.0], [3.0, 4.0]]), lambda x: Call(x, dtype=torch.float64)],
    "TRIL_INDICES": [lambda x: Call(3, 4)],
    **dict.fromkeys(("ZEROS_LIKE", "ONES_LIKE", "FULL_LIKE", "EMPTY_LIKE", "RAND_LIKE", "RANDINT_LIKE"), FACTORY_LIKE),
    **dict.fromkeys(("NEW_ZEROS", "NEW_ONES", "NEW_EMPTY"), [lambda x: Call(x, [3, 4, 5])]),
    "NEW_FULL": [lambda x: Call(x, [3, 4, 5], 2.0)],
    "NEW_TENSOR": [lambda x: Call(x, [[1.0, 2.0], [3.0, 4.0]]), lambda x: Call(x, other(x))],
    "RANDINT": [lambda x: Call(9, [3, 4, 5]), lambda x: Call(1, 9, [3, 4, 5])],
    "RANDPERM": [lambda x: Call(5)],
    "NORMAL": [lambda x: Call(x), lambda x: Call(x, other(x)), lambda x: Call(x, 1.0), lambda x: Call(1.0, x)],
    "BERNOULLI": [lambda x: Call(x), lambda x: Call(x, 0.5), lambda x: Call(x, other(x) / 2)],
    "MULTINOMIAL": [lambda x: Call(T(4, 5), 3), lambda x: Call(T(4, 5).mT, 3)],
    "FILL": [lambda x: Call(x, 2.0), lambda x: Call(x, torch.tensor(2.0))],
    "COPY": [lambda x: Call(x, other(x)), lambda x: Call(x, T(x.shape[-1:]))],
    "FILL_DIAGONAL": [lambda x: Call(T(4, 4), 2.0)],
    "RESIZE": [lambda x: Call(x, [2, 3])],
    # layers
    "LINEAR": [lambda x: Call(x, T(5, x.shape[-1]), T(5)), lambda x: Call(x, T(5, x.shape[-1])),
               lambda x: Call(x, T(x.shape[-1], 5).mT, T(5))],
    "BILINEAR": [lambda x: Call(x, other(x), T(5, x.shape[-1], x.shape[-1]), T(5))],
    "CONV1D": [convolution(1), convolution(1, padding=1)],
    "CONV2D": [convolution(2), convolution(2, padding=1), convolution(2, stride=2), convolution(2, dilation=2),
               convolution(2, has_batch=False)],
    "CONV_POINTWISE": [lambda x: IMAGES(x, T(5, x.shape[1], 3, 3), T(5), [1, 1], [1, 1], [1, 1], 1, "relu", [], ""),
                       lambda x: IMAGES(x, T(x.shape[1], 1, 3, 3), None, [0, 0], [2, 1], [1, 2], x.shape[1], "swish", [], ""),
                       lambda x: IMAGES(x, T(5, x.shape[1], 1, 1), T(5), [0, 0], [1, 1], [1, 1], 1, "none", [], "")],
    "CONV_POINTWISE_BINARY": [
        lambda x, word=word: IMAGES(x, T(x.shape), T(x.shape[1], x.shape[1], 3, 3), T(x.shape[1]), [1, 1], [1, 1], [1, 1], 1,
                                    "add", None, word, [], "") for word in (None, "relu")
    ],
    "LINEAR_POINTWISE": [lambda x: Call(x, T(5, x.shape[-1]), T(5), "gelu", [], "none")],
    "CONV3D": [convolution(3), convolution(3, padding=1), convolution(3, has_batch=False)],
    "CONV_TRANSPOSE1D": [convolution(1, True)],
    "CONV_TRANSPOSE2D": [convolution(2, True), convolution(2, True, stride=2), convolution(2, True, False)],
    "CONV_TRANSPOSE3D": [convolution(3, True), convolution(3, True, False)],
    "CONVOLUTION": [any_convolution(False), any_convolution(True)],
    "UNFOLD_PATCHES": [lambda x: IMAGES(x, [2, 2]), lambda x: IMAGES(x, [2, 2], [1, 1], [0, 0], [1, 1])],
    "FOLD_PATCHES": [lambda x: LINES(T(3, 4, 4), [3, 3], [2, 2]),
                     lambda x: LINES(T(3, 4, 4), [3, 3], [2, 2], [1, 1], [0, 0], [1, 1])],
    "BATCH_NORM": [lambda x: by_channel(x, lambda m, v, w, b: Call(x, m, v, w, b)),
                   lambda x: by_channel(x, lambda m, v, w, b: Call(x, m, v, w, b, True)),
                   lambda x: by_channel(x, lambda m, v, w, b: Call(x, m, v)),
                   lambda x: by_channel(x, lambda m, v, w, b: Call(x, w, b, m, v, False, 0.1, 1e-5, False))],
    "BATCH_NORM_INFERENCE": [lambda x: by_channel(x, lambda m, v, w, b: Call(x, w, b, m, v, 0.1, 1e-5))],
    **dict.fromkeys(("NATIVE_BATCH_NORM", "BATCH_NORM_FUNCTIONAL"), norm_layers()),
    "BATCH_NORM_NO_STATISTICS": [lambda x: Call(x, T(x.shape[1]), T(x.shape[1]), True, 0.1, 1e-5)],
    "LAYER_NORM": [lambda x: Call(x, [x.shape[-1]]), lambda x: Call(x, list(x.shape[1:])),
                   lambda x: Call(x, [x.shape[-1]], T(x.shape[-1]), T(x.shape[-1]))],
    "RMS_NORM": [lambda x: Call(x, [x.shape[-1]]), lambda x: Call(x, [x.shape[-1]], T(x.shape[-1]))],
    "NATIVE_LAYER_NORM": [lambda x: Call(x, [x.shape[-1]], T(x.shape[-1]), T(x.shape[-1]), 1e-5)],
    "GROUP_NORM": [lambda x: Call(x, 2 if x.dim() == 4 else 1, T(x.shape[1]), T(x.shape[1])), lambda x: Call(x, 1)],
    "NATIVE_GROUP_NORM": [lambda x: Call(x, T(x.shape[1]), T(x.shape[1]), x.shape[0], x.shape[1], x[0, 0].numel(), 1, 1e-5)],
    "INSTANCE_NORM": [lambda x: Call(x), lambda x: by_channel(x, lambda m, v, w, b: Call(x, m, v, w, b, False)),
                      lambda x: by_channel(x, lambda m, v, w, b: Call(x, w, b, None, None, True, 0.1, 1e-5, False))],
    "LOCAL_RESPONSE_NORM": [lambda x: Call(x, 3)],
    "WEIGHT_NORM": [lambda x: Call(x, T(x.shape[0], *[1] * (x.dim() - 1)), 0),
                    lambda x: Call(x, T(*[1] * (x.dim() - 1), x.shape[-1]), x.dim() - 1)],
    "NORMALIZE": [lambda x: Call(x), lambda x: Call(x, 2.0, -1)],
    **dict.fromkeys(("MAX_POOL1D", "AVG_POOL1D", "MAX_POOL2D", "AVG_POOL2D"), POOL),
    **dict.fromkeys(("MAX_POOL3D", "AVG_POOL3D"), VOLUME_POOL),
    "MAX_POOL_WITH_INDICES": [lambda x: Call(x, [3, 3]), of_volume(lambda x: Call(x, [3, 3, 3])),
                              lambda x: IMAGES(x, [2, 2, 2])],
    **dict.fromkeys(("ADAPTIVE_AVG_POOL1D", "ADAPTIVE_AVG_POOL2D"), [lambda x: Call(x, 2), lambda x: Call(x, [2]),
                                                                     lambda x: Call(x, [2, 2]), lambda x: Call(x, [1, 1]),
                                                                     lambda x: Call(x, x.shape[2:])]),
    "ADAPTIVE_AVG_POOL3D": [of_volume(lambda x: Call(x, [2, 2, 2])), of_volume(lambda x: Call(x, [1, 1, 1])),
                            lambda x: IMAGES(x, [2, 2, 2])],
    "ADAPTIVE_MAX_POOL": [lambda x: Call(x, 2), lambda x: Call(x, [2]), lambda x: Call(x, [2, 2]),
                          of_volume(lambda x: Call(x, [2, 2, 2])), lambda x: IMAGES(x, [2, 2, 2])],
    "LP_POOL": [lambda x: Call(x, 2.0, 2), of_volume(lambda x: Call(x, 2.0, 2))],
    "MAX_UNPOOL": [lambda x: Call(x[..., :2], 2 * ints(*x[..., :2].shape, below=2), 2) if x.dim() == 3 else None,
                   lambda x: Call(x[..., :2, :2], ints(*x[..., :2, :2].shape, below=16), 2) if x.dim() == 4 else None],
    "EMBEDDING": [lambda x: Call(ints(*x.shape, below=7), T(7, 5)), lambda x: Call(T(7, 5), ints(*x.shape, below=7))],
    "EMBEDDING_BAG": [lambda x: Call(ints(3, 4, below=7), T(7, 5)),
                      lambda x: Call(T(7, 5), ints(12, below=7), ints(1, below=1))],
    "ONE_HOT": [lambda x: Call(whole(x), 10), lambda x: Call(whole(x))],
    **dict.fromkeys(("DROPOUT", "FEATURE_DROPOUT", "ALPHA_DROPOUT"),
                    [lambda x: Call(x, 0.5, True), lambda x: Call(x, 0.5, False)]),
    "NATIVE_DROPOUT": [lambda x: Call(x, 0.5, True), lambda x: Call(x, 0.5, False)],
    "ATTENTION": [lambda x: Call(x, other(x), other(x)), lambda x: Call(x, other(x), other(x), is_causal=True),
                  lambda x: Call(x, other(x), other(x), T(x.shape[-2], x.shape[-2]))],
    "INTERPOLATE": [lambda x: IMAGES(x, scale_factor=2.0), lambda x: IMAGES(x, scale_factor=2.0, mode="bilinear"),
                    lambda x: LINES(x, scale_factor=2.0), lambda x: IMAGES(x, size=[3, 3], mode="bicubic"),
                    lambda x: IMAGES(x, size=[3, 3], mode="area"), lambda x: LINES(x, scale_factor=2.0, mode="linear"),
                    of_volume(lambda x: Call(x, scale_factor=2.0))],
    "UPSAMPLE_NEAREST": [lambda x: IMAGES(x, [7, 7], None), lambda x: LINES(x, [7], None),
                         of_volume(lambda x: Call(x, [7, 7, 7], None))],
    "UPSAMPLE_NEAREST1D_TO": [lambda x: LINES(x, [7])],
    "UPSAMPLE_NEAREST2D_TO": [lambda x: IMAGES(x, [7, 7])],
    "UPSAMPLE_NEAREST3D_TO": [of_volume(lambda x: Call(x, [7, 7, 7]))],
    "UPSAMPLE_BILINEAR": [lambda x: IMAGES(x, [7, 7], False, None), lambda x: LINES(x, [7], False, None),
                          of_volume(lambda x: Call(x, [7, 7, 7], False, None))],
    "UPSAMPLE_LINEAR1D_TO": [lambda x: LINES(x, [7], False)],
    "UPSAMPLE_LINEAR2D_TO": [lambda x: IMAGES(x, [7, 7], False)],
    "UPSAMPLE_LINEAR3D_TO": [of_volume(lambda x: Call(x, [7, 7, 7], False))],
    "GRID_SAMPLE": [lambda x: IMAGES(x, T(x.shape[0], 5, 5, 2))],
    "GRID_SAMPLER": [lambda x: IMAGES(x, T(x.shape[0], 5, 5, 2), 0, 0, False)],
    "AFFINE_GRID": [lambda x: LINES(T(3, 2, 3), [3, 1, 5, 6])],
    "PIXEL_SHUFFLE": [lambda x: IMAGES(T(2, 8, 3, 3), 2) if x.dim() == 4 else None],
    "PIXEL_UNSHUFFLE": [lambda x: IMAGES(x, 2)],
    "CHANNEL_SHUFFLE": [lambda x: IMAGES(x, 2), lambda x: IMAGES(x, 1)],
    "PAD": [lambda x: Call(x, [1, 1]), lambda x: Call(x, [1, 1, 1, 1]), lambda x: Call(x, [1, 1], "reflect"),
            lambda x: IMAGES(x, [1, 1, 1, 1], "replicate"), lambda x: IMAGES(x, [1, 1, 1, 1], "circular"),
            lambda x: Call(x, [-1, 0]), lambda x: Call(x, [0, 0])],
    "CONSTANT_PAD": [lambda x: Call(x, [1, 1]), lambda x: Call(x, [1, 1, 1, 1], 2.0), lambda x: Call(x, [-1, 0])],
    "EDGE_PAD": [lambda x: Call(x, [1, 1]), lambda x: IMAGES(x, [1, 1, 1, 1]), of_volume(lambda x: Call(x, [1] * 6))],
    "COSINE_SIMILARITY": [lambda x: Call(x, other(x)), lambda x: Call(x, other(x), -1)],
    "PAIRWISE_DISTANCE": [lambda x: Call(x, other(x)), lambda x: Call(x, other(x), keepdim=True)],
    "CROSS_ENTROPY": [lambda x: Call(x, ints(x.shape[0], *x.shape[2:], below=x.shape[1])),
                      lambda x: Call(x, ints(x.shape[0], *x.shape[2:], below=x.shape[1]), reduction="none"),
                      lambda x: Call(x, other(x))],
    "NLL_LOSS": [lambda x: Call(x, ints(x.shape[0], *x.shape[2:], below=x.shape[1])),
                 lambda x: Call(x, ints(x.shape[0], *x.shape[2:], below=x.shape[1]), reduction="none")],
    **dict.fromkeys(("ELEMENT_LOSS", "SMOOTH_L1_LOSS", "HUBER_LOSS"),
                    [lambda x: Call(x, other(x)), lambda x: Call(x, other(x), reduction="none"),
                     lambda x: Call(x, other(x), reduction=0)]),
    "BINARY_CROSS_ENTROPY": [lambda x: Call(x, other(x) / 2), lambda x: Call(x, other(x) / 2, reduction="none")],
    "KL_DIVERGENCE": [lambda x: Call(x, other(x)), lambda x: Call(x, other(x), reduction="none")],
    # reductions and scans
    **dict.fromkeys(("SUM", "NANSUM", "MEAN", "PROD", "VAR", "STD", "VAR_MEAN", "AMAX", "AMIN", "MAX", "MIN",
                     "ARGMAX", "ARGMIN",
                     "MEDIAN", "MODE", "ALL", "ANY", "LOGSUMEXP", "COUNT_NONZERO"), reductions()),
    "AMINMAX": [lambda x: Call(x), lambda x: Call(x, dim=1), lambda x: Call(x, dim=-1, keepdim=True)],
    "NORM": [lambda x: Call(x), lambda x: Call(x, 2, 1), lambda x: Call(x, 2, [-1], True), lambda x: Call(x, 1, [0, 1])],
    "VECTOR_NORM": [lambda x: Call(x), lambda x: Call(x, 2, 1), lambda x: Call(x, 2, [-1], True), lambda x: Call(x, 1, [0, 1])],
    "QUANTILE": [lambda x: Call(x, 0.5, 1), lambda x: Call(x, torch.tensor([0.2, 0.5]), -1), lambda x: Call(x, 0.5, 0, True)],
    **dict.fromkeys(("CUMSUM", "CUMPROD", "CUMMAX", "LOGCUMSUMEXP"), DIM),
    "DIFF": [lambda x: Call(x), lambda x: Call(x, 1, 1), lambda x: Call(x > 0.5), lambda x: Call(x, 0)],
    "TRACE": [lambda x: Call(T(4, 4))],
    "SORT": [lambda x: Call(x), lambda x: Call(x, 1), lambda x: Call(x, 0, True), lambda x: Call(x, dim=-1, stable=True)],
    "ARGSORT": [lambda x: Call(x), lambda x: Call(x, 1), lambda x: Call(x, 0, True), lambda x: Call(x, dim=-1, stable=True)],
    "TOPK": [lambda x: Call(x, 2), lambda x: Call(x, 2, 1), lambda x: Call(x, 1, 0)],
    "UNIQUE": [lambda x: Call(x), lambda x: Call(x, dim=1)],
    "SEARCHSORTED": [lambda x: Call(x, other(x)), lambda x: Call(T(5), x)],
    "BUCKETIZE": [lambda x: Call(x, T(5))],
    "BINCOUNT": [lambda x: Call(ints(9, below=5))],
    "HISTC": [lambda x: Call(x)],
    "ISIN": [lambda x: Call(whole(x), ints(5, below=9)), lambda x: Call(whole(x), 3),
             lambda x: Call(whole(x), ints(400, below=9))],
    "RENORM": [lambda x: Call(x, 2, 1, 0.5)],
    **dict.fromkeys(("LINALG_INVERSE", "LINALG_DET"), [lambda x: Call(x + 9 * torch.eye(x.shape[-1]))]),
    "MATRIX_EXP": [lambda x: Call(x)],
    "HOUSEHOLDER_PRODUCT": [lambda x: Call(x, T(*x.shape[:-1]))],
    "LINALG_SOLVE": [lambda x: Call(x + 9 * torch.eye(x.shape[-1]), other(x))],
    **dict.fromkeys(("FFT", "FFT_MANY"), [lambda x: Call(x), lambda x: Call(x, None, 1), lambda x: Call(x, None, [0, 1])]),
    "FFT_R2C": [lambda x: Call(x, [1], 0, True), lambda x: Call(x, [-1], 0, True)],
    "FFT_C2C": [lambda x: Call(torch.complex(x, other(x)), [1], 0, True),
                lambda x: Call(torch.complex(x, other(x)), [-1], 0, True)],
    "FFT_C2R": [lambda x: Call(torch.complex(x, other(x)), [1], 0, x.shape[1])],
    "FFT_FREQUENCIES": [lambda x: Call(5)],
    "FFT_SHIFT": [lambda x: Call(x), lambda x: Call(x, 1)],
    # views
    "VIEW": [lambda x: Call(x, [x.shape[0], -1]), lambda x: Call(x, list(x.shape)),
             lambda x: Call(x, [*x.shape[:-1], 2, x.shape[-1] // 2])],
    "UNSAFE_VIEW": [lambda x: Call(x, [x.shape[0], x.numel() // x.shape[0]]), lambda x: Call(x, list(x.shape))],
    "VIEW_DTYPE": [lambda x: Call(x, torch.int32), lambda x: Call(x, torch.float16)],
    "RESHAPE": [lambda x: Call(x, [x.shape[0], -1]), lambda x: Call(x, list(x.shape)),
                lambda x: Call(x, [*x.shape[:-1], 2, x.shape[-1] // 2])],
    "VIEW_AS": [lambda x: Call(x, T(x.shape[0], x.numel() // x.shape[0])), lambda x: Call(x, T(x.numel() // 4, 4))],
    "FLATTEN": [lambda x: Call(x), lambda x: Call(x, 1), lambda x: Call(x, 1, 2)],
    "UNFLATTEN": [lambda x: Call(x, -1, [2, -1]), lambda x: Call(x, 1, [-1, 1])],
    "PERMUTE": [lambda x: Call(x, [2, 0, 1, 3][:x.dim()])],
    "TRANSPOSE": [lambda x: Call(x, 1, 2), lambda x: Call(x, 0, -1)],
    **dict.fromkeys(("T", ), [lambda x: Call(x[0] if x.dim() == 3 else x[0, 0])]),
    "NUMPY_T": [lambda x: Call(x)],
    "ADJOINT": [lambda x: Call(x)],
    "MOVEDIM": [lambda x: Call(x, 0, 1), lambda x: Call(x, [0, 1], [1, 2])],
    "UNSQUEEZE": DIM,
    "SQUEEZE": [lambda x: Call(x), lambda x: Call(x, 1), lambda x: Call(x[:, :1], 1), lambda x: Call(x[:1], [0, 1])],
    "EXPAND": [lambda x: Call(x, [5, *x.shape]), lambda x: Call(x[:, :1], [-1 if i != 1 else 3 for i in range(x.dim())]),
               lambda x: Call(x, [3, *x.shape])],
    "EXPAND_AS": [lambda x: Call(x[:, :1], other(x)), lambda x: Call(x, T(5, *x.shape))],
    "BROADCAST_TENSORS": [lambda x: Call(x, T(x.shape[-1:])), lambda x: Call([x, T(x.shape[-1:])])],
    "MESHGRID": [lambda x: Call(T(3), T(4)), lambda x: Call([T(3), T(4)], indexing="xy")],
    "ATLEAST": [lambda x: Call(x)],
    "SELECT": [lambda x: Call(x, 0, 1), lambda x: Call(x, 1, 0), lambda x: Call(x, -1, 1)],
    "SLICE": [lambda x: Call(x, 0, 0, 1), lambda x: Call(x, 1, 1, 3), lambda x: Call(x, -1, 0, 4, 2)],
    "NARROW": [lambda x: Call(x, 0, 0, 1), lambda x: Call(x, 1, 1, 2)],
    "SPLIT": [lambda x: Call(x, 1), lambda x: Call(x, 1, 1), lambda x: Call(x, [2, x.shape[-1] - 2], -1)],
    "SPLIT_WITH_SIZES": [lambda x: Call(x, [2, x.shape[-1] - 2], -1)],
    "CHUNK": [lambda x: Call(x, 2), lambda x: Call(x, 2, 1)],
    "UNBIND": [lambda x: Call(x), lambda x: Call(x, 1)],
    "UNFOLD": [lambda x: Call(x, 1, 2, 1)],
    "DIAGONAL": [lambda x: Call(x), lambda x: Call(x, 0, -2, -1)],
    "DIAG": [lambda x: Call(T(4, 4)), lambda x: Call(T(4))],
    "DIAG_EMBED": [lambda x: Call(x), lambda x: Call(x, 1, 0, 2)],
    "AS_STRIDED": [lambda x: Call(x, [2, 2], [1, 2])],
    "VIEW_AS_REAL": [lambda x: Call(torch.complex(x, other(x)))],
    "VIEW_AS_COMPLEX": [lambda x: Call(T(*x.shape[:-1], 2))],
    **dict.fromkeys(("REAL", "IMAG", "CONJUGATE"), [lambda x: Call(torch.complex(x, other(x)))]),
    "TO": [*CASTS, lambda x: Call(x, torch.float64), lambda x: Call(x, torch.float32, copy=True)],
    "TO_OTHER": [lambda x: Call(x, torch.device("cpu"), torch.float64), lambda x: Call(x, T(1).double()),
                 lambda x: Call(x, dtype=torch.float64), lambda x: Call(x, dtype=torch.float32)],
    "TO_COPY": [lambda x: Call(x), lambda x: Call(x, dtype=torch.float64)],
    "TYPE": [lambda x: Call(x, torch.float64), lambda x: Call(x, torch.float32)],
    "TYPE_AS": [lambda x: Call(x, T(1).double()), lambda x: Call(x, T(1))],
    **dict.fromkeys(("CAST_FLOAT", "CAST_DOUBLE", "CAST_HALF", "CAST_BFLOAT16", "CAST_LONG", "CAST_INT", "CAST_BOOL"), CASTS),
    "CAT": SEQUENCES,
    "STACK": SEQUENCES,
    "HSTACK": [lambda x: Call([x, other(x)]), lambda x: Call(x), lambda x: Call([x])],
    **dict.fromkeys(("REPEAT", "TILE"), [lambda x: Call(x, [2] + [1] * (x.dim() - 1)), lambda x: Call(x, [1] * x.dim()),
                                         lambda x: Call(x, [1, 2] + [1] * (x.dim() - 2))]),
    "REPEAT_INTERLEAVE": [lambda x: Call(x, 2, 1), lambda x: Call(x, 2), lambda x: Call(x, ints(x.shape[1], below=3), 1),
                          lambda x: Call(ints(4, below=3))],
    "FLIP": [lambda x: Call(x, [1]), lambda x: Call(x, [0, -1])],
    "FLIP_TWO": [lambda x: Call(x)],
    "ROLL": [lambda x: Call(x, 1, 1), lambda x: Call(x, [1, 1], [0, 1]), lambda x: Call(x, 2)],
    "ROT90": [lambda x: Call(x, 1, [0, 1]), lambda x: Call(x, 2, [-1, -2]), lambda x: Call(x, 3, [0, 1])],
    "GATHER": [lambda x: Call(x, 1, indices_of(x))],
    "TAKE_ALONG_DIM": [lambda x: Call(x, indices_of(x), 1), lambda x: Call(x, ints(5, below=9))],
    "TAKE": [lambda x: Call(x, ints(5, below=9)), lambda x: Call(x, indices_of(x))],
    "INDEX": [lambda x: Call(x, [None, ints(3, below=x.shape[1])]), lambda x: Call(x, [ints(3, below=x.shape[0])]),
              lambda x: Call(x, [x > 0.5])],
    "INDEX_SELECT": [lambda x: Call(x, 1, ints(3, below=x.shape[1])), lambda x: Call(x, 0, ints(3, below=x.shape[0]))],
    "MASKED_SELECT": [lambda x: Call(x, x > 0.5)],
    "NONZERO": [lambda x: Call(x > 0.5)],
    "SCATTER": [lambda x: Call(x, 1, indices_of(x), 2.0)],
    "SCATTER_ADD": [lambda x: Call(x, 1, indices_of(x), other(x))],
    "SCATTER_REDUCE": [lambda x: Call(x, 1, indices_of(x), other(x), "sum")],
    "INDEX_PUT": [lambda x: Call(x, [None, torch.arange(2)], torch.tensor(2.0)),
                  lambda x: Call(x, [x > 0.5], torch.tensor(2.0)),
                  lambda x: Call(x, [torch.arange(2)], torch.tensor(2.0), True)],
    "INDEX_ADD": [lambda x: Call(x, 1, torch.arange(2), other(x)[:, :2])],
    "INDEX_COPY": [lambda x: Call(x, 1, torch.arange(2), other(x)[:, :2])],
    "INDEX_FILL": [lambda x: Call(x, 1, torch.arange(2), 2.0)],
    "MASKED_SCATTER": [lambda x: Call(x, x > 0.5, other(x))],
    "SLICE_SCATTER": [lambda x: Call(x, other(x)[:, :2], 1, 0, 2)],
    "SELECT_SCATTER": [lambda x: Call(x, other(x)[:, 0], 1, 0)],
    "PUT": [lambda x: Call(x, torch.arange(3), T(3))],
    "GETITEM": [lambda x: Call(x, 0), lambda x: Call(x, (slice(None), slice(0, 2))),
                lambda x: Call(x, (Ellipsis, slice(0, 4, 2))),
                lambda x: Call(x, None)],
    "GETATTR": [lambda x: Call(x, "T"), lambda x: Call(x, "mT"), lambda x: Call(x, "data")],
}

nn = torch.nn


def module(make, *ranks, call=lambda x: (x,)):
    """A module for the channels of x, and what it is called with."""
    return lambda x: (make(x.shape[1]).eval(), call(x)) if x.dim() in ranks else None


def module_in_volume(make):
    return lambda x: (make(4).eval(), (volume(x),)) if x.dim() == 4 else None


def pairs(x):
    return x, other(x)


# Modules that take arguments. The others are made of none, and called with x.
MODULES = {
    "Threshold": module(lambda c: nn.Threshold(0.5, 2.0), 3, 4),
    "Softmax": module(lambda c: nn.Softmax(1), 3, 4),
    "LogSoftmax": module(lambda c: nn.LogSoftmax(1), 3, 4),
    "Softmin": module(lambda c: nn.Softmin(1), 3, 4),
    "PReLU": module(nn.PReLU, 3, 4),
    "Linear": lambda x: (nn.Linear(x.shape[-1], 5), (x,)),
    "Bilinear": lambda x: (nn.Bilinear(x.shape[-1], x.shape[-1], 5), pairs(x)),
    "Conv1d": module(lambda c: nn.Conv1d(c, 5, 3), 3),
    "Conv2d": module(lambda c: nn.Conv2d(c, 5, 3), 4),
    "Conv3d": module_in_volume(lambda c: nn.Conv3d(c, 5, 3)),
    "ConvTranspose1d": module(lambda c: nn.ConvTranspose1d(c, 5, 3), 3),
    "ConvTranspose2d": module(lambda c: nn.ConvTranspose2d(c, 5, 3), 4),
    "ConvTranspose3d": module_in_volume(lambda c: nn.ConvTranspose3d(c, 5, 3)),
    "Unfold": module(lambda c: nn.Unfold(2), 4),
    "Fold": module(lambda c: nn.Fold([3, 3], 2), 3),
    "BatchNorm1d": module(nn.BatchNorm1d, 3),
    "BatchNorm2d": module(nn.BatchNorm2d, 4),
    "BatchNorm3d": module_in_volume(nn.BatchNorm3d),
    "SyncBatchNorm": module(nn.SyncBatchNorm, 3, 4),
    "LayerNorm": lambda x: (nn.LayerNorm(x.shape[-1]), (x,)),
    "RMSNorm": lambda x: (nn.RMSNorm(x.shape[-1]), (x,)),
    "GroupNorm": module(lambda c: nn.GroupNorm(1, c), 3, 4),
    "InstanceNorm1d": module(nn.InstanceNorm1d, 3),
    "InstanceNorm2d": module(nn.InstanceNorm2d, 4),
    "InstanceNorm3d": module_in_volume(nn.InstanceNorm3d),
    "LocalResponseNorm": module(lambda c: nn.LocalResponseNorm(3), 3, 4),
    **{f"{kind}Pool{d}d": (module(lambda c, n=f"{kind}Pool{d}d", a=a: getattr(nn, n)(*a), d + 2) if d < 3 else
                           module_in_volume(lambda c, n=f"{kind}Pool3d", a=a: getattr(nn, n)(*a)))
       for d in (1, 2, 3) for kind, a in (("Max", (2,)), ("Avg", (2,)), ("LP", (2, 2)), ("AdaptiveAvg", (2,)),
                                          ("AdaptiveMax", (2,)))},
    **{f"MaxUnpool{d}d": lambda x: None for d in (1, 2, 3)},
    "Embedding": lambda x: (nn.Embedding(7, 5), (ints(*x.shape, below=7),)),
    "EmbeddingBag": lambda x: (nn.EmbeddingBag(7, 5), (ints(3, 4, below=7),)),
    "Upsample": module(lambda c: nn.Upsample(scale_factor=2), 3, 4),
    "UpsamplingNearest2d": module(lambda c: nn.UpsamplingNearest2d(scale_factor=2), 4),
    "UpsamplingBilinear2d": module(lambda c: nn.UpsamplingBilinear2d(scale_factor=2), 4),
    "PixelShuffle": module(lambda c: nn.PixelShuffle(2), 4, call=lambda x: (T(2, 8, 3, 3),)),
    "PixelUnshuffle": module(lambda c: nn.PixelUnshuffle(2), 4),
    "ChannelShuffle": module(lambda c: nn.ChannelShuffle(2), 4),
    "Unflatten": module(lambda c: nn.Unflatten(-1, (2, -1)), 3, 4),
    **{f"{kind}Pad{d}d": (module(lambda c, n=f"{kind}Pad{d}d", a=a: getattr(nn, n)(*a), d + 2) if d < 3 else
                          module_in_volume(lambda c, n=f"{kind}Pad3d", a=a: getattr(nn, n)(*a)))
       for d in (1, 2, 3) for kind, a in (("Zero", (1,)), ("Constant", (1, 2.0)), ("Reflection", (1,)), ("Replication", (1,)),
                                          ("Circular", (1,)))},
    **{name: (lambda x, name=name: (getattr(nn, name)(), pairs(x))) for name in ("CosineSimilarity", "PairwiseDistance")},
    **{name: (lambda x, name=name: (getattr(nn, name)(reduction="none"), (x, other(x) / 2)))
       for name in ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCELoss", "BCEWithLogitsLoss", "KLDivLoss",
                    "CrossEntropyLoss")},
    "NLLLoss": lambda x: (nn.NLLLoss(reduction="none"), (x, ints(x.shape[0], *x.shape[2:], below=x.shape[1]))),
    "MultiheadAttention": lambda x: (nn.MultiheadAttention(4, 2), (T(3, 5, 4), T(3, 5, 4), T(3, 5, 4)))
    if x.dim() == 3 else None,
    **{name: (lambda x, name=name: (getattr(nn, name)(x.shape[-1], 5), (x,)) if x.dim() == 3 else None)
       for name in ("LSTM", "GRU", "RNN")},
    **{name: (lambda x, name=name: (getattr(nn, name)(4, 5), (T(3, 4),))) for name in ("LSTMCell", "GRUCell", "RNNCell")},
    "TransformerEncoderLayer": lambda x: (nn.TransformerEncoderLayer(4, 2, 8).eval(), (T(3, 5, 4),)) if x.dim() == 3 else None,
    "TransformerEncoder": lambda x: (nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 1).eval(), (T(3, 5, 4),))
    if x.dim() == 3 else None,
}
