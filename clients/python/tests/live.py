"""A live GraphModule beside its document: what a run does to the one, edits do to the other."""

import copy
import re

import torch
from canonical import canonical_bytes, identity
from passes import are_preserving
from proof import TOLERANCE, tensors_of
from sample import IS_SHORT

import foldback


def spelled_as_before(code):
    """PyTorch 2.14 writes complex(0.0, 1.0) where it wrote 1j, as foldback still does."""
    return re.sub(r"(?<![\w.])complex\((-?[\w.]+), (-?[\w.]+)\)", lambda m: repr(complex(float(m[1]), float(m[2]))), code)


def flat_code(live):
    """The code over flat placeholders: torch.export's way of nested arguments is left out, and its checks of inputs."""
    copied = copy.deepcopy(live.graph)
    copied.set_codegen(torch.fx.graph.CodeGen())
    for node in list(copied.nodes):
        if node.op == "call_module" and node.target == "_guards_fn":
            copied.erase_node(node)
    return spelled_as_before(copied.python_code("self").src)


def without_tensors(document):
    """Lines, one for a node or a module."""
    text = canonical_bytes({**document, "tensors": [], "name": "", "metadata": {}}).decode()
    return text.replace('{"name":', '\n{"name":').replace('{"path":', '\n{"path":').splitlines()


def without_unread(document):
    """Without buffers that nobody reads and no checkpoint has: where such a tensor was never registered, a live module does not
    tell of it. Nor does it of attributes that nobody reads. And without the modules that own nothing else, or have empty slots
    only."""
    read = {node["target"] for node in document["nodes"] if node["op"] in ("get_attr", "call_module")}
    rows = []
    for row in document["modules"]:
        gone = [key for key in row.get("non_persistent", ()) if f"{row['path']}.{key}".lstrip(".") not in read]
        kept = [key for key in row.get("non_persistent", ()) if key not in gone]
        left = {key: name for key, name in row["buffers"].items() if key not in gone}
        slots = [*row["parameters"].values(), *left.values()]
        is_empty = not any(slots) and (slots or gone)
        if not is_empty or not row["path"] or row["path"] in read:
            named = {key: item for key, item in row.get("attributes", {}).items() if f"{row['path']}.{key}".lstrip(".") in read}
            rows.append({**row, "buffers": left, "non_persistent": kept, "attributes": named})
    return {**document, "modules": rows}


class Live:
    """Runs passes on a model's document, replays them on the live module, and proves that both are the same."""

    def __init__(self, client, document, module, inputs, expected):
        self.client, self.document, self.module, self.inputs = client, document, module, inputs
        self.id = client.put_graph(document)
        assert self.id == identity(document)
        assert client.code(self.id) == flat_code(module)
        self.expected = tensors_of([expected])
        self.results = self.call()
        self.assert_close(self.results)
        self.state = {key: (tensor, tensor.clone()) for key, tensor in module.state_dict(keep_vars=True).items()}
        self.flags = {key: tensor.requires_grad for key, (tensor, _) in self.state.items()}
        self.modules = [(path, id(child)) for path, child in module.named_modules(remove_duplicate=False)]
        self.code = flat_code(module)

    def call(self):
        """On a copy, for a call may write into buffers."""
        module, inputs = copy.deepcopy((self.module, self.inputs))
        torch.manual_seed(0)
        with torch.no_grad():
            return tensors_of([module(**inputs)])

    def assert_close(self, results, values=True):
        assert len(results) == len(self.expected)
        for one, other in zip(results, self.expected):
            assert one.dtype == other.dtype and one.shape == other.shape
            if not values:
                continue
            tolerance = TOLERANCE.get(one.dtype, 0)
            scale = max(1.0, float(other.abs().max())) if one.is_floating_point() and other.numel() else 1
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance * scale, equal_nan=True)

    def prove(self, passes):
        """Optimises, checks, and takes it back; gives what each pass says. The short form stops where nothing changed."""
        run = self.client.optimize(self.id, passes, include=["graph", "code"])
        assert run["result"] == identity(run["graph"])
        if IS_SHORT and run["result"] == self.id:
            assert not self.client.edits(run)
            return run["passes"]
        foldback.apply_edits(self.module, self.client.edits(run))
        assert flat_code(self.module) == run["code"]
        self.assert_is(run["graph"])
        self.assert_close(self.call(), values=are_preserving(run["passes"]))
        undone = self.client.reverse(run) if run["reversible"] else self.client.rollback(run)
        assert undone["result"] == self.id
        foldback.apply_edits(self.module, self.client.edits(undone))
        self.assert_undone()
        return run["passes"]

    def assert_is(self, document):
        """What the live module is now, as a document, is the service's: but for tensors, which have no recipes here, and
        for shapes that the service does not know."""
        exported = foldback.fx.to_document(self.module, *self.inputs.values())
        modules = {row["path"]: row for row in document["modules"]}
        for row in exported["modules"]:
            said = modules.get(row["path"], row)
            row["training"] = said["training"]  # the shells that torch.export makes have a flag of their own
            row["config"] = {key: item for key, item in row["config"].items() if key in said["config"]}  # without defaults
        for ours, theirs in zip(exported["nodes"], document["nodes"]):
            for key in ("shape", "dtype"):
                if key not in theirs["meta"]:
                    ours["meta"].pop(key, None)
            ours["meta"].pop("device", None)  # recorded for a cast, which a pass may have taken away or put elsewhere
            if "device" in theirs["meta"]:
                ours["meta"]["device"] = theirs["meta"]["device"]
        assert without_tensors(without_unread(exported)) == without_tensors(without_unread(document))
        for row in document["tensors"]:
            owned = next((entry for entry in exported["tensors"] if entry["name"] == row["name"]), None)
            if owned is not None:
                keys = ("dtype", "shape", "requires_grad")
                assert {key: owned.get(key) for key in keys} == {key: row.get(key) for key in keys}

    def assert_undone(self):
        """The same parameter objects with the same bits, under the same keys in the same order, in the same modules."""
        state = self.module.state_dict(keep_vars=True)
        assert list(state) == list(self.state)
        for key, tensor in state.items():
            kept, value = self.state[key]
            assert tensor is kept, key
            assert torch.equal(tensor, value), key
            assert tensor.requires_grad == self.flags[key], key
        assert [(path, id(child)) for path, child in self.module.named_modules(remove_duplicate=False)] == self.modules
        assert flat_code(self.module) == self.code
        for one, other in zip(self.call(), self.results, strict=True):
            assert torch.equal(one, other) or one.isnan().any()
