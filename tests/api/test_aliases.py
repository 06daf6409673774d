"""Aliases: compare and swap, an append-only history, rollback."""

import pytest
from documents import COMPOSED, branches, counts, every_item
from test_http import is_problem
from test_models import put_version
from test_runs import optimize

CREATE = {"If-None-Match": "*"}
ANY = {"If-Match": "*"}


def path_of(alias="live", model="m"):
    return f"/v1/models/{model}/aliases/{alias}"


def put_alias(service, version, headers, alias="live", model="m", **more):
    return service.request("PUT", path_of(alias, model), {"version": version, **more}, headers=headers)


def history(service, alias="live", model="m", limit=1000):
    return every_item(service, path_of(alias, model) + "/history", limit=limit)


def roll_back(service, body=None, alias="live", model="m", **options):
    return service.post(path_of(alias, model) + "/rollback", body, **options)


def version_of(service, alias="live", model="m"):
    return service.get(path_of(alias, model)).json()["version"]


def make_versions(service, count=4, model="m"):
    for i in range(count):
        assert put_version(service, model, f"v{i}", {"graph": branches(2, f"graph {i}")}).status == 201


@pytest.fixture
def versions(service):
    make_versions(service)
    return service


def is_chain(items):
    """Newest first; every entry goes on from where the one before ended."""
    for later, earlier in zip(items, items[1:]):
        assert later["from"] == earlier["to"] and later.get("from_graph") == earlier.get("to_graph")
        assert later["id"] > earlier["id"]
    assert items[-1]["from"] is None and items[-1]["action"] == "create"


# -------------------------------------------------------------------------------------------------- compare and swap


def test_create_and_move(versions):
    created = put_alias(versions, "v0", CREATE, who="ann", why="first")
    assert created.status == 201 and created.headers["location"] == path_of()
    alias = created.json()
    assert set(alias) == {"model", "alias", "version", "graph", "run", "from", "updated", "who", "why", "etag"}
    assert (alias["model"], alias["alias"], alias["version"], alias["run"]) == ("m", "live", "v0", None)
    assert alias["graph"] == versions.get("/v1/models/m/versions/v0").json()["graph"]
    assert alias["etag"] == created.headers["etag"]
    got = versions.get(path_of())
    assert got.json() == alias and got.headers["etag"] == created.headers["etag"]
    assert versions.get(path_of(), headers={"If-None-Match": got.headers["etag"]}).status == 304

    moved = put_alias(versions, "v1", {"If-Match": created.headers["etag"]}, who="bob")
    assert moved.status == 200 and moved.json()["version"] == "v1" and "why" not in moved.json()
    assert moved.headers["etag"] != created.headers["etag"]
    stale = is_problem(put_alias(versions, "v2", {"If-Match": created.headers["etag"]}), 412, "alias-moved")
    assert moved.headers["etag"] in stale["detail"]
    is_problem(put_alias(versions, "v2", CREATE), 412, "alias-exists")
    assert put_alias(versions, "v2", ANY).status == 200
    assert version_of(versions) == "v2"
    is_problem(put_alias(versions, "v2", {"If-Match": created.headers["etag"]}), 412, "alias-moved")
    same = put_alias(versions, "v2", ANY)
    assert same.status == 200 and len(history(versions)) == 3
    assert same.json() == versions.get(path_of()).json()


def test_preconditions(versions):
    for method, body in (("PUT", {"version": "v0"}), ("DELETE", None)):
        is_problem(versions.request(method, path_of(), body), 428, "precondition-required")
        is_problem(versions.request(method, path_of(), body, headers=ANY), 412, "alias-moved")
        is_problem(versions.request(method, path_of(), body, headers={"If-Match": '"1"'}), 412, "alias-moved")
    tag = put_alias(versions, "v0", CREATE).headers["etag"]
    assert tag.startswith('"') and tag.endswith('"')
    is_problem(put_alias(versions, "v1", CREATE), 412, "alias-exists")
    bare = tag.strip('"')
    for wrong in (f"W/{tag}", f'"0{bare}"', f'"+{bare}"', f'"{bare} "', '""', '"-1"', f'"{bare}x"', '"*"', f'"99", W/{tag}'):
        answer = put_alias(versions, "v1", {"If-Match": wrong})
        assert answer.status in (400, 412), wrong
        if " " not in wrong.strip('"') or "," in wrong:
            is_problem(answer, 412, "alias-moved")
    for malformed in (bare, f"'{bare}'", f'"{bare}', f"{tag} {tag}", f"w/{tag}", ",", "**", f"*, {tag}"):
        is_problem(put_alias(versions, "v1", {"If-Match": malformed}), 400, "bad-precondition")
    for extra in ({"If-None-Match": '"7"'}, {"If-None-Match": "*", "If-Match": tag}):
        is_problem(put_alias(versions, "v1", extra), 400, "bad-precondition")
    is_problem(versions.delete(path_of(), headers=CREATE), 400, "bad-precondition")
    assert version_of(versions) == "v0" and len(history(versions)) == 1
    assert put_alias(versions, "v1", {"If-Match": f'"x", W/"y" ,, {tag}'}).status == 200


