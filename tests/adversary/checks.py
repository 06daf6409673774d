"""What must hold for a program and the service. A check is a function of a subject and, mostly, a list of passes; a random plan
says which checks with which lists, and each of them can be done again alone."""

import copy
import dataclasses
import pathlib
import random
import re
import tempfile

import torch
import torch.utils._pytree as pytree
from canonical import canonical_bytes, identity
from compare import BITS, Difference, Judge, call, distance, is_same_bits, state_of
from safetensors.torch import load_file, save_file
from subject import ExportError, Subject, is_written, reads_unset_memory

import foldback
import foldback.export
import foldback.fx
from foldback.fx import from_document

# Move weights, but a product then adds up in another order
LOOSE = {"MergeLinears", "MergeConvolutions", "FuseBiasInLinear", "UnpackLinear"}
LISTS = 7  # of passes, for each program
PACKED = [{"name": "QuantizeWeights", "params": {"form": "packed", **more}} for more in ({}, {"bits": 4, "group_size": 32})]
SOUGHT = [  # what modules and weights are for, and the passes that look for them
    *((re.compile(r"nn\.Linear\((32|64|128),.*dtype=torch\.(float32|bfloat16)"), [item]) for item in PACKED),
    (re.compile(r"nn\.Linear"), ["MergeLinears", "MergeLinears", "FoldScaleIntoLinear", "FuseBiasInLinear"]),
    (re.compile(r"nn\.Conv2d"), ["FusePointwise", "FusePointwise", "cpu", "cpu", "ChannelsLast"]),
    (re.compile(r"self\.c\d+ = nn\.Conv2d"), ["ChannelsLast"]),
    (re.compile(r"self\.p\d+_0 = nn\.Conv"), ["MergeBranches", "MergeBranches", "inference"]),
    (re.compile(r"self\.w"), ["FoldConstants"]),
]
# Steps of a chain, between lists of passes; each list is one run
STEPS = ["| train", "| rename", "| write", "| digests", "| undo last", "| undo first", "| undo one"]
ACTIVATIONS = ["relu", "gelu", "silu", "tanh", "sigmoid", "leaky_relu", "elu", "hardswish"]


def name_of(item):
    return item if isinstance(item, str) else item["name"]


@dataclasses.dataclass(frozen=True)
class Check:
    stage: str
    passes: tuple = ()
    validate: str = "off"

    def run(self, subject, workshop):
        STAGES[self.stage](subject, workshop, self)


class Workshop:
    """The service, and what its passes say of themselves."""

    def __init__(self, service, client, rules):
        self.service, self.client = service, client
        for rule in rules:
            answer = service.post("/v1/transformations", rule)
            assert answer.status in (200, 201), answer.body
        answer = service.get("/v1/passes").json()
        self.exactness = {item["name"]: item["exactness"] for item in answer["items"]}
        self.reversible = [item["name"] for item in answer["items"] if item["reversible"] and item["exactness"] != "changes"]
        self.rules = {rule["name"]: rule["exactness"] for rule in rules}
        self.presets = [item["name"] for item in answer["presets"]]
        self.counts = {}

    def count(self, what, times=1):
        if times:
            self.counts[what] = self.counts.get(what, 0) + times

    def count_applied(self, run):
        """By pass how often it was; QuantizeWeights by form, which a node of its own shows."""
        for outcome in run["passes"]:
            name, params = outcome["name"], outcome.get("params", {})
            if name == "QuantizeWeights" and params.get("form") == "packed":
                nodes = [node["target"] for node in run["graph"]["nodes"]]
                bits = params.get("bits", 8)
                self.count(f"applied {name} {bits} packed", sum(f"_weight_int{bits}pack_mm" in target for target in nodes))
            self.count(f"applied {name}", outcome["applied"])

    def random_item(self, choose):
        kind = choose.random()
        if kind < 0.12:
            return choose.choice(self.presets)
        if kind < 0.2:
            return choose.choice(list(self.rules))
        name = choose.choice(list(self.exactness))
        params = {}
        if name == "RemoveNoOps":
            params = {key: True for key in ("asserts", "detach", "float_zeros") if choose.random() < 0.4}
        elif name == "FoldConstants" and choose.random() < 0.3:
            params = {"maximum_growth": choose.choice([0, 10, 1000])}
        elif name == "EvaluateConstants" and choose.random() < 0.3:
            params = {"exactness": "rounds"}
        elif name == "InlinePrograms" and choose.random() < 0.7:
            params = {"gradients": True}
        elif name == "ReplaceActivation":
            params = {"from": choose.choice(ACTIVATIONS[:4]), "to": choose.choice(ACTIVATIONS)}
            if params["from"] == params["to"]:
                params["to"] = "relu6"
        elif name == "ConvertPrecision":
            params = {"to": choose.choice(["bfloat16", "float16"])} | ({"keep": ["softmax"]} if choose.random() < 0.3 else {})
            params |= {"cast_outputs": False} if choose.random() < 0.2 else {}
        elif name == "QuantizeWeights" and choose.random() < 0.6:
            params = choose.choice(({"bits": 4, "group_size": 32}, *(item["params"] for item in PACKED)))
        return {"name": name, "params": params} if params else name

    def fits(self, item, items, keeps_numbers):
        """What changes numbers hides what others do; and two presets together may be more passes than one list may have."""
        if keeps_numbers and self.says(item) == "changes":
            return False
        return item not in items and not (item in self.presets and any(other in self.presets for other in items))

    def plan(self, program):
        choose = random.Random(program.seed)
        checks = [Check("document"), Check("evaluate")]
        sought = [items for holds, items in SOUGHT if holds.search("\n".join(program.init))]
        for index in range(LISTS):
            items = []
            for _ in range(choose.choice([1, 1, 2, 3, 5])):
                item = self.random_item(choose)
                while not self.fits(item, items, index < LISTS - 1):
                    item = self.random_item(choose)
                items.append(item)
            if index == 0:
                items = [choose.choice(["inference", "inference", "cleanup"])]
            elif index <= len(sought):
                items = [choose.choice(sought[index - 1])]
            checks.append(Check("passes", tuple(items), choose.choice(["off", "off", "rewrites", "graph"])))
            if choose.random() < 0.3:
                checks.append(Check("undo", tuple(items)))
            if choose.random() < 0.3:
                checks.append(Check("train", tuple(items)))
            for stage in ("file", "bound", "edited"):
                if choose.random() < 0.2:
                    checks.append(Check(stage, tuple(items)))
        checks.append(Check("chain", self.chain(choose)))
        if choose.random() < 0.25:
            checks.append(Check("module"))
        return checks

    def chain(self, choose):
        """Runs with what may come between and after them; later undos find more to undo."""
        items = ["| digests"] if choose.random() < 0.3 else []
        for _ in range(choose.choice([1, 2, 2, 3])):
            run = []
            for _ in range(choose.choice([1, 2, 3])):
                item = self.random_item(choose)
                while not self.fits(item, run, True):
                    item = self.random_item(choose)
                run.append(item if choose.random() < 0.5 else choose.choice(self.reversible))
            items += run
            items += choose.sample(STEPS, choose.choice([1, 1, 2]))
        return (*items, *choose.choices(STEPS[4:], k=3))

    def every(self):
        """Each pass, rule and preset alone."""
        yield Check("document")
        yield Check("evaluate")
        for name in [*self.exactness, *self.rules, *self.presets]:
            if name == "ReplaceActivation":
                name = {"name": name, "params": {"from": "relu", "to": "gelu"}}
            elif name == "ConvertPrecision":
                name = {"name": name, "params": {"to": "bfloat16"}}
            elif name == "QuantizeWeights":
                for params in {"bits": 4, "group_size": 32}, *(item["params"] for item in PACKED):
                    yield Check("passes", ({"name": name, "params": params},), "graph")
            yield Check("passes", (name,), "graph")
        yield Check("undo", ("inference",))
        several = ("MergeLinears", "FuseBiasInLinear", "MergeViews", "EliminateCommonSubexpressions")
        yield Check("train", several)
        yield Check("edited", several)
        yield Check("file", ("inference",))
        yield Check("bound", ("inference",))
        yield Check("chain", (*several, "| train", "cleanup", "| undo first", "| digests", "| undo last"))
        yield Check("module")

    def says(self, item):
        if isinstance(item, dict) and "exactness" in item["params"]:
            return item["params"]["exactness"]
        return self.exactness.get(name_of(item)) or self.rules.get(name_of(item)) or "rounds"


