"""Calls of layers, views, casts and makers of tensors with one argument wrong: which of them PyTorch takes, for
test_eval_kernels.c.
See recorder.py, and kinds.py, which finds the calls of arithmetic by itself.

Each call below is right. In place of each argument others are put: of another kind, dtype, rank, size or range; one is left out
or added. Of what PyTorch refuses nothing may be computed; what it takes is computed alike, or refused, too."""

import itertools

import torch
from recorder import Raised, Recorder

F, T, A, M = "torch.nn.functional.", "torch.", "torch.ops.aten.", ""


def t(*shape, dtype=torch.float32):
    count = 1
    for size in shape:
        count *= size
    return ((torch.arange(count) * 7 % 11 - 4).reshape(shape) / 4).to(dtype)


def ids(*shape, below=3):
    count = 1
    for size in shape:
        count *= size
    return (torch.arange(count) * 5 % below).reshape(shape)


IMAGE, KERNEL, BIAS, LINE, LINE_KERNEL = t(1, 4, 4, 5), t(6, 4, 2, 2), t(6), t(1, 4, 6), t(6, 4, 2)
CHANNELS, POSITIVE, VECTOR = t(4), t(4).abs() + 1, t(5)
QUERY, MASK = t(1, 2, 3, 4), t(1, 2, 3, 4) > 0
CALLS = [
    # convolution
    (F + "conv1d", [LINE, LINE_KERNEL, BIAS, 1, 0, 1, 1]),
    (F + "conv2d", [IMAGE, KERNEL, BIAS, [1, 1], [0, 1], [1, 1], 1]),
    (F + "conv2d", [IMAGE, t(6, 2, 2, 2)], {"bias": BIAS, "stride": 2, "padding": "valid", "groups": 2}),
    (F + "conv3d", [t(1, 2, 3, 3, 3), t(3, 2, 2, 2, 2), t(3), 1, 0, 1, 1]),
    (F + "conv_transpose1d", [LINE, t(4, 2, 3), t(2), 2, 1, 1, 1, 1]),
    (F + "conv_transpose2d", [IMAGE, t(4, 2, 2, 2), t(2), [2, 1], 0, [1, 0], 1, 1]),
    (T + "conv2d", [IMAGE, KERNEL, BIAS]),
    (A + "conv2d.default", [IMAGE, KERNEL, BIAS, [1, 1], [0, 0], [1, 1], 1]),
    (A + "convolution.default", [IMAGE, KERNEL, BIAS, [1, 1], [0, 0], [1, 1], False, [0, 0], 1]),
    (A + "convolution.default", [IMAGE, t(4, 2, 2, 2), t(2), [2, 2], [0, 0], [1, 1], True, [1, 1], 1]),
    # pooling
    (F + "max_pool1d", [LINE, 2, 2, 1, 1, False]),
    (F + "max_pool2d", [IMAGE, [2, 2], [2, 2], [1, 0], [1, 1], True]),
    (F + "avg_pool1d", [LINE, 2, 2, 1, False, True]),
    (F + "avg_pool2d", [IMAGE, 2, 2, 1, False, False, 3]),
    (F + "avg_pool3d", [t(1, 2, 3, 3, 3), 2, 1]),
    (F + "adaptive_avg_pool1d", [LINE, 2]),
    (F + "adaptive_avg_pool2d", [IMAGE, [2, 3]]),
    (F + "adaptive_max_pool2d", [IMAGE, [2, 3]]),
    (A + "max_pool2d.default", [IMAGE, [2, 2], [2, 2], [0, 0], [1, 1], False]),
    (A + "max_pool2d_with_indices.default", [IMAGE, [2, 2], [2, 2], [0, 0], [1, 1], False]),
    (A + "avg_pool2d.default", [IMAGE, [2, 2], [2, 2], [0, 0], False, True, None]),
    (A + "_adaptive_avg_pool2d.default", [IMAGE, [2, 3]]),
    (A + "adaptive_avg_pool2d.default", [IMAGE, [2, 3]]),
    # norms
    (F + "batch_norm", [IMAGE, CHANNELS, POSITIVE, CHANNELS, CHANNELS, False, 0.1, 1e-5]),
    (F + "layer_norm", [IMAGE, [4, 5], t(4, 5), t(4, 5), 1e-5]),
    (F + "group_norm", [IMAGE, 2, CHANNELS, CHANNELS, 1e-5]),
    (F + "instance_norm", [IMAGE, CHANNELS, POSITIVE, CHANNELS, CHANNELS, True, 0.1, 1e-5]),
    (F + "rms_norm", [IMAGE, [5], VECTOR, 1e-5]),
    (F + "normalize", [t(3, 4), 2.0, 1, 1e-12]),
    (T + "layer_norm", [IMAGE, [5], VECTOR, VECTOR, 1e-5]),
    (A + "layer_norm.default", [IMAGE, [5], VECTOR, VECTOR, 1e-5]),
    (A + "native_layer_norm.default", [IMAGE, [5], VECTOR, VECTOR, 1e-5]),
    (A + "batch_norm.default", [IMAGE, CHANNELS, CHANNELS, CHANNELS, POSITIVE, False, 0.1, 1e-5, False]),
    (A + "_native_batch_norm_legit_no_training.default", [IMAGE, CHANNELS, CHANNELS, CHANNELS, POSITIVE, 0.1, 1e-5]),
    (A + "group_norm.default", [IMAGE, 2, CHANNELS, CHANNELS, 1e-5, False]),
    # lookup and attention
    (F + "embedding", [ids(2, 3), t(3, 4), 1]),
    (F + "embedding", [ids(2), t(3, 4)], {"max_norm": 1.5, "norm_type": 2.0}),
    (F + "one_hot", [ids(4), 3]),
    (A + "embedding.default", [t(3, 4), ids(2, 3), 1, False, False]),
    (F + "scaled_dot_product_attention", [QUERY, QUERY, QUERY, t(3, 3), 0.0, False]),
    (F + "scaled_dot_product_attention", [QUERY, QUERY, QUERY], {"is_causal": True, "scale": 0.5, "enable_gqa": False}),
    # padding, patches, sizes
    (F + "pad", [IMAGE, [1, 2, 0, 1], "constant", 0.5]),
    (F + "pad", [IMAGE, [1, 2, 0, 1]], {"mode": "reflect"}),
    (F + "pad", [IMAGE, [1, 2, 0, 1]], {"mode": "replicate"}),
    (F + "pad", [IMAGE, [1, 2, 0, 1]], {"mode": "circular"}),
    (A + "constant_pad_nd.default", [IMAGE, [1, -1], 0.5]),
    (A + "reflection_pad2d.default", [IMAGE, [1, 2, 0, 1]]),
    (A + "replication_pad1d.default", [LINE, [1, 2]]),
    (F + "interpolate", [IMAGE], {"size": [3, 4], "mode": "bilinear", "align_corners": False}),
    (F + "interpolate", [IMAGE], {"scale_factor": 2.0, "mode": "nearest"}),
    (F + "interpolate", [LINE, 3]),
    (A + "upsample_nearest2d.vec", [IMAGE, [3, 4], None]),
    (A + "upsample_bilinear2d.vec", [IMAGE, [3, 4], False, None]),
    (F + "unfold", [IMAGE, 2, 1, 0, 1]),
    (F + "fold", [t(1, 16, 6), [3, 4], 2, 1, 0, 1]),
    (F + "pixel_shuffle", [IMAGE, 2]),
    # indexing and scatter
    (T + "index_select", [t(3, 4), 1, ids(2)]),
    (T + "gather", [t(3, 4), 1, ids(3, 2)]),
    (T + "scatter", [t(3, 4), 1, ids(3, 2), t(3, 2)]),
    (T + "scatter_add", [t(3, 4), 1, ids(3, 2), t(3, 2)]),
    (M + "masked_fill", [t(3, 4), t(3, 4) > 0, 0.5]),
    (T + "where", [t(3, 4) > 0, t(3, 4), t(4)]),
    (A + "index.Tensor", [t(3, 4), [ids(2), None]]),
    (A + "index_put.default", [t(3, 4), [ids(2)], t(4)]),
    (A + "select.int", [t(3, 4), 1, 2]),
    (A + "slice.Tensor", [t(3, 4), 1, 0, 3, 2]),
    ("operator.getitem", [t(3, 4), 1]),
    (T + "take_along_dim", [t(3, 4), ids(3, 2), 1]),
    # views
    (T + "reshape", [t(3, 4), [2, 6]]),
    (M + "view", [t(3, 4), 2, 6]),
    (M + "view", [t(3, 4), [2, -1]]),
    (A + "view.default", [t(3, 4), [2, 6]]),
    (T + "flatten", [t(2, 3, 4), 1, 2]),
    (T + "unflatten", [t(2, 6), 1, [2, 3]]),
    (T + "permute", [t(2, 3, 4), [2, 0, 1]]),
    (M + "permute", [t(2, 3, 4), 2, 0, 1]),
    (T + "transpose", [t(2, 3, 4), 1, 2]),
    (T + "movedim", [t(2, 3, 4), 0, 2]),
    (T + "unsqueeze", [t(3, 4), 1]),
    (T + "squeeze", [t(3, 1, 4), 1]),
    (M + "expand", [t(3, 1), 2, 3, 4]),
    (A + "expand.default", [t(3, 1), [2, 3, 4]]),
    (T + "narrow", [t(3, 4), 1, 1, 2]),
    (T + "split", [t(3, 4), 2, 1]),
    (T + "split", [t(3, 4), [1, 3], 1]),
    (T + "chunk", [t(3, 4), 2, 1]),
    (T + "unbind", [t(3, 4), 1]),
    (T + "diagonal", [t(3, 4), 1, 0, 1]),
    (M + "unfold", [t(3, 6), 1, 2, 2]),
    (M + "t", [t(3, 4)]),
    # copies and casts
    (T + "cat", [[t(3, 4), t(1, 4)], 0]),
    (T + "stack", [[t(3), t(3)], 1]),
    (M + "repeat", [t(3, 4), 2, 1]),
    (T + "tile", [t(3, 4), [2, 1]]),
    (T + "repeat_interleave", [t(3, 4), 2, 1]),
    (T + "repeat_interleave", [t(3, 4), ids(3)], {"dim": 0}),
    (T + "flip", [t(3, 4), [0, 1]]),
    (T + "roll", [t(3, 4), [1, 2], [0, 1]]),
    (M + "to", [t(3, 4), torch.float64]),
    (M + "type_as", [t(3, 4), t(1).double()]),
    (M + "contiguous", [t(3, 4)]),
    (M + "float", [t(3, 4)]),
    (M + "long", [t(3, 4)]),
    (T + "clone", [t(3, 4)]),
    (A + "_to_copy.default", [t(3, 4)], {"dtype": torch.float64}),
    (A + "to.dtype", [t(3, 4), torch.float64]),
    # makers
    (T + "zeros", [[2, 3]], {"dtype": torch.float64}),
    (T + "ones", [2, 3]),
    (T + "full", [[2, 3], 0.5]),
    (T + "arange", [1, 7, 2]),
    (T + "linspace", [0.0, 1.0, 5]),
    (T + "eye", [3, 4]),
    (T + "zeros_like", [t(3, 4)], {"dtype": torch.int64}),
    (T + "full_like", [t(3, 4), 2.5]),
    (M + "new_zeros", [t(3, 4), [2, 3]]),
    (M + "new_full", [t(3, 4), [2, 3], 0.5]),
    (T + "tril_indices", [3, 3, 0]),
    (A + "full.default", [[2, 3], 0.5]),
    (A + "arange.start_step", [1, 7, 2]),
    # products and the rest
    (F + "linear", [t(2, 4), t(3, 4), t(3)]),
    (A + "linear.default", [t(2, 4), t(3, 4), t(3)]),
    (F + "bilinear", [t(2, 3), t(2, 4), t(5, 3, 4)]),
    (T + "einsum", ["ij,jk->ik", t(2, 3), t(3, 4)]),
    (F + "softmax", [t(3, 4), 1]),
    (F + "softmax", [t(3, 4)], {"dim": 0, "dtype": torch.float64}),
    (F + "log_softmax", [t(3, 4), -1]),
    (F + "gelu", [t(3, 4)], {"approximate": "tanh"}),
    (F + "leaky_relu", [t(3, 4), 0.1, False]),
    (F + "elu", [t(3, 4), 1.5]),
    (F + "hardtanh", [t(3, 4), -0.5, 0.5]),
    (F + "softplus", [t(3, 4), 1.5, 20.0]),
    (F + "threshold", [t(3, 4), 0.1, 2.0]),
    (F + "prelu", [t(2, 3, 4), t(3)]),
    (F + "glu", [t(3, 4), 1]),
    (F + "dropout", [t(3, 4), 0.5, False]),
    (F + "mse_loss", [t(3, 4), t(3, 4)], {"reduction": "mean"}),
    (F + "l1_loss", [t(3, 4), t(3, 4)]),
    (F + "cross_entropy", [t(3, 4), ids(3)], {"reduction": "sum", "label_smoothing": 0.1}),
    (F + "nll_loss", [t(3, 4), ids(3)]),
    (F + "binary_cross_entropy_with_logits", [t(3, 4), t(3, 4)]),
    (F + "smooth_l1_loss", [t(3, 4), t(3, 4)]),
    (F + "cosine_similarity", [t(3, 4), t(3, 4), 1, 1e-8]),
    (T + "clamp", [t(3, 4), -0.5, 0.5]),
    (T + "lerp", [t(3, 4), t(3, 4), 0.5]),
    (T + "addcmul", [t(3, 4), t(3, 4), t(3, 4)], {"value": 0.5}),
]


