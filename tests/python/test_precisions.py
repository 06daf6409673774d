"""core/operators/precisions.def says of which operators PyTorch has no kernel in float16 and bfloat16."""

import pathlib
import string

import make_precisions
import pytest
import torch

LINES = (pathlib.Path(__file__).resolve().parents[2] / "core" / "operators" / "precisions.def").read_text().splitlines()


@pytest.mark.sampled
@pytest.mark.parametrize("initial", string.ascii_uppercase)
def test_rows_are_pytorchs(initial):
    torch.manual_seed(0)
    assert [line for line in LINES if line.startswith(f"FB_PRECISION_ROW({initial}")] == [*make_precisions.rows(initial)]


def test_cases_are_pytorchs():
    rows = [line for line in LINES if line.startswith("FB_PRECISION_ROW(")]
    assert LINES == make_precisions.HEAD.splitlines() + sorted(rows) + [*make_precisions.cases()]
