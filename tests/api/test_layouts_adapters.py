"""What belongs to a weight goes where the weight goes: LoRA adapters and the scales of a quantisation.

The judge is arithmetic: a layout of W + B A must be the layout of W, and the product of what the layout makes of B and A on
top."""

import itertools

import pytest
from test_layouts import (
    CASES,
    HEADS,
    HIDDEN,
    LAYERS,
    Array,
    Numbers,
    applied,
    assert_same,
    checkpoint,
    file_of,
    gpt2,
    heads,
    llama,
    weights,
    without,
)

RANK = 2
LINEARS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
           "mlp.down_proj")


def product(b, a):
    inner = a.shape[0]
    rows = [b.values[i * inner : (i + 1) * inner] for i in range(b.shape[0])]
    columns = [a.values[j :: a.shape[1]] for j in range(a.shape[1])]
    return Array((b.shape[0], a.shape[1]), [sum(x * y for x, y in zip(row, column)) for row in rows for column in columns])


def adapted(state, modules=LINEARS, name="", rank=RANK, first=1):
    """A and B for these modules of every layer, of numbers that differ."""
    out, number = {}, itertools.count(first)
    for key, array in state.items():
        module = key.rsplit(".", 1)[0]
        if key.endswith(".weight") and module.endswith(modules):
            out[f"{module}.lora_A{name}.weight"] = Array((rank, array.shape[1]),
                                                         [next(number) % 23 - 11 for _ in range(rank * array.shape[1])])
            out[f"{module}.lora_B{name}.weight"] = Array((array.shape[0], rank),
                                                         [next(number) % 19 - 9 for _ in range(rank * array.shape[0])])
    return out


def merged(state, name=""):
    """Every weight with the product of its adapter added, the adapters gone."""
    out = {key: array for key, array in state.items() if ".lora_" not in key}
    for key, b in state.items():
        if key.endswith(f".lora_B{name}.weight"):
            module = key[: -len(f".lora_B{name}.weight")]
            delta, weight = product(b, state[f"{module}.lora_A{name}.weight"]), out[f"{module}.weight"]
            assert delta.shape == weight.shape, module
            out[f"{module}.weight"] = Array(weight.shape, [x + y for x, y in zip(weight.values, delta.values)])
    return out


LINEAR_CASES = [case for case in CASES if CASES[case][0] not in ("gpt2-conv1d", "stacked-experts")]
SOME = {"all": LINEARS, "PEFT's choice": ("q_proj", "v_proj"), "one of each": ("k_proj", "gate_proj", "o_proj")}


@pytest.mark.parametrize("some", SOME)
@pytest.mark.parametrize("name", ["", ".default"])
@pytest.mark.parametrize("case", LINEAR_CASES)
def test_adapters_follow(shared, case, name, some):
    layout, params, state, formula = CASES[case]
    both = {**state, **adapted(state, SOME[some], name)}
    run = applied(shared, checkpoint(shared, file_of(both)), layout, params)
    report = run["passes"][0]
    assert report["refused"] == []
    assert all(row["reversible"] for row in report["layout"]["rows"])
    made = weights(shared, run["result"])
    assert any(".lora_A" in key for key in made)
    assert_same(merged(made, name), formula(merged(both, name)))
    undone = shared.post(f"/v1/runs/{run['id']}/reverse", {}).json()
    assert undone["exact"] and undone["result"] == run["source"]
    # Trained, so that the zeros between adapters stay zeros.
    tuned = {key: Array(array.shape, [value and value + 64 for value in array.values]) for key, array in made.items()}
    back = shared.post(f"/v1/runs/{run['id']}/reverse", {"graph": checkpoint(shared, file_of(dict(reversed(tuned.items()))))})
    assert back.status == 201, back.json()
    assert_same(weights(shared, back.json()["result"]),
                {key: Array(array.shape, [value and value + 64 for value in array.values]) for key, array in both.items()})


