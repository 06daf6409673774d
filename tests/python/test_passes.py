"""Each case under each pass and under random compositions: what PyTorch computes stays the same, and undo gives the source
back."""

import random

import cases_attention  # noqa: F401
import cases_division  # noqa: F401
import cases_layout  # noqa: F401
import cases_linear  # noqa: F401
import cases_norm  # noqa: F401
import cases_values  # noqa: F401
import pytest
from case import COLLECTED, EXPECTED
from proof import Prover, refusals
from random_models import random_model
from sample import few

COMPOSITIONS = 2  # for each program
MODELS = 100


def prove_compositions(prover, passes, seed):
    """All passes in an order of their own, random lists of passes, and every preset."""
    choose = random.Random(seed)
    for known in (passes.preserving, passes.each):
        prover.optimize(choose.sample(known, len(known)))
    for _ in range(COMPOSITIONS):
        prover.optimize(choose.choices(passes.preserving, k=choose.randint(2, 5)))
    for preset in passes.presets:
        prover.optimize([preset])


@pytest.mark.parametrize("case", COLLECTED.values(), ids=list(COLLECTED))
def test_case(service, passes, case):
    prover = Prover(service, *case.make())
    expected = {EXPECTED[short]: outcome for short, outcome in case.expected.items()}
    told, others = [], []
    for item in passes.each:
        (told if str(item) in expected else others).append(item)
    for item in [*told, *random.Random(case.name).sample(others, few(len(others)))]:
        (outcome,) = prover.optimize([item])
        if str(item) in expected:
            assert (outcome["applied"], refusals(outcome)) == expected[item], outcome
    prove_compositions(prover, passes, case.name)


@pytest.mark.sampled
@pytest.mark.parametrize("case", COLLECTED.values(), ids=list(COLLECTED))
def test_case_without_shapes(service, passes, case):
    prover = Prover(service, *case.make(), shapes=False)
    prove_compositions(prover, passes, case.name)


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(MODELS))
def test_random_model(service, passes, seed):
    prover = Prover(service, *random_model(seed))
    prove_compositions(prover, passes, seed)
