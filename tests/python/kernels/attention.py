"""Attention and embedding: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import torch
from recorder import FLOATS, STRIDES, Recorder, short, strided, values

ATEN = "torch.ops.aten."
ATTENTION = "torch.nn.functional.scaled_dot_product_attention"
CLOSE = dict(ulps=16, absolute=1e-6)


def masks(rows, columns):
    boolean = torch.ones(rows, columns, dtype=torch.bool).tril()
    blocked = boolean.clone()
    blocked[0] = False  # a row that sees nothing
    infinite = torch.zeros(rows, columns).masked_fill(~boolean, float("-inf"))
    return {"bool": boolean, "blocked": blocked, "infinite": infinite, "bias": values(torch.float32, rows, columns),
            "one row": boolean[-1:], "one column": values(torch.float32, rows, 1)}


def main(recorder):
    for spelling in (ATTENTION, ATEN + "scaled_dot_product_attention.default"):
        for lead in ((), (3,), (2, 3)):
            q, k, v = values(torch.float32, *lead, 4, 6), values(torch.float32, *lead, 5, 6,
                                                                 seed=1), values(torch.float32, *lead, 5, 2, seed=2)
            for keywords in ({}, {"is_causal": True}, {"scale": 0.5}, {"scale": -0.5}, {"dropout_p": 0.0}):
                case = recorder.start(f"{spelling} {lead} {keywords}")
                recorder.finish(case, case.call(spelling, *[case.input(item) for item in (q, k, v)], **keywords), **CLOSE)
            for name, mask in masks(4, 5).items():
                case = recorder.start(f"{spelling} {lead}, mask {name}")
                recorder.finish(case, case.call(spelling, *[case.input(item) for item in (q, k, v, mask)]), **CLOSE)
            case = recorder.start(f"{spelling} {lead}, causal and masked")
            recorder.finish(case, case.call(spelling, *[case.input(item) for item in (q, k, v, mask)], is_causal=True), **CLOSE)
    for rows, columns in ((3, 3), (5, 3), (1, 4), (0, 3), (3, 0)):
        case = recorder.start(f"causal {rows} {columns}")
        q, k = values(torch.float32, 2, 2, rows, 4), values(torch.float32, 2, 2, columns, 4, seed=1)
        recorder.finish(case, case.call(ATTENTION, case.input(q), case.input(k), case.input(k), is_causal=True), **CLOSE)
    q, k = values(torch.float32, 2, 4, 3, 4), values(torch.float32, 2, 2, 5, 4, seed=1)
    for keywords in ({"enable_gqa": True}, {}, {"enable_gqa": True, "is_causal": True}):
        case = recorder.start(f"shared keys {keywords}")
        recorder.finish(case, case.call(ATTENTION, case.input(q), case.input(k), case.input(k), **keywords), **CLOSE)
    for shape in ((1, 1, 3, 5), (2, 1, 3, 5), (1, 4, 1, 5), (2, 4, 3, 5), (5,), (3, 2, 3, 5)):
        for dtype in (torch.bool, torch.float32):
            case = recorder.start(f"a mask {shape} {short(dtype)}")
            given = [case.input(item) for item in (q, values(torch.float32, 2, 4, 5, 4),
                                                   values(torch.float32, 2, 4, 5, 4, seed=2), values(dtype, *shape))]
            recorder.finish(case, case.call(ATTENTION, *given), **CLOSE)
    for how in STRIDES:
        case = recorder.start(f"attention {how}")
        given = [strided(case, values(torch.float32, 2, 2, 4, 4, seed=i), how) for i in range(3)]
        recorder.finish(case, case.call(ATTENTION, *given), **CLOSE)
    for dtype in [*FLOATS, torch.int64]:
        case = recorder.start(f"attention {short(dtype)}")
        tolerance = dict(ulps=8, absolute=2e-3) if dtype in (torch.float16, torch.bfloat16) else CLOSE
        recorder.finish(case, case.call(ATTENTION, *[case.input(values(dtype, 1, 2, 4, 4, seed=i)) for i in range(3)]),
                        **tolerance)
    case = recorder.start("attention with dropout")
    recorder.finish(case, case.call(ATTENTION, *[case.input(values(torch.float32, 1, 2, 4, 4, seed=i)) for i in range(3)],
                                    dropout_p=0.5), refused=True)
    for name, shapes in {"widths": [(2, 4, 6), (2, 4, 5), (2, 4, 6)], "lengths": [(2, 4, 6), (2, 4, 6), (2, 3, 6)],
                         "batches": [(2, 4, 6), (3, 4, 6), (3, 4, 6)], "dimensions": [(4, 6), (2, 4, 6), (2, 4, 6)]}.items():
        case = recorder.start(f"other {name}")
        recorder.finish(case, case.call(ATTENTION, *[case.input(values(torch.float32, *shape)) for shape in shapes]), **CLOSE)
    for shapes in ([(2, 4, 3, 6), (1, 4, 5, 6), (2, 1, 5, 6)], [(1, 3, 6), (4, 5, 6), (4, 5, 2)],
                   [(2, 4, 3, 6), (5, 6), (4, 5, 6)], [(3, 6), (2, 5, 6), (2, 5, 6)],
                   [(2, 4, 3, 6), (2, 0, 5, 6), (2, 0, 5, 6)], [(0, 4, 3, 6), (1, 4, 5, 6), (1, 4, 5, 6)]):
        case = recorder.start(f"attention broadcasts {shapes}")
        recorder.finish(case, case.call(ATTENTION, *[case.input(values(torch.float32, *shape, seed=i))
                                                     for i, shape in enumerate(shapes)]), refused=shapes[1][1] == 0, **CLOSE)
    for heads in ((4, 2, 2), (4, 1, 1), (4, 2, 1), (4, 4, 2), (6, 2, 3), (4, 3, 3), (4, 0, 0), (2, 4, 4), (4, 4, 4)):
        for lead in ((), (2,), (2, 3)):
            case = recorder.start(f"heads {heads} of {lead} share keys")
            given = [case.input(values(torch.float32, *lead, h, 3 if i == 0 else 5, 4, seed=i)) for i, h in enumerate(heads)]
            recorder.finish(case, case.call(ATTENTION, *given, enable_gqa=True), refused=0 in heads, **CLOSE)
    # How the result lies in memory: as the query does, or row by row; view() tells.
    for layout in ("plain", "heads inside", "one key last", "the query last"):
        for value_width in (6, 2):
            for name, mask in {"no": None, "2-d": (3, 5), "3-d": (4, 3, 5), "4-d": (2, 1, 1, 5)}.items():
                for seen in ("row by row", "heads inside"):
                    case = recorder.start(f"the result of {layout}, width {value_width}, {name} mask, seen {seen}")
                    q, k, v = values(torch.float32, 2, 4, 3,
                                     6), values(torch.float32, 2, 4, 5, 6,
                                                seed=1), values(torch.float32, 2, 4, 5, value_width, seed=2)
                    last = {"heads inside": 1, "the query last": 3}.get(layout)
                    q = case.method("transpose", case.input(q.transpose(last, 2).contiguous()), last,
                                    2) if last else case.input(q)
                    k = case.method("transpose", case.input(k.transpose(2, 3).contiguous()), 2,
                                    3) if layout == "one key last" else case.input(k)
                    keywords = {} if mask is None else {"attn_mask": case.input(values(torch.float32, *mask))}
                    y = case.call(ATTENTION, q, k, case.input(v), **keywords)
                    if seen == "heads inside":
                        y = case.method("transpose", y, 1, 2)
                    recorder.finish(case, case.method("view", y, -1), **CLOSE)
    case = recorder.start("two dtypes")
    recorder.finish(case, case.call(ATTENTION, *[case.input(values(dtype, 2, 4, 4))
                                                 for dtype in (torch.float32, torch.float64, torch.float32)]))
    table = values(torch.float32, 5, 3)
    for index in ([0, 4, 4], [[1, 2], [3, 0]], [], 2, [5], [-1]):
        for dtype in (torch.int64, torch.int32):
            x = torch.tensor(index, dtype=dtype)
            case = recorder.start(f"embedding {index} {short(dtype)}")
            recorder.finish(case, case.call("torch.nn.functional.embedding", case.input(x), case.input(table)))
            case = recorder.start(f"aten.embedding {index} {short(dtype)}")
            recorder.finish(case, case.call(ATEN + "embedding.default", case.input(table), case.input(x)))
            case = recorder.start(f"Embedding {index} {short(dtype)}")
            config = {"num_embeddings": 5, "embedding_dim": 3, "padding_idx": 0}
            recorder.finish(case, case.module("Embedding", config, case.input(x), tensors={"weight": table}))
    case = recorder.start("torch.embedding")
    recorder.finish(case, case.call("torch.embedding", case.input(table), case.input(torch.tensor([1, 2])), 0))
    case = recorder.start("embedding by keywords")
    recorder.finish(case, case.call("torch.nn.functional.embedding", input=case.input(torch.tensor([1, 2])),
                                    weight=case.input(table), padding_idx=1))
    case = recorder.start("embedding with max_norm")
    recorder.finish(case, case.call("torch.nn.functional.embedding", case.input(torch.tensor([1, 2])), case.input(table),
                                    max_norm=1.0), refused=True)
    for how in STRIDES:
        case = recorder.start(f"embedding {how}")
        recorder.finish(case, case.call("torch.nn.functional.embedding", strided(case, torch.tensor([[1, 2], [0, 3]]), how),
                                        strided(case, table, how)))
    for dtype in (torch.float32, torch.float64, torch.bool):
        case = recorder.start(f"embedding by {short(dtype)}")
        recorder.finish(case, case.call("torch.nn.functional.embedding", case.input(torch.tensor([1, 0]).to(dtype)),
                                        case.input(table)))
    for classes in (-1, 4, 5, 3, 0, 1):
        for index in ([0, 3, 3], [[1, 2], [3, 0]], [], 2, [-1], [[]], [0]):
            for dtype in (torch.int64, torch.int32):
                case = recorder.start(f"one_hot {index} of {classes} {short(dtype)}")
                recorder.finish(case, case.call("torch.nn.functional.one_hot",
                                                case.input(torch.tensor(index, dtype=dtype)), classes))
    for spelling, keywords in ((ATEN + "one_hot.default", {}), ("torch.nn.functional.one_hot", {"num_classes": 6}),
                               ("torch._C._nn.one_hot", {})):
        case = recorder.start(f"{spelling} {keywords}")
        recorder.finish(case,
                        case.call(spelling, strided(case, torch.tensor([[1, 2, 0], [0, 3, 1]]), "transposed"), **keywords))
    case = recorder.start("embedding with every default said")
    arguments = (None, None, 2.0, False, False)
    recorder.finish(case, case.call("torch.nn.functional.embedding", case.input(torch.tensor([1, 2])),
                                    case.input(table), *arguments))
    case = recorder.start("embedding with every default named")
    names = ("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")
    recorder.finish(case, case.call("torch.nn.functional.embedding", case.input(torch.tensor([1, 2])), case.input(table),
                                    **dict(zip(names, arguments))))
    case = recorder.start("aten.embedding with every default said")
    recorder.finish(case, case.call(ATEN + "embedding.default", case.input(table), case.input(torch.tensor([1, 2])), -1,
                                    False, False))
    case = recorder.start("aten.embedding with its options")
    recorder.finish(case, case.call(ATEN + "embedding.default", case.input(table), case.input(torch.tensor([1, 2])),
                                    1, True, True))
    for dtype in (torch.int8, torch.int16, torch.uint8):
        case = recorder.start(f"embedding by {short(dtype)}")
        recorder.finish(case, case.call("torch.nn.functional.embedding", case.input(torch.tensor([1, 0]).to(dtype)),
                                        case.input(table)))


if __name__ == "__main__":
    recorder = Recorder("attention")
    main(recorder)
    recorder.write()
