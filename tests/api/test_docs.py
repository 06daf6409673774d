"""Every page's tour can be pasted into a fresh shell as it stands, and prints what the page shows.

A tour is all of a page's ```sh blocks, from top to bottom, in one bash, beside a service with an empty data folder. The folder
it runs in looks like a clone after `make`, and a tour leaves no file in it. What a block prints stands in the ```text or
```json block right after it; a block without one prints nothing.

UPDATE=1 writes what they print into the pages; read the diff. Ids of runs and times differ each time: those that a page shows
stand for those that the service gives.
"""

import os
import re
import shutil
import statistics
import subprocess

import pytest
from conftest import ROOT, binary, without_sandbox
from passes_document import passes_document, readme_table

PAGES = ["README.md", *(f"docs/{page}.md" for page in ("undo", "registry", "weights", "compare", "validation", "rules",
                                                       "layouts", "store", "webhooks", "provenance", "integrations"))]
OPTIONS = {"docs/webhooks.md": ("--webhooks", "--webhook-allow", "127.0.0.0/8", "--webhook-allow-http")}  # of the service
ADDRESS = "localhost:8080"
RUN = re.compile(r"(?:run|hook|msg)_[0-9A-Z]{26}")
TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
BLOCK = re.compile(r"^```sh\n(.*?)^```\n(?:\n```(text|json)\n(.*?)^```\n)?", re.S | re.M)
MARK = "\x1eblock ends\n"
WIDTH = 150  # a longer line makes the reader scroll sideways


def paste(blocks, service, folder):
    """What each block prints, standard error included."""
    folder.mkdir()
    for name, target in {"tests": ROOT / "tests", "build": binary().parent}.items():
        (folder / name).symlink_to(target)
    script = "".join(f"{block}\nprintf '{MARK}'\n" for block in blocks).replace(ADDRESS, f"{service.host}:{service.port}")
    answer = subprocess.run(["bash", "--norc"], input=script, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, timeout=600)
    assert sorted(path.name for path in folder.iterdir()) == ["build", "tests"], "the tour leaves files behind"
    printed = without_sandbox(answer.stdout).replace(f"{service.host}:{service.port}", ADDRESS)
    return [TIME.sub("2026-11-21T09:00:00.000Z", one) for one in printed.split(MARK)[: len(blocks)]]


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="needs curl and jq")
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.heavy
def test_tour(new_service, tmp_path, page):
    service = new_service(*OPTIONS.get(page, ()))
    path = ROOT / page
    text = path.read_text()
    tours = list(BLOCK.finditer(text))
    assert tours
    found = paste([one[1] for one in tours], service, tmp_path / "clone")
    assert len(found) == len(tours)
    names = {}
    for one, printed in zip(tours, found):
        shown = one[3] or ""
        for old, new in zip(RUN.findall(shown), RUN.findall(printed)):
            names.setdefault(new, old)
        printed = RUN.sub(lambda run: names.get(run[0], run[0]), printed)
        if not os.environ.get("UPDATE"):
            assert printed == shown, one[1]
            assert all(len(line) <= WIDTH for line in (one[1] + shown).splitlines()), one[1]
        language = one[2] or ("json" if printed.startswith(("{", "[")) else "text")
        block = f"```sh\n{one[1]}```\n" + (f"\n```{language}\n{printed}```\n" if printed else "")
        text = text.replace(one[0], block, 1)
    if os.environ.get("UPDATE"):
        path.write_text(text)


@pytest.mark.heavy
def test_passes(service):
    """docs/passes.md and README.md's table say what the service says, and README.md names all presets."""
    answer = service.get("/v1/passes").json()
    old = (ROOT / "README.md").read_text()
    head, title, rest = old.partition("## Passes\n\n")
    assert title and rest.startswith("| pass |")
    readme = head + title + readme_table(answer["items"]) + rest[rest.index("\n\n") + 1:]
    for path, text in {ROOT / "docs/passes.md": passes_document(service), ROOT / "README.md": readme}.items():
        if os.environ.get("UPDATE"):
            path.write_text(text)
        assert path.read_text() == text
    for preset in answer["presets"]:
        assert f'`"{preset["name"]}"`' in readme


def test_gain(service):
    """What the service says of a pass's gain follows from what docs/performance.md measured of it."""
    section = (ROOT / "docs/performance.md").read_text().partition("## What each pass saves alone")[2]
    measured = {}
    for name, before, after, gain in re.findall(r"^\| (\w+) \|.*\| (\d+) → (\d+) \| ([\d.]+) \|$", section, re.M):
        measured.setdefault(name, []).append((float(gain), int(after) < int(before)))
    assert len(measured) > 15
    for item in service.get("/v1/passes").json()["items"]:
        rows = measured.pop(item["name"], [])
        if not rows:
            assert item["gain"] == "unmeasured", item["name"]
            continue
        mean = statistics.geometric_mean(gain for gain, _ in rows)
        falls = all(is_less for _, is_less in rows)
        expected = "faster" if mean >= 1.05 else "slower" if mean <= 1 / 1.05 else "fewer-nodes" if falls else "same"
        assert item["gain"] == expected or (item["gain"] == "smaller" and mean < 1.05), (item["name"], mean)
    assert not measured