ALONE = {
    "qkv-fused": ("qkv-fused", {}, LINEARS[:3], lambda s: CASES["qkv-fused"][3](s)),
    "qkv-fused, PEFT's choice": ("qkv-fused", heads(2), ("q_proj", "v_proj"), lambda s: CASES["qkv-fused"][3](s)),
    "qkv-fused, keys alone": ("qkv-fused", heads(2), ("k_proj",), lambda s: CASES["qkv-fused"][3](s)),
    "gate-up-fused": ("gate-up-fused", {}, LINEARS[4:6], lambda s: CASES["gate-up-fused"][3](s)),
    "phi3, some": ("phi3", heads(2), ("q_proj", "v_proj", "gate_proj", "up_proj"), lambda s: CASES["phi3, grouped"][3](s)),
    "llama-cpp-rope": ("llama-cpp-rope", heads(2), ("q_proj", "k_proj"),
                       lambda s: CASES["llama-cpp-rope, grouped, with biases"][3](s)),
    "tensor-parallel": ("tensor-parallel", {"ranks": 2, **heads(2)}, LINEARS,
                        lambda s: CASES["tensor-parallel, grouped"][3](s)),
}


@pytest.mark.parametrize("case", ALONE)
def test_adapters_alone_follow(shared, case):
    """A file as PEFT saves it, without the model."""
    layout, params, modules, formula = ALONE[case]
    state = llama(2)
    lora = adapted(state, modules)
    alone = {f"base_model.model.{key}": array for key, array in lora.items()}
    run = applied(shared, checkpoint(shared, file_of(alone)), layout, params)
    made = {key.replace("base_model.model.", ""): array for key, array in weights(shared, run["result"]).items()}
    expected = formula(merged({**state, **lora}))
    fused = formula(state)
    assert [one for one in run["passes"][0]["refused"] if one["reason"] != "unmatched"] == []
    assert_same(merged({**fused, **made}), expected)
    assert shared.post(f"/v1/runs/{run['id']}/reverse", {}).json()["exact"]


DORA = {
    "qkv-fused": ("qkv-fused", {}, LINEARS[:3]),
    "phi3": ("phi3", heads(2), LINEARS[:3] + LINEARS[4:6]),
    "megatron-gqa": ("megatron-gqa", heads(2), LINEARS),
    "llama-cpp-rope": ("llama-cpp-rope", heads(2), ("q_proj", "k_proj")),
    "tensor-parallel": ("tensor-parallel", {"ranks": 2, **heads(2)}, LINEARS[:3] + LINEARS[4:6]),
}


@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize("ending", ["lora_magnitude_vector", "lora_magnitude_vector.default.weight"])
@pytest.mark.parametrize("case", DORA)
def test_magnitudes_follow(shared, case, ending, is_alone):
    """Of DoRA: rows of weight and product are scaled to that length. So they move as rows do, as scales of rows would."""
    layout, params, modules = DORA[case]
    state, name = llama(2), ".default" if "default" in ending else ""
    lora, magnitudes = adapted(state, modules, name), scaled(state, ending, lambda shape: (shape[0],), modules)
    both = {**({} if is_alone else state), **lora, **magnitudes}
    run = applied(shared, checkpoint(shared, file_of(both)), layout, params)
    assert [one for one in run["passes"][0]["refused"] if one["reason"] != "unmatched"] == []
    made = weights(shared, run["result"])
    formula = CASES[FORMULAS[layout]][3]
    fused = formula(state)
    base = {key: array for key, array in {**fused, **made}.items() if ".lora_A" not in key and ".lora_B" not in key}
    expected = formula(dequantised({**state, **magnitudes}, ending))
    assert_same(dequantised(base, ending), expected)
    assert_same(merged({**fused, **{key: array for key, array in made.items() if ".lora_A" in key or ".lora_B" in key}}, name),
                formula(merged({**state, **lora}, name)))
    back = shared.post(f"/v1/runs/{run['id']}/reverse", {"graph": checkpoint(shared, file_of(trained_on(made)))})
    assert back.status == 201, back.json()
    assert_same(weights(shared, back.json()["result"]), trained_on(both))


