"""Folders to a hub and back: what a run did is written beside the files, and what comes back is what went there."""

import json
import subprocess

import pytest
import torch
from conftest import ROOT, pytorch_conftest
from fake_hub import Hub
from huggingface_hub import constants, errors, file_download
from test_huggingface import TEXT, folder_of, output

import foldback
from foldback import command, hub, huggingface

api = pytorch_conftest.api
PASSES = ["MergeLinears", "ChangeTrueDivToMulByInverse"]


@pytest.fixture
def fake(monkeypatch):
    """As if HF_ENDPOINT had named it when huggingface_hub was imported."""
    fake = Hub()
    monkeypatch.setattr(constants, "ENDPOINT", fake.url)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True, raising=False)  # the fake one speaks git LFS
    for module in constants, file_download:  # from the first in version 2, a copy in the second before
        monkeypatch.setattr(module, "HUGGINGFACE_CO_URL_TEMPLATE", fake.url + "/{repo_id}/resolve/{revision}/{filename}",
                            raising=False)
    yield fake
    fake.close()


@pytest.fixture
def made(client, tmp_path):
    """A folder that a run made, the run, and inputs with the output that they had before."""
    model, inputs = folder_of("bert", tmp_path / "in")
    (tmp_path / "in/README.md").write_text("---\nlicense: mit\n---\n\n# Ours\n")
    live = huggingface.load(tmp_path / "in", input_names=TEXT)
    run = client.optimize(foldback.fx.to_document(live), PASSES, assume={})
    huggingface.save(run, tmp_path / "out", source=tmp_path / "in", client=client)
    return tmp_path / "out", run, inputs, output(model, inputs)


def on_hub(fake, **more):
    return {"token": fake.token, **more}


def test_there_and_back(client, fake, made, tmp_path):
    folder, run, inputs, expected = made
    url = hub.push(folder, "me/bert-fast", run=run, client=client, **on_hub(fake))
    assert url.startswith(f"{fake.url}/me/bert-fast/commit/")
    there = fake.repos["me/bert-fast"][-1]
    assert (there["config.json"] == (folder / "config.json").read_bytes()
            and any(name.endswith(".safetensors") for name in there))
    assert len(fake.objects) >= 1  # large files went as such
    said = json.loads(there["foldback.provenance.json"])
    assert said["run"]["id"] == run["id"] and (said["run"]["source"], said["run"]["result"]) == (run["source"], run["result"])
    assert [(one["name"], one["applied"]) for one in said["passes"]] == [(one["name"], one["applied"]) for one in run["passes"]]
    card = there["README.md"].decode()
    assert card.startswith("---\nlicense: mit\n---\n\n# Ours\n")
    assert all(text in card for text in (run["id"], run["source"], run["result"], "`MergeLinears` 1 | moves", "## Provenance"))
    fetched = hub.pull("me/bert-fast", tmp_path / "fetched", **on_hub(fake))
    assert {file.name for file in fetched.iterdir()} == there.keys() - {".gitattributes"}
    assert all((fetched / name).read_bytes() == data for name, data in there.items() if name != ".gitattributes")
    live = huggingface.load(fetched)
    assert "merged" in live.code
    torch.testing.assert_close(output(live, inputs), expected)


def test_a_second_push_replaces_the_first(client, fake, made, tmp_path):
    """Files that another folder left there are gone, the card keeps its own text, and an earlier revision is still there."""
    folder, run, _, _ = made
    hub.push(folder, "me/m", run=run, client=client, **on_hub(fake))
    first = fake.sha("me/m", len(fake.repos["me/m"]) - 1)
    (folder / "extra.json").write_text("{}")
    with pytest.raises(ValueError, match="extra.json is not one of those"):
        hub.push(folder, "me/m", **on_hub(fake))
    hub.push(folder, "me/m", run=run, client=client, **on_hub(fake))
    (folder / "extra.json").unlink()
    hub.push(folder, "me/m", run=run, client=client, **on_hub(fake))
    assert "extra.json" in fake.repos["me/m"][-2] and "extra.json" not in fake.repos["me/m"][-1]
    card = fake.repos["me/m"][-1]["README.md"].decode()
    assert card.count("## What was done to this model") == 1 == card.count("# Ours\n")
    assert not (hub.pull("me/m", tmp_path / "a", revision=first, **on_hub(fake)) / "extra.json").exists()


