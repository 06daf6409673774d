"""foldback beside a real `mlflow server` on SQLite: aliases are mirrored both ways, whatever happens to either side.

FOLDBACK_MLFLOW_ACTS (200) and FOLDBACK_MLFLOW_KILLS (20) say how long the random test is, FOLDBACK_MLFLOW_SEED (1) draws another."""

import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "api"))

import foldback
import foldback.mlflow as mirroring
from conftest import Service
from documents import branches
from foldback.mlflow import Change, Mirror, register
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

ACTS = int(os.environ.get("FOLDBACK_MLFLOW_ACTS", "200"))
KILLS = int(os.environ.get("FOLDBACK_MLFLOW_KILLS", "20"))
SEED = int(os.environ.get("FOLDBACK_MLFLOW_SEED", "1"))
PASSES = ["MergeLinears", "ChangeTrueDivToMulByInverse"]


class Tracking:
    """mlflow server, with its registry in a file."""

    def __init__(self, folder):
        self.folder, self.process = folder, None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self):
        command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db", "--host", "127.0.0.1",
                   "--port", str(self.port), "--workers", "1", "--artifacts-destination", str(self.folder / "artifacts")]  # fmt: skip
        with open(self.folder / "mlflow.log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 120
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                    if answer.status == 200:
                        return self
            except OSError:
                pass
            assert time.monotonic() < deadline and self.process.poll() is None, (self.folder / "mlflow.log").read_text()[-3000:]
            time.sleep(0.2)

    def kill(self):
        if self.process:
            os.killpg(self.process.pid, 9)
            self.process.wait()
            self.process = None


@pytest.fixture(scope="module")
def tracking(tmp_path_factory):
    tracking = Tracking(tmp_path_factory.mktemp("mlflow")).start()
    yield tracking
    tracking.kill()


class Both:
    """Both sides, and a model of its own on them."""

    def __init__(self, service, tracking, model):
        self.service, self.tracking, self.model = service, tracking, model
        self.registry = MlflowClient(tracking.url)
        self.connect()

    def connect(self):
        self.client = foldback.Client(self.service.url)

    def sync(self, **options):
        return Mirror(self.client, self.registry, self.model, **options).sync()

    def ours(self):
        """{alias: graph} of foldback."""
        return {row["alias"]: row["graph"] for row in self.client.aliases(self.model)}

    def theirs(self):
        """{alias: graph} of MLflow."""
        aliases = self.registry.get_registered_model(self.model).aliases
        return {alias: self.registry.get_model_version(self.model, number).tags["foldback.graph"] for alias, number in aliases.items()}

    def agree(self):
        assert self.ours() == self.theirs()
        assert self.sync() == [], "there was something left to do"
        return self.ours()


@pytest.fixture
def both(tmp_path, tracking, request):
    service = Service(tmp_path / "data").start()
    yield Both(service, tracking, "bert-" + request.node.name.replace("_", "-"))
    service.kill()


def optimized(both, name):
    return both.client.optimize(branches(2, name), PASSES)


def test_the_story(both):
    """Promote, roll back, take one pass out; both sides restarted in between."""
    plain = both.client.put_graph(branches(2, "bert"))
    run = optimized(both, "bert")
    both.client.put_version(both.model, "1", graph=plain)
    both.client.put_version(both.model, "2", run=run["id"])
    both.client.deploy(both.model, "champion", "1", who="ci")
    both.sync()
    assert both.agree() == {"champion": plain}
    # promoted in MLflow
    both.registry.set_registered_model_alias(both.model, "champion", "2")
    assert both.sync() == [Change("foldback", "alias", "champion", "1", "2")]
    assert both.agree() == {"champion": run["result"]}
    entry = next(iter(both.client.history(both.model, "champion")))
    assert entry["who"] == "mlflow" and "version 2 in MLflow" in entry["why"]
    both.service.restart()
    both.connect()
    both.tracking.kill()
    both.tracking.start()
    assert both.agree() == {"champion": run["result"]}
    # one pass taken out in foldback: a version that MLflow can hold
    without = both.client.rollback_alias(both.model, "champion", passes=["MergeLinears"], who="kim")
    assert without["version"] == "3"
    assert {change.action for change in both.sync()} == {"version", "alias"}
    assert both.agree() == {"champion": without["graph"]}
    theirs = both.registry.get_model_version_by_alias(both.model, "champion")
    assert str(theirs.version) == "3" and theirs.tags["foldback.run"] == without["run"] and theirs.description == "2-without-MergeLinears"
    # rolled back in foldback, and deleted in MLflow
    both.client.rollback_alias(both.model, "champion")
    both.sync()
    assert both.agree() == {"champion": run["result"]}
    both.registry.delete_registered_model_alias(both.model, "champion")
    both.sync()
    assert both.agree() == {}


def test_a_version_that_mlflow_has_first(both):
    graph = both.client.put_graph(branches(2, "theirs"))
    number = register(both.client, both.registry, both.model, graph, description="from a notebook")
    both.registry.set_registered_model_alias(both.model, "champion", number)
    assert [change.action for change in both.sync()] == ["version", "alias"]
    assert both.agree() == {"champion": graph}
    assert both.client.version(both.model, number)["note"] == "from a notebook"


def test_a_number_that_both_sides_gave(both):
    """Before they met: the map of versions tells them apart."""
    ours, theirs = both.client.put_graph(branches(2, "ours")), both.client.put_graph(branches(2, "theirs"))
    both.client.put_version(both.model, "1", graph=ours)
    both.client.deploy(both.model, "ours", "1")
    register(both.client, both.registry, both.model, theirs)
    both.registry.set_registered_model_alias(both.model, "theirs", "1")
    both.sync()
    assert both.agree() == {"ours": ours, "theirs": theirs}
    assert both.client.alias(both.model, "theirs")["version"] == "mlflow-1"


def test_both_have_moved_it(both):
    graphs = [both.client.put_graph(branches(2, str(number))) for number in range(3)]
    for number, graph in enumerate(graphs, 1):
        both.client.put_version(both.model, str(number), graph=graph)
    both.client.deploy(both.model, "champion", "1")
    both.sync()
    for prefer, winner in (("foldback", graphs[1]), ("mlflow", graphs[2])):
        both.client.deploy(both.model, "champion", "2")
        both.registry.set_registered_model_alias(both.model, "champion", "3")
        changes = both.sync(prefer=prefer)
        assert [change.action for change in changes] == ["conflict", "alias"]
        assert both.agree() == {"champion": winner}
        both.client.deploy(both.model, "champion", "1")
        both.sync()


def test_what_cannot_be_followed_is_said(both):
    graph = both.client.put_graph(branches(2, "known"))
    both.client.put_version(both.model, "1", graph=graph)
    both.client.deploy(both.model, "champion", "1")
    both.client.deploy(both.model, "with.dots", "1")
    both.sync()
    both.registry.create_model_version(both.model, "s3://bucket/model")
    both.registry.set_registered_model_alias(both.model, "champion", "2")
    assert both.sync() == [Change("mlflow", "unknown", "champion", "1", "2"), Change("mlflow", "unnameable", "with.dots", None, "1")]
    assert both.ours()["champion"] == graph
    tagged = both.registry.create_model_version(both.model, "s3://bucket/other", tags={"foldback.graph": "sha256:" + "0" * 64})
    both.registry.set_registered_model_alias(both.model, "champion", tagged.version)
    assert ("unknown", "champion") in {(change.action, change.name) for change in both.sync()}


def test_the_command_line(both):
    graph = both.client.put_graph(branches(2, "x"))
    both.client.put_version(both.model, "1", graph=graph)
    both.client.deploy(both.model, "champion", "1")
    command = [sys.executable, "-m", "foldback.mlflow", "sync", both.model, "--server", both.service.url, "--mlflow", both.tracking.url]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert [json.loads(line)["action"] for line in done.stdout.splitlines()] == ["version", "alias"]
    assert both.agree() == {"champion": graph}
    both.service.kill()
    assert subprocess.run(command, capture_output=True).returncode == 1


class Interrupted(Exception):
    pass


class Brittle:
    """MLflow's client, which breaks off before or after one of its calls, as a process that is killed does."""

    def __init__(self, registry, rng):
        self.registry, self.rng = registry, rng

    def __getattr__(self, name):
        call, roll = getattr(self.registry, name), self.rng.random()

        def asked(*arguments, **options):
            if roll < 0.1:
                raise Interrupted
            answer = call(*arguments, **options)
            if roll < 0.2:
                raise Interrupted
            return answer

        return asked


def test_nothing_drifts(both):
    """Random acts on both sides, syncs that are interrupted anywhere, and kills of both servers."""
    rng = random.Random(SEED)
    aliases, count, done = ("champion", "challenger", "shadow"), 0, []
    kills = {act: rng.random() < 0.2 for act in rng.sample(range(ACTS), KILLS)}

    def versions():
        return [row["version"] for row in both.client.versions(both.model)]

    def act():
        nonlocal count
        alias, known = rng.choice(aliases), versions()
        kind = rng.choice(["version", "register", "deploy", "set", "set", "rollback", "pass", "delete", "unset", "nothing"])
        try:
            if kind == "version" or not known:
                count += 1
                both.client.put_version(both.model, f"own-{count}", run=optimized(both, f"g{count}")["id"])
            elif kind == "register":
                count += 1
                register(both.client, both.registry, both.model, both.client.put_graph(branches(2, f"r{count}")))
            elif kind == "deploy":
                both.client.deploy(both.model, alias, rng.choice(known))
            elif kind == "set":
                numbers = [version.version for version in both.registry.search_model_versions(f"name = '{both.model}'")]
                both.registry.set_registered_model_alias(both.model, alias, rng.choice(numbers))
            elif kind == "rollback":
                both.client.rollback_alias(both.model, alias)
            elif kind == "pass":
                both.client.rollback_alias(both.model, alias, passes=[rng.choice(PASSES)])
            elif kind == "delete":
                both.client.delete_alias(both.model, alias)
            elif kind == "unset":
                both.registry.delete_registered_model_alias(both.model, alias)
        except foldback.Problem as problem:
            assert problem.status in (400, 404, 409, 428), problem  # 400: a rollback of an alias that is not there
            return
        except MlflowException as failure:
            assert failure.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"), failure
            return
        done.append(kind)

    both.client.put_version(both.model, "1", graph=both.client.put_graph(branches(2, "first")))
    both.sync()
    agreed = 0
    for number in range(ACTS):
        act()
        if number in kills:
            if kills[number]:
                both.tracking.kill()
                both.tracking.start()
            else:
                both.service.kill()
                both.service.start()
                both.connect()
        if rng.random() < 0.5:
            try:
                Mirror(both.client, Brittle(both.registry, rng), both.model).sync()
            except Interrupted:
                pass
        if rng.random() < 0.3:
            changes = both.sync()
            assert not [change for change in changes if change.action in ("unknown", "unnameable")], changes
            assert both.ours() == both.theirs()
            agreed += 1
    both.sync()
    both.agree()
    # one version of MLflow's for each of foldback's, and with its graph
    ours = {row["version"]: row["graph"] for row in both.client.versions(both.model)}
    theirs = {}
    for version in both.registry.search_model_versions(f"name = '{both.model}'"):
        theirs.setdefault(version.tags["foldback.version"], []).append(version.tags["foldback.graph"])
    assert {name: [graph] for name, graph in ours.items()} == theirs
    print(f"{len(done)} acts of {ACTS} did something ({', '.join(sorted(set(done)))}), {len(kills)} kills, {agreed} agreements, {len(ours)} versions")
    assert len(done) > ACTS // 3 and agreed > ACTS // 10 and mirroring.Mirror is Mirror
