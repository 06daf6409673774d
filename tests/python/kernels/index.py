"""Indexing, read and written: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import torch
from recorder import ALL, Recorder, short, strided, values

F, D, H, B, L, I32, U, T = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8,
                          torch.bool)
S = slice
BASIC = [0, -1, 3, -4, S(None), S(1, None), S(None, -1), S(None, None, 2), S(1, 100), S(-100, 2), S(2, 1), S(0, 3, -1),
         S(0, 3, 0), None,
         Ellipsis, (), (0, 1), (0, S(1, 3)), (S(None), 0), (S(None), S(None, None, 3)), (Ellipsis, 0), (0, Ellipsis),
         (Ellipsis, None),
         (None, 0), (S(None), None), (S(None), None, S(None), None), (0, Ellipsis, 1), (0, 0, 0), (0, 0, 0, 0),
         (0, Ellipsis, Ellipsis),
         (Ellipsis, S(None, 2), 1), (1, None, 2), (None, None), (S(None, None, 2), S(1, None), S(-2, None)), True,
         False, (True, 0),
         (0, False), 1.5, "x", (0, 1, S(None), S(None)), (S(1, 1),), (S(None, 0),), (S(5, None),)]
LISTS = [[0, 2], [0, -1, 0], [], [True, False, True], [[0, 1], [2, 0]], (0, [1, 2]), ([0, 1], [1, 2]),
         ([0, 1], S(None), [1, 2]),
         (S(None), [0, 3]), ([0, 1], 2), (2, [0, 1]), ([0], None, [1]), (None, [0, 2]), ([0, 1], [1, 2, 3]), ([5],),
         ([0, 1], Ellipsis),
         (Ellipsis, [0, 1]), (S(1, 3), [0, 3], S(0, 2)), ([[0], [1]], [0, 1, 2]), [1.5], ([0, 1], [0, 1], [0, 1]),
         (0, [0, 1], 1),
         (0, S(None), [1, 0])]


def tensors(case):
    """Indices made of tensors, for a 3 × 4 × 2 one."""
    t = torch.tensor
    one, two, many, none = (case.input(x) for x in (t(1), t([0, 2]), t([[0, 1], [2, -1]]), t([], dtype=L)))
    of32, of8 = case.input(t([0, 1], dtype=I32)), case.input(t([1, 0], dtype=U))
    rows, both = case.input(t([True, False, True])), case.input(values(T, 3, 4))
    full, odd, never = case.input(values(T, 3, 4, 2)), case.input(t([True, False])), case.input(t([False, False, False]))
    flag, floating, far = case.input(t(True)), case.input(t([0.0])), case.input(t([0, 3]))
    return [one, two, many, none, of32, of8, rows, both, full, odd, never, flag, floating, far, (two, two), (S(None), many),
            (two, S(None), odd),
            (S(None), two, odd), (rows, two), (rows, 0), (0, two), (one, two), (one, one), (S(None), one), (both, 0),
            (both, S(None)), (both, odd),
            (two, None), (None, two), (Ellipsis, two), (two, Ellipsis, of32), (many, two), (many, none),
            (S(None), S(None), odd), (two, S(1, 3)),
            (one, S(None), one), (two, 1, S(None)), (1, two, S(None)), (two, 1, two), (never, 1), (0, None, two), [two, two],
            (two, [0, 1]),
            (two, far), (None, rows, None, two)]


def main(recorder):
    for shape in [(3, 4, 2), (4,), (), (0, 2)]:
        for index in BASIC + (LISTS if shape != () else []):
            case = recorder.start(f"getitem {shape} {index}")
            x = case.input(values(F, *shape))
            # numbers and tensors that are true or false, floats, indices into nothing: no model has them
            rare = any(isinstance(i, bool) for i in (index if isinstance(index, tuple) else (index,))) or index == [1.5]
            rare = rare or (shape == (0, 2) and index == (S(None), [0, 3]))
            recorder.finish(case, case.call("operator.getitem", x, index), refused=rare)
    for k, index in enumerate(tensors(recorder.start("count"))):
        for how in ["plain", "transposed"]:
            case = recorder.start(f"getitem of tensors {k} {how}")
            x = strided(case, values(F, 3, 4, 2), how)
            recorder.finish(case, case.call("operator.getitem", x, tensors(case)[k]), refused=k == 11)
        for number in [True, False]:
            case = recorder.start(f"setitem of tensors {k} {'number' if number else 'tensor'}")
            x = case.input(values(F, 3, 4, 2))
            index = tensors(case)[k]
            case.call("operator.setitem", x, index, 7.5 if number else case.input(values(F, 1)))
            raised = isinstance(case.last, Exception)
            recorder.finish(case, x, refused=raised or k == 11)
    for dtype in ALL:
        case = recorder.start(f"getitem {short(dtype)}")
        x = case.input(values(dtype, 3, 4))
        recorder.finish(case, case.call("operator.getitem", x, (S(None), [1, 0])), case.call("operator.getitem", x, (0, None)))
        for other in [F, L, T]:
            case = recorder.start(f"setitem {short(dtype)} {short(other)}")
            x = case.input(values(dtype, 3, 4))
            case.call("operator.setitem", x, (S(1, None), S(None, 2)), case.input(values(other, 2)))
            recorder.finish(case, x)
            case = recorder.start(f"setitem by a list {short(dtype)} {short(other)}")
            x = case.input(values(dtype, 3, 4))
            case.call("operator.setitem", x, [0, 2], case.input(values(other, 4)))
            recorder.finish(case, x, refused=isinstance(case.last, Exception))
        for value in [3, -1.5, True]:
            case = recorder.start(f"setitem {short(dtype)} {value!r}")
            x = case.input(values(dtype, 3, 4))
            case.call("operator.setitem", x, (Ellipsis, 1), value)
            recorder.finish(case, x, refused=isinstance(case.last, Exception))
    for index in [*BASIC, *LISTS]:
        case = recorder.start(f"setitem {index}")
        x = case.input(values(F, 3, 4, 2))
        rare = any(isinstance(i, bool) for i in (index if isinstance(index, tuple) else (index,))) or index == [1.5]
        case.call("operator.setitem", x, index, 9)
        recorder.finish(case, x, refused=rare or isinstance(case.last, Exception))
        case = recorder.start(f"setitem {index} of what getitem gives")
        x = case.input(values(F, 3, 4, 2))
        y = case.call("operator.getitem", case.input(values(F, 3, 4, 2, seed=2)), index)
        if not isinstance(y.value, torch.Tensor):
            continue
        case.call("operator.setitem", x, index, y)
        recorder.finish(case, x, refused=rare or isinstance(case.last, Exception))
    for shape in [(2,), (1, 2), (1, 1, 1, 2), (4, 1), (3, 4, 2), (2, 2), (3,), (0,), (2, 4, 2)]:
        for index in [S(None), 0, [0, 1], (S(None), [0, 1])]:
            case = recorder.start(f"setitem {index} of a tensor {shape}")
            x = case.input(values(F, 3, 4, 2))
            case.call("operator.setitem", x, index, case.input(values(F, *shape)))
            recorder.finish(case, x, refused=isinstance(case.last, Exception))
    case = recorder.start("setitem through a view")
    x = case.input(values(F, 3, 4))
    case.call("operator.setitem", case.method("t", x), (S(None, 2), 1), 0)
    recorder.finish(case, x)
    case = recorder.start("getitem then in place")
    x = case.input(values(F, 3, 4))
    case.method("add_", case.call("operator.getitem", x, (S(None), S(1, 3))), 10)
    case.method("add_", case.call("operator.getitem", x, [0, 1]), 100)
    recorder.finish(case, x)
    case = recorder.start("Tensor.__getitem__")
    recorder.finish(case, case.method("__getitem__", case.input(values(F, 3, 4)), (0, S(1, None))))
    case = recorder.start("Tensor.__setitem__")
    x = case.input(values(F, 3, 4))
    case.method("__setitem__", x, 0, 1.0)
    recorder.finish(case, x)
    case = recorder.start("getitem by computed numbers")
    x = case.input(values(F, 3, 4))
    n = case.call("operator.sub", case.method("size", x, 1), 2)
    recorder.finish(case, case.call("operator.getitem", x, (S(None), S(None, n))), case.call("operator.getitem", x, (0, n)))
    # ATen's own
    for k, which in enumerate([[0], [None, 0], [0, 1], [None, 0, 1], [0, None, 1], [2], [None, None, 0], [2, None], [3], [4],
                               [0, 1, 0, 1], []]):
        for target in ["index.Tensor", "index_put.default", "index_put_.default", "index_put accumulate"]:
            case = recorder.start(f"aten.{target} {k}")
            x = case.input(values(F, 3, 4, 2))
            made = [case.input(v) for v in (torch.tensor([0, 1]), torch.tensor([1, 1]), torch.tensor([[0], [1]]),
                                            torch.tensor([True, False, True]),
                                            torch.tensor([0, 9]))]
            indices = [None if w is None else made[w] for w in which]
            if target == "index.Tensor":
                y = case.call(f"torch.ops.aten.{target}", x, indices)
            elif target == "index_put accumulate":
                y = case.call("torch.ops.aten.index_put.default", x, indices, case.input(values(F, 1)), True)
            else:
                y = case.call(f"torch.ops.aten.{target}", x, indices, case.input(values(F, 2)))
            recorder.finish(case, x, y, ulps=1)
    for values_of in [values(F, 2), values(F), values(F, 1, 2), values(D, 2), values(F, 3)]:
        case = recorder.start(f"Tensor.index_put {short(values_of.dtype)} {tuple(values_of.shape)}")
        x = case.input(values(F, 3, 4))
        y = case.method("index_put", x, (case.input(torch.tensor([0, 2])), case.input(torch.tensor([1, 1]))),
                        case.input(values_of))
        recorder.finish(case, x, y)
    case = recorder.start("Tensor.index_put_ accumulate=True, the same element twice")
    x = case.input(values(F, 3))
    y = case.method("index_put_", x, (case.input(torch.tensor([1, 1, 1])),), case.input(values(F, 3, seed=3)), accumulate=True)
    recorder.finish(case, x, y, ulps=4)
    case = recorder.start("index_put_ of half accumulates")
    x = case.input(values(H, 3))
    y = case.method("index_put_", x, (case.input(torch.tensor([1, 1, 0])),), case.input(values(H, 3, seed=3)), accumulate=True)
    recorder.finish(case, x, y, ulps=2)
    for dtype in [torch.int8, torch.int16, torch.int32, L]:
        case = recorder.start(f"getitem by {short(dtype)}")
        recorder.finish(case, case.call("operator.getitem", case.input(values(F, 3, 2)),
                                        case.input(torch.tensor([1, 0], dtype=dtype))))
        for name in ["index_select", "gather", "scatter_add"]:
            case = recorder.start(f"{name} by {short(dtype)}")
            x, index = case.input(values(F, 3)), case.input(torch.tensor([1, 0], dtype=dtype))
            recorder.finish(case, case.method(name, x, 0, index, *([x] if name == "scatter_add" else [])))
    case = recorder.start("an expanded one is read")
    x = case.method("expand", case.input(values(F, 3, 1)), 3, 4)
    recorder.finish(case, case.call("operator.getitem", x, (S(None), [0, 3])))


if __name__ == "__main__":
    recorder = Recorder("index")
    main(recorder)
    recorder.write()
