"""MergeViews, in both dialects."""
from make_cases import Graph, Raw, case, refusal

FLOAT = {"dtype": "float32"}
DTYPE = lambda name: Raw({"$dtype": name})


def cases():
    reshapes()
    permutations()
    expansions()


def merge(name, graph, applied, *refused):
    case("MergeViews", name, graph, applied, *refused)


def chain(*calls, shape=(2, 3, 4), end=None):
    """relu(x), then the calls, each with the shape of its result; then what reads the last one."""
    g = Graph()
    y = g.relu(g.input(shape=shape))
    for target, args, result in calls:
        make = g.fn if "." in target else g.method
        y = make(target, y, *args, shape=result, **FLOAT)
    read = end or (lambda g, y: g.fn("torch.tanh", y, shape=g.names[y][0], **FLOAT))
    return g.output(read(g, y))


def total(g, y):
    """What is read of y whatever order its elements lie in."""
    return g.fn("torch.sum", y, shape=(), **FLOAT)


def reshapes():
    merge("two-views", chain(("view", (6, 4), (6, 4)), ("view", (-1,), (24,))), 1)
    merge("three-and-more", chain(("view", (6, 4), (6, 4)), ("unsqueeze", (0,), (1, 6, 4)), ("reshape", ((12, 2),), (12, 2)),
                                  ("flatten", (), (24,))), 1)
    merge("sizes-of-unsqueeze-are-written", chain(("reshape", (6, 4), (6, 4)), ("unsqueeze", (1,), (6, 1, 4)), end=total), 1)
    merge("a-size-of-one-orders-axes", chain(("reshape", (6, 4), (6, 4)), ("unsqueeze", (1,), (6, 1, 4))), 0,
          refusal("needs-contiguous", "unsqueeze", "reshape"))
    merge("contiguous-between", chain(("transpose", (1, 2), (2, 4, 3)), ("contiguous", (), (2, 4, 3)),
                                      ("view", (2, 12), (2, 12))), 1)
    merge("aten-two-views", chain(("torch.ops.aten.view.default", ([6, 4],), (6, 4)),
                                  ("torch.ops.aten.unsqueeze.default", (0,), (1, 6, 4)),
                                  end=lambda g, y: g.fn("torch.ops.aten.sum.default", y, shape=(), **FLOAT)), 1)
    merge("symbolic-sizes-are-kept", chain(("flatten", (1,), ("s0", 12)), ("view", (-1, 3, 4), ("s0", 3, 4)),
                                           shape=("s0", 3, 4)), 1)
    merge("not-sizes-that-are-symbolic", chain(("flatten", (1,), ("s0", 12)), ("unsqueeze", (0,), (1, "s0", 12)),
                                               shape=("s0", 3, 4)),
          0, refusal("unknown-shape", "unsqueeze", "flatten"))
    merge("not-into-contiguous", chain(("flatten", (1,), (2, 12)), ("contiguous", (), (2, 12))), 0)
    merge("not-a-view-of-bits", chain(("view", (6, 4), (6, 4)), ("view", (DTYPE("float32"),), (6, 4))), 1)
    merge("not-across-a-permutation", chain(("flatten", (1,), (2, 12)), ("transpose", (0, 1), (12, 2)), ("flatten", (), (24,))),
          0)

    g = Graph()
    g.module("flat", "torch.nn.Flatten", {"start_dim": 1})
    x = g.relu(g.input(shape=(2, 3, 4)))
    y = g.call("flat", g.method("unsqueeze", x, 2, shape=(2, 3, 1, 4), **FLOAT), (2, 12), "float32")
    merge("module", g.output(g.fn("torch.tanh", y, shape=(2, 12), **FLOAT)), 1)

    g = Graph()
    x = g.relu(g.input(shape=(2, 3, 4)))
    first = g.method("flatten", x, 1, shape=(2, 12), **FLOAT)
    second = g.method("flatten", first, name="second", shape=(24,), **FLOAT)
    merge("not-with-another-reader", g.output(g.fn("torch.tanh", second, shape=(24,), **FLOAT),
                                              g.fn("torch.exp", first, shape=(2, 12), **FLOAT)), 0)

    write = lambda g, y: g.fn("torch.tanh", g.add_(y), shape=g.names[y][0], **FLOAT)
    merge("not-when-written", chain(("view", (6, 4), (6, 4)), ("view", (-1,), (24,)), end=write), 0,
          refusal("mutated", "view_1", "view"))
    merge("not-a-result", chain(("transpose", (1, 2), (2, 4, 3)), ("contiguous", (), (2, 4, 3)), ("view", (2, 12), (2, 12)),
                                end=lambda g, y: y), 0, refusal("graph-output", "view", "contiguous"))
    strided = lambda g, y: g.fn("torch.tanh", g.method("as_strided", y, (2, 2), (12, 1), shape=(2, 2), **FLOAT),
                                shape=(2, 2), **FLOAT)
    merge("not-when-strides-are-read", chain(("transpose", (1, 2), (2, 4, 3)), ("contiguous", (), (2, 4, 3)),
                                             ("view", (2, 12), (2, 12)), end=strided), 0,
          refusal("needs-contiguous", "view", "contiguous"))


