"""python -m foldback export my.module:build -o graph.json"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from typing import Any


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `python -m foldback export my.module:build -o graph.json`, and returns 0. `argv` replaces the arguments of the
    command line. Wrong usage raises SystemExit; what the user's function raises is passed on."""
    parser = argparse.ArgumentParser(prog="python -m foldback", description="PyTorch models as foldback's graph documents")
    verbs = parser.add_subparsers(required=True, metavar="export")
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
    options = parser.parse_args(argv)

    document = _document(options.build, options.name, options.data)
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    if options.output is None:
        sys.stdout.write(text + "\n")
    else:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    return 0


def _document(build: str, name: str | None, data: bool) -> dict[str, Any]:
    from .export import from_module, traced

    module, _, function = build.partition(":")
    if not function:
        raise SystemExit(f"{build} names no function: say module:function")
    sys.path.insert(0, "")
    made = getattr(importlib.import_module(module), function)()
    if not isinstance(made, tuple):
        return traced(made, name=name, data=data)
    model, args, kwargs = (*made, {})[:3]
    return from_module(model, *args, name=name, data=data, **kwargs)


if __name__ == "__main__":
    sys.exit(main())
