"""Models of real sizes with random weights, made from configurations, whose running time `make bench-gain` measures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
SMALL = {"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16, "intermediate_size": 2816, "vocab_size": 8000}
DECODER = SMALL | {"num_key_value_heads": 8, "use_cache": False}
EAGER = {"attn_implementation": "eager"}


CACHED = 128  # tokens that a decoder has in its cache when it gets one more


@dataclass(frozen=True)
class Subject:
    """`kind`: what it takes: "text", "pair" (also for a decoder), "image", "audio"."""

    architecture: str
    config: dict[str, Any] = field(default_factory=dict)
    kind: str = "text"

    @property
    def is_decoder(self) -> bool:
        return self.architecture.endswith(("ForCausalLM", "LMHeadModel"))


@dataclass(frozen=True)
class Shape:
    """An image has no tokens; the tokens of audio are samples."""

    batch: int
    tokens: int = 0
    cached: int = 0


SUBJECTS = {
    "bert-base": Subject("BertModel"),
    "bert-base, attention spelled out": Subject("BertModel", EAGER),
    "distilbert": Subject("DistilBertModel"),
    "roberta-base": Subject("RobertaModel", {"max_position_embeddings": 514}),
    "albert-base": Subject("AlbertModel", BASE | {"embedding_size": 128}),
    "electra-base": Subject("ElectraModel", BASE | {"embedding_size": 768}),
    "deberta-v2-base": Subject("DebertaV2Model", BASE),
    "mpnet-base": Subject("MPNetModel", {"max_position_embeddings": 514}),
    "gpt2": Subject("GPT2LMHeadModel", {"use_cache": False}),
    "gpt2, attention spelled out": Subject("GPT2LMHeadModel", {"use_cache": False} | EAGER),
    "gpt-neox": Subject("GPTNeoXForCausalLM", BASE | {"vocab_size": 50304, "use_cache": False}),
    "opt-125m": Subject("OPTForCausalLM", {"use_cache": False}),
    "bloom": Subject("BloomForCausalLM", {"hidden_size": 1024, "n_layer": 8, "n_head": 16, "vocab_size": 8000,
                                          "use_cache": False}),
    "llama": Subject("LlamaForCausalLM", DECODER),
    "llama, attention spelled out": Subject("LlamaForCausalLM", DECODER | EAGER),
    "qwen2": Subject("Qwen2ForCausalLM", DECODER),
    "mistral": Subject("MistralForCausalLM", DECODER),
    "gemma": Subject("GemmaForCausalLM", DECODER | {"head_dim": 64}),
    "phi": Subject("PhiForCausalLM", DECODER),
    "t5-small": Subject("T5ForConditionalGeneration", {"use_cache": False}, "pair"),
    "bart-base": Subject(
        "BartModel",
        {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}
        | {"encoder_attention_heads": 12, "decoder_attention_heads": 12, "use_cache": False},
        "pair",
    ),
    "vit-base": Subject("ViTModel", {}, "image"),
    "vit-base, attention spelled out": Subject("ViTModel", EAGER, "image"),
    "deit-base": Subject("DeiTModel", {}, "image"),
    "beit-base": Subject("BeitModel", {}, "image"),
    "dinov2-base": Subject("Dinov2Model", {"image_size": 224}, "image"),
    "clip-vision-base": Subject("CLIPVisionModel", {}, "image"),
    "swin-tiny": Subject("SwinModel", {}, "image"),
    "convnext-tiny": Subject("ConvNextForImageClassification", {}, "image"),
    "resnet-50": Subject("ResNetForImageClassification", {}, "image"),
    "resnet-18": Subject(
        "ResNetForImageClassification", {"depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, 512], "layer_type": "basic"},
        "image"
    ),
    "mobilenet-v1": Subject("MobileNetV1ForImageClassification", {}, "image"),
    "mobilenet-v2": Subject("MobileNetV2ForImageClassification", {}, "image"),
    "efficientnet-b0": Subject(
        "EfficientNetForImageClassification",
        {"image_size": 224, "width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280, "dropout_rate": 0.2},
        "image",
    ),
    "regnet-y": Subject("RegNetForImageClassification", {}, "image"),
    "levit-128s": Subject("LevitForImageClassification", {}, "image"),
    "segformer-b0": Subject("SegformerForImageClassification", {}, "image"),
    "mobilevit": Subject("MobileViTForImageClassification", {"image_size": 224}, "image"),
    "wav2vec2-base": Subject("Wav2Vec2Model", {}, "audio"),
}


# Beside which the compilers are measured: minutes for each of their programs.
WITH_COMPILERS = {"bert-base", "gpt2", "llama", "t5-small", "resnet-18", "resnet-50", "mobilenet-v2", "levit-128s"}
# Measured with a batch of 16, too
IN_BATCHES = WITH_COMPILERS | {"qwen2", "mistral", "gpt-neox", "vit-base", "swin-tiny", "mobilenet-v1", "efficientnet-b0",
                               "regnet-y"}

CLEAN = ["MergeViews", "RemoveNoOps", "EliminateCommonSubexpressions", "EliminateDeadCode"]
# Models in which they find much.
PASSES = {
    "resnet-18": ["FuseBatchNorm", "FuseBatchNorm2dInConv2d", "QuantizeWeights", "FusePointwise"],
    "resnet-50": ["FuseBatchNorm", "FuseBatchNorm2dInConv2d"],
    "mobilenet-v1": ["FoldPad", "FuseBatchNorm", "FuseBatchNorm2dInConv2d", "ChannelsLast", "FusePointwise"],
    "mobilenet-v2": ["FoldPad", "FuseBatchNorm", "FuseBatchNorm2dInConv2d", "ChannelsLast"],
    "efficientnet-b0": ["ChannelsLast", "FusePointwise"],
    "vit-base, attention spelled out": ["FuseAttention", "MergeLinears"],
    "bert-base, attention spelled out": [
        "FoldScaleIntoLinear", "ChangeTrueDivToMulByInverse", "MergeLinears", "FuseBiasInLinear", "QuantizeWeights",
    ],
    "gpt2": ["UnpackLinear", "FuseActivation", "FoldNormIntoLinear", *CLEAN],
    "gpt2, attention spelled out": ["FuseAttention"],
    "llama": [
        "FuseNorm", "FoldNormIntoLinear", "MergeLinears", "EvaluateConstants", "InlinePrograms", "InlineVmap", "FuseRotation",
        "FuseRepeat", *CLEAN,
    ],
    "llama, attention spelled out": ["FuseAttention", "FuseRotation", "FuseRepeat"],
    "swin-tiny": ["EvaluateConstants", "FoldConstants", *CLEAN],
}


def make(name: str) -> Any:
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(20)
    subject = SUBJECTS[name]
    architecture = getattr(transformers, subject.architecture)
    model = architecture(architecture.config_class(**subject.config))
    if subject.kind == "image":
        gather_statistics(model)
    return model.eval()


def gather_statistics(model: Any) -> None:
    """Draws the convolutions' weights as large as trained ones, and gives every BatchNorm the statistics of the values it gets:
    otherwise values vanish from layer to layer, and a processor is slow with the smallest of them."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # the average of all that was seen
        elif isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight)
    with torch.no_grad():
        model.train()(pixel_values=torch.randn(4, 3, 224, 224))