def test_what_was_changed_on_the_hub_is_refused(client, fake, made, tmp_path):
    folder, run, _, _ = made
    hub.push(folder, "me/m", run=run, client=client, **on_hub(fake))
    files = fake.repos["me/m"][-1]
    (weights,) = [name for name in files if name.endswith(".safetensors")]
    good = files[weights]
    for change, said in (
        (lambda: files.update({weights: good[:-1] + bytes([good[-1] ^ 1])}), f"{weights} has other bytes"),
        (lambda: files.pop("config.json"), "config.json is missing"),
        (lambda: files.update({"more.safetensors": b"x"}), "more.safetensors is not one of those"),
    ):
        kept = dict(files)
        change()
        with pytest.raises(ValueError, match=said):
            hub.pull("me/m", tmp_path / "fetched", **on_hub(fake))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]  # nothing is left
        files.clear()
        files.update(kept)
    files["pytorch_model.bin"] = b"a pickle"
    fetched = hub.pull("me/m", tmp_path / "fetched", **on_hub(fake))
    assert not (fetched / "pytorch_model.bin").exists()
    with pytest.raises(FileExistsError):
        hub.pull("me/m", tmp_path / "fetched", **on_hub(fake))


def test_other_models_come_too(fake, tmp_path):
    """A repository that foldback has never seen."""
    folder_of("bert", tmp_path / "in")
    hub.push(tmp_path / "in", "them/bert", **on_hub(fake))
    assert "foldback.provenance.json" not in fake.repos["them/bert"][-1]
    assert huggingface.load(hub.pull("them/bert", tmp_path / "fetched", **on_hub(fake)), input_names=TEXT).code
    with pytest.raises(errors.RepositoryNotFoundError):
        hub.pull("them/none", tmp_path / "none", **on_hub(fake))
    with pytest.raises(errors.HfHubHTTPError):
        hub.push(tmp_path / "in", "them/bert", token="wrong")


def test_it_is_signed_where_the_service_signs(fake, made, tmp_path):
    folder, _, _, _ = made
    binary = str(api.binary())
    subprocess.run([binary, "key", "create", tmp_path / "key.pem"], check=True, capture_output=True)
    service = api.Service(tmp_path / "data", "--signing-key", str(tmp_path / "key.pem")).start()
    with foldback.Client(service.url) as client:
        run = client.optimize(foldback.fx.to_document(huggingface.load(tmp_path / "in", input_names=TEXT)), PASSES, assume={})
        hub.push(folder, "me/signed", run=run, client=client, **on_hub(fake))
    assert fake.repos["me/signed"][-1]["foldback.attestation.json"] == (folder / "foldback.attestation.json").read_bytes()
    words = ["verify-attestation", folder / "foldback.attestation.json", "--key", tmp_path / "key.pem.pub",
             "--server", service.url]
    done = subprocess.run([binary, *words], capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(done.stdout)["verified"], done.stderr
    assert "foldback verify-attestation" in fake.repos["me/signed"][-1]["README.md"].decode()
    service.stop()


def test_an_onnx_model(client, fake, tmp_path):
    """With the weights beside it, in a folder below; no pickles."""
    given = ROOT / "tests/fixtures/onnx"
    model = (given / "external-two-files.onnx").read_bytes().replace(b"weights/one.bin", b"model.onnx.data")  # as torch writes
    files = {"model.onnx": model, "model.onnx.data": (given / "weights/one.bin").read_bytes(),
             "two.data": (given / "two.data").read_bytes()}
    fake.repos["them/net"] = [{".gitattributes": b"", "config.json": b"{}", "pytorch_model.bin": b"pickle",
                               **{f"onnx/{name}": data for name, data in files.items()}}]
    fetched = hub.pull("them/net", tmp_path / "fetched", **on_hub(fake))
    assert {path.name: path.read_bytes() for path in (fetched / "onnx").iterdir()} == files
    assert not (fetched / "pytorch_model.bin").exists()
    graph = client.put_onnx(fetched, progress=False)
    assert client.archive(graph, tmp_path / "back.onnx", progress=False).read_bytes() == model
    (fetched / "second.onnx").write_bytes(model)
    with pytest.raises(ValueError, match=r"several models, name one: onnx/model\.onnx, second\.onnx"):
        client.put_onnx(fetched, progress=False)
    with pytest.raises(FileNotFoundError, match="no file called"):
        client.put_onnx(given / "weights", progress=False)


def test_the_command(fake, tmp_path, monkeypatch, capsys):
    """foldback hub pull: it prints the models that can be put, and says in a line what is wrong."""
    model = (ROOT / "tests/fixtures/onnx/functions.onnx").read_bytes()
    fake.repos["them/net"] = [{".gitattributes": b"", "config.json": b"{}", "onnx/model.onnx": model}]
    monkeypatch.setenv("HF_TOKEN", fake.token)
    monkeypatch.setattr("sys.argv", ["foldback", "hub", "pull", "them/net", str(tmp_path / "net")])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"{tmp_path / 'net/onnx/model.onnx'}\n"
    assert (tmp_path / "net/onnx/model.onnx").read_bytes() == model
    assert hub.main(["pull", "them/net", str(tmp_path / "net")]) == 1
    assert "exists; give a new folder" in capsys.readouterr().err
    assert hub.main(["pull", "them/none", str(tmp_path / "none")]) == 1 and not (tmp_path / "none").exists()
    assert capsys.readouterr().err.startswith("foldback hub: ")
    with pytest.raises(SystemExit):
        hub.main(["push"])
