"""What was answered is there after kill -9 and after a graceful stop, and rolls back to where it came from."""

import http.client
import json
import signal
import subprocess
import threading
import time

import documents
import pytest
from conftest import binary, without_sandbox
from documents import COMPOSED, branches, counts
from test_http import is_problem


def check_everything(service, runs):
    for run in runs:
        assert service.get(f"/v1/runs/{run['id']}").json() == run
        for identity in (run["source"], run["result"]):
            assert service.post("/v1/graphs", service.get(f"/v1/graphs/{identity}").body).json()["id"] == identity
        back = service.post(f"/v1/runs/{run['id']}/rollback").json()
        assert back["result"] == run["source"]


@pytest.mark.long
def test_kill_right_after_the_answer(service):
    runs = []
    for name in documents.NAMES:
        answer = service.post("/v1/optimize", documents.document(name), raw_query=[("pass", p) for p in COMPOSED])
        service.kill()
        assert answer.status == 201
        runs.append(answer.json())
        service.start()
    check_everything(service, runs)
    assert {run["source"] for run in runs} == {documents.ids(name)[0] for name in documents.NAMES}


def test_kill_right_after_an_upload(service):
    for i in range(5):
        identity = service.post("/v1/graphs", branches(2 + i)).json()["id"]
        service.kill()
        service.start()
        assert service.get(f"/v1/graphs/{identity}").status == 200
    assert counts(service) == (5, 0)


@pytest.mark.heavy
def test_kill_in_the_middle_of_many(service):
    """Clients write until the service is killed; each of them remembers what it was told."""
    told, started = [], threading.Event()

    def write(client):
        connection = http.client.HTTPConnection(service.host, service.port, timeout=600)
        try:
            for i in range(100000):
                body = json.dumps({"graph": branches(2, f"{client}-{i}"), "passes": ["MergeLinears"]})
                connection.request("POST", "/v1/optimize", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                run = json.loads(answer.read())
                if answer.status == 201:
                    told.append(run)
                if len(told) > 40:
                    started.set()
        except (OSError, http.client.HTTPException, ValueError):
            pass  # killed

    clients = [threading.Thread(target=write, args=(i,)) for i in range(8)]
    for client in clients:
        client.start()
    assert started.wait(600)
    service.kill()
    for client in clients:
        client.join()
    service.start()
    assert len(told) > 40
    check_everything(service, told)
    graphs, runs = counts(service)
    assert runs >= 2 * len(told) and graphs >= 2 * len(told)


def test_graceful_stop(service):
    run = service.post("/v1/optimize", {"graph": branches(), "passes": ["MergeLinears"]}).json()
    assert service.stop() == 0
    log = service.data / "foldback.sqlite-wal"
    assert not log.exists() or log.stat().st_size == 0  # checkpointed
    service.start()
    check_everything(service, [run])


def test_a_stop_waits_for_what_runs(service):
    """A request whose body is still coming is answered, and what it made is kept."""
    body = json.dumps({"graph": branches(), "passes": ["MergeLinears"]}).encode()
    connection = service.connect()
    head = (b"POST /v1/optimize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % len(body))
    connection.sendall(head + body[:100])
    while "foldback_http_in_flight 2" not in service.get("/metrics").body.decode():
        time.sleep(0.01)
    service.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    connection.sendall(body[100:])
    answer = b""
    while piece := connection.recv(65536):
        answer += piece
    connection.close()
    assert answer.startswith(b"HTTP/1.1 201 "), answer
    assert service.process.wait(600) == 0
    service.process.stdout.close()
    service.process = None
    run = json.loads(answer.split(b"\r\n\r\n", 1)[1])
    service.start()
    check_everything(service, [run])


def test_a_second_signal_is_quick(service):
    body = b"POST /v1/graphs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
    with service.connect() as connection:
        connection.sendall(body)
        while "foldback_http_in_flight 2" not in service.get("/metrics").body.decode():
            time.sleep(0.01)
        service.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert service.process.poll() is None  # it waits for the body
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(600) == -signal.SIGTERM
    service.process.stdout.close()
    service.process = None
    service.start()


def run_binary(*arguments):
    done = subprocess.run([binary(), *arguments], capture_output=True, text=True, timeout=600)
    done.stderr = without_sandbox(done.stderr)
    return done


def test_one_service_a_folder(service):
    second = run_binary("serve", "--listen", "127.0.0.1:0", "--data", str(service.data))
    assert second.returncode == 3 and second.stdout == "" and len(second.stderr.splitlines()) == 1
    assert service.get("/readyz").status == 200


def test_command_line(tmp_path, shared):
    assert run_binary("--version").stdout.startswith("foldback ")
    for arguments in (["--help"], ["serve", "--help"]):
        shown = run_binary(*arguments)
        assert shown.returncode == 0 and "serve" in shown.stdout and shown.stderr == ""
    data = ["--data", str(tmp_path / "data")]
    for arguments in (
        [],
        ["nonsense"],
        ["serve", "--nonsense"],
        ["serve", "--listen"],
        ["serve", "--max-nodes", "many"],
        ["serve", "--max-nodes=0"],
        ["serve", "--max-body", "9999999999G"],
        ["serve", "--listen", "0.0.0.0:0", *data],
        ["serve", "--listen", "127.0.0.1:99999", *data],
        ["serve", "stray"],
    ):
        wrong = run_binary(*arguments)
        assert wrong.returncode == 2 and wrong.stdout == "" and wrong.stderr, arguments
    assert not (tmp_path / "data").exists()
    for arguments in (
        ["--listen", f"127.0.0.1:{shared.port}", *data],
        ["--listen", "127.0.0.1:0", "--data", "/nowhere/at/all"],
        ["--listen", "127.0.0.1:0", *data, "--access-log", "/nowhere/at/all"],
    ):
        failed = run_binary("serve", *arguments)
        assert failed.returncode == 1 and len(failed.stderr.splitlines()) == 1, failed


def test_options(new_service, tmp_path):
    log = tmp_path / "access.jsonl"
    service = new_service("--max-nodes=5", "--max-nesting", "20", "--max-body", "64K", "--access-log", str(log), "--cache=0")
    is_problem(service.post("/v1/graphs", branches(2)), 413, "too-many-nodes")
    small = {**branches(2), "nodes": branches(2)["nodes"][:1] + branches(2)["nodes"][-1:], "modules": [], "tensors": []}
    small["modules"] = [{"path": "", "type": "Model"}]
    small["nodes"][1]["args"] = [{"$node": "x"}]
    identity = service.post("/v1/graphs", small).json()["id"]
    assert service.get(f"/v1/graphs/{identity}/code").status == 200
    deep = 1
    for _ in range(20):
        deep = [deep]
    is_problem(service.post("/v1/graphs", {**small, "metadata": {"deep": deep}}), 422, "nesting-too-deep")
    is_problem(service.post("/v1/graphs", {**small, "name": "x" * 70000}), 413, "body-too-large")
    assert "foldback_cache_graphs 0" in service.get("/metrics").body.decode()
    assert service.stop() == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {"time", "request", "method", "path", "status", "ms"} <= set(lines[0]) and len(lines) >= 6
