"""Layouts: each shipped one against formulas of its own, there and back, also after every number was changed."""

import itertools

import blobs
import pytest
import weights_files as files

HEADS, HEAD_DIM, HIDDEN, INNER, LAYERS, EXPERTS = 4, 2, 8, 6, 2, 3


class Array:
    """Whole numbers of a shape, row by row: what a formula needs of an array library."""

    def __init__(self, shape, values):
        self.shape, self.values = tuple(shape), list(values)

    def reshape(self, *shape):
        return Array(shape, self.values)

    def at(self, index):
        place = 0
        for size, one in zip(self.shape, index):
            place = place * size + one
        return self.values[place]

    def permute(self, *dims):
        shape = [self.shape[dim] for dim in dims]
        old = [0] * len(dims)
        values = []
        for index in itertools.product(*map(range, shape)):
            for dim, one in zip(dims, index):
                old[dim] = one
            values.append(self.at(old))
        return Array(shape, values)

    def rows(self, start, stop):
        width = len(self.values) // self.shape[0]
        return Array((stop - start, *self.shape[1:]), self.values[start * width : stop * width])

    def columns(self, start, stop):
        return self.permute(1, 0).rows(start, stop).permute(1, 0)


def joined(*arrays):
    return Array((sum(one.shape[0] for one in arrays), *arrays[0].shape[1:]), [value for one in arrays for value in one.values])


class Numbers:
    """Arrays that have no number in common."""

    def __init__(self):
        self.next = 1

    def __call__(self, *shape):
        count = 1
        for size in shape:
            count *= size
        self.next += count
        return Array(shape, range(self.next - count, self.next))


def llama(kv_heads=HEADS, bias=False):
    new = Numbers()
    state = {"model.embed_tokens.weight": new(10, HIDDEN), "model.norm.weight": new(HIDDEN)}
    for i in range(LAYERS):
        block = f"model.layers.{i}."
        sizes = {"q": HEADS * HEAD_DIM, "k": kv_heads * HEAD_DIM, "v": kv_heads * HEAD_DIM}
        for name, rows in sizes.items():
            state[f"{block}self_attn.{name}_proj.weight"] = new(rows, HIDDEN)
            if bias:
                state[f"{block}self_attn.{name}_proj.bias"] = new(rows)
        state[f"{block}self_attn.o_proj.weight"] = new(HIDDEN, HEADS * HEAD_DIM)
        state[f"{block}mlp.gate_proj.weight"] = new(INNER, HIDDEN)
        state[f"{block}mlp.up_proj.weight"] = new(INNER, HIDDEN)
        state[f"{block}mlp.down_proj.weight"] = new(HIDDEN, INNER)
        state[f"{block}input_layernorm.weight"] = new(HIDDEN)
        state[f"{block}post_attention_layernorm.weight"] = new(HIDDEN)
    return state


def gpt2():
    new = Numbers()
    state = {"wte.weight": new(10, HIDDEN)}
    for i in range(LAYERS):
        for name, rows, columns in (("attn.c_attn", HIDDEN, 3 * HIDDEN), ("attn.c_proj", HIDDEN, HIDDEN), ("mlp.c_fc", HIDDEN, INNER), ("mlp.c_proj", INNER, HIDDEN)):
            state[f"h.{i}.{name}.weight"], state[f"h.{i}.{name}.bias"] = new(rows, columns), new(columns)
    return state


def mixture(block="mlp", names=("gate_proj", "up_proj", "down_proj")):
    new = Numbers()
    state = {}
    for i, e in itertools.product(range(LAYERS), range(EXPERTS)):
        expert = f"model.layers.{i}.{block}.experts.{e}."
        state[f"{expert}{names[0]}.weight"] = new(INNER, HIDDEN)
        state[f"{expert}{names[1]}.weight"] = new(INNER, HIDDEN)
        state[f"{expert}{names[2]}.weight"] = new(HIDDEN, INNER)
    for i in range(LAYERS):
        state[f"model.layers.{i}.{block}.gate.weight"] = new(EXPERTS, HIDDEN)
    return state


# ---- what each layout makes -------------------------------------------------------------------------------------------------


def replaced(state, *steps):
    """The state with tensors taken out and others put in, by functions of a layer's block."""
    out = dict(state)
    for i in range(LAYERS):
        for step in steps:
            step(out, f"model.layers.{i}.")
    return out


