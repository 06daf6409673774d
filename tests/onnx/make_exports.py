#!/usr/bin/env python3
"""Writes models as exporters write them, with inputs: transformers and convolutional networks by both exporters of torch, and
files as tf2onnx makes them of Keras at opsets 11, 12 and 13. The same files each time. Biases are no zeros, as of a model that
was trained.

    python make_exports.py OUT          needs tests/onnx/peers.txt and exports.txt
"""
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
import torch.nn.functional as functional
import transformers
from onnx import TensorProto, helper, numpy_helper
from torch import nn

F = np.float32


# ---- by torch --------------------------------------------------------------------------------------------------------------

class Attention(nn.Module):
    def __init__(self, size, heads, is_causal):
        super().__init__()
        self.heads, self.is_causal = heads, is_causal
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, x):
        batch, length, size = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, size // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-1, -2) / (size // self.heads) ** 0.5
        if self.is_causal:
            mask = torch.tril(torch.ones(length, length, dtype=torch.bool, device=x.device))
            scores = scores.masked_fill(~mask, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, size))


class Block(nn.Module):
    def __init__(self, size=32, heads=4, is_causal=False):
        super().__init__()
        self.first, self.second = nn.LayerNorm(size), nn.LayerNorm(size)
        self.attention = Attention(size, heads, is_causal)
        self.rest = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.rest(self.second(x))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(50, 32), nn.Embedding(64, 32)
        self.blocks, self.out = nn.Sequential(Block(is_causal=True), Block(is_causal=True)), nn.Linear(32, 50, bias=False)

    def forward(self, ids):
        places = torch.arange(ids.size(1), device=ids.device).unsqueeze(0).expand_as(ids)
        return self.out(self.blocks(self.words(ids) + self.places(places)))


class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.qk = nn.Linear(32, 64)
        self.register_buffer("step", 1 / 10000 ** (torch.arange(0, 8, 2).float() / 8))

    def forward(self, x):
        batch, length, _ = x.shape
        angles = torch.arange(length, device=x.device).float()[:, None] * self.step[None]
        angles = torch.cat([angles, angles], -1)

        def turned(z):
            one, other = z.chunk(2, -1)
            return z * angles.cos() + torch.cat([-other, one], -1) * angles.sin()
        q, k = self.qk(x).view(batch, length, 2, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        return turned(q) @ turned(k).transpose(-1, -2)


class Vision(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.block, self.out = nn.Conv2d(3, 32, 8, 8), Block(), nn.Linear(32, 10)
        self.first, self.places = nn.Parameter(torch.randn(1, 1, 32)), nn.Parameter(torch.randn(1, 17, 32))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.size(0), -1, -1), x], 1) + self.places
        return self.out(self.block(x)[:, 0])


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.norm, self.up = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ConvTranspose2d(8, 8, 2, 2)
        self.out = nn.Conv2d(11, 2, 1)

    def forward(self, x):
        y = self.up(functional.relu(self.norm(self.down(x))))
        y = functional.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=False)
        return self.out(torch.cat([y, x], 1))


