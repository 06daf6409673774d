"""Writes core/analysis/calls.def: where PyTorch has the names of each operator, and how its ATen overloads are called.

    python tests/python/make_calls.py > core/analysis/calls.def
"""

import inspect
import pathlib
import re
import types

import torch
from torch._jit_internal import boolean_dispatched

OPERATORS = pathlib.Path(__file__).resolve().parents[2] / "core" / "operators"
HEAD = """/* Where PyTorch 2.13 has the names of each operator of ops.def, and what its ATen overloads take. Written by
 * tests/python/make_calls.py, and held against PyTorch by tests/python/test_calls.py.
 *
 *     FB_CALLS_ROW("name", "homes", "parsed", "overload(parameters) …", "home(parameters) …")
 *
 * homes       of "functional" (torch.nn.functional), "torch" and "method" (torch.Tensor)
 * parsed      the homes where it is written in C++ and takes what the overloads take; others are Python functions. The
 *             parameters of such a one have a row of their own, "functional.name", where its annotations have all of them;
 *             else they come last, as far as they are annotated, and not for functions of *args
 * parameters  "name=type" by position; after "|" by keyword only. With "?" before its type one may be None, with "!" it
 *             must be given. T: a tensor, N: that or a number, L: a list of tensors, O: of tensors and None, S: a number,
 *             E: a list of numbers and None, i: an int, I: a list of ints, J: that or one int, K: that, or one int from Python
 *             alone, P: a list of ints and None, or one int, f: a float, F: a list of floats, b: a bool, B: a list of bools,
 *             s: a string, d: a dtype, D: a device, l: a layout, m: a memory format, x: something else, n: a number or a list
 *             of numbers, a: anything. */
"""
TYPES = {
    "Tensor": "T",
    "List[Tensor]": "L",
    "number": "S",
    "int": "i",
    "SymInt": "i",
    "List[int]": "I",
    "List[SymInt]": "I",
    "List[Optional[Tensor]]": "O",
    "List[Optional[number]]": "E",
    "float": "f",
    "List[float]": "F",
    "bool": "b",
    "List[bool]": "B",
    "str": "s",
    "ScalarType": "d",
    "Device": "D",
    "Layout": "l",
    "MemoryFormat": "m",
}
# Of these PyTorch takes a number where the schema says tensor: should_allow_numbers_as_tensors in python_arg_parser.cpp.
TAKE_NUMBERS = {"add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "floor_divide"}
WRITTEN_IN_C = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


def type_of(argument):
    text = str(argument.real_type)
    is_optional = text.startswith("Optional[")
    text = text.removeprefix("Optional[").removesuffix("]") if is_optional else text
    text = text + "]" * (text.count("[") - text.count("]"))
    letter = TYPES.get(text, "x")
    if text == "List[int]" and argument.N is not None:
        letter = "J"  # of List[SymInt] no int will do
    return ("?" if is_optional else "") + letter


def overload(function):
    schema, words, is_behind = function._schema, [], False
    for argument in schema.arguments:
        bar = "|" if argument.kwarg_only and not is_behind else ""
        is_behind |= argument.kwarg_only
        type_ = type_of(argument)
        if type_.endswith(("I", "J")) and re.search(rf"SymInt\[\d+\]\??(\(\w+!?\))? {argument.name}\b", str(schema)):
            type_ = type_[:-1] + "K"
        if schema.name.removeprefix("aten::").rstrip("_") in TAKE_NUMBERS and type_ == "T":
            type_ = "N"
        words.append(f"{bar}{argument.name}={'' if argument.has_default_value() else '!'}{type_}")
    return f"{schema.overload_name or 'default'}({','.join(words)})"


def is_ordinary(function):
    """No overload that writes to `out`, and none of named dimensions, of numbers alone or of lists and strings of
    TorchScript."""
    arguments = function._schema.arguments
    if not any("Tensor" in str(one.type) for one in [*arguments, *function._schema.returns]):
        return False
    is_of_names = any(str(argument.real_type) in ("Dimname", "List[Dimname]", "Optional[List[Dimname]]")
                      for argument in arguments)
    is_of_numbers = all(str(one.real_type) in ("int", "float", "number", "complex", "bool") for one in arguments)
    writes = any(argument.is_out for argument in arguments)
    return not is_of_names and not writes and not (is_of_numbers and arguments)


def overloads(name):
    home, _, own = name.rpartition(".")
    packet = getattr(getattr(torch.ops, home or "aten"), own, None)
    found = [getattr(packet, one) for one in packet.overloads()] if packet is not None else []
    return " ".join(overload(one) for one in found if is_ordinary(one))


def writes_otherwise(name):
    """Has name_, which writes into its input, an overload that name lacks or calls otherwise? pow_.Scalar takes a tensor and a
    number."""
    return "." not in name and not set(overloads(f"{name}_").split()) <= set(overloads(name).split())


def annotated(parameter):
    """The letter of a Python parameter. Annotations are for TorchScript and tell half of the truth (int, where a tuple will
    do)."""
    text = str(parameter.annotation).removeprefix("<class '").removesuffix("'>").replace("torch.Tensor", "Tensor")
    words = set(text.split(" | "))
    optional = "?" if words & {"None", "NoneType"} and (len(words) > 1 or parameter.default is None) else ""
    words -= {"None", "NoneType"} if len(words) > 1 else set()
    if parameter.name == "dtype":
        return optional + "d" if words == {"int"} else "a"
    if words <= {"int", "float", "list[int]", "list[float]", "None", "NoneType"}:  # BroadcastingList2[int] is None when it runs
        return optional + "n"
    return optional + {"Tensor": "T", "bool": "b",
                       "str": "s"}[text.split(" | ")[0]] if words <= {"Tensor", "bool", "str"} and len(words) == 1 else "a"


def python_call(function):
    """What a function that is written in Python takes; None for one of *args."""
    signature = inspect.signature(boolean_dispatched.get(function, {}).get("if_false", function))
    words, is_behind = [], False
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            return None
        is_keyword = parameter.kind == parameter.KEYWORD_ONLY
        bar = "|" if is_keyword and not is_behind else ""
        is_behind |= is_keyword
        needed = "!" if parameter.default is parameter.empty else ""
        type_ = "T" if parameter.name == "self" else annotated(parameter)
        words.append(f"{bar}{parameter.name}={needed}{type_}")
    return f"({','.join(words)})"


def names():
    for file in re.findall(r'include "core/operators/(ops_\w+\.def)"', (OPERATORS / "ops.def").read_text()):
        for line in (OPERATORS / file).read_text().splitlines():
            row = re.match(r'FB_OP_ROW\(\w+, "([^"]+)', line)
            yield from (name for name in row[1].split() if not name.startswith("__")) if row else ()
            yield from re.findall(r"\btorch\.ops\.(mkldnn\.\w+)\.", line)


ANNOTATED = {
    torch.Tensor: "T",
    int: "i",
    float: "f",
    bool: "b",
    str: "s",
    list[int]: "I",
    list[float]: "F",
    None: "J",  # BroadcastingList2[int]
    type(None): "J",
}
# What their annotations say is not what they take.
TAKES_MORE = {"dtype": "?d", ("normalize", "dim"): "?K"}
WRITTEN_OTHERWISE = {
    "functional.interpolate": "default(input=!T,size=?K,scale_factor=?x,mode=s,align_corners=?b,recompute_scale_factor=?b,"
                              "antialias=b)",
    "torch.split": "default(tensor=!T,split_size_or_sections=!K,dim=i)",
    "method.split": "default(self=!T,split_size=!K,dim=i)",
}


def parameter(name, one):
    """Of a Python function, by its annotation."""
    kinds = one.annotation.__args__ if isinstance(one.annotation, types.UnionType) else (one.annotation,)
    is_optional = one.default is None or (len(kinds) > 1 and type(None) in kinds)
    kinds = [kind for kind in kinds if kind is not type(None)] or [None]
    letter = ANNOTATED.get(kinds[0], "x") if len(kinds) == 1 else "x"
    if name.startswith("adaptive") and one.name == "output_size":
        letter = "P"
    word = TAKES_MORE.get(one.name) or TAKES_MORE.get((name, one.name)) or ("?" if is_optional else "") + letter
    return f"{one.name}={'!' if one.default is one.empty else ''}{word}"


def python_overload(name):
    """Of a function of torch.nn.functional that is written in Python: "functional.softmax". None where nothing is known."""
    function = getattr(torch.nn.functional, name, None)
    function = getattr(torch.nn.functional, f"_{name}", function) if "pool" in name else function
    if not isinstance(function, types.FunctionType):
        return None
    listed = list(inspect.signature(function).parameters.values())
    if any(one.annotation is one.empty or one.kind is not one.POSITIONAL_OR_KEYWORD for one in listed):
        return None
    return f"default({','.join(parameter(name, one) for one in listed)})"


def rows():
    known = list(dict.fromkeys(names()))
    for name in [*known, *(f"{name}_" for name in known if not name.endswith("_") and writes_otherwise(name))]:
        places = (("functional", torch.nn.functional), ("torch", torch), ("method", torch.Tensor))
        found = {word: getattr(home, name) for word, home in places if callable(getattr(home, name, None))}
        parsed = [word for word, function in found.items() if isinstance(function, WRITTEN_IN_C)]
        written = {word: WRITTEN_OTHERWISE.get(f"{word}.{name}") or (python_overload(name) if word == "functional" else None)
                   for word in found}
        called = {word: python_call(function) for word, function in found.items() if word not in parsed and not written[word]}
        in_python = " ".join(f"{word}{call}" for word, call in called.items() if call)
        yield f'FB_CALLS_ROW("{name}", "{" ".join(found)}", "{" ".join(parsed)}", "{overloads(name)}", "{in_python}")'
        for home, parameters in written.items():
            if parameters:
                yield f'FB_CALLS_ROW("{home}.{name}", "{home}", "{home}", "{parameters}", "")'


def text():
    return HEAD + "\n" + "\n".join(rows()) + "\n"


if __name__ == "__main__":
    print(text(), end="")