def test_a_long_answer_keeps_its_strong_tag(versions):
    put_alias(versions, "v0", CREATE, why="x" * 9000)
    got = versions.get(path_of(), headers={"Accept-Encoding": "gzip, zstd"})
    assert "content-encoding" not in got.headers
    assert put_alias(versions, "v1", {"If-Match": got.headers["etag"]}).status == 200


def test_tags_never_repeat(versions):
    seen = [put_alias(versions, "v0", CREATE).headers["etag"]]
    for version in ("v1", "v0", "v1", "v0"):
        seen.append(put_alias(versions, version, ANY).headers["etag"])
    assert versions.delete(path_of(), headers=ANY).status == 204
    seen.append(put_alias(versions, "v0", CREATE).headers["etag"])
    assert len(set(seen)) == len(seen)
    for old in seen[:-1]:
        is_problem(put_alias(versions, "v1", {"If-Match": old}), 412, "alias-moved")


def test_delete(versions):
    tag = put_alias(versions, "v0", CREATE, who="ann").headers["etag"]
    other = put_alias(versions, "v1", {"If-Match": tag}).headers["etag"]
    is_problem(versions.delete(path_of(), headers={"If-Match": tag}), 412, "alias-moved")
    assert versions.delete(path_of(), headers={"If-Match": other}).status == 204
    is_problem(versions.delete(path_of(), headers={"If-Match": other}), 412, "alias-moved")
    for answer in (versions.get(path_of()), versions.get(path_of() + "/graph"), roll_back(versions)):
        is_problem(answer, 404, "unknown-alias")
    is_problem(put_alias(versions, "v1", ANY), 412, "alias-moved")
    assert versions.get("/v1/models/m/aliases").json() == {"items": []}
    assert versions.get("/v1/models/m").json()["aliases"] == 0
    items = history(versions)
    assert [item["action"] for item in items] == ["delete", "deploy", "create"]
    assert items[0]["from"] == "v1" and items[0]["to"] is None and "to_graph" not in items[0]
    assert put_alias(versions, "v2", CREATE).status == 201
    assert [item["action"] for item in history(versions)] == ["create", "delete", "deploy", "create"]
    is_problem(roll_back(versions), 409, "nothing-to-roll-back")


def test_history_and_list(versions):
    run = optimize(versions, branches(3), ["MergeLinears"])
    put_version(versions, "m", "of-run", {"run": run["id"]})
    put_alias(versions, "v0", CREATE, who="ann", why="the first")
    put_alias(versions, "of-run", ANY, who="bob", why="faster ü")
    put_alias(versions, "v1", ANY)
    items = history(versions, limit=1)
    assert items == history(versions)
    is_chain(items)
    assert [(one["action"], one["from"], one["to"], one["run"]) for one in items] == [
        ("deploy", "of-run", "v1", None),
        ("deploy", "v0", "of-run", run["id"]),
        ("create", None, "v0", None),
    ]
    assert [(one["who"], one["why"]) for one in items] == [(None, None), ("bob", "faster ü"), ("ann", "the first")]
    assert items[1]["to_graph"] == run["result"] and all(one["when"].endswith("Z") for one in items)
    for i in range(5):
        put_alias(versions, "v0", CREATE, alias=f"a{i}")
    names = [one["alias"] for one in every_item(versions, "/v1/models/m/aliases", limit=2)]
    assert names == ["a4", "a3", "a2", "a1", "a0", "live"]
    versions.restart()
    assert history(versions) == items and version_of(versions) == "v1"


