"""Modules with hooks: the exporter ends their type in ".Hooked", and what they do is not known."""
from make_cases import Graph, case, refusal

HOOKED = ".Hooked"


def hooked_everything():
    """What every pass would change, were it not for the hooks."""
    g = Graph()
    x = g.input(shape=(2, 4))
    q = g.linear("q", x, 4, type="torch.nn.Linear" + HOOKED)
    k = g.linear("k", x, 4, type="torch.nn.Linear" + HOOKED)
    s = g.fn("operator.mul", q, 2.0, shape=(2, 4), dtype="float32", name="mul")
    g.module("relu", "torch.nn.ReLU" + HOOKED, {"inplace": False})
    g.module("same", "torch.nn.Identity" + HOOKED)
    g.module("drop", "torch.nn.Dropout" + HOOKED, {"p": 0.5})
    norm = g.norm("bn", k, spatial=1)
    g.modules["bn"]["type"] += HOOKED
    r = g.call("drop", g.call("same", g.call("relu", norm)))
    g.module("ln", "torch.nn.LayerNorm" + HOOKED, {"normalized_shape": (4,), "eps": 1e-5},
             {a: g.tensor(f"ln.{a}", [4]) for a in ("weight", "bias")})
    last = g.linear("last", g.call("ln", r), 3)
    g.call("same", x, name="unread")
    return g.output(s, last, g.call("same", x, name="same_again"))


def cases():
    for name in ["MergeLinears", "FuseBatchNorm", "FuseBatchNorm1dInLinear", "FoldScaleIntoLinear", "FoldNormIntoLinear",
                 "RemoveNoOps", "FoldConstants"]:
        case(name, "hooked-modules", hooked_everything(), 0)
    case("FuseBiasInLinear", "hooked-modules", hooked_everything(), 1)
    case("EliminateDeadCode", "hooked-modules", hooked_everything(), 0, refusal("unknown-operator", "unread"))
    case("EliminateCommonSubexpressions", "hooked-modules", hooked_everything(), 0,
         refusal("unknown-operator", "unread", "same_again"))
    case("ReplaceActivation", "hooked-modules", hooked_everything(), 0,
         passes=[{"name": "ReplaceActivation", "params": {"from": "relu", "to": "gelu"}}])

    # A hook may write into what its module reads; a subclass of Linear without hooks is trusted not to.
    def beside(type):
        g = Graph()
        x = g.input()
        q = g.linear("q", x, 3)
        odd = g.linear("odd", x, 3, type=type)
        return g.output(q, odd, g.linear("k", x, 3))

    case("MergeLinears", "hooked-linear-between", beside("torch.nn.Linear" + HOOKED), 0, refusal("input-mutated", "k"))
    case("MergeLinears", "hooked-subclass-between", beside("custom.OddLinear" + HOOKED), 0, refusal("input-mutated", "k"))
