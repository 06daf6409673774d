"""Attestations: what a run's result was made of, signed, and made again by whoever verifies it. openssl is the second
opinion."""

import base64
import copy
import json
import math
import stat
import subprocess

import pytest
from blobs import digest_of
from cli import CommandLine
from documents import branches
from test_external import record
from test_http import is_problem
from test_runs import optimize
from test_weights import bind
from weights_files import file_of, floats

PASSES = ["MergeLinears", "ChangeTrueDivToMulByInverse"]


@pytest.fixture
def foldback(tmp_path):
    command = CommandLine(tmp_path)
    assert command.run("key", "create", "key.pem").status == 0
    return command


@pytest.fixture
def signing(new_service, foldback):
    service = new_service("--signing-key", str(foldback.path("key.pem")))
    foldback.place = ["--server", service.url]
    return service


def encoded(payload):
    kind = "application/vnd.in-toto+json"
    return f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload


def openssl(foldback, *words, **files):
    for name, content in files.items():
        foldback.path(name).write_bytes(content)
    return subprocess.run(["openssl", *words], cwd=foldback.folder, capture_output=True)


def signed(foldback, statement, key="key.pem"):
    """An envelope that openssl has signed."""
    payload = statement if isinstance(statement, bytes) else json.dumps(statement).encode()
    done = openssl(foldback, "pkeyutl", "-sign", "-inkey", key, "-rawin", "-in", "bytes", "-out", "signature",
                   bytes=encoded(payload))
    assert done.returncode == 0, done.stderr
    signature = base64.b64encode(foldback.path("signature").read_bytes()).decode()
    return {"payloadType": "application/vnd.in-toto+json", "payload": base64.b64encode(payload).decode(),
            "signatures": [{"keyid": "any", "sig": signature}]}


def attested(service, run):
    """The envelope, and the statement in it."""
    answer = service.get(f"/v1/runs/{run['id']}/attestation")
    assert answer.status == 200, answer
    return answer.json(), json.loads(base64.b64decode(answer.json()["payload"]))


def verify(foldback, envelope, *words, key="key.pem.pub", place=True):
    foldback.put("envelope.json", envelope)
    run = foldback if place else foldback.run
    return run("verify-attestation", "envelope.json", "--key", key, *words)


def is_refused(result, *said):
    assert result.status == 1 and all(text in result.err for text in said), result


def bound(service):
    """The id of a graph whose weights are in a file of the service."""
    document = branches(2, "bound")
    tensors = {row["name"]: (row["dtype"], row["shape"], floats([number / 7 for number in range(math.prod(row["shape"]))]))
               for row in document["tensors"]}
    return bind(service, document, file_of(tensors), strict=True)["id"], digest_of(file_of(tensors))


def test_what_is_said_and_who_says_it(signing, foldback):
    run = optimize(signing, branches(2), PASSES)
    envelope, statement = attested(signing, run)
    assert (statement["_type"] == "https://in-toto.io/Statement/v1"
            and statement["predicateType"] == "https://slsa.dev/provenance/v1")
    assert statement["subject"] == [{"name": "result", "digest": {"sha256": run["result"].removeprefix("sha256:")}}]
    definition, details = statement["predicate"]["buildDefinition"], statement["predicate"]["runDetails"]
    assert definition["resolvedDependencies"] == [{"name": "source",
                                                   "digest": {"sha256": run["source"].removeprefix("sha256:")}}]
    replay = definition["externalParameters"]["replay"]
    assert replay["source"] == run["source"] and [one["name"] for one in replay["passes"]] == PASSES
    assert all(one["version"] >= 1 and one["params"] == {} for one in replay["passes"])
    assert [(one["name"], one["signature"])
            for one in definition["externalParameters"]["passes"]] == [(one["name"], one["signature"]) for one in run["passes"]]
    assert details["metadata"] == {"invocationId": run["id"], "finishedOn": run["created"]}
    assert details["builder"]["version"]["foldback"] == signing.get("/").json()["version"]
    # the signature is what openssl takes for one
    (signature,) = envelope["signatures"]
    payload, sig = base64.b64decode(envelope["payload"]), base64.b64decode(signature["sig"])
    words = ("pkeyutl", "-verify", "-pubin", "-inkey", "key.pem.pub", "-rawin", "-in", "bytes", "-sigfile", "sig")
    assert openssl(foldback, *words, bytes=encoded(payload), sig=sig).returncode == 0
    assert openssl(foldback, *words, bytes=encoded(payload + b" "), sig=sig).returncode != 0
    assert foldback.run("key", "show",
                        "key.pem.pub").json()["id"] == signature["keyid"] == foldback.run("key", "show", "key.pem").json()["id"]


