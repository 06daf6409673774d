"""Layouts: each shipped one against formulas of its own, there and back, also after every number was changed."""

import fcntl
import itertools
import json
import os
import threading

import blobs
import documents
import pytest
import weights_files as files
from cli import CommandLine

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
        for name, rows, columns in (("attn.c_attn", HIDDEN, 3 * HIDDEN), ("attn.c_proj", HIDDEN, HIDDEN),
                                    ("mlp.c_fc", HIDDEN, INNER), ("mlp.c_proj", INNER, HIDDEN)):
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
    whole = {"model.embed_tokens.weight": "embedding.word_embeddings.weight",
             "model.norm.weight": "decoder.final_layernorm.weight"}
    for name, target in whole.items():
        out[target] = state[name]
    group = HEADS // kv_heads * HEAD_DIM
    for i in range(LAYERS):
        old, new = f"model.layers.{i}.", f"decoder.layers.{i}."
        for kind in ("weight", "bias"):
            if f"{old}self_attn.q_proj.{kind}" not in state:
                continue
            q, k, v = (state[f"{old}self_attn.{name}_proj.{kind}"] for name in "qkv")
            parts = [part for g in range(kv_heads)
                     for part in (q.rows(g * group, (g + 1) * group), k.rows(g * HEAD_DIM, (g + 1) * HEAD_DIM),
                                  v.rows(g * (v.shape[0] // kv_heads), (g + 1) * (v.shape[0] // kv_heads)))]
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
        out[f"{new}experts.gate_up_proj"] = joined(*(joined(gate, up)
                                                     for gate, up, _ in each)).reshape(EXPERTS, 2 * INNER, HIDDEN)
        out[f"{new}experts.down_proj"] = joined(*(down for *_, down in each)).reshape(EXPERTS, HIDDEN, INNER)
        out[f"{new}gate.weight"] = out.pop(f"{old}gate.weight")
    return out


def sharded(state, ranks, kv_heads=HEADS):
    """Where there are more ranks than heads of keys and values, neighbours have the same one."""
    out = {}
    for name, array in state.items():
        module = name.split(".")[-2]
        if module in ("k_proj", "v_proj"):
            head = array.shape[0] // kv_heads
            part = max(kv_heads // ranks, 1) * head
            starts = [r * kv_heads // ranks * head for r in range(ranks)]
            out.update({f"rank_{r}.{name}": array.rows(start, start + part) for r, start in enumerate(starts)})
        elif module in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"):
            part = array.shape[0] // ranks
            out.update({f"rank_{r}.{name}": array.rows(r * part, (r + 1) * part) for r in range(ranks)})
        elif module in ("o_proj", "down_proj"):
            part = array.shape[1] // ranks
            out.update({f"rank_{r}.{name}": array.columns(r * part, (r + 1) * part) for r in range(ranks)})
        else:
            out[name] = array
    return out


def transposed(state):
    return {name: array.permute(1, 0) if name.endswith("weight") and "wte" not in name else array
            for name, array in state.items()}


def heads(kv_heads):
    return {"heads": HEADS, "kv_heads": kv_heads, "head_dim": HEAD_DIM}


def with_values(state, rows, columns=HIDDEN):
    """The values of another size than the keys, and what reads them."""
    sizes = {"v_proj.weight": (rows, HIDDEN), "v_proj.bias": (rows,), "o_proj.weight": (HIDDEN, columns)}
    found = {name: sizes.get(".".join(name.split(".")[-2:]), array.shape) for name, array in state.items()}
    return {name: array if shape == array.shape else Array(shape, range(shape[0] * (shape[1] if shape[1:] else 1)))
            for (name, array), shape in zip(state.items(), found.values())}


CASES = {
    "qkv-fused, values of another size": ("qkv-fused", {}, with_values(llama(2, True), 6), lambda s: replaced(s, QKV)),
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
    "stacked-experts": ("stacked-experts", {"experts": EXPERTS}, mixture(),
                        lambda s: stacked(s, "mlp", ("gate_proj", "up_proj", "down_proj"))),
    "stacked-experts of Mixtral": ("stacked-experts", {"experts": EXPERTS}, mixture("block_sparse_moe", ("w1", "w3", "w2")),
                                   lambda s: stacked(s, "block_sparse_moe", ("w1", "w3", "w2"))),
    "tensor-parallel": ("tensor-parallel", {"ranks": 2, **heads(HEADS)}, llama(), lambda s: sharded(s, 2)),
    "tensor-parallel, grouped": ("tensor-parallel", {"ranks": 2, **heads(2)}, llama(2), lambda s: sharded(s, 2)),
    "tensor-parallel, more ranks than heads": ("tensor-parallel", {"ranks": 2, **heads(1)}, llama(1, True),
                                               lambda s: sharded(s, 2, 1)),
    "tensor-parallel, values of another size": ("tensor-parallel", {"ranks": 2, **heads(2), "v_head_dim": 3},
                                                with_values(llama(2, True), 6, 12), lambda s: sharded(s, 2, 2)),
    "megatron-gqa, values of another size": ("megatron-gqa", {**heads(2), "v_head_dim": 3}, with_values(llama(2, True), 6),
                                             lambda s: megatron(s, 2)),
}


# ---- through the service ----------------------------------------------------------------------------------------------------


def file_of(state, add=0.0, metadata=None):
    return files.file_of({name: ("float32", array.shape, files.floats([value + add for value in array.values]))
                          for name, array in state.items()}, metadata)


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


def attention(block, names):
    """Queries, keys and values of other names than Llama's, with biases; and the block after qkv-fused."""
    new, state = Numbers(), {}
    for i, name in itertools.product(range(LAYERS), names):
        state[f"{block.format(i)}.{name}.weight"], state[f"{block.format(i)}.{name}.bias"] = new(HIDDEN, HIDDEN), new(HIDDEN)
    fused = {f"{block.format(i)}.qkv_proj.{kind}": joined(*(state[f"{block.format(i)}.{name}.{kind}"] for name in names))
             for i, kind in itertools.product(range(LAYERS), ("weight", "bias"))}
    return state, fused


@pytest.mark.parametrize("block, names", [
    ("bert.encoder.layer.{}.attention.self", ("query", "key", "value")),
    ("roberta.encoder.layer.{}.attention.self", ("query", "key", "value")),
    ("vit.encoder.layer.{}.attention.attention", ("query", "key", "value")),
    ("vision_model.encoder.layers.{}.self_attn", ("q_proj", "k_proj", "v_proj")),
    ("encoder.block.{}.layer.0.SelfAttention", ("q", "k", "v"))])
def test_qkv_fused_fits_other_names(shared, block, names):
    state, fused = attention(block, names)
    run = applied(shared, checkpoint(shared, file_of(state)), "qkv-fused")
    assert run["passes"][0]["refused"] == [] and run["passes"][0]["applied"] == 2 * LAYERS
    assert_same(weights(shared, run["result"]), fused)
    trained = checkpoint(shared, file_of(fused, 0.5))
    back = shared.post(f"/v1/runs/{run['id']}/reverse", {"graph": trained})
    assert_same(weights(shared, back.json()["result"]), state, 0.5)


def named(names):
    new = Numbers()
    return {name: new(2, 3) for name in names}


# Which tensor gets which name: chains and circles, in one module, in several, and in both.
RENAMINGS = {
    "a chain": {"b.{i}.n0.w": "b.{i}.n1.w", "b.{i}.n1.w": "b.{i}.n2.w"},
    "a chain, the other way": {"b.{i}.n1.w": "b.{i}.n2.w", "b.{i}.n0.w": "b.{i}.n1.w"},
    "a circle": {"b.{i}.n0.w": "b.{i}.n1.w", "b.{i}.n1.w": "b.{i}.n0.w"},
    "a circle of three": {"b.{i}.n0.w": "b.{i}.n1.w", "b.{i}.n1.w": "b.{i}.n2.w", "b.{i}.n2.w": "b.{i}.n0.w"},
    "a circle in a module": {"b.{i}.w": "b.{i}.v", "b.{i}.v": "b.{i}.w"},
    "two circles": {"b.{i}.n0.w": "b.{i}.n1.v", "b.{i}.n1.v": "b.{i}.n0.w", "b.{i}.n0.v": "b.{i}.n1.w",
                    "b.{i}.n1.w": "b.{i}.n0.v"},
}


@pytest.mark.parametrize("case", RENAMINGS)
def test_names_that_go_round(cli, case):
    """What one row makes may have the name of what another row reads."""
    rows = RENAMINGS[case]
    state = named([name.format(i=i) for i in range(3) for name in rows])
    expected = {rows[name].format(i=i): state[name.format(i=i)] for i in range(3) for name in rows}
    own = {"name": "round", "rows": [{"from": {"w": name}, "to": {target: "w"}} for name, target in rows.items()]}
    assert cli("layout put", cli.put("own.json", own)).status == 0
    cli.put("model.safetensors", file_of(state))
    done = cli("layout apply", "round", "model.safetensors", "-o", "new.safetensors")
    assert done.status == 0, done
    assert_same(state_of(cli.path("new.safetensors")), expected)
    done = cli("layout undo", "new.safetensors", "-o", "back.safetensors")
    assert done.status == 0 and cli.path("back.safetensors").read_bytes() == cli.path("model.safetensors").read_bytes(), done
    made = metadata_of(cli.path("new.safetensors").read_bytes())
    cli.put("trained.safetensors", file_of(dict(reversed(expected.items())), 0.5, made))
    done = cli("layout undo", "trained.safetensors", "-o", "tuned.safetensors")
    assert done.status == 0, done
    assert_same(state_of(cli.path("tuned.safetensors")), state, 0.5)


def test_a_range_of_what_is_counted(shared):
    """The first experts are the text's, the others the images', which are smaller: as in ERNIE 4.5 VL."""
    new = Numbers()
    state = {f"experts.{e}.w": new(4 if e < 2 else 3, 2) for e in range(5)}

    def stack(first, last, rows):
        return {"op": "concat", "axis": 0, "each": {"e": [first, last]},
                "args": [{"op": "reshape", "shape": [1, rows, 2], "args": ["w"]}]}

    own = {"name": "halves", "parameters": {"text": {"default": 2}},
           "rows": [{"from": {"w": {"name": "experts.{e}.w", "each": {"e": "text + 3"}}},
                     "to": {"text.w": stack(0, "text", 4), "vision.w": stack("text", "text + 3", 3)}}]}
    assert shared.request("PUT", "/v1/layouts/halves", own).status in (200, 201)
    run = applied(shared, checkpoint(shared, file_of(state)), "halves")
    assert run["passes"][0]["refused"] == [], run["passes"][0]
    expected = {"text.w": joined(state["experts.0.w"], state["experts.1.w"]).reshape(2, 4, 2),
                "vision.w": joined(*(state[f"experts.{e}.w"] for e in (2, 3, 4))).reshape(3, 3, 2)}
    assert_same(weights(shared, run["result"]), expected)
    back = shared.post(f"/v1/runs/{run['id']}/reverse", {"graph": checkpoint(shared, file_of(expected, 0.5))})
    assert_same(weights(shared, back.json()["result"]), state, 0.5)
    for wrong in ([0], [0, 1, 2], ["text", "experts"]):
        own["rows"][0]["to"]["text.w"]["each"]["e"] = wrong
        assert shared.request("PUT", "/v1/layouts/halves", own).status == 422


# ---- what is refused --------------------------------------------------------------------------------------------------------


def without(state, *names):
    return {name: array for name, array in state.items() if name not in names}


def with_more(state, module, *names):
    """Beneath a module of every layer, so that nothing can be applied."""
    return {**state, **{f"model.layers.{i}.{module}.{name}": Array([1], [i])
                        for i, name in itertools.product(range(LAYERS), names)}}


def quantised(state, *names):
    """GPTQ's and AWQ's weights of attention: no `weight` is left."""
    kept = {name: array for name, array in state.items()
            if not name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))}
    for module in ("q_proj", "k_proj", "v_proj"):
        kept = with_more(kept, f"self_attn.{module}", *names)
    return kept


def adapters(*modules):
    """As PEFT saves them."""
    state = {}
    for i, module in itertools.product(range(LAYERS), modules):
        for name in ("lora_A", "lora_B"):
            state[f"base_model.model.model.layers.{i}.{module}.{name}.weight"] = Array([1, 2], [i, 1])
    return state


Q = "self_attn.q_proj"
Q0, K0, V0 = (f"model.layers.0.self_attn.{name}_proj.weight" for name in "qkv")
GPTQ, AWQ, FP8 = ("qweight", "qzeros", "scales", "g_idx"), ("qweight", "qzeros", "scales"), ("weight_scale_inv",)
NF4 = ("weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map",
       "weight.quant_state.bitsandbytes__nf4")
ADAPTERS = {
    **{f"qkv-fused, {name}": ("qkv-fused", {}, with_more(llama(), Q, name), "left-behind", f"{Q}.{name}") for name in (
        "lora_A.weight", "lora_A.default.weight", "lora_B.weight", "lora_B.default.weight",
        "lora_magnitude_vector.default.weight", *NF4, "SCB", "weight_scale", *FP8, "input_scale")},
    "llama-cpp-rope, an adapter": ("llama-cpp-rope", {"heads": HEADS, "head_dim": HEAD_DIM},
                                   with_more(llama(), Q, "lora_B.weight"), "left-behind", f"{Q}.lora_B.weight"),
    "llama-cpp-rope, scales": ("llama-cpp-rope", {"heads": HEADS // 2, "head_dim": 2 * HEAD_DIM},
                               {**llama(), **{f"model.layers.{i}.{Q}.weight_scale_inv": Array([4, 2], range(8))
                                              for i in range(LAYERS)}}, "left-behind", f"{Q}.weight_scale_inv"),
    "tensor-parallel, nf4": ("tensor-parallel", {"ranks": 2, **heads(HEADS)}, with_more(llama(), "mlp.down_proj", *NF4),
                             "left-behind", "mlp.down_proj.weight.absmax"),
    "gpt2-conv1d, scales": ("gpt2-conv1d", {}, {**gpt2(), "h.0.mlp.c_fc.weight_scale": Array([1], [1])}, "left-behind",
                            "c_fc.weight_scale"),
    "stacked-experts, an adapter": ("stacked-experts", {"experts": EXPERTS},
                                    with_more(mixture(), "mlp.experts.1.down_proj", "lora_A.weight"), "left-behind",
                                    "experts.1.down_proj.lora_A.weight"),
    "the root": ("qkv-fused", {}, {**{f"{name}_proj.weight": Array([2, 2], range(4)) for name in "qkv"},
                                   "k_proj.weight.absmax": Array([1], [1])}, "left-behind", "k_proj.weight.absmax"),
    "GPTQ": ("phi3", heads(HEADS), quantised(llama(), *GPTQ), "incomplete", f"{Q}.weight is not"),
    "GPTQ with biases": ("qkv-fused", {}, quantised(llama(bias=True), *GPTQ), "left-behind", "self_attn.k_proj.g_idx"),
    "AWQ": ("phi3", heads(HEADS), quantised(llama(), *AWQ), "incomplete", f"{Q}.weight is not"),
    "adapters alone": ("qkv-fused", {}, adapters(Q, "self_attn.v_proj"), "incomplete", f"{Q}.weight is not"),
    "adapters with modules saved whole": ("phi3", heads(HEADS),
                                          {**adapters(Q), **{name: array for name, array in llama().items() if "mlp" in name}},
                                          "incomplete", f"{Q}.weight is not"),
    "a layer below an adapter": ("qkv-fused", {}, {name.replace("_proj.weight", "_proj.base_layer.weight"): array
                                                   for name, array in llama().items()}, "incomplete", f"{Q}.weight is not"),
}
REFUSED = {
    "a half of a row": ("qkv-fused", {}, without(llama(), V0), "incomplete", f"{K0} is there, but {V0} is not"),
    "the first of a row": ("qkv-fused", {}, without(llama(), Q0), "incomplete", f"{Q0} is not"),
    "a bias that stays behind": ("gate-up-fused", {},
                                 {**llama(), "model.layers.0.mlp.up_proj.bias": Array([INNER], range(INNER))}, "left-behind",
                                 "model.layers.0.mlp.up_proj.bias"),
    "a scale that stays behind": ("qkv-fused", {}, {**llama(), "model.layers.0.self_attn.q_proj.weight_scale": Array([], [1])},
                                  "left-behind", "weight_scale"),
    "other columns": ("qkv-fused", {}, {**llama(), K0: Array([8, 4], range(32))}, "shape-mismatch",
                      f"{K0} has 4 elements along dimension 1"),
    "heads that are not those of the model": ("megatron-gqa", heads(2), llama(4), "shape-mismatch", "kv_heads * head_dim = 4"),
    "groups that do not divide": ("megatron-gqa", {"heads": 4, "kv_heads": 3, "head_dim": 2},
                                  {**llama(), K0: Array([6, 8], range(48)), V0: Array([6, 8], range(48))}, "does-not-divide",
                                  "heads / kv_heads"),
    "ranks that the groups do not divide": ("tensor-parallel", {"ranks": 4, "heads": 4, "kv_heads": 3, "head_dim": 2},
                                            {name: Array((6, HIDDEN), range(6 * HIDDEN))
                                             if ".k_proj" in name or ".v_proj" in name else array
                                             for name, array in llama().items()},
                                            "does-not-divide", "copies * kv_heads / ranks"),
    "an odd head": ("llama-cpp-rope", {"heads": 8, "head_dim": 1}, llama(), "does-not-divide", "head_dim / 2"),
    "fewer experts": ("stacked-experts", {"experts": 4}, mixture(), "incomplete", "experts.3.down_proj.weight is not"),
    "more experts": ("stacked-experts", {"experts": 2}, mixture(), "out-of-range", "counts to 1 only"),
    "a name that is taken": ("qkv-fused", {}, {**llama(), "model.layers.0.self_attn.qkv_proj.weight": Array([1], [1])},
                             "name-taken", "qkv_proj.weight"),
}


@pytest.mark.parametrize("case", [*REFUSED, *ADAPTERS])
def test_refused(shared, case):
    layout, params, state, reason, said = {**REFUSED, **ADAPTERS}[case]
    run = applied(shared, checkpoint(shared, file_of(state)), layout, params)
    found = [one for one in run["passes"][0]["refused"] if one["reason"] == reason]
    assert found and any(said in one["detail"] for one in found), run["passes"][0]["refused"]
    # What is refused keeps its names and bytes; what is applied is right all the same.
    kept = weights(shared, run["result"])
    named = [name for name in state if any(name in one["detail"] for one in found)]
    for name in named:
        assert kept[name].values == state[name].values


def dropped(*names):
    return lambda state: without(state, *names)


def joined_by(name):
    return lambda state: {**state, name: Array([1], [1])}


QKV0 = "model.layers.0.self_attn.qkv_proj"
ROPE = ("llama-cpp-rope", heads(2), lambda s: rope(s, 2))
FUSED = ("qkv-fused", {}, lambda s: replaced(s, QKV))
UNDO_REFUSED = {
    "a part that is gone": (*FUSED, dropped(f"{QKV0}.weight"), "changed-module", QKV0),
    "a whole module that is gone": (*FUSED, dropped(f"{QKV0}.weight", f"{QKV0}.bias"), "missing-module", QKV0),
    "all parts gone": (*FUSED, lambda s: llama(2), "missing-module", QKV0),
    "another model": (*FUSED, lambda s: gpt2(), "missing-module", QKV0),
    "an adapter of the fused weight": (*FUSED, joined_by(f"{QKV0}.lora_A.default.weight"), "changed-module", QKV0),
    "the fused weight quantised": (*FUSED, joined_by(f"{QKV0}.weight.absmax"), "changed-module", QKV0),
    "a scale of the fused weight": (*FUSED, joined_by(f"{QKV0}.weight_scale"), "changed-module", QKV0),
    "a part that is there already": (*FUSED, joined_by(Q0), "path-taken", f"model.layers.0.{Q}"),
    "an adapter of permuted rows": (*ROPE, joined_by(f"model.layers.0.{Q}.lora_B.weight"), "changed-module",
                                    f"model.layers.0.{Q}"),
    "a scale of permuted rows": (*ROPE, joined_by(f"model.layers.0.{Q}.weight_scale"), "changed-module", f"model.layers.0.{Q}"),
    "permuted rows that are gone": (*ROPE, dropped(Q0), "changed-module", f"model.layers.0.{Q}"),
    "a permuted bias that is gone": (*ROPE, dropped(f"model.layers.0.{Q}.bias"), "changed-module", f"model.layers.0.{Q}"),
}


@pytest.mark.parametrize("case", UNDO_REFUSED)
def test_undo_refuses_what_does_not_fit(shared, case):
    """Nothing comes back from the store in the place of what is not in the file, and nothing stays that belonged to a part."""
    layout, params, formula, change, code, name = UNDO_REFUSED[case]
    state = llama(2, True)
    run = applied(shared, checkpoint(shared, file_of(state)), layout, params)
    answer = shared.post(f"/v1/runs/{run['id']}/reverse", {"graph": checkpoint(shared, file_of(change(formula(state)), 0.5))})
    assert (answer.status, answer.json()["code"]) == (409, "conflict"), answer.json()
    assert (code, name) in [(one["code"], one["name"]) for one in answer.json()["conflicts"]], answer.json()


def test_undo_leaves_other_tensors_alone(shared):
    state, added = llama(2), {"model.norm.bias": Array([1], [3]), "extra.weight": Array([1], [4])}
    run = applied(shared, checkpoint(shared, file_of(state)), "qkv-fused")
    tuned = without({**replaced(state, QKV), **added}, "model.embed_tokens.weight")
    back = shared.post(f"/v1/runs/{run['id']}/reverse", {"graph": checkpoint(shared, file_of(tuned, 0.5))})
    assert back.status == 201, back.json()
    assert_same(weights(shared, back.json()["result"]), without({**state, **added}, "model.embed_tokens.weight"), 0.5)


def test_dtypes_that_differ(shared):
    state = {name: ("float32", array.shape, files.floats(array.values)) for name, array in llama().items()}
    state[K0] = ("float16", (8, 8), bytes(128))
    run = applied(shared, checkpoint(shared, files.file_of(state)), "qkv-fused")
    assert [one["reason"] for one in run["passes"][0]["refused"]] == ["dtype-mismatch"]
    assert run["passes"][0]["applied"] == LAYERS - 1


def test_a_row_that_matches_nothing(shared):
    run = applied(shared, checkpoint(shared, file_of(gpt2())), "qkv-fused")
    assert [(one["reason"], run["result"] == run["source"]) for one in run["passes"][0]["refused"]] == [("unmatched", True)]


def test_a_graph_that_computes(shared):
    run = applied(shared, json.loads(documents.document("toy")), "qkv-fused")
    assert [one["reason"] for one in run["passes"][0]["refused"]] == ["not-a-checkpoint"]


@pytest.mark.parametrize("params, code", [({}, "missing-parameter"), ({"heads": 0, "head_dim": 2}, "bad-parameter"),
                                          ({"heads": "4", "head_dim": 2}, "wrong-type"),
                                          ({"heads": 4, "head_dim": 2, "groups": 1}, "unknown-parameter")])
def test_parameters(shared, params, code):
    graph = checkpoint(shared, file_of(llama()))
    answer = shared.post("/v1/optimize", {"graph": graph, "passes": [{"name": "megatron-gqa", "params": params}]})
    assert (answer.status, answer.json()["code"]) == (422, code)
    assert answer.json()["pointer"].startswith("/passes/0/params")


# ---- layouts of your own ----------------------------------------------------------------------------------------------------


KV_FUSED = {"name": "kv-fused", "rows": [{"from": {"k": "{*block}k_proj.weight", "v": "{*block}v_proj.weight"},
                                          "to": {"{*block}kv_proj.weight": {"op": "concat", "axis": 0, "args": ["k", "v"]}}}]}


def layout(name="own", **members):
    return {"name": name, "rows": [{"from": {"w": "{*block}w"}, "to": {"{*block}moved": "w"}}], **members}


def row(**members):
    return {"rows": [{"from": {"w": "{*block}w", "v": "{*block}v"},
                      "to": {"{*block}moved": {"op": "concat", "axis": 0, "args": ["w", "v"]}}, **members}]}


WRONG = {
    "no rows": ({"rows": []}, "wrong-type", "/rows"),
    "an unknown member": ({"row": []}, "unknown-member", "/row"),
    "another name than the path": ({"name": "other"}, "bad-name", "/name"),
    "a parameter of no name": ({"parameters": {"2": {}}}, "bad-name", "/parameters/2"),
    "defaults in a circle": ({"parameters": {"a": {"default": "b"}, "b": {"default": "a"}}}, "bad-expression",
                             "/parameters/a/default"),
    "an unread tensor": (row(to={"{*block}moved": "w"}), "unread-tensor", "/rows/0/to"),
    "a capture that nothing binds": (row(to={"{*other}moved": {"op": "concat", "axis": 0, "args": ["w", "v"]}}),
                                     "unbound-capture", "/rows/0/to/{*other}moved"),
    "captures that differ": (row(**{"from": {"w": "{*block}w", "v": "{i}.v"}}), "unbound-capture", "/rows/0/from/v"),
    "captures side by side": (row(**{"from": {"w": "{a}{b}.w"}}), "bad-pattern", "/rows/0/from/w"),
    "two captures with stars": (row(**{"from": {"w": "{*a}x.{*b}w"}}), "bad-pattern", "/rows/0/from/w"),
    "an open brace": (row(**{"from": {"w": "{a.w"}}), "bad-pattern", "/rows/0/from/w"),
    "an unknown tensor": (row(to={"{*block}moved": {"op": "concat", "axis": 0, "args": ["w", "u"]}}), "unknown-tensor",
                          "/rows/0/to/{*block}moved/args/1"),
    "an operation that computes": (row(to={"{*block}moved": {"op": "add", "args": ["w", "v"]}}), "bad-recipe",
                                   "/rows/0/to/{*block}moved"),
    "no axis": (row(to={"{*block}moved": {"op": "concat", "args": ["w", "v"]}}), "missing-member",
                "/rows/0/to/{*block}moved/axis"),
    "an unknown size": (row(to={"{*block}moved": {"op": "concat", "axis": "rows", "args": ["w", "v"]}}), "bad-expression",
                        "/rows/0/to/{*block}moved/axis"),
    "many tensors as one": (row(**{"from": {"w": {"name": "{*block}{e}.w", "each": {"e": "2"}}, "v": "{*block}v"}}),
                            "bad-recipe", "/rows/0/to/{*block}moved/args/0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_layouts(shared, case):
    members, code, pointer = WRONG[case]
    answer = shared.request("PUT", "/v1/layouts/own", {**layout(), **members})
    assert (answer.status, answer.json()["code"]) == (422, code), answer.json()
    assert answer.json()["pointer"].replace("~1", "/") == pointer, answer.json()


def test_versions(service):
    assert service.get("/v1/layouts/own").status == 404
    first = service.request("PUT", "/v1/layouts/own", layout())
    assert (first.status, first.json()["version"], first.headers["location"]) == (201, 1, "/v1/layouts/own/versions/1")
    assert service.request("PUT", "/v1/layouts/own", layout()).status == 200
    second = service.request("PUT", "/v1/layouts/own", layout(description="as before"))
    assert (second.status, second.json()["version"]) == (201, 2)
    assert [one["version"] for one in service.get("/v1/layouts/own/versions").json()["items"]] == [2, 1]
    assert service.get("/v1/layouts/own/versions/1").json()["layout"] == layout()
    assert service.get("/v1/layouts/own/versions/3").json()["code"] == "unknown-version"
    assert service.get("/v1/transformations").json()["items"] == []
    run = applied(service, checkpoint(service, file_of({"a.w": Array([2], [1, 2])})), "own")
    assert set(weights(service, run["result"])) == {"a.moved"}


def test_names_are_shared_by_all_passes(service):
    for name in ("MergeLinears", "qkv-fused", "inference"):
        assert service.request("PUT", f"/v1/layouts/{name}", layout(name)).json()["code"] == "name-taken-by-pass"
    service.request("PUT", "/v1/layouts/Double", layout("Double"))
    rule = {"name": "Double", "pattern": {"op": "mul", "args": ["?x", 2], "as": "?y"},
            "replacement": {"?y": {"op": "add", "args": ["?x", "?x"]}}, "exactness": "rounds"}
    answer = service.post("/v1/transformations", rule)
    assert answer.status == 422, answer.json()
    assert service.get("/v1/transformations/Double").json()["code"] == "unknown-transformation"


def test_only_the_layout_that_is_named_is_looked_up(service):
    applied(service, checkpoint(service, file_of(llama())), "gate-up-fused")
    assert service.sql("SELECT name FROM rules") == [["gate-up-fused"]]
    assert len(service.get("/v1/layouts").json()["items"]) == 16


def test_numbers_that_are_left_out_are_told(service):
    service.request("PUT", "/v1/layouts/half",
                    layout("half",
                           rows=[{"from": {"w": "{*block}w"},
                                  "to": {"{*block}w": {"op": "slice", "axis": 0, "start": 0, "stop": "w.shape[0] / 2",
                                                       "args": ["w"]}}}]))
    run = applied(service, checkpoint(service, file_of({"a.w": Array([4], [1, 2, 3, 4])})), "half")
    assert run["passes"][0]["layout"] == {"rows": [{"applied": 1, "refused": 0, "reversible": False}], "kept": 0}
    assert service.post(f"/v1/runs/{run['id']}/reverse", {}).json()["exact"]


def test_layouts_one_after_the_other(service):
    state = llama(2)
    source = checkpoint(service, file_of(state))
    run = applied(service, source, "llama-cpp-rope", heads(2))
    both = applied(service, run["result"], "qkv-fused")
    assert all(one["reversible"] for one in both["passes"][0]["layout"]["rows"])
    assert_same(weights(service, both["result"]), replaced(rope(state, 2), QKV))
    trained = checkpoint(service, file_of(weights(service, both["result"]), 1.0))
    back = service.post(f"/v1/runs/{both['id']}/reverse", {"graph": trained}).json()
    again = service.post(f"/v1/runs/{run['id']}/reverse", {"graph": back["result"]})
    assert again.status == 201, again.json()
    assert_same(weights(service, again.json()["result"]), state, 1.0)


# ---- checkpoints ------------------------------------------------------------------------------------------------------------


def test_shards_and_their_index(service):
    state = llama()
    names = list(state)
    shards = {f"model-{i + 1}.safetensors": {name: state[name] for name in names[i::2]} for i in range(2)}
    index = json.dumps({"weight_map": {name: shard for shard, held in shards.items() for name in held}}).encode()
    graph = checkpoint(service, *map(file_of, shards.values()), index)
    assert_same(weights(service, graph), state)
    answer = service.post("/v1/checkpoints",
                          {"weights": [blobs.stored(service, one) for one in (file_of(shards["model-1.safetensors"]), index)]})
    assert (answer.status, answer.json()["code"]) == (422, "bad-checkpoint")


def test_bad_checkpoints(service):
    one = file_of({"a": Array([1], [1])})
    digest = blobs.stored(service, one)
    other = blobs.stored(service, file_of({"a": Array([1], [2])}))
    cases = [
        ({}, 422, "missing-member"), ({"weights": []}, 422, "bad-checkpoint"), ({"weights": digest}, 422, "wrong-type"),
        ({"weights": ["a"]}, 422, "bad-digest"),
        ({"weights": ["sha256:" + "0" * 64]}, 409, "blob-missing"),
        ({"weights": [blobs.stored(service, b"something else")]}, 422, "bad-safetensors"),
        ({"weights": [digest, other]}, 422, "bad-checkpoint"), ({"weights": [digest], "file": "a"}, 422, "unknown-member"),
    ]
    for body, status, code in cases:
        answer = service.post("/v1/checkpoints", body)
        assert (answer.status, answer.json()["code"]) == (status, code), (body, answer.json())


def test_the_file_comes_back_byte_for_byte(service):
    content = file_of(llama(), metadata={"format": "pt"})
    graph = checkpoint(service, content)
    assert service.get(f"/v1/graphs/{graph}/weights").body == content


TIES = {"lm_head.weight": "model.embed_tokens.weight", "format": "pt"}
EMBEDDING = {"renamed": {"tok.weight": "e"}, "consumed": {"tok.weight": {"op": "permute", "dims": [1, 0], "args": ["e"]}}}


def metadata_of(content):
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]


def test_a_note_of_a_tie_stays_where_no_row_reads_the_tensor(service):
    content = file_of(llama(), metadata=TIES)
    graph = checkpoint(service, content)
    assert service.get(f"/v1/graphs/{graph}/weights").body == content
    done = applied(service, graph, "qkv-fused")
    assert done["passes"][0]["refused"] == [] and done["passes"][0]["applied"] == LAYERS
    assert metadata_of(service.get(f"/v1/graphs/{done['result']}/weights").body).items() >= TIES.items()


@pytest.mark.parametrize("to", EMBEDDING)
def test_a_tensor_with_a_note_of_a_tie_is_refused(service, to):
    """The note would name a tensor that is not there, and no row says what becomes of the other name."""
    rows = [{"from": {"e": "model.embed_tokens.weight"}, "to": EMBEDDING[to]}]
    assert service.request("PUT", "/v1/layouts/own", layout(rows=rows)).status == 201
    for ties in (TIES, {"model.embed_tokens.weight": "lm_head.weight"}):
        (refused,) = applied(service, checkpoint(service, file_of(llama(), metadata=ties)), "own")["passes"][0]["refused"]
        assert refused["reason"] == "tied", refused
        assert "lm_head.weight" in refused["detail"] and "model.embed_tokens.weight" in refused["detail"], refused
    report = applied(service, checkpoint(service, file_of(llama(), metadata={"format": "pt"})), "own")["passes"][0]
    assert (report["applied"], report["refused"]) == (1, [])


# ---- the command line -------------------------------------------------------------------------------------------------------


@pytest.fixture
def cli(tmp_path):
    return CommandLine(tmp_path)


CONFIG = {"num_attention_heads": HEADS, "num_key_value_heads": 2, "hidden_size": HIDDEN, "num_local_experts": EXPERTS}


def state_of(path):
    return {name: Array(shape, files.numbers(part)) for name, (_, shape, part) in files.tensors_of(path.read_bytes()).items()}


@pytest.mark.parametrize("case", [case for case in CASES if not ("megatron" in case and "grouped" not in case)])
def test_there_and_back(cli, case):
    name, params, state, formula = CASES[case]
    cli.put("model.safetensors", file_of(state, metadata={"format": "pt"}))
    settings = [word for key, value in params.items() for word in ("--set", f"{key}={value}")]
    done = cli("layout apply", name, "model.safetensors", "-o", "new.safetensors", *settings)
    assert done.status == 0, done
    assert_same(state_of(cli.path("new.safetensors")), formula(state))
    assert cli("layout undo", "new.safetensors", "-o", "back.safetensors").status == 0
    assert_same(state_of(cli.path("back.safetensors")), state)
    # Another program has written the trained file: it says nothing of its own.
    cli.put("trained.safetensors", file_of(formula(state), 0.5))
    unknown = cli("layout undo", "trained.safetensors", "-o", "tuned.safetensors")
    assert unknown.status != 0 and "--run" in unknown.err and not cli.path("tuned.safetensors").exists(), unknown
    assert cli("layout undo", "trained.safetensors", "-o", "tuned.safetensors", "--run", done.json()["id"]).status == 0
    assert_same(state_of(cli.path("tuned.safetensors")), state, 0.5)


def scaled(state, factor):
    return {name: Array(array.shape, [value * factor for value in array.values]) for name, array in state.items()}


def retrain(cli, old, new, factor):
    """Doubles the numbers of a file, and keeps what it says of itself."""
    data = cli.path(old).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    cli.put(new, data[:start] + files.floats([value * factor for value in files.numbers(data[start:])]))


FIRST = {"qkv-fused": FUSED, "llama-cpp-rope": ROPE, "gate-up-fused": ("gate-up-fused", {}, lambda s: replaced(s, GATE_UP))}


@pytest.mark.parametrize("factor", [1, 2])
@pytest.mark.parametrize("names", [("qkv-fused", "gate-up-fused"), ("llama-cpp-rope", "qkv-fused"),
                                   ("gate-up-fused", "llama-cpp-rope")], ids=", ".join)
def test_one_after_the_other_and_back(cli, names, factor):
    """undo takes the newest layout away, and the next undo the one before it; then nothing is left."""
    states = [llama(2, True)]
    cli.put("0", file_of(states[0]))
    for i, layout in enumerate(names):
        _, params, formula = FIRST[layout]
        states.append(formula(states[-1]))
        settings = [word for key, value in params.items() for word in ("--set", f"{key}={value}")]
        assert cli("layout apply", layout, str(i), "-o", str(i + 1), *settings).status == 0
    runs = [run["id"] for run in cli("run list").json()["items"]]
    retrain(cli, "2", "2t", factor)
    for i, run in enumerate(runs):
        done = cli("layout undo", f"{2 - i}t", "-o", f"{1 - i}t")
        assert done.status == 0 and done.json()["of_run"] == run, done
        assert_same(state_of(cli.path(f"{1 - i}t")), scaled(states[1 - i], factor))
    last = cli("layout undo", "0t", "-o", "more")
    assert last.status != 0 and "--run" in last.err and not cli.path("more").exists(), last
    # And from there on forwards again.
    layout, params, formula = FIRST["gate-up-fused"]
    again = cli("layout apply", layout, "0t", "-o", "1a")
    assert again.status == 0, again
    assert_same(state_of(cli.path("1a")), scaled(formula(states[0]), factor))
    assert cli("layout undo", "1a", "-o", "0a").status == 0
    assert_same(state_of(cli.path("0a")), scaled(states[0], factor))


def test_shards_of_different_graphs(cli):
    """Neither is believed."""
    for name, layout in (("a", "qkv-fused"), ("b", "gate-up-fused")):
        cli.put(f"{name}.safetensors", file_of({f"{name}.{key}": array for key, array in llama().items()}))
        assert cli("layout apply", layout, f"{name}.safetensors", "-o", f"{name}.new").status == 0
    done = cli("layout undo", "a.new", "b.new", "-o", "back")
    assert done.status != 0 and "a.new says" in done.err and "b.new that" in done.err and not cli.path("back").exists(), done


def test_a_folder_is_not_written_over(cli):
    """Refused before anything is stored."""
    cli.put("model.safetensors", file_of(llama()))
    cli.path("hf").mkdir()
    done = cli("layout apply", "qkv-fused", "model.safetensors", "-o", "hf")
    assert done.status == 1 and "hf is a folder; name a file in it" in done.err, done
    assert not cli.path(".foldback").exists()


@pytest.mark.parametrize("limit", [None, 400])
@pytest.mark.parametrize("names_run", [False, True])
def test_undo_of_an_untouched_file_gives_the_file(cli, limit, names_run):
    """Byte for byte, with what its header says; also of shards, and of a file that another program has written."""
    cli.put("model.safetensors", file_of(llama(2, True), metadata={"format": "pt", "step": "7"}))
    shards = () if limit is None else ("--shard-size", limit)
    run = cli("layout apply", "qkv-fused", "model.safetensors", "-o", "new.safetensors", *shards).json()
    name = "new.safetensors" if limit is None else "new.safetensors.index.json"
    if names_run and limit is None:
        cli.put(name, file_of(state_of(cli.path(name))))  # without metadata
    done = cli("layout undo", name, "-o", "back.safetensors", *(("--run", run["id"]) if names_run else ()))
    assert done.status == 0 and done.json()["exact"] is True and done.json()["result"] == run["source"], done
    assert cli.path("back.safetensors").read_bytes() == cli.path("model.safetensors").read_bytes()


def test_undo_of_untouched_shards_one_layout_after_the_other(cli):
    """Of shards, each undo gives the checkpoint before it, exactly, and the next one goes on from there."""
    first = llama(2, True)
    cli.put("0.safetensors", file_of(first))
    name = "{}.safetensors.index.json".format
    for i, layout in enumerate(("gate-up-fused", "qkv-fused")):
        source = name(i) if i else "0.safetensors"
        assert cli("layout apply", layout, source, "-o", f"{i + 1}.safetensors", "--shard-size", 400).status == 0
    one = read_shards(cli, "1")[0]
    done = cli("layout undo", name(2), "-o", "back1.safetensors", "--shard-size", 400)
    assert done.status == 0 and done.json()["exact"] is True, done
    assert_same(read_shards(cli, "back1")[0], one)
    done = cli("layout undo", name("back1"), "-o", "back0.safetensors")
    assert done.status == 0, done
    assert_same(state_of(cli.path("back0.safetensors")), first)


CHANGED = {
    "one number": lambda s: {**s, "model.norm.weight": Array([2], [1.5, 2])},
    "a tensor more": lambda s: {**s, "extra.weight": Array([1], [1])},
    "a tensor less": dropped("model.norm.weight"),
    "another shape": lambda s: {**s, "model.norm.weight": Array([1, 2], s["model.norm.weight"].values)},
}


@pytest.mark.parametrize("case", CHANGED)
def test_undo_of_a_changed_file_is_not_exact(cli, case):
    cli.put("model.safetensors", file_of({**llama(), "model.norm.weight": Array([2], [1, 2])}))
    run = cli("layout apply", "qkv-fused", "model.safetensors", "-o", "new").json()["id"]
    changed = CHANGED[case](state_of(cli.path("new")))
    cli.put("tuned", file_of(changed))
    done = cli("layout undo", "tuned", "-o", "back", "--run", run)
    assert done.status == 0 and done.json()["exact"] is False, done
    kept = {name: array for name, array in changed.items() if "qkv_proj" not in name}
    back = state_of(cli.path("back"))
    assert_same({name: back[name] for name in kept}, kept)


def test_undo_of_files_of_the_store(cli):
    state = llama()
    cli.put("model.safetensors", file_of(state))
    assert cli("layout apply", "qkv-fused", "model.safetensors", "-o", "new").status == 0
    digest = cli("upload", "new").json()["items"][0]["digest"]
    done = cli("layout undo", digest, "-o", "back")
    assert done.status == 0, done
    assert_same(state_of(cli.path("back")), state)


def test_undo_of_files_that_are_broken(cli):
    cli.put("model.safetensors", b"\x08\0\0\0\0\0\0\0{broken}")
    done = cli("layout undo", "model.safetensors", "-o", "back")
    assert done.status != 0 and "model.safetensors: " in done.err and "--run" not in done.err, done


def test_undo_of_an_index(cli):
    state = llama()
    fused = replaced(state, QKV)
    cli.put("model.safetensors", file_of(state))
    run = cli("layout apply", "qkv-fused", "model.safetensors", "-o", "new").json()
    names = list(fused)
    for i in range(2):
        cli.put(f"new-{i + 1}.safetensors",
                file_of({name: fused[name] for name in names[i::2]}, 0.5, {"foldback.graph": run["result"]}))
    cli.put("new.safetensors.index.json",
            {"weight_map": {name: f"new-{i % 2 + 1}.safetensors" for i, name in enumerate(names)}})
    done = cli("layout undo", "new.safetensors.index.json", "-o", "back")
    assert done.status == 0, done
    assert_same(state_of(cli.path("back")), state, 0.5)


def test_which_of_several_runs_is_not_guessed(cli):
    """One graph, made of two others; and one that was made twice of the same."""
    cli.put("model.safetensors", file_of(llama()))
    one = cli("layout apply", "qkv-fused", "model.safetensors", "-o", "new").json()
    assert cli("layout apply", "qkv-fused", "model.safetensors", "-o", "new", "--force").json()["result"] == one["result"]
    assert cli("layout undo", "new", "-o", "back").status == 0
    both = cli("optimize", one["source"], "-p", "qkv-fused", "-p", "gate-up-fused").json()
    assert cli("optimize", one["result"], "-p", "gate-up-fused").json()["result"] == both["result"]
    assert cli("weights", both["result"], "-o", "both").status == 0
    done = cli("layout undo", "both", "-o", "more")
    assert done.status != 0 and "different runs" in done.err and both["id"] in done.err and not cli.path("more").exists(), done
    assert cli("layout undo", "both", "-o", "more", "--run", both["id"]).status == 0
    assert_same(state_of(cli.path("more")), llama())


@pytest.mark.heavy
def test_the_oldest_of_many_runs_counts(service):
    graph = checkpoint(service,
                       file_of({"q_proj.weight": Array([2, 2], range(4)),
                                **{f"{name}_proj.weight": Array([2, 2], range(4)) for name in "kv"},
                                "mlp.gate_proj.weight": Array([1, 1], [1]), "mlp.up_proj.weight": Array([1, 1], [2])}))
    one = applied(service, graph, "qkv-fused")
    both = service.post("/v1/optimize", {"graph": graph, "passes": ["qkv-fused", "gate-up-fused"]}).json()
    for _ in range(1001):
        again = applied(service, one["result"], "gate-up-fused")
    assert again["result"] == both["result"]
    answer = service.post("/v1/reverse", {"graph": both["result"]})
    assert (answer.status, answer.json()["code"]) == (409,
                                                      "ambiguous-run") and both["id"] in answer.json()["runs"], answer.json()


def test_what_cannot_be_written_is_not_told_as_done(cli):
    cli.put("model.safetensors", file_of(llama()))
    done = cli("layout apply", "qkv-fused", "model.safetensors", "-o", "missing/new")
    assert done.status == 1 and done.out == "" and "cannot write missing/new: No such file" in done.err, done
    assert not cli.path(".foldback").exists()  # found out before anything is stored
    assert cli("layout apply", "qkv-fused", "model.safetensors", "-o", "new").status == 0
    done = cli("layout undo", "new", "-o", "missing/back")
    assert done.status == 1 and done.out == "" and "cannot write missing/back: No such file" in done.err, done
    assert len(cli("run list").json()["items"]) == 1


def assert_as_the_store_writes(cli, done, name):
    """What `layout apply` wrote ahead is what the store writes of the graph."""
    assert done.status == 0, done
    assert cli("weights", done.json()["result"], "-o", "stored.safetensors", "--force").status == 0
    assert cli.path(name).read_bytes() == cli.path("stored.safetensors").read_bytes()


def test_several_files_with_metadata_of_their_own(cli):
    state = llama()
    parts = ("self_attn", "mlp", "norm", "embed")
    for i, part in enumerate(parts):
        some = {name: array for name, array in state.items() if part in name}
        cli.put(f"{part}.safetensors", file_of(some, metadata={"format": "pt", f"key{i}": "x" * i}))
    names = [f"{part}.safetensors" for part in parts]
    for turn in range(4):
        done = cli("layout", "apply", "qkv-fused", *names[turn:], *names[:turn], "-o", f"new{turn}.safetensors")
        assert_as_the_store_writes(cli, done, f"new{turn}.safetensors")
        assert_same(state_of(cli.path(f"new{turn}.safetensors")), replaced(state, QKV))


def test_a_file_that_changes_meanwhile(cli):
    """Its time does, over and over: so what was read ahead counts for nothing, and the store's bytes are written."""
    values = range(1 << 20)
    cli.put("model.safetensors", file_of({f"{name}_proj.weight": Array((1 << 10, 1 << 10), values) for name in "qkv"}))
    stop = threading.Event()

    def touch():
        while not stop.is_set():
            os.utime(cli.path("model.safetensors"))

    thread = threading.Thread(target=touch)
    thread.start()
    try:
        done = cli("layout", "apply", "qkv-fused", "model.safetensors", "-o", "new.safetensors")
    finally:
        stop.set()
        thread.join()
    assert_as_the_store_writes(cli, done, "new.safetensors")


def test_parameters_from_a_config(cli):
    cli.put("model.safetensors", file_of(llama(2)))
    cli.put("config.json", CONFIG)
    missing = cli("layout apply", "megatron-gqa", "model.safetensors", "-o", "new.safetensors")
    assert missing.status != 0 and "--config" in missing.err and "--set head_dim=" in missing.err, missing
    done = cli("layout apply", "megatron-gqa", "model.safetensors", "-o", "new.safetensors", "--config", "config.json")
    assert done.json()["passes"][0]["params"] == heads(2)
    assert_same(state_of(cli.path("new.safetensors")), megatron(llama(2), 2))


def test_what_is_refused_leaves_no_file_and_no_run(cli):
    cli.put("model.safetensors", file_of(without(llama(), V0)))
    done = cli("layout apply", "qkv-fused", "model.safetensors", "-o", "new.safetensors")
    assert done.status != 0 and "incomplete" in done.err and V0 in done.err, done
    assert not cli.path("new.safetensors").exists()
    assert cli("run list").json()["items"] == []


@pytest.mark.parametrize("case", ADAPTERS)
def test_a_weight_does_not_go_without_what_belongs_to_it(cli, case):
    layout, params, state, reason, said = ADAPTERS[case]
    cli.put("model.safetensors", file_of(state))
    settings = [word for key, value in params.items() for word in ("--set", f"{key}={value}")]
    done = cli("layout apply", layout, "model.safetensors", "-o", "new.safetensors", *settings)
    assert done.status != 0 and reason in done.err and said in done.err and not cli.path("new.safetensors").exists(), done


def test_a_layout_that_fits_nothing(cli):
    """It says which names it looked for."""
    cli.put("model.safetensors", file_of(gpt2()))
    for layout, names in (("qkv-fused", ("{*block}k_proj.weight", "{*block}key.bias", "{*block}k.weight")),
                          ("gate-up-fused", ("{*block}gate_proj.weight",)),
                          ("stacked-experts", ("{*block}mlp.experts.{e}.down_proj.weight",))):
        settings = ("--set", "experts=3") if layout == "stacked-experts" else ()
        done = cli("layout apply", layout, "model.safetensors", "-o", "new.safetensors", *settings)
        assert done.status != 0 and "fits no tensor" in done.err and not cli.path("new.safetensors").exists(), done
        assert all(name in done.err for name in names), done


def test_strict(cli):
    state = llama()
    own = {"name": "own", "rows": [{"from": {"w": "{*block}q_proj.weight"}, "to": {"{*block}query.weight": "w"}},
                                   {"from": {"w": "{*block}missing"}, "to": {"{*block}there": "w"}}]}
    cli.put("model.safetensors", file_of(state))
    assert cli("layout put", cli.put("own.json", own)).status == 0
    done = cli("layout apply", "own", "model.safetensors", "-o", "new.safetensors", "--strict")
    assert done.status != 0 and "unmatched" in done.err and not cli.path("new.safetensors").exists(), done
    assert cli("layout apply", "own", "model.safetensors", "-o", "new.safetensors").status == 0


def test_strict_refuses_what_could_not_be_undone(cli):
    half = {"name": "half", "rows": [{"from": {"w": "{*block}w"},
                                      "to": {"{*block}w": {"op": "slice", "axis": 0, "start": 0, "stop": 1, "args": ["w"]}}}]}
    cli.put("model.safetensors", file_of({"a.w": Array([2], [1, 2])}))
    assert cli("layout put", cli.put("half.json", half)).status == 0
    done = cli("layout apply", "half", "model.safetensors", "-o", "new", "--strict")
    assert done.status != 0 and "row 0 leaves numbers out" in done.err and not cli.path("new").exists(), done
    assert cli("run list").json()["items"] == []
    assert cli("layout apply", "half", "model.safetensors", "-o", "new").status == 0


STRICT = {
    "one more": (lambda s: {**s, "extra.weight": Array([1], [1])}, "extra.weight is in the file"),
    "one less": (dropped("model.norm.weight"), "model.norm.weight was made by the run"),
    "another shape": (lambda s: {**s, "model.norm.weight": Array([2], [1, 2])}, "model.norm.weight was made by the run"),
}


@pytest.mark.parametrize("case", STRICT)
def test_strict_undo(cli, case):
    change, said = STRICT[case]
    state = llama()
    cli.put("model.safetensors", file_of(state))
    run = cli("layout apply", "qkv-fused", "model.safetensors", "-o", "new").json()["id"]
    cli.put("tuned", file_of(change(replaced(state, QKV)), 0.5))
    done = cli("layout undo", "tuned", "-o", "back", "--run", run, "--strict")
    assert done.status != 0 and said in done.err and "nothing was written" in done.err and not cli.path("back").exists(), done
    assert cli("layout undo", "tuned", "-o", "back", "--run", run).status == 0
    cli.put("tuned", file_of(replaced(state, QKV), 0.5))
    assert cli("layout undo", "tuned", "-o", "back", "--run", run, "--strict", "--force").status == 0
    assert_same(state_of(cli.path("back")), state, 0.5)


def test_a_dry_run_stores_nothing(cli):
    cli.put("model.safetensors", file_of(llama()))
    shown = cli.on_terminal("layout", "apply", "qkv-fused", "model.safetensors", "--dry-run", width=100)
    assert shown.status == 0 and "nothing was stored" in shown.out and "qkv_proj.weight" in shown.out, shown
    assert (cli("run list").json()["items"] == [] and cli("graph list").json()["items"] == []
            and cli("blob list").json()["items"] == [])


def test_an_index_of_shards(cli):
    state = llama()
    names = list(state)
    for i in range(2):
        cli.put(f"model-{i + 1}.safetensors", file_of({name: state[name] for name in names[i::2]}))
    cli.put("model.safetensors.index.json",
            {"weight_map": {name: f"model-{i % 2 + 1}.safetensors" for i, name in enumerate(names)}})
    done = cli("layout apply", "qkv-fused", "model.safetensors.index.json", "-o", "new.safetensors")
    assert_as_the_store_writes(cli, done, "new.safetensors")
    assert_same(state_of(cli.path("new.safetensors")), replaced(state, QKV))


# ---- shards -----------------------------------------------------------------------------------------------------------------


def read_shards(cli, name):
    """The state, and each shard's; names and index are those of Hugging Face's libraries."""
    index = json.loads(cli.path(f"{name}.safetensors.index.json").read_text())
    shards = sorted(set(index["weight_map"].values()))
    assert shards == [f"{name}-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    states = {shard: state_of(cli.path(shard)) for shard in shards}
    assert index["weight_map"] == {key: shard for shard in shards for key in states[shard]}
    assert index["metadata"] == {"total_size": sum(4 * len(array.values) for state in states.values()
                                                   for array in state.values())}
    return {key: array for state in states.values() for key, array in state.items()}, list(states.values())


def shards_of(cli, *more):
    return cli("layout apply", "qkv-fused", "model.safetensors", "-o", "new.safetensors", "--force", *more)


@pytest.mark.parametrize("limit", [1, 400, 1000])
def test_shards_there_and_back(cli, limit):
    state = llama(2, True)
    cli.put("model.safetensors", file_of(state, metadata={"format": "pt"}))
    assert shards_of(cli, "--shard-size", limit).status == 0
    whole, shards = read_shards(cli, "new")
    assert_same(whole, replaced(state, QKV))
    assert all(len(shard) == 1 or sum(4 * len(array.values) for array in shard.values()) <= limit for shard in shards)
    assert not list(cli.folder.glob("*.part")) and len(list(cli.folder.glob("new*"))) == len(shards) + 1
    assert cli("layout undo", "new.safetensors.index.json", "-o", "back.safetensors", "--shard-size", limit).status == 0
    assert_same(read_shards(cli, "back")[0], state)
    # Another time onto the same names, and then as one file.
    assert shards_of(cli, "--shard-size", limit).status == 0
    one = shards_of(cli, "--shard-size", "1GB")
    assert one.status != 0 and "index.json is there" in one.err and not cli.path("new.safetensors").exists(), one


def test_one_shard_is_a_file(cli):
    state = llama()
    cli.put("model.safetensors", file_of(state))
    for size in ("1GB", "1GiB", "1M"):
        assert shards_of(cli, "--shard-size", size).status == 0
        assert_same(state_of(cli.path("new.safetensors")), replaced(state, QKV))
    assert [path.name for path in cli.folder.glob("new*")] == ["new.safetensors"]
    many = shards_of(cli, "--shard-size", "400")
    assert (many.status != 0 and "new.safetensors is there" in many.err
            and [path.name for path in cli.folder.glob("new*")] == ["new.safetensors"]), many


def test_shards_of_an_older_count_go(cli):
    """Those that the old index names, and no others."""
    state = llama()
    cli.put("model.safetensors", file_of(state))
    assert shards_of(cli, "--shard-size", "400").status == 0
    cli.put("new-00001-of-00099.safetensors", b"not of the index")
    cli.put("news-00001-of-00002.safetensors", b"another model's")
    before = {path.name for path in cli.folder.glob("new-*")}
    assert shards_of(cli, "--shard-size", "1000").status == 0
    whole, shards = read_shards(cli, "new")
    assert_same(whole, replaced(state, QKV))
    after = {path.name for path in cli.folder.glob("new-*")}
    assert len(after) == len(shards) + 1 < len(before) and "new-00001-of-00099.safetensors" in after
    assert cli.path("news-00001-of-00002.safetensors").exists()
    # An index that names something else is no reason to remove it.
    index = json.loads(cli.path("new.safetensors.index.json").read_bytes())
    index["weight_map"].update({"a": "../outside-00001-of-00002.safetensors", "b": "model.safetensors",
                                "c": "new-1-of-2.safetensors", "d": 1})
    cli.put("new.safetensors.index.json", index)
    assert shards_of(cli, "--shard-size", "400").status == 0
    assert cli.path("model.safetensors").exists()


def test_shards_from_a_service_elsewhere(service, tmp_path):
    remote = CommandLine(tmp_path, "--server", service.url)
    state = llama(2, True)
    remote.put("model.safetensors", file_of(state))
    assert shards_of(remote, "--shard-size", "400").status == 0
    whole, shards = read_shards(remote, "new")
    assert_same(whole, replaced(state, QKV))
    assert len(shards) > 3
    assert remote("layout undo", "new.safetensors.index.json", "-o", "back.safetensors", "--shard-size", "400").status == 0
    assert_same(read_shards(remote, "back")[0], state)


@pytest.mark.parametrize("blocked", ["new-00002-of-00005.safetensors.part", "new.safetensors.index.json.part"])
def test_all_shards_or_none(cli, blocked):
    cli.put("model.safetensors", file_of(llama()))
    cli.path(blocked).mkdir()
    done = shards_of(cli, "--shard-size", "1000")
    assert done.status != 0 and blocked in done.err and "run_" in done.err and done.out == "", done
    assert [path.name for path in cli.folder.glob("new*")] == [blocked]
    cli.path(blocked).rmdir()
    assert shards_of(cli, "--shard-size", "1000").status == 0
    assert len(read_shards(cli, "new")[1]) == 5


@pytest.mark.parametrize("written", ["new-00002-of-00005.safetensors.part", "new.safetensors.index.json.part"])
def test_shards_that_another_foldback_writes(cli, written):
    cli.put("model.safetensors", file_of(llama()))
    cli.path(written).write_bytes(b"theirs")
    with open(cli.path(written), "rb") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        done = shards_of(cli, "--shard-size", "1000")
        assert done.status != 0 and "is being written by another foldback" in done.err, done
        assert [path.name for path in cli.folder.glob("new*")] == [written] and cli.path(written).read_bytes() == b"theirs"
    assert shards_of(cli, "--shard-size", "1000").status == 0


@pytest.mark.parametrize("words", [("--shard-size", "0"), ("--shard-size", "5XB"), ("--shard-size", "5BB"),
                                   ("--shard-size", "400", "-o", "new"), ("--shard-size", "400", "-o", "-")])
def test_wrong_shards(cli, words):
    cli.put("model.safetensors", file_of(llama()))
    done = shards_of(cli, *words)
    assert done.status == 2 and "shard-size" in done.err and not list(cli.folder.glob("new*")), done


def test_list_and_show(cli):
    listed = cli.on_terminal("layout", "list", width=100)
    assert (listed.status == 0 and all(name in listed.out
                                       for name in ("qkv-fused", "gate-up-fused", "phi3", "gpt2-conv1d", "megatron-gqa",
                                                    "llama-cpp-rope", "stacked-experts", "tensor-parallel"))), listed
    assert cli("layout show", "phi3").json()["layout"]["name"] == "phi3"
    shown = cli.on_terminal("layout", "show", "phi3", width=80).out.replace("\r", "")
    document = cli("layout show", "phi3").json()["layout"]
    assert json.loads(shown[shown.index("\n{") :]) == document and max(map(len, shown.splitlines())) < 200  # lines are lines
    assert "there is no layout" in cli("layout show", "unknown").err


# ---- numbers that no machine holds, and files of many tensors ----------------------------------------------------------------


@pytest.mark.parametrize("stop", ["(0 - 9223372036854775807 - 1) / (0 - 1)", "4 / 0", "4 / (0 - 2)", "n * n * n"])
def test_numbers_without_a_value(service, stop):
    service.request("PUT", "/v1/layouts/own",
                    layout("own", parameters={"n": {"default": 9007199254740992}},
                           rows=[{"from": {"w": "{*block}w"},
                                  "to": {"{*block}w": {"op": "slice", "axis": 0, "start": 0, "stop": stop, "args": ["w"]}}}]))
    run = applied(service, checkpoint(service, file_of({"a.w": Array([4], [1, 2, 3, 4])})), "own")
    assert [run["passes"][0]["applied"], len(run["passes"][0]["refused"])] == [0, 1]
    assert service.get("/livez").status == 200


def test_a_parameter_beyond_all_numbers(shared):
    answer = shared.post("/v1/optimize", {"graph": checkpoint(shared, file_of(llama())),
                                          "passes": [{"name": "phi3", "params": {"heads": 1e300, "head_dim": 2}}]})
    assert (answer.status, answer.json()["code"]) == (422, "bad-parameter")


def test_a_long_name_takes_its_bias_along(shared):
    block = "m." + "x" * 1100 + "."
    state = {block + "mlp.gate_proj.weight": Array([2, 2], range(4)), block + "mlp.up_proj.weight": Array([2, 2], range(4)),
             block + "mlp.up_proj.bias": Array([2], range(2))}
    run = applied(shared, checkpoint(shared, file_of(state)), "gate-up-fused")
    assert run["result"] == run["source"] and "left-behind" in [one["reason"] for one in run["passes"][0]["refused"]]


def test_what_stays_is_counted(shared):
    state = {**llama(), "model.layers.0.self_attn.q_proj.weight_scale": Array([], [1])}
    run = applied(shared, checkpoint(shared, file_of(state)), "qkv-fused")
    assert run["passes"][0]["layout"]["kept"] == len(state) - 3 * (LAYERS - 1)


# ---- folders and shards, as people have them


@pytest.fixture
def folder(cli):
    """A folder as save_pretrained leaves it, of a file whose layout was applied; and the file."""
    cli.put("one.safetensors", (documents.FIXTURES / "aten-llama" / "weights.safetensors").read_bytes())
    cli.path("hf").mkdir()
    assert cli("layout", "apply", "qkv-fused", "one.safetensors", "-o", "hf/model.safetensors", "--shard-size",
               "100KB").status == 0
    return cli


def test_a_folder_is_taken_where_a_file_is(folder):
    by_index = folder("layout", "undo", "hf/model.safetensors.index.json", "-o", "by-index.safetensors")
    by_folder = folder("layout", "undo", "hf", "-o", "by-folder.safetensors")
    assert by_index.status == by_folder.status == 0, by_folder
    assert_same(state_of(folder.path("by-index.safetensors")), state_of(folder.path("by-folder.safetensors")))
    assert len(folder("upload", "hf").json()["items"]) == len(list(folder.path("hf").iterdir()))
    folder.path("two").mkdir()
    for name in ("a", "b"):
        folder.put(f"two/{name}.safetensors", folder.path("one.safetensors").read_bytes())
    folder.path("none").mkdir()
    for name, said in (("two", "several models"), ("none", "none is a folder; name a file")):
        refused = folder("layout", "apply", "qkv-fused", name, "-o", "out.safetensors")
        assert refused.status == 1 and said in refused.err


def test_one_shard_of_several_is_recognised(folder):
    first = sorted(folder.path("hf").glob("model-00001-of-*"))[0]
    for words in (["undo", first], ["apply", "qkv-fused", first]):
        refused = folder("layout", *words, "-o", "out.safetensors")
        assert refused.status == 1 and "is shard 1 of" in refused.err and "model.safetensors.index.json" in refused.err
    every = sorted(folder.path("hf").glob("model-*"))
    assert folder("layout", "undo", *every, "-o", "out.safetensors").status == 0


def test_nothing_is_written_over(folder):
    for output in ("one.safetensors", "hf/model.safetensors"):
        before = folder.path(output).read_bytes() if folder.path(output).exists() else None
        refused = folder("layout", "undo", "hf", "-o", output)
        assert refused.status == 1 and "--force" in refused.err
        assert (folder.path(output).read_bytes() if folder.path(output).exists() else None) == before
    assert folder("layout", "undo", "hf", "-o", "one.safetensors", "--force").status == 0


def test_an_index_beside_a_file_that_it_does_not_name(folder):
    """transformers takes the file, so the shards may be older: which one is meant is not guessed."""
    assert folder("layout", "undo", "hf", "-o", "hf/model.safetensors", "--force").status == 0
    refused = folder("layout", "apply", "qkv-fused", "hf", "-o", "out.safetensors")
    assert refused.status == 1 and "several models" in refused.err and not folder.path("out.safetensors").exists()
    assert folder("layout", "apply", "qkv-fused", "hf/model.safetensors", "-o", "out.safetensors").status == 0
    folder.put("hf/model.safetensors.index.json", {"weight_map": {"x": "model.safetensors"}})  # its only shard: no other model
    assert "several models" not in folder("layout", "apply", "qkv-fused", "hf", "-o", "next.safetensors").err


def test_what_the_store_keeps_is_said(folder):
    shown = folder.on_terminal("layout", "undo", "hf", "-o", "back.safetensors", width=80, NO_COLOR="1").out
    assert "The store keeps" in shown and "gc --keep-runs-days" in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 80 or "/" in max(shown.splitlines(), key=len)
