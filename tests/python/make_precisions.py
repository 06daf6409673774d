"""Writes core/operators/precisions.def: operators that PyTorch on a CPU cannot compute in float16 or bfloat16.

    python tests/python/make_precisions.py > core/operators/precisions.def

Asks PyTorch itself: each sample of torch.testing's own table of operators that runs in float32 is run in the narrow dtypes.
"""

import re
import sys
import types
import unittest
import warnings

import make_calls
import torch

HEAD = """/* Operators that PyTorch 2.13 on a CPU computes in float32 and has no kernel for in a narrower dtype. Written by
 * tests/python/make_precisions.py, and held against PyTorch by tests/python/test_precisions.py.
 *
 *     FB_PRECISION_ROW(operator, "dtypes that it lacks")
 *     FB_PRECISION_CASE(operator, "spelling", "parameter", "values of it with which", "dtypes that it lacks") */
"""
NARROW = (torch.float16, torch.bfloat16)
LACKS_KERNEL = re.compile(
    r"not implemented for '(Half|BFloat16)'|Low precision dtypes|[Uu]nsupported dtype (Half|BFloat16)|must be either float or "
    r"double|"
    r"Expected both inputs to be Half, Float or Double|Unsupported dtype ComplexHalf|MKL FFT doesn.t support tensors of "
    r"type|view_as_complex is only supported"
)
SAMPLES = 40
# What the table of operators has no samples of: operators, and values of a parameter.
CALLS = {
    "RRELU": lambda x: torch.nn.functional.rrelu(x, training=True),
    # Complex numbers of float16 exist, and nothing computes with them.
    "COMPLEX": lambda x: torch.fft.fft(torch.complex(x, x)),
    "POLAR": lambda x: torch.fft.fft(torch.polar(x, x)),
    "VIEW_AS_COMPLEX": lambda x: torch.fft.fft(torch.view_as_complex(x.T.contiguous())),
    "FFT_R2C": lambda x: torch.ops.aten._fft_r2c(x, [0], 0, True),
}
# oneDNN's own, which have one on some machines, and there for some arguments.
ON_SOME_MACHINES = ("CONV_POINTWISE", "CONV_POINTWISE_BINARY", "LINEAR_POINTWISE")
CASES = [
    ("NORM", "norm", "p", {"nuc": lambda x: torch.norm(x, "nuc"), "fro": lambda x: torch.norm(x, "fro"),
                           "2": lambda x: torch.norm(x, 2)}),
    ("VECTOR_NORM", "norm", "ord", {str(order): lambda x, order=order: torch.linalg.norm(x, order)
                                    for order in ("nuc", "fro", 1, -1, 2, -2)}),
    ("VECTOR_NORM", "linalg_norm", "ord", {str(order): lambda x, order=order: torch.linalg.norm(x, order)
                                           for order in ("nuc", "fro", 1, -1, 2, -2)}),
]


def operator_table():
    """torch.testing's own. The module `expecttest`, which it imports and does not need here, may be missing."""
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase, stand_in.assert_expected_inline = unittest.TestCase, None
    sys.modules.setdefault("expecttest", stand_in)
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db


def rows_of_operators():
    """Every spelling of an operator: the name of its row."""
    spelled = {}
    for file in re.findall(r'include "core/operators/(ops_\w+\.def)"', (make_calls.OPERATORS / "ops.def").read_text()):
        for row in re.findall(r"^FB_OP_ROW\((\w+), \"([^\"]*)\"(.*)$", (make_calls.OPERATORS / file).read_text(), re.M):
            further = re.findall(r'FUNCTIONS\("([^"]*)"', row[2])
            for name in row[1].split() + [target.split("torch.")[-1] for words in further for target in words.split()]:
                spelled.setdefault(name.replace("ops.aten.", "").split(".")[-1].strip("_"), row[0])
                spelled.setdefault(name, row[0])
    return spelled


def row_of(info, spelled):
    short = info.name.removeprefix("nn.functional.").removeprefix("special.")
    return spelled.get(short.replace(".", "_")) or spelled.get(short)


def cast(value, dtype):
    change = lambda one: one.detach().to(dtype) if isinstance(one, torch.Tensor) and one.dtype == torch.float32 else one
    return torch.utils._pytree.tree_map(change, value)


def runs(info, sample, dtype):
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            info.op(cast(sample.input, dtype), *cast(sample.args, dtype), **cast(sample.kwargs, dtype))
    except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
        return str(error)
    return ""


def lacking(info):
    """The narrow dtypes in which most samples of the operator have no kernel, though they have one in float32."""
    try:
        samples = [one for one, _ in zip(info.sample_inputs("cpu", torch.float32), range(SAMPLES))]
    except (RuntimeError, AttributeError, ImportError):
        return set()
    has_elements = lambda one: not isinstance(one.input, torch.Tensor) or one.input.numel()
    samples = [one for one in samples if has_elements(one) and not runs(info, one, torch.float32)]
    failed = {dtype: sum(bool(LACKS_KERNEL.search(runs(info, one, dtype))) for one in samples) for dtype in NARROW}
    return {str(dtype).removeprefix("torch.") for dtype in NARROW if failed[dtype] * 2 > len(samples)}


def rows(initial=""):
    """The rows that begin so. An operator that has variants in the table (norm: "nuc") is judged by the plain one where there
    is one."""
    spelled, plain, variants = rows_of_operators(), {}, {}
    for info in operator_table():
        row = row_of(info, spelled)
        if row and row.startswith(initial) and torch.float32 in info.supported_dtypes("cpu"):
            (variants if info.variant_test_name else plain).setdefault(row, set()).update(lacking(info))
    found = variants | plain
    for row in filter(lambda row: row.startswith(initial), CALLS):
        found.setdefault(row, set()).update(lacked_by(CALLS[row]))
    for row in filter(lambda row: row.startswith(initial), ON_SOME_MACHINES):
        found[row] = {str(dtype).removeprefix("torch.") for dtype in NARROW}
    for row in sorted(found):
        if found[row]:
            yield f'FB_PRECISION_ROW({row}, "{" ".join(sorted(found[row]))}")'


def lacked_by(call):
    """The narrow dtypes in which a call on a matrix has no kernel."""
    lacks = []
    for dtype in NARROW:
        try:
            call(torch.ones(2, 3, dtype=dtype))
        except RuntimeError as error:
            lacks += [str(dtype).removeprefix("torch.")] if LACKS_KERNEL.search(str(error)) else []
    return lacks


def cases():
    for row, spelling, parameter, calls in CASES:
        lacking_values = {}
        for value, call in calls.items():
            lacking_values.setdefault(" ".join(sorted(lacked_by(call))), []).append(value)
        for dtypes, values in sorted(lacking_values.items()):
            if dtypes:
                yield f'FB_PRECISION_CASE({row}, "{spelling}", "{parameter}", "{" ".join(values)}", "{dtypes}")'


def text():
    torch.manual_seed(0)
    return HEAD + "\n".join([*rows(), *cases()]) + "\n"


if __name__ == "__main__":
    print(text(), end="")