@pytest.mark.parametrize(
    "body, status, code, pointer",
    [
        ("{", 400, None, None),
        ("7", 422, "wrong-type", ""),
        ({}, 422, "missing-member", "/version"),
        ({"version": 1}, 422, "wrong-type", "/version"),
        ({"version": None}, 422, "wrong-type", "/version"),
        ({"version": ["v0"]}, 422, "wrong-type", "/version"),
        ({"version": "nonsense"}, 404, "unknown-version", "/version"),
        ({"version": ""}, 404, "unknown-version", "/version"),
        ({"version": "v0", "whom": "x"}, 422, "unknown-member", "/whom"),
        ({"version": "v0", "who": 7}, 422, "wrong-type", "/who"),
        ({"version": "v0", "who": "w" * 201}, 422, "who-too-long", "/who"),
        ({"version": "v0", "why": "w" * 10001}, 422, "why-too-long", "/why"),
        ({"version": "v0", "why": {}}, 422, "wrong-type", "/why"),
        (branches(), 422, "unexpected-graph", ""),
    ],
)
def test_bad_bodies(shared, body, status, code, pointer):
    put_version(shared, "bodies", "v0", {"graph": branches()})
    answer = shared.request("PUT", path_of("live", "bodies"), body, headers=CREATE)
    problem = is_problem(answer, status, code)
    if pointer is not None:
        assert problem.get("pointer", "") == pointer
    is_problem(shared.get(path_of("live", "bodies")), 404, "unknown-alias")


def test_bad_names_and_models(shared):
    put_version(shared, "names-of-aliases", "v0", {"graph": branches()})
    for name in ("a%20b", "n" * 201, "a:b"):
        answer = put_alias(shared, "v0", CREATE, alias=name, model="names-of-aliases")
        assert is_problem(answer, 422, "bad-name")["parameter"] == "alias"
    is_problem(put_alias(shared, "v0", CREATE, model="no-such-model"), 404, "unknown-model")
    is_problem(put_alias(shared, "v0", {"If-Match": '"1"'}, model="no-such-model"), 404, "unknown-model")
    assert put_alias(shared, "v0", CREATE, alias="w" * 200, model="names-of-aliases", who="ü" * 200).status == 201


# ------------------------------------------------------------------------------------------------- what a server pulls


def test_the_graph_of_an_alias(versions):
    put_alias(versions, "v0", CREATE)
    graph = versions.get(path_of() + "/graph")
    identity = versions.get("/v1/models/m/versions/v0").json()["graph"]
    assert graph.body == versions.get(f"/v1/graphs/{identity}").body
    for answer in (
        graph,
        versions.request("HEAD", path_of() + "/graph"),
        versions.get(path_of() + "/graph", headers={"If-None-Match": graph.headers["etag"]}),
    ):
        assert answer.headers["etag"] == f'"{identity}"'
        assert answer.headers["content-location"] == f"/v1/graphs/{identity}"
        assert answer.headers["foldback-version"] == "v0"
    assert answer.status == 304 and answer.body == b""
    head = versions.request("HEAD", path_of() + "/graph")
    assert head.status == 200 and head.body == b"" and int(head.headers["content-length"]) == len(graph.body)

    put_alias(versions, "v1", ANY)
    changed = versions.get(path_of() + "/graph", headers={"If-None-Match": graph.headers["etag"]})
    assert changed.status == 200 and changed.headers["foldback-version"] == "v1" and changed.body != graph.body


# ------------------------------------------------------------------------------------------------------------ rollback


def test_rollback_never_goes_forward_again(versions):
    tags = [put_alias(versions, "v1", CREATE).headers["etag"]]
    for version in ("v2", "v3"):
        tags.append(put_alias(versions, version, ANY).headers["etag"])
    is_problem(roll_back(versions, headers={"If-Match": tags[0]}), 412, "alias-moved")
    back = roll_back(versions, {"who": "ann", "why": "errors"}, headers={"If-Match": tags[-1]})
    assert back.status == 200 and back.json()["version"] == "v2" and back.json()["who"] == "ann"
    assert back.headers["etag"] == back.json()["etag"] == versions.get(path_of()).headers["etag"]
    assert roll_back(versions, {}).json()["version"] == "v1"
    is_problem(roll_back(versions), 409, "nothing-to-roll-back")
    assert version_of(versions) == "v1"
    items = history(versions)
    is_chain(items)
    assert [(item["action"], item["to"]) for item in items] == [
        ("rollback", "v1"),
        ("rollback", "v2"),
        ("deploy", "v3"),
        ("deploy", "v2"),
        ("create", "v1"),
    ]
    put_alias(versions, "v0", ANY)
    assert roll_back(versions).json()["version"] == "v1"
    is_problem(roll_back(versions), 409, "nothing-to-roll-back")


