"""torch.compile(model, backend="foldback"): the same outputs as eager, passes at work, and a model that always runs."""

import gc
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import types
import warnings
import weakref

import pytest
import torch
import transformers_models
from torch import nn

import foldback
from foldback.torch_compile import _Place, backend

IS_ALL = bool(os.environ.get("FOLDBACK_ALL_MODELS"))
IN_CI = ["bert", "gpt2", "resnet", "t5"]
MODELS = [*IN_CI, "albert", "bert-classifier", "bloom", "clip-vision", "convnext", "dinov2", "distilbert", "electra", "gemma"]
MODELS += ["gpt-neox", "llama", "mistral", "opt", "qwen2", "roberta", "swin", "vit"]
# What is found with the options below, where docs/models.md has it for the same model.
FOUND = {
    "bert": {"MergeLinears": 2, "FoldScaleIntoLinear": 2},
    "bert-classifier": {"MergeLinears": 2, "FoldScaleIntoLinear": 2},
    "clip-vision": {"MergeLinears": 2, "FoldNormIntoLinear": 4},
    "distilbert": {"MergeLinears": 2, "FoldScaleIntoLinear": 2},
    "electra": {"MergeLinears": 2, "FoldScaleIntoLinear": 2},
    "gpt2": {"FoldNormIntoLinear": 4, "UnpackLinear": 8},
    "llama": {"MergeLinears": 4, "FoldNormIntoLinear": 4},
    "mistral": {"MergeLinears": 4, "FoldNormIntoLinear": 4},
    "qwen2": {"MergeLinears": 4, "FoldNormIntoLinear": 4},
    "resnet": {"FuseBatchNorm": 6},
    "roberta": {"MergeLinears": 2, "FoldScaleIntoLinear": 2},
    "swin": {"MergeLinears": 2, "FoldNormIntoLinear": 3},
    "t5": {"MergeLinears": 5, "FoldNormIntoLinear": 10},
    "vit": {"MergeLinears": 2, "FoldNormIntoLinear": 4},
}
PASSES = {"passes": ["inference", "MergeLinears"]}


@pytest.fixture(autouse=True)
def fresh(service, monkeypatch):
    """Every test compiles anew, with the service of the tests."""
    if "foldback" not in torch._dynamo.backends.registry._BACKENDS:
        torch._dynamo.list_backends()
    if "foldback" not in torch._dynamo.backends.registry._BACKENDS:  # the package is not installed, but on the path
        torch._dynamo.register_backend(backend, name="foldback")
    foldback.connect(service.url)
    torch._dynamo.reset()
    yield
    foldback.disconnect()


def compiled(model, **rest):
    return torch.compile(model, backend="foldback", **rest)


def assert_close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def applied(run):
    counts = {}
    for row in run["passes"]:
        counts[row["name"]] = counts.get(row["name"], 0) + row["applied"]
    return counts


def tensors(outputs):
    return {key: item for key, item in outputs.items() if isinstance(item, torch.Tensor)}


@pytest.mark.parametrize("name", MODELS if IS_ALL else IN_CI)
def test_models_of_transformers(name):
    model, inputs = transformers_models.make(name)
    fast = compiled(model, options=PASSES)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*leaves .* as it was captured")
        expected, ours = tensors(model(**inputs)), tensors(fast(**inputs))
    assert expected.keys() == ours.keys() and expected
    for key in expected:
        assert_close(ours[key], expected[key])
    runs = foldback.compiled_runs(fast)
    assert runs and {run.model for run in runs} == {runs[0].model} and runs[0].model.startswith(type(model).__name__)
    found = {}
    for run in runs:
        for key, count in applied(run).items():
            found[key] = found.get(key, 0) + count
    for key, count in FOUND.get(name, {}).items():
        assert found.get(key, 0) >= count, (key, found)
    assert sum(run.nodes[1] for run in runs) < sum(run.nodes[0] for run in runs)