def test_it_is_made_again(signing, foldback):
    run = optimize(signing, branches(2), [*PASSES, {"name": "ReplaceActivation", "params": {"from": "relu", "to": "gelu"}}])
    envelope, statement = attested(signing, run)
    found = verify(foldback, envelope).json()
    assert found["verified"] is True and found["statement"] == statement
    before = signing.get("/v1/runs?limit=1000").json()["items"]
    assert len(before) == 1  # nothing was stored
    # elsewhere, without the service, from the source alone
    foldback.put("source.json", signing.get(f"/v1/graphs/{run['source']}").body)
    assert verify(foldback, envelope, "--source", "source.json", place=False).json()["verified"]
    foldback.put("other.json", branches(3))
    is_refused(verify(foldback, envelope, "--source", "other.json", place=False), "not the source that it names")
    is_refused(foldback("verify-attestation", "envelope.json", "--key", "envelope.json"), "not a PEM key")
    assert foldback("verify-attestation", "envelope.json").status == 2
    written = foldback("attestation", run["id"], "-o", "written.json")
    assert written.status == 0 and json.loads(foldback.path("written.json").read_text())["payload"] == envelope["payload"]


@pytest.mark.parametrize("how, passes", [("rollback", PASSES[:1]), ("rollback", None), ("reverse", PASSES[1:])])
def test_an_undo_is_made_again(signing, foldback, how, passes):
    run = optimize(signing, branches(2), PASSES)
    undone = signing.post(f"/v1/runs/{run['id']}/{how}", {} if passes is None else {"passes": passes}).json()
    envelope, statement = attested(signing, undone)
    definition = statement["predicate"]["buildDefinition"]
    assert [one["name"] for one in definition["externalParameters"]["replay"]["passes"]] == [
        one for one in PASSES if passes and one not in passes]
    assert [one["name"] for one in definition["resolvedDependencies"]] == ["source", "at-hand"]
    assert verify(foldback, envelope).json()["verified"]


def test_what_cannot_be_made_again(signing, foldback):
    """It is signed, and says that it is not more than a claim."""
    run = optimize(signing, branches(2), PASSES)
    graphs = [signing.get(f"/v1/graphs/{run[name]}").json() for name in ("source", "result")]
    external = record(signing, *graphs)
    edited = {**graphs[1], "name": "edited"}
    merged = signing.post(f"/v1/runs/{run['id']}/reverse", {"graph": edited}).json()
    assert merged["exact"] is False
    for one, said in ((external, "is external"), (merged, "an undo merged into an edited graph")):
        envelope, statement = attested(signing, one)
        assert statement["predicate"]["buildDefinition"]["externalParameters"]["replay"] is None
        is_refused(verify(foldback, envelope), "the signature is good", said)


def test_files(signing, foldback):
    """A graph's files are named, and are those that its document says."""
    graph, digest = bound(signing)
    run = optimize(signing, graph, PASSES)
    envelope, statement = attested(signing, run)
    named = {"name": "file", "digest": {"sha256": digest.removeprefix("sha256:")}}
    dependencies = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert statement["subject"][1:] == [named] == dependencies[1:]
    assert verify(foldback, envelope).json()["verified"]
    for part in ("subject", "resolvedDependencies"):
        for said, change in (
            ("a file that it lists is not one of the graph's",
             lambda files: files.append({"name": "file", "digest": {"sha256": "0" * 64}})),
            ("a file that it lists is not one of the graph's", lambda files: files[1]["digest"].update(sha256="0" * 64)),
            ("does not list all files", lambda files: files.pop()),
        ):
            lie = copy.deepcopy(statement)
            change(lie["subject"] if part == "subject" else lie["predicate"]["buildDefinition"]["resolvedDependencies"])
            is_refused(verify(foldback, signed(foldback, lie)), said)