def others(value):
    """(what it is, what stands in the argument's place)."""
    yield from {"None": None, "text": "s", "list": [1, 2], "a scalar tensor": torch.tensor(1), "a number": 0.5,
                "true": True}.items()
    if isinstance(value, torch.Tensor):
        yield "another dtype", value.double() if value.is_floating_point() else value.float()
        yield "ints", value.long()
        yield "short ints", value.to(torch.int32)
        yield "bools", value > 0
        yield "one dimension more", value.unsqueeze(0)
        if value.dim():
            yield "one dimension less", value[0].clone()
            yield "another first size", torch.cat([value, value])
            yield "another last size", torch.cat([value, value], -1)
        yield "an int", 2
        if not value.is_floating_point():
            yield "out of range", value + 5
            yield "negative", value.long() - 1
    elif isinstance(value, bool):
        yield "an int", 1
    elif isinstance(value, int):
        yield from {"minus one": -1, "nothing": 0, "very negative": -9, "one more": value + 1, "far": 9}.items()
    elif isinstance(value, float):
        yield from {"an int": 2, "a negative number": -0.5}.items()
    elif isinstance(value, list) and all(isinstance(item, int) for item in value):
        yield from {"empty": [], "one more": [*value, 1], "one less": value[:-1], "negative": [-2, *value[1:]],
                    "nothing": [0, *value[1:]]}.items()
        yield from {"an int for it": value[0], "a float in it": [0.5, *value[1:]], "large": [9, *value[1:]]}.items()
        yield "repeated", [value[0]] * len(value)
    elif isinstance(value, list):
        yield from {"empty": [], "a None in it": [None, *value[1:]], "a number in it": [1, *value[1:]]}.items()