def permutations():
    merge("two-transposes", chain(("transpose", (1, 2), (2, 4, 3)), ("transpose", (0, -1), (3, 4, 2))), 1)
    merge("permute-and-transpose", chain(("permute", (2, 0, 1), (4, 2, 3)), ("transpose", (0, 2), (3, 2, 4))), 1)
    merge("transposes-of-a-matrix", chain(("t", (), (4, 2)), ("transpose", (0, 1), (2, 4)), shape=(2, 4)), 1)
    merge("aten-two-transposes", chain(("torch.ops.aten.transpose.int", (1, 2), (2, 4, 3)),
                                       ("torch.ops.aten.permute.default", ([2, 1, 0],), (3, 4, 2)),
                                       end=lambda g, y: g.fn("torch.ops.aten.tanh.default", y, shape=(3, 4, 2), **FLOAT)), 1)
    merge("symbolic-transposes", chain(("transpose", (1, 2), ("s0", 4, 3)), ("transpose", (0, 1), (4, "s0", 3)),
                                       shape=("s0", 3, 4)), 1)
    write = lambda g, y: g.fn("torch.tanh", g.add_(y), shape=g.names[y][0], **FLOAT)
    merge("not-transposes-that-are-written",
          chain(("transpose", (1, 2), (2, 4, 3)), ("transpose", (0, 1), (4, 2, 3)), end=write), 0,
          refusal("mutated", "transpose_1", "transpose"))

    turned = [("permute", (0, 2, 1), (2, 4, 3)), ("contiguous", (), (2, 4, 3)), ("permute", (0, 2, 1), (2, 3, 4))]
    summed = lambda g, y: g.fn("torch.sum", g.method("contiguous", y, shape=g.names[y][0], **FLOAT), shape=(), **FLOAT)
    merge("a-copy-between-permutations", chain(*turned, end=summed), 1)
    merge("a-copy-between-permutations-whose-strides-are-read", chain(*turned, end=lambda g, y: summed(g, g.method(
        "view", y, -1, shape=(24,), **FLOAT))), 0, refusal("needs-contiguous", "permute_1", "contiguous", "permute"))
    merge("a-copy-behind-a-permutation", chain(*turned[:2], end=summed), 0)

    def asserted(*more):
        """An assertion about the first of two, as torch.export writes it of what is cast."""
        g = Graph()
        y = g.fn("torch.ops.aten.relu.default", g.input(shape=(2, 3, 4)), shape=(2, 3, 4), **FLOAT)
        first = g.fn("torch.ops.aten.permute.default", y, [0, 2, 1], shape=(2, 4, 3), **FLOAT)
        g.fn("torch.ops.aten._assert_tensor_metadata.default", first, *more, name="assertion",
             kwargs={"dtype": DTYPE("float32")})
        second = g.fn("torch.ops.aten.transpose.int", first, 0, 1, shape=(4, 2, 3), **FLOAT)
        return g.output(g.fn("torch.ops.aten.tanh.default", second, shape=(4, 2, 3), **FLOAT))

    merge("aten-asserted-between", asserted(), 1)
    merge("aten-not-whose-sizes-are-asserted", asserted([2, 4, 3]), 0)

    def read_elsewhere(which):
        g = Graph()
        y, made = g.relu(g.input(shape=(2, 3, 4))), []
        for target, args, shape in turned:
            y = g.method(target, y, *args, shape=shape, **FLOAT)
            made.append(y)
        return g.output(summed(g, y), g.fn("torch.exp", made[which], shape=(2, 4, 3), **FLOAT))

    merge("a-copy-that-is-read-elsewhere", read_elsewhere(1), 0)
    merge("a-copy-of-what-is-read-elsewhere", read_elsewhere(0), 0)


