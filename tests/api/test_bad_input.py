"""Every mistake is answered with a problem that says where it is; nothing is stored, and the service lives.

A document goes the three ways in: as a graph, as the bare body of optimize, and inside an optimize request.
"""

import copy
import gzip

import pytest
from documents import batch_norm_fold, branches, compact, counts, node, ref
from test_http import is_problem


@pytest.fixture(scope="module")
def known(shared):
    """The shared service, with one graph and one run in it."""
    answer = shared.post("/v1/optimize", {"graph": branches(), "passes": ["MergeLinears"]})
    assert answer.status == 201
    return shared


def ways_in(service, text):
    """(prefix of pointers, answer) for the three ways."""
    yield "", service.post("/v1/graphs", text)
    yield "", service.post("/v1/optimize", text, raw_query="pass=MergeLinears")
    yield "/graph", service.post("/v1/optimize", b'{"passes": ["MergeLinears"], "graph": ' + text + b"}")


def is_refused(service, text, status, code=None, pointer=None):
    before = counts(service)
    for prefix, answer in ways_in(service, text):
        problem = is_problem(answer, status, code)
        assert "errors" in problem or status in (400, 413), problem
        if pointer is not None:
            assert any(error["pointer"].startswith(prefix + pointer) for error in problem["errors"]), (problem, pointer)
    assert counts(service) == before
    assert service.get("/readyz").status == 200


# ---------------------------------------------------------------------------------------------------------------- JSON


GOOD = compact(branches())
IN_NAME = b'"name":"branches"'


def in_name(text):
    return GOOD.replace(IN_NAME, b'"name":' + text)