def trained_on(state):
    """Changed, so that the zeros between adapters stay zeros."""
    return {key: Array(array.shape, [value and value + 64 for value in array.values]) for key, array in state.items()}


@pytest.mark.parametrize("case", ["qkv-fused", "tensor-parallel, grouped"])
def test_adapters_of_diffusers_follow(shared, case):
    """diffusers calls A and B down and up."""
    layout, params, state, formula = CASES[case]
    names = {".lora_A.weight": ".lora.down.weight", ".lora_B.weight": ".lora.up.weight"}

    def renamed(tensors, to):
        for one, other in to.items():
            tensors = {key.replace(one, other): array for key, array in tensors.items()}
        return tensors

    lora = adapted(state, ("q_proj", "v_proj"))
    run = applied(shared, checkpoint(shared, file_of({**state, **renamed(lora, names)})), layout, params)
    assert run["passes"][0]["refused"] == []
    made = weights(shared, run["result"])
    assert any(key.endswith(".lora.up.weight") for key in made)
    as_peft = renamed(made, {there: here for here, there in names.items()})
    assert_same(merged(as_peft), formula(merged({**state, **lora})))
    back = shared.post(f"/v1/runs/{run['id']}/reverse", {"graph": checkpoint(shared, file_of(trained_on(made)))})
    assert back.status == 201, back.json()
    assert_same(weights(shared, back.json()["result"]), trained_on({**state, **renamed(lora, names)}))


def test_keys_of_several_ranks_must_agree(shared):
    """More ranks than heads of keys and values: the way back checks that the copies are equal."""
    state = llama(1)
    run = applied(shared, checkpoint(shared, file_of(state)), "tensor-parallel", {"ranks": 2, **heads(1)})
    made = weights(shared, run["result"])
    key = "model.layers.1.self_attn.k_proj.weight"
    assert made[f"rank_0.{key}"].values == made[f"rank_1.{key}"].values == state[key].values
    back = shared.post(f"/v1/runs/{run['id']}/reverse", {"graph": checkpoint(shared, file_of(made, 0.5))})
    assert back.status == 201
    assert_same(weights(shared, back.json()["result"]), state, 0.5)
    answer = shared.post(f"/v1/runs/{run['id']}/reverse",
                         {"graph": checkpoint(shared, file_of(changed(made, f"rank_1.{key}", 3, 99)))})
    assert answer.status == 409 and [one["name"] for one in answer.json()["conflicts"]] == [key], answer.json()


Q, K = "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj"
QKV = "model.layers.0.self_attn.qkv_proj"


def changed(state, key, index, value):
    values = list(state[key].values)
    values[index] = value
    return {**state, key: Array(state[key].shape, values)}


def test_an_adapter_that_is_not_block_diagonal_any_more_does_not_come_back(shared):
    both = {**llama(), **adapted(llama())}
    run = applied(shared, checkpoint(shared, file_of(both)), "qkv-fused")
    made = weights(shared, run["result"])
    assert made[f"{QKV}.lora_B.weight"].shape == (3 * HIDDEN, 3 * RANK)
    assert made[f"{QKV}.lora_B.weight"].values[RANK] == 0
    tuned = changed(made, f"{QKV}.lora_B.weight", RANK, 1)
    answer = shared.post(f"/v1/runs/{run['id']}/reverse", {"graph": checkpoint(shared, file_of(tuned))})
    assert answer.status == 409, answer.json()
    assert [one["code"] for one in answer.json()["conflicts"]] == ["constant-changed"]


def test_copies_that_differ_do_not_come_back(shared):
    both = {**llama(), **adapted(llama())}
    run = applied(shared, checkpoint(shared, file_of(both)), "tensor-parallel", {"ranks": 2, **heads(HEADS)})
    made = weights(shared, run["result"])
    tuned = changed(made, f"rank_1.{Q}.lora_A.weight", 0, 99)
    answer = shared.post(f"/v1/runs/{run['id']}/reverse", {"graph": checkpoint(shared, file_of(tuned))})
    assert answer.status == 409, answer.json()