class Shuffled(nn.Module):
    """Groups of channels that are exchanged, and channels that are weighed."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 1, groups=4)
        self.narrow, self.wide = nn.Linear(16, 4), nn.Linear(4, 16)

    def forward(self, x):
        x = self.second(functional.hardswish(self.first(x)))
        batch, channels, height, width = x.shape
        x = x.view(batch, 4, channels // 4, height, width).transpose(1, 2).reshape(batch, channels, height, width)
        weights = torch.sigmoid(self.wide(functional.relu(self.narrow(x.mean((2, 3))))))
        return x * weights.view(batch, channels, 1, 1)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.out = nn.LSTM(8, 16, batch_first=True, bidirectional=True), nn.Linear(32, 4)

    def forward(self, x):
        return self.out(self.layer(x)[0][:, -1])


def conv_norm(inputs, outputs, size=3, stride=1, groups=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
                         nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    """As ResNet: a block with a shortcut of its own, and one without."""

    def __init__(self):
        super().__init__()
        self.stem, self.pool = conv_norm(3, 8, 7, 2), nn.MaxPool2d(3, 2, 1)
        self.first, self.second, self.short = conv_norm(8, 16, 3, 2), conv_norm(16, 16), conv_norm(8, 16, 1, 2)
        self.third, self.fourth, self.out = conv_norm(16, 16), conv_norm(16, 16), nn.Linear(16, 10)

    def forward(self, x):
        x = self.pool(functional.relu(self.stem(x)))
        x = functional.relu(self.second(functional.relu(self.first(x))) + self.short(x))
        x = functional.relu(self.fourth(functional.relu(self.third(x))) + x)
        return self.out(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Inverted(nn.Module):
    """As MobileNet V2."""

    def __init__(self):
        super().__init__()
        self.stem, self.wide, self.deep = conv_norm(3, 8, 3, 2), conv_norm(8, 24, 1), conv_norm(24, 24, 3, 1, 24)
        self.narrow, self.out = conv_norm(24, 8, 1), nn.Linear(8, 10)

    def forward(self, x):
        x = functional.relu6(self.stem(x))
        x = x + self.narrow(functional.relu6(self.deep(functional.relu6(self.wide(x)))))
        return self.out(functional.dropout(x.mean((2, 3)), 0.2, self.training))


class Squeezed(nn.Module):
    """As EfficientNet: SiLU, and channels that are weighed."""

    def __init__(self):
        super().__init__()
        self.stem, self.deep, self.narrow = conv_norm(3, 16, 3, 2), conv_norm(16, 16, 3, 1, 16), conv_norm(16, 16, 1)
        self.less, self.more, self.out = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1), nn.Linear(16, 10)

    def forward(self, x):
        x = functional.silu(self.stem(x))
        y = functional.silu(self.deep(x))
        y = y * torch.sigmoid(self.more(functional.silu(self.less(functional.adaptive_avg_pool2d(y, 1)))))
        return self.out(functional.adaptive_avg_pool2d(self.narrow(y) + x, 1).flatten(1))


class Next(nn.Module):
    """As ConvNeXt: channels last in the middle of each block, and a weight for each channel."""

    def __init__(self):
        super().__init__()
        self.stem, self.deep, self.norm = nn.Conv2d(3, 16, 4, 4), nn.Conv2d(16, 16, 7, padding=3, groups=16), nn.LayerNorm(16)
        self.first, self.second, self.weights = nn.Linear(16, 32), nn.Linear(32, 16), nn.Parameter(torch.randn(16))
        self.out = nn.Linear(16, 10)

    def forward(self, x):
        x = self.stem(x)
        y = self.weights * self.second(functional.gelu(self.first(self.norm(self.deep(x).permute(0, 2, 3, 1)))))
        return self.out((x + y.permute(0, 3, 1, 2)).mean((-2, -1)))


class Dense(nn.Module):
    """As DenseNet: norms before convolutions, and all results joined."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm, self.out = conv_norm(3, 8, 3, 2), nn.BatchNorm2d(16), nn.Linear(16, 10)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8 + 4 * i) for i in range(2))
        self.convs = nn.ModuleList(nn.Conv2d(8 + 4 * i, 4, 3, padding=1, bias=False) for i in range(2))

    def forward(self, x):
        x = functional.relu(self.stem(x))
        for norm, conv in zip(self.norms, self.convs):
            x = torch.cat([x, conv(functional.relu(norm(x)))], 1)
        return self.out(functional.avg_pool2d(functional.relu(self.norm(x)), 16).flatten(1))