def test_truncated(known):
    """Cut anywhere, also inside of the request around a document."""
    before = counts(known)
    step = max(1, len(GOOD) // 150)
    for end in range(0, len(GOOD), step):
        text = GOOD[:end]
        if text.strip():
            is_problem(known.post("/v1/graphs", text), 400)
            is_problem(known.post("/v1/optimize", text, raw_query="pass=MergeLinears"), 400)
        is_problem(known.post("/v1/optimize", b'{"passes":["MergeLinears"],"graph":' + text), 400)
    assert counts(known) == before


@pytest.mark.parametrize(
    "text,code",
    [
        (in_name(b'"\xff"'), "invalid-utf8"),
        (in_name(b'"\xc0\xaf"'), "invalid-utf8"),
        (in_name(b'"\xed\xa0\x80"'), "invalid-utf8"),
        (in_name(b'"\xf4\x90\x80\x80"'), "invalid-utf8"),
        (in_name(b'"\\ud800"'), "lone-surrogate"),
        (in_name(b'"\\udc00\\ud800"'), "lone-surrogate"),
        (in_name(b'"a\\u0000"'), "nul-character"),
        (in_name(b'"a\x00"'), "invalid-json"),
        (in_name(b'"a\nb"'), "invalid-json"),
        (in_name(b'"\\x"'), "invalid-json"),
        (in_name(b"NaN"), "invalid-json"),
        (in_name(b"nul"), "invalid-json"),
        (in_name(b"1e400"), "number-out-of-range"),
        (in_name(b"01"), "invalid-json"),
        (GOOD.replace(b",8]", b",NaN]"), "invalid-json"),
        (GOOD.replace(b",8]", b",Infinity]"), "invalid-json"),
        (GOOD.replace(b",8]", b",1e400]"), "number-out-of-range"),
        (GOOD.replace(b",8]", b",9223372036854775808]"), "number-out-of-range"),
        (GOOD.replace(b",8]", b",8,]"), "invalid-json"),
        (GOOD.replace(IN_NAME, IN_NAME + b"," + IN_NAME), "duplicate-member"),
        (GOOD.replace(IN_NAME, IN_NAME + b',"n\\u0061me":"x"'), "duplicate-member"),
        (GOOD.replace(b'"kwargs"', b'"op"') if b'"kwargs"' in GOOD else GOOD.replace(b'"op":', b'"op":"output","op":', 1),
         "duplicate-member"),
        (GOOD[:-1] + b',"nodes":[]}', "duplicate-member"),
        (GOOD[:-1] + b"]", None),
    ],
)
def test_not_json(known, text, code):
    is_refused(known, text, 400, code)


def test_after_the_end(known):
    for text in (GOOD + b"x", GOOD + GOOD, b"\xef\xbb\xbf" + GOOD):
        is_problem(known.post("/v1/graphs", text), 400)
        is_problem(known.post("/v1/optimize", text, raw_query="pass=MergeLinears"), 400)
    envelope = b'{"passes": ["MergeLinears"], "graph": ' + GOOD + b"}"
    for text in (envelope + b"x", envelope + b"}", envelope[:-1] + b',"passes":["DeepCopy"]}',
                 envelope[:-1] + b',"graph":"x"}'):
        is_problem(known.post("/v1/optimize", text), 400)
    assert known.post("/v1/optimize", b" \n" + envelope + b"\r\n\t ").status == 201


BOMBS = {
    "open arrays": b"[" * 1000000,
    "open objects": b'{"a":' * 1000000,
    "arrays": b"[" * 100 + b"]" * 100,
    "objects": b'{"a":' * 100 + b"1" + b"}" * 100,
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_nesting_bombs(known, bomb):
    before = counts(known)
    for path, text in (
        ("/v1/graphs", bomb),
        ("/v1/graphs", GOOD[:-1] + b',"metadata":{"x":' + bomb + b"}}"),
        ("/v1/graphs", GOOD.replace(b",8]", b"," + bomb + b"]")),
        ("/v1/optimize", b'{"passes":' + bomb + b',"graph":' + GOOD + b"}"),
        ("/v1/optimize", b'{"labels":' + bomb),
        ("/v1/optimize", b'{"graph":' + bomb + b',"passes":["MergeLinears"]}'),
        ("/v1/optimize", b'{"unknown":' + bomb),
        ("/v1/reverse", b'{"graph":' + bomb),
    ):
        answer = known.post(path, text)
        assert answer.status in (400, 413, 422), answer
        is_problem(answer, answer.status)
    assert counts(known) == before


# ------------------------------------------------------------------------------------------------------- the document


def change(document, path, value):
    """A copy with the value at `path` replaced, or removed when it is `...`."""
    changed = copy.deepcopy(document)
    place = changed
    for step in path[:-1]:
        place = place[step]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return changed


def added(document, *, nodes=(), modules=(), tensors=()):
    changed = copy.deepcopy(document)
    changed["nodes"][-1:-1] = nodes
    changed["modules"] += modules
    changed["tensors"] += tensors
    return changed


def with_recipe(recipe, shape=(4, 4), dtype="float32"):
    """The first Linear's weight is computed."""
    return change(branches(), ("tensors", 0), {"name": "fc0.weight", "dtype": dtype, "shape": list(shape), "recipe": recipe})


LOST = {"name": "lost", "dtype": "float32", "shape": [1]}

BAD_DOCUMENTS = {
    # wrong format, members, types
    "format": (("format",), "foldback.graph/9", "/format"),
    "format is a number": (("format",), 1, "/format"),
    "unknown member": (("colour",), 1, "/colour"),
    "nodes missing": (("nodes",), ..., ""),
    "nodes no list": (("nodes",), {}, "/nodes"),
    "node no object": (("nodes", 1), 7, "/nodes/1"),
    "node without a name": (("nodes", 1, "name"), ..., "/nodes/1"),
    "node without an op": (("nodes", 1, "op"), ..., "/nodes/1"),
    "op": (("nodes", 1, "op"), "call", "/nodes/1/op"),
    "args no list": (("nodes", 1, "args"), {"$node": "x"}, "/nodes/1/args"),
    "kwargs no object": (("nodes", 1, "kwargs"), [], "/nodes/1/kwargs"),
    "meta no object": (("nodes", 1, "meta"), [], "/nodes/1/meta"),
    "shape": (("nodes", 1, "meta", "shape"), [-1, 4], "/nodes/1/meta/shape"),
    "dtype": (("nodes", 1, "meta", "dtype"), "float 33", "/nodes/1/meta/dtype"),
    "transformations": (("nodes", 1, "meta", "transformations"), [7], "/nodes/1/meta/transformations"),
    "unknown member of a node": (("nodes", 1, "colour"), 1, "/nodes/1/colour"),
    "unknown form": (("nodes", 1, "args", 0), {"$nothing": "x"}, "/nodes/1/args/0"),
    "form with two members": (("nodes", 1, "args", 0), {"$node": "x", "$tuple": []}, "/nodes/1/args/0"),
    "plain object": (("nodes", 1, "args", 0), {"a": 1}, "/nodes/1/args/0"),
    "bad float": (("nodes", 1, "args", 0), {"$float": "1,5"}, "/nodes/1/args/0"),
    "bad int": (("nodes", 1, "args", 0), {"$int": "1.5"}, "/nodes/1/args/0"),
    "modules no list": (("modules",), "x", "/modules"),
    "module no object": (("modules", 1), [], "/modules/1"),
    "module without a path": (("modules", 1, "path"), ..., "/modules/1"),
    "training no bool": (("modules", 1, "training"), 1, "/modules/1/training"),
    "config no object": (("modules", 1, "config"), 1, "/modules/1/config"),
    "parameter no name": (("modules", 1, "parameters", "weight"), 1, "/modules/1/parameters/weight"),
    "tensors no list": (("tensors",), {}, "/tensors"),
    "tensor no object": (("tensors", 0), None, "/tensors/0"),
    "tensor dtype": (("tensors", 0, "dtype"), "float 33", "/tensors/0/dtype"),
    "tensor shape": (("tensors", 0, "shape"), [4, "s0"], "/tensors/0/shape"),
    "tensor shape below zero": (("tensors", 0, "shape"), [4, -4], "/tensors/0/shape"),
    "tensor shape too large": (("tensors", 0, "shape"), [2**62, 2**62], "/tensors/0/shape"),
    "tensor data": (("tensors", 0, "data"), "???", "/tensors/0"),
    "digest": (("tensors", 0, "digest"), "md5:1", "/tensors/0/digest"),
    "digest of other data": (
        ("tensors", 0),
        {"name": "fc0.weight", "dtype": "float32", "shape": [4, 4], "data": "A" * 86 + "==", "digest": "sha256:" + "0" * 64},
        "/tensors/0/digest",
    ),
    # names and references
    "duplicate node": (("nodes", 2, "name"), "fc0", "/nodes/2"),
    "duplicate module": (("modules", 2, "path"), "fc0", "/modules/2"),
    "duplicate tensor": (("tensors", 2, "name"), "fc0.weight", "/tensors/2"),
    "unknown node": (("nodes", 1, "args", 0), ref("nobody"), "/nodes/1/args/0"),
    "forward reference": (("nodes", 1, "args", 0), ref("fc1"), "/nodes/1/args/0"),
    "a node reads itself": (("nodes", 1, "args", 0), ref("fc0"), "/nodes/1/args/0"),
    "cycle": (("nodes", 1, "args", 0), {"$tuple": [ref("x"), ref("truediv")]}, "/nodes/1/args/0"),
    "unknown module": (("nodes", 1, "target"), "fc9", "/nodes/1"),
    "missing module": (("modules", 1), ..., "/nodes/1"),
    "missing tensor": (("tensors", 0), ..., "/modules/1/parameters/weight"),
    "no output": (("nodes", -1), ..., ""),
    "output in the middle": (("nodes", 2), node("out", "output", "output", [ref("x")]), ""),
    # config and tensors
    "in_features": (("modules", 1, "config", "in_features"), 5, "/modules/1"),
    "out_features": (("modules", 1, "config", "out_features"), 5, "/modules/1"),
    "bias": (("modules", 1, "config", "bias"), False, "/modules/1"),
    "bias missing": (("modules", 1, "parameters", "bias"), None, "/modules/1"),
    "bias of another size": (("tensors", 1, "shape"), [3], "/modules/1"),
    "weight of another rank": (("tensors", 0, "shape"), [4], "/modules/1"),
    # text that would become code
    "node name": (("nodes", 1, "name"), "x; import os", "/nodes/1/name"),
    "node name is a keyword": (("nodes", 1, "name"), "lambda", "/nodes/1/name"),
    "node name ends with a line feed": (("nodes", 1, "name"), "a\n", "/nodes/1/name"),
    "placeholder": (("nodes", 0, "target"), "x=print(1)", "/nodes/0/target"),
    "function": (("nodes", -2, "target"), "operator.truediv(0) or os.system", "/nodes/4/target"),
    "function with a line feed": (("nodes", -2, "target"), "operator\ntruediv", "/nodes/4/target"),
    "keyword argument": (("nodes", -2, "kwargs"), {"a=1, **b": 1}, "/nodes/4/kwargs"),
    "annotation": (("nodes", 0, "type"), "int = print()", "/nodes/0/type"),
    "annotation with a string": (("nodes", 0, "type"), 'List["a"]', "/nodes/0/type"),
    "module path": (("modules", 1, "path"), 'fc0"); print("', "/modules/1/path"),
    "dtype name": (("nodes", 1, "args", 0), {"$dtype": "float32); print("}, "/nodes/1/args/0"),
    "device": (("nodes", 1, "args", 0), {"$device": "cpu'); print('"}, "/nodes/1/args/0"),
    "reference": (("nodes", 1, "args", 0), {"$ref": "os.system('x')"}, "/nodes/1/args/0"),
    "enum": (("nodes", 1, "args", 0), {"$enum": ["a.B", "C; print()"]}, "/nodes/1/args/0"),
    "named tuple": (("nodes", 1, "args", 0), {"$namedtuple": ["a.B()", []]}, "/nodes/1/args/0"),
}


@pytest.mark.parametrize("case", BAD_DOCUMENTS)
def test_bad_document(known, case):
    path, value, pointer = BAD_DOCUMENTS[case]
    status = 422
    is_refused(known, compact(change(branches(), path, value)), status, pointer=pointer)


@pytest.mark.parametrize(
    "document,pointer",
    [
        (added(branches(), modules=[{"path": "spare", "type": "torch.nn.ReLU"}]), "/modules/3"),
        (added(branches(), tensors=[LOST]), "/tensors/4"),
        (added(branches(), nodes=[node("m", "call_method", "view; x", [ref("x")])]), "/nodes/5/target"),
        (added(branches(), nodes=[node("m", "call_method", "view")]), "/nodes/5"),
        (added(branches(), nodes=[node("a", "get_attr", "fc0.nothing")]), "/nodes/5"),
        (added(branches(), nodes=[node("p", "placeholder", "x")]), "/nodes/5"),
        (with_recipe({"op": "frobnicate", "args": ["fc1.weight"]}), "/tensors/0/recipe"),
        (with_recipe("fc0.weight"), "/tensors/0"),
        (with_recipe("nobody"), "/tensors/0/recipe"),
        (with_recipe({"op": "concat", "axis": 0, "args": ["fc1.weight", "fc1.weight"]}), "/tensors/0"),
        (with_recipe({"op": "concat", "axis": 5, "args": ["fc1.weight"]}), "/tensors/0/recipe"),
        (with_recipe({"op": "slice", "axis": 0, "start": 0, "stop": 9, "args": ["fc1.weight"]}), "/tensors/0/recipe"),
        (with_recipe({"op": "reshape", "shape": [3, 3], "args": ["fc1.weight"]}), "/tensors/0/recipe"),
        (with_recipe({"op": "permute", "dims": [0, 0], "args": ["fc1.weight"]}), "/tensors/0/recipe"),
        (with_recipe({"op": "matmul", "args": ["fc1.weight"]}), "/tensors/0/recipe"),
        (with_recipe({"op": "neg", "args": ["fc1.weight"], "colour": 1}), "/tensors/0/recipe"),
        (with_recipe({"op": "concat", "axis": 0, "args": []}), "/tensors/0/recipe"),
        (with_recipe({"op": "neg", "args": {"a": 1}}), "/tensors/0/recipe"),
        (with_recipe(7), "/tensors/0/recipe"),
        (
            change(with_recipe("fc1.weight"), ("tensors", 2),
                   {"name": "fc1.weight", "dtype": "float32", "shape": [4, 4], "recipe": "fc0.weight"}),
            "/tensors/",
        ),
        (change(batch_norm_fold(), ("tensors", 3, "shape"), [7]), "/modules/2"),
        (change(batch_norm_fold(), ("modules", 1, "config", "in_channels"), 4), "/modules/1"),
        (change(batch_norm_fold(), ("modules", 1, "config", "kernel_size"), {"$tuple": [5, 5]}), "/modules/1"),
        ({"format": "foldback.graph/1"}, ""),
    ],
)
def test_more_bad_documents(known, document, pointer):
    is_refused(known, compact(document), 422, pointer=pointer)


def test_all_errors_together(known):
    graph = branches(150)
    for i in range(1, 151):
        graph["nodes"][i]["args"] = [ref("nobody")]
    problem = is_problem(known.post("/v1/graphs", graph), 422)
    assert len(problem["errors"]) == 100 and problem["total"] >= 150
    assert problem["pointer"] == problem["errors"][0]["pointer"]
    assert problem["nodes"] == ["fc0"]
    assert len({error["pointer"] for error in problem["errors"]}) == 100


def paths(value, so_far=()):
    yield so_far
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in items:
        yield from paths(part, (*so_far, step))


@pytest.mark.parametrize("graph", [pytest.param(branches(), marks=pytest.mark.long),
                                   pytest.param(batch_norm_fold(), marks=pytest.mark.long),
                                   with_recipe({"op": "neg", "args": ["fc1.weight"]})])
def test_any_value_replaced_by_any_other(known, graph):
    """Whatever is put anywhere: it is a graph, or it is refused with a place. Never a failure of the server."""
    refused = accepted = 0
    for path in list(paths(graph))[1:]:
        for value in (None, True, -1, 1.5, "text", [], {}, {"$node": "output"}, [[]], "\u2028\"'\\", 10**18, ...):
            answer = known.post("/v1/optimize", change(graph, path, value), raw_query="pass=MergeLinears&dry_run&include=code")
            if answer.status == 200:
                accepted += 1
            else:
                problem = is_problem(answer, 422)
                assert "pointer" in problem or path == ("format",) or len(path) == 1, (path, value, problem)
                refused += 1
    assert refused > 500 and accepted > 20, (refused, accepted)
    assert known.get("/readyz").status == 200


# -------------------------------------------------------------------------------------------------------------- around


def test_wrong_media_type_and_coding(known):
    before = counts(known)
    for content_type in ("text/html", "image/png", "multipart/form-data; boundary=x"):
        is_problem(known.post("/v1/graphs", GOOD, headers={"Content-Type": content_type}), 415)
    is_problem(known.post("/v1/graphs", GOOD, headers={"Content-Encoding": "br"}), 415)
    is_problem(known.post("/v1/graphs", GOOD, headers={"Content-Encoding": "gzip"}), 400)
    is_problem(known.post("/v1/graphs", gzip.compress(GOOD)[:-9], headers={"Content-Encoding": "gzip"}), 400)
    is_problem(known.get("/v1/graphs", headers={"Accept": "text/html"}), 406)
    for method, path in (("PUT", "/v1/optimize"), ("GET", "/v1/optimize"), ("DELETE", "/v1/runs"), ("PATCH", "/v1/graphs")):
        is_problem(known.request(method, path, GOOD if method != "GET" else None), 405)
    for path in ("/v1/graphs", "/v1/optimize?pass=MergeLinears", "/v1/reverse"):
        is_problem(known.post(path, b""), 400, "missing-body")
    assert counts(known) == before


def test_too_large(new_service):
    service = new_service("--max-body", "20000", "--max-nodes", "30")
    bomb = gzip.compress(b" " * 10_000_000)
    is_problem(service.post("/v1/graphs", bomb, headers={"Content-Encoding": "gzip"}), 413, "body-too-large")
    is_problem(service.post("/v1/graphs", b" " * 20001), 413, "body-too-large")
    for _, answer in ways_in(service, compact(branches(20))):
        assert is_problem(answer, 413)["code"] == "too-many-nodes"
    assert counts(service) == (0, 0)
    assert service.post("/v1/graphs", branches(10)).status == 201


def test_large_member(known):
    text = b'{"graph": ' + GOOD + b', "passes": ["MergeLinears"], "note": "' + b"x" * (5 << 20) + b'"}'
    assert is_problem(known.post("/v1/optimize", text), 413, "member-too-large")["pointer"] == "/note"