def lies(statement):
    """Statements that are not true, signed by who may sign."""

    def other(change):
        made = copy.deepcopy(statement)
        change(made, made["predicate"]["buildDefinition"])
        return made

    def replay(definition):
        return definition["externalParameters"]["replay"]

    def set_result(made, definition):
        made["subject"][0]["digest"]["sha256"] = "0" * 64

    def set_source_as_result(made, definition):
        made["subject"][0]["digest"] = definition["resolvedDependencies"][0]["digest"]

    def swap(made, definition):
        definition["resolvedDependencies"][0]["digest"], made[
            "subject"][0]["digest"] = made["subject"][0]["digest"], definition["resolvedDependencies"][0]["digest"]
        replay(definition)["source"] = "sha256:" + definition["resolvedDependencies"][0]["digest"]["sha256"]

    yield "makes another graph|make another graph", other(set_result)
    yield "make another graph", other(set_source_as_result)
    yield "another graph|there is no", other(swap)
    yield "do not start from its source", other(lambda made, definition: replay(definition).update(source="sha256:" + "0" * 64))
    yield "names other passes", other(lambda made, definition: replay(definition)["passes"].pop())
    yield "names other passes", other(lambda made, definition: definition["externalParameters"]["passes"].pop())
    yield "make another graph", other(lambda made, definition: [replay(definition)["passes"].pop(0),
                                                                definition["externalParameters"]["passes"].pop(0)])
    yield "no pass was run", other(lambda made, definition: replay(definition)["passes"].clear())
    yield "names other passes", other(lambda made, definition: replay(definition)["passes"][2]["params"].update(to="silu"))
    yield "is version", other(lambda made, definition: replay(definition)["passes"][0].update(version=99))
    yield "there is no pass", other(lambda made, definition: replay(definition)["passes"][0].update(name="Nonsense"))
    yield "file", other(lambda made, definition: definition[
        "resolvedDependencies"].append({"name": "file", "digest": {"sha256": "1" * 64}}))
    yield "not an attestation of foldback", other(
        lambda made, definition: made.update(predicateType="https://example.org/other"))
    yield "not an attestation of foldback", other(lambda made, definition: definition.update(buildType="urn:other"))
    yield "not an attestation of foldback", other(
        lambda made, definition: made.update(_type="https://in-toto.io/Statement/v0.1"))
    yield "does not name the result", other(lambda made, definition: made.update(subject=[]))
    yield "does not name the result", other(lambda made, definition: made["subject"][0].update(name="other"))
    yield "do not start from its source", other(lambda made, definition: replay(definition).pop("passes"))


@pytest.mark.heavy
def test_what_is_not_true_is_refused(signing, foldback):
    run = optimize(signing, branches(2), [*PASSES, {"name": "ReplaceActivation", "params": {"from": "relu", "to": "gelu"}}])
    _, statement = attested(signing, run)
    count = 0
    for said, lie in lies(statement):
        result = verify(foldback, signed(foldback, lie))
        assert result.status == 1 and any(text in result.err for text in said.split("|")), (said, result)
        count += 1
    assert count == 18
    assert verify(foldback, signed(foldback, statement)).status == 0  # what is true is taken from openssl, too


def test_either_alphabet_of_base64(signing, foldback):
    """DSSE: signers may use either, and verifiers must accept either. The payload and nearly all signatures differ in them."""
    envelope, _ = attested(signing, optimize(signing, branches(2), PASSES))

    def spelled(part):
        return {name: text.translate(str.maketrans("+/", "-_")) if name in ("payload", "sig") else text
                for name, text in part.items()}

    for part in (envelope, {**envelope, "signatures": [spelled(envelope["signatures"][0])]}, spelled(envelope)):
        assert verify(foldback, part).status == 0, part
    for text in ("-_-_", base64.b64encode(bytes(64)).decode().rstrip("="), ".." + envelope["signatures"][0]["sig"][2:]):
        is_refused(verify(foldback, {**envelope, "signatures": [{**envelope["signatures"][0], "sig": text}]}),
                   "none of the given keys has signed it")