def fuse(target, *sources):
    def step(out, block):
        for kind in ("weight", "bias"):
            if f"{block}{sources[0]}.{kind}" in out:
                out[f"{block}{target}.{kind}"] = joined(*(out.pop(f"{block}{source}.{kind}") for source in sources))

    return step


QKV = fuse("self_attn.qkv_proj", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
GATE_UP = fuse("mlp.gate_up_proj", "mlp.gate_proj", "mlp.up_proj")


def megatron(state, kv_heads):
    out = {}
    whole = {"model.embed_tokens.weight": "embedding.word_embeddings.weight", "model.norm.weight": "decoder.final_layernorm.weight"}
    for name, target in whole.items():
        out[target] = state[name]
    group = HEADS // kv_heads * HEAD_DIM
    for i in range(LAYERS):
        old, new = f"model.layers.{i}.", f"decoder.layers.{i}."
        for kind in ("weight", "bias"):
            if f"{old}self_attn.q_proj.{kind}" not in state:
                continue
            q, k, v = (state[f"{old}self_attn.{name}_proj.{kind}"] for name in "qkv")
            parts = [part for g in range(kv_heads) for part in (q.rows(g * group, (g + 1) * group), k.rows(g * HEAD_DIM, (g + 1) * HEAD_DIM), v.rows(g * HEAD_DIM, (g + 1) * HEAD_DIM))]
            out[f"{new}self_attention.linear_qkv.{kind}"] = joined(*parts)
        out[f"{new}self_attention.linear_proj.weight"] = state[f"{old}self_attn.o_proj.weight"]
        out[f"{new}mlp.linear_fc1.weight"] = joined(state[f"{old}mlp.gate_proj.weight"], state[f"{old}mlp.up_proj.weight"])
        out[f"{new}mlp.linear_fc2.weight"] = state[f"{old}mlp.down_proj.weight"]
        out[f"{new}self_attention.linear_qkv.layer_norm_weight"] = state[f"{old}input_layernorm.weight"]
        out[f"{new}mlp.linear_fc1.layer_norm_weight"] = state[f"{old}post_attention_layernorm.weight"]
    return out


def rope(state, kv_heads):
    """As llama.cpp's converter: reshape(heads, 2, rows // heads // 2, …).swapaxes(1, 2).reshape(…)."""
    out = dict(state)
    for name, array in state.items():
        heads = {"q_proj": HEADS, "k_proj": kv_heads}.get(name.split(".")[-2])
        if heads:
            rest = array.shape[1:]
            apart = array.reshape(heads, 2, array.shape[0] // heads // 2, *rest)
            out[name] = apart.permute(0, 2, 1, *([3] if rest else [])).reshape(*array.shape)
    return out


def stacked(state, block, names):
    out = {name: array for name, array in state.items() if ".experts." not in name}
    for i in range(LAYERS):
        old, new = f"model.layers.{i}.{block}.", f"model.layers.{i}.mlp."
        each = [[state[f"{old}experts.{e}.{name}.weight"] for name in names] for e in range(EXPERTS)]
        out[f"{new}experts.gate_up_proj"] = joined(*(joined(gate, up) for gate, up, _ in each)).reshape(EXPERTS, 2 * INNER, HIDDEN)
        out[f"{new}experts.down_proj"] = joined(*(down for *_, down in each)).reshape(EXPERTS, HIDDEN, INNER)
        out[f"{new}gate.weight"] = out.pop(f"{old}gate.weight")
    return out


def sharded(state, ranks):
    out = {}
    for name, array in state.items():
        module = name.split(".")[-2]
        if module in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"):
            part = array.shape[0] // ranks
            out.update({f"rank_{r}.{name}": array.rows(r * part, (r + 1) * part) for r in range(ranks)})
        elif module in ("o_proj", "down_proj"):
            part = array.shape[1] // ranks
            out.update({f"rank_{r}.{name}": array.columns(r * part, (r + 1) * part) for r in range(ranks)})
        else:
            out[name] = array
    return out


def transposed(state):
    return {name: array.permute(1, 0) if name.endswith("weight") and "wte" not in name else array for name, array in state.items()}


def heads(kv_heads):
    return {"heads": HEADS, "kv_heads": kv_heads, "head_dim": HEAD_DIM}


CASES = {
    "qkv-fused": ("qkv-fused", {}, llama(), lambda s: replaced(s, QKV)),
    "qkv-fused, grouped, with biases": ("qkv-fused", {}, llama(2, True), lambda s: replaced(s, QKV)),
    "gate-up-fused": ("gate-up-fused", {}, llama(), lambda s: replaced(s, GATE_UP)),
    "phi3": ("phi3", heads(HEADS), llama(), lambda s: replaced(s, QKV, GATE_UP)),
    "phi3, grouped": ("phi3", heads(2), llama(2), lambda s: replaced(s, QKV, GATE_UP)),
    "gpt2-conv1d": ("gpt2-conv1d", {}, gpt2(), transposed),
    "megatron-gqa": ("megatron-gqa", heads(HEADS), llama(), lambda s: megatron(s, HEADS)),
    "megatron-gqa, grouped, with biases": ("megatron-gqa", heads(2), llama(2, True), lambda s: megatron(s, 2)),
    "megatron-gqa, one group": ("megatron-gqa", heads(1), llama(1), lambda s: megatron(s, 1)),
    "llama-cpp-rope": ("llama-cpp-rope", {"heads": HEADS, "head_dim": HEAD_DIM}, llama(), lambda s: rope(s, HEADS)),
    "llama-cpp-rope, grouped, with biases": ("llama-cpp-rope", heads(2), llama(2, True), lambda s: rope(s, 2)),
    "stacked-experts": ("stacked-experts", {"experts": EXPERTS}, mixture(), lambda s: stacked(s, "mlp", ("gate_proj", "up_proj", "down_proj"))),
    "stacked-experts of Mixtral": ("stacked-experts", {"experts": EXPERTS}, mixture("block_sparse_moe", ("w1", "w3", "w2")), lambda s: stacked(s, "block_sparse_moe", ("w1", "w3", "w2"))),
    "tensor-parallel": ("tensor-parallel", {"ranks": 2, **heads(HEADS)}, llama(), lambda s: sharded(s, 2)),
    "tensor-parallel, grouped": ("tensor-parallel", {"ranks": 2, **heads(2)}, llama(2), lambda s: sharded(s, 2)),
}


# ---- through the service ----------------------------------------------------------------------------------------------------


def file_of(state, add=0.0, metadata=None):
    return files.file_of({name: ("float32", array.shape, files.floats([value + add for value in array.values])) for name, array in state.items()}, metadata)


def checkpoint(service, *contents):
    answer = service.post("/v1/checkpoints", {"weights": [blobs.stored(service, one) for one in contents]})
    assert answer.status in (200, 201), answer.json()
    return answer.json()["id"]


def applied(service, graph, name, params=None, **more):
    answer = service.post("/v1/optimize", {"graph": graph, "passes": [{"name": name, "params": params or {}}], **more})
    assert answer.status in (200, 201), answer.json()
    return answer.json()


def weights(service, graph):
    answer = service.get(f"/v1/graphs/{graph}/weights")
    assert answer.status == 200, answer.json()
    return {name: Array(shape, files.numbers(part)) for name, (_, shape, part) in files.tensors_of(answer.body).items()}


def assert_same(now, expected, add=0.0):
    assert set(now) == set(expected)
    for name, array in expected.items():
        assert now[name].shape == array.shape, name
        assert now[name].values == [value + add for value in array.values], name


@pytest.mark.parametrize("case", CASES)
def test_shipped(shared, case):
    layout, params, state, formula = CASES[case]
    run = applied(shared, checkpoint(shared, file_of(state)), layout, params)
    report = run["passes"][0]
    assert report["refused"] == [], report["refused"]
    assert report["applied"] == sum(row["applied"] for row in report["layout"]["rows"]) > 0
    assert all(row["reversible"] for row in report["layout"]["rows"]), report["layout"]
    expected = formula(state)
    assert_same(weights(shared, run["result"]), expected)
    undone = shared.post(f"/v1/runs/{run['id']}/reverse", {}).json()
    assert undone["exact"] and undone["result"] == run["source"], undone
    # Trained: every number has changed, and the file was written by others, in another order.
    trained = checkpoint(shared, file_of(dict(reversed(expected.items())), 0.5))
    back = shared.post(f"/v1/runs/{run['id']}/reverse", {"graph": trained})
    assert back.status == 201, back.json()
    assert_same(weights(shared, back.json()["result"]), state, 0.5)
