"""Every dtype that safetensors names goes through every layout that is shipped, both ways, also when every number has changed.

The safetensors package reads the files. The judge is the same checkpoint in I64, each number its own place: what a layout makes
of it says where every number of another dtype must be. So numbers are compared, not bytes, of which F4 has half as many."""

import json
import math
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from safetensors import deserialize

BINARY = Path(__file__).parents[2] / "build/foldback"
# The enumeration Dtype of safetensors/src/tensor.rs, 0.8: bits of a number, and PyTorch's dtype.
BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64,
    "F64": 64, "I64": 64, "U64": 64,
}
TORCH = {
    "BOOL": torch.bool, "F4": torch.float4_e2m1fn_x2, "U8": torch.uint8, "I8": torch.int8, "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E8M0": torch.float8_e8m0fnu, "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz, "I16": torch.int16, "U16": torch.uint16, "F16": torch.float16, "BF16": torch.bfloat16,
    "I32": torch.int32, "U32": torch.uint32, "F32": torch.float32, "C64": torch.complex64, "F64": torch.float64,
    "I64": torch.int64, "U64": torch.uint64,
}
HEADS, KV_HEADS, HEAD_DIM, HIDDEN, INNER, EXPERTS = 4, 2, 4, 16, 24, 3
HEAD_SIZES = {"heads": HEADS, "kv_heads": KV_HEADS, "head_dim": HEAD_DIM}
LAYOUTS = {
    "qkv-fused": {}, "gate-up-fused": {}, "phi3": HEAD_SIZES, "gpt2-conv1d": {}, "megatron-gqa": HEAD_SIZES,
    "llama-cpp-rope": HEAD_SIZES, "stacked-experts": {"experts": EXPERTS}, "tensor-parallel": {"ranks": 2, **HEAD_SIZES},
}
PACKED = ("F4", "F6_E2M3", "F6_E3M2")


def shapes_of(layout):
    if layout == "gpt2-conv1d":
        return {"h.0.attn.c_attn.weight": (HIDDEN, 3 * HIDDEN), "h.0.attn.c_proj.weight": (HIDDEN, HIDDEN),
                "h.0.mlp.c_fc.weight": (HIDDEN, INNER), "h.0.mlp.c_proj.weight": (INNER, HIDDEN), "wte.weight": (4, HIDDEN)}
    if layout == "stacked-experts":
        experts = [f"model.layers.0.mlp.experts.{e}." for e in range(EXPERTS)]
        return {**{f"{e}{name}_proj.weight": (INNER, HIDDEN) for e in experts for name in ("gate", "up")},
                **{f"{e}down_proj.weight": (HIDDEN, INNER) for e in experts}}
    block, rows = "model.layers.0.", {"q": HEADS * HEAD_DIM, "k": KV_HEADS * HEAD_DIM, "v": KV_HEADS * HEAD_DIM}
    return {
        "model.embed_tokens.weight": (4, HIDDEN), "model.norm.weight": (HIDDEN,), f"{block}input_layernorm.weight": (HIDDEN,),
        f"{block}post_attention_layernorm.weight": (HIDDEN,),
        **{f"{block}self_attn.{name}_proj.weight": (rows[name], HIDDEN) for name in rows},
        f"{block}self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM), f"{block}mlp.gate_proj.weight": (INNER, HIDDEN),
        f"{block}mlp.up_proj.weight": (INNER, HIDDEN), f"{block}mlp.down_proj.weight": (HIDDEN, INNER),
    }


def packed(numbers, bits):
    """The bytes of numbers of so many bits each, the lowest first."""
    ones = (numbers.reshape(-1, 1).astype(np.uint64) >> np.arange(bits, dtype=np.uint64)) & np.uint64(1)
    return np.packbits(ones.astype(np.uint8).reshape(-1), bitorder="little").tobytes()


