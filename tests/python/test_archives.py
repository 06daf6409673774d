"""The documents of tests/fixtures/archives/documents.json are what the exporter makes of the programs loaded from the archives
there; the tests of the reader in C (test_archive.c) compare with them. And where a name is that of a tied tensor, the loaded
program has the document of the one that was saved."""

import copy
import json
import re
import struct
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from archive_models import MODELS
from safetensors.torch import load_file
from torch.export.pt2_archive._package import load_pt2

HERE = Path(__file__).parent
ARCHIVES = HERE.parent / "fixtures/archives"
sys.path[:0] = [str(HERE.parents[1] / "clients/python/src"), str(ARCHIVES)]

import make_schema

from foldback.export import from_exported_program

DOCUMENTS = json.loads((ARCHIVES / "documents.json").read_text())


IS_OLD = torch.__version__ < "2.10"


def members(schema: str) -> set[tuple[str, str]]:
    """Each type with each of its members and their kinds."""
    rows = re.findall(r'^PT_SCHEMA_ROW\("(\w+)", \w+, "(.*)"\)$', schema, re.M)
    return {(name, member) for name, listed in rows for member in listed.split(",")}


def test_the_schema_is_pytorchs() -> None:
    """An older PyTorch has fewer members."""
    ours, theirs = (HERE.parents[1] / "core/archive/schema.def").read_text(), make_schema.text()
    assert members(ours) > members(theirs) if IS_OLD else ours == theirs


def numbered(value: Any, numbers: dict[str, int]) -> Any:
    """A part of a document with numbers as the names of nodes."""
    if isinstance(value, list):
        return [numbered(item, numbers) for item in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("nodes"), list):
        numbers = {row["name"]: i for i, row in enumerate(value["nodes"])}
    return {key: numbers.get(item, item) if key in ("$node", "name") else numbered(item, numbers)
            for key, item in value.items()}


def comparable(document: dict[str, Any]) -> dict[str, Any]:
    """Without the version of PyTorch. 2.9 loads nodes of several results under other names, and every parameter as trained."""
    made: dict[str, Any] = json.loads(json.dumps(document))
    made["metadata"]["producer"] = "torch.fx"
    if not IS_OLD:
        return made
    for row in made["tensors"]:
        row.pop("requires_grad", None)
    return {**numbered(made, {}), "tensors": made["tensors"]}


