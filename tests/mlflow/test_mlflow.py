"""foldback beside a real `mlflow server` on SQLite: aliases are mirrored both ways, whatever happens to either side.

FOLDBACK_MLFLOW_ACTS (200) and FOLDBACK_MLFLOW_KILLS (20) say how long the random test is, FOLDBACK_MLFLOW_SEED (1) draws
another; FOLDBACK_MLFLOW_SHORT=1 makes it 40 acts and 4 kills."""

import base64
import http.client
import json
import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import mlflow
import numpy
import pandas
import pytest
import safetensors.torch
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "api"))

import mlflow.webhooks.delivery as mlflow_delivery
import receivers
from conftest import Service
from documents import branches
from mlflow import MlflowClient
from mlflow.entities.webhook import WebhookEvent
from mlflow.exceptions import MlflowException
from ports import free_port

import foldback
import foldback.mlflow as mirroring
from foldback.mlflow import Change, Mirror, register

ROOT = pathlib.Path(__file__).resolve().parents[2]
IS_SHORT = "FOLDBACK_MLFLOW_SHORT" in os.environ
ACTS = int(os.environ.get("FOLDBACK_MLFLOW_ACTS", "40" if IS_SHORT else "200"))
KILLS = int(os.environ.get("FOLDBACK_MLFLOW_KILLS", "4" if IS_SHORT else "20"))
SEED = int(os.environ.get("FOLDBACK_MLFLOW_SEED", "1"))
COMMAND = [sys.executable, "-c", "from foldback.command import main; main()", "mlflow"]  # as the console script of a wheel
PASSES = ["MergeLinears", "ChangeTrueDivToMulByInverse"]


