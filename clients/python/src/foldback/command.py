"""The command foldback of an installed wheel."""

from __future__ import annotations

import importlib
import os
import sys

from .private import ServiceNotStarted, find_binary

# Verbs that are Python, by the words that name them
VERBS = {
    ("mlflow",): ".mlflow.__main__",
    ("hub",): ".hub",
    ("layout", "from-transformers"): ".layouts",
    ("adapter",): ".adapters",
}


def main() -> None:
    """Becomes the program, but for the verbs that are Python."""
    for words, module in VERBS.items():
        if tuple(sys.argv[1 : 1 + len(words)]) == words:
            sys.exit(importlib.import_module(module, __package__).main(sys.argv[1 + len(words) :]))
    try:
        binary = find_binary()
    except ServiceNotStarted as error:
        sys.exit(f"foldback: {error}")
    os.execv(binary, ["foldback", *sys.argv[1:]])
