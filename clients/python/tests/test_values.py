"""Values there and back, in the words of the format."""

import math
import operator

import programs
import pytest
import torch

from foldback.tensors import bytes_of, tensor_of
from foldback.values import annotation_of, annotation_text, decode, encode, qualified_name, resolve

PAIRS = [
    (None, None),
    (True, True),
    ("text", "text"),
    (3, 3),
    (2**53 - 1, 2**53 - 1),
    (2**53, {"$int": "9007199254740992"}),
    (-(2**70), {"$int": str(-(2**70))}),
    (0.5, 0.5),
    (8.0, {"$float": "8.0"}),
    (-0.0, {"$float": "-0.0"}),
    (1e16, {"$float": "1e+16"}),
    (math.inf, {"$float": "inf"}),
    (1 + 2.5j, {"$complex": [{"$float": "1.0"}, 2.5]}),
    ((1, (2.0,)), {"$tuple": [1, {"$tuple": [{"$float": "2.0"}]}]}),
    ([1, [2]], [1, [2]]),
    ({"a": 1, 2: (3,)}, {"$dict": [["a", 1], [2, {"$tuple": [3]}]]}),
    (torch.Size([2, 3]), {"$size": [2, 3]}),
    (slice(None, 3, None), {"$slice": [None, 3, None]}),
    (..., {"$ellipsis": True}),
    (programs.Pair(1, [2]), {"$namedtuple": ["programs.Pair", [1, [2]]]}),
    (programs.Mode.MEAN, {"$enum": ["programs.Mode", "MEAN"]}),
    (torch.bfloat16, {"$dtype": "bfloat16"}),
    (torch.strided, {"$layout": "strided"}),
    (torch.channels_last, {"$memory_format": "channels_last"}),
    (torch.device("cuda:1"), {"$device": "cuda:1"}),
    (torch.nn.functional.relu, {"$ref": "torch.nn.functional.relu"}),
    (torch.nn.Linear, {"$ref": "torch.nn.modules.linear.Linear"}),
]


@pytest.mark.parametrize("value, spelled", PAIRS, ids=[str(spelled)[:40] for _, spelled in PAIRS])
def test_there_and_back(value, spelled):
    assert encode(value) == spelled
    assert type(encode(value)) is type(spelled)
    back = decode(spelled)
    assert back == value and type(back) is type(value)
    assert repr(back) == repr(value)


def test_subclasses_of_numbers_and_texts_are_plain():
    class Kind(int):
        pass

    class Word(str):
        pass

    assert type(encode(Kind(3))) is int and type(encode(Word("a"))) is str
    import numpy

    assert encode(numpy.float64(0.5)) == 0.5 and type(encode(numpy.float64(0.5))) is float


def test_what_has_no_form_is_opaque_and_has_no_address():
    class Odd:
        pass

    assert encode(Odd())["$opaque"].endswith("Odd object>")
    assert encode({"b", "a", "c"}) == {"$opaque": "{'a', 'b', 'c'}"}
    assert encode(frozenset({2, 1})) == {"$opaque": "frozenset({1, 2})"}
    assert encode(range(3)) == {"$opaque": "range(0, 3)"}
    with pytest.raises(ValueError, match="cannot be made into an object"):
        decode({"$opaque": "range(0, 3)"})


@pytest.mark.parametrize(
    "function, name",
    [
        (getattr, "builtins.getattr"),
        (operator.getitem, "operator.getitem"),
        (torch.cat, "torch.cat"),
        (torch._C._nn.gelu, "torch._C._nn.gelu"),
        (torch.nn.functional.linear, "torch._C._nn.linear"),
        (torch.nn.functional.softmax, "torch.nn.functional.softmax"),
        (torch.ops.aten.add.Tensor, "torch.ops.aten.add.Tensor"),
        (torch.Tensor.add, "torch.Tensor.add"),
        (math.sqrt, "math.sqrt"),
        (programs.pooled, "programs.pooled"),
    ],
)
def test_names_of_functions(function, name):
    assert qualified_name(function) == name
    assert resolve(name) is function or resolve(name) == function


def test_a_function_without_a_name_is_refused():
    with pytest.raises(ValueError, match="no name that another process could find"):
        qualified_name([lambda x: x][0])
    for name in ("torch.no_such_thing", "torch.nn.functional.no_such_thing"):
        with pytest.raises(ValueError, match="there is no"):
            resolve(name)


@pytest.mark.parametrize(
    "text",
    [
        "torch.Tensor",
        "int",
        "typing_Optional[torch.Tensor]",
        "typing_Dict[str,typing_List[int]]",
        "int|NoneType",
        "tuple[int,...]",
    ]
    + ["programs_Pair"],
)
def test_annotations_there_and_back(text):
    assert annotation_text(annotation_of(text)) == text


def test_an_annotation_that_is_none():
    assert annotation_text("a string") is None or annotation_text("a string") == "_a_string_"


@pytest.mark.parametrize("shape", [[2, 3], [], [0, 3]])
def test_a_tensor_of_bytes_has_as_many_as_its_shape_asks_for(shape):
    tensor = torch.rand(shape)
    assert torch.equal(tensor_of(bytes_of(tensor), torch.float32, shape), tensor)
    for data in (bytes_of(tensor) + b"abcd", bytes_of(tensor)[:-4] if tensor.numel() else b"a"):
        with pytest.raises(ValueError, match=rf"has {tensor.nbytes} bytes, not {len(data)}"):
            tensor_of(data, torch.float32, shape)