# ---- only where it is right -------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, size=16):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.q, self.k, self.v = nn.Linear(size, size), nn.Linear(size, size), nn.Linear(size, size)
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        x = self.norm(x)
        q, k, v = self.q(x) / 4, self.k(x), self.v(x)
        return self.dropout(torch.softmax(q @ k.transpose(-1, -2), -1) @ v)


def make():
    torch.manual_seed(0)
    return Attention().eval(), torch.randn(2, 5, 16)


def assert_left_alone(model, x, why):
    """Equal, warned of once, and no run."""
    fast = compiled(model, options=PASSES)
    with pytest.warns(UserWarning, match=why) as said:
        expected, ours = model(x), fast(x)
    assert_close(ours, expected)
    assert len([one for one in said if "as it was captured" in str(one.message)]) == 1
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*as it was captured")
        assert fast(torch.cat([x, x])).shape[0] == 2 * x.shape[0]  # captured again, and not said again
    assert foldback.compiled_runs(model) == []


@pytest.mark.parametrize(("part", "other", "why"), [
    ("_source_of", lambda node: None, "Dynamo does not say where the weight .* is from; PyTorch is .*, and the backend"),
    ("_source_of", lambda node: node.source, "AttributeError: .* has no attribute 'source'; PyTorch is .* tested on 2.9.1"),
    ("_Place", types.SimpleNamespace(now=lambda: _Place({}, None)), "Dynamo does not say what it compiles; PyTorch is "),
])
def test_another_version_of_pytorch_is_named(monkeypatch, part, other, why):
    """The backend reads private parts of PyTorch, which another version may have otherwise: a warning names that version."""
    monkeypatch.setattr(foldback.torch_compile, part, other)
    model, x = make()
    with torch.no_grad():
        assert_left_alone(model, x, why)
        with pytest.warns(UserWarning, match=why):  # of a function, the module is found by its weights
            assert_close(torch.compile(lambda x: model(x), backend="foldback")(x), model(x))


def test_gradients_are_left_alone():
    model, x = make()
    assert_left_alone(model, x, "gradients are on")
    compiled(model)(x).sum().backward()
    assert model.q.weight.grad is not None


def test_gradients_turned_on_within_are_left_alone():
    class Model(Attention):
        def forward(self, x):
            with torch.enable_grad():
                return super().forward(x)

    with torch.no_grad():
        assert_left_alone(Model().eval(), torch.randn(2, 5, 16), "gradients on within")


def test_training_mode_is_left_alone():
    model, x = make()
    model.train()
    model.dropout.p = 0.0
    with torch.no_grad():
        assert_left_alone(model, x, "training mode")


def test_autocast_is_left_alone():
    model, x = make()
    fast = compiled(model)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), pytest.warns(UserWarning, match="autocast is on"):
        expected, ours = model(x), fast(x)
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("write", ["add", "setitem", "out", "view", "bias"])
def test_weights_that_the_model_writes_are_left_alone(write):
    class Model(Attention):
        def forward(self, x):
            if write == "add":
                self.count += 1
            elif write == "setitem":
                self.norm.weight[0] = x.mean()
            elif write == "out":
                torch.mul(self.norm.bias, 0.5, out=self.norm.bias)
            elif write == "view":
                self.norm.weight.view(-1).mul_(1.01)
            else:
                torch.nn.functional.relu_(self.q.bias)
            return super().forward(x)

    model, x = Model().eval(), torch.randn(2, 5, 16)
    state = {key: item.clone() for key, item in model.state_dict().items()}
    fast = compiled(model)
    with torch.no_grad():
        for _ in range(2):
            expected = model(x)
        after = {key: item.clone() for key, item in model.state_dict().items()}
        model.load_state_dict(state)
        with pytest.warns(UserWarning, match="writes to its weight"):
            for _ in range(2):
                ours = fast(x)
    assert_close(ours, expected)
    for key, item in model.state_dict().items():
        assert_close(item, after[key])
    assert foldback.compiled_runs(model) == []


# ---- weights that change -----------------------------------------------------------------------------------------------------