# ---- stages ----------------------------------------------------------------------------------------------------------------


def try_client(what, function, *args, **options):
    """Any refusal that is not expected is a difference."""
    try:
        return function(*args, **options)
    except foldback.Problem as problem:
        detail = f"{problem} {str(problem.body)[:600]}"
        raise Difference(f"{what} {problem.status} {problem.code}", detail) from None


def flat_code(live):
    copied = copy.deepcopy(live.graph)
    copied.set_codegen(torch.fx.graph.CodeGen())
    return copied.python_code("self").src


SIZED_BY_VALUES = re.compile(r"\b(unique|unique_consecutive|_unique2?|nonzero|argwhere|masked_select|bincount|histc"
                             r"|nonzero_static)\b|\[\w+ ?[<>]")
JUMPS = re.compile(r"fmod|remainder")  # a last bit puts their gradients anywhere
# The algorithm decides how far a nan goes, or what infinities become: which kernel PyTorch takes, how it transforms,
# how wide the processor's vectors are.
SPREADS_NAN = re.compile(r"scaled_dot_product_attention|MultiheadAttention|torch\.fft\.|fft_|gelu|GELU")
# oneDNN adds up in another order when its operands lie otherwise, and in these dtypes that shows.
NARROW_PRODUCT = re.compile(r"(?s)(?=.*torch\.(bfloat16|float16)).*(\b(nn\.Linear|nn\.Conv|nn\.Multihead|nn\.Bilinear|F\.linear"
                            r"|F\.conv|matmul|b?mm|einsum)|@)")
# PyTorch sorts equal elements in any order, unless it is told not to.
UNSTABLE = re.compile(r"argsort\(-1\)")
# With an infinite x, the imaginary part of w + x is nan in PyTorch, and that of x + w is w's.
INFINITE_COMPLEX = re.compile("complex")
# Of a nan, PyTorch's polynomials return a variable that they never set.
READS_UNSET = re.compile(r"special_\w*polynomial")
REINTERPRETS = re.compile(r"view\(torch\.(u?int|float|bfloat)|view\.dtype")
UNMADE = re.compile(r"cannot be made from the document alone")


def is_of_onednn(module):
    return "_pointwise" in getattr(module, "code", "")


def is_to_pack(module):
    return is_of_onednn(module) or "_int4pack" in getattr(module, "code", "")


def made_of(subject, document, what, **options):
    try:
        return from_document(document, **options)
    except Exception as error:
        if UNMADE.search(str(error)) and not options:
            return made_of(subject, document, what, module=copy.deepcopy(subject.live))
        raise Difference(f"{what} from_document", f"{type(error).__name__}: {error}") from None


