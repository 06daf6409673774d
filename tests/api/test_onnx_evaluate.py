"""What ONNX models compute: ONNX's own node cases, traps, and models whose outputs ONNX Runtime gave. No result may be wrong;
what is not evaluated is refused by name. FOLDBACK_ONNX_SUITE names a folder of all node cases, or several with ":" between
(tests/onnx/make_node_suite.py, make_old_suite.py)."""

import collections
import functools
import json
import math
import os
import pathlib
import re
import struct
import tarfile

import pytest
from conftest import ROOT
from test_onnx import BESIDE, contents_of, model, send, send_set, varint

CASES = ROOT / "tests" / "fixtures" / "onnx" / "cases.tar.xz"
SUITES = [pathlib.Path(folder) for folder in filter(None, os.environ.get("FOLDBACK_ONNX_SUITE", "").split(":"))]
TITLES = {"node": "a part of them, in every build",
          "version": "versions of operators that no case of onnx has, by ONNX Runtime",
          "trap": "small models on which optimisers go wrong", "onnx-suite": "node cases of onnx 1.23.2",
          "onnx-old-suite": "node cases of onnx 1.5.0 and 1.8.1"}
LEAST = {"node": 320, "version": 138, "trap": 31, "onnx-suite": 1560, "onnx-old-suite": 1120}  # that are evaluated
PAGE = ROOT / "docs" / "evaluated-models.md"
HEAD = """## ONNX

The outputs of these models are those of ONNX Runtime without optimisation.

| model | dialect | nodes | evaluated |
|---|---|---:|---|
"""
COUNTS = """
Of cases of operators, those with tensors only, whose outputs can be foretold:

| cases | all | right | refused | wrong |
|---|---:|---:|---:|---:|
"""
REASONS = """
What is refused of the node cases of onnx 1.23.2, by name:

| operator | cases | why |
|---|---:|---|
"""
IS_UPDATE = bool(os.environ.get("UPDATE"))
REFUSALS = ("unsupported-operator", "unsupported-dtype", "unsupported-onnx", "evaluation-failed")
FORMATS = {"F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "I16": "h", "I8": "b", "U64": "Q", "U32": "I",
           "U16": "H", "U8": "B", "BOOL": "?"}
CLOSE = {"F64": 1e-4, "F32": 1e-4, "F16": 2e-3, "BF16": 2e-2}  # the oracle sums in another order; some cases are typed by hand


@functools.cache
def stored():
    """name → part → bytes."""
    found = collections.defaultdict(dict)
    with tarfile.open(CASES) as archive:
        for entry in archive:
            name, _, part = entry.name.rpartition("/")
            found[name][part] = archive.extractfile(entry).read()
    return found


def cases_of(suite):
    """(name, part → bytes) of a folder, or of those stored by that word."""
    if isinstance(suite, str):
        yield from ((name, parts) for name, parts in stored().items() if name.startswith(f"{suite}/"))
        return
    for name, case in json.loads((suite / "cases.json").read_text()).items():
        if case["files"] == "safetensors" and not case["random"]:
            yield name, {part: (suite / name / part).read_bytes()
                         for part in ("model.onnx", "inputs.safetensors", "outputs.safetensors")}


def tensors(data):
    """[(name, dtype, shape, numbers)]"""
    size = int.from_bytes(data[:8], "little")
    found = []
    for name, tensor in json.loads(data[8 : 8 + size]).items():
        begin, end = (8 + size + offset for offset in tensor["data_offsets"])
        raw = data[begin:end]
        if tensor["dtype"] == "BF16":
            numbers = [struct.unpack("<f", b"\0\0" + raw[at : at + 2])[0] for at in range(0, len(raw), 2)]
        else:
            count = len(raw) // struct.calcsize(FORMATS[tensor["dtype"]])
            numbers = struct.unpack(f"<{count}{FORMATS[tensor['dtype']]}", raw)
        found.append((name, tensor["dtype"], tensor["shape"], numbers))
    return found


def is_close(got, wanted, dtype):
    if dtype not in CLOSE:
        return got == wanted
    if math.isnan(wanted) or math.isinf(wanted):
        return got == wanted or (math.isnan(got) and math.isnan(wanted))
    return abs(got - wanted) <= CLOSE[dtype] * (1 + abs(wanted))


