"""GGUF files through layout apply and undo, written and read here by their description; tests/python/test_gguf.py has other
programs' side."""

import itertools
import json
import struct

import pytest
import weights_files as files
from cli import CommandLine

TEXT, UINT32, FLOAT32, LIST = 8, 4, 6, 9
F32, F16, Q8_0 = (0, 1, 4), (1, 1, 2), (8, 32, 34)  # type, elements and bytes of a block


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def member(key, kind, value):
    packed = {TEXT: lambda: text(value), UINT32: lambda: struct.pack("<I", value), FLOAT32: lambda: struct.pack("<f", value),
              LIST: lambda: struct.pack("<IQ", TEXT, len(value)) + b"".join(map(text, value))}[kind]()
    return text(key) + struct.pack("<I", kind) + packed


MEMBERS = [member("general.architecture", TEXT, "llama"), member("llama.attention.head_count", UINT32, 2),
           member("llama.attention.head_count_kv", UINT32, 1), member("llama.embedding_length", UINT32, 64),
           member("tokenizer.ggml.tokens", LIST, ["a", "ü", "本"]), member("general.size", FLOAT32, 0.5)]


def size_of(kind, shape):
    count = 1
    for size in shape:
        count *= size
    return count // kind[1] * kind[2]


def gguf_of(tensors, members=MEMBERS, alignment=32):
    """Tensors: (type, shape, bytes) by name."""
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(members)) + b"".join(members)
    data = b""
    for name, (kind, shape, content) in tensors.items():
        header += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", size) for size in reversed(shape))
        header += struct.pack("<IQ", kind[0], len(data))
        data += content + bytes(-len(content) % alignment)
    return header + bytes(-len(header) % alignment) + data


def model(kind=Q8_0):
    state, number = {}, itertools.count(1)
    for i in range(2):
        for name, rows in (("attn_q", 64), ("attn_k", 32), ("attn_v", 32)):
            content = bytes(next(number) % 251 for _ in range(size_of(kind, (rows, 64))))
            state[f"blk.{i}.{name}.weight"] = (kind, (rows, 64), content)
        state[f"blk.{i}.attn_norm.weight"] = (F32, (64,), struct.pack("<64f", *(next(number) for _ in range(64))))
    return state