def judged(subject, module, level, is_pinned, what, are_slices=False, only=None, is_detached=False):
    """Compares on every variant of the inputs. `is_pinned`: recorded sizes have become part of the program; `is_detached`:
    calls of detach may have gone."""
    is_static = not subject.is_for_any_batch
    for variant in only or subject.variants():
        is_other_batch = "batch" in variant
        if variant in ("nan", "special") and level == "close" and REINTERPRETS.search(subject.program.source()):
            continue  # the sign of a nan is any
        if is_other_batch and is_pinned and is_static:
            continue
        judge = subject.judge(variant)
        if variant == "batch of 1" and subject.judge("larger batch").expected.error is not None:
            continue  # not a program of any batch: with one of 1 it runs because that is broadcast
        if variant in ("nan", "special") and READS_UNSET.search(subject.program.source()):
            continue
        if variant == "nan" and level == "close" and NARROW_PRODUCT.search(subject.program.source()):
            continue  # oneDNN puts nan into rows of such a product whose operands have none
        if variant == "nan" and "scaled_dot_product_attention" in getattr(module, "code", ""):
            continue  # PyTorch's fused attention gives 0 for a row of scores that begins with nan
        if variant == "nan" and is_of_onednn(module):
            continue  # oneDNN's ReLU makes 0 of it
        used = level
        if level == "bits" and variant == "strides":
            used = "close"  # PyTorch rounds otherwise where the elements are apart, and a copy has brought them together
        if variant == "special" and level == "close":
            used = "finite"
        # What nobody reads may be what raises; recorded sizes may be written.
        may_run = is_other_batch or variant in ("nan", "special", "strides")
        try:
            judge.assert_same(module, used, may_run, are_slices)
            if variant == "traced" and level != "none" and not is_detached:
                if not JUMPS.search(subject.program.source()):
                    judge.assert_gradients(module)
        except Difference as difference:
            if difference.kind == "shape" and level in ("close", "none") and SIZED_BY_VALUES.search(subject.program.source()):
                continue  # rounding makes numbers alike, or apart
            if is_other_batch and reads_unset_memory(subject.live, judge.inputs, judge.expected):
                continue
            raise Difference(f"{what} {difference.kind}", f"on {variant}: {difference.detail}") from None


def check_document(subject, workshop, check):
    document = subject.document
    given = try_client("put", workshop.client.put_graph, document)
    if given != identity(document):
        raise Difference("id", f"{given} is not {identity(document)}")
    if workshop.service.get(f"/v1/graphs/{given}").body != canonical_bytes(document):
        raise Difference("canonical", "the stored document is another")
    code = workshop.client.code(given)
    if code != flat_code(subject.live):
        raise Difference("code", f"{code}\ninstead of\n{flat_code(subject.live)}")
    judged(subject, made_of(subject, document, "document"), "bits", False, "document", only=["traced", "special"])
    judged(
        subject,
        made_of(subject, document, "document on module", module=copy.deepcopy(subject.live)),
        "bits",
        False,
        "document on module",
        only=["traced"],
    )


def recorded(subject, document, module):
    """What a result says of shapes and dtypes is so, except where PyTorch's own tracing was wrong of the source."""
    try:
        found = run_recorder(subject, module)
    except Exception as error:
        raise Difference("recorded raises", str(error)) from None
    source = {node["name"]: node["meta"] for node in subject.document["nodes"]}
    traced = {}
    for node in document["nodes"]:
        said = {key: node["meta"][key] for key in ("shape", "dtype") if key in node["meta"]}
        actual = found[node["name"]]
        if not actual and said:
            raise Difference("recorded", f"for {node['name']}: {said}, and it is no tensor")
        for key, value in said.items():
            if key == "shape" and any(not isinstance(size, int) for size in value):
                continue
            if actual[key] != value:
                traced = traced or run_recorder(subject, subject.live)
                if source.get(node["name"], {}).get(key) == value and traced[node["name"]].get(key) != value:
                    continue
                raise Difference(f"recorded {key}", f"for {node['name']} ({node['target']}): {value}, and it is {actual[key]}")


def run_recorder(subject, module):
    recorder = Recorder(copy.deepcopy(module))
    torch.default_generator.manual_seed(0)
    with torch.no_grad():
        recorder.run(*copy.deepcopy(subject.inputs))
    return recorder.meta


class Recorder(torch.fx.Interpreter):
    def __init__(self, module):
        super().__init__(module)
        self.meta = {}

    def run_node(self, node):
        result = super().run_node(node)
        is_tensor = isinstance(result, torch.Tensor)
        self.meta[node.name] = (
            {"shape": list(result.shape), "dtype": str(result.dtype).removeprefix("torch.")} if is_tensor else {}
        )
        return result