@pytest.mark.parametrize(("archive", "model"), [(archive, model) for archive in DOCUMENTS for model in DOCUMENTS[archive]])
def test_the_document_is_that_of_the_exporter(archive: str, model: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = load_pt2(str(ARCHIVES / f"{archive}.pt2")).exported_programs[model]
        made = from_exported_program(program)
    assert comparable(made) == comparable(DOCUMENTS[archive][model])


def test_a_tied_tensor_is_one_after_loading(tmp_path: Path) -> None:
    import make

    program = torch.export.export(make.Tied().eval(), (torch.zeros(2, 3, dtype=torch.int64),))
    torch.export.save(program, tmp_path / "tied.pt2")
    loaded = torch.export.load(tmp_path / "tied.pt2")
    before, after = from_exported_program(program), from_exported_program(loaded)
    assert [row["name"] for row in after["tensors"]] == ["embed.weight"]
    assert before["modules"] == after["modules"] and before["tensors"] == after["tensors"]


BINARY = HERE.parents[1] / "build/foldback"


def optimised(tmp_path: Path, given: Path, *passes: str) -> subprocess.CompletedProcess[str]:
    words = [word for name in passes for word in ("--pass", name)]
    command = [str(BINARY), "optimize", str(given), *words, "-o", str(tmp_path / "fast.pt2"), "--data", str(tmp_path / "store")]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def test_interleaved_parts_of_one_tensor_are_tensors_of_their_own(tmp_path: Path) -> None:
    """Halves of columns, in an archive and by the exporter."""
    model, args, sizes = MODELS["columns"]()
    program = torch.export.export(model, args, dynamic_shapes=sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(program, tmp_path / "columns.pt2")
    for verb in (["put"], ["weights", "-o", str(tmp_path / "columns.safetensors")]):
        command = [str(BINARY), *verb, str(tmp_path / "columns.pt2"), "--data", str(tmp_path / "store")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
    found, wanted = load_file(tmp_path / "columns.safetensors"), model.state_dict()
    assert set(found) == set(wanted) and all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert not any("recipe" in row for row in from_exported_program(program)["tensors"])


class Carried(torch.nn.Module):
    """A buffer of a dtype that nothing computes with, given back."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([0, 127, 255, 128], dtype=torch.uint8).view(dtype))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x / 8.0, self.scale


@pytest.mark.parametrize("name", ["float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "complex32"])
def test_dtypes_that_nothing_computes_with_are_carried(tmp_path: Path, name: str) -> None:
    if IS_OLD and name == "float8_e8m0fnu":
        pytest.skip("torch.export.save does not know it")
    model = Carried(getattr(torch, name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model, (torch.randn(2, 3),))
        torch.export.save(program, tmp_path / "model.pt2")
        (tensor,) = from_exported_program(program)["tensors"]
        done = optimised(tmp_path, tmp_path / "model.pt2", "ChangeTrueDivToMulByInverse")
        assert (tensor["dtype"], done.returncode) == (name, 0), done.stderr
        found = torch.export.load(tmp_path / "fast.pt2").state_dict["scale"]
    assert found.dtype == model.scale.dtype and torch.equal(found.view(torch.uint8), model.scale.view(torch.uint8))


@pytest.mark.skipif(IS_OLD, reason="torch.export.save refuses them")
def test_tensors_that_overlap_are_carried_whole_and_left_alone(tmp_path: Path) -> None:
    model, (x,), _ = MODELS["overlapping"]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model, (x,))
        torch.export.save(program, tmp_path / "model.pt2")
        document = from_exported_program(torch.export.load(tmp_path / "model.pt2"))
        assert [row["name"] for row in document["tensors"] if row.get("overlaps")] == ["a.weight", "b.weight", "c.weight"]
        done = optimised(tmp_path, tmp_path / "model.pt2", "ChangeTrueDivToMulByInverse", "MergeLinears")
        assert done.returncode == 0, done.stderr
        after = torch.export.load(tmp_path / "fast.pt2")
        assert {key for key in model.state_dict() if key not in after.state_dict} == {"d.weight", "e.weight", "f.weight"}
        for found, wanted in zip(after.module()(x), model(x), strict=True):
            torch.testing.assert_close(found, wanted)
        (tmp_path / "model.json").write_text(json.dumps(document))
        structures = set()
        for name in ("model.pt2", "model.json"):
            command = [str(BINARY), "put", str(tmp_path / name), "--data", str(tmp_path / "store"), "--json"]
            put = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            structures.add(json.loads(put.stdout)["structure"])
    assert len(structures) == 1


class Folded(torch.nn.Module):
    """A batch norm that does something, after a convolution without bias; a dropout; two linears that read one tensor."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv = torch.nn.Conv2d(3, 4, 3, bias=False)
        self.norm = torch.nn.BatchNorm2d(4)
        self.drop = torch.nn.Dropout(0.5)
        self.left, self.right = torch.nn.Linear(4, 5), torch.nn.Linear(4, 6)
        for tensor in (self.norm.weight, self.norm.bias, self.norm.running_mean, self.norm.running_var):
            torch.nn.init.uniform_(tensor, 0.5, 2.0)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.drop(torch.relu(self.norm(self.conv(x)))).mean((2, 3))
        return self.left(x), self.right(x)


@pytest.mark.parametrize("passes", [["RemoveNoOps"], ["FuseBatchNorm"], ["FuseBatchNorm", "RemoveNoOps"], ["EliminateDeadCode"],
                                    ["MergeLinears"], ["inference"]])
def test_the_archive_of_a_changed_graph_computes_the_same(tmp_path: Path, passes: list[str]) -> None:
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(Folded().eval(), (torch.randn(2, 3, 6, 6),), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "model.pt2")
    done = optimised(tmp_path, tmp_path / "model.pt2", *passes)
    assert done.returncode == 0, done.stderr
    fast = torch.export.load(tmp_path / "fast.pt2")
    targets = [str(node.target) for node in fast.graph.nodes]
    if "FuseBatchNorm" in passes:
        assert "aten.batch_norm.default" not in targets and "conv.bias" in fast.state_dict
        assert "norm.weight" not in fast.state_dict
    if "MergeLinears" in passes:
        assert targets.count("aten.linear.default") == 1
    if "RemoveNoOps" in passes:
        assert "aten.dropout.default" not in targets
    assert str(fast.range_constraints) == str(torch.export.load(tmp_path / "model.pt2").range_constraints)
    for size in (2, 3, 64):
        x = torch.randn(size, 3, 6, 6)
        for found, wanted in zip(fast.module()(x), program.module()(x), strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=2e-4)
    with zipfile.ZipFile(tmp_path / "fast.pt2") as archive:
        assert archive.testzip() is None
        for info in archive.infolist():
            archive.fp.seek(info.header_offset + 26)
            name, extra = struct.unpack("<HH", archive.fp.read(4))
            assert (info.header_offset + 30 + name + extra) % 64 == 0


class Cast(torch.nn.Module):
    """Linears that read one tensor, and what can be folded."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.left, self.right = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.norm = torch.nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.left(x) * self.norm(self.right(x)) / 3


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
@pytest.mark.parametrize("passes", [["MergeLinears"], ["RemoveNoOps"], ["FuseBatchNorm"], ["inference", "MergeLinears"]])
def test_parameters_cast_after_the_export(service: Any, tmp_path: Path, passes: list[str], dtype: torch.dtype) -> None:
    """What the archive records of results is older than they are: no pass relies on it, and none is missing in a new one."""
    program = torch.export.export(Cast().eval(), (torch.randn(2, 8),))
    for key, tensor in program.state_dict.items():
        if tensor.is_floating_point():
            cast = tensor.detach().to(dtype)
            program.state_dict[key] = torch.nn.Parameter(cast) if isinstance(tensor, torch.nn.Parameter) else cast
    torch.export.save(program, tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2")
    x = torch.randn(2, 8, dtype=dtype)
    wanted = program.module()(x)
    for given in ("model.pt2", "fast.pt2"):  # what was written is read, and changed, again
        done = optimised(tmp_path, tmp_path / given, *passes)
        assert done.returncode == 0, done.stderr
        fast = torch.export.load(tmp_path / "fast.pt2")
        found = fast.module()(x)
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted, rtol=1e-9 if dtype == torch.float64 else 4e-3, atol=1e-3)
    stored = service.post("/v1/graphs", (tmp_path / "model.pt2").read_bytes(), headers={"Content-Type": "application/zip"})
    document = service.get(f"/v1/graphs/{stored.json()['id']}").json()
    assert from_exported_program(program)["nodes"] == document["nodes"]
    assert not any("dtype" in node["meta"] for node in document["nodes"] if node["op"] != "get_attr")


def test_a_weight_of_both_orders_keeps_its_strides(service: Any, tmp_path: Path) -> None:
    """PyTorch goes by them: the image is in channels_last."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4), torch.nn.Conv2d(4, 8, 3, groups=4)).eval()
    x = torch.randn(2, 3, 6, 6)
    program = torch.export.export(model.to(memory_format=torch.channels_last), (x,))  # type: ignore[call-overload]
    torch.export.save(program, tmp_path / "model.pt2")
    stored = service.post("/v1/graphs", (tmp_path / "model.pt2").read_bytes(), headers={"Content-Type": "application/zip"})
    document = service.get(f"/v1/graphs/{stored.json()['id']}").json()
    formats = {row["name"]: row.get("memory_format") for row in document["tensors"]}
    assert formats["0.weight"] == formats["2.weight"] == "channels_last" and not formats["0.bias"]
    assert {row["name"]: row.get("memory_format") for row in from_exported_program(program)["tensors"]} == formats
    assert optimised(tmp_path, tmp_path / "model.pt2", "FuseBatchNorm").returncode == 0
    fast = torch.export.load(tmp_path / "fast.pt2").module()
    assert fast(x).stride() == program.module()(x).stride()
    torch.testing.assert_close(fast(x), program.module()(x), rtol=0, atol=1e-5)


NAMES = sorted(path.stem for path in ARCHIVES.glob("*.pt2") if path.stem != "several")


@pytest.mark.parametrize("name", NAMES)
def test_an_optimised_fixture_computes_the_same(tmp_path: Path, name: str) -> None:
    given = ARCHIVES / f"{name}.pt2"
    done = optimised(tmp_path, given, "inference")
    assert done.returncode == 0, done.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before, after = torch.export.load(given), torch.export.load(tmp_path / "fast.pt2")
        args, kwargs = before.example_inputs
        flat = torch.utils._pytree.tree_leaves
        one, other = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))
        torch.manual_seed(0)
        wanted = flat(before.module()(*one[0], **one[1]))
        torch.manual_seed(0)
        found = flat(after.module()(*other[0], **other[1]))
    for x, y in zip(found, wanted, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=2e-4, equal_nan=True)


class Attention(torch.nn.Module):
    """Three linears that read one tensor; their results are taken apart, turned and added to."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (torch.nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        q, k, v = (linear(x).view(b, n, 2, 4).transpose(1, 2) for linear in (self.q, self.k, self.v))
        y = torch.nn.functional.scaled_dot_product_attention(q, torch.relu(k), v + 1)
        return self.out(y.transpose(1, 2).reshape(b, n, 8))


class Strides(torch.fx.Interpreter):
    """Compares what each call gives with what the archive says of it."""

    def run_node(self, node: torch.fx.Node) -> object:
        found, said = super().run_node(node), node.meta.get("val")
        if node.op == "call_function" and isinstance(found, torch.Tensor):
            assert isinstance(said, torch.Tensor) and said.dtype == found.dtype
            env = dict(zip(self.symbols, self.sizes, strict=True))
            told = [int(x.node.expr.subs(env)) if isinstance(x, torch.SymInt) else x for x in (*said.shape, *said.stride())]
            assert told == [*found.shape, *found.stride()], f"{node.name}: {told}, and it is {[*found.shape, *found.stride()]}"
            self.compared = getattr(self, "compared", 0) + 1
        return found


class Copies(torch.nn.Module):
    """New tensors of a transposed one, which lie as it does or in rows."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(8, 4), torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = self.a(x).transpose(1, 2)
        return (2.0 ** a, a.clone(), a.flip(1), a.clone(memory_format=torch.contiguous_format), torch.zeros_like(a), a ** 2,
                a.to(torch.float64), torch.where(a > 0, a, 0), self.b(x))


@pytest.mark.parametrize("model, passes", [(Attention, ["MergeLinears"]), (Attention, ["inference"]),
                                           (Attention, ["FuseBiasInLinear"]), (Copies, ["MergeLinears"])])
def test_recorded_strides_are_those_that_the_calls_give(tmp_path: Path, model: type, passes: list[str]) -> None:
    dims = {0: torch.export.Dim("b", min=2, max=16), 1: torch.export.Dim("n", min=2, max=30)}
    program = torch.export.export(model().eval(), (torch.randn(3, 7, 8),), dynamic_shapes=(dims,))
    torch.export.save(program, tmp_path / "model.pt2")
    done = optimised(tmp_path, tmp_path / "model.pt2", *passes)
    assert done.returncode == 0, done.stderr
    fast = torch.export.load(tmp_path / "fast.pt2")
    x = torch.randn(5, 9, 8)
    state = {**fast.state_dict, **fast.constants}
    given = [x if spec.target is None else state[spec.target] for spec in fast.graph_signature.input_specs]
    [placeholder] = [node for node in fast.graph.nodes if node.name == "x"]
    interpreter = Strides(fast.graph_module)
    interpreter.symbols = [size.node.expr for size in placeholder.meta["val"].shape[:2]]
    interpreter.sizes = x.shape[:2]
    with torch.no_grad():
        interpreter.run(*given)
        assert interpreter.compared >= 10
        torch.testing.assert_close(fast.module()(x), program.module()(x), rtol=0, atol=2e-4)
        decomposed = fast.run_decompositions()
        torch.testing.assert_close(decomposed.module()(x), program.module()(x), rtol=0, atol=2e-4)


@pytest.mark.parametrize("form", ["exported", "decomposed"])
@pytest.mark.parametrize("way", ["in place", "exported again", "exported again, named"])
def test_an_undo_keeps_training(tmp_path: Path, way: str, form: str) -> None:
    """PyTorch saves a trained program with other names of nodes and without the entry that says which graph it was."""
    dims = {0: torch.export.Dim("b", min=2, max=16), 1: torch.export.Dim("n", min=2, max=30)}
    args = (torch.randn(3, 7, 8),)

    def export(model: torch.nn.Module) -> torch.export.ExportedProgram:
        program = torch.export.export(model, args, dynamic_shapes=(dims,))
        return program if form == "exported" else program.run_decompositions()

    torch.export.save(export(Attention().eval()), tmp_path / "model.pt2")
    done = optimised(tmp_path, tmp_path / "model.pt2", "MergeLinears", "UnpackLinear", "RemoveNoOps")
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    with zipfile.ZipFile(tmp_path / "fast.pt2") as archive:
        [entry] = [name for name in archive.namelist() if name.endswith("foldback_graph")]
        named = {"foldback_graph": archive.read(entry).decode()}
    fast = torch.export.load(tmp_path / "fast.pt2")
    live = fast.module()
    with torch.no_grad():
        for weight in live.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    wanted = live(*args)
    torch.export.save(fast if way == "in place" else export(live), tmp_path / "trained.pt2",
                      extra_files=named if "named" in way else None)
    words = ["reverse", str(tmp_path / "trained.pt2"), "-o", str(tmp_path / "back.pt2"), "--data", str(tmp_path / "store")]
    if "named" not in way:
        refused = subprocess.run([str(BINARY), *words], capture_output=True, text=True, timeout=600, check=False)
        assert refused.returncode == 1 and "--run RUN" in refused.stderr and not (tmp_path / "back.pt2").exists()
        words += ["--run", run["id"]]
    done = subprocess.run([str(BINARY), *words], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    before, back = torch.export.load(tmp_path / "model.pt2"), torch.export.load(tmp_path / "back.pt2")
    assert [str(node.target) for node in back.graph.nodes] == [str(node.target) for node in before.graph.nodes]
    assert back.state_dict.keys() == before.state_dict.keys()
    torch.testing.assert_close(back.module()(*args), wanted, rtol=0, atol=2e-4)


class Nested(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        def inner(y: torch.Tensor) -> torch.Tensor:
            return torch.cond(k > 3, lambda v: torch.relu(self.a(v)) / 2.0, lambda v: self.b(v) * 1.0, (y,))

        return torch.cond(x.sum() > 0, inner, lambda y: y.sin() / 4.0, (x,))


def test_changed_nested_programs_compute_the_same(tmp_path: Path) -> None:
    """Divisions become products, and each relu has a no-op behind it, in programs two levels deep."""
    batch = {0: torch.export.Dim("b", min=2, max=16)}
    program = torch.export.export(Nested().eval(), (torch.randn(3, 4), torch.tensor(2)), dynamic_shapes=(batch, None))
    torch.export.save(program, tmp_path / "model.pt2")
    store = ["--data", str(tmp_path / "store")]
    subprocess.run([str(BINARY), "optimize", str(tmp_path / "model.pt2"), "--pass", "DeepCopy", "-o",
                    str(tmp_path / "graph.json"), *store], check=True)
    document = json.loads((tmp_path / "graph.json").read_text())
    changed = 0
    for module in document["modules"]:
        nodes = module.get("graph", {}).get("nodes", [])
        for node in list(nodes):
            if node["target"] == "torch.ops.aten.div.Tensor":
                node["target"], node["args"][1] = "torch.ops.aten.mul.Tensor", 1 / float(node["args"][1]["$float"])
                changed += 1
            if node["target"] == "torch.ops.aten.relu.default":
                more = {**node, "name": "more", "target": "torch.ops.aten.mul.Tensor", "args": [{"$node": node["name"]}, 1.0]}
                for reader in nodes:
                    reader["args"] = json.loads(
                        json.dumps(reader["args"]).replace(f'"$node": "{node["name"]}"', '"$node": "more"'))
                nodes.insert(nodes.index(node) + 1, more)
                changed += 1
    assert changed == 3
    (tmp_path / "edited.json").write_text(json.dumps(document))
    done = optimised(tmp_path, tmp_path / "edited.json", "DeepCopy")
    assert done.returncode == 0, done.stderr
    fast = torch.export.load(tmp_path / "fast.pt2")
    within = [module for module in fast.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
    assert "more" in [node.name for one in within for node in one.graph.nodes]
    for x in (torch.ones(3, 4), -torch.ones(5, 4)):
        for k in (2, 5):
            torch.testing.assert_close(fast.module()(x, torch.tensor(k)), program.module()(x, torch.tensor(k)),
                                       rtol=0, atol=2e-4)


class Inner(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.drop = torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)

    def forward(self, pair: tuple[torch.Tensor, torch.Tensor], scale: float = 2.0) -> dict[str, torch.Tensor]:
        return {"sum": self.drop(self.fc(pair[0] + pair[1])) * scale, "first": pair[0]}


class Outer(torch.nn.Module):
    """Its inner module takes and gives containers; two linears that read one tensor stand behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = Inner(), torch.nn.BatchNorm1d(4)
        self.q, self.k = torch.nn.Linear(4, 3), torch.nn.Linear(4, 5)
        torch.nn.init.uniform_(self.norm.running_var, 0.5, 2.0)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        inner = self.inner((x, y), scale=3.0)
        z = self.norm(inner["sum"]) + inner["first"]
        return self.q(z), self.k(z)


@pytest.mark.parametrize("passes", [["RemoveNoOps"], ["MergeLinears"], ["FuseBiasInLinear"],
                                    ["RemoveNoOps", "MergeLinears", "EliminateDeadCode"], ["inference"]])
def test_signatures_of_modules_are_kept_or_refused(tmp_path: Path, passes: list[str]) -> None:
    """unflatten needs them, and the module of each node."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 4), torch.randn(2, 4)
    program = torch.export.export(Outer().eval(), (x, y), preserve_module_call_signature=("inner",))
    torch.export.save(program, tmp_path / "model.pt2")
    done = optimised(tmp_path, tmp_path / "model.pt2", *passes)
    if passes == ["inference"]:  # the factor goes into the linear's weights, and with it what `inner` returns
        assert done.returncode == 1 and 'the signature of the module "inner" has "mul", which is gone' in done.stderr
        assert not (tmp_path / "fast.pt2").exists()
        return
    assert done.returncode == 0, done.stderr
    fast = torch.export.load(tmp_path / "fast.pt2")
    signatures = [[(one.fqn, one.signature) for one in each.module_call_graph if one.signature] for each in (program, fast)]
    assert len(signatures[0]) == 2 and str(signatures[0]) == str(signatures[1])
    wanted = program.module()(x, y)
    unflattened = torch.export.unflatten(fast)
    assert "inner.fc.weight" in dict(unflattened.named_parameters())
    for found in (fast.module()(x, y), unflattened(x, y)):
        torch.testing.assert_close(found, wanted, rtol=0, atol=2e-4)


@pytest.mark.parametrize("call, args", [("flip.default", ["?x", []]), ("roll.default", ["?x", [1], []]),
                                        ("constant_pad_nd.default", ["?x", []])])
def test_empty_lists_as_new_arguments(tmp_path: Path, call: str, args: list[object]) -> None:
    class Positive(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x) + 1

    x = torch.tensor([[-1.0, 2.0, 3.0]])
    torch.export.save(torch.export.export(Positive(), (x,)), tmp_path / "model.pt2")
    target = f"torch.ops.aten.{call}"
    rule = {"name": "Empty", "exactness": "changes", "pattern": {"operator": "relu", "args": ["?x"], "as": "?y"},
            "replacement": {"?y": {"target": target, "args": args}}}
    (tmp_path / "rule.json").write_text(json.dumps(rule))
    put = subprocess.run([str(BINARY), "transformation", "put", str(tmp_path / "rule.json"), "--data", str(tmp_path / "store")],
                         capture_output=True, text=True, timeout=60, check=False)
    assert put.returncode == 0, put.stderr
    done = optimised(tmp_path, tmp_path / "model.pt2", "Empty")
    assert done.returncode == 0, done.stderr
    fast = torch.export.load(tmp_path / "fast.pt2")
    assert [str(node.target) for node in fast.graph.nodes if node.op == "call_function"] == [f"aten.{call}", "aten.add.Tensor"]
    torch.testing.assert_close(fast.module()(x), getattr(torch.ops.aten, call.split(".")[0])(x, *args[1:]) + 1)
