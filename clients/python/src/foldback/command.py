"""The command foldback of an installed wheel."""

from __future__ import annotations

import os
import sys

from .private import ServiceNotStarted, find_binary


def main() -> None:
    """Becomes the program, but for `foldback mlflow` and `foldback hub`, which are Python."""
    if sys.argv[1:2] == ["mlflow"]:
        from .mlflow.__main__ import main as mlflow

        sys.exit(mlflow(sys.argv[2:]))
    if sys.argv[1:2] == ["hub"]:
        from .hub import main as hub

        sys.exit(hub(sys.argv[2:]))
    try:
        binary = find_binary()
    except ServiceNotStarted as error:
        sys.exit(f"foldback: {error}")
    os.execv(binary, ["foldback", *sys.argv[1:]])
