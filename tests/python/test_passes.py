"""Each case under each pass and under random compositions: what PyTorch computes stays the same, and undo gives the source back."""

import random

import cases_division  # noqa: F401
import cases_linear  # noqa: F401
import cases_norm  # noqa: F401
import pytest
from case import COLLECTED, PASSES
from proof import Prover, refusals

COMPOSITIONS = 2  # for each case


@pytest.mark.parametrize("case", COLLECTED.values(), ids=list(COLLECTED))
def test_case(service, case):
    prover = Prover(service, *case.make())
    for short, name in PASSES.items():
        (outcome,) = prover.optimize([name])
        if short in case.expected:
            assert (outcome["applied"], refusals(outcome)) == case.expected[short], outcome
    choose = random.Random(case.name)
    for _ in range(COMPOSITIONS):
        prover.optimize(choose.choices(list(PASSES.values()), k=choose.randint(2, 5)))
