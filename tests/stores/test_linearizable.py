"""The checker finds what it must: histories by hand, and at random beside every order there is."""

import itertools
import random

from linearizable import is_linearizable


def read(value, call, end):
    return {"kind": "read", "value": value, "call": call, "end": end}


def write(value, call, end):
    return {"kind": "write", "value": value, "call": call, "end": end}


def swap(old, value, call, end):
    return {"kind": "swap", "old": old, "value": value, "call": call, "end": end}


GOOD = [
    [],
    [read(None, 0, 1), write("a", 2, 3), read("a", 4, 5)],
    [write("a", 0, 10), read(None, 1, 2), read("a", 3, 4)],
    [write("a", 0, 10), write("b", 0, 10), read("b", 11, 12)],
    [write("a", 0, 1), swap("a", "b", 2, None), read("a", 3, 4), read("b", 5, 6)],
    [write("a", 0, 1), swap("b", "c", 2, 9), swap("a", "b", 3, 8), read("c", 10, 11)],
    [write("a", 0, 1), write("lost", 2, None), read("a", 3, 4)],
]
BAD = [
    [read("a", 0, 1), write("a", 2, 3)],  # before it was written
    [write("a", 0, 1), read(None, 2, 3)],  # a stale read
    [write("a", 0, 10), read("a", 1, 2), read(None, 3, 4)],  # forgotten again
    [write("a", 0, 1), swap("a", "b", 2, 3), swap("a", "c", 2, 3)],  # two winners
    [write("a", 0, 1), write("b", 2, 3), read("a", 4, 5)],
    [write("a", 0, 1), write("b", 2, None), read("b", 3, 4), read("a", 5, 6)],  # done, and undone
    [write("a", 0, 1), read("b", 2, 3)],  # nobody wrote that
]


def test_by_hand():
    assert all(is_linearizable(one) is None for one in GOOD)
    assert all(is_linearizable(one) is not None for one in BAD)


def every_order(operations):
    known = [one for one in operations if one["end"] is not None]
    unknown = [one for one in operations if one["end"] is None and one["kind"] != "read"]
    for count in range(len(unknown) + 1):
        for some in itertools.combinations(unknown, count):
            for order in itertools.permutations([*known, *some]):
                if all(not (later["end"] is not None and later["end"] < earlier["call"])
                       for earlier, later in itertools.combinations(order, 2)):
                    state = None
                    for one in order:
                        if one["kind"] == "read" and one["value"] != state or one["kind"] == "swap" and one["old"] != state:
                            break
                        state = one["value"] if one["kind"] != "read" else state
                    else:
                        return True
    return False


def test_at_random():
    chance, found = random.Random(3), {True: 0, False: 0}
    for _ in range(3000):
        values, operations = iter("abcdef"), []
        for _ in range(chance.randint(1, 5)):
            call = chance.random()
            end = call + chance.random() * 0.6 if chance.random() < 0.85 else None
            kind = chance.choice(["read", "write", "swap"])
            if kind == "read":
                operations.append(read(chance.choice([None, "a", "b", "c"]), call, end))
            elif kind == "write":
                operations.append(write(next(values), call, end))
            else:
                operations.append(swap(chance.choice([None, "a", "b"]), next(values), call, end))
        truth = every_order(operations)
        assert (is_linearizable(operations) is None) == truth, operations
        found[truth] += 1
    assert min(found.values()) > 300


def test_long_histories():
    """Six clients for long: a good one is told at once, and one stale read in it is found."""
    chance, now, state, operations, busy = random.Random(5), 0.0, None, [], [0.0] * 6
    for number in range(20000):
        client = min(range(6), key=lambda one: busy[one])
        now = max(now, busy[client])
        moment = now + chance.random()
        kind = chance.choice(["read", "write", "swap"])
        if kind == "read":
            operations.append(read(state, now, moment + chance.random()))
        elif kind == "write":
            operations.append(write(state := number, now, moment + chance.random()))
        else:
            operations.append(swap(state, number, now, moment + chance.random()))
            state = number
        busy[client] = operations[-1]["end"]
        now = moment
    assert is_linearizable(operations) is None
    stale = [one for one in operations if one["kind"] == "read"][5000]
    operations.append(read(stale["value"], stale["end"] + 100, stale["end"] + 101))
    assert is_linearizable(operations)