@pytest.mark.parametrize("name", ["", ".default"])
def test_adapters_of_conv1d_stay(shared, name):
    """PEFT's A is (rank, in) and its B (out, rank), however the kernel lies."""
    state = gpt2()
    lora = {}
    for key, array in state.items():
        if ".c_" in key and key.endswith(".weight"):
            module = key.rsplit(".", 1)[0]
            lora[f"{module}.lora_A{name}.weight"] = Array((1, array.shape[0]), range(array.shape[0]))
            lora[f"{module}.lora_B{name}.weight"] = Array((array.shape[1], 1), range(array.shape[1]))
    run = applied(shared, checkpoint(shared, file_of({**state, **lora})), "gpt2-conv1d")
    assert run["passes"][0]["refused"] == []
    assert_same(weights(shared, run["result"]), {**CASES["gpt2-conv1d"][3](state), **lora})


SPLIT = {
    "name": "qkv-split",
    "parameters": {name: {} for name in ("heads", "kv_heads", "head_dim")},
    "rows": [
        {
            "from": {"qkv": {"name": "{*block}qkv_proj.weight", "shape": ["(heads + 2 * kv_heads) * head_dim", None]}},
            "to": {
                f"{{*block}}{name}_proj.weight": {"op": "slice", "axis": 0, "start": start, "stop": stop, "args": ["qkv"]}
                for name, start, stop in (
                    ("q", 0, "heads * head_dim"),
                    ("k", "heads * head_dim", "(heads + kv_heads) * head_dim"),
                    ("v", "(heads + kv_heads) * head_dim", "(heads + 2 * kv_heads) * head_dim"))
            },
            "linear": True,
        }
    ],
}


def test_an_adapter_of_a_fused_weight_splits(service):
    """B by rows, with a copy of A for each part: of a layout of one's own, which the shipped ones do the other way round."""
    assert service.request("PUT", "/v1/layouts/qkv-split", SPLIT).status == 201
    fused = CASES["phi3, grouped"][3](llama(2))
    both = {**fused, **adapted(fused, ("qkv_proj",))}
    for state in (both, {key: array for key, array in both.items() if "lora" in key}):
        run = applied(service, checkpoint(service, file_of(state)), "qkv-split", heads(2))
        assert run["passes"][0]["refused"] == []
        made = weights(service, run["result"])
        assert made[f"{Q}.lora_A.weight"].values == made[f"{K}.lora_A.weight"].values == state[f"{QKV}.lora_A.weight"].values
        if state is both:
            expected = merged(both)
            assert_same(CASES["qkv-fused"][3](merged(made)), expected)
        back = service.post(f"/v1/runs/{run['id']}/reverse", {"graph": checkpoint(service, file_of(made, 0.5))})
        assert back.status == 201, back.json()
        assert_same(weights(service, back.json()["result"]), state, 0.5)
        tuned = changed(made, f"{K}.lora_A.weight", 0, 99)
        assert service.post(f"/v1/runs/{run['id']}/reverse", {"graph": checkpoint(service, file_of(tuned))}).status == 409


TRAINED_ON = {  # modules of the fused model, and how many adapters a layer has of them when they come back
    "qkv-fused": (("qkv_proj",), 3),
    "gate-up-fused": (("gate_up_proj",), 2),
    "phi3, grouped": (("qkv_proj", "gate_up_proj", "o_proj", "down_proj"), 7),
    "llama-cpp-rope, grouped, with biases": (("q_proj", "k_proj", "v_proj"), 3),
    "megatron-gqa, grouped, with biases": (("linear_qkv", "linear_fc1"), 5),
}


