"""Silent changes of exporters: docs/exporters.md says of each whether `compare` finds it, and what `from_module` does. UPDATE=1
writes its tables anew."""

import base64
import contextlib
import copy
import os
import pathlib
import re
import warnings
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.fx.experimental.optimization import fuse
from torch.nn.attention.flex_attention import create_mask

import foldback
from foldback.export import from_exported_program, from_module, traced

PAGE = pathlib.Path(__file__).parents[3] / "docs/exporters.md"
IS_TESTED_VERSION = torch.__version__.startswith("2.13.")


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


class Counter(nn.Module):
    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def forward(self, x):
        self.calls += 1
        return x * self.calls


class Buffered(nn.Module):
    def __init__(self, tensor):
        super().__init__()
        self.register_buffer("held", tensor)

    def forward(self, x):
        return x * self.held


class Frozen(nn.Sequential):
    def forward(self, x):
        with torch.no_grad():
            return self[0](x)


class Lazy(nn.Module):
    def forward(self, x):
        if not hasattr(self, "mask"):
            self.mask = torch.ones(2) * 3
        return x * self.mask


class Bits(nn.Module):
    """One memory, as numbers and as their bits."""

    def __init__(self):
        super().__init__()
        self.register_buffer("numbers", torch.ones(2))
        self.register_buffer("bits", self.numbers.view(torch.int32))

    def forward(self, x):
        self.numbers.add_(1)
        return x + self.bits


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.ones(2))
        self.register_buffer("b", self.a, persistent=False)

    def forward(self, x):
        return x * self.a + self.b


class Protected(nn.Module):
    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return x @ x


class Updated(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(1))

    def forward(self, x):
        self.n.add_(1)
        return x * self.n


class Rest(nn.Module):
    def forward(self, x, *rest, shift=2):
        return x * shift + rest[0]


class Padded(nn.Module):
    def forward(self, x, keep):
        mask = create_mask(lambda batch, head, row, column: keep[column], 1, 1, 3, 3, device="cpu")
        return x.masked_fill(~mask[0, 0], 0)


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)
        nn.init.constant_(self.norm.weight, 3)

    def forward(self, x):
        return self.norm(self.conv(x)) + self.conv(x)


def add_in_place(x):
    y = x * 1
    z = y
    z += 1
    return y


def write_and_return(x):
    x.add_(1)
    return x * 2


def hooked():
    model = nn.Sequential(Call(lambda x: x + 1))
    model.register_forward_hook(lambda module, inputs, output: output * 10)
    return model


def export(model, *examples):
    return torch.export.export(model, examples)


def decomposed(model, *examples):
    return export(model, *examples).run_decompositions()


def cast(model, *examples):
    program = export(model, *examples)
    program.module().double()
    return program


def without_dead_code(model, *examples):
    program = torch.fx.symbolic_trace(model)
    program.graph.eliminate_dead_code()
    program.recompile()
    return program


def fx(model, *examples):
    return torch.fx.symbolic_trace(model)


def fused(model, *examples):
    return fuse(model)


def within(context, exporter=export):
    def made(model, *examples):
        with context():
            return exporter(model, *examples)

    made.context = context
    return made


class Row(NamedTuple):
    words: str
    model: object
    exporter: object
    examples: object
    shown_by: object = None  # examples with which the change shows


