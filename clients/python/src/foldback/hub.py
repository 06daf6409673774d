"""Folders of models to the Hugging Face Hub and back, with what foldback did to them.

    huggingface.save(run, "bert-fast", source="bert")
    hub.push("bert-fast", "me/bert-fast", run=run)
    live = huggingface.load(hub.pull("me/bert-fast", "fetched"))

`push` writes down the run first: foldback.provenance.json for programs, a section of the model card for people, and the signed
attestation if the service makes one. `pull` checks each file against it. The hub is that of huggingface_hub: HF_ENDPOINT, and
HF_TOKEN unless a token is given.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import private
from .client import Client, Problem
from .runs import RunOrId

__all__ = ["describe", "pull", "push"]

PROVENANCE, ATTESTATION, CARD = "foldback.provenance.json", "foldback.attestation.json", "README.md"
BEGIN, END = "<!-- foldback: what was done to this model -->", "<!-- foldback: end -->"
_SECTION = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END) + "\n?", re.S)
# No pickles, which would run code. ONNX models have weights beside them, as torch and optimum call these.
_FETCHED = ["*.json", "*.safetensors", "*.md", "*.txt", "*.model", "*.jinja", "*.onnx", "*.data", "*.onnx_data*"]

Path_ = str | os.PathLike[str]


def describe(folder: Path_, run: RunOrId, *, client: Client | None = None) -> dict[str, Any]:
    """Writes down in a folder what a run did: the files of `push`. Gives what foldback.provenance.json says.

    `client` is the service's that made the run; without it, the one that `foldback.connect` or FOLDBACK_SERVER names. Raises
    ValueError if the run has no result."""
    path, asked = Path(folder), client or private.client()
    told = asked.run(run)
    if not told.get("result"):
        raise ValueError(f"the run {told.get('id')} has no result")
    known = ("id", "kind", "source", "result", "exact", "reversible", "preserves_computation", "created")
    passes = [
        {**{key: one[key] for key in ("name", "version", "exactness", "applied") if key in one},
         "refused": len(one.get("refused", []))}
        for one in told["passes"]
    ]
    (path / ATTESTATION).unlink(missing_ok=True)
    try:
        envelope = asked._service.request("GET", f"/v1/runs/{told['id']}/attestation").content
        (path / ATTESTATION).write_bytes(envelope + b"\n")
    except Problem as problem:
        if problem.code not in ("no-signing-key", "not-found"):  # of a service that signs nothing, or of before
            raise
    version = asked._service.json("GET", "/")["version"]
    said = {"run": {key: told[key] for key in known if key in told}, "passes": passes, "foldback": version,
            "files": _digests(path)}
    (path / PROVENANCE).write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    card = path / CARD
    text = card.read_text(encoding="utf-8") if card.exists() else "---\ntags:\n- foldback\n---\n\n"
    card.write_text(_SECTION.sub("", text).rstrip() + "\n\n" + _section(said, (path / ATTESTATION).exists()), encoding="utf-8")
    return said


def push(
    folder: Path_,
    repo: str,
    *,
    run: RunOrId | None = None,
    client: Client | None = None,
    revision: str | None = None,
    message: str | None = None,
    is_private: bool | None = None,
    token: str | None = None,
) -> str:
    """Makes a folder one commit of a repository on the hub, which is made unless it is there; the commit's URL. `run` is what
    made the folder, for `describe`. Raises ValueError if the folder has changed since it was described."""
    path = Path(folder)
    if run is not None:
        describe(path, run, client=client)
    _check(path, str(path))
    hub: Any = importlib.import_module("huggingface_hub")
    api = hub.HfApi(token=token)
    api.create_repo(repo, private=is_private, exist_ok=True)
    commit = api.upload_folder(
        repo_id=repo,
        folder_path=path,
        commit_message=message or f"{path.name}, by foldback",
        revision=revision,
        ignore_patterns=[".*", "*/*"],
        delete_patterns=_FETCHED,  # what another folder left there
    )
    return str(commit.commit_url)


def pull(repo: str, folder: Path_, *, revision: str | None = None, token: str | None = None) -> Path:
    """Fetches a repository of the hub into a new folder, which appears when it is complete, and gives it. Files that would run
    code, such as pickled weights, are left out. ONNX models come with their weights: `client.put_onnx(folder)` takes them.

    Raises FileExistsError if the folder exists and is not empty, and ValueError if a file is not what the repository's
    foldback.provenance.json says."""
    to = Path(os.path.abspath(folder))
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise FileExistsError(f"{to} exists; give a new folder")
    hub: Any = importlib.import_module("huggingface_hub")
    to.parent.mkdir(parents=True, exist_ok=True)
    made = to.parent / f".{to.name}.{secrets.token_hex(4)}"
    try:
        hub.snapshot_download(repo, revision=revision, local_dir=made, allow_patterns=_FETCHED, token=token)
        shutil.rmtree(made / ".cache", ignore_errors=True)  # huggingface_hub's own notes
        _check(made, repo)
        os.rename(made, to)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return to


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `foldback hub pull REPO FOLDER`, and returns 0, or 1 if it failed. Wrong usage raises SystemExit."""
    parser = argparse.ArgumentParser(prog="foldback hub", description="models on the Hugging Face Hub, or a mirror of it")
    verbs = parser.add_subparsers(required=True, metavar="pull")
    verb = verbs.add_parser(
        "pull",
        help="fetch a repository into a new folder",
        description="Fetches a repository of the Hugging Face Hub into a new folder, ONNX models with their weights. Files "
                    "that "
        "would run code stay out. The hub is $HF_ENDPOINT, the token $HF_TOKEN.",
    )
    verb.add_argument("repo", metavar="REPO", help="as me/net")
    verb.add_argument("folder", metavar="FOLDER", help="which must not exist, or be empty")
    verb.add_argument("--revision", help="a branch, a tag or a commit (main)")
    options = parser.parse_args(argv)
    try:
        folder = pull(options.repo, options.folder, revision=options.revision)
    except ImportError:
        print("foldback hub needs huggingface_hub: install the wheel with the extra hub", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:  # those of the hub are OSErrors
        print(f"foldback hub: {error}", file=sys.stderr)
        return 1
    models = sorted(str(path) for path in folder.rglob("*.onnx"))
    print("\n".join(models or [str(folder)]))
    return 0


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))