class Tracking:
    """mlflow server, with its registry in a file."""

    def __init__(self, folder):
        self.folder, self.process = folder, None
        self.key = base64.urlsafe_b64encode(os.urandom(32)).decode()  # of the secrets in its database
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self):
        command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db",
                   "--host", "127.0.0.1",
                   "--port", str(self.port), "--workers", "1", "--artifacts-destination", str(self.folder / "artifacts")]
        environment = os.environ | {
            "MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY": self.key, "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http",
            "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
            "MLFLOW_WEBHOOK_CACHE_TTL": "1", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        }
        with open(self.folder / "mlflow.log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)
        deadline = time.monotonic() + 600
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
        return {alias: self.registry.get_model_version(self.model, number).tags["foldback.graph"]
                for alias, number in aliases.items()}

    def agree(self):
        assert self.ours() == self.theirs()
        assert self.sync() == [], "there was something left to do"
        return self.ours()


@pytest.fixture
def both(tmp_path, tracking, request):
    service = Service(tmp_path / "data").start()
    yield Both(service, tracking, "bert-" + re.sub("[^a-z0-9]+", "-", request.node.name))
    service.kill()


def command_line(*words):
    begun = time.monotonic()
    done = subprocess.run([*COMMAND, "sync", *words], capture_output=True, text=True, timeout=600)
    return done, time.monotonic() - begun


@pytest.mark.parametrize("is_mute", [False, True])
def test_mlflow_that_does_not_answer_is_said_at_once(both, is_mute):
    """Nobody listens, or somebody takes the connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1] if is_mute else free_port()
        address = f"http://127.0.0.1:{port}"
        done, took = command_line("any", "--server", both.service.url, "--mlflow", address)
    assert done.returncode == 1 and done.stdout == "" and f"no MLflow answers at {address}" in done.stderr
    assert "Traceback" not in done.stderr and took < 60  # MLflow's own client goes on for minutes


def test_foldback_that_does_not_answer_is_said_at_once(both):
    address = f"http://127.0.0.1:{free_port()}"
    done, took = command_line("any", "--server", address, "--mlflow", both.tracking.url)
    assert done.returncode == 1 and f"no service answers at {address}" in done.stderr and took < 60


def test_a_model_that_neither_side_has(both):
    done, _ = command_line(both.model, "--server", both.service.url, "--mlflow", both.tracking.url)
    assert done.returncode == 1 and f"{both.model}: neither foldback nor MLflow has a model of this name" in done.stderr
    assert list(both.client.models()) == [] and both.registry.search_registered_models(f"name = '{both.model}'") == []


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
    assert (str(theirs.version) == "3" and theirs.tags["foldback.run"] == without["run"]
            and theirs.description == "2-without-MergeLinears")
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
    assert both.sync() == [Change("mlflow", "unknown", "champion", "1", "2"),
                           Change("mlflow", "unnameable", "with.dots", None, "1")]
    assert both.ours()["champion"] == graph
    tagged = both.registry.create_model_version(both.model, "s3://bucket/other", tags={"foldback.graph": "sha256:" + "0" * 64})
    both.registry.set_registered_model_alias(both.model, "champion", tagged.version)
    assert ("unknown", "champion") in {(change.action, change.name) for change in both.sync()}


def test_a_name_that_foldback_cannot_hold_stops_no_other(both):
    graph = both.client.put_graph(branches(2, "known"))
    number = register(both.client, both.registry, both.model, graph)
    beyond = ["\u00e4lteste", "v\u00b2", "a" * 201, "\u212aelvin"]
    for alias in (*beyond, "-", "v1a", "zuletzt"):
        both.registry.set_registered_model_alias(both.model, alias, number)
    for _ in range(2):  # each time, as with those of the other side
        unnameable = {change.name for change in both.sync() if change.action == "unnameable"}
        assert unnameable == set(beyond)
    assert both.ours() == dict.fromkeys(("-", "v1a", "zuletzt"), graph)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_version_deleted_under_its_alias_loses_no_alias(both, monkeypatch, is_killed):
    graph = both.client.put_graph(branches(2, "deployed"))
    both.client.put_version(both.model, "1", graph=graph)
    both.client.deploy(both.model, "champion", "1")
    both.sync()
    both.registry.delete_model_version(both.model, "1")
    assert not both.theirs(), "MLflow deletes the alias with its version"
    if is_killed:  # when the version is there again, and its alias is not
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Mirror, "_mirror_aliases", lambda *ignored: (_ for _ in ()).throw(KeyboardInterrupt))
            both.sync()
    both.sync()
    assert both.agree() == {"champion": graph}
    both.registry.delete_registered_model_alias(both.model, "champion")
    both.sync()
    assert both.agree() == {}, "one that was deleted by itself is deleted on both sides"


def test_the_command_line(both):
    graph = both.client.put_graph(branches(2, "x"))
    both.client.put_version(both.model, "1", graph=graph)
    both.client.deploy(both.model, "champion", "1")
    command = [*COMMAND, "sync", both.model, "--server", both.service.url, "--mlflow", both.tracking.url]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert [json.loads(line)["action"] for line in done.stdout.splitlines()] == ["version", "alias"]
    assert both.agree() == {"champion": graph}
    both.service.kill()
    assert subprocess.run(command, capture_output=True).returncode == 1


# ---- webhooks


def wait_until(holds, seconds=60):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture
def listening(both):
    """`foldback mlflow sync --listen`, which never looks by itself, and the webhooks of both sides that lead to it."""
    both.service.stop()
    both.service.options = [*receivers.OPTIONS, *both.service.options]
    both.service.start()
    both.connect()
    both.registry.create_registered_model(both.model)
    both.sync()
    secrets = {"MLFLOW_WEBHOOK_SECRET": "of mlflow, in any characters",
               "FOLDBACK_WEBHOOK_SECRET": "whsec_" + base64.b64encode(os.urandom(32)).decode()}
    command = [*COMMAND, "sync", both.model, "--server", both.service.url, "--mlflow", both.tracking.url, "--listen",
               "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | secrets)
    port = json.loads(process.stdout.readline())["listening"]
    receivers.make_webhook(both.service, f"http://127.0.0.1:{port}/", secret=secrets["FOLDBACK_WEBHOOK_SECRET"])
    hook = both.registry.create_webhook(
        f"to-{both.model}", f"http://127.0.0.1:{port}/",
        list(map(WebhookEvent.from_str, ("model_version_alias.created", "model_version_alias.deleted"))),
        secret=secrets["MLFLOW_WEBHOOK_SECRET"],
    )
    yield process
    both.registry.delete_webhook(hook.webhook_id)
    process.terminate()
    process.wait()
    process.stdout.close()


def test_webhooks_of_both_sides(both, listening):
    graph = both.client.put_graph(branches(2, "heard"))
    for version in ("1", "2"):
        both.client.put_version(both.model, version, graph=graph)
    both.client.deploy(both.model, "champion", "1", who="ci")
    wait_until(lambda: both.registry.get_registered_model(both.model).aliases.get("champion") == "1")
    wait_until(lambda: len(both.registry.search_model_versions(f"name = '{both.model}'")) == 2)
    both.registry.set_registered_model_alias(both.model, "champion", "2")
    wait_until(lambda: both.client.alias(both.model, "champion")["version"] == "2")
    both.registry.delete_registered_model_alias(both.model, "champion")
    wait_until(lambda: both.ours() == {})
    assert listening.poll() is None


def test_a_signed_message_that_is_nested_and_connections_that_drip(monkeypatch):
    from foldback.mlflow import listener as module

    monkeypatch.setattr(module, "PATIENCE", 2)
    key, slow = "of mlflow", []
    listener = mirroring.Listener("127.0.0.1", 0, mlflow_secret=key)
    try:
        for body, status in ((b'{"data": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", 401),
                             (b'{"data": {"name": "bert"}}', 204)):
            at = str(int(time.time()))
            signature = mlflow_delivery._generate_hmac_signature(key, "id", at, body.decode())
            headers = {"X-MLflow-Delivery-Id": "id", "X-MLflow-Timestamp": at, "X-MLflow-Signature": signature}
            connection = http.client.HTTPConnection("127.0.0.1", listener.port, timeout=60)
            connection.request("POST", "/", body, headers)
            assert connection.getresponse().status == status
        for number in range(3 * module.CONNECTIONS):
            slow.append(socket.create_connection(("127.0.0.1", listener.port), timeout=60))
            slow[-1].sendall(b"POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\n" if number % 2 else b"POST / HT")
        with pytest.raises(OSError):
            for _ in range(600):  # a byte now and then holds it no longer
                slow[-1].sendall(b"x")
                time.sleep(0.1)
        assert threading.active_count() < module.CONNECTIONS + 20
        assert listener.wait(10) == {"bert"}
    finally:
        listener.close()
        for one in slow:
            one.close()


def test_messages_that_nobody_signed():
    key = "of mlflow"
    listener = mirroring.Listener("127.0.0.1", 0, mlflow_secret=key)
    body = (b'{"entity": "model_version_alias", "action": "created", "data": {"name": "bert", "alias": "champion", "version": '
            b'"1"}}')

    def headers(secret=key, at=None, text=body, message="id"):
        at = str(int(time.time()) if at is None else at)
        return {
            "X-MLflow-Delivery-Id": message, "X-MLflow-Timestamp": at,
            "X-MLflow-Signature": mlflow_delivery._generate_hmac_signature(secret, "id", at, text.decode()),
        }

    def post(given, sent=body):
        request = urllib.request.Request(f"http://127.0.0.1:{listener.port}/", sent, given, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    own = {"webhook-id": "id", "webhook-timestamp": str(int(time.time()))}
    refused = [
        {}, headers("another"), headers(at=time.time() - 3600), headers(at=time.time() + 3600), headers(message="another id"),
        headers(text=b"{}"),
        {**headers(), "X-MLflow-Signature": "v1,"}, {**headers(), "X-MLflow-Signature": "v1,%%%"},
        {**headers(), "X-MLflow-Signature": ""},
        {**headers(), "X-MLflow-Timestamp": "soon"},
        {**own, "webhook-signature": receivers.signature("whsec_AAAA", "id", own["webhook-timestamp"], body)},
    ]
    for given in refused:
        assert post(given) == 401, given
    assert post(headers(), body + b" ") == 401
    connection = http.client.HTTPConnection("127.0.0.1", listener.port, timeout=10)
    connection.putrequest("POST", "/")
    connection.putheader("Content-Length", str(1 << 21))
    connection.endheaders()  # it is refused before it is sent
    assert connection.getresponse().status == 413
    connection.close()
    assert listener.wait(0) == set()
    assert post(headers()) == 204
    assert listener.wait(10) == {"bert"} and listener.wait(0) == set()
    assert post(headers(text=b"[1]"), b"[1]") == 204 and listener.wait(0) == set()
    listener.close()
    with pytest.raises(ValueError, match="needs the secret"):
        mirroring.Listener("127.0.0.1", 0)
    with pytest.raises(ValueError, match="whsec_ and base64"):
        mirroring.Listener("127.0.0.1", 0, foldback_secret="whsec_A")


# ---- what MLflow loads


@pytest.fixture
def loading(both, monkeypatch):
    monkeypatch.setenv("FOLDBACK_SERVER", both.service.url)
    mlflow.set_tracking_uri(both.tracking.url)
    mlflow.set_registry_uri(both.tracking.url)
    return both


class Heads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(8, 4) for _ in range(3))

    def forward(self, x, scale):
        return self.q(x) / 2, {"k": self.k(x), "v": (self.v(x) * scale, None)}


def deployed(both, source):
    """Deploys what the passes make of a graph, and its plain version, and mirrors it."""
    run = both.client.optimize(source, PASSES)
    assert all(one["applied"] for one in run["passes"])
    both.client.put_version(both.model, "1", graph=run["source"])
    both.client.put_version(both.model, "2", run=run["id"])
    both.client.deploy(both.model, "champion", "2")
    both.sync()
    return run


def load(both):
    return mlflow.pyfunc.load_model(f"models:/{both.model}@champion")


def test_an_archive_is_loaded(loading):
    model = Heads().eval()
    x, scale = torch.randn(2, 8), torch.randn(2, 1)
    expected = model(x, scale)
    run = deployed(loading, loading.client.put_archive(torch.export.export(model, (x,), {"scale": scale}), progress=False))
    found = load(loading)
    names = [name for name, _ in found.get_raw_model().named_parameters()]
    assert any("merged" in name for name in names), names  # it is what foldback made
    for given in ([x.numpy(), scale.numpy()], {"scale": scale.numpy().astype("float64"), "x": x}):
        q, rest = found.predict(given)
        assert rest["v"][1] is None and isinstance(q, numpy.ndarray)
        for one, other in zip((q, rest["k"], rest["v"][0]), (expected[0], expected[1]["k"], expected[1]["v"][0]), strict=True):
            numpy.testing.assert_allclose(one, other.detach().numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="scale is missing"):
        found.predict([x.numpy()])
    # rolled back in foldback: the same name loads the original
    loading.client.rollback_alias(loading.model, "champion", passes=PASSES)
    loading.sync()
    names = [name for name, _ in load(loading).get_raw_model().named_parameters()]
    assert "q.weight" in names and loading.client.alias(loading.model, "champion")["graph"] == run["source"]


def test_a_document_and_its_weights_are_loaded(loading, tmp_path):
    class Pair(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k = torch.nn.Linear(8, 4), torch.nn.Linear(8, 4)

        def forward(self, x):
            return self.q(x) / 2 + self.k(x)

    model = Pair().eval()
    x = torch.randn(3, 8)
    live = torch.fx.symbolic_trace(model)
    safetensors.torch.save_file(model.state_dict(), tmp_path / "model.safetensors")
    source = loading.client.bind(foldback.fx.to_document(live, x), tmp_path / "model.safetensors", progress=False)["id"]
    deployed(loading, source)
    found = load(loading)
    assert (hasattr(found.get_raw_model(), "graph") and [name for name, _ in found.get_raw_model().named_parameters()]
            != [name for name, _ in live.named_parameters()])
    for given in (x.numpy(), x.numpy().astype("float64"), pandas.DataFrame(x.numpy())):
        numpy.testing.assert_allclose(found.predict(given), model(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    for wrong, said in (({"y": x.numpy()}, "no input y"), ([x.numpy()] * 2, "takes 1"),
                        (x.numpy() > 0, "x is float32, and bool")):
        with pytest.raises((TypeError, ValueError), match=said):
            found.predict(wrong)


@pytest.fixture
def onnx_folder(tmp_path):
    """A model with two files beside it, as the flavour `onnx` of MLflow has them."""
    folder, given = tmp_path / "model", ROOT / "tests" / "fixtures" / "onnx"
    for name, source in (("model.onnx", "external-two-files.onnx"), ("two.data",) * 2, ("weights/one.bin",) * 2):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((given / source).read_bytes())
    description = mlflow.models.Model()
    description.add_flavor("onnx", data="model.onnx", onnx_version="1.23.2", providers=["CPUExecutionProvider"])
    description.save(folder / "MLmodel")
    return folder


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*")
            if path.is_file() and path.name not in ("MLmodel", "registered_model_meta")}


def test_an_onnx_model_of_foldback(loading, onnx_folder, tmp_path):
    """Its own bytes, under the flavour that MLflow loads such a model by."""
    graph = loading.client.put_onnx(onnx_folder, progress=False)
    loading.client.put_version(loading.model, "1", graph=graph)
    loading.client.deploy(loading.model, "champion", "1")
    loading.sync()
    (tmp_path / "back").mkdir()
    back = mlflow.artifacts.download_artifacts(f"models:/{loading.model}@champion", dst_path=str(tmp_path / "back"))
    assert contents(pathlib.Path(back)) == contents(onnx_folder)
    flavours = mlflow.models.Model.load(back).flavors
    assert flavours["onnx"]["data"] == "model.onnx"
    assert (flavours["python_function"]["loader_module"], flavours["python_function"]["data"]) == ("mlflow.onnx", "model.onnx")


def test_an_onnx_model_of_mlflow(loading, onnx_folder):
    """A version that knows nothing of foldback; one of another flavour stays MLflow's own."""
    registry = loading.registry
    registry.create_registered_model(loading.model)
    run = registry.create_run("0")
    other = mlflow.models.Model()
    other.add_flavor("sklearn", pickled_model="model.pkl")
    (onnx_folder.parent / "other").mkdir()
    other.save(onnx_folder.parent / "other" / "MLmodel")
    for folder, name in ((onnx_folder, "net"), (onnx_folder.parent / "other", "other")):
        registry.log_artifacts(run.info.run_id, str(folder), name)
        registry.create_model_version(loading.model, f"{run.info.artifact_uri}/{name}", run.info.run_id, await_creation_for=0)
    registry.set_registered_model_alias(loading.model, "champion", "1")
    assert [(change.side, change.action, change.name) for change in loading.sync()] == [
        ("foldback", "version", "1"), ("foldback", "alias", "champion")]
    graph = loading.client.put_onnx(onnx_folder, progress=False)
    assert loading.agree() == {"champion": graph}
    assert [row["version"] for row in loading.client.versions(loading.model)] == ["1"]


def test_what_cannot_be_loaded_is_said(loading):
    """A graph without weights; a source that is none of foldback's."""
    loading.client.put_version(loading.model, "1", graph=loading.client.put_graph(branches(2, "no weights")))
    loading.client.deploy(loading.model, "champion", "1")
    loading.sync()
    with pytest.raises(MlflowException, match="bytes-missing|[Ww]eights|bytes"):
        load(loading)
    for source in ("foldback:/models/x", "foldback://host/models/x/versions/1", "foldback:/graphs/xyz"):
        with pytest.raises(MlflowException, match="neither"):
            mlflow.artifacts.list_artifacts(source)


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
    # True: of MLflow, which starts slowly
    kills = {act: number % 5 == 0 for number, act in enumerate(rng.sample(range(ACTS), KILLS))}

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
            # 400: a rollback of an alias that is not there; unknown-pass: the graph was made without that one
            assert problem.status in (400, 404, 409, 428) or problem.code == "unknown-pass", problem
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
    print(f"{len(done)} acts of {ACTS} did something ({', '.join(sorted(set(done)))}), {len(kills)} kills, {agreed} "
          f"agreements, {len(ours)} versions")
    assert len(done) > ACTS // 3 and agreed > ACTS // 10 and mirroring.Mirror is Mirror