def unpacked(data, bits):
    ones = np.unpackbits(np.frombuffer(bytes(data), np.uint8), bitorder="little").reshape(-1, bits).astype(np.uint64)
    return (ones << np.arange(bits, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)


def write(path, dtype, tensors, metadata=None):
    """{name: (shape, numbers)}. The package writes no F6, so this does."""
    header, parts, size = {"__metadata__": metadata} if metadata else {}, [], 0
    for name, (shape, numbers) in tensors.items():
        parts.append(packed(numbers, BITS[dtype]))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [size, size := size + len(parts[-1])]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    deserialize(path.read_bytes())


def read(path, dtype):
    out = {}
    for name, tensor in deserialize(path.read_bytes()):
        assert tensor["dtype"] == dtype, name
        out[name] = tuple(tensor["shape"]), unpacked(tensor["data"], BITS[dtype])
        assert math.prod(tensor["shape"]) == out[name][1].size, name
    return out


def metadata_of(path):
    with safetensors.safe_open(path, "np") as file:
        return file.metadata()


def foldback(folder, *words):
    return subprocess.run([str(BINARY), *map(str, words), "--data", str(folder / "store")], capture_output=True, text=True,
                          timeout=100, check=False)


def settings(layout):
    return [word for name, value in LAYOUTS[layout].items() for word in ("--set", f"{name}={value}")]


def places(layout):
    """Every number its own place, counted through all tensors."""
    out, count = {}, 0
    for name, shape in shapes_of(layout).items():
        out[name] = shape, np.arange(count, count + math.prod(shape), dtype=np.uint64)
        count += math.prod(shape)
    return out


def numbers_of(dtype, tensors):
    """Bits that look like chance, by place."""
    mask = (1 if dtype == "BOOL" else (1 << BITS[dtype]) - 1)
    return {name: (shape, (place * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(7)) & np.uint64(mask))
            for name, (shape, place) in tensors.items()}


def changed(dtype, tensors):
    mask = np.uint64(1 if dtype == "BOOL" else (1 << BITS[dtype]) - 1)
    return {name: (shape, numbers ^ mask) for name, (shape, numbers) in tensors.items()}


def assert_same(one, other):
    assert {name: shape for name, (shape, _) in one.items()} == {name: shape for name, (shape, _) in other.items()}
    for name in one:
        assert np.array_equal(one[name][1], other[name][1]), name


@pytest.fixture(scope="module", params=LAYOUTS)
def moved(request, tmp_path_factory):
    """The layout, and where it puts every number."""
    folder = tmp_path_factory.mktemp("places")
    write(folder / "a.safetensors", "I64", places(request.param))
    done = foldback(folder, "layout", "apply", request.param, folder / "a.safetensors", "--output", folder / "b.safetensors",
                    *settings(request.param))
    assert done.returncode == 0, done.stderr
    return request.param, read(folder / "b.safetensors", "I64")


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", BITS)
def test_there_and_back(tmp_path, moved, dtype):
    layout, made = moved
    source = numbers_of(dtype, places(layout))
    write(tmp_path / "a.safetensors", dtype, source)
    done = foldback(tmp_path, "layout", "apply", layout, tmp_path / "a.safetensors", "--output", tmp_path / "b.safetensors",
                    *settings(layout))
    if dtype in PACKED and layout == "gpt2-conv1d":  # a transpose takes apart numbers that share a byte
        assert done.returncode == 1 and "cuts-block" in done.stderr and "c_attn" in done.stderr
        assert not (tmp_path / "b.safetensors").exists()
        return
    assert done.returncode == 0, done.stderr
    assert_same(read(tmp_path / "b.safetensors", dtype), numbers_of(dtype, made))
    if dtype in TORCH:
        loaded = safetensors.torch.load_file(tmp_path / "b.safetensors")
        assert {tensor.dtype for tensor in loaded.values()} == {TORCH[dtype]}
        last = 2 if dtype == "F4" else 1
        assert {name: (*tensor.shape[:-1], tensor.shape[-1] * last) for name, tensor in loaded.items()} == {
            name: shape for name, (shape, _) in made.items()}
    write(tmp_path / "c.safetensors", dtype, changed(dtype, numbers_of(dtype, made)), metadata_of(tmp_path / "b.safetensors"))
    for name, expected in (("b", source), ("c", changed(dtype, source))):
        back = tmp_path / f"back_{name}.safetensors"
        done = foldback(tmp_path, "layout", "undo", tmp_path / f"{name}.safetensors", "--output", back)
        assert done.returncode == 0, done.stderr
        assert_same(read(back, dtype), expected)
    assert (tmp_path / "back_b.safetensors").read_bytes() == (tmp_path / "a.safetensors").read_bytes()


def test_all_are_tried():
    """The package refuses any other name, and says which it knows."""
    header = json.dumps({"a": {"dtype": "F5", "shape": [0], "data_offsets": [0, 0]}}).encode()
    with pytest.raises(safetensors.SafetensorError) as refused:
        deserialize(struct.pack("<Q", len(header)) + header)
    names = str(refused.value).split("expected one of")[1]
    assert {name.strip("` ") for name in names.split(" at ")[0].split(",")} == set(BITS)


@pytest.mark.parametrize("dtype", PACKED)
def test_rows_that_end_within_an_element_stay(tmp_path, dtype):
    """Carried where they are, with the file's shape; refused where a layout would move them."""
    odd = {"other": ((8, 3), np.arange(24, dtype=np.uint64) % np.uint64(16)), "none": ((0, 3), np.zeros(0, np.uint64))}
    source = {**numbers_of(dtype, places("qkv-fused")), **odd}
    paths = [tmp_path / f"{name}.safetensors" for name in "abde"]
    write(paths[0], dtype, source)
    done = foldback(tmp_path, "layout", "apply", "qkv-fused", paths[0], "--output", paths[1])
    assert done.returncode == 0, done.stderr
    made = read(tmp_path / "b.safetensors", dtype)
    assert made["other"][0] == (8, 3) and np.array_equal(made["other"][1], odd["other"][1]) and made["none"][0] == (0, 3)
    write(tmp_path / "c.safetensors", dtype, changed(dtype, made), metadata_of(tmp_path / "b.safetensors"))
    done = foldback(tmp_path, "layout", "undo", tmp_path / "c.safetensors", "--output", tmp_path / "back.safetensors")
    assert done.returncode == 0, done.stderr
    assert_same(read(tmp_path / "back.safetensors", dtype), changed(dtype, source))
    key = "model.layers.0.self_attn.k_proj.weight"
    write(paths[2], dtype, {**source, key: ((8, 3), odd["other"][1])})
    done = foldback(tmp_path, "layout", "apply", "qkv-fused", paths[2], "--output", paths[3])
    assert done.returncode == 1 and f"cuts-block: rows of {key} end within an element" in done.stderr
    assert not paths[3].exists()


@pytest.mark.parametrize("ranks, fits", [(2, True), (4, False)])
def test_ranks_cut_between_elements(tmp_path, ranks, fits):
    """Of F4: columns of o_proj to ranks, 16 / 2 = 8 numbers each; with 3 columns to a head they end within a byte."""
    head_dim = 4 if fits else 3
    shapes = {f"model.layers.0.{name}.weight": shape for name, shape in {
        "self_attn.q_proj": (4 * head_dim, 8), "self_attn.k_proj": (4 * head_dim, 8), "self_attn.v_proj": (4 * head_dim, 8),
        "self_attn.o_proj": (8, 4 * head_dim), "mlp.gate_proj": (8, 8), "mlp.up_proj": (8, 8), "mlp.down_proj": (8, 8)}.items()}
    write(tmp_path / "a.safetensors", "F4", {name: (shape, np.arange(math.prod(shape), dtype=np.uint64) % np.uint64(16))
                                             for name, shape in shapes.items()})
    done = foldback(tmp_path, "layout", "apply", "tensor-parallel", tmp_path / "a.safetensors", "--output",
                    tmp_path / "b.safetensors", "--set", f"ranks={ranks}", "--set", "heads=4", "--set", f"head_dim={head_dim}")
    assert done.returncode == (0 if fits else 1), done.stderr
    assert fits or ("cuts-block" in done.stderr and "o_proj" in done.stderr)
    if fits:
        made = read(tmp_path / "b.safetensors", "F4")
        expected = (np.arange(8 * 16, dtype=np.uint64) % np.uint64(16)).reshape(8, 16)[:, 8:]
        shape, numbers = made["rank_1.model.layers.0.self_attn.o_proj.weight"]
        assert shape == (8, 8) and np.array_equal(numbers.reshape(shape), expected)