X, IDS = torch.ones(2), torch.tensor([1, 2])
EXPORT = [
    Row("One tensor as the example of two arguments makes one input of them; the other is ignored for ever",
        lambda: Call(lambda a, b: 2 * a - b), export, lambda: [X] * 2),
    Row("A number that forward changes (`self.calls += 1`) is a constant of the program: it stays at the first call",
        lambda: Counter(0), export, lambda: [X]),
    Row("A plain tensor that forward writes to is written by the export itself, and then shared by model and program",
        lambda: Counter(torch.zeros(1)), export, lambda: [X]),
    Row("A tensor that forward makes on its first call and keeps stays behind in the model without numbers",
        Lazy, export, lambda: [X]),
    Row("A weight that is conjugated lazily loses that in the file",
        lambda: Buffered(torch.tensor([1 + 2j]).conj()), export, lambda: [torch.ones(1, dtype=torch.complex64)]),
    Row("A buffer and an alias of it in another dtype are one memory in the program, and two in the file",
        Bits, export, lambda: [X]),
    Row("A slice is saved with all memory around it, and the examples with their numbers "
        "(`pt2-holds-the-memory-around-an-example`)",
        lambda: Buffered(torch.arange(10.0)[:2]), export, lambda: [X]),
    Row("`program.module().double()` casts parameters, of the source as well, and no buffers; what the graph records "
        "stays float32",
        lambda: nn.BatchNorm1d(2).eval(), cast, lambda: [torch.ones(1, 2)]),
    Row("Of two names of one buffer the last is read, also if checkpoints lack it: loading the other changes nothing",
        Tied, export, lambda: [X]),
    Row("Under `torch.no_grad()` the regions of forward that switch gradients off are dropped: the program lets "
        "gradients through",
        lambda: Frozen(nn.Linear(2, 2)), within(torch.no_grad), lambda: [torch.ones(1, 2)]),
    Row("Inside of `torch.autocast` the program records bfloat16, and holds no cast: called outside it computes in float32",
        lambda: nn.Linear(2, 2), within(lambda: torch.autocast("cpu")), lambda: [torch.ones(1, 2)]),
    Row("An input of another dtype than the example is accepted, and the results have other dtypes than recorded "
        "(`export-checks-sizes-and-not-dtypes`)", lambda: Call(lambda x: x * 2), export, lambda: [X],
        lambda: [X.double()]),
    Row("Each cast (`.float()`) comes with an assertion of the dtype before it: under autocast the program raises "
        "(`export-asserts-dtypes-that-autocast-changes`)", lambda: nn.Sequential(nn.Linear(2, 2), Call(lambda x: x.float())),
        export, lambda: [torch.ones(1, 2)]),
    Row("`run_decompositions` drops the regions that switch autocast off: called under autocast they compute in bfloat16",
        Protected, decomposed, lambda: [torch.ones(2, 2)]),
    Row("`run_decompositions` gives `torch.ones` the dtype of that moment; the model takes the default of its caller",
        lambda: Call(lambda x: (torch.ones(2), x)), decomposed, lambda: [X]),
    Row("A decomposed program that writes to a parameter (`nn.Embedding(max_norm=…)`) raises unless gradients are off",
        lambda: nn.Embedding(3, 2, max_norm=0.5), decomposed, lambda: [IDS]),
    Row("A tensor that is indexed in a mask, as language models do, makes a program that `torch.export.save` refuses; "
        "strict mode does "
        "not (`export-gives-programs-that-save-refuses`)", Padded, export, lambda: [torch.ones(3, 3), torch.ones(3) > 0]),
]
FX = [
    Row("`y += 1` is recorded as `y = y + 1`, and writes nowhere", lambda: nn.Sequential(Call(add_in_place)), fx, lambda: [X]),
    Row("A write to a buffer without an input in it (`self.n.add_(1)`) runs once, on the model, and is not in the graph",
        Updated, fx, lambda: [X]),
    Row("A hook of the model itself is not in the graph; those of modules that are traced through are",
        hooked, fx, lambda: [X]),
    Row("`(-2.0) ** x` is printed as `-2.0 ** x`, which Python reads as `-(2.0 ** x)`",
        lambda: nn.Sequential(Call(lambda x: (-2.0) ** x)), fx, lambda: [torch.tensor([2.0])]),
    Row("An argument by keyword goes before `*rest`: `forward(x, y)` gives y to it", Rest, fx, lambda: [X, X * 5]),
    Row("`eliminate_dead_code` deletes writes in place whose result nobody uses (`x.add_(1)`)",
        lambda: nn.Sequential(Call(write_and_return)), without_dead_code, lambda: [X]),
    Row("`fuse` folds a BatchNorm into a convolution that is called elsewhere, too", lambda: Siamese().eval(), fused,
        lambda: [torch.ones(1, 1, 2, 2)]),
]


def found_by_compare(row):
    """As the table says it; "" where it is not found."""
    model, examples = row.model(), row.examples()
    program = row.exporter(model, *examples)
    try:
        comparison = foldback.compare(model, program, (row.shown_by or row.examples)())
    except ValueError as error:
        return f"refuses: {str(error).partition(':')[0].partition(' (')[0]}"
    kinds = {f"{one.when}: {one.what}": None for one in comparison.differences}
    return f"finds it ({next(iter(kinds))})" if kinds else ""


def tensors_of(model):
    return {key: item.clone() for key, item in {**model.state_dict(), **vars(model)}.items() if isinstance(item, torch.Tensor)}