@pytest.mark.parametrize("name", ["", ".default"])
@pytest.mark.parametrize("case", TRAINED_ON)
def test_an_adapter_that_was_trained_on_the_fused_model_splits(shared, case, name):
    """B by rows, with the same A for each part: the products are those rows of the fused one."""
    layout, params, state, formula = CASES[case]
    modules, count = TRAINED_ON[case]
    run = applied(shared, checkpoint(shared, file_of(state)), layout, params)
    fused = weights(shared, run["result"])
    lora = adapted(fused, modules, name)
    assert len(lora) == 2 * LAYERS * len(modules)
    for tuned in ({**fused, **lora}, {key: Array(array.shape, [value + 64 for value in array.values])
                                      for key, array in {**fused, **lora}.items()}):
        back = shared.post(f"/v1/runs/{run['id']}/reverse",
                           {"graph": checkpoint(shared, file_of(dict(reversed(tuned.items()))))})
        assert back.status == 201, back.json()
        made = weights(shared, back.json()["result"])
        assert set(merged(made, name)) == set(state)
        assert_same(formula(merged(made, name)), merged(tuned, name))
        assert sum(".lora_B" in key for key in made) == LAYERS * count


@pytest.mark.parametrize("wrong", ["rank", "rows", "columns", "no A", "another beside it"])
def test_an_adapter_that_does_not_fit_the_fused_weight_does_not_come_back(shared, wrong):
    state = llama(2)
    run = applied(shared, checkpoint(shared, file_of(state)), "qkv-fused")
    fused = weights(shared, run["result"])
    a, b = f"{QKV}.lora_A.weight", f"{QKV}.lora_B.weight"
    lora = adapted({f"{QKV}.weight": fused[f"{QKV}.weight"]}, ("qkv_proj",))
    if wrong == "rank":
        lora[a] = Array((1, HIDDEN), lora[a].values[:HIDDEN])
    elif wrong == "rows":
        lora[b] = Array((1, RANK), lora[b].values[:RANK])
    elif wrong == "columns":
        lora[a] = Array((RANK, 1), lora[a].values[:RANK])
    elif wrong == "no A":
        del lora[a]
    else:
        lora[f"{QKV}.lora_magnitude_vector.weight"] = Array((fused[f"{QKV}.weight"].shape[0],),
                                                            [1] * fused[f"{QKV}.weight"].shape[0])
    answer = shared.post(f"/v1/runs/{run['id']}/reverse", {"graph": checkpoint(shared, file_of({**fused, **lora}))})
    assert answer.status == 409, answer.json()
    assert ("changed-module", QKV) in [(one["code"], one["name"]) for one in answer.json()["conflicts"]]


# ---- scales -----------------------------------------------------------------------------------------------------------------


def scaled(state, name, shape_of, modules=LINEARS):
    """Numbers that differ, of a shape that follows from the weight's."""
    new, out = Numbers(), {}
    for key, array in state.items():
        if key.endswith(".weight") and key.rsplit(".", 1)[0].endswith(modules):
            out[key[: -len("weight")] + name] = new(*shape_of(array.shape))
    return out