def expansions():
    """unsqueeze(0) and expand: the expand puts dimensions in front as well."""
    front = ("unsqueeze", (0,), (1, 2, 3, 4))
    merge("expanded-in-front", chain(front, ("expand", (5, -1, -1, -1), (5, 2, 3, 4))), 1)
    merge("expanded-in-front-by-sizes", chain(("view", (1, 1, 2, 3, 4), (1, 1, 2, 3, 4)),
                                              ("expand", ((5, 6, 2, -1, 4),), (5, 6, 2, 3, 4))), 1)
    merge("expanded-in-front-and-behind", chain(("unsqueeze", (0,), (1, 2, 1, 4)), ("expand", (5, -1, 3, 4), (5, 2, 3, 4)),
                                                shape=(2, 1, 4)), 1)
    merge("aten-expanded-in-front", chain(
        ("torch.ops.aten.permute.default", ([2, 0, 1],), (4, 2, 3)), ("torch.ops.aten.unsqueeze.default", (-4,), (1, 4, 2, 3)),
        ("torch.ops.aten.expand.default", ([5, -1, 2, 3],), (5, 4, 2, 3)),
        end=lambda g, y: g.fn("torch.ops.aten.tanh.default", y, shape=(5, 4, 2, 3), **FLOAT)), 1)
    merge("expanded-symbolic-in-front", chain(("unsqueeze", (0,), (1, "s0", 4)), ("expand", (5, -1, -1), (5, "s0", 4)),
                                              shape=("s0", 4)), 1)
    # -1 is a dimension that stays; one in the middle is new to expand
    merge("not-expanded-as-it-is", chain(("unsqueeze", (0,), (1, 2, 3, 4)), ("expand", (-1, 2, 3, 4), (1, 2, 3, 4))), 0)
    merge("not-expanded-in-the-middle", chain(("unsqueeze", (1,), (2, 1, 3, 4)), ("expand", (2, 5, 3, 4), (2, 5, 3, 4))), 0)
    merge("a-chain-before-an-expansion", chain(("flatten", (1,), (2, 12)), ("unsqueeze", (0,), (1, 2, 12)),
                                               ("expand", (5, 2, 12), (5, 2, 12)), end=total), 1)

    def as_other(of_itself):
        g = Graph()
        x, y = g.relu(g.input(shape=(3, 4))), g.input("y", shape=(2, 3, 4))
        view = g.method("unsqueeze", x, 0, shape=(1, 3, 4), **FLOAT)
        wide = g.method("expand_as", view, view if of_itself else y, shape=(1 if of_itself else 2, 3, 4), **FLOAT)
        return g.output(g.fn("torch.tanh", wide, shape=g.names[wide][0], **FLOAT))

    merge("expanded-as-another", as_other(False), 1)
    merge("not-expanded-as-itself", as_other(True), 0)
    merge("not-expanded-with-a-new-one-that-stays",
          chain(("unsqueeze", (0,), (1, 2, 3, 4)), ("expand", (3, -1, 2, 3, 4), (3, 1, 2, 3, 4))), 0)
    merge("expanded-by-two", chain(("unsqueeze", (0,), (1, 2, 3, 4)), ("expand", (3, 5, 2, -1, 4), (3, 5, 2, 3, 4))), 1)
    # the stride of a dimension of size 1 is that of the one behind it, which the expand may make 0
    merge("not-expanded-to-one", chain(("view", (1, 1, 2, 3, 4), (1, 1, 2, 3, 4)),
                                       ("expand", (1, 6, 2, 3, 4), (1, 6, 2, 3, 4))), 0)
    g = Graph()
    x = g.relu(g.input(shape=(3, 4)))
    wide = g.method("expand", g.method("unsqueeze", x, 0, shape=(1, 3, 4), **FLOAT), 2, -1, -1, shape=(2, 3, 4), **FLOAT)
    g.add_(x)
    merge("not-expanded-and-written", g.output(g.fn("torch.tanh", wide, shape=(2, 3, 4), **FLOAT)), 0,
          refusal("mutated", "expand", "unsqueeze"))

    g = Graph()
    x = g.relu(g.input(shape=(3, 4)))
    view = g.method("unsqueeze", x, 0, shape=(1, 3, 4), **FLOAT)
    wide = g.method("expand", view, 2, -1, -1, shape=(2, 3, 4), **FLOAT)
    merge("not-expanded-with-another-reader",
          g.output(g.fn("torch.tanh", wide, shape=(2, 3, 4), **FLOAT), g.fn("torch.exp", view, shape=(1, 3, 4), **FLOAT)), 0)