def _digests(path: Path) -> dict[str, str]:
    """Of the files that a run made or kept."""
    found = {}
    for file in _files(path):
        if file.name not in (PROVENANCE, ATTESTATION, CARD):
            with open(file, "rb") as opened:
                digest = hashlib.sha256()
                while piece := opened.read(1 << 20):
                    digest.update(piece)
            found[file.name] = f"sha256:{digest.hexdigest()}"
    return found


def _check(path: Path, name: str) -> None:
    file = path / PROVENANCE
    if not file.exists():
        return
    said = json.loads(file.read_text(encoding="utf-8")).get("files", {})
    found = _digests(path)
    for one in sorted(said.keys() | found.keys()):
        if said.get(one) != found.get(one):
            what = ("is missing" if one not in found else "is not one of those" if one not in said
                    else "has other bytes than those")
            raise ValueError(f"{name}: {one} {what} that {PROVENANCE} names")


def _section(said: dict[str, Any], is_signed: bool) -> str:
    run = said["run"]
    rows = [
        f"| `{one['name']}` {one.get('version', '')} | {one.get('exactness', '')} | {one.get('applied', '')} | "
        f"{one['refused']} |"
        for one in said["passes"]
    ]
    lines = [
        BEGIN, "", "## What was done to this model", "",
        f"foldback {said['foldback']} made it, by the run `{run['id']}`:", "",
        "| pass | exactness | applied | refused |", "|---|---|---|---|", *rows, "",
        "## Provenance", "",
        f"- source: `{run['source']}`", f"- result: `{run['result']}`",
        f"- kind: {run['kind']}; exact: {'yes' if run.get('exact') else 'no'}",
        f"- files: their digests are in `{PROVENANCE}`; `foldback.hub.pull` checks them",
        *([f"- signed: `foldback verify-attestation {ATTESTATION}`"] if is_signed else []), "", END,
    ]
    return "\n".join(lines) + "\n"
