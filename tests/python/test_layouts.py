"""Layouts beside code that others wrote: models of transformers compute the same from what a layout makes, its converters take
it back, and every layout comes back from shards that from_pretrained loads."""

import json
import subprocess
import types
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers.integrations import tensor_parallel
from transformers.modeling_gguf_pytorch_utils import LlamaTensorProcessor

BINARY = Path(__file__).parents[2] / "build/foldback"
SIZES = {
    "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 32,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False, "rms_norm_eps": 1e-6,
}
GROUPED = {"num_key_value_heads": 2}
MIXED = {**GROUPED, "moe_intermediate_size": 8, "num_experts_per_tok": 2}
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 32, "n_inner": 24}
MLA = {"kv_lora_rank": 4, "q_lora_rank": 4, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 4}
FUSED = ("qkv-fused", "gate-up-fused", "phi3")
MODELS = {
    "llama": (GROUPED, (*FUSED, "megatron-gqa", "llama-cpp-rope", "tensor-parallel")),
    "mistral": ({"num_key_value_heads": 4}, (*FUSED, "megatron-gqa", "llama-cpp-rope", "tensor-parallel")),
    "qwen2": (GROUPED, ("qkv-fused", "gate-up-fused", "megatron-gqa", "llama-cpp-rope", "tensor-parallel")),
    "qwen3": ({**GROUPED, "head_dim": 8}, (*FUSED, "megatron-gqa", "llama-cpp-rope", "tensor-parallel")),
    "gemma": ({**GROUPED, "head_dim": 8}, (*FUSED, "megatron-gqa", "llama-cpp-rope", "tensor-parallel")),
    "olmo2": (GROUPED, (*FUSED, "llama-cpp-rope", "tensor-parallel")),
    "phi": (GROUPED, ("qkv-fused", "llama-cpp-rope")),
    "gpt2": (GPT2, ("gpt2-conv1d",)),
    "opt": ({"ffn_dim": 24, "word_embed_proj_dim": 16}, ("qkv-fused", "llama-cpp-rope")),
    "vit": ({"image_size": 8, "patch_size": 4}, ()),
    "bert": ({}, ()),
    "gpt_neox": ({}, ()),
    "whisper": ({"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
                 "decoder_attention_heads": 4, "num_mel_bins": 8}, ()),
    "mixtral": ({**GROUPED, "num_local_experts": 3}, ("qkv-fused", "stacked-experts", "llama-cpp-rope")),
    "qwen2_moe": ({**MIXED, "num_experts": 3, "shared_expert_intermediate_size": 8},
                  ("qkv-fused", "gate-up-fused", "stacked-experts", "llama-cpp-rope")),
    "olmoe": ({**MIXED, "num_experts": 3}, ("qkv-fused", "gate-up-fused", "stacked-experts", "llama-cpp-rope")),
    "deepseek_v3": ({**MIXED, **MLA, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
                    ("gate-up-fused", "stacked-experts")),
}
LAYOUTS = (*FUSED, "gpt2-conv1d", "megatron-gqa", "llama-cpp-rope", "stacked-experts", "tensor-parallel")
RANKS = 2


def model_of(name: str, sizes: dict) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name, **{**SIZES, **sizes})
    for auto in (transformers.AutoModelForCausalLM, transformers.AutoModelForSeq2SeqLM):
        if type(config) in auto._model_mapping:
            return auto.from_config(config).eval()
    return transformers.AutoModel.from_config(config).eval()


class Folder:
    """A model's folder, and a store beside it."""

    def __init__(self, path: Path, name: str, sizes: dict):
        self.path, self.model = path, model_of(name, sizes)
        self.model.save_pretrained(path)
        self.config = self.model.config
        self.source = load_file(path / "model.safetensors")

    def foldback(self, *words: object) -> subprocess.CompletedProcess:
        return subprocess.run([str(BINARY), *map(str, words), "--data", str(self.path / "store")], capture_output=True,
                              text=True, timeout=600, check=False)

    def apply(self, layout: str, source: Path | None = None, name: str = "made.safetensors") -> subprocess.CompletedProcess:
        ranks = ("--set", f"ranks={RANKS}") if layout == "tensor-parallel" else ()
        return self.foldback("layout", "apply", layout, source or self.path / "model.safetensors", "--config",
                             self.path / "config.json", "--output", self.path / name, "--force", *ranks)

    def applied(self, layout: str) -> dict[str, torch.Tensor]:
        done = self.apply(layout)
        assert done.returncode == 0, done.stderr
        return load_file(self.path / "made.safetensors")


