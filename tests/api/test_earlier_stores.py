"""A changed pass is a new version and the old one stays, so that runs of earlier services can be undone. tests/fixtures/stores
has stores of earlier services with runs of every pass and preset: opened by this one each run goes back to its source, and
without one of its passes it is the graph that the earlier service gave, or the undo is refused by name."""

import gzip
import json

import pytest
from conftest import ROOT, of_a_file
from full_store import is_clean, lay_out_database
from test_http import is_problem

STORES = sorted(path for path in (ROOT / "tests" / "fixtures" / "stores").iterdir() if path.is_dir())
pytestmark = [of_a_file, pytest.mark.parametrize("place", STORES, ids=lambda place: place.name)]


def runs_of(place):
    return json.loads(gzip.decompress((place / "found.json.gz").read_bytes()))


def undone(service, run, how, **body):
    return service.post(f"/v1/runs/{run['run']}/{how}", body)


@pytest.mark.heavy
def test_each_run_goes_back_to_its_source(place, tmp_path, new_service):
    lay_out_database(place / "store.sql.gz", tmp_path / "data")
    service = new_service(data=tmp_path / "data")
    for run in runs_of(place):
        back = undone(service, run, "rollback")
        assert (back.status, back.json()["result"], back.json()["exact"]) == (201, run["source"], True), (run, back)


@pytest.mark.heavy
def test_each_run_is_undone_in_part(place, tmp_path, new_service):
    lay_out_database(place / "store.sql.gz", tmp_path / "data")
    service = new_service(data=tmp_path / "data")
    for run in runs_of(place):
        for name, (left, why) in run["without"].items():
            back = undone(service, run, "rollback", passes=[name])
            assert back.status == 201 and back.json()["result"].startswith(f"sha256:{left}"), (run, name, back)
            reverse = undone(service, run, "reverse", passes=[name])
            if why:
                is_problem(reverse, 409, why)
            else:
                assert (reverse.status, reverse.json()["result"]) == (201, back.json()["result"]), (run, name, reverse)


def test_each_run_is_what_its_passes_give(place, tmp_path):
    lay_out_database(place / "store.sql.gz", tmp_path / "data")
    answer = is_clean(tmp_path / "data")
    assert answer["replayed"] == answer["runs"] >= len(runs_of(place)) > 200
