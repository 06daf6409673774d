"""python -m foldback export my.module:build -o graph.json; python -m foldback convert training.ckpt -o weights.safetensors"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from typing import Any


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `export my.module:build -o graph.json` or `convert FILE -o weights.safetensors`, and returns 0. `argv` replaces the
    arguments of the command line. Wrong usage and a file that cannot be converted raise SystemExit; what the user's function
    raises is passed on."""
    parser = argparse.ArgumentParser(prog="python -m foldback", description="PyTorch models as foldback's graph documents")
    verbs = parser.add_subparsers(required=True, metavar="export|convert", dest="verb")
    export = verbs.add_parser(
        "export",
        help="write a model's document",
        description="Writes the document of the model that a function of yours builds: it gives the model, or (model, args), "
        "or (model, args, kwargs), where the arguments are an example of a call. Without them there are no shapes, and "
        "torch.fx traces the model.",
    )
    export.add_argument("build", metavar="my.module:build", help="the function, as module:function")
    export.add_argument("-o", "--output", metavar="FILE", help="instead of the standard output")
    export.add_argument("--name", help="the graph's name (default: the model's class)")
    export.add_argument("--data", action="store_true", help="put the weights into the document")
    conversion = verbs.add_parser(
        "convert",
        help="take the tensors out of a file of torch.save",
        description="Writes the tensors of a file that torch.save or torch.jit.save wrote (.pt, .bin, .ckpt) as a safetensors "
                    "file. "
        "Steps and states of optimisers stay out. Nothing in the file is run.",
    )
    conversion.add_argument("file", metavar="FILE")
    conversion.add_argument("-o", "--output", metavar="FILE", required=True, help="the safetensors file, which must not exist")
    conversion.add_argument("--key", help="the part to take, where several hold tensors: model, ema.model")
    options = parser.parse_args(argv)
    if options.verb == "convert":
        return _convert(options.file, options.output, options.key)

    document = _document(options.build, options.name, options.data)
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    if options.output is None:
        sys.stdout.write(text + "\n")
    else:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    return 0


def _convert(file: str, output: str, key: str | None) -> int:
    from .convert import convert

    try:
        print(f"{len(convert(file, output, key=key))} tensors written to {output}")
    except (ValueError, OSError) as error:
        raise SystemExit(f"foldback convert: {error}") from None
    return 0


def _document(build: str, name: str | None, data: bool) -> dict[str, Any]:
    module, _, function = build.partition(":")
    if not function:
        raise SystemExit(f"{build} names no function: say module:function")
    from .export import from_module, traced  # with PyTorch

    sys.path.insert(0, "")
    made = getattr(importlib.import_module(module), function)()
    if not isinstance(made, tuple):
        return traced(made, name=name, data=data)
    model, args, kwargs = (*made, {})[:3]
    return from_module(model, *args, name=name, data=data, **kwargs)


if __name__ == "__main__":
    sys.exit(main())