def scramble(model, how):
    with torch.no_grad():
        if how == "load":
            model.load_state_dict({key: torch.randn_like(item) for key, item in model.state_dict().items()})
        elif how == "in place":
            model.k.weight.mul_(2)
        elif how == "data":
            model.k.weight.data = torch.randn(16, 16)
        elif how == "through data":
            model.k.weight.data.mul_(2)
        elif how == "another":
            model.k.weight = nn.Parameter(torch.randn(16, 16))
        elif how == "step":
            with torch.enable_grad():
                model(torch.randn(2, 5, 16)).sum().backward()
            torch.optim.SGD(model.parameters(), 1.0).step()


@pytest.mark.parametrize("how", ["load", "in place", "data", "through data", "another", "step"])
def test_new_weights_count(how):
    model, x = make()
    fast = compiled(model, options=PASSES)
    with torch.no_grad():
        before = fast(x)
        scramble(model, how)
        expected = model(x)
        assert (expected - before).abs().max() > 1e-3
        for _ in range(3):
            assert_close(fast(x), expected)
    (run,) = foldback.compiled_runs(model)[:1]
    assert applied(run)["MergeLinears"] == 1


@pytest.mark.parametrize("shape", [(768, 2304), (512, 512), (64, 32, 3, 3)])
@pytest.mark.parametrize("kind", ["dense", "channels_last", "part of another", "transposed"])
def test_a_write_through_data_to_whole_columns_is_noticed(shape, kind):
    tensor = torch.ones(shape)
    if kind == "channels_last" and len(shape) == 4:
        tensor = tensor.contiguous(memory_format=torch.channels_last)
    elif kind == "part of another":
        tensor = torch.ones(2 * shape[0], *shape[1:]).transpose(0, 1)[:, : shape[0]].transpose(0, 1)
    elif kind == "transposed":
        tensor = torch.ones(*shape[2:], shape[1], shape[0]).permute(*reversed(range(len(shape))))
    weight = nn.Parameter(tensor)
    version = foldback.torch_compile._Version([weight], lambda _: None)
    assert version.is_of([weight])
    for at in (slice(None), slice(0, None, 2), slice(1, None, 2)):
        weight.data[:, at] *= 2
        assert not version.is_of([weight]), at
        weight.data[:, at] /= 2
        assert version.is_of([weight])


