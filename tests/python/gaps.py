"""Candidates that a pass neither takes nor refuses, and operators that it does not know.

A pass's patterns are looked for here by other means than its own: by the names of operators in the document, whatever the
spelling, through views. What looks like one must be changed by the pass or named in a refusal ("nothing is silently skipped").

    PYTHONPATH=clients/python/src python tests/python/gaps.py [names of models]

prints both lists for the architectures of docs/models.md, as torch.fx and torch.export give them and after
run_decompositions(). test_gaps.py asks the same of a few."""

import collections
import json

VIEWS = {
    "view", "_unsafe_view", "reshape", "flatten", "unflatten", "permute", "transpose", "t", "unsqueeze",
    "squeeze", "contiguous",
    "clone", "alias", "detach",
}
RESHAPES = {"view", "_unsafe_view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze"}
CONVOLUTIONS = {"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution"}
NORMS = {"layer_norm", "native_layer_norm", "layernorm", "rms_norm", "rmsnorm"}
BATCH_NORMS = {"batch_norm", "_native_batch_norm_legit_no_training", "batchnorm1d", "batchnorm2d", "batchnorm3d",
               "native_batch_norm"}
TUPLES = {"native_layer_norm", "_native_batch_norm_legit_no_training", "native_batch_norm"}
SCALES = {"mul", "div", "truediv", "add", "sub", "true_divide"}
COPIES = {"to", "_to_copy", "float", "double", "half", "type_as", "contiguous", "clone", "alias", "detach", "dropout",
          "identity", "lift_fresh_copy"}
SIZED = {"view", "reshape", "expand", "flatten", "_unsafe_view"}
IMPURE = {"rand", "randn", "empty", "dropout", "bernoulli", "rand_like", "empty_like", "empty_strided", "zeros", "ones", "full",
          "arange", "scalar_tensor", "tensor", "lift_fresh_copy"}


def nodes_in(value):
    """Names of the nodes that an argument mentions, in order."""
    if isinstance(value, dict):
        if "$node" in value:
            return [value["$node"]]
        return [name for item in value.values() for name in nodes_in(item)]
    return [name for item in value for name in nodes_in(item)] if isinstance(value, list) else []


def number_of(value):
    if isinstance(value, dict) and "$float" in value:
        return float(value["$float"])
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