def check_evaluate(subject, workshop, check):
    given = try_client("put", workshop.client.put_graph, subject.document)
    names = [row["name"] for row in subject.document["nodes"] if row["op"] == "placeholder"]
    if len(names) != len(subject.tensors):
        return  # torch.fx has one placeholder for a nested input, which a file cannot give
    for variant in subject.variants():
        if variant == "strides":
            continue  # a file has none, and PyTorch then copies what it would share otherwise
        inputs = pytree.tree_leaves(subject.variants()[variant]())
        if not all(tensor.is_contiguous() for tensor in inputs):
            continue
        expected = subject.judge(variant).expected
        with tempfile.TemporaryDirectory() as folder:
            sent, file = pathlib.Path(folder, "in.safetensors"), pathlib.Path(folder, "out.safetensors")
            save_file({name: tensor.contiguous().clone() for name, tensor in zip(names, inputs)}, sent)
            try:
                workshop.client.evaluate(given, sent, file=file)
                found = load_file(file)
            except foldback.Problem as problem:
                if problem.status >= 500 or problem.code not in REFUSED:
                    raise Difference(f"evaluate {problem.status} {problem.code}", str(problem)) from None
                if expected.error is None:
                    workshop.count(f"evaluate refused: {problem.body.get('target') or problem.code}")
                    is_written = "safetensors files cannot hold" not in str(problem)  # a result of complex128
                    if problem.code not in ("unsupported-operator", "evaluation-too-large") and is_written:
                        raise Difference(f"evaluate refuses {problem.code}", f"on {variant}: {str(problem)}") from None
                    return
                continue
        if expected.error is not None:
            if str(expected.error).startswith("Expected input at"):
                continue  # a size beyond the range that torch.export recorded, which a document does not have
            raise Difference("evaluate runs", f"on {variant}, where PyTorch raises {expected.error}")
        tensors = [(index, leaf) for index, leaf in enumerate(expected.leaves) if isinstance(leaf, torch.Tensor)]
        if len(found) != len(tensors):
            raise Difference("evaluate count", f"{len(found)} outputs instead of {len(tensors)}")
        for place, (index, leaf) in enumerate(tensors):
            ours = found[f"output.{place}"]
            if variant == "special" and leaf.shape != subject.judge("traced").expected.leaves[index].shape:
                continue  # its size hangs on numbers that need not be ours: PyTorch's mean of infinity is nan at times
            if ours.dtype != leaf.dtype or ours.shape != leaf.shape:
                raise Difference(
                    "evaluate type",
                    f"output {index} is {ours.dtype} {list(ours.shape)} instead of {leaf.dtype} {list(leaf.shape)}, on "
                    f"{variant}",
                )
            try:
                subject.judge(variant).assert_values(ours, lambda outcome: outcome.leaves[index], f"output {index}", "close")
            except Difference as difference:
                if difference.kind == "values" and (variant == "special" or UNSTABLE.search(subject.program.source())):
                    continue
                if variant in ("nan", "special") and any(
                    spreads.search(subject.program.source())
                    for spreads in (SPREADS_NAN, NARROW_PRODUCT, READS_UNSET, INFINITE_COMPLEX)
                ):
                    continue
                raise Difference(f"evaluate {difference.kind}", f"on {variant}: {difference.detail}") from None


REFUSED = {
    "unsupported-operator",
    "evaluation-failed",
    "evaluation-error",
    "evaluation-too-large",
    "shape-mismatch",
    "bad-input",
    "not-evaluated",
}


def optimize(subject, workshop, check, what="optimize", document=None):
    def ask(validate):
        return try_client(
            what,
            workshop.client.optimize,
            subject.document if document is None else document,
            list(check.passes),
            include=["graph", "code"],
            lint="each",
            validate=validate,
        )

    try:
        return ask(check.validate)
    except Difference as refused:
        # A fold rounds, and the program makes much of that: then the run is judged by what its noise explains, as any other.
        if refused.kind != f"{what} 422 validation-failed" or not subject.judge("traced").magnifies_rounding():
            raise
        workshop.count("validation refused what is magnified rounding")
        return ask("off")


def level_of(run):
    """How close a run's result must be: by the passes that did something."""
    applied = [outcome for outcome in run["passes"] if outcome["applied"]]
    if any(outcome["exactness"] == "changes" for outcome in applied):
        return "none"
    if any(outcome["exactness"] == "rounds" or outcome["name"] in LOOSE for outcome in applied):
        return "close"
    if any(outcome["name"] == "RemoveNoOps" and outcome.get("params", {}).get("float_zeros") for outcome in applied):
        return "close"
    return "bits"


def is_pinned(run):
    """Is the result for the recorded sizes alone? FuseRotation's factor is as long as the dimension that is cut in halves was;
    FuseNorm's call names sizes; FuseRepeat's result lies in memory otherwise where the repeated dimension has one element."""
    pinning = ("FoldShapes", "FuseNorm", "FuseRepeat", "FuseRotation", "MergeViews", "RemoveNoOps")
    return any(outcome["name"] in pinning and outcome["applied"] for outcome in run["passes"])


def is_detached(run):
    """Do gradients flow otherwise, as the parameters allow?"""
    allowing = {("RemoveNoOps", "detach"), ("InlinePrograms", "gradients")}
    return any((outcome["name"], key) in allowing and value for outcome in run["passes"]
               for key, value in outcome.get("params", {}).items())


def is_merged(run):
    return any(outcome["name"] in ("MergeLinears", "MergeConvolutions") and outcome["applied"] for outcome in run["passes"])


def is_cast(run):
    return any(outcome["name"] == "ConvertPrecision" and outcome["applied"] for outcome in run["passes"])


def leaves_results(run):
    return any(outcome["applied"] and outcome.get("params", {}).get("cast_outputs") is False for outcome in run["passes"])


