"""Random torch.fx graphs for comparing generated code: no program that runs, but every kind of node, name and value there is.

`random_case(seed)` gives a document and the code that torch.fx prints for the graph it was made from.
"""

import builtins
import collections
import enum
import io
import keyword
import math
import operator
import random
import struct
import textwrap
import tokenize
import types

import torch
from torch.fx.graph import _is_from_torch, inplace_methods, magic_methods

from foldback.values import encode, qualified_name

# ---- functions -------------------------------------------------------------------------------------------------------------


def is_speakable(function):
    """Does it have a name that a document can hold, and torch.fx can print?"""
    try:
        name = qualified_name(function)
        _is_from_torch(function)
    except Exception:
        return False
    return hasattr(function, "__name__") and all(
        part.isidentifier() and not keyword.iskeyword(part) for part in name.split(".")
    )


def functions_of(*places):
    found = {}
    for place in places:
        for name in dir(place):
            function = getattr(place, name, None)
            if callable(function) and not name.startswith("__") and is_speakable(function):
                found.setdefault(qualified_name(function), function)
    return list(found.values())


def stranger(module, name):
    """A function of somebody else's module."""
    function = types.FunctionType((lambda: 0).__code__, {}, name)
    function.__module__, function.__qualname__ = module, name
    return function


def overloads():
    packets = [getattr(torch.ops.aten, name) for name in dir(torch.ops.aten)]
    packets = [packet for packet in packets if isinstance(packet, torch._ops.OpOverloadPacket) and is_speakable(packet)]
    return packets, [getattr(packet, name) for packet in packets[::5] for name in packet.overloads()]


FORMS = magic_methods | inplace_methods
OPERATORS = [function for function in functions_of(operator) if not isinstance(function, type)]
INFIX = [function for function in OPERATORS if function.__name__ in FORMS]
PACKETS, OVERLOADS = overloads()
STRANGERS = [
    stranger(module, name)
    for module in (
        "my.module",
        "my_module",
        "__main__",
        "torchvision.ops",
        "torch._dynamo.x.y",
        "torch.x._dynamo.z",
        "größe.mod",
        "torch_1",
    )
    for name in ("f", "sqrt", "add", "f_1", "x", "getattr", "inf", "device", "naïve", "_", "wrap")
]
FUNCTIONS = [
    [function for function in OPERATORS if function.__name__ not in FORMS],
    [function for function in functions_of(builtins) if function is not getattr],  # torch.fx wants two arguments or three
    functions_of(torch, torch.nn.functional, torch._C._nn, torch.fft, torch.linalg, torch.special),
    functions_of(torch.Tensor),
    PACKETS,
    OVERLOADS,
    functions_of(math),
    STRANGERS,
]

# ---- values ----------------------------------------------------------------------------------------------------------------


def in_module(module, made):
    made.__module__ = module
    return made


NAMED_TUPLES = [
    in_module("my.types", collections.namedtuple("P", "a b")),
    in_module("torch.foo", collections.namedtuple("T", "a b")),
    in_module("my", collections.namedtuple("types_P", "a")),
    in_module("__main__", collections.namedtuple("E", "")),
]
ENUMS = [
    in_module("my.enums", enum.Enum("Colour", "RED BLUE")),
    in_module("other", enum.Enum("Colour", "RED")),
    in_module("torch.nn.modes", enum.Enum("Mode", "A")),
    in_module("m", enum.Enum("list", "X")),
]
TORCH_OBJECTS = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.strided]
TORCH_OBJECTS += [torch.device("cpu"), torch.device("cuda:1"), torch.device("meta"), torch.channels_last, torch.sparse_coo]
FLOATS = [0.0, -0.0, 1.0, 0.1, 1e-5, 1e16, 1e15, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan, 1e22, 2.0**53]
INTS = [2**53 - 1, 2**53, -(2**53), 2**63 - 1, -(2**63), 2**63, 2**64, 10**30]
CHARACTERS = list("abZ0 '\"\\\n\r\t{}$%#éß日") + [chr(code) for code in (1, 0x1F, 0x7F, 0x80, 0x85, 0xA0, 0xAD, 0x378, 0x200B)]
CHARACTERS += [chr(code) for code in (0x2028, 0x3000, 0xE000, 0xFEFF, 0xFFFD, 0x1F600, 0xE0001, 0x10FFFF, 0x300, 0x1D7D8)]