# ---- transformers reads what a layout makes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_phi3_computes_what_llama_does(tmp_path: Path, kv_heads: int) -> None:
    llama = Folder(tmp_path, "llama", {"num_key_value_heads": kv_heads})
    phi3 = model_of("phi3", {"num_key_value_heads": kv_heads})
    phi3.load_state_dict(llama.applied("phi3"))
    tokens = torch.arange(10).reshape(2, 5)
    torch.testing.assert_close(phi3(tokens).logits, llama.model(tokens).logits)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_falcon_splits_what_megatron_interleaves(tmp_path: Path, kv_heads: int) -> None:
    """Falcon's fused weights are Megatron's: of each group its queries, its key and its value."""
    qwen2 = Folder(tmp_path, "qwen2", {"num_key_value_heads": kv_heads})
    made = qwen2.applied("megatron-gqa")
    falcon = model_of("falcon", {"new_decoder_architecture": True, "num_kv_heads": kv_heads, "alibi": False})
    split = falcon.transformer.h[0].self_attention._split_heads
    x = torch.randn(2, 5, 16)
    for i, layer in enumerate(qwen2.model.model.layers):
        fused = "decoder.layers.{}.self_attention.linear_qkv.{}".format
        found = split(x @ made[fused(i, "weight")].T + made[fused(i, "bias")])
        for one, name, heads in zip(found, "qkv", (4, kv_heads, kv_heads), strict=True):
            expected = getattr(layer.self_attn, f"{name}_proj")(x).reshape(2, 5, heads, 4).repeat_interleave(4 // heads, 2)
            torch.testing.assert_close(one, expected)


def test_gpt_neox_splits_what_megatron_interleaves(tmp_path: Path) -> None:
    """With a group for each head: GPT-NeoX attends with the fused weight as Llama's attention does with three."""
    mistral = Folder(tmp_path, "mistral", {"num_key_value_heads": 4, "sliding_window": None})
    made = mistral.applied("megatron-gqa")
    neox = model_of("gpt_neox", {"rotary_pct": 1.0, "attention_bias": False, "rotary_emb_base": 10000.0})
    attention, layer = neox.gpt_neox.layers[0].attention, mistral.model.model.layers[0]
    attention.query_key_value.weight.data = made["decoder.layers.0.self_attention.linear_qkv.weight"]
    attention.dense.weight.data = made["decoder.layers.0.self_attention.linear_proj.weight"]
    x, positions = torch.randn(2, 5, 16), torch.arange(5)[None]
    rotary = mistral.model.model.rotary_emb(x, positions)
    torch.testing.assert_close(attention(x, None, position_embeddings=rotary)[0], layer.self_attn(x, rotary, None)[0])


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2"])
def test_gguf_reader_takes_rotary_rows_back(tmp_path: Path, name: str) -> None:
    """transformers' reader of llama.cpp's files undoes what llama.cpp's converter did."""
    folder = Folder(tmp_path, name, MODELS[name][0])
    config = {"num_attention_heads": folder.config.num_attention_heads,
              "num_key_value_heads": folder.config.num_key_value_heads}
    reader = LlamaTensorProcessor(config=config)
    for key, tensor in folder.applied("llama-cpp-rope").items():
        module = key.split(".")[-2]
        called = f"blk.0.attn_{module[0]}.weight" if module in ("q_proj", "k_proj") else "blk.0.other.weight"
        assert np.array_equal(reader.process(tensor.numpy(), called).weights, folder.source[key].numpy()), key


def test_linears_compute_what_conv1d_does(tmp_path: Path) -> None:
    gpt2 = Folder(tmp_path, "gpt2", GPT2)
    made, count = gpt2.applied("gpt2-conv1d"), 0
    for name, module in gpt2.model.named_modules():
        if isinstance(module, transformers.pytorch_utils.Conv1D):
            x = torch.randn(3, module.nx)
            torch.testing.assert_close(torch.nn.functional.linear(x, made[f"{name}.weight"], made[f"{name}.bias"]), module(x))
            count += 1
    assert count == 8


def shard_of(linear: torch.nn.Linear, parameter: str, how: str, rank: int) -> torch.Tensor:
    """What a rank has of a Linear's parameter, cut by transformers 4 or 5."""
    tensor = linear.get_parameter(parameter).detach()
    if transformers.__version__ < "5":
        mesh = types.SimpleNamespace(shape=(RANKS,))
        return tensor_parallel.get_tensor_shard(tensor, tensor, mesh, rank, 0 if how == "colwise" else -1)
    cut = torch.nn.Linear(linear.in_features, linear.out_features, linear.bias is not None)
    cut.register_parameter(parameter, torch.nn.Parameter(tensor.clone()))
    torch.distributed.init_process_group("fake", rank=rank, world_size=RANKS, store=FakeStore())
    try:
        mesh = torch.distributed.init_device_mesh("cpu", (RANKS,))
        tensor_parallel.ALL_PARALLEL_STYLES[how].shard_param(cut, parameter, mesh)
        return cut.get_parameter(parameter).to_local()
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_shards_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    """Its plan says which weights are cut along rows and which along columns, and its own code cuts."""
    folder = Folder(tmp_path, name, MODELS[name][0])
    made = folder.applied("tensor-parallel")
    plan = {key.split(".")[-1]: how for key, how in folder.config.base_model_tp_plan.items()}
    for key, tensor in folder.source.items():
        module, kind = key.split(".")[-2:]
        if plan.get(module) not in ("colwise", "rowwise") or (plan[module] == "rowwise" and kind == "bias"):
            assert torch.equal(made.pop(key), tensor)
            continue
        for rank in range(RANKS):
            shard = shard_of(folder.model.get_submodule(key.removesuffix(f".{kind}")), kind, plan[module], rank)
            assert torch.equal(made.pop(f"rank_{rank}.{key}"), shard), key
    assert not made


@pytest.mark.parametrize("bias", [False, True])
def test_multihead_attention_reads_fused_weights(tmp_path: Path, bias: bool) -> None:
    """PyTorch's own attention has one weight for queries, keys and values."""
    folder = Folder(tmp_path, "qwen2" if bias else "mistral", {"num_key_value_heads": 4})
    made = folder.applied("qkv-fused")
    attention, layer = torch.nn.MultiheadAttention(16, 4, bias=bias, batch_first=True), folder.model.model.layers[0].self_attn
    attention.in_proj_weight.data = made["model.layers.0.self_attn.qkv_proj.weight"]
    attention.out_proj.weight.data = layer.o_proj.weight.data
    if bias:
        attention.in_proj_bias.data = made["model.layers.0.self_attn.qkv_proj.bias"]
    x = torch.randn(2, 5, 16)
    q, k, v = (projection(x).reshape(2, 5, 4, 4).transpose(1, 2) for projection in (layer.q_proj, layer.k_proj, layer.v_proj))
    expected = layer.o_proj(torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 5, 16))
    torch.testing.assert_close(attention(x, x, x, need_weights=False)[0], expected)