def dequantised(state, name):
    """Every weight with its blocks multiplied by their scales, and the scales gone."""
    out = {key: array for key, array in state.items() if not key.endswith(name)}
    for key, scale in state.items():
        if not key.endswith(name):
            continue
        weight = out[key[: -len(name)] + "weight"]
        parts = scale.shape[1] if len(scale.shape) == 2 else 1
        rows, size = -(-weight.shape[0] // scale.shape[0]), weight.shape[1] // parts
        values = [value * scale.values[i // weight.shape[1] // rows * parts + i % weight.shape[1] // size]
                  for i, value in enumerate(weight.values)]
        out[key[: -len(name)] + "weight"] = Array(weight.shape, values)
    return out


OF_ROWS = {"flat": lambda shape: (shape[0],), "columns": lambda shape: (shape[0], 1)}


@pytest.mark.heavy
@pytest.mark.parametrize("shape", [*OF_ROWS, "groups"])
@pytest.mark.parametrize("name", ["weight_scale", "weight_zero_point"])
@pytest.mark.parametrize("case", LINEAR_CASES)
def test_scales_of_rows_follow(shared, case, name, shape):
    layout, params, state, formula = CASES[case]
    is_split = layout == "tensor-parallel"
    if is_split and shape == "groups":
        modules = tuple(one for one in LINEARS if one not in ("self_attn.o_proj", "mlp.down_proj"))
    else:
        modules = LINEARS
    both = {**state, **scaled(state, name, OF_ROWS.get(shape, lambda shape: (shape[0], 2)), modules)}
    run = applied(shared, checkpoint(shared, file_of(both)), layout, params)
    assert run["passes"][0]["refused"] == []
    made = weights(shared, run["result"])
    assert_same(dequantised(made, name), formula(dequantised(both, name)))
    assert shared.post(f"/v1/runs/{run['id']}/reverse", {}).json()["result"] == run["source"]
    back = shared.post(f"/v1/runs/{run['id']}/reverse", {"graph": checkpoint(shared, file_of(made, 0.5))})
    assert back.status == 201, back.json()
    assert_same(weights(shared, back.json()["result"]), both, 0.5)


def blocks(rows, columns):
    return lambda shape: (-(-shape[0] // rows), shape[1] // columns)


ATTENTION, MLP = LINEARS[:3], LINEARS[4:6]
OF_BLOCKS = {
    "qkv-fused": ("qkv-fused", {}, ATTENTION, (4, 4)),
    "qkv-fused, the last one smaller": ("qkv-fused", {}, ATTENTION, (2, 2)),
    "gate-up-fused": ("gate-up-fused", {}, MLP, (2, 4)),
    "phi3": ("phi3", heads(2), ATTENTION + MLP, (2, 8)),
    "megatron-gqa, heads are blocks": ("megatron-gqa", heads(2), ATTENTION + MLP, (2, 4)),
    "tensor-parallel, rows": ("tensor-parallel", {"ranks": 2, **heads(2)}, ATTENTION, (2, 4)),
    "tensor-parallel, columns": ("tensor-parallel", {"ranks": 2, **heads(2)}, ("o_proj",), (4, 2)),
    "tensor-parallel, groups": ("tensor-parallel", {"ranks": 2, **heads(2)}, (*ATTENTION, "o_proj"), (1, 2)),
}
FORMULAS = {"qkv-fused": "qkv-fused", "llama-cpp-rope": "llama-cpp-rope, grouped, with biases",
            "gate-up-fused": "gate-up-fused", "phi3": "phi3, grouped",
            "megatron-gqa": "megatron-gqa, grouped, with biases", "tensor-parallel": "tensor-parallel, grouped"}


@pytest.mark.parametrize("name", ["weight_scale", "weight_scale_inv"])
@pytest.mark.parametrize("case", OF_BLOCKS)
def test_scales_of_blocks_follow(shared, case, name):
    layout, params, modules, block = OF_BLOCKS[case]
    state = llama(2)
    if case.endswith("smaller"):
        state = {key: Array((array.shape[0] - 1, array.shape[1]), array.values[: -array.shape[1]]) if "v_proj" in key else array
                 for key, array in state.items()}
    both = {**state, **scaled(state, name, blocks(*block), modules)}
    run = applied(shared, checkpoint(shared, file_of(both)), layout, params)
    assert run["passes"][0]["refused"] == []
    made = weights(shared, run["result"])
    formula = CASES[FORMULAS[layout]][3]
    assert_same(dequantised_blocks(made, name, block), formula(dequantised_blocks(both, name, block)))
    back = shared.post(f"/v1/runs/{run['id']}/reverse", {"graph": checkpoint(shared, file_of(made, 0.5))})
    assert back.status == 201, back.json()
    assert_same(weights(shared, back.json()["result"]), both, 0.5)


def dequantised_blocks(state, name, block):
    out = {key: array for key, array in state.items() if not key.endswith(name)}
    for key, scale in state.items():
        if key.endswith(name):
            weight = out[key[: -len(name)] + "weight"]
            assert scale.shape == blocks(*block)(weight.shape), key
            columns = weight.shape[1]
            out[key[: -len(name)] + "weight"] = Array(
                weight.shape, [value * scale.values[i // columns // block[0] * scale.shape[1] + i % columns // block[1]]
                               for i, value in enumerate(weight.values)])
    return out


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("name", ["weight_scale", "weight_scale_2", "input_scale"])
def test_joined_weights_keep_one_scale_each(shared, name, shape):
    """As vLLM has them: a list, in the order of the parts."""
    state = llama(2)
    both = {**state, **scaled(state, name, lambda _: shape, LINEARS[:3])}
    run = applied(shared, checkpoint(shared, file_of(both)), "qkv-fused")
    assert run["passes"][0]["refused"] == []
    made = weights(shared, run["result"])
    for i in range(LAYERS):
        attention = f"model.layers.{i}.self_attn."
        assert made[f"{attention}qkv_proj.{name}"].shape == (3,)
        assert made[f"{attention}qkv_proj.{name}"].values == [both[f"{attention}{one}_proj.{name}"].values[0] for one in "qkv"]
    back = shared.post(f"/v1/runs/{run['id']}/reverse", {"graph": checkpoint(shared, file_of(made, 0.5))})
    assert back.status == 201, back.json()
    assert_same(weights(shared, back.json()["result"]), both, 0.5)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_one_scale_follows_one_weight(shared, shape):
    state = llama(2)
    both = {**state, **scaled(state, "weight_scale", lambda _: shape, ("q_proj", "k_proj")),
            **scaled(state, "input_scale", lambda _: shape, ("q_proj", "k_proj"))}
    run = applied(shared, checkpoint(shared, file_of(both)), "llama-cpp-rope", heads(2))
    assert run["passes"][0]["refused"] == []
    made = weights(shared, run["result"])
    assert {key: array.values for key, array in made.items()
            if "scale" in key} == {key: array.values for key, array in both.items() if "scale" in key}


# ---- what does not follow ---------------------------------------------------------------------------------------------------


def lora(*keys, rank=RANK):
    return adapted(llama(), keys, rank=rank)


B_Q, A_Q, A_K = f"{Q}.lora_B.weight", f"{Q}.lora_A.weight", f"{K}.lora_A.weight"
REFUSED = {
    "a B without its A": ("qkv-fused", {}, {**llama(), **without(lora("q_proj"), A_Q)}, "incomplete",
                          f"{B_Q} is there, but {A_Q} is not"),
    "an A without its B": ("qkv-fused", {}, {**llama(), **without(lora("q_proj"), B_Q)}, "incomplete",
                           f"{A_Q} is there, but {B_Q} is not"),
    "ranks that differ": ("qkv-fused", {}, {**llama(), **lora("q_proj"), **lora("k_proj", rank=1)}, "shape-mismatch", "rank 1"),
    "an adapter of another size": ("qkv-fused", {}, {**llama(), **lora("q_proj"), B_Q: Array((4, RANK), range(8))},
                                   "shape-mismatch", f"{Q}.weight has 4 rows, not 8"),
    "one size is not known": ("qkv-fused", {}, lora("q_proj", "v_proj"), "incomplete", f"{K}.weight has no adapter"),
    "sizes that the adapters are not of": ("qkv-fused", {"kv_heads": 2, "head_dim": 3}, lora("q_proj", "v_proj"),
                                           "shape-mismatch", "v_proj"),
    "an adapter of a refused weight": ("qkv-fused", {},
                                       {**without(llama(), "model.layers.0.self_attn.v_proj.weight"),
                                        **lora("q_proj", "k_proj", "v_proj")}, "left-behind",
                                       f".lora_A.weight would go without {K}.weight"),
    "magnitudes of one of three": ("qkv-fused", {},
                                   {**llama(), **lora("q_proj"), f"{Q}.lora_magnitude_vector": Array((8,), range(8))},
                                   "incomplete", f"{K}.lora_magnitude_vector is not"),
    "magnitudes of rows that are cut": ("tensor-parallel", {"ranks": 2, **heads(HEADS)},
                                        {**llama(), **lora("o_proj"),
                                         "model.layers.0.self_attn.o_proj.lora_magnitude_vector": Array((8,), range(8))},
                                        "cuts-block", "o_proj.lora_magnitude_vector"),
    "adapters of Embedding": ("megatron-gqa", heads(HEADS),
                              {**llama(), "model.embed_tokens.lora_embedding_A": Array((1, 10), range(10))}, "left-behind",
                              "lora_embedding_A"),
    "one scale for what is interleaved": ("megatron-gqa", heads(2),
                                          {**llama(2), **scaled(llama(2), "weight_scale", lambda _: (1,), LINEARS[:3])},
                                          "inexact", "has no such parts"),
    "blocks of rows that are turned": ("llama-cpp-rope", {"heads": 2, "kv_heads": 2, "head_dim": 4},
                                       {**llama(), **scaled(llama(), "weight_scale_inv", blocks(2, 4), LINEARS[:3])},
                                       "cuts-block", "apart or together"),
    "blocks that end within another weight": ("qkv-fused", {},
                                              {**llama(1), **scaled(llama(1), "weight_scale_inv", blocks(4, 4), LINEARS[:3])},
                                              "cuts-block", "at 10"),
    "blocks that shards cut": ("tensor-parallel", {"ranks": 4, **heads(HEADS)},
                               {**llama(), **scaled(llama(), "weight_scale", lambda shape: (shape[0], 2), ("o_proj",))},
                               "cuts-block", "at 2"),
    "two of three scales": ("qkv-fused", {},
                            {**llama(), **scaled(llama(), "weight_scale", lambda shape: (shape[0],), ("q_proj", "k_proj"))},
                            "incomplete", "v_proj.weight_scale is not"),
    "scales without their weights": ("qkv-fused", {}, scaled(llama(), "weight_scale", lambda shape: (shape[0],), LINEARS[:3]),
                                     "incomplete", f"{Q}.weight is not"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_exact_is_refused(shared, case):
    layout, params, state, reason, said = REFUSED[case]
    run = applied(shared, checkpoint(shared, file_of(state)), layout, params)
    refused = run["passes"][0]["refused"]
    assert any(one["reason"] == reason and said in one["detail"] for one in refused), refused
    kept = weights(shared, run["result"])
    named = [key for key in state if any(key in one["detail"] for one in refused)]
    assert named and all(kept[key].values == state[key].values for key in named)


def test_a_row_of_ones_own_says_that_it_is_linear(service):
    """Without that nothing is taken along; with it the recipe must move whole rows or columns."""
    row = {"from": {"w": "{*block}w.weight"},
           "to": {"{*block}u.weight": {"op": "slice", "axis": 0, "start": 0, "stop": "w.shape[0]", "args": ["w"]}}}
    turned = {"from": {"w": "{*block}w.weight"}, "to": {"{*block}u.weight": {"op": "permute", "dims": [1, 0], "args": ["w"]}}}
    folded = {"from": {"w": "{*block}w.weight"},
              "to": {"{*block}u.weight": {"op": "reshape", "shape": ["w.shape[0] / 2", "2 * w.shape[1]"], "args": ["w"]}}}
    state = {"a.w.weight": Array((4, 2), range(8)), "a.w.lora_A.weight": Array((1, 2), [1, 2]),
             "a.w.lora_B.weight": Array((4, 1), range(4))}
    reasons = {"plain": (row, {"left-behind"}), "linear": ({**row, "linear": True}, set()),
               "turned": ({**turned, "linear": True}, {"inexact", "left-behind"}),
               "folded": ({**folded, "linear": True}, {"inexact", "left-behind"})}
    for name, (one, expected) in reasons.items():
        assert service.request("PUT", f"/v1/layouts/{name}", {"name": name, "rows": [one]}).status == 201
        run = applied(service, checkpoint(service, file_of(state)), name)
        assert {refusal["reason"] for refusal in run["passes"][0]["refused"]} == expected, name
    for wrong in ({**row, "linear": 1}, {**row, "linear": True, "from": {"w": "{*block}w"}},
                  {**row, "linear": True, "from": {"w": "{adapter}.w.weight"}, "to": {"{adapter}.u.weight": "w"}}):
        answer = service.request("PUT", "/v1/layouts/wrong", {"name": "wrong", "rows": [wrong]})
        assert (answer.status, answer.json()["pointer"]) == (422, "/rows/0/linear"), answer.json()
