"""GGUF files: what foldback writes, the gguf package and transformers read; what they write comes back; and models compute the
same from llama.cpp's order of rows, by a rotary embedding of pairs that is written here."""

import json
import os
import resource
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

gguf = pytest.importorskip("gguf")

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sample import IS_SHORT

BINARY = Path(__file__).parents[2] / "build/foldback"
SIZES = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": False, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": 2}
# model_type -> general.architecture, the layout there, what the configuration has besides
MODELS = {
    "llama": ("llama", "llama-cpp", {}),
    "mistral": ("llama", "llama-cpp", {"sliding_window": None}),
    "qwen2": ("qwen2", "llama-cpp-neox", {}),
    "qwen3": ("qwen3", "llama-cpp-neox", {"head_dim": 16}),
    "stablelm": ("stablelm", "llama-cpp-neox", {"use_qkv_bias": True}),
    "phi3": ("phi3", "llama-cpp-phi3", {}),
    "starcoder2": ("starcoder2", "llama-cpp-starcoder2", {}),
}
PERMUTED = ("llama", "mistral")


def model_of(name: str) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name, **{**SIZES, **MODELS[name][2]})
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for name, parameter in model.named_parameters():
        parameter.data = torch.randn_like(parameter) / 8
    return model


def metadata_file(path: Path, architecture: str) -> Path:
    """A GGUF file of metadata alone, as llama.cpp's converter writes it."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_block_count(2)
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_layer_norm_eps(1e-5)
    writer.add_rope_dimension_count(16)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(64)
    writer.add_key_length(16)
    writer.add_token_list([f"t{i}" for i in range(64)])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class Work:
    def __init__(self, folder: Path):
        self.folder = folder

    def __call__(self, *words: object, limit: int | None = None) -> subprocess.CompletedProcess:
        def limited() -> None:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))  # not files that are mapped, which memory need not hold

        return subprocess.run([str(BINARY), *map(str, words), "--data", str(self.folder / "store")], capture_output=True,
                              text=True, timeout=300, check=False, preexec_fn=limited if limit else None)

    def done(self, *words: object, limit: int | None = None) -> dict:
        done = self(*words, limit=limit)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout else {}


def tensors_of(path: Path) -> dict[str, gguf.gguf_reader.ReaderTensor]:
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def fields_of(path: Path) -> dict[str, object]:
    reader = gguf.GGUFReader(path)
    return {name: (field.types, [part.tobytes() for part in field.parts]) for name, field in reader.fields.items()
            if not name.startswith("GGUF.") and name != "foldback.metadata"}


def their_names(architecture: str, state: dict[str, torch.Tensor]) -> dict[str, str]:
    """The gguf package's own names for Hugging Face's."""
    arch = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, 2)
    return {key: names.get_name(key, try_suffixes=(".weight", ".bias")) for key in state}


@pytest.mark.sampled
@pytest.mark.parametrize("name", MODELS)
def test_there_and_back(tmp_path: Path, name: str) -> None:
    architecture, layout, _ = MODELS[name]
    work, model = Work(tmp_path), model_of(name)
    model.save_pretrained(tmp_path / "hf")
    state, source = load_file(tmp_path / "hf/model.safetensors"), metadata_file(tmp_path / "like.gguf", architecture)
    made = tmp_path / "made.gguf"
    words = ("--config", tmp_path / "hf/config.json")
    work.done("layout", "apply", layout, tmp_path / "hf", "-o", made, "--metadata", source, *words)

    # The gguf package reads the tensors, under the names that it would give them, and all metadata.
    found, names = tensors_of(made), their_names(architecture, state)
    assert {*names.values()} == {*found} and fields_of(made) == fields_of(source)
    for key, tensor in state.items():
        shape = found[names[key]].data.shape
        assert shape == tuple(tensor.shape), key
        is_permuted = name in PERMUTED and key.split(".")[-2] in ("q_proj", "k_proj")
        assert np.array_equal(np.sort(found[names[key]].data, axis=0), np.sort(tensor.numpy(), axis=0)), key
        assert np.array_equal(found[names[key]].data, tensor.numpy()) != is_permuted, key

    # transformers reads the model that was there.
    config = {} if name == "mistral" else {"config": model.config}  # GGUF calls Mistral llama
    again = type(model).from_pretrained(tmp_path, gguf_file="made.gguf", dtype=torch.float32, **config)
    assert all(torch.equal(tensor, model.state_dict()[key]) for key, tensor in again.state_dict().items())

    # Back by the layout for that, which needs no run, and by undoing this one; also after every number was changed.
    work.done("layout", "apply", f"from-{layout}", made, "-o", tmp_path / "back.safetensors")
    back = load_file(tmp_path / "back.safetensors")
    assert back.keys() == state.keys() and all(torch.equal(back[key], state[key]) for key in state)
    work.done("layout", "undo", made, "-o", tmp_path / "undone.safetensors")
    assert (tmp_path / "undone.safetensors").read_bytes() == (tmp_path / "hf/model.safetensors").read_bytes()
    data = bytearray(made.read_bytes())
    for tensor in found.values():
        begin = int(tensor.data_offset)
        data[begin : begin + tensor.n_bytes] = (1 - tensor.data / 2).astype(tensor.data.dtype).tobytes()
    (tmp_path / "trained.gguf").write_bytes(data)
    work.done("layout", "undo", tmp_path / "trained.gguf", "-o", tmp_path / "tuned.safetensors")
    tuned = load_file(tmp_path / "tuned.safetensors")
    assert tuned.keys() == state.keys() and all(torch.equal(tuned[key], 1 - state[key] / 2) for key in state)


def quantised_file(path: Path, kind: str) -> dict[str, np.ndarray]:
    """Llama's tensors in llama.cpp's order, those of attention quantised, others of each other type."""
    rng, writer = np.random.default_rng(0), gguf.GGUFWriter(path, "llama")
    for add, value in ((writer.add_head_count, 4), (writer.add_head_count_kv, 2), (writer.add_embedding_length, 256),
                       (writer.add_block_count, 2), (writer.add_file_type, 7)):
        add(value)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["a", "ü", "本"])
    writer.add_token_scores([0.5, -1.0, 3.0])
    values = {}
    for i in range(2):
        for name, rows in (("attn_q", 256), ("attn_k", 128), ("attn_v", 128)):
            values[f"blk.{i}.{name}.weight"] = rng.standard_normal((rows, 256)).astype(np.float32)
        values[f"blk.{i}.attn_norm.weight"] = rng.standard_normal(256).astype(np.float32)
        values[f"blk.{i}.ffn_up.weight"] = rng.standard_normal((96, 256)).astype(np.float32)
        values[f"blk.{i}.ffn_down.weight"] = rng.standard_normal((256, 96)).astype(np.float32)
    for name, value in values.items():
        own = {"ffn_up": "F16", "ffn_down": "BF16", "attn_norm": "F32"}.get(name.split(".")[2], kind)
        quantised = gguf.GGMLQuantizationType[own]
        writer.add_tensor(name, gguf.quants.quantize(value, quantised) if own != "F32" else value, raw_dtype=quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def halves(value: np.ndarray, heads: int) -> np.ndarray:
    """Rows from llama.cpp's order to Hugging Face's."""
    return value.reshape(heads, value.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(value.shape)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q5_1", "F16", "BF16"])
def test_quantised_rows_move_whole(tmp_path: Path, kind: str) -> None:
    work, source, made = Work(tmp_path), tmp_path / "model.gguf", tmp_path / "hf.gguf"
    quantised_file(source, kind)
    work.done("layout", "apply", "from-llama-cpp", source, "-o", made)
    before, after = tensors_of(source), tensors_of(made)
    assert fields_of(made) == fields_of(source) and len(after) == len(before)
    for i in range(2):
        for theirs, ours, heads in (("attn_q", "self_attn.q_proj", 4), ("attn_k", "self_attn.k_proj", 2),
                                    ("attn_v", "self_attn.v_proj", 0), ("ffn_up", "mlp.up_proj", 0),
                                    ("ffn_down", "mlp.down_proj", 0), ("attn_norm", "input_layernorm", 0)):
            old, new = before[f"blk.{i}.{theirs}.weight"], after[f"model.layers.{i}.{ours}.weight"]
            assert old.tensor_type == new.tensor_type and list(old.shape) == list(new.shape)
            assert np.array_equal(new.data, halves(old.data, heads) if heads else old.data)
    work.done("layout", "undo", made, "-o", tmp_path / "back.gguf")
    assert (tmp_path / "back.gguf").read_bytes() == source.read_bytes()
    # And without a run: the same tensors and metadata.
    work.done("layout", "apply", "llama-cpp", made, "-o", tmp_path / "again.gguf")
    again = tensors_of(tmp_path / "again.gguf")
    assert fields_of(tmp_path / "again.gguf") == fields_of(source) and again.keys() == before.keys()
    assert all(np.array_equal(again[name].data, before[name].data) and again[name].tensor_type == before[name].tensor_type
               for name in before)


def test_only_whole_rows(tmp_path: Path) -> None:
    """Columns of quantised rows are not moved: the sizes of their bytes do not fit."""
    source, work = tmp_path / "model.gguf", Work(tmp_path)
    quantised_file(source, "Q8_0")
    half = {"op": "slice", "axis": 1, "args": ["w"]}
    layout = {"name": "columns", "rows": [{"from": {"w": "{*b}attn_q.weight"}, "to": {
        "{*b}left.weight": {**half, "start": 0, "stop": "w.shape[1] / 2"},
        "{*b}right.weight": {**half, "start": "w.shape[1] / 2 + 3 - 3", "stop": "w.shape[1]"}}}]}
    layout["rows"][0]["to"]["{*b}left.weight"]["stop"] = layout["rows"][0]["to"]["{*b}right.weight"]["start"] = 35
    (tmp_path / "layout.json").write_text(json.dumps(layout))
    work.done("layout", "put", tmp_path / "layout.json")
    done = work("layout", "apply", "columns", source, "-o", tmp_path / "made.gguf")
    assert done.returncode == 1 and "rows move whole" in done.stderr and not (tmp_path / "made.gguf").exists(), done.stderr


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("phi3", "starcoder2", "stablelm")])
def test_two_layers_compute_the_same(tmp_path: Path, name: str) -> None:
    """Attention as llama.cpp computes it: the rotary embedding turns pairs beside each other (llama) or halves (neox), by the
    architecture, and reads the rows of the GGUF file."""
    architecture, layout, _ = MODELS[name]
    work, model = Work(tmp_path), model_of(name)
    model.save_pretrained(tmp_path / "hf")
    made = tmp_path / "made.gguf"
    work.done("layout", "apply", layout, tmp_path / "hf", "-o", made, "--metadata",
              metadata_file(tmp_path / "like.gguf", architecture), "--config", tmp_path / "hf/config.json")
    tensors = {key: torch.tensor(tensor.data) for key, tensor in tensors_of(made).items()}
    torch.manual_seed(1)
    hidden = torch.randn(1, 5, 64)
    position = torch.arange(5)[None]
    rotary = model.model.rotary_emb(hidden, position)
    mask = torch.full((5, 5), float("-inf")).triu(1)[None, None]
    expected = hidden
    for layer in model.model.layers:
        expected = layer(expected, position_embeddings=rotary, attention_mask=mask)
        expected = expected[0] if isinstance(expected, tuple) else expected
    angles = torch.outer(torch.arange(5), 10000.0 ** (-torch.arange(0, 16, 2) / 16))
    cos, sin = angles.cos(), angles.sin()

    def turned(x: torch.Tensor) -> torch.Tensor:
        if name in PERMUTED:
            one, two = x[..., 0::2], x[..., 1::2]
            return torch.stack((one * cos - two * sin, one * sin + two * cos), -1).flatten(-2)
        one, two = x.chunk(2, -1)
        return torch.cat((one * cos - two * sin, one * sin + two * cos), -1)

    def normed(x: torch.Tensor, key: str) -> torch.Tensor:
        return x * (x.pow(2).mean(-1, keepdim=True) + model.config.rms_norm_eps).rsqrt() * tensors[key]

    for i in range(2):
        block = f"blk.{i}."
        x = normed(hidden, f"{block}attn_norm.weight")
        parts = {}
        for part, heads in (("q", 4), ("k", 2), ("v", 2)):
            y = torch.nn.functional.linear(x, tensors[f"{block}attn_{part}.weight"], tensors.get(f"{block}attn_{part}.bias"))
            y = y.view(1, 5, heads, 16)
            if f"{block}attn_{part}_norm.weight" in tensors:
                y = normed(y, f"{block}attn_{part}_norm.weight")
            y = y.transpose(1, 2)
            parts[part] = (turned(y) if part != "v" else y).repeat_interleave(4 // heads, 1)
        attended = torch.nn.functional.scaled_dot_product_attention(parts["q"], parts["k"], parts["v"], is_causal=True)
        hidden = hidden + attended.transpose(1, 2).reshape(1, 5, 64) @ tensors[f"{block}attn_output.weight"].T
        x = normed(hidden, f"{block}ffn_norm.weight")
        gate = torch.nn.functional.silu(x @ tensors[f"{block}ffn_gate.weight"].T)
        hidden = hidden + (gate * (x @ tensors[f"{block}ffn_up.weight"].T)) @ tensors[f"{block}ffn_down.weight"].T
    torch.testing.assert_close(hidden, expected, rtol=1e-4, atol=1e-5)


def test_the_architecture_says_which_layout(tmp_path: Path) -> None:
    work, model = Work(tmp_path), model_of("qwen2")
    model.save_pretrained(tmp_path / "hf")
    like = metadata_file(tmp_path / "like.gguf", "qwen2")
    words = ("--metadata", like, "-o", tmp_path / "made.gguf", "--config", tmp_path / "hf/config.json")
    done = work("layout", "apply", "llama-cpp", tmp_path / "hf", *words)
    assert done.returncode == 1 and "is for llama, mistral, and this is qwen2" in done.stderr
    work.done("layout", "apply", "llama-cpp-neox", tmp_path / "hf", *words)
    done = work("layout", "apply", "from-llama-cpp", tmp_path / "made.gguf", "-o", tmp_path / "back.safetensors")
    assert done.returncode == 1 and "this is qwen2" in done.stderr and not (tmp_path / "back.safetensors").exists()
    done = work("layout", "apply", "llama-cpp-neox", tmp_path / "hf", "-o", tmp_path / "more.gguf", *words[4:])
    assert done.returncode == 2 and "--metadata" in done.stderr


def test_no_file_is_left(tmp_path: Path) -> None:
    work = Work(tmp_path)
    quantised_file(tmp_path / "model.gguf", "Q8_0")
    work.done("layout", "apply", "from-llama-cpp", tmp_path / "model.gguf", "-o", tmp_path / "hf.gguf")
    data = (tmp_path / "model.gguf").read_bytes()
    for size in (3, 20, 100, len(data) // 2, len(data) - 40):
        (tmp_path / "cut.gguf").write_bytes(data[:size])
        done = work("layout", "apply", "from-llama-cpp", tmp_path / "cut.gguf", "-o", tmp_path / "cut.out.gguf")
        assert done.returncode and done.stderr, size
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut.gguf", "hf.gguf", "model.gguf", "store"]


@pytest.mark.skipif(IS_SHORT, reason="a part of the long form")
def test_larger_than_memory(tmp_path: Path) -> None:
    """A file of 600 MB in 200 MB of memory."""
    state = {f"model.layers.{i}.self_attn.q_proj.weight": torch.full((2048, 2048), float(i), dtype=torch.bfloat16)
             for i in range(75)}
    save_file(state, tmp_path / "model.safetensors")
    work, like = Work(tmp_path), metadata_file(tmp_path / "like.gguf", "llama")
    work.done("layout", "apply", "llama-cpp", tmp_path / "model.safetensors", "--metadata", like, "-o", tmp_path / "made.gguf",
              "--set", "heads=32", "--set", "head_dim=64", limit=200 << 20)
    assert os.path.getsize(tmp_path / "made.gguf") > 600_000_000
    work.done("layout", "undo", tmp_path / "made.gguf", "-o", tmp_path / "back.safetensors", limit=200 << 20)
    with safe_open(tmp_path / "back.safetensors", "pt") as file:
        assert file.get_tensor("model.layers.74.self_attn.q_proj.weight")[0, 0] == 74
