"""Each case under each pass and under random compositions: what PyTorch computes stays the same, and undo gives the source back."""

import random

import cases_division  # noqa: F401
import cases_layout  # noqa: F401
import cases_linear  # noqa: F401
import cases_norm  # noqa: F401
import pytest
from case import COLLECTED, PASSES
from proof import Prover, refusals
from random_models import random_model

COMPOSITIONS = 2  # for each program
MODELS = 100


def prove_compositions(prover, seed):
    """All passes in an order of their own, and random lists of passes."""
    choose = random.Random(seed)
    names = list(PASSES.values())
    prover.optimize(choose.sample(names, len(names)))
    for _ in range(COMPOSITIONS):
        prover.optimize(choose.choices(names, k=choose.randint(2, 5)))


@pytest.mark.parametrize("case", COLLECTED.values(), ids=list(COLLECTED))
def test_case(service, case):
    prover = Prover(service, *case.make())
    for short, name in PASSES.items():
        (outcome,) = prover.optimize([name])
        if short in case.expected:
            assert (outcome["applied"], refusals(outcome)) == case.expected[short], outcome
    prove_compositions(prover, case.name)


@pytest.mark.parametrize("case", COLLECTED.values(), ids=list(COLLECTED))
def test_case_without_shapes(service, case):
    prover = Prover(service, *case.make(), shapes=False)
    prove_compositions(prover, case.name)


@pytest.mark.parametrize("seed", range(MODELS))
def test_random_model(service, seed):
    prover = Prover(service, *random_model(seed))
    prove_compositions(prover, seed)