def judge_narrow(subject, run, module, what):
    """Where nothing but ConvertPrecision or int8 changes numbers, it rounds them and does nothing else, whatever the inputs
    are."""
    changing = [outcome for outcome in run["passes"] if outcome["applied"] and outcome["exactness"] == "changes"]
    name, params = (changing[0]["name"], changing[0]["params"]) if len(changing) == 1 else ("", {})
    if name == "ConvertPrecision":
        bits = {torch.float32: BITS[getattr(torch, params["to"])]}
    elif name == "QuantizeWeights" and params.get("bits") != 4:
        bits = {dtype: 6 for dtype in BITS}
    else:
        return
    found = [subject.judge(variant).wrong_when_narrow(module, bits) for variant in ("traced", "other values")]
    if all(found):
        raise Difference(f"{what} narrow values", found[0])


def judge_run(subject, run, module, what):
    """Slices of a merged layer, and results that are cast back, lie in memory otherwise. Of results that are not cast back only
    that they come out is known."""
    judge_narrow(subject, run, module, what)
    if leaves_results(run):
        error = call(module, subject.inputs).error
        if error is not None:
            raise Difference(f"{what} raises", f"{type(error).__name__}: {str(error)[:300]}")
        return
    are_moved = is_merged(run) or is_cast(run)
    level = level_of(run)
    if level == "bits" and run["result"] != run["source"] and NARROW_PRODUCT.search(subject.program.source()):
        level = "close"  # a copy that is gone has brought elements together
    judged(subject, module, level, is_pinned(run), what, are_moved, is_detached=is_detached(run))


def judge_packed(subject, workshop, run, module):
    """Weights in another order of memory are the same weights; and those of 4 bits are the portable form's."""
    if not is_to_pack(module):
        return
    packed = foldback.pack(copy.deepcopy(module))
    workshop.count("packed", packed.code.count("_packed_"))
    judge_run(subject, run, packed, "packed")
    items = [{"name": one["name"], "params": one.get("params", {})} for one in run["passes"]]
    if "_int4pack" not in module.code or any(item["name"] == "ConvertPrecision" for item in items):
        return
    for item in items:
        item["params"] = {key: "portable" if value == "packed" else value for key, value in item["params"].items()}
    portable = optimize(subject, workshop, Check("passes", tuple(items)), "optimize portable")
    found = Judge(made_of(subject, portable["graph"], "portable"), subject.inputs).wrong_when_narrow(
        packed, {dtype: 6 for dtype in BITS})
    if found:
        raise Difference("packed beside portable", found)


def check_passes(subject, workshop, check):
    run = optimize(subject, workshop, check)
    result = run["graph"]
    if run["result"] != identity(result):
        raise Difference("result id", run["result"])
    if run["result"] == run["source"]:
        return
    workshop.count_applied(run)
    module = made_of(subject, result, "result")
    if flat_code(module) != run["code"]:
        raise Difference("result code", run["code"])
    judge_run(subject, run, module, "result")
    judge_packed(subject, workshop, run, module)
    recorded(subject, result, module)
    live = copy.deepcopy(subject.live)
    try:
        foldback.apply_edits(live, workshop.client.edits(run))
    except Exception as error:
        raise Difference("apply_edits raises", f"{type(error).__name__}: {error}") from None
    if flat_code(live) != run["code"]:
        raise Difference("live code", f"{flat_code(live)}\ninstead of\n{run['code']}")
    judge = Judge(module, subject.inputs)
    try:
        level = level_of(run)  # a folded weight lies in memory otherwise here, which moves the last bits
        judge.assert_same(live, "close" if level == "none" else level, are_slices=is_merged(run))
    except Difference as difference:
        raise Difference(f"live {difference.kind}", difference.detail) from None


def check_undo(subject, workshop, check):
    client = workshop.client
    run = optimize(subject, workshop, check)
    live = copy.deepcopy(subject.live)
    state = {key: tensor.clone() for key, tensor in live.state_dict(keep_vars=True).items()}
    foldback.apply_edits(live, client.edits(run))
    undo = client.reverse if run["reversible"] else client.rollback
    undone = try_client("undo", undo, run)
    back = try_client("rollback", client.rollback, run)
    if undone["result"] != run["source"] or back["result"] != run["source"]:
        raise Difference("undo id", f"{undone['result']} is not {run['source']}")
    foldback.apply_edits(live, client.edits(undone))
    if flat_code(live) != flat_code(subject.live):
        raise Difference("undo code", flat_code(live))
    now = live.state_dict(keep_vars=True)
    if list(now) != list(state) or not all(is_same_bits(now[key], state[key]) for key in state):
        raise Difference("undo weights", f"{list(now)} instead of {list(state)}")
    judged(subject, live, "bits", False, "undone", only=["traced"])
    if len(run["passes"]) > 1:
        choose = random.Random(run["source"])
        position = choose.randrange(len(run["passes"]))
        rest = [{"name": one["name"], "params": one.get("params", {})} for one in run["passes"]]
        del rest[position]
        without = try_client("optimize without one", client.optimize, subject.document, rest)
        if without["result"] == run["result"]:  # refused: the pass changed nothing
            return
        partly = try_client("rollback one", client.rollback, run, [position])
        document = client.graph(partly["result"])
        if without["result"] != partly["result"]:
            raise Difference("rollback one",
                             f"position {position} gives {partly['result']}, and the others {without['result']}")
        judge_run(subject, without, made_of(subject, document, "rollback one"), "rolled back one")
        if run["passes"][position]["reversible"]:
            other = try_client("reverse one", client.reverse, run, [position])
            if other["result"] != partly["result"]:
                raise Difference("reverse one", f"position {position} gives {other['result']}, and rollback {partly['result']}")


