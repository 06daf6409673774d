"""core/operators/precisions.def says of which operators PyTorch has no kernel in float16 and bfloat16."""

import pathlib

import make_precisions

TABLE = pathlib.Path(__file__).resolve().parents[2] / "core" / "operators" / "precisions.def"


def test_the_table_is_pytorchs():
    assert TABLE.read_text() == make_precisions.text()