def changed(args, kwargs):
    yield "right", args, kwargs
    for i, value in enumerate(args):
        for what, other in others(value):
            yield f"{i} is {what}", [*args[:i], other, *args[i + 1 :]], kwargs
    for key, value in kwargs.items():
        for what, other in others(value):
            yield f"{key} is {what}", args, {**kwargs, key: other}
    yield "one less", args[:-1], kwargs
    for what, more in (("a tensor", t(2)), ("an int", 1), ("a text", "s")):
        yield f"{what} more", [*args, more], kwargs
    yield "an unknown keyword", args, {**kwargs, "nonsense": 1}
    yield "an unknown keyword that is a tensor", args, {**kwargs, "nonsense": t(2)}


def give(case, value):
    if isinstance(value, torch.Tensor):
        return case.input(value)
    return [give(case, item) for item in value] if isinstance(value, list) else value


def is_known(value):
    if isinstance(value, torch.Tensor):
        return not value.is_complex() and value.layout == torch.strided
    if isinstance(value, (tuple, list)):
        return all(isinstance(item, torch.Tensor) and is_known(item) for item in value)
    return isinstance(value, (bool, int, float, Raised))


def is_by_chance(target, what):
    """PyTorch reads as many elements of a native BatchNorm's vectors as there are channels, also where there are fewer; and
    dropout that is in training, or part of attention, draws random numbers."""
    reads_beyond = "native_batch_norm" in target and what.endswith("one dimension less") and not what.startswith("0 ")
    drops = target.endswith(".dropout") and (what.startswith("2 is") or what == "one less")
    return reads_beyond or drops or ("scaled_dot_product_attention" in target and what.startswith(("4 is", "dropout_p is")))


def main(recorder):
    numbers = itertools.count()
    with torch.no_grad():
        for target, args, *rest in CALLS:
            for what, changed_args, kwargs in changed(args, rest[0] if rest else {}):
                if target.isidentifier() and not (changed_args and isinstance(changed_args[0], torch.Tensor)):
                    continue
                number = next(numbers)
                if is_by_chance(target, what):
                    continue
                case = recorder.start(f"{target} {number}: {what}")
                given, named = [give(case, value)
                                for value in changed_args], {key: give(case, value) for key, value in kwargs.items()}
                y = case.method(target, *given, **named) if target.isidentifier() else case.call(target, *given, **named)
                if is_known(case.last):
                    recorder.finish(case, y, ulps=64, absolute=1e-5, optional=not isinstance(case.last, Raised))


if __name__ == "__main__":
    recorder = Recorder("layer_kinds")
    main(recorder)
    recorder.write()
