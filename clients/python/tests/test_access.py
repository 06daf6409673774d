"""Tokens and certificates: the client shows the one, and looks at the other."""

import subprocess

import httpx
import pytest
from conftest import pytorch_conftest

import foldback


@pytest.fixture
def guarded(tmp_path, monkeypatch):
    """A service over TLS, its address, an admin's token, and its certificate."""
    monkeypatch.delenv("FOLDBACK_TOKEN", raising=False)
    binary = pytorch_conftest.api.binary()
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
               "-subj", "/CN=localhost",
               "-addext", "subjectAltName=DNS:localhost", "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"]
    subprocess.run(command, check=True, capture_output=True)
    data = ["--data", tmp_path / "data"]
    made = subprocess.run([binary, "token", "create", "--scope", "admin", *data], check=True, capture_output=True)
    token = httpx.Response(200, content=made.stdout).json()["token"]
    tls = ["--tls-certificate", tmp_path / "cert.pem", "--tls-key", tmp_path / "key.pem"]
    service = subprocess.Popen([binary, "serve", "--listen", "127.0.0.1:0", "--access-log", "off", *data, *tls],
                               stdout=subprocess.PIPE, text=True)
    try:
        url = service.stdout.readline().strip().removeprefix("listening on ").replace("127.0.0.1", "localhost")
        yield url, token, tmp_path / "cert.pem"
    finally:
        service.terminate()
        assert service.wait(60) == 0
        service.stdout.close()


DOCUMENT = {
    "format": "foldback.graph/1",
    "name": "g",
    "nodes": [
        {"name": "x", "op": "placeholder", "target": "x"},
        {"name": "output", "op": "output", "target": "output", "args": [{"$node": "x"}]},
    ],
    "modules": [{"path": "", "type": "torch.nn.Module"}],
    "tensors": [],
}


def test_a_token(guarded, monkeypatch, tmp_path):
    url, token, certificate = guarded
    with foldback.Client(url, ca_file=certificate) as nobody:
        with pytest.raises(foldback.Problem) as refused:
            nobody.put_graph(DOCUMENT)
        assert (refused.value.status, refused.value.code) == (401, "token-required")
    with foldback.Client(url, token=token, ca_file=certificate) as client:
        graph = client.put_graph(DOCUMENT)
        assert client.graph(graph)["name"] == "g"
        (tmp_path / "file").write_bytes(b"some bytes")
        digest = client.upload(tmp_path / "file")  # files go and come by ways of their own
        assert client.download(digest, tmp_path / "back").read_bytes() == b"some bytes"
        assert token not in repr(client) and token not in str(refused.value)
    monkeypatch.setenv("FOLDBACK_TOKEN", token)
    with foldback.Client(url, ca_file=certificate) as client:
        assert client.graph(graph)
    with foldback.Client(url, token="fbt_wrong", ca_file=certificate) as client:
        with pytest.raises(foldback.Problem, match="not one of this service"):
            client.graph(graph)


def test_a_certificate_that_is_not_trusted(guarded):
    url, token, _ = guarded
    with foldback.Client(url, token=token) as client, pytest.raises(httpx.ConnectError, match="(?i)certificate") as refused:
        client.put_graph(DOCUMENT)
    assert "ca_file" in str(refused.value) and "Start foldback serve" not in str(refused.value)  # a service is there


def test_a_service_at_a_path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("s")
    command = [pytorch_conftest.api.binary(), "serve", "--listen", f"unix:{folder}/socket", "--access-log", "off", "--data",
               folder / "data"]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        url = service.stdout.readline().strip().removeprefix("listening on ")
        with foldback.Client(url) as client:
            graph = client.put_graph(DOCUMENT)
            assert client.graph(graph)["name"] == "g"
            (folder / "file").write_bytes(b"some bytes")
            assert client.download(client.upload(folder / "file"), folder / "back").read_bytes() == b"some bytes"
    finally:
        service.terminate()
        assert service.wait(60) == 0
        service.stdout.close()
    with foldback.Client(url) as client, pytest.raises(ConnectionError, match=f"no service answers at unix:{folder}/socket"):
        client.missing([])
