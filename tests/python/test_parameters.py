"""Which arguments an operator must be given, in core/operators/ops_*.def and in PyTorch's own signatures."""
import inspect
import pathlib
import re

import pytest
import torch

OPS = pathlib.Path(__file__).resolve().parents[2] / "core" / "operators"
ROW = re.compile(r'FB_OP_ROW\((\w+), "([^"]*)", "([^"]*)"(.*)\)$', re.M)
SCHEMAS = {(s.name[6:], s.overload_name or "default"): s for s in torch._C._jit_get_all_schemas()
           if s.name.startswith("aten::")}

# Said to have a default though no signature says so: another keyword may be given in their place (scatter's value, arange's
# end), or a function that is not looked at here needs less.
LENIENT = {("ARANGE", "start"), ("SCATTER", "src"), ("TENSORDOT", "dims"), ("UNFOLD_PATCHES", "dilation"),
           ("UNFOLD_PATCHES", "padding"), ("UNFOLD_PATCHES", "stride"), ("ONE_HOT", "num_classes"),
           ("TO", "dtype")}
NOT_OF = {"UNFOLD"}  # the method; torch.nn.functional's is UNFOLD_PATCHES


def word(rest, name):
    found = re.search(rf'\b{name}\("([^"]*)"\)', rest)
    return found and found[1]


def of_functional(name):
    """Of each parameter whether it has a default; None where nothing is known."""
    function = inspect.unwrap(getattr(torch.nn.functional, name, None) or print)
    if function is print or not inspect.isfunction(function):
        return None
    parameters = [p for p in inspect.signature(function).parameters.values() if p.kind != p.VAR_POSITIONAL]
    return None if any(p.kind == p.VAR_KEYWORD for p in parameters) else [p.default is not p.empty for p in parameters]


def of_aten(name, overload):
    schema = SCHEMAS.get((name, overload))
    return schema and [a.has_default_value() for a in schema.arguments if not a.is_out]


def lists():
    for path in sorted(OPS.glob("ops_*.def")):
        for id, names, parameters, rest in ROW.findall(path.read_text()):
            native, overloads = word(rest, "NATIVE"), (word(rest, "ATEN") or "default").split()
            functional = [] if id in NOT_OF else [of_functional(name) for name in names.split()]
            aten = [of_aten(name, overload) for name in names.split() for overload in overloads]
            for text, forms in [(parameters, functional + ([] if native else aten))] + ([(native, aten)] if native else []):
                forms = [form for form in forms if form is not None]
                if forms and text:
                    yield pytest.param(id, text, forms, id=f"{id}-{text}")


LISTS = list(lists())


@pytest.mark.parametrize("id, text, forms", LISTS)
def test_what_must_be_given(id, text, forms):
    for i, parameter in enumerate(text.split(",")):
        may_be_absent = any(i >= len(form) or form[i] for form in forms)
        name = parameter.strip("*=")
        if parameter.endswith("="):
            assert may_be_absent or (id, name) in LENIENT, f"{name} must be given"
        else:
            assert not may_be_absent, f"{name} need not be given"


def test_enough_is_known():
    assert len(LISTS) > 250