def judge(answer, outputs):
    """None, or what differs."""
    given = {name: rest for name, *rest in tensors(answer)}
    for at, (name, dtype, shape, wanted) in enumerate(tensors(outputs)):
        if f"output.{at}" not in given:
            return f"{name} is missing"
        got_dtype, got_shape, got = given[f"output.{at}"]
        if (got_dtype, got_shape) != (dtype, shape):
            return f"{name}: {got_dtype} {got_shape} for {dtype} {shape}"
        for one, other in zip(got, wanted):
            if not is_close(one, other, dtype):
                return f"{name}: {one} for {other}"
    return None


def evaluate(service, graph, parts):
    return service.request("POST", f"/v1/graphs/{graph}/evaluate", body=parts["inputs.safetensors"],
                           headers={"Content-Type": "application/octet-stream"})


@pytest.fixture(scope="module")
def rows():
    """Those of the page, by its tables. With UPDATE=1 and all suites it is written anew."""
    found = {HEAD: {}, COUNTS: {}, REASONS: {}}
    yield found
    if IS_UPDATE and len(SUITES) == 2:
        begin = PAGE.read_text().partition(HEAD.splitlines()[0])[0].rstrip("\n") + "\n\n"
        PAGE.write_text(begin + "".join(head + "".join(lines.values()) for head, lines in found.items()))


def is_written(rows, table, key, line):
    rows[table][key] = line + "\n"
    assert IS_UPDATE or line in PAGE.read_text().splitlines(), f"{line}\nUPDATE=1 make nightly PART=onnx writes {PAGE.name}"


def reason_of(problem):
    """(operator, why)"""
    found = re.search(r"\((?:onnx\.)?([\w.]+?)\.v\d+\)(?: cannot be evaluated)?: (.*)", problem["detail"])
    return found.groups() if found else ("–", re.sub(r"^\w+ has |^.*?: ", "", problem["detail"]))


@pytest.mark.parametrize("suite", ["node", "version", "trap", *SUITES])
def test_cases(new_service, rows, suite):
    service, counts, wrong, other, reasons = new_service(), collections.Counter(), [], [], collections.Counter()
    for name, parts in cases_of(suite):
        made = send(service, parts["model.onnx"])
        answer = made if made.status not in (200, 201) else evaluate(service, made.json()["id"], parts)
        if answer.status != 200:
            problem = answer.json()
            counts["refused"] += 1
            reasons[reason_of(problem)] += 1
            other += [(name, problem)] if problem["code"] not in REFUSALS or not problem["detail"] else []
            continue
        difference = judge(answer.body, parts["outputs.safetensors"])
        counts["wrong" if difference else "right"] += 1
        wrong += [(name, difference)] if difference else []
    print(dict(counts))
    key = suite if isinstance(suite, str) else suite.name
    assert not wrong and not other
    assert counts["right"] >= LEAST[key], counts
    is_written(rows, COUNTS, key, f"| {TITLES[key]} | {counts.total():,} | {counts['right']:,} | {counts['refused']} | 0 |")
    if key == "onnx-suite":
        for at, ((operator, why), count) in enumerate(sorted(reasons.items())):
            is_written(rows, REASONS, at, f"| {operator} | {count} | {why} |")


@pytest.mark.parametrize("name", sorted(name for name in stored() if name.startswith("trap/")))
def test_traps(shared, name):
    parts = stored()[name]
    made = send(shared, parts["model.onnx"])
    assert made.status in (200, 201), made.body
    graph = made.json()["id"]
    assert shared.get(f"/v1/graphs/{graph}/archive").body == parts["model.onnx"]
    answer = evaluate(shared, graph, parts)
    if name == "trap/two_random_draws":
        assert answer.status == 422 and answer.json()["code"] == "unsupported-operator"
    else:
        assert answer.status == 200, answer.body
        assert judge(answer.body, parts["outputs.safetensors"]) is None


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def chain(length, last=b"Relu"):
    """A model of so many functions, each of which calls the next one."""
    def function(at):
        calls = field(4, f"f{at + 1}".encode()) + field(7, b"d") if at + 1 < length else field(4, last)
        node = field(1, b"a") + field(2, b"b") + calls
        imports = field(9, field(1, b"") + b"\x10\x11") + field(9, field(1, b"d") + b"\x10\x01")
        return field(25, field(1, f"f{at}".encode()) + field(4, b"a") + field(5, b"b") + field(7, node) + imports
                     + field(10, b"d"))

    def value(name):
        return field(1, name) + field(2, field(1, b"\x08\x01" + field(2, field(1, b"\x08\x02"))))
    graph = field(1, field(1, b"x") + field(2, b"y") + field(4, b"f0")
                  + field(7, b"d")) + field(11, value(b"x")) + field(12, value(b"y"))
    imports = field(8, field(1, b"") + b"\x10\x11") + field(8, field(1, b"d") + b"\x10\x01")
    return b"\x08\x0a" + imports + field(7, graph) + b"".join(function(at) for at in range(length))


