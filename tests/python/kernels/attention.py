"""Attention and embedding: PyTorch's results for test_eval_kernels.c. See recorder.py."""

from recorder import FLOATS, STRIDES, Recorder, short, strided, values

import torch

ATEN = "torch.ops.aten."
ATTENTION = "torch.nn.functional.scaled_dot_product_attention"
CLOSE = dict(ulps=16, absolute=1e-6)


def masks(rows, columns):
    boolean = torch.ones(rows, columns, dtype=torch.bool).tril()
    blocked = boolean.clone()
    blocked[0] = False  # a row that sees nothing
    infinite = torch.zeros(rows, columns).masked_fill(~boolean, float("-inf"))
    return {"bool": boolean, "blocked": blocked, "infinite": infinite, "bias": values(torch.float32, rows, columns), "one row": boolean[-1:], "one column": values(torch.float32, rows, 1)}


def main(recorder):
    for spelling in (ATTENTION, ATEN + "scaled_dot_product_attention.default"):
        for lead in ((), (3,), (2, 3)):
            q, k, v = values(torch.float32, *lead, 4, 6), values(torch.float32, *lead, 5, 6, seed=1), values(torch.float32, *lead, 5, 2, seed=2)
            for keywords in ({}, {"is_causal": True}, {"scale": 0.5}, {"dropout_p": 0.0}):
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
            given = [case.input(item) for item in (q, values(torch.float32, 2, 4, 5, 4), values(torch.float32, 2, 4, 5, 4, seed=2), values(dtype, *shape))]
            recorder.finish(case, case.call(ATTENTION, *given), **CLOSE)
    for how in STRIDES:
        case = recorder.start(f"attention {how}")
        given = [strided(case, values(torch.float32, 2, 2, 4, 4, seed=i), how) for i in range(3)]
        recorder.finish(case, case.call(ATTENTION, *given), **CLOSE)
    for dtype in [*FLOATS, torch.int64]:
        case = recorder.start(f"attention {short(dtype)}")
        tolerance = dict(ulps=8, absolute=2e-3) if dtype in (torch.float16, torch.bfloat16) else CLOSE
        recorder.finish(case, case.call(ATTENTION, *[case.input(values(dtype, 1, 2, 4, 4, seed=i)) for i in range(3)]), **tolerance)
    case = recorder.start("attention with dropout")
    recorder.finish(case, case.call(ATTENTION, *[case.input(values(torch.float32, 1, 2, 4, 4, seed=i)) for i in range(3)], dropout_p=0.5), refused=True)
    for name, shapes in {"widths": [(2, 4, 6), (2, 4, 5), (2, 4, 6)], "lengths": [(2, 4, 6), (2, 4, 6), (2, 3, 6)], "batches": [(2, 4, 6), (3, 4, 6), (3, 4, 6)], "dimensions": [(4, 6), (2, 4, 6), (2, 4, 6)]}.items():
        case = recorder.start(f"other {name}")
        known = name in ("batches", "dimensions")
        recorder.finish(case, case.call(ATTENTION, *[case.input(values(torch.float32, *shape)) for shape in shapes]), refused=known)
    case = recorder.start("two dtypes")
    recorder.finish(case, case.call(ATTENTION, *[case.input(values(dtype, 2, 4, 4)) for dtype in (torch.float32, torch.float64, torch.float32)]))
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
    recorder.finish(case, case.call("torch.nn.functional.embedding", input=case.input(torch.tensor([1, 2])), weight=case.input(table), padding_idx=1))
    case = recorder.start("embedding with max_norm")
    recorder.finish(case, case.call("torch.nn.functional.embedding", case.input(torch.tensor([1, 2])), case.input(table), max_norm=1.0), refused=True)
    for how in STRIDES:
        case = recorder.start(f"embedding {how}")
        recorder.finish(case, case.call("torch.nn.functional.embedding", strided(case, torch.tensor([[1, 2], [0, 3]]), how), strided(case, table, how)))
    for dtype in (torch.float32, torch.float64, torch.bool):
        case = recorder.start(f"embedding by {short(dtype)}")
        recorder.finish(case, case.call("torch.nn.functional.embedding", case.input(torch.tensor([1, 0]).to(dtype)), case.input(table)))


if __name__ == "__main__":
    recorder = Recorder("attention")
    main(recorder)
    recorder.write()
