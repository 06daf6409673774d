"""Copies, casts and joins: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import platform

import torch
from recorder import ALL, FLOATS, STRIDES, Recorder, edges, short, strided, values

ATEN = "torch.ops.aten."


def casts(recorder):
    for source in ALL:
        for target in ALL:
            x = edges(source)
            if source.is_floating_point and not target.is_floating_point and target != torch.bool:
                x = x[(x.abs() < 100)]  # beyond the range the result is the machine's
            case = recorder.start(f"to {short(source)} {short(target)}")
            recorder.finish(case, case.method("to", case.input(x), target))
    for name in ["float", "double", "half", "bfloat16", "long", "int", "bool"]:
        for source in (torch.float32, torch.int64, torch.bool):
            for how in STRIDES:
                case = recorder.start(f"Tensor.{name} {short(source)} {how}")
                recorder.finish(case, case.method(name, strided(case, values(source, 3, 4), how)))
    x, half = values(torch.float32, 2, 3), torch.float16
    for number, (arguments, keywords) in enumerate([
        (("cpu",), {}), (("cpu", half), {}), ((torch.device("cpu"), half), {}), ((half,), {"copy": True}),
        ((), {"dtype": half}),
        ((), {"device": "cpu", "dtype": half}), ((half, False, True), {}), (("cpu", half, False, True), {}),
        ((), {"memory_format": torch.contiguous_format}),
    ]):
        case = recorder.start(f"Tensor.to, spelling {number}")
        recorder.finish(case, case.method("to", case.input(x), *arguments, **keywords))
    for name in ("to", "type_as"):
        case = recorder.start(f"Tensor.{name} of another")
        recorder.finish(case, case.method(name, case.input(x), case.input(values(torch.int32, 2))))
    for target in (torch.float64, torch.uint8):
        case = recorder.start(f"Tensor.type {short(target)}")
        recorder.finish(case, case.method("type", case.input(x.abs()), target))
    for number, (name, arguments, keywords) in enumerate([
        ("to.dtype", (half,), {}), ("to.device", ("cpu", half), {}),
        ("to.dtype_layout", (), {"dtype": half, "layout": torch.strided, "device": torch.device("cpu")}),
        ("_to_copy.default", (), {"dtype": half}), ("_to_copy.default", (), {}), ("clone.default", (), {}),
        ("clone.default", (), {"memory_format": torch.contiguous_format}),
        ("contiguous.default", (), {}), ("lift_fresh_copy.default", (), {}), ("detach.default", (), {}),
        ("alias.default", (), {}),
    ]):
        case = recorder.start(f"aten.{name} {number}")
        recorder.finish(case, case.call(ATEN + name, case.input(x), *arguments, **keywords))
    # What is copied is apart; what is of that dtype already is the same.
    for name, *arguments in [("to", torch.float32), ("to", torch.float64), ("to", "cpu"), ("to", torch.float32, False, True),
                             ("float",), ("clone",), ("contiguous",)]:
        case = recorder.start(f"written after {name} {arguments}")
        x = case.input(values(torch.float32, 2, 3))
        case.method("add_", case.method(name, x, *arguments), 1.0)
        recorder.finish(case, x)


def joins(recorder):
    shapes = [[(2, 3), (4, 3)], [(2, 3)], [(0,), (2, 3)], [(2, 3), (0,)], [(0,), (0,)], [(0, 3), (2, 3)], [(2, 3), (2, 4)],
              [(3,), (2,)], [(), ()], [(2, 3), (2,)], [(1, 2, 3), (5, 2, 3), (2, 2, 3)]]
    for group in shapes:
        for dim in (0, 1, -1, 3):
            case = recorder.start(f"torch.cat {group} {dim}")
            recorder.finish(case, case.call("torch.cat", [case.input(values(torch.float32, *shape, seed=i))
                                                          for i, shape in enumerate(group)], dim))
    for name in ("cat", "stack"):
        for one in (torch.float32, torch.int64, torch.bool, torch.float16):
            for other in (torch.float64, torch.int32, torch.uint8, torch.bfloat16):
                case = recorder.start(f"torch.{name} {short(one)} {short(other)}")
                recorder.finish(case, case.call(f"torch.{name}",
                                                [case.input(values(one, 2, 3)), case.input(values(other, 2, 3, seed=5))]))
    for name in ("concat", "concatenate"):
        case = recorder.start(f"torch.{name}")
        recorder.finish(case, case.call(f"torch.{name}",
                                        (case.input(values(torch.int32, 2, 3)), case.input(values(torch.int32, 2, 1))), dim=-1))
    for how in STRIDES:
        for name, dim in (("cat", 1), ("stack", -1)):
            case = recorder.start(f"aten.{name} {how}")
            x, y = strided(case, values(torch.float32, 2, 3), how), strided(case, values(torch.float32, 2, 3, seed=3), how)
            recorder.finish(case, case.call(f"{ATEN}{name}.default", [x, y, x], dim))
    for dim in (0, 1, 2, -1, -3, 3, -4):
        case = recorder.start(f"torch.stack {dim}")
        recorder.finish(case, case.call("torch.stack", [case.input(values(torch.float32, 2, 3)),
                                                        case.input(values(torch.float32, 2, 3, seed=9))], dim=dim))
    for group in ([(), ()], [(0,), (0,)], [(2,), (3,)], [(2,), (2, 1)]):
        case = recorder.start(f"torch.stack {group}")
        recorder.finish(case, case.call("torch.stack", [case.input(values(torch.float32, *shape)) for shape in group]))
    for name in ("cat", "stack"):
        case = recorder.start(f"torch.{name} of nothing")
        recorder.finish(case, case.call(f"torch.{name}", []))


def repeats(recorder):
    rows = {
        "repeat": [((2, 3), (2, 1)), ((2, 3), ((2, 1, 3),)), ((3,), (4, 2)), ((), (2,)), ((), ()), ((2, 3), (0, 1)),
                   ((2, 3), (2,)), ((2, 3), (-1, 2)), ((2, 3, 1), (1, 2, 3))],
        "tile": [((2, 3), (2,)), ((2, 3), (2, 1)), ((2, 3), ((2, 1, 3),)), ((), (3,)), ((2, 3), (0,))],
        "repeat_interleave": [((2, 3), (2,)), ((2, 3), (2, 0)), ((2, 3), (3, -1)), ((2, 3), (0, 1)), ((), (3,)), ((), (3, 0)),
                              ((0, 2), (2, 1)), ((2,), (-1,)), ((2, 3), (2, 2))],
        "flip": [((2, 3), (0,)), ((2, 3), ((0, 1),)), ((2, 3), (-1, 0)), ((2, 3), ((),)), ((), ((),)), ((2, 3), (0, 0)),
                 ((2, 3), (2,)), ((0, 3), (0,)), ((), (0,)), ((), (-1,)), ((), (1,)), ((), ((0, 0),))],
        "roll": [((2, 3), (1, 0)), ((2, 3), (-1, 1)), ((2, 3), (4, -1)), ((2, 3), ((1, 2), (0, 1))), ((2, 3), (1,)),
                 ((2, 3), (-7,)), ((0,), (2,)), ((0, 3), (1, 0)), ((), (1,)), ((2, 3), ((1, 2), (0,)))]
        + [((4, 5), ((1, 1), (0, 0))), ((2, 3), (1, 5)), ((), (1, 0))],
    }
    for name, items in rows.items():
        for number, (shape, arguments) in enumerate(items):
            for how in STRIDES if number == 0 else ["plain"]:
                case = recorder.start(f"Tensor.{name} {shape} {arguments} {how}")
                recorder.finish(case, case.method(name, strided(case, values(torch.float32, *shape), how), *arguments))
    x = values(torch.int32, 2, 3)
    for number, (name, arguments, keywords) in enumerate([
        ("torch.roll", (1,), {"dims": 0}), ("torch.roll", (), {"shifts": (1, -1), "dims": (0, 1)}), ("torch.flip", ([1],), {}),
        ("torch.tile", ((2, 2),), {}),
        ("torch.repeat_interleave", (2,), {"dim": 1}), ("torch.repeat_interleave", (2,), {}),
        (ATEN + "repeat.default", ([2, 2],), {}), (ATEN + "flip.default", ([0],), {}),
        (ATEN + "roll.default", ([1], [0]), {}), (ATEN + "roll.default", ([2],), {}),
        (ATEN + "repeat_interleave.self_int", (2, 1), {}), ("torch.repeat_interleave", (2, 1), {"output_size": 6}),
    ]):
        case = recorder.start(f"{name} {number}")
        recorder.finish(case, case.call(name, case.input(x), *arguments, **keywords))
    for number, (counts, dim, shape) in enumerate([([1, 2], 0, (2, 3)), ([0, 1, 2], 1, (2, 3)), ([2], 1, (2, 3)),
                                                   ([1, 2], 1, (2, 3)), ([1, 0, 2, 0, 1, 1], None, (2, 3)),
                                                   ([-1, 1], 0, (2, 3))]):
        for name in ("torch.repeat_interleave", ATEN + "repeat_interleave.self_Tensor"):
            case = recorder.start(f"{name} by a tensor {number}")
            recorder.finish(case, case.call(name, case.input(values(torch.float32, *shape)),
                                            case.input(torch.tensor(counts)), dim))


def machine_casts(recorder):
    """Beyond the range the result is the machine's: x86's, and ours on all."""
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 3e9, -3e9, 1e19, -1e19, 300.0, -1.0, 2147483647.0,
                      -2147483648.5])
    for source in FLOATS:
        for target in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64):
            case = recorder.start(f"to {short(source)} {short(target)} beyond the range")
            recorder.finish(case, case.method("to", case.input(x.to(source)), target))


def main(recorder):
    casts(recorder)
    if platform.machine() == "x86_64":
        machine_casts(recorder)
    joins(recorder)
    repeats(recorder)
    for shape, dim, index in [((4, 3), 0, [1, 3, 1]), ((4, 3), -1, [0]), ((4, 3), 1, []), ((4,), 0, [3, 0]), ((4, 3), 0, [4]),
                              ((4, 3), 0, [-1]), ((4, 3), 2, [0]), ((), 0, [0])]:
        for dtype in (torch.int64, torch.int32):
            for spelling in ("torch.index_select", ATEN + "index_select.default"):
                case = recorder.start(f"{spelling} {shape} {dim} {index} {short(dtype)}")
                recorder.finish(case, case.call(spelling, case.input(values(torch.float32, *shape)), dim,
                                                case.input(torch.tensor(index, dtype=dtype))))
    x = values(torch.float32, 2, 3, 4)
    for name in ("Dropout", "Dropout1d", "Dropout2d", "AlphaDropout", "Identity"):
        for inplace in (False, True) if name != "Identity" else (False,):
            case = recorder.start(f"{name} {inplace}")
            given = case.input(x)
            y = case.module(name, {"p": 0.3, "inplace": inplace} if name != "Identity" else {}, given)
            case.method("add_", y, 1.0)
            recorder.finish(case, y, given)
    for number, (name, arguments, keywords) in enumerate([
        ("torch.nn.functional.dropout", (0.5, False), {}), ("torch.nn.functional.dropout", (), {"p": 0.5, "training": False}),
        ("torch.nn.functional.dropout", (0.0, True), {}),
        ("torch.dropout", (0.5, False), {}), (ATEN + "dropout.default", (0.1, False), {}),
        (ATEN + "feature_dropout.default", (0.1, False), {}),
        ("torch.nn.functional.dropout2d", (0.5, False), {}), ("torch.nn.functional.alpha_dropout", (0.5, False), {}),
        ("torch.nn.functional.dropout", (1.5, False), {}),
    ]):
        case = recorder.start(f"{name} {number}")
        recorder.finish(case, case.call(name, case.input(x), *arguments, **keywords))
    for shape in [(2,), (2, 3), (2, 3, 4), (1, 2, 3, 4)]:
        case = recorder.start(f"dropout1d {shape}")
        recorder.finish(case, case.call("torch.nn.functional.dropout1d", case.input(values(torch.float32, *shape)), 0.5, False))
    for name, arguments in [("torch.nn.functional.dropout", ()), ("torch.nn.functional.dropout", (0.5, True)),
                            (ATEN + "dropout.default", (0.5, True))]:
        case = recorder.start(f"{name} that is on {arguments}")
        recorder.finish(case, case.call(name, case.input(x), *arguments), refused=True)


if __name__ == "__main__":
    recorder = Recorder("copying")
    main(recorder)
    recorder.write()