class Program:
    """A document's nodes by name, who reads them, and what they are called."""

    def __init__(self, document):
        self.rows = {row["name"]: row for row in document["nodes"]}
        self.types = {row["path"]: row for row in document["modules"]}
        self.users = collections.defaultdict(list)
        for name, row in self.rows.items():
            for read in dict.fromkeys(self.reads(name)):
                self.users[read].append(name)
        self.constant = set()
        for name, row in self.rows.items():
            is_made = (row["op"].startswith("call") and self.reads(name)
                       and all(read in self.constant for read in self.reads(name)))
            if (row["op"] == "get_attr" and self.is_tensor(row["target"])) or is_made:
                self.constant.add(name)

    def is_tensor(self, target):
        path, _, key = target.rpartition(".")
        module = self.types.get(path, {})
        return bool(module.get("parameters", {}).get(key) or module.get("buffers", {}).get(key))

    def reads(self, name):
        return nodes_in([self.rows[name]["args"], self.rows[name]["kwargs"]])

    def base(self, name):
        """What the node calls: without namespace, overload, and underscore of in-place."""
        row = self.rows[name]
        if row["op"] == "call_module":
            return self.types[row["target"]]["type"].rpartition(".")[2].lower()
        if not row["op"].startswith("call"):
            return ""
        parts = row["target"].split(".")
        word = parts[3] if row["target"].startswith("torch.ops.aten.") else parts[-1]
        return word if word.startswith("__") else word.removesuffix("_")

    def argument(self, name, index):
        """The node that the argument is, or None."""
        args = self.rows[name]["args"]
        return args[index].get("$node") if index < len(args) and isinstance(args[index], dict) else None

    def is_first_of(self, name):
        """The call whose first result the node takes; or the node."""
        if self.base(name) == "getitem" and self.rows[name]["args"][1] == 0 and self.base(self.argument(name, 0)) in TUPLES:
            return self.argument(name, 0)
        return name

    def source(self, name):
        """What a value is a view of."""
        for _ in range(8):
            inner = self.argument(name, 0)
            if self.base(name) not in VIEWS or inner is None:
                return name
            name = inner
        return name

    def readers(self, name):
        """Who reads a value, directly or through views: (reader, what it reads)."""
        found, queue = [], [name]
        while queue and len(found) < 200:
            at = queue.pop()
            for user in self.users[at]:
                if self.base(user) in VIEWS and self.argument(user, 0) == at:
                    queue.append(user)
                else:
                    found.append((user, at))
        return found

    def linear(self, name):
        """(input, has a bias) of what multiplies with a weight, or None."""
        base, row = self.base(name), self.rows[name]
        if base == "linear" and row["op"] == "call_module":
            return self.argument(name, 0), bool(self.types[row["target"]]["parameters"].get("bias"))
        if base == "linear" and self.argument(name, 1) in self.constant:
            return self.argument(name, 0), self.argument(name, 2) is not None
        if base == "addmm" and self.argument(name, 2) in self.constant:
            return self.argument(name, 1), True
        if base == "mm" and self.argument(name, 1) in self.constant:
            return self.argument(name, 0), False
        return None

    def host(self, name):
        """The input of a Linear or a convolution, or None."""
        linear = self.linear(name)
        if linear:
            return linear[0]
        return self.argument(name, 0) if self.base(name) in CONVOLUTIONS else None

    def is_like(self, name, other, members=("shape", "dtype")):
        one, two = self.rows[name]["meta"], self.rows[other]["meta"]
        return all(key in one and one[key] == two.get(key) for key in members)

    # ---- patterns: each gives groups of nodes, of which each must be changed or refused

    def batch_norms(self):
        for name in self.rows:
            call = self.is_first_of(name)
            if self.base(call) not in BATCH_NORMS or (self.base(call) in TUPLES and call == name):
                continue
            before = self.host(self.source(self.argument(call, 0)))
            after = any(self.host(user) == at for user, at in self.readers(name))
            if before is not None or after:
                yield [name]

    def merges(self):
        groups = collections.defaultdict(list)
        for name in self.rows:
            linear = self.linear(name)
            if linear and linear[0] not in self.constant:
                view = self.rows[linear[0]]
                key = json.dumps([view["target"], view["args"]]) if self.base(linear[0]) in VIEWS else linear[0]
                groups[key].append(name)
        yield from (group for group in groups.values() if len(group) > 1)

    def norms(self):
        for name in self.rows:
            call = self.is_first_of(name)
            if self.base(call) not in NORMS or (self.base(call) in TUPLES and call == name):
                continue
            row = self.rows[call]
            owned = self.types[row["target"]]["parameters"].get("weight") if row["op"] == "call_module" else None
            has_weight = owned or any(read in self.constant for read in self.reads(call))
            found = [user for user, at in self.readers(name) if self.linear(user) and self.linear(user)[0] == at]
            if has_weight and found:
                yield [name]

    def scales(self):
        for name, row in self.rows.items():
            if self.base(name) not in SCALES or len(row["args"]) != 2 or row["kwargs"]:
                continue
            for x, c in ((0, 1), (1, 0)):
                value, constant = self.argument(name, x), row["args"][c]
                is_constant = number_of(constant) is not None or self.argument(name, c) in self.constant
                if (value is None or value in self.constant or not is_constant
                    or (x == 1 and self.base(name) not in ("mul", "add"))):
                    continue
                if self.host(self.source(value)) is not None or any(self.host(user) == at for user, at in self.readers(name)):
                    yield [name]
                    break

    def packed(self):
        for name in self.rows:
            if self.base(name) not in ("addmm", "mm") or not self.linear(name) or len(self.users[name]) != 1:
                continue
            if self.base(self.linear(name)[0]) in RESHAPES and self.base(self.users[name][0]) in RESHAPES:
                yield [name]

    def divisions(self):
        for name, row in self.rows.items():
            if self.base(name) in ("truediv", "div") and len(row["args"]) == 2 and self.argument(name, 0):
                if number_of(row["args"][1]) is not None and "dtype" in row["meta"]:
                    yield [name]

    def no_ops(self):
        for name, row in self.rows.items():
            inner = self.argument(name, 0) if row["args"] else None
            if inner is None or not row["op"].startswith("call") or self.base(name) not in COPIES | SIZED:
                continue
            if self.is_like(name, inner):
                yield [name]

    def repeats(self):
        seen = {}
        for name, row in self.rows.items():
            if not row["op"].startswith("call") or self.base(name) in IMPURE or not self.users[name]:
                continue
            key = json.dumps([row["op"], row["target"], row["args"], row["kwargs"]])
            if key in seen:
                yield [name]
            seen[key] = name

    def view_chains(self):
        for name in self.rows:
            inner = self.argument(name, 0) if self.rows[name]["args"] else None
            if inner and self.base(name) in RESHAPES and self.base(inner) in RESHAPES and self.is_like(name, inner, ("dtype",)):
                yield [name]

    def biases(self):
        yield from ([name] for name in self.rows if self.linear(name) and self.linear(name)[1])

    def constants(self):
        for name, row in self.rows.items():
            if name not in self.constant or not row["op"].startswith("call") or self.base(name) in IMPURE:
                continue
            if all(self.rows[read]["op"] == "get_attr" for read in self.reads(name)) and "dtype" in row["meta"]:
                yield [name]

    def dead(self):
        yield from ([name] for name, row in self.rows.items() if row["op"].startswith("call") and not self.users[name])


PATTERNS = {
    "FuseBatchNorm": Program.batch_norms,
    "MergeLinears": Program.merges,
    "FoldNormIntoLinear": Program.norms,
    "FoldScaleIntoLinear": Program.scales,
    "UnpackLinear": Program.packed,
    "ChangeTrueDivToMulByInverse": Program.divisions,
    "RemoveNoOps": Program.no_ops,
    "EliminateCommonSubexpressions": Program.repeats,
    "MergeViews": Program.view_chains,
    "FuseBiasInLinear": Program.biases,
    "FoldConstants": Program.constants,
    "EliminateDeadCode": Program.dead,
}


