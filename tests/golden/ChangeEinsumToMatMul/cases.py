"""ChangeEinsumToMatMul. tests/api/test_onnx_einsum.py has the models of its rules, which are compared by what they compute."""
from make_cases import Graph, case, refusal


def product(equation, x, z, shape):
    g = Graph()
    g.metadata = {"dialect": "onnx", "ir_version": 8, "onnx": {"opsets": {"": 17}}}
    return g.output(g.fn("onnx.Einsum.v12", g.input("x", x), g.input("z", z), kwargs={"equation": equation}, shape=shape,
                         dtype="float32", name="product"))


def cases():
    case("ChangeEinsumToMatMul", "matmul", product("bij,bjk->bik", (2, 3, 4), (2, 4, 5), (2, 3, 5)), 1)
    case("ChangeEinsumToMatMul", "gemm", product("ij,kj->ik", (3, 4), (5, 4), (3, 5)), 1)
    case("ChangeEinsumToMatMul", "more-work", product("bij,bkj->bik", (2, 3, 4), (2, 5, 4), (2, 3, 5)), 0,
         refusal("more-work", "product"))
    g = Graph()
    x = g.input("x", (2, 2))
    case("ChangeEinsumToMatMul", "pytorch", g.output(g.fn("torch.functional.einsum", "ij,jk->ik", x, x)), 0)