class Mixer(nn.Module):
    """As MLP-Mixer: layers along both axes."""

    def __init__(self):
        super().__init__()
        self.patches, self.first, self.second = nn.Conv2d(3, 16, 8, 8), nn.LayerNorm(16), nn.LayerNorm(16)
        self.places = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16))
        self.channels, self.out = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16)), nn.Linear(16, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = x + self.places(self.first(x).transpose(1, 2)).transpose(1, 2)
        return self.out((x + self.channels(self.second(x))).mean(1))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.layer, self.out = nn.Embedding(50, 8), nn.GRU(8, 12, batch_first=True), nn.Linear(12, 4)

    def forward(self, ids):
        return self.out(self.layer(self.words(ids))[0]).log_softmax(-1)


class Tabular(nn.Module):
    """Numbers of a table: norms between layers, and inputs that are scaled."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.randn(12))
        self.register_buffer("scale", torch.rand(12) + 0.5)
        self.layers = nn.Sequential(nn.BatchNorm1d(12), nn.Linear(12, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.3),
                                    nn.Linear(24, 16), nn.BatchNorm1d(16), nn.Mish(), nn.Linear(16, 3))

    def forward(self, x):
        return self.layers((x - self.mean) / self.scale).softmax(1)


class Library(nn.Module):
    """A model of transformers; its first result."""

    def __init__(self, kind, **config):
        super().__init__()
        config = {"vocab_size": 50, "attn_implementation": "eager", **config}
        settings = getattr(transformers, f"{kind.replace('Encoder', '')}Config")(**config)
        self.model = getattr(transformers, f"{kind}Model")(settings)

    def forward(self, x):
        more = {"attention_mask": torch.ones_like(x)} if x.dtype == torch.int64 else {}
        return self.model(x, return_dict=False, **more)[0]


def bert():
    return Library("Bert", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                   max_position_embeddings=32)


def distilled():
    return Library("DistilBert", dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=32)


def electra():
    return Library("Electra", embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                   intermediate_size=64, max_position_embeddings=32)


def albert():
    return Library("Albert", embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                   intermediate_size=64, max_position_embeddings=32)


def t5():
    return Library("T5Encoder", d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)


def vit():
    return Library("ViT", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32,
                   patch_size=8)


def prepare(kind):
    """A model whose biases are no zeros, and whose statistics are not those that it begins with."""
    torch.manual_seed(7)
    model = kind().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
        for norm in model.modules():
            if isinstance(norm, nn.modules.batchnorm._BatchNorm):
                norm.running_mean.normal_(0, 0.1)
                norm.running_var.uniform_(0.5, 1.5)
    return model


def by_torch(out):
    ids, image, words = torch.randint(0, 50, (2, 12)), torch.randn(2, 3, 32, 32), torch.randn(2, 12, 32)
    batch, length = {0: "batch"}, {0: "batch", 1: "length"}
    models = {"bert": (bert, ids, batch), "decoder": (Decoder, ids, length), "rotary": (Rotary, words, length),
              "vision": (Vision, image, batch), "segmenter": (Segmenter, image, {0: "batch", 2: "height", 3: "width"}),
              "shuffled": (Shuffled, image, batch), "recurrent": (Recurrent, torch.randn(2, 7, 8), batch),
              "residual": (Residual, image, batch), "inverted": (Inverted, image, batch), "squeezed": (Squeezed, image, batch),
              "next": (Next, image, batch), "dense": (Dense, image, batch), "mixer": (Mixer, image, batch),
              "gated": (Gated, ids, length), "tabular": (Tabular, torch.randn(5, 12), batch), "vit": (vit, image, batch),
              "distilled": (distilled, ids, batch), "electra": (electra, ids, batch), "albert": (albert, ids, batch),
              "t5": (t5, ids, batch)}
    for name, (kind, x, sizes) in models.items():
        model = prepare(kind)
        options = {"script": {"opset_version": 17, "dynamic_axes": {"x": sizes}},
                   "old": {"opset_version": 14, "do_constant_folding": False}}
        for form, more in options.items():
            torch.onnx.export(model, (x,), str(out / f"{name}-{form}.onnx"), dynamo=False, input_names=["x"], **more)
            np.savez(out / f"{name}-{form}.npz", x=x.numpy())
    for name in ("decoder", "vision", "recurrent", "residual", "squeezed", "next", "dense", "tabular", "distilled", "t5"):
        kind, x, _ = models[name]
        path = out / f"{name}-dynamo.onnx"
        torch.onnx.export(prepare(kind), (x,), str(path), dynamo=True, external_data=False, verbose=False)
        np.savez(path.with_suffix(".npz"), **{onnx.load(path).graph.input[0].name: x.numpy()})


# ---- as tf2onnx makes them -------------------------------------------------------------------------------------------------

class Keras:
    """A model of images with channels last: each layer turns them to channels first and back."""

    def __init__(self, opset, seed):
        self.opset, self.random = opset, np.random.default_rng(seed)
        self.nodes, self.stored, self.count = [], [], 0

    def name(self, like):
        self.count += 1
        return f"model/{like}_{self.count}:0"

    def weight(self, *sizes):
        return self.constant(self.random.standard_normal(sizes).astype(F))

    def constant(self, array):
        name = self.name("const")
        self.stored.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def ints(self, *numbers):
        return self.constant(np.array(numbers, np.int64))

    def put(self, op, *inputs, **attributes):
        made = self.name(op)
        self.nodes.append(helper.make_node(op, inputs, [made], name=made[:-2], **attributes))
        return made

    def axes(self, op, x, *axes):
        """Axes are an input from opset 13 on."""
        return self.put(op, x, self.ints(*axes)) if self.opset >= 13 else self.put(op, x, axes=list(axes))

    def first(self, x):
        return self.put("Transpose", x, perm=[0, 3, 1, 2])

    def last(self, x):
        return self.put("Transpose", x, perm=[0, 2, 3, 1])

    def conv(self, x, inputs, outputs, kernel=3, strides=1):
        weight = self.put("Transpose", self.weight(kernel, kernel, inputs, outputs), perm=[3, 2, 0, 1])
        made = self.put("Conv", self.first(x), weight, auto_pad="SAME_UPPER", kernel_shape=[kernel] * 2, strides=[strides] * 2)
        return self.put("Add", self.last(made), self.put("Reshape", self.weight(outputs), self.ints(1, 1, 1, outputs)))

    def norm(self, x, channels):
        numbers = [self.weight(channels) for _ in range(3)]
        return self.last(self.put("BatchNormalization", self.first(x), *numbers,
                                  self.constant(np.abs(self.random.standard_normal(channels)).astype(F)), epsilon=0.001))

    def dense(self, x, inputs, outputs):
        return self.put("Add", self.put("MatMul", x, self.weight(inputs, outputs)), self.weight(outputs))

    def size(self, x, place):
        """One of its sizes, as strided slices of a shape are written: a slice of one number that is squeezed."""
        shape = self.put("Cast", self.put("Shape", x), to=TensorProto.INT32)
        one = self.put("Slice", shape, self.ints(place), self.ints(place + 1), self.ints(0))
        return self.axes("Squeeze", one, 0)

    def flat(self, x, *rest):
        """A Reshape to (batch, …), whose sizes are joined one by one."""
        sizes = [self.axes("Unsqueeze", self.size(x, 0), 0)]
        sizes += [self.axes("Unsqueeze", self.constant(np.int32(size)), 0) for size in rest]
        return self.put("Reshape", x, self.put("Cast", self.put("Concat", *sizes, axis=0), to=TensorProto.INT64))

    def padded(self, x):
        return self.put("Pad", x, self.ints(0, 0, 1, 1, 0, 0, 1, 1), self.constant(F(0)))

    def save(self, path, feeds, outputs, sizes):
        inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(one.dtype), sizes.get(name, one.shape))
                  for name, one in feeds.items()]
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs]
        graph = helper.make_graph(self.nodes, "tf2onnx", inputs, results, self.stored)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=7,
                                  producer_name="tf2onnx")
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, path)
        np.savez(path.with_suffix(".npz"), **feeds)


def images(opset):
    return {"x": np.random.default_rng(opset).standard_normal((2, 16, 16, 3)).astype(F)}, {"x": ["batch", 16, 16, 3]}


def keras_cnn(opset):
    k = Keras(opset, 1)
    x = k.put("Relu", k.norm(k.conv("x", 3, 8), 8))
    x = k.last(k.put("MaxPool", k.first(x), kernel_shape=[2, 2], strides=[2, 2]))
    x = k.put("Clip", k.conv(x, 8, 8), k.constant(F(0)), k.constant(F(6)))
    x = k.axes("Squeeze", k.put("GlobalAveragePool", k.first(x)), 2, 3)
    x = k.put("Identity", k.dense(k.put("Dropout", x), 8, 10))
    k.nodes.append(helper.make_node("Softmax", [x], ["y"], axis=1))
    return k, *images(opset), [("y", ["batch", 10])]


def keras_unet(opset):
    k = Keras(opset, 2)
    skip = k.put("Relu", k.conv("x", 3, 4))
    x = k.put("Relu", k.conv(skip, 4, 8, strides=2))
    sizes = k.put("Concat", k.ints(1, 1), k.constant(np.array([2, 2], np.int64)), axis=0)
    x = k.put("Resize", k.first(x), k.constant(np.array([], F)), k.put("Cast", sizes, to=TensorProto.FLOAT), mode="nearest",
              coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    x = k.put("Concat", k.last(x), skip, axis=3)
    k.nodes.append(helper.make_node("Sigmoid", [k.conv(x, 12, 1)], ["y"]))
    return k, *images(opset), [("y", ["batch", 16, 16, 1])]


def keras_flat(opset):
    k = Keras(opset, 3)
    x = k.padded(k.first("x"))
    x = k.last(k.put("AveragePool", x, kernel_shape=[3, 3], strides=[3, 3]))
    x = k.put("Tanh", k.dense(k.flat(x, 108), 108, 16))
    x = k.flat(k.put("Mul", x, k.constant(F(1))), 4, 4)
    norm = k.put("Sqrt", k.put("Add", k.weight(4), k.constant(np.full(4, 9, F))))
    k.nodes.append(helper.make_node("Div", [x, norm], ["y"]))
    return k, *images(opset), [("y", ["batch", 4, 4])]


def keras_text(opset):
    """Embeddings, a mask of the places that are padded, and a layer in time."""
    k = Keras(opset, 4)
    x = k.put("Gather", k.weight(40, 8), "ids", axis=0)
    mask = k.put("Cast", k.put("Not", k.put("Equal", "ids", k.constant(np.int64(0)))), to=TensorProto.FLOAT)
    x = k.put("Transpose", k.put("Mul", x, k.axes("Unsqueeze", mask, 2)), perm=[1, 0, 2])
    batch = k.put("Cast", k.axes("Unsqueeze", k.size("ids", 0), 0), to=TensorProto.INT64)
    state = k.put("Expand", k.constant(F(0)), k.put("Concat", k.ints(1), batch, k.ints(6), axis=0))
    names = [k.name("GRU") for _ in range(2)]
    k.nodes.append(helper.make_node("GRU", [x, k.weight(1, 18, 8), k.weight(1, 18, 6), k.weight(1, 36), "", state], names,
                                    hidden_size=6, linear_before_reset=1))
    k.nodes.append(helper.make_node("Identity", [k.dense(k.axes("Squeeze", names[1], 0), 6, 3)], ["y"]))
    ids = np.random.default_rng(opset).integers(0, 40, (2, 5))
    return k, {"ids": ids}, {"ids": ["batch", 5]}, [("y", ["batch", 3])]


def keras_choice(opset):
    """A learning phase that is known, and a loop of three turns."""
    k = Keras(opset, 5)
    kept = helper.make_graph([helper.make_node("Identity", ["x"], ["kept"])], "kept", [],
                             [helper.make_tensor_value_info("kept", TensorProto.FLOAT, None)])
    noise = helper.make_graph([helper.make_node("RandomNormalLike", ["x"], ["n"]),
                               helper.make_node("Add", ["x", "n"], ["noisy"])],
                              "noise", [], [helper.make_tensor_value_info("noisy", TensorProto.FLOAT, None)])
    x = k.put("If", k.constant(np.bool_(False)), then_branch=noise, else_branch=kept)
    state = [helper.make_tensor_value_info(name, kind, shape)
             for name, kind, shape in (("i", TensorProto.INT64, []), ("c", TensorProto.BOOL, []),
                                       ("s", TensorProto.FLOAT, None))]
    twice = helper.make_node("Identity", ["s"], ["same"]), helper.make_node("Mul", ["same", "half"], ["next"])
    body = helper.make_graph([*twice, helper.make_node("Exp", ["s"], ["dead"]), helper.make_node("Identity", ["c"], ["go"])],
                             "body", state, [helper.make_tensor_value_info("go", TensorProto.BOOL, []),
                                             helper.make_tensor_value_info("next", TensorProto.FLOAT, None)],
                             [numpy_helper.from_array(F(0.5), "half")])
    x = k.put("Loop", k.constant(np.int64(3)), k.constant(np.bool_(True)), x, body=body)
    k.nodes.append(helper.make_node("Relu", [k.conv(x, 3, 2)], ["y"]))
    return k, *images(opset), [("y", ["batch", 16, 16, 2])]


def main(out):
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    torch.manual_seed(7)
    by_torch(out)
    for make in (keras_cnn, keras_unet, keras_flat, keras_text, keras_choice):
        for opset in (11, 12, 13, 15, 18):
            keras, feeds, sizes, outputs = make(opset)
            keras.save(out / f"{make.__name__.replace('keras_', 'tf2onnx-')}-{opset}.onnx", feeds, outputs, sizes)
    print(len(list(out.glob("*.onnx"))), "models")


if __name__ == "__main__":
    main(sys.argv[1])