def row_of(row):
    return {**row, "meta": {key: item for key, item in row["meta"].items() if key != "transformations"}}


def silent(program, run):
    """The nodes of the pass's pattern that its run neither changed nor named."""
    (outcome,) = run["passes"]
    after = {row["name"]: row for row in run["graph"]["nodes"]}
    refused = {name for refusal in outcome["refused"] for name in refusal["nodes"]}
    modules = {row["path"]: row for row in run["graph"]["modules"]}

    def is_seen(name):
        call = program.is_first_of(name)
        was, now, target = program.rows[name], after.get(name), program.rows[name]["target"]
        if name in refused or call in refused or now is None or row_of(now) != row_of(was) or after[call] != program.rows[call]:
            return True
        return was["op"] == "call_module" and modules[target] != program.types[target]

    pattern = PATTERNS[outcome["name"]]
    return [name for group in pattern(program) for name in group if not is_seen(name)]


def unknown(run):
    """Operators of the graph that a pass refused because nothing is known of them, by target."""
    targets = {row["name"]: row["target"] for row in run["graph"]["nodes"]}
    return [
        targets.get(name, name)
        for outcome in run["passes"]
        for refusal in outcome["refused"]
        if refusal["reason"] == "unknown-operator"
        for name in refusal["nodes"]
    ]


class Survey:
    """`optimize(graph, passes)` runs passes and gives the run with its graph."""

    def __init__(self, optimize):
        self.optimize = optimize

    def see(self, document):
        """({pass: nodes skipped in silence}, [targets refused as unknown], nodes left by `inference`)"""
        program = Program(document)
        skipped, unknowns = {}, []
        for name in PATTERNS:
            run = self.optimize(document, [name])
            unknowns += unknown(run)
            found = silent(program, run)
            if found:
                skipped[name] = found
        run = self.optimize(document, ["inference"])
        return skipped, unknowns, len(run["graph"]["nodes"])


FORMS = ("torch.fx", "torch.export", "decomposed")


def document_of(name, form):
    """A model of docs/models.md in one of FORMS; None where the tracer does not follow it."""
    import torch
    import transformers_models
    import vision_models

    import foldback

    source = vision_models if name.startswith("vision/") else transformers_models
    model, inputs = source.make(name.removeprefix("vision/"))
    if form == "torch.fx":
        if source is vision_models:
            live = torch.fx.symbolic_trace(model)
        elif name in transformers_models.TRACED:
            live = transformers_models.trace(model, inputs)
        else:
            return None
        return foldback.fx.to_document(live, *inputs.values(), name=name)
    with torch.no_grad():
        program = torch.export.export(model, (), inputs)
        program = program.run_decompositions() if form == "decomposed" else program
    return foldback.export.from_exported_program(program, name=name)


def names():
    import transformers_models
    import vision_models

    return [*transformers_models.MODELS, *(f"vision/{name}" for name in vision_models.MODELS)]


def main():
    import importlib.util
    import os
    import pathlib
    import sys
    import tempfile
    import warnings

    warnings.filterwarnings("ignore")
    root = pathlib.Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root / "clients" / "python" / part) for part in ("src", "tests")]
    sys.path.append(str(root / "tests" / "api"))
    specification = importlib.util.spec_from_file_location("api_conftest", root / "tests" / "api" / "conftest.py")
    api = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(api)
    kept = pathlib.Path(os.environ["GAPS_DOCUMENTS"]) if os.environ.get("GAPS_DOCUMENTS") else None  # made once, read again
    totals, all_unknown, left = collections.Counter(), collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        service = api.Service(pathlib.Path(folder) / "data").start()

        def optimize(document, passes):
            request = {"graph": document, "passes": passes, "options": {"include": ["graph"], "dry_run": True}}
            answer = service.post("/v1/optimize", request)
            assert answer.status in (200, 201), answer.body.decode()[:1000]
            return answer.json()

        survey = Survey(optimize)
        for name in sys.argv[1:] or names():
            for form in FORMS:
                file = kept / f"{name.replace('/', '-')}.{form}.json" if kept else None
                document = json.loads(file.read_text()) if file and file.exists() else document_of(name, form)
                if file and not file.exists():
                    file.write_text(json.dumps(document))
                if document is None:
                    continue
                skipped, unknowns, after = survey.see(document)
                for pass_, found in skipped.items():
                    totals[form, pass_] += len(found)
                    print(f"{name} {form}: {pass_} skips", ", ".join(found))
                all_unknown.update(unknowns)
                left[form] += after
        service.stop()
    for (form, pass_), count in sorted(totals.items()):
        print(f"skipped in silence: {count} by {pass_}, {form}")
    print(f"skipped in silence: {sum(totals.values())}")
    for target, count in all_unknown.most_common():
        print(f"refused as unknown: {count} {target}")
    print(f"refused as unknown: {sum(all_unknown.values())}")
    print("nodes after inference:", dict(left))


if __name__ == "__main__":
    main()