def train(live):
    generator = torch.Generator().manual_seed(1)
    seen = set()
    for _, parameter in sorted(live.named_parameters()):
        if (
            parameter.requires_grad
            and parameter.dtype in BITS
            and not parameter.is_complex()
            and parameter.untyped_storage()._cdata not in seen
        ):
            seen.add(parameter.untyped_storage()._cdata)
            if any(stride == 0 and size > 1 for stride, size in zip(parameter.stride(), parameter.shape)):
                continue
            with torch.no_grad():
                parameter.add_(
                    0.25 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(parameter.dtype)
                )


def check_train(subject, workshop, check):
    """The result is trained on; what is undone then computes what the trained one does, and so once more."""
    run = optimize(subject, workshop, check)
    if not run["reversible"] or level_of(run) == "none" or run["result"] == run["source"]:
        return
    live = copy.deepcopy(subject.live)
    passes = [{"name": one["name"], "params": one.get("params", {})} for one in run["passes"]]
    if train_and_undo(subject, workshop, live, run):
        document = subject.document_of(live, digests=True)
        run = try_client("optimize again", workshop.client.optimize, document, passes)
        train_and_undo(subject, workshop, live, run)


def train_and_undo(subject, workshop, live, run):
    """False where nothing can be compared or carried back."""
    client = workshop.client
    foldback.apply_edits(live, client.edits(run))
    train(live)
    trained = copy.deepcopy(live)
    if call(trained, subject.inputs).error is not None:
        return False
    document = subject.document_of(trained, digests=True)
    try:
        undone = client.reverse(run, graph=document)
    except foldback.Problem as problem:
        if problem.status == 409 and problem.code == "conflict":
            workshop.count(f"trained: conflict {problem.body['conflicts'][0]['code']}")
            return False
        raise Difference(f"train {problem.status} {problem.code}", f"{problem} {str(problem.body)[:500]}") from None
    foldback.apply_edits(live, client.edits(undone))
    workshop.count("trained and undone")
    if flat_code(live) != flat_code(subject.live):
        raise Difference("train code", flat_code(live))
    judge = Judge(trained, subject.inputs)
    try:  # PyTorch's fused attention gives 0 for a row of scores that begins with nan
        level = "finite" if "scaled_dot_product_attention" in trained.code else "close"
        judge.assert_same(copy.deepcopy(live), level, are_slices=is_merged(run))  # of what is trained no copy is kept
    except Difference as difference:
        raise Difference(f"trained {difference.kind}", difference.detail) from None
    return True


