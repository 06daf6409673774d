"""The canonical bytes and the id of a document, from the description of the format alone."""

import hashlib
import json
import math

import torch

LARGEST_PLAIN_INT = 2**53 - 1


def spell(value):
    """Compact JSON; a float keeps its repr."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{spell(key)}:{spell(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(spell, value)) + "]"
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def in_order(members):
    return dict(sorted(members.items(), key=lambda item: item[0].encode()))


def canonical_free(value):
    if isinstance(value, dict):
        return in_order({key: canonical_free(item) for key, item in value.items()})
    return [canonical_free(item) for item in value] if isinstance(value, list) else value


def canonical_value(value):
    if isinstance(value, list):
        return [canonical_value(item) for item in value]
    if isinstance(value, dict):
        ((form, content),) = value.items()
        if form in ("$float", "$int"):
            return canonical_number(float(content) if form == "$float" else int(content))
        if form == "$namedtuple":
            return {form: [content[0], canonical_value(content[1])]}
        return {form: canonical_value(content) if isinstance(content, list) else content}
    return value if value is None or isinstance(value, (bool, str)) else canonical_number(value)


def canonical_number(value):
    """A bare number where no JSON tool would change it."""
    if isinstance(value, int):
        return value if abs(value) <= LARGEST_PLAIN_INT else {"$int": str(value)}
    return {"$float": repr(value)} if not math.isfinite(value) or value.is_integer() else value


def canonical_expression(expression):
    if isinstance(expression, str):
        return expression
    rest = {key: canonical_value(item) for key, item in expression.items() if key not in ("op", "args")}
    return {"op": expression["op"], "args": [canonical_expression(item) for item in expression["args"]]} | in_order(rest)


def arrange(entry, always, sometimes):
    """`always` and `sometimes` map a member to the function that makes it canonical; the rest is free JSON."""
    made = {}
    for name, (default, convert) in (always | sometimes).items():
        if name in entry and (name in always or entry[name] != default):
            made[name] = convert(entry[name])
        elif name in always:
            made[name] = default
    return made | in_order({key: canonical_free(item) for key, item in entry.items() if key not in always | sometimes})


def plain(value):
    return value


def members(value):
    return {key: canonical_value(item) for key, item in value.items()}


def sorted_members(value):
    return in_order(members(value))


def canonical_meta(meta):
    return {key: item for key, item in canonical_free(meta).items() if key != "transformations" or item}


def canonical_node(node):
    always = {"name": (None, plain), "op": (None, plain), "target": (None, plain), "args": ([], canonical_value)}
    made = arrange(
        node,
        always | {"kwargs": ({}, members), "type": (None, plain), "meta": ({}, canonical_meta)},
        {},
    )
    return {key: item for key, item in made.items() if key != "type" or item is not None}


def canonical_module(module):
    order = ["path", "type", "config", "parameters", "buffers", "non_persistent", "attributes", "training", "graph"]
    always = {
        "path": (None, plain),
        "type": (None, plain),
        "config": ({}, sorted_members),
        "parameters": ({}, plain),
        "buffers": ({}, plain),
        "training": (False, plain),
    }
    sometimes = {
        "non_persistent": ([], plain),
        "attributes": ({}, sorted_members),
        "graph": (None, lambda graph: {"nodes": [canonical_node(node) for node in graph["nodes"]]}),
    }
    made = arrange(module, always, sometimes)
    return {key: made[key] for key in order if key in made} | {key: made[key] for key in made if key not in order}


def canonical_tensor(tensor, parameters):
    is_floating = getattr(torch, tensor["dtype"]).is_floating_point
    always = {"name": (None, plain), "dtype": (None, plain), "shape": ([], plain)}
    sometimes = {
        "requires_grad": (is_floating and tensor["name"] in parameters, plain),
        "digest": (None, plain),
        "blob": (None, plain),
        "offset": (0, plain),
        "data": (None, plain),
        "recipe": (None, canonical_expression),
    }
    return arrange(tensor, always, sometimes)


def canonical_bytes(document):
    parameters = {name for module in document["modules"] for name in module.get("parameters", {}).values()}
    made = {
        "format": document["format"],
        "name": document.get("name", ""),
        "nodes": [canonical_node(node) for node in document["nodes"]],
        "modules": [canonical_module(module) for module in document["modules"]],
        "tensors": [canonical_tensor(tensor, parameters) for tensor in document["tensors"]],
        "metadata": canonical_free(document.get("metadata", {})),
    }
    return spell(made).encode()


def identity(document):
    return "sha256:" + hashlib.sha256(canonical_bytes(document)).hexdigest()