def done_by_us(row):
    model, examples, shown = row.model(), row.examples(), (row.shown_by or row.examples)()
    if row.exporter is cast:
        cast(model, *examples)
    before = tensors_of(model)
    with warnings.catch_warnings(record=True) as caught, getattr(row.exporter, "context", contextlib.nullcontext)():
        warnings.simplefilter("always")
        try:
            document = from_module(model, *examples, data=True)
        except ValueError as error:
            return f"refuses: {str(error).partition(':')[0]}"
    after = tensors_of(model)
    assert before.keys() == after.keys() and all(torch.equal(before[key], after[key]) for key in before), row.words
    try:
        live = foldback.fx.from_document(document)
    except ValueError:
        return "a document that `from_document` refuses"
    if [str(one.message) for one in caught if "in each call" in str(one.message)]:
        return "warns"
    dtypes = [str(one.dtype).partition(".")[2] for one in torch.utils._pytree.tree_leaves(copy.deepcopy(live)(*shown))]
    return "right" if foldback.compare(model, live, shown) and recorded(document)[-1] == dtypes[0] else ""


def table(rows):
    found = [(row.words, found_by_compare(row), done_by_us(row)) for row in rows]
    head = ["| What changes | `foldback.compare` | `from_module` |", "|---|---|---|"]
    lines = [f"| {words} | {one or 'nothing'} | {other or 'nothing'} |" for words, one, other in found]
    return found, "\n".join([*head, *lines])


def check_page(mark, text):
    """A part of the page, between its marks."""
    page, begin, end = PAGE.read_text(), f"<!-- {mark} -->\n\n", f"\n\n<!-- end of {mark} -->"
    before, _, rest = page.partition(begin)
    written, found, after = rest.partition(end)
    assert found, f"docs/exporters.md has no place for {mark}"
    if os.environ.get("UPDATE"):
        PAGE.write_text(before + begin + text + end + after)
    else:
        assert written == text


@pytest.mark.skipif(not IS_TESTED_VERSION, reason="the table is of PyTorch 2.13")
def test_tables():
    (export_rows, export_text), (fx_rows, fx_text) = table(EXPORT), table(FX)
    caught = [row for row in export_rows + fx_rows if row[1]]
    assert len(caught) >= 20 and len(export_rows + fx_rows) == 24, caught
    check_page("torch.export", export_text)
    check_page("torch.fx", fx_text)


def test_the_example(capsys):
    page = PAGE.read_text()
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], {})
    assert capsys.readouterr().out == re.search(r"```text\n(.*?)```", page, re.DOTALL)[1]


@pytest.mark.parametrize("model, examples", [
    (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout()), [torch.ones(3, 2)]),
    (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval(), [torch.ones(3, 2)]),
    (Buffered(torch.tensor([2.0])), [torch.ones(3)]), (Updated(), [torch.ones(3)]), (Call(write_and_return), [torch.ones(3)]),
    (Call(lambda a, b: a * 2), [torch.ones(1), torch.ones(1)]),
    pytest.param(nn.LSTM(2, 3), [torch.ones(1, 1, 2)],
                 marks=pytest.mark.skipif(torch.__version__ < "2.10", reason="strict export refuses it")),
])
def test_compare_finds_nothing_where_nothing_differs(model, examples):
    for program in (torch.export.export(model, tuple(examples)), torch.export.export(model, tuple(examples), strict=True)):
        found = foldback.compare(model, program, examples)
        assert found, str(found)


def test_compare_says_what_differs():
    x = torch.ones(2)
    found = foldback.compare(Call(lambda a, b: 2 * a - b), torch.export.export(Call(lambda a, b: 2 * a - b), (x, x)), (x, x))
    assert {(one.when, one.what, one.where) for one in found.differences} == {
        ("other numbers", "result", "0"), ("saved and loaded, other numbers", "result", "0"), ("inputs", "unread", "inputs_0")}
    assert not found and "the program does not read inputs_0" in str(found)
    model = Call(lambda a, b: b * 2)
    assert foldback.compare(model, torch.export.export(model, (x, x + 1)), (x, x)).unread == ["inputs_0"]
    wrong = torch.fx.symbolic_trace(nn.Sequential(Call(lambda x: x * 3)))
    one = foldback.compare(Call(lambda x: x * 2), wrong, (x,)).differences[0]
    assert (one.when, one.what, one.detail) == ("two calls", "result", "value 0 is not the model's")
    copying = torch.fx.symbolic_trace(nn.Sequential(Call(lambda x: (x + 1) * 2)))
    assert foldback.compare(Call(write_and_return), copying, (x,)).differences[0].what == "input"
    with pytest.raises(ValueError, match="cannot be run on the examples"):
        foldback.compare(Call(lambda x: x @ x @ x.T[5]), wrong, (torch.ones(2, 2),))