class Values:
    def __init__(self, choose):
        self.choose = choose

    def string(self):
        if self.choose.random() < 0.4:
            return self.choose.choice(["", "a", "shape", "it's", 'say "hi"', "both ' and \"", "x\\y", "device"])
        return "".join(self.choose.choices(CHARACTERS, k=self.choose.randint(0, 8)))

    def number(self):
        kind = self.choose.randrange(8)
        if kind < 3:
            return self.choose.randint(-10, 10)
        if kind == 3:
            return self.choose.choice(INTS)
        if kind == 4:
            return self.choose.randint(-(2**62), 2**62)
        if kind == 5:
            return self.choose.choice(FLOATS)
        return (
            self.choose.uniform(-10, 10) if kind == 6 else struct.unpack("d", struct.pack("Q", self.choose.getrandbits(64)))[0]
        )

    def scalar(self):
        kind = self.choose.randrange(7)
        if kind < 3:
            return self.number()
        if kind == 3:
            return self.string()
        if kind == 4:
            return self.choose.choice([None, True, False, ..., complex(self.choose.choice(FLOATS), self.choose.uniform(-2, 2))])
        return self.choose.choice(TORCH_OBJECTS)

    def value(self, nodes, depth=0, is_inside_dict=False):
        """Inside a dict or a named tuple torch.fx prints plain reprs, which differ from what a document can say for some."""
        if nodes and self.choose.random() < 0.35:
            return self.choose.choice(nodes)
        kind = self.choose.randrange(20)
        if depth > 3 or kind < 8:
            return self.scalar()

        def items(most):
            return [self.value(nodes, depth + 1, is_inside_dict) for _ in range(self.choose.randint(0, most))]

        if kind < 11:
            return items(4)
        if kind < 14:
            return tuple(items(3))
        if kind == 14:
            return torch.Size(self.choose.choices(range(6), k=self.choose.randint(0, 3)))
        if kind == 15:
            return slice(*[self.choose.choice([None, self.choose.randint(-3, 3), *nodes[-2:]]) for _ in range(3)])
        if kind == 16:
            return {self.scalar(): self.value(nodes, depth + 1, True) for _ in range(self.choose.randint(0, 3))}
        if is_inside_dict:
            return None
        if kind == 17:
            return self.choose.choice(list(self.choose.choice(ENUMS)))
        if kind == 18:
            return self.choose.choice(OVERLOADS)
        named = self.choose.choice(NAMED_TUPLES)
        return named(*[self.value(nodes, depth + 1, True) for _ in named._fields])


# ---- graphs ----------------------------------------------------------------------------------------------------------------

PLACEHOLDERS = [
    "x",
    "y",
    "self",
    "input",
    "len",
    "a_1",
    "B",
    "add",
    "math_sqrt",
    "naïve",
    "x1",
    "args",
    "_x",
    "torch",
    "*rest",
    "**more",
]
NAMES = [
    "x",
    "y",
    "add",
    "add_1",
    "math_sqrt",
    "_operator_not_",
    "my_module_f",
    "typing_List",
    "Colour",
    "Colour_1",
    "my_types_P",
]
NAMES += [
    "torch_Tensor_add",
    "getattr",
    "len",
    "inf",
    "torch",
    "wrap",
    "self",
    "list",
    "0",
    "fc-1",
    "getattr_1",
    "relu",
    "é",
    "a_٣",
    "device",
]
METHODS = ["view", "size", "add_", "__add__", "getattr", "item", "to", "__getitem__", "x", "naïve"]
PATHS = [
    "a",
    "a.b",
    "a.0.b-c",
    "0",
    "layers.0.fc",
    "größe",
    "a.日本.1x",
    "x y",
    "fc_٣",
    "self",
    "m.MyMod",
    "a.$x",
    "torch",
    "getattr",
]
ATTRIBUTES = ["weight", "0", "w-x", "a.bias_1", "a.0.b-c.naïve", "b"]
KEYWORDS = ["dim", "keepdim", "x", "out", "dtype", "input", "self", "é"]
TYPES = [
    torch.Tensor,
    int,
    float,
    str,
    list[int],
    tuple[int, torch.Tensor],
    int | None,
    torch.dtype,
    torch.device,
    type(None),
    list,
]


def printed_type(annotation):
    """The annotation as torch.fx prints it."""
    graph = torch.fx.Graph()
    graph.placeholder("x", type_expr=annotation)
    line = graph.python_code("self").src
    return line[line.index("x : ") + 4 : line.rindex("):")]


PRINTED_TYPES = {id(annotation): printed_type(annotation) for annotation in TYPES}


