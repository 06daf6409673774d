"""torch.fx programs as foldback.graph/1 documents and back.

Written from the description of the format alone, so that it can prove the service wrong. Tensors travel inline (`data`): recipes
can then be computed here, in float64 and rounded once, and the rewritten program be run.
"""

import base64
import builtins
import copy
import enum
import importlib
import inspect
import math

import numpy
import torch
import torch.fx

LARGEST_PLAIN_INT = 2**53 - 1
MOVEMENTS = {"concat", "slice", "reshape", "permute", "full"}


# ---- values ---------------------------------------------------------------------------------------------------------------


def qualified_name(function):
    if getattr(builtins, getattr(function, "__name__", ""), None) is function:
        return f"builtins.{function.__name__}"
    name = torch.fx.node._get_qualified_name(function)
    return name[1:] if name.startswith("_operator.") else name


def encode(value):
    """A torch.fx argument as the document spells it."""
    if isinstance(value, torch.fx.Node):
        return {"$node": value.name}
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, enum.Enum):
        return {"$enum": [f"{type(value).__module__}.{type(value).__name__}", value.name]}
    if isinstance(value, int):
        return value if abs(value) <= LARGEST_PLAIN_INT else {"$int": str(value)}
    if isinstance(value, float):
        return {"$float": repr(value)} if not math.isfinite(value) or value.is_integer() else value
    if isinstance(value, complex):
        return {"$complex": [encode(value.real), encode(value.imag)]}
    for kind, form in ((torch.dtype, "$dtype"), (torch.layout, "$layout"), (torch.memory_format, "$memory_format")):
        if isinstance(value, kind):
            return {form: str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"$device": str(value)}
    if value is ...:
        return {"$ellipsis": True}
    if isinstance(value, torch.Size):
        return {"$size": [encode(item) for item in value]}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"$namedtuple": [f"{type(value).__module__}.{type(value).__name__}", [encode(item) for item in value]]}
    if isinstance(value, tuple):
        return {"$tuple": [encode(item) for item in value]}
    if isinstance(value, (list, torch.fx.immutable_collections.immutable_list)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {"$dict": [[encode(key), encode(item)] for key, item in value.items()]}
    if isinstance(value, slice):
        return {"$slice": [encode(value.start), encode(value.stop), encode(value.step)]}
    if callable(value):
        return {"$ref": qualified_name(value)}
    return {"$opaque": repr(value)}


def resolve(name):
    """The object with a qualified name: the longest importable prefix, then attributes."""
    parts = name.split(".")
    if parts[:2] == ["torch", "ops"]:
        found, rest = torch.ops, parts[2:]
    else:
        found, rest = importlib.import_module(parts[0]), parts[1:]
    for part in rest:
        if not hasattr(found, part):
            found = importlib.import_module(f"{found.__name__}.{part}")
        else:
            found = getattr(found, part)
    return found


def decode(value, nodes=None):
    """The Python object that a value of a document means; `nodes` maps names to torch.fx nodes."""
    if isinstance(value, list):
        return [decode(item, nodes) for item in value]
    if not isinstance(value, dict):
        return value
    ((form, content),) = value.items()
    if form == "$node":
        return nodes[content]
    if form in ("$tuple", "$size", "$slice", "$complex"):
        items = [decode(item, nodes) for item in content]
        return (
            {"$tuple": tuple, "$size": torch.Size}[form](items)
            if form in ("$tuple", "$size")
            else (slice(*items) if form == "$slice" else complex(*items))
        )
    if form == "$dict":
        return {decode(key, nodes): decode(item, nodes) for key, item in content}
    if form == "$namedtuple":
        return resolve(content[0])(*[decode(item, nodes) for item in content[1]])
    if form == "$enum":
        return resolve(content[0])[content[1]]
    simple = {"$float": float, "$int": int, "$device": torch.device, "$ref": resolve, "$ellipsis": lambda _: ...}
    if form in simple:
        return simple[form](content)
    assert form in ("$dtype", "$layout", "$memory_format"), f"cannot be run: {value}"
    return getattr(torch, content)


# ---- from torch.fx --------------------------------------------------------------------------------------------------------


class Recorder(torch.fx.Interpreter):
    """Runs a program once and notes the shape and dtype of every node that is a tensor, as they are when it is made."""

    def __init__(self, module):
        super().__init__(module)
        self.meta = {}

    def run_node(self, node):
        result = super().run_node(node)
        if isinstance(result, torch.Tensor):
            self.meta[node.name] = {"shape": list(result.shape), "dtype": str(result.dtype).removeprefix("torch.")}
        return result


def recorded_meta(module, inputs):
    recorder = Recorder(copy.deepcopy(module))
    with torch.no_grad():
        recorder.run(*copy.deepcopy(inputs))
    return recorder.meta


def type_of(module):
    name = type(module).__name__
    if type(module).__module__.startswith("torch.nn.modules") and getattr(torch.nn, name, None) is type(module):
        return f"torch.nn.{name}"
    return f"{type(module).__module__}.{type(module).__qualname__}"


def config_of(module):
    """The constructor's arguments that the module keeps under their own names."""
    if type(module) is torch.nn.Module:
        return {}
    config = {}
    for name in inspect.signature(type(module).__init__).parameters:
        if name == "bias" and "bias" in module._parameters:
            config[name] = module.bias is not None
        elif name != "self" and name in vars(module):
            config[name] = encode(getattr(module, name))
    return config


def bytes_of(tensor):
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def export(module, inputs, name="graph"):
    """A document of a GraphModule; its shapes are those for these inputs."""
    meta = recorded_meta(module, inputs)
    nodes = []
    for node in module.graph.nodes:
        target = node.target if isinstance(node.target, str) else qualified_name(node.target)
        entry = {"name": node.name, "op": node.op, "target": target, "args": [encode(item) for item in node.args]}
        entry["kwargs"] = {key: encode(item) for key, item in node.kwargs.items()}
        entry["meta"] = meta.get(node.name, {}) if node.op != "output" else {}
        nodes.append(entry)

    called = {node.target for node in module.graph.nodes if node.op == "call_module"}
    read = {node.target for node in module.graph.nodes if node.op == "get_attr"}
    modules, tensors, names = [], [], {}

    def tensor_name(owner, tensor, is_parameter):
        if tensor is None:
            return None
        if id(tensor) not in names:
            names[id(tensor)] = owner
            entry = {"name": owner, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
            if tensor.requires_grad != (is_parameter and tensor.is_floating_point()):
                entry["requires_grad"] = tensor.requires_grad
            entry["data"] = base64.b64encode(bytes_of(tensor)).decode()
            tensors.append(entry)
        return names[id(tensor)]

    for path, child in module.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        attributes = {
            target.rpartition(".")[2]: encode(getattr(child, target.rpartition(".")[2]))
            for target in sorted(read)
            if target.rpartition(".")[0] == path and target.rpartition(".")[2] in vars(child)
        }
        if path and path not in called and not child._parameters and not child._buffers and not attributes:
            continue
        entry = {"path": path, "type": type_of(child) if path else "torch.nn.Module"}
        entry["config"] = config_of(child) if path else {}
        for member, owned in (("parameters", child._parameters), ("buffers", child._buffers)):
            entry[member] = {key: tensor_name(prefix + key, value, member == "parameters") for key, value in owned.items()}
        if child._non_persistent_buffers_set:
            entry["non_persistent"] = sorted(child._non_persistent_buffers_set)
        if attributes:
            entry["attributes"] = attributes
        entry["training"] = child.training
        modules.append(entry)
    return {"format": "foldback.graph/1", "name": name, "nodes": nodes, "modules": modules, "tensors": tensors}


# ---- recipes --------------------------------------------------------------------------------------------------------------


def round_once(values, dtype):
    """float64 to a narrower dtype, to nearest even. PyTorch rounds to float32 on the way to the 16-bit types; here that step
    rounds to odd, which the next one cannot tell from the exact value (Boldo and Melquiond 2008)."""
    if dtype not in (torch.float16, torch.bfloat16):
        return values.to(dtype)
    exact = values.numpy()
    with numpy.errstate(over="ignore"):
        narrow = exact.astype(numpy.float32)
    inexact = narrow.astype(numpy.float64) != exact
    too_far = inexact & (numpy.abs(narrow.astype(numpy.float64)) > numpy.abs(exact))
    narrow = numpy.where(too_far, numpy.nextafter(narrow, numpy.float32(0)), narrow)
    bits = narrow.view(numpy.uint32) | (inexact & ~numpy.isnan(exact)).astype(numpy.uint32)
    return torch.from_numpy(bits.view(numpy.float32)).to(dtype)


def is_movement(expression):
    return isinstance(expression, str) or (expression["op"] in MOVEMENTS and all(map(is_movement, expression["args"])))


def evaluate(expression, tensor, dtype):
    """`tensor` gives a tensor by name; everything is computed in `dtype`."""
    if isinstance(expression, str):
        return tensor(expression).to(dtype)
    op = expression["op"]
    args = [evaluate(item, tensor, dtype) for item in expression["args"]]
    if op == "full":
        return torch.full(expression["shape"], decode(expression["value"]), dtype=dtype)
    if op == "concat":
        return torch.cat(args, expression["axis"])
    if op == "slice":
        return args[0].narrow(expression["axis"], expression["start"], expression["stop"] - expression["start"])
    if op == "reshape":
        return args[0].reshape(expression["shape"])
    if op == "permute":
        return args[0].permute(expression["dims"])
    return getattr(torch, op)(*args)


class Tensors:
    """The tensors of a document by name, each computed at most once."""

    def __init__(self, document):
        self.entries = {entry["name"]: entry for entry in document["tensors"]}
        self.known = {}

    def __getitem__(self, name):
        if name not in self.known:
            self.known[name] = self.make(self.entries[name])
            assert list(self.known[name].shape) == self.entries[name]["shape"], name
        return self.known[name]

    def make(self, entry):
        dtype = getattr(torch, entry["dtype"])
        if "recipe" not in entry:
            flat = torch.frombuffer(bytearray(base64.b64decode(entry["data"])) or bytearray(16), dtype=dtype)
            return flat[: math.prod(entry["shape"])].reshape(entry["shape"]).clone()
        if is_movement(entry["recipe"]):
            return evaluate(entry["recipe"], self.__getitem__, dtype).clone()
        return round_once(evaluate(entry["recipe"], self.__getitem__, torch.float64), dtype)


# ---- to torch.fx ----------------------------------------------------------------------------------------------------------


def make_module(entry):
    if entry["type"] == "torch.nn.Module":
        return torch.nn.Module()
    return resolve(entry["type"])(**{key: decode(value) for key, value in entry["config"].items()})


def load(document):
    """A GraphModule that computes what the document says."""
    tensors, parameters = Tensors(document), {}
    owned = {name for entry in document["modules"] for name in entry["parameters"].values()}
    root = torch.nn.Module()
    for entry in document["modules"]:
        path, made = entry["path"], make_module(entry)
        for key, name in entry["parameters"].items():
            if name is not None and name not in parameters:
                default = getattr(torch, tensors.entries[name]["dtype"]).is_floating_point and name in owned
                requires_grad = tensors.entries[name].get("requires_grad", default)
                parameters[name] = torch.nn.Parameter(tensors[name], requires_grad)
            expected = made._parameters.get(key)
            if path and entry["type"].startswith("torch.nn.") and key in made._parameters:
                assert (expected is None) == (name is None), f"{path}.{key}: config and parameter differ"
                assert name is None or expected.shape == parameters[name].shape, f"{path}.{key}: config and shape differ"
            made.register_parameter(key, parameters.get(name))
        for key, name in entry["buffers"].items():
            persistent = key not in entry.get("non_persistent", [])
            made.register_buffer(key, None if name is None else tensors[name], persistent)
        for key, value in entry.get("attributes", {}).items():
            setattr(made, key, decode(value))
        made.training = entry["training"]
        if not path:
            root = made
            continue
        parent = root
        for part in path.split(".")[:-1]:
            if part not in parent._modules:
                parent.add_module(part, torch.nn.Module())
            parent = parent._modules[part]
        last = path.rpartition(".")[2]
        for key, child in parent._modules.get(last, torch.nn.Module())._modules.items():  # children that came first
            made.add_module(key, child)
        parent.add_module(last, made)

    graph, nodes = torch.fx.Graph(), {}
    for entry in document["nodes"]:
        args = tuple(decode(item, nodes) for item in entry["args"])
        kwargs = {key: decode(item, nodes) for key, item in entry["kwargs"].items()}
        target = resolve(entry["target"]) if entry["op"] == "call_function" else entry["target"]
        node = graph.create_node(entry["op"], target, args, kwargs, name=entry["name"])
        assert node.name == entry["name"], f"torch.fx calls {entry['name']} {node.name}"
        nodes[entry["name"]] = node
    graph.lint()
    return torch.fx.GraphModule(root, graph)