def targets(document):
    return [row["target"] for row in document["nodes"]]


def recorded(document):
    return [row["meta"].get("dtype") for row in document["nodes"] if row["op"] == "call_function"]


def test_two_arguments_of_one_example():
    x, other = torch.ones(2), torch.full((2,), 5.0)
    model = Call(lambda a, b: 2 * a - b)
    alone = torch.export.export(model, (x, x)).module()
    assert torch.equal(alone(x, other), other)
    assert torch.equal(foldback.fx.from_document(from_module(model, x, x))(x, other), model(x, other))


@pytest.mark.parametrize("calls", [0, 3, 0.5])
def test_a_number_that_forward_counts_is_named(calls):
    model = Counter(calls)
    with pytest.warns(UserWarning, match="changes calls in each call"):
        document = from_module(model, torch.ones(1))
    assert model.calls == calls
    live = foldback.fx.from_document(document)
    assert [live(torch.ones(1)).item() for _ in range(2)] == [calls + 1] * 2


def test_other_models_are_not_warned_about():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from_module(Counter(torch.zeros(1)), torch.ones(1))
        from_module(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), torch.ones(3, 2))
    assert not [str(one.message) for one in caught if "in each call" in str(one.message)]


def test_lazy_conjugation():
    held = torch.tensor([1 + 2j]).conj()
    document = from_module(Buffered(held), torch.ones(1, dtype=torch.complex64), data=True)
    (row,) = document["tensors"]
    assert base64.b64decode(row["data"]) == held.resolve_conj().numpy().tobytes()


def test_a_slice_comes_without_the_memory_around_it():
    data = torch.arange(100_000.0)
    document = from_module(Buffered(data[:4]), data[4:8], data=True)
    (row,) = document["tensors"]
    assert base64.b64decode(row["data"]) == data[:4].numpy().tobytes()


def test_what_is_recorded_is_not_older_than_the_weights():
    program = torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),))
    program.module().double()
    assert program.graph_signature.user_inputs and recorded(from_exported_program(program)) == [None]


def test_what_from_module_does_not_find():
    x = torch.ones(1, 2)
    model = Frozen(nn.Linear(2, 2))
    region = "torch.ops.higher_order.wrap_with_set_grad_enabled"
    assert region in targets(from_module(model, x))
    with torch.no_grad():
        assert region not in targets(from_module(model, x))
    with torch.autocast("cpu"):
        document = from_module(nn.Linear(2, 2), x)
    assert recorded(document) == ["bfloat16"]
    assert foldback.fx.from_document(document, nn.Linear(2, 2))(x).dtype == torch.float32
    document = from_module(Call(lambda x: x * 2), x)
    assert recorded(document) == ["float32"]
    assert foldback.fx.from_document(document)(x.double()).dtype == torch.float64


@pytest.mark.parametrize("is_root", [False, True])
def test_hooks(is_root):
    x, model = torch.ones(2), nn.Sequential(Call(lambda x: x + 1))
    (model if is_root else model[0]).register_forward_hook(lambda module, inputs, output: output * 10)
    assert torch.equal(foldback.fx.from_document(from_module(model, x))(x), model(x))
    assert torch.equal(torch.fx.symbolic_trace(model)(x), model(x)) != is_root
    if is_root:
        with pytest.raises(ValueError, match="forward hook"):
            traced(model)
    else:
        assert torch.equal(foldback.fx.from_document(traced(model))(x), model(x))


def test_a_negative_base():
    x, model = torch.tensor(2.0), nn.Sequential(Call(lambda x: (-2.0) ** x))
    assert torch.fx.symbolic_trace(model)(x).item() == -4
    assert foldback.fx.from_document(from_module(model, x))(x).item() == model(x).item() == 4
    document = traced(model)
    assert {"$float": "-2.0"} in next(row["args"] for row in document["nodes"] if row["op"] == "call_function")