def test_rollback_to_a_version(versions):
    put_alias(versions, "v1", CREATE)
    for version in ("v2", "v3"):
        put_alias(versions, version, ANY)
    assert is_problem(roll_back(versions, {"version": "v0"}), 409, "never-deployed")
    assert is_problem(roll_back(versions, {"version": "v9"}), 404, "unknown-version")["pointer"] == "/version"
    same = roll_back(versions, {"version": "v3"})
    assert same.status == 200 and len(history(versions)) == 3
    assert roll_back(versions, {"version": "v1", "why": "all of it"}).json()["version"] == "v1"
    is_problem(roll_back(versions), 409, "nothing-to-roll-back")


@pytest.mark.parametrize(
    "body, status, code, pointer",
    [
        ("[", 400, None, None),
        ("[]", 422, "wrong-type", ""),
        ({"version": 7}, 422, "wrong-type", "/version"),
        ({"target": "v0"}, 422, "unknown-member", "/target"),
        ({"version": "v0", "passes": ["MergeLinears"]}, 422, "version-and-passes", "/version"),
        ({"as": "x"}, 422, "unexpected-name", "/as"),
        ({"passes": ["MergeLinears"], "as": "a b"}, 422, "bad-name", "/as"),
        ({"passes": ["MergeLinears"], "as": 7}, 422, "wrong-type", "/as"),
        ({"passes": []}, 422, "no-passes", "/passes"),
        ({"passes": "MergeLinears"}, 422, "wrong-type", "/passes"),
        ({"passes": ["Nonsense"]}, 422, "unknown-pass", "/passes/0"),
        ({"passes": ["FuseBatchNorm2dInConv2d"]}, 422, None, "/passes/0"),
        ({"passes": [7]}, 422, "bad-position", "/passes/0"),
        ({"who": 1}, 422, "wrong-type", "/who"),
        (branches(), 422, "unexpected-graph", ""),
    ],
)
def test_bad_rollbacks(shared, body, status, code, pointer):
    run = optimize(shared, branches(2, "bad rollbacks"), COMPOSED)
    put_version(shared, "bad-rollbacks", "v0", {"graph": run["source"]})
    put_version(shared, "bad-rollbacks", "v1", {"run": run["id"]})
    if put_alias(shared, "v0", CREATE, model="bad-rollbacks").status == 201:
        put_alias(shared, "v1", ANY, model="bad-rollbacks")
    before = shared.get("/v1/models/bad-rollbacks").json(), shared.get(path_of("live", "bad-rollbacks")).json()
    problem = is_problem(roll_back(shared, body, model="bad-rollbacks"), status, code)
    if pointer is not None:
        assert problem.get("pointer", "") == pointer
    assert before == (shared.get("/v1/models/bad-rollbacks").json(), shared.get(path_of("live", "bad-rollbacks")).json())