class Chain:
    """One live module that is optimised, trained, edited by hand and put back, in any order, as its user does it. Copies of it
    are run, as `call` keeps what it ran."""

    def __init__(self, subject, workshop):
        self.subject, self.workshop, self.client = subject, workshop, workshop.client
        self.choose = random.Random(subject.program.seed)
        self.live, self.has_digests = copy.deepcopy(subject.live), False
        self.runs = []  # that may be undone; "is_exact": nothing else was done since, so that undo gives the module before it

    def document(self, digests=None):
        return self.subject.document_of(self.live, digests=self.has_digests if digests is None else digests)

    def optimise(self, items):
        run = optimize(self.subject, self.workshop, Check("chain", tuple(items)), "chain optimize", self.document())
        if run["result"] == run["source"]:
            return
        before = copy.deepcopy(self.live)
        state = {key: tensor.clone() for key, tensor in self.live.state_dict().items()}
        try:
            self.apply(run, "optimised")
        except foldback.TensorOverflows:
            self.assert_overflow_is_refused(items)
            return
        self.compare(before, level_of(run), is_merged(run), "optimised")
        was = (flat_code(before), state)  # a copy of a GraphModule has other persistent buffers
        self.runs.append({"run": run, "was": was, "is_whole": True, "is_exact": True})

    def assert_overflow_is_refused(self, items):
        """Of weights that the service did not know: where it does, the passes leave what would overflow."""
        known = self.subject.document_of(self.live, data=True)
        run = optimize(self.subject, self.workshop, Check("chain", tuple(items)), "chain optimize with data", known)
        reasons = {refused["reason"] for outcome in run["passes"] for refused in outcome["refused"]}
        if "tensor-overflows" not in reasons:
            raise Difference("chain TensorOverflows", f"with the weights at hand nothing overflows: {sorted(reasons)}")
        self.apply(run, "optimised with data")
        self.workshop.count("chain: tensor-overflows")

    def apply(self, run, what):
        try:
            foldback.apply_edits(self.live, self.client.edits(run))
        except foldback.TensorOverflows:
            if what == "optimised":
                raise
            raise Difference(f"chain {what} apply_edits", "TensorOverflows") from None
        except Exception as error:
            raise Difference(f"chain {what} apply_edits", f"{type(error).__name__}: {error}") from None

    def compare(self, before, level, are_slices, what):
        if level == "bits" and NARROW_PRODUCT.search(self.subject.program.source()):
            level = "close"
        if any("scaled_dot_product_attention" in module.code for module in (before, self.live)):
            level = "finite"  # PyTorch's fused attention gives 0 for a row of scores that begins with nan
        try:
            Judge(before, self.subject.inputs).assert_same(copy.deepcopy(self.live), level, are_slices=are_slices)
        except Difference as difference:
            if what == "undone" and difference.kind == "raises" and self.runs_without_dead_code():
                return  # a user's transpose_ gave dead code, which came back, a shape that it cannot take
            raise Difference(f"chain {what} {difference.kind}",
                             f"{difference.detail}\n{self.live.code}\nwhere it was\n{before.code}") from None

    def runs_without_dead_code(self):
        alive = copy.deepcopy(self.live)
        alive.graph.eliminate_dead_code()
        alive.recompile()
        return call(alive, self.subject.inputs).error is None

    def train(self):
        before = copy.deepcopy(self.live)
        train(self.live)
        self.keep_if_it_runs(before)

    def keep_if_it_runs(self, before):
        """What a user does by hand, unless the program no longer runs."""
        outcome = call(copy.deepcopy(self.live), self.subject.inputs)
        if outcome.error is not None or (self.subject.is_repeated and is_written(self.subject.inputs, outcome)):
            self.live = before
            return
        self.workshop.count("chain: trained or edited")
        for one in self.runs:
            one["is_exact"] = False

    def calls(self):
        nodes = [node for node in self.live.graph.nodes if node.op.startswith("call_")]
        marked = [node for node in nodes if "transformations" in node.meta.get("foldback", {})]
        return marked if marked and self.choose.random() < 0.5 else nodes

    def rename(self):
        before, nodes = copy.deepcopy(self.live), self.calls()
        if nodes:
            self.choose.choice(nodes)._rename("mine")
            self.live.recompile()
            self.keep_if_it_runs(before)

    def write(self):
        """Into the result of a call, or by that call."""
        before, nodes = copy.deepcopy(self.live), self.calls()
        if not nodes:
            return
        node = self.choose.choice(nodes)
        if self.choose.random() < 0.5 and hasattr(torch.Tensor, f"{node.target}_"):
            node.target = f"{node.target}_"
        elif isinstance(node.target, torch._ops.OpOverload) and hasattr(torch.ops.aten, node.target._opname + "_"):
            name, overload = str(node.target).removeprefix("aten.").split(".")
            node.target = getattr(getattr(torch.ops.aten, name + "_"), overload, node.target)
        else:
            method, *args = self.choose.choice([("add_", 1), ("mul_", 2), ("neg_",), ("transpose_", 0, -1), ("zero_",)])
            with self.live.graph.inserting_after(node):
                self.live.graph.call_method(method, (node, *args))
        self.live.recompile()
        self.keep_if_it_runs(before)

    def undo(self, which):
        if not self.runs:
            return
        one = self.runs[0 if which == "first" else -1]
        run, is_last = one["run"], one is self.runs[-1]
        if which == "one" and len(run["passes"]) == 1:
            which = "last"
        positions = [self.choose.randrange(len(run["passes"]))] if which == "one" else None
        try:
            if not one["is_whole"] or positions:
                if not is_last or not one["is_whole"]:
                    return
                undone = self.client.reverse(self.live, positions)
            elif run["reversible"]:
                undone = self.client.reverse(run, graph=self.document())
            elif is_last and one["is_exact"]:
                undone = self.client.rollback(run)
            else:
                return
        except foldback.Problem as problem:
            if positions and problem.code == "irreversible":
                return
            codes = [one["code"] for one in (problem.body or {}).get("conflicts", [])]
            if {*codes} and {*codes} <= {"constant-changed", "copies-diverged", "computed"} and not self.has_digests:
                return  # docs/undo.md: without their bytes nobody knows that the filler of a merged bias, two copies or a
                # computed weight stayed the same
            # A graph whose only marked node was renamed may not be known as the run's.
            if problem.code not in ("conflict", "unrelated-graph") or (is_last and one["is_exact"]):
                detail = f"{problem} {str(problem.body)[:900]}"
                raise Difference(f"chain undo {problem.status} {problem.code}", detail) from None
            self.workshop.count(f"chain: conflict {(codes or [problem.code])[0]}")
            return
        before = copy.deepcopy(self.live)
        self.apply(undone, "undone")
        self.workshop.count(f"chain: undone {which}")
        self.compare(before, "close", is_merged(run), "undone")
        if positions:
            one["is_whole"] = False
        else:
            self.runs.remove(one)
            if is_last and one["is_exact"] and one["is_whole"]:
                self.assert_back(*one["was"])
        if not is_last:
            for other in self.runs:
                other["is_exact"] = False
        try_client("chain next document", self.client.put_graph, self.document(digests=True))

    def assert_back(self, code, state):
        if flat_code(self.live) != code:
            raise Difference("chain code", f"{flat_code(self.live)}\ninstead of\n{code}")
        now = self.live.state_dict()
        if list(now) != list(state) or not all(is_same_bits(now[key], state[key]) for key in state):
            raise Difference("chain weights", f"{list(now)} instead of {list(state)}")


def check_chain(subject, workshop, check):
    chain, items = Chain(subject, workshop), []
    for item in (*check.passes, "| end"):
        if not str(item).startswith("| "):
            items.append(item)
            continue
        if items:
            chain.optimise(items)
            items = []
        verb, *rest = item.split()[1:]
        if verb == "digests":
            chain.has_digests = True
        elif verb != "end":
            getattr(chain, verb)(*rest)


def check_module(subject, workshop, check):
    """The client's own way in gives the document of the model, or refuses with a reason, and leaves the model as it was."""
    model, _ = subject.program.load()
    was = copy.deepcopy(model)
    try:
        document = foldback.export.from_module(model, *copy.deepcopy(subject.inputs), data=True)
    except ValueError as error:
        workshop.count("from_module refuses")
        if "documents do not hold" in str(error):
            raise Difference("from_module", str(error)) from None
        document = None
    state, before = state_of(model), state_of(was)
    if list(state) != list(before) or not all(is_same_bits(state[key].detach(), before[key].detach()) for key in before):
        raise Difference("from_module state", f"the model is changed: {list(state)}")
    if document is None:
        return
    try_client("from_module put", workshop.client.put_graph, document)
    workshop.count("from_module")
    try:
        Judge(made_of(subject, document, "from_module"), subject.inputs).assert_same(was, "close", are_sizes_tuples=True)
    except Difference as difference:
        raise Difference(f"from_module {difference.kind}", difference.detail) from None


