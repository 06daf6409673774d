"""How many of their cases tests try: all, or one in k with FOLDBACK_EACH=k (CI's short form; `make nightly` tries all).

A test marked `sampled` runs one in k of its parameters; one that draws cases in a loop draws `few(count)` of them,
and one that tries the same items on many cases tries `turn(items, number)` of them on each."""

import collections
import os

EACH = max(1, int(os.environ.get("FOLDBACK_EACH", "1")))
IS_SHORT = EACH > 1


def few(count):
    return -(-count // EACH)


def turn(items, number):
    """One in k of the items; the next number has the next ones, so that k numbers have all."""
    return items[number % EACH :: EACH]


def pytest_configure(config):
    config.addinivalue_line("markers", "sampled: with FOLDBACK_EACH=k one in k of its parameters runs")


def pytest_collection_modifyitems(config, items):
    seen, left = collections.Counter(), []
    for item in items:
        if item.get_closest_marker("sampled"):
            test = item.location[0], item.originalname
            seen[test] += 1
            left += [item] if (seen[test] - 1) % EACH else []
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in set(left)]