def test_one_pass_comes_out(service):
    run = optimize(service, branches(3), COMPOSED)
    put_version(service, "m", "plain", {"graph": run["source"]})
    put_version(service, "m", "fast", {"run": run["id"]})
    put_alias(service, "plain", CREATE)
    deployed = put_alias(service, "fast", ANY)
    back = roll_back(service, {"passes": ["MergeLinears"], "who": "ann", "why": "slow"},
                     headers={"If-Match": deployed.headers["etag"]})
    assert back.status == 200
    alias = back.json()
    assert alias["version"] == "fast-without-MergeLinears" and alias["who"] == "ann"
    fresh = optimize(service, run["source"], ["ChangeTrueDivToMulByInverse", "FuseBiasInLinear"])
    assert alias["graph"] == fresh["result"]
    made = service.get(f"/v1/runs/{alias['run']}").json()
    assert made["kind"] == "rollback" and made["exact"] and made["source"] == run["result"] and made["result"] == alias["graph"]
    version = service.get("/v1/models/m/versions/fast-without-MergeLinears").json()
    assert version["run"] == alias["run"] and version["graph"] == alias["graph"]
    assert service.get(path_of() + "/graph").headers["foldback-version"] == alias["version"]
    is_problem(roll_back(service, {"passes": ["FuseBiasInLinear"]}, headers={"If-Match": deployed.headers["etag"]}), 412,
               "alias-moved")

    # another pass, out of what is left
    again = roll_back(service, {"passes": ["FuseBiasInLinear"], "as": "only-mul"}).json()
    assert again["version"] == "only-mul"
    assert again["graph"] == optimize(service, run["source"], ["ChangeTrueDivToMulByInverse"])["result"]
    is_problem(roll_back(service, {"passes": ["MergeLinears"]}), 422)  # it is out already
    is_problem(roll_back(service, {"passes": ["ChangeTrueDivToMulByInverse"], "as": "fast"}), 409, "version-exists")

    # each was put on top of what was there
    assert [roll_back(service).json()["version"] for _ in range(3)] == ["fast-without-MergeLinears", "fast", "plain"]
    is_chain(history(service))


def test_passes_come_out_of_a_version_that_was_given_as_a_graph(service):
    run = optimize(service, branches(2), COMPOSED)
    put_version(service, "m", "fast", {"graph": run["result"]})
    put_alias(service, "fast", CREATE)
    alias = roll_back(service, {"passes": ["MergeLinears", 2]}).json()
    assert alias["version"] == "fast-without-MergeLinears-FuseBiasInLinear"
    assert alias["graph"] == optimize(service, run["source"], ["ChangeTrueDivToMulByInverse"])["result"]
    put_version(service, "m", "foreign", {"graph": branches(4, "no run made this")})
    put_alias(service, "foreign", ANY)
    before = counts(service)
    is_problem(roll_back(service, {"passes": ["MergeLinears"]}), 409)
    assert counts(service) == before and version_of(service) == "foreign"


def test_names_of_versions_without_passes(service):
    run = optimize(service, branches(2), COMPOSED)
    long = "n" * 200
    for name in ("v", long):
        put_version(service, "m", name, {"run": run["id"]})
    put_alias(service, "v", CREATE)
    names = []
    for version in ("v", "v", "v", long, long):
        put_alias(service, version, ANY)
        names.append(roll_back(service, {"passes": ["FuseBiasInLinear"]}).json()["version"])
    assert names[:3] == ["v-without-FuseBiasInLinear" + suffix for suffix in ("", "-2", "-3")]
    assert names[3:] == ["n" * 198 + suffix for suffix in ("-2", "-3")]


def test_a_repeated_rollback_is_done_once(service):
    run = optimize(service, branches(3), COMPOSED)
    put_version(service, "m", "plain", {"graph": run["source"]})
    put_version(service, "m", "fast", {"run": run["id"]})
    put_alias(service, "plain", CREATE)
    put_alias(service, "fast", ANY)
    key = {"Idempotency-Key": "once"}
    first = roll_back(service, {"passes": ["MergeLinears"]}, headers=key)
    assert first.status == 200 and "idempotency-replayed" not in first.headers
    put_alias(service, "plain", ANY)  # the answer stays what it was
    for _ in range(2):
        again = roll_back(service, {"passes": ["MergeLinears"]}, headers=key)
        assert (again.status, again.body) == (first.status, first.body)
        assert again.headers["idempotency-replayed"] == "true" and again.headers["etag"] == first.headers["etag"]
        service.restart()
    is_problem(roll_back(service, {}, headers=key), 422, "idempotency-key-reused")
    assert len(history(service)) == 4
    key = {"Idempotency-Key": "another"}
    again = {"version": "fast-without-MergeLinears"}  # which was taken back: it comes by its name alone
    first = roll_back(service, again, headers=key)
    assert first.json()["version"] == "fast-without-MergeLinears"
    assert roll_back(service, again, headers=key).body == first.body and len(history(service)) == 5
    nothing = roll_back(service, {"version": "v9"}, headers={"Idempotency-Key": "failed"})
    is_problem(nothing, 404, "unknown-version")