def check_file(subject, workshop, check):
    """The finished weights, as the file that the service writes, are those of the result."""
    run = optimize(subject, workshop, check)
    judge_finished(subject, workshop, run, run["result"], "file")


def check_bound(subject, workshop, check):
    """The same where the weights are in a file that the service gets with the run, or after it."""
    document, client = copy.deepcopy(subject.document), workshop.client
    held = {key: tensor.detach().contiguous().clone() for key, tensor in subject.live.state_dict().items()
            if not tensor.dtype.is_complex}
    for row in document["tensors"]:
        if row["name"] in held:
            row.pop("data", None)
    if not held:
        return
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "model.safetensors")
        save_file(held, file)
        passes = list(check.passes)
        options = {"include": ["graph"], "lint": "each"}
        if random.Random(subject.program.seed).random() < 0.5:
            run = try_client("bound optimize", client.optimize, document, passes, weights=[file], **options)
            judge_finished(subject, workshop, run, run["result"], "bound")
        else:
            run = try_client("bound optimize", client.optimize, document, passes, **options)
            if not any("data" not in row and row["name"] in held for row in run["graph"]["tensors"]):
                return  # nothing is left to bind
            bound = try_client("bind", client.bind, run["result"], [file], as_="source")
            judge_finished(subject, workshop, run, bound["id"], "bound later")


def judge_finished(subject, workshop, run, graph, what):
    document = copy.deepcopy(run["graph"])
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "finished.safetensors")
        try:
            workshop.client.weights(graph, file)
        except foldback.Problem as problem:
            if problem.status == 409 and problem.code in ("not-in-safetensors", "tensor-overflows"):
                workshop.count(f"finished: {problem.code}")
                return
            raise Difference(f"{what} {problem.status} {problem.code}", f"{problem} {str(problem.body)[:500]}") from None
        keys = set(load_file(file))
        written = {
            tensor
            for module in document["modules"]
            for kind in ("parameters", "buffers")
            for name, tensor in module.get(kind, {}).items()
            if ".".join(filter(None, (module["path"], name))) in keys
        }
        for row in document["tensors"]:
            if row["name"] in written:
                row.pop("data", None)
        try:
            module = from_document(document, weights=file)
        except Exception as error:
            if UNMADE.search(str(error)):
                return
            raise Difference(f"{what} from_document", f"{type(error).__name__}: {error}") from None
        workshop.count("read back from a file")
        judge_run(subject, run, module, what)


def renamed(document, name):
    """With another name for a node, everywhere."""
    def rewrite(value):
        if isinstance(value, list):
            return [rewrite(item) for item in value]
        if isinstance(value, dict):
            return ({"$node": "renamed_by_hand"} if value == {"$node": name}
                    else {key: rewrite(one) for key, one in value.items()})
        return value

    return [{**rewrite(node), "name": "renamed_by_hand" if node["name"] == name else node["name"]}
            for node in document["nodes"]]


def writes(node):
    return re.search(r"[a-z]_(\.\w+)?$|^operator\.i|setitem|copy_", node["target"]) is not None


def check_edited(subject, workshop, check):
    """A client has put a node into the result, or renamed one: undone, the program computes what it did, and the node is
    there."""
    client = workshop.client
    run = optimize(subject, workshop, check)
    if not run["reversible"] or run["result"] == run["source"]:
        return
    choose = random.Random(run["source"])
    document = copy.deepcopy(run["graph"])
    calls = [node for node in document["nodes"] if node["op"].startswith("call_")]
    in_place = [node["name"] for node in calls if writes(node)]
    floats = [
        node["name"]
        for node in calls
        if str(node.get("meta", {}).get("dtype")).startswith("float") and "shape" in node["meta"]
    ]
    if in_place and choose.random() < 0.5:
        document["nodes"] = renamed(document, choose.choice(in_place))
        name = "renamed_by_hand"
    elif floats:
        name = "put_by_hand"
        probe = {"name": name, "op": "call_function", "target": "torch.neg", "args": [{"$node": choose.choice(floats)}]}
        document["nodes"].insert(len(document["nodes"]) - 1, probe)
    else:
        return
    if call(made_of(subject, document, "edit"), subject.inputs).error is not None:
        return  # a value of torch.vmap, read outside of it
    try:
        undone = client.reverse(run, graph=document)
    except foldback.Problem as problem:
        if problem.status == 409 and problem.code == "conflict":
            workshop.count(f"edited: conflict {problem.body['conflicts'][0]['code']}")
            return
        raise Difference(f"edited {problem.status} {problem.code}", f"{problem} {str(problem.body)[:500]}") from None
    result = client.graph(undone["result"])
    if not any(node["name"] == name for node in result["nodes"]):
        raise Difference("edited", "the client's node is gone")
    workshop.count(f"edited and undone: {name}")
    judged(subject, made_of(subject, result, "edited"), "bits", False, "edited", only=["traced"])


STAGES = {
    "document": check_document,
    "evaluate": check_evaluate,
    "passes": check_passes,
    "undo": check_undo,
    "train": check_train,
    "file": check_file,
    "bound": check_bound,
    "chain": check_chain,
    "module": check_module,
    "edited": check_edited,
}
__all__ = ["Check", "Difference", "ExportError", "Subject", "Workshop", "distance"]
