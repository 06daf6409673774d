"""Makes a failing program and its list of passes as small as they get while the same failure stays."""

import dataclasses
import re
import time

from program import NAME


def variants(program):
    """Smaller programs, the boldest first."""
    body = program.body
    for size in (8, 4, 2, 1):
        for start in range(len(body) - size, -1, -1):
            if size > 1 and len(body) <= size:
                continue
            yield dataclasses.replace(program, body=body[:start] + body[start + size :])
    parts = split(program.result)
    if parts and len(parts) > 1:
        for index in range(len(parts)):
            left = parts[:index] + parts[index + 1 :]
            yield dataclasses.replace(program, result=f"({', '.join(left)},)")
    if not program.result.endswith(",)"):
        names = list(dict.fromkeys(NAME.findall(program.result)))
        yield dataclasses.replace(program, result=f"({', '.join(names)},)")
    for index in range(len(program.init) - 1, -1, -1):
        yield dataclasses.replace(program, init=program.init[:index] + program.init[index + 1 :])
    for index, line in enumerate(body):  # a value gives way to what it is made from
        name, _, text = line.partition(" = ")
        for other in dict.fromkeys(NAME.findall(text)):
            if not re.fullmatch(rf"{other}", text):
                yield replaced(program, index, name, other)
    if len(program.inputs) > 1:
        last = f"x{len(program.inputs) - 1}"
        text = " ".join(program.body) + program.result
        if last not in NAME.findall(text):
            yield dataclasses.replace(program, inputs=program.inputs[:-1])
    if not program.dialect.startswith("fx"):
        yield dataclasses.replace(program, dialect="fx")


def split(result):
    if not (result.startswith("(") and result.endswith(")")) and not (result.startswith("[") and result.endswith("]")):
        return None
    inner = result[1:-1]
    return None if "(" in inner or "{" in inner else [part.strip() for part in inner.split(",") if part.strip()]


def replaced(program, index, name, other):
    pattern = re.compile(rf"\b{name}\b")
    rest = tuple(pattern.sub(other, line) for line in program.body[index + 1 :])
    return dataclasses.replace(program, body=program.body[:index] + rest, result=pattern.sub(other, program.result))


def lists(check):
    for index in range(len(check.passes)):
        if len(check.passes) > 1:
            yield dataclasses.replace(check, passes=check.passes[:index] + check.passes[index + 1 :])
    for index, item in enumerate(check.passes):
        if not isinstance(item, str):
            yield dataclasses.replace(check, passes=(*check.passes[:index], item["name"], *check.passes[index + 1 :]))
    if check.validate != "off":
        yield dataclasses.replace(check, validate="off")
    for preset, members in PRESETS.items():
        if preset in check.passes and len(check.passes) == 1:
            yield dataclasses.replace(check, passes=tuple(members))


PRESETS = {}


def shorten(program, check, fails):
    """The list of passes as short as it gets."""
    kind = fails(program, check)
    is_shorter = kind is not None
    while is_shorter:
        shorter = next((other for other in lists(check) if fails(program, other) == kind), None)
        check, is_shorter = shorter or check, shorter is not None
    return check


def reduce(program, check, fails, seconds):
    """`fails(program, check)` is the failure's kind, or None."""
    kind, end = fails(program, check), time.process_time() + seconds
    is_smaller = kind is not None
    while is_smaller and time.process_time() < end:
        is_smaller = False
        for other in lists(check):
            if fails(program, other) == kind:
                check, is_smaller = other, True
                break
        for other in variants(program):
            if time.process_time() > end:
                break
            if fails(other, check) == kind:
                program, is_smaller = other, True
                break
    return program, check
