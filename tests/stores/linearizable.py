"""Whether what clients saw of one register can have been: whether each operation can be put at one moment between its call and
its return, so that all together they are a history of one register. The search of Wing and Gong, with the states that Lowe
remembers.

An operation is a dict: `kind` "read", "write" or "swap" (which writes if it finds `old`), `value` (read, or written), `call`
and `end` (None: its outcome is not known, it may have been done at any time since or never). Every value is written at most
once: so an operation of unknown outcome whose value nobody met is left out, and one whose value was met had been done when that
was read."""


def is_linearizable(operations, first=None):
    """None, or the operations around which there is no way on."""
    writers = {one["value"]: one for one in operations if one["kind"] != "read"}
    met = {}  # when somebody knew, at the latest, that this value had been written
    todo = [(one["value"] if one["kind"] == "read" else one.get("old"), one["end"])
            for one in operations if one["end"] is not None]
    while todo:
        value, end = todo.pop()
        if value in writers and end < met.get(value, float("inf")):
            met[value] = end
            if writers[value]["end"] is None and writers[value]["kind"] == "swap":
                todo.append((writers[value]["old"], end))
    kept = []
    for one in operations:
        end = one["end"] if one["end"] is not None else None if one["kind"] == "read" else met.get(one["value"])
        if end is not None:
            kept.append({**one, "end": max(end, one["call"])})
    kept.sort(key=lambda one: one["call"])
    return _search(kept, first)


def _search(operations, first):
    """Depth first, over sets of what has been put into order; `low` is the first that has not, as sets differ only beyond
    it."""
    count, stack, seen, furthest = len(operations), [(0, frozenset(), first)], set(), 0
    while stack:
        low, done, state = stack.pop()
        while low in done:
            done = done - {low}
            low += 1
        if low == count:
            return None
        furthest = max(furthest, low)
        if (low, done, state) in seen:
            continue
        seen.add((low, done, state))
        limit, at, choices = operations[low]["end"], low, []
        while at < count and operations[at]["call"] <= limit:  # whatever was called before the first of the others ended
            if at not in done:
                limit = min(limit, operations[at]["end"])
                choices.append(at)
            at += 1
        for at in reversed(choices):
            one = operations[at]
            if one["call"] > limit:
                continue
            if one["kind"] == "read" and one["value"] != state or one["kind"] == "swap" and one["old"] != state:
                continue
            stack.append((low, done | {at}, state if one["kind"] == "read" else one["value"]))
    return operations[max(0, furthest - 4) : furthest + 6]
