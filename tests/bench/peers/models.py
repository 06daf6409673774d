"""The models that are measured: made from configurations, with random weights. Nothing comes from a model hub."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass
from typing import Any

BERT_PASSES = ("ChangeTrueDivToMulByInverse", "MergeLinears", "FuseBiasInLinear")


@dataclass(frozen=True)
class Model:
    name: str
    title: str
    passes: tuple[str, ...]
    rounds: int
    size: int = 0  # hidden size, or number of nodes

    @property
    def is_reversible(self) -> bool:
        return self.passes == BERT_PASSES


MODELS = {
    model.name: model
    for model in (
        Model("bert-base", "BERT-base (12 layers, hidden size 768)", BERT_PASSES, 15, 768),
        Model("bert-tiny", "BERT-base's graph with tiny weights (hidden size 48)", BERT_PASSES, 15, 48),
        Model("resnet-50", "ResNet-50", ("FuseBatchNorm2dInConv2d",), 15),
        Model("blocks-10000", "10,000 nodes: three Linears, a division, two additions, again and again",
              BERT_PASSES, 5, 10_000),
        Model("blocks-100000", "100,000 nodes of the same", BERT_PASSES, 3, 100_000),
    )
}
WIDTH = 8  # of the blocks' Linears
SIZES = tuple(Model(f"blocks-of-{size}", f"{size:,} nodes", BERT_PASSES, 1, size) for size in (1_000, 5_000, 20_000, 100_000))
ALL = MODELS | {model.name: model for model in SIZES}


def module(model: Model) -> tuple[Any, tuple[Any, ...], list[str]]:
    """A torch module in eval mode, an example of its arguments, and their names."""
    import torch

    torch.manual_seed(20)
    if model.name.startswith("bert"):
        from transformers import BertConfig, BertModel

        # "eager" is the attention with a division in it.
        sizes = {"hidden_size": model.size, "intermediate_size": 4 * model.size, "vocab_size": 40 * model.size}
        config = BertConfig(**sizes, use_cache=False, attn_implementation="eager")
        made, inputs = BertModel(config), (torch.ones(2, 16, dtype=torch.int64),) * 3
        names = ["input_ids", "attention_mask", "token_type_ids"]
    elif model.name.startswith("resnet"):
        from transformers import ResNetConfig, ResNetForImageClassification

        made, inputs = ResNetForImageClassification(ResNetConfig(num_labels=1000)), (torch.ones(1, 3, 224, 224),)
        names = ["pixel_values"]
    else:
        from blocks import Blocks

        made, inputs, names = Blocks(model.size // 6, WIDTH), (torch.ones(2, WIDTH),), ["x"]
    with torch.no_grad():  # a bias that is zero would let a lost one go unseen
        for parameter in made.parameters():
            if parameter.ndim == 1:
                parameter.uniform_(0.5, 1.5)
    return made.eval(), inputs, names


def trace(model: Model) -> tuple[Any, tuple[Any, ...]]:
    """The GraphModule that a user of Optimum has, and an example of its arguments."""
    import torch.fx

    made, inputs, names = module(model)
    if model.name.startswith("blocks"):
        return torch.fx.symbolic_trace(made), inputs
    from transformers.utils.fx import symbolic_trace

    return symbolic_trace(made, input_names=names, disable_check=True), inputs


def write_onnx(model: Model, path: pathlib.Path) -> None:
    """Blocks are written node by node: torch.onnx.export takes too long for that many."""
    if model.name.startswith("blocks"):
        _write_onnx_blocks(model.size // 6, path)
        return
    import torch

    made, inputs, names = module(model)
    # Without PyTorch's own optimiser: that is the work to be measured.
    torch.onnx.export(made, inputs, str(path), input_names=names, dynamo=True, optimize=False, external_data=False,
                      verbose=False)


def _write_onnx_blocks(count: int, path: pathlib.Path) -> None:
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = numpy.random.default_rng(20)
    eight = numpy_helper.from_array(numpy.float32(8.0).reshape(()), "eight")
    nodes, weights, value = [], [eight], "x"
    for block in range(count):
        outputs = []
        for fc in (f"block.{block}.fc{i}" for i in range(3)):
            for kind, shape in (("weight", (WIDTH, WIDTH)), ("bias", (WIDTH,))):
                weights.append(numpy_helper.from_array(random.random(shape, dtype=numpy.float32), f"{fc}.{kind}"))
            outputs.append(f"{fc}.out")
            nodes.append(helper.make_node("Gemm", [value, f"{fc}.weight", f"{fc}.bias"], [outputs[-1]], transB=1))
        names = [f"block.{block}.{name}" for name in ("quotient", "sum", "out")]
        nodes.append(helper.make_node("Div", [outputs[0], "eight"], [names[0]]))
        nodes.append(helper.make_node("Add", [names[0], outputs[1]], [names[1]]))
        nodes.append(helper.make_node("Add", [names[1], outputs[2]], [names[2]]))
        value = names[2]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, WIDTH]) for name in ("x", value)]
    graph = helper.make_graph(nodes, "blocks", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), str(path))