def test_functions_in_functions(shared):
    """As many as the stack allows, whatever the model has."""
    for length, status in ((90, 200), (5000, 422)):
        made = send(shared, chain(length))
        assert made.status in (200, 201), made.body
        answer = shared.post(f"/v1/graphs/{made.json()['id']}/evaluate", {"seed": 1})
        assert answer.status == status, answer.body


def test_functions_whose_names_meet(shared):
    """`-` is written as `_2d`: two functions of one name would be one module of the document."""
    def function(name):
        body = field(7, field(1, b"a") + field(2, b"b") + field(4, b"Relu")) + field(9, field(1, b"") + b"\x10\x11")
        return field(25, field(1, name) + field(4, b"a") + field(5, b"b") + body + field(10, b"d"))
    assert send(shared, chain(1) + function(b"a-") + function(b"a_2e")).status == 201
    refused = send(shared, chain(1) + function(b"a-") + function(b"a_2d"))
    assert (refused.status, refused.json()["code"]) == (422, "unsupported-onnx")


@pytest.mark.parametrize("name", sorted(name for name in stored() if name.startswith("model/")))
def test_models(shared, rows, name):
    parts, stem = stored()[name], name.removeprefix("model/")
    made = send_set(shared, "model.onnx", contents_of(stem)) if stem in BESIDE else send(shared, model(stem))
    answer = evaluate(shared, made.json()["id"], parts)
    assert answer.status == 200, answer.body
    assert judge(answer.body, parts["outputs.safetensors"]) is None
    is_written(rows, HEAD, name, f"| {stem} | onnx | {made.json()['nodes']} | equal |")


def part(field, data):
    """A field of protobuf: a number, or bytes."""
    if isinstance(data, int):
        return bytes([field << 3, data])
    return bytes([field << 3 | 2, len(data)]) + data


def unary_model(operator, element=1):
    tensor = part(1, element) + part(2, part(1, part(2, b"n")))
    values = {name: part(1, name) + part(2, part(1, tensor)) for name in (b"x", b"y")}
    node = part(1, b"x") + part(2, b"y") + part(4, operator.encode())
    graph = part(1, node) + part(2, b"g") + part(11, values[b"x"]) + part(12, values[b"y"])
    return part(1, 8) + part(7, graph) + part(8, part(2, 17))