def halves(kind, shape, content, heads):
    """Rows from pairs to halves, in each head."""
    row = size_of(kind, shape[1:])
    rows = [content[i : i + row] for i in range(0, len(content), row)]
    size = shape[0] // heads
    order = [head * size + 2 * i + part for head in range(heads) for part in (0, 1) for i in range(size // 2)]
    return b"".join(rows[i] for i in order)


def expected_of(state):
    made = {}
    for name, (kind, shape, content) in state.items():
        layer, part = name.split(".")[1:3]
        heads = {"attn_q": 2, "attn_k": 1}.get(part)
        their = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
                 "attn_norm": "input_layernorm"}[part]
        made[f"model.layers.{layer}.{their}.weight"] = (kind, shape, halves(kind, shape, content, heads) if heads else content)
    return made


def read(data, alignment=32):
    """Members but ours, and tensors, by name."""
    at = 4

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def take_text():
        nonlocal at
        length = take("Q")
        at += length
        return data[at - length : at].decode()

    version, count, members = take("IQQ")
    assert version == 3
    said = {}
    for _ in range(members):
        key, begin = take_text(), at
        kind = take("I")
        if kind == TEXT:
            take_text()
        elif kind == LIST:
            _, items = take("IQ")
            for _ in range(items):
                take_text()
        else:
            take("I")
        said[key] = data[begin:at]
    said.pop("foldback.metadata", None)
    places = []
    for _ in range(count):
        name, rank = take_text(), take("I")
        shape = tuple(reversed([take("Q") for _ in range(rank)]))
        kind, offset = take("IQ")
        places.append((name, next(one for one in (F32, F16, Q8_0) if one[0] == kind), shape, offset))
    at += -at % alignment
    assert all(offset % alignment == 0 for *_, offset in places)
    return said, {name: (kind, shape, data[at + offset : at + offset + size_of(kind, shape)])
                  for name, kind, shape, offset in places}


@pytest.fixture
def cli(tmp_path):
    return CommandLine(tmp_path)


@pytest.mark.parametrize("kind", [Q8_0, F16, F32])
def test_there_and_back(cli, kind):
    state = model(kind)
    source = gguf_of(state)
    cli.put("model.gguf", source)
    done = cli("layout apply", "from-llama-cpp", "model.gguf", "-o", "made.gguf")
    assert done.status == 0, done
    said, made = read(cli.path("made.gguf").read_bytes())
    assert said == read(source)[0] and made == expected_of(state)
    assert cli("layout undo", "made.gguf", "-o", "back.gguf").status == 0
    assert cli.path("back.gguf").read_bytes() == source
    # Trained, without a word of what it was made of, and with other metadata
    trained = {name: (one, shape, bytes(255 - byte if one != F32 else byte ^ 1 for byte in content))
               for name, (one, shape, content) in reversed(made.items())}
    cli.put("trained.gguf", gguf_of(trained, [*MEMBERS, member("general.name", TEXT, "tuned")]))
    undone = cli("layout undo", "trained.gguf", "-o", "tuned.gguf", "--run", done.json()["id"])
    assert undone.status == 0, undone
    said, tuned = read(cli.path("tuned.gguf").read_bytes())
    assert "general.name" in said and expected_of(tuned) == trained
    assert sorted(path.name for path in cli.path(".").iterdir() if path.is_file()) == [
        "back.gguf", "made.gguf", "model.gguf", "trained.gguf", "tuned.gguf"]


def test_to_safetensors_and_back(cli):
    """Metadata comes from a GGUF file that is named."""
    cli.put("model.gguf", gguf_of(model(F16)))
    assert cli("layout apply", "from-llama-cpp", "model.gguf", "-o", "hf.safetensors").status == 0
    made = files.tensors_of(cli.path("hf.safetensors").read_bytes())
    assert {name: (tuple(shape), content) for name, (_, shape, content) in made.items()} == {
        name: (shape, content) for name, (_, shape, content) in expected_of(model(F16)).items()}
    words = ("layout apply", "llama-cpp", "hf.safetensors", "-o", "again.gguf", "--set", "heads=2", "--set", "kv_heads=1",
             "--set", "head_dim=32")
    done = cli(*words)
    assert done.status == 2 and "--metadata" in done.err and not cli.path("again.gguf").exists()
    assert cli(*words, "--metadata", "model.gguf").status == 0
    assert read(cli.path("again.gguf").read_bytes()) == read(gguf_of(model(F16)))


def test_rows_of_blocks_move_whole(cli):
    cli.put("model.gguf", gguf_of(model()))
    part = {"op": "slice", "axis": 1, "args": ["w"]}
    own = {"name": "columns", "rows": [{"from": {"w": "{*b}attn_q.weight"}, "to": {
        "{*b}left.weight": {**part, "start": 0, "stop": 33}, "{*b}right.weight": {**part, "start": 33, "stop": 68}}}]}
    assert cli("layout put", cli.put("own.json", own)).status == 0
    done = cli("layout apply", "columns", "model.gguf", "-o", "made.gguf")
    assert done.status == 1 and "rows move whole" in done.err and not cli.path("made.gguf").exists(), done


BAD = {
    "the magic alone": lambda data: data[:4],
    "a header that ends": lambda data: data[:100],
    "data that ends": lambda data: data[:-64],
    "version 1": lambda data: data[:4] + b"\1\0\0\0" + data[8:],
    "big-endian": lambda data: data[:4] + b"\0\0\0\3" + data[8:],
    "too many tensors": lambda data: data[:8] + b"\xff" * 8 + data[16:],
    "too many members": lambda data: data[:16] + b"\xff" * 8 + data[24:],
    "a type that is not known": lambda data: data.replace(struct.pack("<IQ", 8, 0), struct.pack("<IQ", 77, 0)),
    "a repeated name": lambda data: data.replace(b"blk.1.attn_q", b"blk.0.attn_q"),
    "a name that is not UTF-8": lambda data: data.replace(b"blk.1.attn_q", b"blk.\xff.attn_q"),
    "rows that are not blocks": lambda data: data.replace(struct.pack("<IQQI", 2, 64, 64, 8),
                                                          struct.pack("<IQQI", 2, 63, 64, 8)),
    "overlap": lambda data: data.replace(struct.pack("<QIQ", 32, 8, 4352), struct.pack("<QIQ", 32, 8, 0)),
    "no alignment": lambda data: gguf_of(model(), [*MEMBERS, member("general.alignment", UINT32, 24)]),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_files(cli, case):
    data = BAD[case](gguf_of(model()))
    assert data != gguf_of(model())
    cli.put("model.gguf", data)
    done = cli("layout apply", "from-llama-cpp", "model.gguf", "-o", "made.gguf")
    assert done.status == 1 and "model.gguf: " in done.err, done
    assert [path.name for path in cli.path(".").iterdir() if path.is_file()] == ["model.gguf"]


def test_the_architecture(cli):
    members = [member("general.architecture", TEXT, "qwen2"), *MEMBERS[1:]]
    cli.put("model.gguf", gguf_of(model(F32), members))
    done = cli("layout apply", "from-llama-cpp", "model.gguf", "-o", "made.gguf")
    assert done.status == 1 and "from-llama-cpp is for llama, mistral, and this is qwen2" in done.err, done
    assert cli("layout apply", "from-llama-cpp-neox", "model.gguf", "-o", "made.gguf").status == 0
    found = read(cli.path("made.gguf").read_bytes())[1]
    for theirs, ours in (("attn_q", "self_attn.q_proj"), ("attn_k", "self_attn.k_proj"), ("attn_norm", "input_layernorm")):
        assert found[f"model.layers.1.{ours}.weight"] == model(F32)[f"blk.1.{theirs}.weight"]
    wrong = {"name": "own", "architectures": "llama", "rows": [{"from": {"w": "a"}, "to": {"b": "w"}}]}
    assert cli("layout put", cli.put("own.json", wrong)).status != 0
    assert json.loads(cli("layout show", "llama-cpp", "--json").out)["layout"]["architectures"] == ["llama", "mistral"]