def shapes(name: str, is_short: bool) -> list[Shape]:
    """Batch 1 and, of IN_BATCHES, 16; of a decoder a prompt, and one token behind a cache."""
    subject = SUBJECTS[name]
    if subject.kind == "audio":
        return [Shape(1, 16000)]
    sizes = [0] if subject.kind == "image" else [128]
    found = [Shape(batch, size) for batch in (1, 16) for size in sizes]
    if subject.is_decoder:
        found += [Shape(batch, 1, CACHED) for batch in (1, 16)]
    return [shape for shape in found if shape.batch == 1 or not is_short and name in IN_BATCHES]


def inputs(name: str, shape: Shape, model: Any) -> dict[str, Any]:
    import torch

    torch.manual_seed(21)
    kind = SUBJECTS[name].kind
    if kind == "image":
        return {"pixel_values": torch.randn(shape.batch, 3, 224, 224)}
    if kind == "audio":
        return {"input_values": torch.randn(shape.batch, shape.tokens)}
    words = torch.randint(3, 1000, (shape.batch, shape.tokens))
    cache = {"past": cache_of(model.config, shape)} if shape.cached else {}
    return {"input_ids": words} | ({"decoder_input_ids": words} if kind == "pair" else {}) | cache


def cache_of(config: Any, shape: Shape) -> list[Any]:
    """Keys and values of each layer, one after the other."""
    import torch

    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return [torch.randn(shape.batch, heads, shape.cached, width) for _ in range(2 * config.num_hidden_layers)]


def decoding(model: Any) -> Any:
    """The model as it gives one token more, with its cache as tensors that come in and go out."""
    import torch
    from transformers import DynamicCache

    class Decoding(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, past: list[Any]) -> tuple[Any, ...]:
            cache = DynamicCache.from_legacy_cache(tuple(zip(past[::2], past[1::2])))
            made = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
            return (made.logits, *(tensor for layer in made.past_key_values.to_legacy_cache() for tensor in layer))

    return Decoding().eval()
