"""Padding, gather and scatter: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import torch
from recorder import ALL, STRIDES, Recorder, short, strided, values

ATEN = "torch.ops.aten."
PADS = [(1, 2), (0, 0), (-1, 2), (1, 0, 2, 1), (0, 1, -1, 0), (1, 1, 0, 0, 2, 0), (-2, -2), (-3, -2), (1,), (1, 2, 3), (3, 3),
        (4, 0), (5, 0), (0, 2, 3, 0)]


def pads(recorder):
    for pad in PADS:
        for shape in ((2, 3, 4), (3, 4), (4,), (1, 2, 3, 4), (0, 3, 4), (2, 0, 4)):
            for mode in ("constant", "reflect", "replicate", "circular"):
                case = recorder.start(f"pad {pad} {shape} {mode}")
                y = case.call("torch.nn.functional.pad", case.input(values(torch.float32, *shape)), pad, mode)
                recorder.finish(case, y, refused=mode != "constant" and min(pad) < 0)
    for dtype in ALL:
        for value in (0, 2, -1.5, True, None, float("inf")):
            if isinstance(value, float) and not dtype.is_floating_point:
                continue
            case = recorder.start(f"pad {short(dtype)} {value}")
            recorder.finish(case, case.call("torch.nn.functional.pad", case.input(values(dtype, 2, 3)), (1, 1), value=value))
    for how in STRIDES:
        for mode in ("constant", "reflect"):
            case = recorder.start(f"pad {how} {mode}")
            recorder.finish(case, case.call("torch.nn.functional.pad", strided(case, values(torch.float32, 2, 3, 4), how),
                                            (1, 2), mode=mode))
    x = values(torch.float32, 2, 3, 4, 5)
    for kind, config in [
        ("ZeroPad1d", {"padding": 1}), ("ZeroPad2d", {"padding": (1, 2, 0, 1)}),
        ("ConstantPad2d", {"padding": 1, "value": 2.5}), ("ReflectionPad1d", {"padding": 2}),
        ("ReflectionPad2d", {"padding": (1, 2, 0, 1)}), ("ReplicationPad2d", {"padding": 3}),
        ("CircularPad2d", {"padding": (1, 0, 2, 1)}), ("CircularPad1d", {"padding": 9}), ("ReplicationPad3d", {"padding": 1}),
    ]:
        for given in (x, x[0], x[0, 0]):
            case = recorder.start(f"{kind} {config} {tuple(given.shape)}")
            recorder.finish(case, case.module(kind, config, case.input(given)))
    for name, arguments in [
        ("pad.default", ([1, 2], "constant", 3.0)), ("pad.default", ([1, 2],)), ("pad.default", ([1, 2], "reflect")),
        ("constant_pad_nd.default", ([1, 0, 2, 0], 7)), ("constant_pad_nd.default", ([1, 0],)),
        ("reflection_pad2d.default", ([1, 0, 2, 0],)), ("replication_pad2d.default", ([1, 0, 2, 0],)),
        ("reflection_pad1d.default", ([1, 0],)), ("pad.default", ([1, 2], "other")),
    ]:
        case = recorder.start(f"aten.{name} {arguments}")
        recorder.finish(case, case.call(ATEN + name, case.input(x), *arguments))


def gathers(recorder):
    rows = [((3, 4), 1, [[0, 3], [1, 1], [2, 0]]), ((3, 4), 0, [[2, 0, 1]]), ((3, 4), -1, [[0], [1], [2]]),
            ((4,), 0, [3, 3, 0]), ((3, 4), 1, [[4], [0], [0]]), ((3, 4), 1, [[-1], [0], [0]]), ((3, 4), 0, [[0] * 5])]
    rows += [((3, 4), 2, [[0]]), ((), 0, 0), ((3, 4), 1, [0]), ((2, 2, 3), 1, [[[0, 1, 1]], [[1, 0, 0]]]),
             ((3, 4), 1, [[], [], []]), ((3, 4), 0, [[0, 1, 2, 0], [1, 1, 1, 1], [2, 0, 0, 1], [0, 0, 0, 0]])]
    for shape, dim, index in rows:
        index = torch.tensor(index, dtype=torch.int64)
        for dtype in (torch.float32, torch.int32, torch.bool, torch.float16):
            for spelling in ("torch.gather", ATEN + "gather.default"):
                case = recorder.start(f"{spelling} {shape} {dim} {index.tolist()} {short(dtype)}")
                recorder.finish(case, case.call(spelling, case.input(values(dtype, *shape)), dim, case.input(index)))
            for name, *source in [("scatter", values(dtype, *index.shape, seed=3)), ("scatter", 2),
                                  ("scatter_add", values(dtype, *index.shape, seed=3)), ("scatter_", 1)]:
                if name == "scatter_add" and dtype == torch.bool:
                    continue
                case = recorder.start(f"{name} {shape} {dim} {index.tolist()} {short(dtype)} {isinstance(source[0], int)}")
                source = [case.input(item) if isinstance(item, torch.Tensor) else item for item in source]
                recorder.finish(case, case.method(name, case.input(values(dtype, *shape)), dim, case.input(index), *source))
    index = torch.tensor([[0, 2], [1, 1]])
    for how in STRIDES:
        case = recorder.start(f"gather {how}")
        recorder.finish(case, case.method("gather", strided(case, values(torch.float32, 3, 4), how), 1,
                                          strided(case, index, how)))
        case = recorder.start(f"scatter {how}")
        given = strided(case, values(torch.float32, 3, 4),
                        how) if how != "expanded" else case.input(values(torch.float32, 3, 4))
        recorder.finish(case, case.method("scatter", given, 1, case.input(index),
                                          strided(case, values(torch.float32, 2, 2), how)))
    for number, (name, keywords) in enumerate([("gather", {}), ("scatter", {"src": values(torch.float32, 2, 2)}),
                                               ("scatter", {"value": 3.5}),
                                               ("scatter_add", {"src": values(torch.float32, 2, 2)})]):
        case = recorder.start(f"{name} by keywords {number}")
        keywords = {key: case.input(item) if isinstance(item, torch.Tensor) else item for key, item in keywords.items()}
        recorder.finish(case, case.method(name, case.input(values(torch.float32, 3, 4)), dim=1,
                                          index=case.input(index), **keywords))
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64):
        for dim, rows, shape in [(0, [1, 0, 1, 1], (4, 3)), (-1, [2, 2, 0], (2, 3)), (1, [], (2, 0))]:
            case = recorder.start(f"index_add {dim} {rows} {short(dtype)}")
            recorder.finish(case, case.method("index_add", case.input(values(dtype, 2, 3)), dim,
                                              case.input(torch.tensor(rows, dtype=torch.int64)),
                                              case.input(values(dtype, *shape, seed=2))))
    for bins, least, most in [(4, -1, 1), (7, 0, 6), (3, 0.5, 0.75)]:
        for dtype in (torch.float32, torch.float64):
            for x in (values(dtype, 5, 6), torch.arange(8).to(dtype)):
                case = recorder.start(f"histc {bins} {least} {most} {short(dtype)} {tuple(x.shape)}")
                recorder.finish(case, case.call("torch.histc", case.input(x), bins, least, most))
    case = recorder.start("scatter of another dtype")
    recorder.finish(case, case.method("scatter", case.input(values(torch.float32, 3, 4)), 1, case.input(index),
                                      case.input(values(torch.int64, 2, 2))))
    case = recorder.start("scatter with reduce")
    recorder.finish(case, case.method("scatter", case.input(values(torch.float32, 3, 4)), 1, case.input(index),
                                      case.input(values(torch.float32, 2, 2)), reduce="add"), refused=True)


def main(recorder):
    pads(recorder)
    gathers(recorder)


if __name__ == "__main__":
    recorder = Recorder("moves")
    main(recorder)
    recorder.write()