def test_what_was_not_signed_is_refused(signing, foldback):
    run, other = optimize(signing, branches(2), PASSES), optimize(signing, branches(3), PASSES)
    envelope, statement = attested(signing, run)
    payload = base64.b64decode(envelope["payload"])
    foldback.run("key", "create", "other.pem")

    def with_payload(text):
        return {**envelope, "payload": base64.b64encode(text).decode()}

    def with_signature(**changed):
        return {**envelope, "signatures": [{**envelope["signatures"][0], **changed}]}

    flipped = bytearray(base64.b64decode(envelope["signatures"][0]["sig"]))
    flipped[7] ^= 1
    for changed in [
        with_payload(payload + b" "), with_payload(payload.replace(b'"version":1', b'"version":2', 1)),
        with_payload(base64.b64decode(attested(signing, other)[0]["payload"])),
        with_signature(sig=base64.b64encode(flipped).decode()),
        with_signature(sig=attested(signing, other)[0]["signatures"][0]["sig"]), with_signature(sig=""),
        with_signature(sig="%%%"), with_signature(sig=base64.b64encode(bytes(64)).decode()), {**envelope, "signatures": []},
        {**envelope, "signatures": [7]},
        signed(foldback, statement, "other.pem"),
    ]:
        is_refused(verify(foldback, changed), "none of the given keys has signed it")
    wrong_type = {**envelope, "payloadType": "application/json"}
    for changed in [
        wrong_type, {**envelope, "payload": "%"}, {**envelope, "payload": 7},
        {name: envelope[name] for name in ("payload", "signatures")},
        {**envelope, "signatures": {}}, [], b"no JSON", b'{"payload": "", "payload": ""}',
    ]:
        said = ("it is not JSON" if isinstance(changed, bytes) else "it is no DSSE envelope" if changed != wrong_type
                else "its payload is application/json")
        is_refused(verify(foldback, changed), said)
    is_refused(verify(foldback, envelope, key="other.pem.pub"), "none of the given keys")
    assert verify(foldback, envelope, "--key", "other.pem.pub").status == 0  # one of several


def test_keys(foldback, new_service, signing):
    private, public = foldback.path("key.pem"), foldback.path("key.pem.pub")
    assert (stat.S_IMODE(private.stat().st_mode) == 0o600 and b"PRIVATE KEY" in private.read_bytes()
            and b"PUBLIC KEY" in public.read_bytes())
    before = private.read_bytes()
    is_refused(foldback.run("key", "create", "key.pem"), "key.pem exists")
    assert private.read_bytes() == before
    assert openssl(foldback, "pkey", "-in", "key.pem", "-noout", "-text").stdout.startswith(b"ED25519 Private-Key")
    shown = foldback.run("key", "show", "key.pem")
    assert "PRIVATE" not in shown.out
    openssl(foldback, "genpkey", "-algorithm", "RSA", "-out", "rsa.pem")
    openssl(foldback, "genpkey", "-algorithm", "ED25519", "-aes256", "-pass", "pass:secret", "-out", "locked.pem")
    for name, said in (("rsa.pem", "another kind"), ("locked.pem", "without a passphrase"), ("key.pem.pub", "is a public key"),
                       ("none.pem", "cannot read")):
        if foldback.path(name).exists():
            foldback.path(name).chmod(0o600)
        is_refused(foldback.run("serve", "--listen", "127.0.0.1:0", "--data", "d", "--signing-key", name), said)
    private.chmod(0o640)
    is_refused(foldback.run("serve", "--listen", "127.0.0.1:0", "--data", "d", "--signing-key", "key.pem"),
               "can be read by others")
    for text in (signing.log(), signing.get("/metrics").body.decode()):
        assert "PRIVATE KEY" not in text


def test_without_a_key(service):
    run = optimize(service, branches(2), PASSES)
    is_problem(service.get(f"/v1/runs/{run['id']}/attestation"), 409, "no-signing-key")


def test_of_nothing(signing):
    is_problem(signing.get("/v1/runs/run_01ARZ3NDEKTSV4RRFFQ69G5FAV/attestation"), 404, "unknown-run")