def add_call(graph, choose, values, nodes):
    recent = nodes[-6:] if choose.random() < 0.8 else nodes
    args = [values.value(recent) for _ in range(choose.randint(0, 4))]
    kwargs = {name: values.value(recent) for name in choose.sample(KEYWORDS, choose.choice([0, 0, 0, 1, 2]))}
    name = choose.choice(NAMES) if choose.random() < 0.4 else None
    annotation = choose.choice(TYPES) if choose.random() < 0.12 else None
    kind = choose.random()
    if kind < 0.3:
        target = choose.choice(INFIX)
        operands = FORMS[target.__name__].count("{}")
        args = [choose.choice(recent) if recent and choose.random() < 0.8 else values.value(recent) for _ in range(operands)]
        op, kwargs = "call_function", {}
    elif kind < 0.4:
        op, target = "call_function", builtins.getattr
        args = [choose.choice(recent) if recent else 1, choose.choice(["shape", "device", "naïve", "a-b", "", values.string()])]
        args += args[:1] if choose.random() < 0.2 else []
        kwargs = {}
    elif kind < 0.65:
        op, target = "call_function", choose.choice(choose.choice(FUNCTIONS))
    elif kind < 0.77:
        op, target, args = "call_method", choose.choice(METHODS), [choose.choice(recent) if recent else 1, *args]
    elif kind < 0.9:
        op, target = "call_module", choose.choice(PATHS)
    else:
        op, target, args, kwargs = "get_attr", choose.choice(ATTRIBUTES), [], {}
    node = graph.create_node(op, target, tuple(args), kwargs, name, annotation)
    if op == "call_function" and choose.random() < 0.1:
        node.meta["is_wrapped"] = True
    return node


def build(choose):
    graph, values, nodes = torch.fx.Graph(), Values(choose), []
    for target in choose.sample(PLACEHOLDERS, choose.choice([0, 1, 1, 2, 3])):
        default = (values.value([]),) if choose.random() < 0.3 else ()
        name = choose.choice(NAMES) if choose.random() < 0.2 else None
        nodes.append(graph.create_node("placeholder", target, default, {}, name))
    for _ in range(choose.choice([0, 1, 3, 6, 12, 25])):
        nodes.append(add_call(graph, choose, values, nodes))
    graph.output(values.value(nodes))
    return graph


def document_of(graph):
    modules = {"": {"path": "", "type": "torch.nn.Module"}}
    nodes = []
    for node in graph.nodes:
        target = node.target if isinstance(node.target, str) else qualified_name(node.target)
        entry = {"name": node.name, "op": node.op, "target": target, "args": [encode(item) for item in node.args]}
        entry["kwargs"] = {key: encode(item) for key, item in node.kwargs.items()}
        if node.type is not None:
            entry["type"] = PRINTED_TYPES[id(node.type)]
        if node.meta.get("is_wrapped"):
            entry["meta"] = {"is_wrapped": True}
        nodes.append(entry)
        path, _, attribute = target.rpartition(".") if node.op == "get_attr" else (target, "", "")
        if node.op in ("get_attr", "call_module"):
            module = modules.setdefault(path, {"path": path, "type": "torch.nn.Identity"})
            if attribute:
                module.setdefault("attributes", {})[attribute] = 1
    return {"format": "foldback.graph/1", "name": "case", "nodes": nodes, "modules": list(modules.values()), "tensors": []}


def names_of(source):
    """The names that lines of code say, in their order, and whether they are assigned; the code need not be valid."""
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type != tokenize.NL]
    depth, names = 0, []
    for before, token, behind in zip([None, *tokens], tokens, tokens[1:]):
        depth += {**dict.fromkeys("([{", 1), **dict.fromkeys(")]}", -1)}.get(token.string, 0)
        is_name = token.type == tokenize.NAME and (before is None or before.string != ".")
        if is_name and not (depth and behind.string == "="):  # not a keyword argument
            names.append((token.string, behind.string in ("=", ":")))
    return names


def right_code(graph):
    """What torch.fx prints, once every input that hides something is called as its node: something else that the code says by
    that name, or a node before the line that reads the input."""
    inputs = {node: node.target.lstrip("*") for node in graph.find_nodes(op="placeholder")}
    apart = {node: f"apart_{index}" for index, node in enumerate(inputs)}
    for node, name in apart.items():
        node.target = node.target.replace(inputs[node], name)
    _, _, body = graph.python_code("self").src.partition("def forward(")
    body = textwrap.dedent(body.partition(":\n")[2]).replace("\nreturn ", "\nresult = ")
    lines = {line.partition(" = ")[2]: line.partition(" = ")[0] for line in body.splitlines()}
    said, hiding = names_of(body), set()
    for node, name in inputs.items():
        read = next((at for at, (item, _) in enumerate(said) if item == apart[node]), -1)
        first = next(((at, is_node) for at, (item, is_node) in enumerate(said) if item == name), None)
        if lines.get(apart[node], name) != name and first is not None and (first[0] < read or not first[1]):
            hiding.add(node)
    while more := {node for node in inputs.keys() - hiding if inputs[node] in {lines[apart[one]] for one in hiding}
                   and lines.get(apart[node], inputs[node]) != inputs[node]}:
        hiding |= more
    for node, name in apart.items():
        node.target = node.target.replace(name, lines[name] if node in hiding else inputs[node])
    return graph.python_code("self").src


def random_case(seed):
    graph = build(random.Random(seed))
    document = document_of(graph)
    return document, right_code(graph)
