"""foldback mlflow sync MODEL…"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence

from ..client import Client
from .listener import Listener
from .mirror import Mirror

PAUSE = 5.0  # seconds, after a failure
PATIENCE = 8.0  # seconds, until MLflow answers anything


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `foldback mlflow sync MODEL…`. Without --every and --listen it mirrors once, and returns 1 if that failed for a
    model, else 0; with one of them it goes on until it is interrupted. Wrong usage raises SystemExit."""
    parser = argparse.ArgumentParser(prog="foldback mlflow", description="foldback beside the model registry of MLflow")
    verbs = parser.add_subparsers(required=True, metavar="sync")
    verb = verbs.add_parser(
        "sync",
        help="mirror the aliases of models, both ways",
        description="Mirrors the aliases of models, both ways, and prints a line of JSON for each change. The token of "
                    "foldback is "
        "$FOLDBACK_TOKEN; the secrets of webhooks are $MLFLOW_WEBHOOK_SECRET and $FOLDBACK_WEBHOOK_SECRET.",
    )
    verb.add_argument("model", nargs="+")
    verb.add_argument("--server", metavar="URL", help="foldback ($FOLDBACK_SERVER, or http://127.0.0.1:8080)")
    verb.add_argument("--mlflow", metavar="URI", help="MLflow's tracking server ($MLFLOW_TRACKING_URI)")
    verb.add_argument("--every", type=float, metavar="SECONDS",
                      help="look again, with such pauses; without --every and --listen, once")
    verb.add_argument("--listen", metavar="HOST:PORT", help="take webhooks of both sides here, and look when one comes")
    verb.add_argument("--prefer", choices=["foldback", "mlflow"], default="foldback",
                      help="who counts when both have moved an alias (%(default)s)")
    options = parser.parse_args(argv)

    from mlflow import MlflowClient, get_tracking_uri

    client = Client(options.server or os.environ.get("FOLDBACK_SERVER") or "http://127.0.0.1:8080")
    registry = MlflowClient(options.mlflow)
    address = options.mlflow or get_tracking_uri()
    mirrors = {model: Mirror(client, registry, model, prefer=options.prefer) for model in options.model}
    listener = None
    if options.listen is not None:
        host, _, port = options.listen.rpartition(":")
        if not host or not port.isdecimal():
            parser.error(f"--listen is HOST:PORT, not {options.listen}")
        secrets = {f"{side}_secret": os.environ.get(f"{side.upper()}_WEBHOOK_SECRET") for side in ("mlflow", "foldback")}
        try:
            listener = Listener(host.strip("[]"), int(port), **secrets)
        except (ValueError, OSError) as error:
            parser.error(f"--listen: {error}")
        print(json.dumps({"listening": listener.port}), flush=True)
    due = set(mirrors)
    while True:
        is_there = _answers(address)
        failed = {model for model in sorted(due) if not (is_there and _sync(mirrors[model]))}
        if listener is None and options.every is None:
            return int(bool(failed))
        pause = min(PAUSE, options.every or PAUSE) if failed else options.every
        if listener is None:
            time.sleep(pause)
            due = set(mirrors)
        else:
            told = listener.wait(pause)
            due = (told & set(mirrors)) | failed if told else failed or set(mirrors)


def _answers(address: str) -> bool:
    """Checks that something answers there, and says so where nothing does. MLflow's own client tries for minutes."""
    if not address.startswith(("http://", "https://")):
        return True
    try:
        urllib.request.urlopen(f"{address.rstrip('/')}/health", timeout=PATIENCE).close()
    except urllib.error.HTTPError:
        pass
    except OSError as failure:
        reason = getattr(failure, "reason", failure)
        if not isinstance(reason, ssl.SSLError):  # MLflow has settings of its own for certificates
            said = f"foldback mlflow: no MLflow answers at {address}: {reason}. Start mlflow server, or give --mlflow"
            print(said, file=sys.stderr, flush=True)
            return False
    return True


def _sync(mirror: Mirror) -> bool:
    try:
        for change in mirror.sync():
            print(json.dumps({"model": mirror.model, **change.__dict__}), flush=True)
    except Exception as failure:
        print(f"foldback mlflow: {mirror.model}: {failure}", file=sys.stderr, flush=True)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