# ---- there and back, for models of many kinds -------------------------------------------------------------------------------


def assert_same(now: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert set(now) == set(expected)
    for name, tensor in expected.items():
        assert torch.equal(now[name], tensor), name


def trained(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: (1 - tensor / 2).contiguous() for name, tensor in reversed(state.items())}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MODELS)
def test_there_and_back(tmp_path: Path, name: str, layout: str) -> None:
    """One file and shards, as they were and with every number changed; or refused, and no file is left."""
    sizes, layouts = MODELS[name]
    folder = Folder(tmp_path, name, sizes)
    if layout not in layouts:
        done = folder.apply(layout)
        assert (done.returncode != 0) == (not (tmp_path / "made.safetensors").exists()), done.stderr
        assert done.returncode == 0 or done.stderr
        if done.returncode:
            return
    made = folder.applied(layout)
    assert set(made) != set(folder.source) or any(not torch.equal(made[key], folder.source[key]) for key in made)
    with safe_open(tmp_path / "made.safetensors", "pt") as file:
        metadata = file.metadata()
    save_file(trained(made), tmp_path / "trained.safetensors", metadata)
    for source, expected in (("made", folder.source), ("trained", trained(folder.source))):
        done = folder.foldback("layout", "undo", tmp_path / f"{source}.safetensors", "--output", tmp_path / "back.safetensors",
                               *(["--force"] if source == "trained" else []))
        assert done.returncode == 0, done.stderr
        assert_same(load_file(tmp_path / "back.safetensors"), expected)


@pytest.mark.parametrize("name", [name for name, (_, layouts) in MODELS.items() if layouts])
def test_shards_that_from_pretrained_loads(tmp_path: Path, name: str) -> None:
    sizes, layouts = MODELS[name]
    folder = Folder(tmp_path, name, sizes)
    folder.model.save_pretrained(tmp_path / "shards", max_shard_size="8KB")
    index = tmp_path / "shards/model.safetensors.index.json"
    assert len(set(json.loads(index.read_text())["weight_map"].values())) > 1
    done = folder.apply(layouts[0], index)
    assert done.returncode == 0, done.stderr
    back = tmp_path / "back"
    back.mkdir()
    done = folder.foldback("layout", "undo", tmp_path / "made.safetensors", "--output", back / "model.safetensors",
                           "--shard-size", "8KB")
    assert done.returncode == 0, done.stderr
    assert len(list(back.glob("model-*.safetensors"))) > 1 and not (back / "model.safetensors").exists()
    (back / "config.json").write_text((tmp_path / "config.json").read_text())
    assert_same(type(folder.model).from_pretrained(back).state_dict(), folder.model.state_dict())


def test_from_pretrained_loads_shards_that_apply_wrote(tmp_path: Path) -> None:
    """Llama's weights, in shards of Phi-3's layout, are a Phi-3 that computes the same."""
    llama, made = Folder(tmp_path, "llama", GROUPED), tmp_path / "phi3"
    made.mkdir()
    words = ("layout", "apply", "phi3", tmp_path / "model.safetensors", "--config", tmp_path / "config.json", "--output",
             made / "model.safetensors", "--shard-size", "8KB")
    done = llama.foldback(*words)
    assert done.returncode == 0, done.stderr
    assert len(list(made.glob("model-*.safetensors"))) > 1 and not (made / "model.safetensors").exists()
    model_of("phi3", GROUPED).config.save_pretrained(made)
    phi3, told = transformers.Phi3ForCausalLM.from_pretrained(made, output_loading_info=True)
    assert not any(told[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokens = torch.arange(10).reshape(2, 5)
    torch.testing.assert_close(phi3.eval()(tokens).logits, llama.model(tokens).logits)