def test_weights_that_always_change_go_to_the_captured_graph():
    model, x = make()
    fast = compiled(model, options=PASSES)
    with torch.no_grad(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(12):
            model.q.weight.mul_(1.1)
            assert_close(fast(x), model(x))
    assert len([one for one in said if "change with almost every call" in str(one.message)]) == 1


def test_one_graph_serves_several_modules():
    """Dynamo compiles the code of a layer once, and calls the result with the weights of each."""
    torch.manual_seed(0)
    layers, x = [Attention().eval() for _ in range(6)], torch.randn(2, 5, 16)
    model = nn.Sequential(*layers)
    fast = nn.Sequential(*[compiled(layer, options=PASSES) for layer in layers])
    with torch.no_grad():
        for _ in range(3):
            assert_close(fast(x), model(x))
        model[2].v.weight.mul_(3)
        assert_close(fast(x), model(x))
        for layer in layers:
            scramble(layer, "load")
        assert_close(fast(x), model(x))


def test_a_model_that_is_gone_leaves_no_weights():
    model, x = make()
    seen = [weakref.ref(item) for item in model.parameters()]
    with torch.no_grad():
        compiled(model, options=PASSES)(x)
    assert foldback.compiled_runs(model)
    del model
    torch._dynamo.reset()
    gc.collect()
    assert [one for one in seen if one() is not None] == []


def test_what_is_computed_from_weights_is_not_given_away():
    """A caller may write to what it is given."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))

        def forward(self, x):
            made = self.a + self.b
            return x + made, made, self.a * 1, made.view(2, 2)

    model, x = Model().eval(), torch.randn(4)
    fast = compiled(model, options=PASSES)
    with torch.no_grad():
        expected = model(x)
        for _ in range(3):
            ours = fast(x)
            for one, other in zip(ours, expected, strict=True):
                assert_close(one, other)
            for one in ours:
                one.mul_(7)
    assert_close(model(x)[1], expected[1])


def test_a_graph_break_may_write_to_what_was_computed():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))

        def forward(self, x):
            made = self.a + self.b
            torch._dynamo.graph_break()
            made += x
            return made

    model, x = Model().eval(), torch.randn(4)
    fast = compiled(model, options=PASSES)
    with torch.no_grad():
        for _ in range(3):
            assert_close(fast(x), model(x))


# ---- runs --------------------------------------------------------------------------------------------------------------------


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Attention(), Attention()

    def forward(self, x):
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.second(x)


def test_recompilations_and_graph_breaks_are_runs_of_one_model(client):
    model = Broken().eval()
    fast = compiled(model, dynamic=False, options=PASSES)
    with torch.no_grad():
        for size in (3, 4):
            x = torch.randn(size, 5, 16)
            assert_close(fast(x), model(x))
    runs = foldback.compiled_runs(fast)
    assert len(runs) == 4 and len({run["id"] for run in runs}) == 4
    assert len({run.model for run in runs}) == 1 and len({run.frame for run in runs}) == 4
    for run in runs:
        assert run["labels"]["model"] == run.model and client.run(run["id"])["labels"] == run["labels"]
        assert applied(run)["MergeLinears"] == 1 and run.refused is not None
    other = Broken().eval()
    with torch.no_grad():
        compiled(other, dynamic=False, options=PASSES)(torch.randn(9, 5, 16))
    assert {run.model for run in foldback.compiled_runs(other)}.isdisjoint({run.model for run in runs})
    assert [run for run in foldback.compiled_runs() if run.model == runs[0].model] == runs


def test_a_graph_break_within_a_module_within():
    class Inner(Attention):
        def forward(self, x):
            torch._dynamo.graph_break()
            return super().forward(x)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.inner, self.after = Attention(), Inner(), Attention()

        def forward(self, x):
            return self.after(self.inner(self.before(x)))

    model = Outer().eval()
    fast, x = compiled(model, options=PASSES), torch.randn(2, 5, 16)
    with torch.no_grad():
        assert_close(fast(x), model(x))
    runs = foldback.compiled_runs(model)
    assert len(runs) == 3 and {run.model for run in runs} == {"Outer"}


@pytest.mark.parametrize("then", [None, "aot_eager"])
def test_sizes_that_are_symbols(then):
    model, _ = make()
    fast = compiled(model, dynamic=True, options=PASSES | ({"then": then} if then else {}))
    with torch.no_grad():
        for size in (2, 3, 7, 8):
            x = torch.randn(size, size + 3, 16)
            assert_close(fast(x), model(x))
    assert len(foldback.compiled_runs(model)) == 1


# ---- what comes next ---------------------------------------------------------------------------------------------------------


def test_then_a_function():
    """It gets the inputs that Dynamo captured and, after them, those that the passes computed."""
    got = []

    def then(graph_module, inputs):
        got.append((graph_module, inputs))
        graph_module.graph.lint()
        return graph_module

    model, x = make()
    fast = compiled(model, options={**PASSES, "then": then})
    with torch.no_grad():
        assert_close(fast(x), model(x))
    ((graph_module, inputs),) = got
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    assert len(placeholders) == len(inputs) and not list(graph_module.parameters())
    held = [item for item in inputs if any(item is weight for weight in model.parameters())]
    assert len(held) == 8
    assert any(item.shape == (48, 16) for item in inputs)  # q, k and v, merged
    assert {node.op for node in graph_module.graph.nodes} == {"placeholder", "call_function", "call_method", "output"}


@pytest.mark.parametrize("then", ["eager", "aot_eager", *(["inductor"] if IS_ALL else [])])
def test_then_by_name(then):
    model, x = make()
    fast = compiled(model, options={**PASSES, "then": then})
    with torch.no_grad():
        assert_close(fast(x), model(x))
        scramble(model, "load")
        assert_close(fast(x), model(x))
    assert len(foldback.compiled_runs(model)) == 1


def test_sizes_of_computed_weights_are_no_symbols_of_the_next_backend():
    """AOTAutograd makes symbols of sizes, and Dynamo then guards them; it has no source for an input that it does not know."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution, self.weight = nn.Conv1d(16, 16, 3), nn.Parameter(torch.randn(16, 16))

        def forward(self, x):
            return self.convolution(x.transpose(1, 2)).transpose(1, 2) @ self.weight.T

    model, x = Model().eval(), torch.randn(2, 5, 16)
    fast = compiled(model, options={"passes": ["QuantizeWeights"], "then": "aot_eager"})
    with torch.no_grad():
        expected, ours = model(x), fast(x)
    assert (ours - expected).abs().max() < 0.05 * expected.abs().max()
    (run,) = foldback.compiled_runs(model)
    assert applied(run)["QuantizeWeights"] == 1


def test_then_gets_the_captured_graph_where_nothing_is_changed():
    got = []
    model, x = make()
    with pytest.warns(UserWarning, match="gradients are on"):
        compiled(model, options={"then": lambda graph_module, inputs: got.append(1) or graph_module})(x)
    assert got == [1]


# ---- trouble -----------------------------------------------------------------------------------------------------------------


def test_a_service_that_is_gone():
    foldback.connect("http://127.0.0.1:9")
    model, x = make()
    with torch.no_grad():
        assert_left_alone(model, x, "no service answers")


def test_no_program_for_a_private_service(monkeypatch):
    foldback.disconnect()
    monkeypatch.setenv("FOLDBACK_BINARY", "/nowhere/foldback")
    model, x = make()
    with torch.no_grad():
        assert_left_alone(model, x, "not a program")


@pytest.mark.parametrize(
    ("passes", "why"),
    [
        (["inference", "MergeLinear"], 'no pass named "MergeLinear"'),
        ("MergeLinear", 'no pass named "MergeLinear"'),
        ([{"name": "MergeLinears", "params": {"gain": 1}}], 'no parameter "gain"'),
        ([{"name": "MergeLinears", "version": 99}], "no version 99"),
        ({"name": "MergeLinears", "params": {"minimum_gain": "much"}}, "minimum_gain"),
        ([["inference", ["MergeLinear"]]], 'no pass named "MergeLinear"'),
        ([], "passes"),
        (3, "not 3"),
        ([foldback.optimization.MergeLinears()], "not MergeLinears"),
    ],
)
def test_a_pass_that_does_not_exist_is_an_error(passes, why):
    model, x = make()
    with torch.no_grad(), pytest.raises(Exception, match=why):
        compiled(model, options={"passes": passes})(x)
    assert foldback.compiled_runs(model) == []


def test_an_answer_that_does_not_fit(monkeypatch):
    """Edits of another graph leave the model as it was."""
    edit = {"edit": "erase_node", "node": {"name": "nothing", "op": "output"}}
    monkeypatch.setattr(foldback.Client, "edits", lambda self, run: [edit])
    model, x = make()
    with torch.no_grad():
        assert_left_alone(model, x, "nothing")


@pytest.mark.parametrize("options", [{"pass": ["inference"]}, {"then": "nobody"}, {"then": 3}])
def test_options_that_do_not_exist(options):
    model, x = make()
    with torch.no_grad(), pytest.raises(Exception, match="pass|nobody|3"):
        compiled(model, options=options)(x)


def test_tensors_of_inference_mode_are_left_alone():
    with torch.inference_mode():
        model, x = make()
        assert_left_alone(model, x, "inference_mode")


def test_under_inference_mode():
    model, x = make()
    fast = compiled(model, options=PASSES)
    with torch.inference_mode():
        assert_close(fast(x), model(x))
    with torch.no_grad():
        assert_close(fast(x), model(x))
        model.k.weight.mul_(2)
        assert_close(fast(x), model(x))
    assert foldback.compiled_runs(model)


def test_functions_and_shared_weights():
    linear, tied = nn.Linear(8, 8), nn.Linear(8, 8)
    tied.weight = linear.weight

    def function(x, weight):
        return linear(x) + tied(x) + torch.nn.functional.linear(x, weight) / 3

    fast = torch.compile(function, backend="foldback", options=PASSES)
    x = torch.randn(2, 8)
    with torch.no_grad():
        for _ in range(2):
            weight = nn.Parameter(torch.randn(8, 8))
            assert_close(fast(x, weight), function(x, weight))


CLIENT = pathlib.Path(__file__).resolve().parents[1]


def test_the_page_with_the_package_as_pip_installs_it(tmp_path):
    """The samples name the backend and import nothing for it."""
    unbuilt = shutil.ignore_patterns("tests", "build", "*.egg-info", "__pycache__")
    shutil.copytree(CLIENT, tmp_path / "source", ignore=unbuilt)  # pip builds in the folder of the source
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", tmp_path / "site"]
    subprocess.run([*install, tmp_path / "source"], check=True)
    samples = re.findall(r"```python\n(.*?)```", (CLIENT.parents[1] / "docs" / "torch-compile.md").read_text(), re.DOTALL)
    assert len(samples) == 4
    program = tmp_path / "program.py"  # in a file: Dynamo reads the source
    program.write_text("\n".join(samples))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"),
                   "FOLDBACK_BINARY": os.path.abspath(os.environ["FOLDBACK_BINARY"])}
    environment.pop("FOLDBACK_SERVER", None)
    warned = ["-W", "error::UserWarning:torch"]
    done = subprocess.run([sys.executable, *warned, program], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "'MergeLinears': 1" in done.stdout and "Attention 0/" in done.stdout


def test_a_sequential_at_the_root():
    """Its weights are called 0.0.weight, which cannot be the name of an argument."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)).eval()
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        torch.testing.assert_close(compiled(model, options={"passes": ["inference"]})(x), model(x), rtol=1e-4, atol=1e-5)
    (run,) = foldback.compiled_runs(model)
    assert run.nodes[1] < run.nodes[0]


# ---- the first call, twice ------------------------------------------------------------------------------------------------


def broken(graph_module, inputs):
    """A backend that computes something else."""
    return lambda *args: [one * 1.01 for one in graph_module(*args)]


def test_a_result_that_computes_something_else_is_found():
    model, x = make()
    fast = compiled(model, options={**PASSES, "then": broken, "check": True})
    with torch.no_grad(), pytest.warns(UserWarning, match="output 0 is .* apart, where the largest magnitude is"):
        assert_close(fast(x), model(x))
    with torch.no_grad():
        assert_close(fast(x), model(x))  # nor the next time


@pytest.mark.parametrize(("then", "check"), [("eager", True), (broken, 0.05), ("eager", 1e-4)])
def test_a_result_that_is_near_is_kept(then, check):
    model, x = make()
    calls = []

    def counting(graph_module, inputs):
        run = broken(graph_module, inputs) if then is broken else graph_module
        return lambda *args: calls.append(1) or run(*args)

    fast = compiled(model, options={**PASSES, "then": counting, "check": check})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_close(fast(x), model(x))  # as captured
        fast(x)
    assert len(calls) == 2


def test_what_a_graph_writes_is_checked_too():
    class Model(nn.Module):
        def forward(self, x):
            x.mul_(2)
            return x + 1

    x = torch.ones(3)
    with torch.no_grad():
        compiled(Model().eval(), options={"check": True})(x)
    assert x.tolist() == [2, 2, 2]  # once

    def forgets(graph_module, inputs):
        return lambda *args: graph_module(*(one.clone() if isinstance(one, torch.Tensor) else one for one in args))

    with torch.no_grad(), pytest.warns(UserWarning, match="output 1 is 2 apart"):
        compiled(Model().eval(), options={"check": True, "then": forgets})(x)
    assert x.tolist() == [4, 4, 4]


@pytest.mark.parametrize("check", [-1, "yes", math.inf, math.nan])
def test_distances_that_are_none(check):
    model, x = make()
    with torch.no_grad(), pytest.raises(Exception, match='"check" is True, or the distance'):
        compiled(model, options={"check": check})(x)