@pytest.mark.parametrize("operator,wanted", [
    ("Celu", math.nan), ("Sign", math.nan), ("Elu", math.nan), ("HardSwish", math.nan), ("Softplus", math.nan),
    ("ThresholdedRelu", 0.0), ("Shrink", 0.0),
])
def test_nan_is_what_the_formula_gives(shared, operator, wanted):
    """onnx.reference and ONNX Runtime agree on these. PyTorch's sign of nan is 0."""
    graph = send(shared, unary_model(operator)).json()["id"]
    header = json.dumps({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    inputs = struct.pack("<Q", len(header)) + header + struct.pack("<2f", math.nan, 2)
    answer = evaluate(shared, graph, {"inputs.safetensors": inputs})
    assert answer.status == 200, answer.body
    ((_, dtype, shape, numbers),) = tensors(answer.body)
    assert (dtype, shape) == ("F32", [2]) and is_close(numbers[0], wanted, dtype)


def test_the_sign_of_integers(shared):
    graph = send(shared, unary_model("Sign", element=7)).json()["id"]
    header = json.dumps({"x": {"dtype": "I64", "shape": [3], "data_offsets": [0, 24]}}).encode()
    inputs = struct.pack("<Q", len(header)) + header + struct.pack("<3q", -(2**62), 0, 5)
    ((_, *rest),) = tensors(evaluate(shared, graph, {"inputs.safetensors": inputs}).body)
    assert rest == ["I64", [3], (-1, 0, 1)]


def test_large_numbers_of_uint64(shared):
    """They are held as int64: below 2^63 alone their order is the same."""
    graph = send(shared, unary_model("Identity", element=13)).json()["id"]
    header = json.dumps({"x": {"dtype": "U64", "shape": [2], "data_offsets": [0, 16]}}).encode()
    for numbers in ((1, 2**63 - 1), (1, 2**63)):
        inputs = struct.pack("<Q", len(header)) + header + struct.pack("<2Q", *numbers)
        answer = evaluate(shared, graph, {"inputs.safetensors": inputs})
        if max(numbers) < 2**63:
            assert tensors(answer.body) == [("output.0", "U64", [2], numbers)]
        else:
            assert answer.status == 422 and "from 2^63 on" in answer.json()["detail"]


def number(at, value):
    return varint(at << 3) + varint(value)


def node_of(operator, inputs, output, **attributes):
    """Of attributes that are an int, or a list of ints."""
    made = b"".join(field(1, name.encode()) for name in inputs) + field(2, output.encode()) + field(4, operator.encode())
    for name, value in attributes.items():
        values = b"".join(number(8, one) for one in value) + number(20, 7) if isinstance(value, list) else number(3, value)
        made += field(5, field(1, name.encode()) + values + (b"" if isinstance(value, list) else number(20, 2)))
    return made


def model_of(*nodes, inputs=("x",), dtype=1, result=1, sizes=(2, 3, 4), weights=b""):
    def value(name, element):
        dims = b"".join(field(1, number(1, size)) for size in sizes)
        return field(1, name.encode()) + field(2, field(1, number(1, element) + field(2, dims)))
    graph = b"".join(field(1, one) for one in nodes) + weights + b"".join(field(11, value(name, dtype)) for name in inputs)
    return number(1, 8) + field(7, graph + field(12, value("y", result))) + field(8, number(2, 17))


ONE = field(5, number(2, 7) + field(7, b"\x01") + field(8, b"one"))  # an int64


@pytest.mark.parametrize("a,b,verdict,reason", [
    (model_of(node_of("Transpose", ["x"], "t", perm=[1, 2, 0]), node_of("Transpose", ["t"], "y", perm=[1, 2, 0])),
     model_of(node_of("Transpose", ["x"], "y", perm=[2, 0, 1])), "evaluated", None),
    (model_of(node_of("Transpose", ["x"], "t", perm=[1, 2, 0]), node_of("Transpose", ["t"], "y", perm=[1, 2, 0])),
     model_of(node_of("Transpose", ["x"], "y", perm=[2, 1, 0])), "differs", "shape"),
    (model_of(node_of("Div", ["one", "x"], "d"), node_of("Mul", ["d", "z"], "y"), inputs=("x", "z"), dtype=7, weights=ONE),
     model_of(node_of("Div", ["z", "x"], "y"), inputs=("x", "z"), dtype=7), "differs", None),
    (model_of(node_of("Div", ["z", "x"], "y"), inputs=("x", "z"), dtype=7),
     model_of(node_of("Div", ["z", "x"], "d"), node_of("Mul", ["d", "one"], "y"), inputs=("x", "z"), dtype=7, weights=ONE),
     "evaluated", None),
    (model_of(node_of("Cast", ["x"], "c", to=3), node_of("Neg", ["c"], "n"), node_of("Neg", ["n"], "y"), result=3),
     model_of(node_of("Cast", ["x"], "y", to=3), result=3), "evaluated", None),
    (model_of(node_of("RandomNormalLike", ["x"], "y")),
     model_of(node_of("RandomNormalLike", ["x"], "r"), node_of("Neg", ["r"], "y")), "not-evaluated", "random"),
    (model_of(node_of("Unheard", ["x"], "y")), model_of(node_of("Unheard", ["x"], "r"), node_of("Neg", ["r"], "y")),
     "not-evaluated", "unsupported-operator"),
    (chain(3), chain(2), "evaluated", None),
    (chain(2), chain(2, b"Abs"), "differs", None),  # of the same name
    (chain(5000), chain(2), "not-evaluated", "unsupported-operator"),
], ids=["transposes", "another-axis", "integers", "zeros", "range", "random", "unknown", "functions", "function", "deep"])
def test_judged(shared, a, b, verdict, reason):
    """Operators of ONNX do nothing but compute, so two models can be held to be the same. An element on which a result is not
    defined says nothing: another is drawn."""
    ids = [send(shared, one).json()["id"] for one in (a, b)]
    found = shared.post("/v1/compare", {"a": ids[0], "b": ids[1], "seed": 3}).json()
    assert (found["verdict"], found["outputs"][0]["reason"]) == (verdict, reason), found
    assert shared.post("/v1/compare", {"a": ids[0], "b": ids[0]}).json()["verdict"] == "same"
