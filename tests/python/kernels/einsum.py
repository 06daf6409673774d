"""einsum: PyTorch's results for test_eval_kernels.c. See recorder.py."""

import torch
from recorder import FLOATS, STRIDES, Recorder, short, strided, values

CLOSE = dict(ulps=8, absolute=1e-5)
SIZES = {"i": 3, "j": 4, "k": 5, "b": 2, "h": 2, "A": 3, "l": 1}
EQUATIONS = [
    "ij,jk->ik", "ij,jk", "bij,bjk->bik", "bhik,bhjk->bhij", "bhij,bhjk->bhik", "i,j->ij", "i,i->", "i,i", "i,i->i",
    "ij,ij->", "ij,j->i",
    "ij->ji", "ij->", "ij->j", "ij->i", "ii->i", "ii->", "ii", "iij->ij", "iij->j", "ij,ij->ij", "bij,bj,bi->b",
    "ij,jk,kh->ih", "kA,Ai->ik",
    "bA,Ab", "ji", "l,i->i", "li,ji->lj", "ij , jk -> ik", "ij->ij", "bij,k->bkij", "ij,kj,hj->ikh",
]
ELLIPSES = [
    ("...ij->...ji", [(2, 3, 4)]), ("...ij,...jk->...ik", [(2, 3, 4), (4, 5)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (3, 4, 5)]),
    ("...,...->...", [(2, 3), (3,)]), ("i...,i...->...", [(3, 2), (3, 2)]), ("...i->...", [(2, 3)]), ("i...->i", [(2, 3, 4)]),
    ("...ij,jk", [(2, 3, 4), (4, 5)]), ("b...k,jk->b...j", [(2, 3, 4, 5), (4, 5)]), ("...", [(2, 3)]), ("i->...i", [(3,)]),
    ("...i,i->i...", [(2, 3), (3,)]),
    ("...->", [(2, 3)]), ("i...j->j...i", [(2, 3, 4)]),
]
WRONG = [
    ("ij,jk->ik", [(2, 3), (4, 5)]), ("ij->ik", [(2, 3)]), ("ij->ii", [(2, 3)]), ("ij", [(2, 3, 4)]), ("ijk", [(2, 3)]),
    ("ij,jk", [(2, 3)]),
    ("ij", [(2, 3), (3, 2)]), ("i1", [(2, 3)]), ("ii", [(2, 3)]), ("......", [(2, 3)]), ("ij->-", [(2, 3)]),
    ("ij-", [(2, 3)]), ("", [(2,)]),
    ("ii->i", [(1, 3)]), ("i,ii->i", [(3,), (1, 3)]), ("i,ii->i", [(3,), (3, 1)]), ("ij,->ij,", [(2, 3), ()]),
]

SUBLISTS = [
    ("matmul", [(2, 3), (3, 4)], [[0, 1], [1, 2], [0, 2]]), ("without a result", [(2, 3), (3, 4)], [[0, 1], [1, 2]]),
    ("sorted as letters", [(2, 3)], [[30, 4]]),
    ("transposed", [(2, 3)], [[0, 1], [1, 0]]), ("diagonal", [(3, 3)], [[26, 26], [26]]),
    ("...", [(2, 3, 4), (4, 5)], [[..., 0, 1], [1, 51], [..., 51, 0]]),
    ("tuples", [(2, 3), (3,)], [(0, 1), (1,), (0,)]), ("a sum", [(2, 3)], [[0, 1], []]), ("a scalar", [(), (3,)], [[], [25]]),
    ("three", [(2, 3), (3, 4), (4, 5)], [[0, 1], [1, 2], [2, 3], [3, 0]]), ("True", [(2, 3)], [[True, 0], [0, 1]]),
    ("wrong: 52", [(2, 3)], [[0, 52]]), ("wrong: -1", [(2, 3)], [[0, -1]]),
    ("wrong: twice in the result", [(2, 3)], [[0, 1], [0, 0]]),
    ("wrong: sizes", [(2, 3), (4, 5)], [[0, 1], [1, 2]]), ("wrong: too few", [(2, 3)], [[0]]),
]


def main(recorder):
    def one(name, equation, tensors, target="torch.einsum", how=None, **more):
        case = recorder.start(name)
        inputs = [strided(case, x, how) if how else case.input(x) for x in tensors]
        operands = [inputs] if target != "torch.einsum" else inputs
        recorder.finish(case, case.call(target, equation, *operands), **more)

    def of(equation, dtype=torch.float32):
        subscripts = equation.replace(" ", "").split("->")[0].split(",")
        return [values(dtype, *(SIZES[c] for c in s), seed=i) for i, s in enumerate(subscripts)]

    for equation in EQUATIONS:
        one(equation, equation, of(equation), **CLOSE)
        one(f"aten {equation}", equation, of(equation), "torch.ops.aten.einsum.default", **CLOSE)
    for equation in ("ij,jk->ik", "ij->j", "ii->i", "ij->ji"):
        for how in STRIDES:
            one(f"{equation} {how}", equation, of(equation), how=how, **CLOSE)
        for dtype in FLOATS:
            one(f"{equation} {short(dtype)}", equation, of(equation, dtype), **CLOSE)
    for equation, shapes in ELLIPSES:
        one(f"{equation} of {shapes}", equation, [values(torch.float32, *s, seed=i) for i, s in enumerate(shapes)], **CLOSE)
    for equation, shapes in [("ij,jk->ik", [(2, 0), (0, 3)]), ("ij,jk->ik", [(0, 2), (2, 3)]), ("ij,jk->ik", [(1, 2), (2, 3)]),
                             ("ij,jk->ik", [(2, 1), (3, 4)]), ("ij,ij", [(3, 1), (3, 4)]), ("i,ii->i", [(3,), (1, 1)]),
                             ("ij,ij->ij", [(1, 3), (2, 1)]), (",->", [(), ()])]:
        one(f"{equation} of {shapes}", equation, [values(torch.float32, *s, seed=i) for i, s in enumerate(shapes)], **CLOSE)
    for equation, shapes in WRONG:
        one(f"wrong: {equation} of {shapes}", equation, [values(torch.float32, *s) for s in shapes], **CLOSE)
    for name, shapes, lists in SUBLISTS:
        case = recorder.start(f"lists: {name}")
        inputs = [case.input(values(torch.float32, *s, seed=i)) for i, s in enumerate(shapes)]
        args = [part for pair in zip(inputs, lists) for part in pair] + lists[len(shapes):]
        recorder.finish(case, case.call("torch.einsum", *args), **CLOSE)
    case = recorder.start("lists: a tensor is missing")
    recorder.finish(case, case.call("torch.einsum", case.input(values(torch.float32, 2, 3)), [0, 1], [1, 2], [0, 1]), **CLOSE)
    case = recorder.start("a view: what is written to the result is written to the operand")
    x = case.input(values(torch.float32, 3, 3))
    y = case.call("torch.einsum", "ii->i", x)
    case.method("mul_", y, 2)
    recorder.finish(case, x)


if __name__ == "__main__":
    recorder = Recorder("einsum")
    main(recorder)
    recorder.write()
