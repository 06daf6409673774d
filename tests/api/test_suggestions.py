"""did_you_mean: a problem about a name that does not exist has the nearest one that does."""

import json

import pytest
from documents import branches, document
from test_http import is_problem
from test_models import put_version

TOY = json.loads(document("toy"))
KV = {"name": "kv-fused", "rows": [{"from": {"k": "{*block}k_proj.weight", "v": "{*block}v_proj.weight"},
                                    "to": {"{*block}kv_proj.weight": {"op": "concat", "axis": 0, "args": ["k", "v"]}}}]}


@pytest.fixture
def named(shared):
    graph = put_version(shared, "resnet50", "v1", {"graph": branches(2)}).json()["graph"]
    assert shared.request("PUT", "/v1/models/resnet50/aliases/production", {"version": "v1"},
                          headers={"If-None-Match": "*"}).status in (200, 201, 412)
    assert shared.request("PUT", "/v1/layouts/kv-fused", KV).status in (200, 201)
    return graph


CASES = {
    "a pass": ("POST", "/v1/optimize", {"graph": TOY, "passes": ["MergeLinear"]}, 422, "unknown-pass", "MergeLinears"),
    "a preset": ("POST", "/v1/optimize", {"graph": TOY, "passes": ["inferense"]}, 422, "unknown-pass", "inference"),
    "a shipped layout as a pass": ("POST", "/v1/optimize", {"graph": TOY, "passes": ["qkv-fuse"]}, 422, "unknown-pass",
                                   "qkv-fused"),
    "a custom layout as a pass": ("POST", "/v1/optimize", {"graph": TOY, "passes": ["kv-fuse"]}, 422, "unknown-pass",
                                  "kv-fused"),
    "the page of a pass": ("GET", "/v1/passes/MergeLinaers", None, 404, "unknown-pass", "MergeLinears"),
    "runs with a pass": ("GET", "/v1/runs?pass=MergeLiners", None, 422, "unknown-pass", "MergeLinears"),
    "a shipped layout": ("GET", "/v1/layouts/megatron-gqu", None, 404, "unknown-layout", "megatron-gqa"),
    "a custom layout": ("GET", "/v1/layouts/kv_fused", None, 404, "unknown-layout", "kv-fused"),
    "a model": ("GET", "/v1/models/resnet5O", None, 404, "unknown-model", "resnet50"),
    "the beginning of a model": ("GET", "/v1/models/res", None, 404, "unknown-model", "resnet50"),
    "a model with an alias": ("GET", "/v1/models/resnett50/aliases/production", None, 404, "unknown-model", "resnet50"),
    "a version": ("GET", "/v1/models/resnet50/versions/v11", None, 404, "unknown-version", "v1"),
    "an alias": ("GET", "/v1/models/resnet50/aliases/produktion", None, 404, "unknown-alias", "production"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_nearest_name_is_in_the_problem(shared, named, case):
    method, path, body, status, code, meant = CASES[case]
    problem = is_problem(shared.request(method, path, body), status, code)
    assert problem["did_you_mean"] == meant, problem


@pytest.mark.parametrize("path, code", [("/v1/passes/Transmogrify", "unknown-pass"), ("/v1/layouts/q", "unknown-layout"),
                                        ("/v1/models/llama", "unknown-model"),
                                        ("/v1/models/resnet50/aliases/canary", "unknown-alias"),
                                        ("/v1/graphs/sha256:" + 64 * "0", "unknown-graph")])
def test_nothing_is_like_it(shared, named, path, code):
    assert "did_you_mean" not in is_problem(shared.get(path), 404, code)


def test_a_layout_is_named_as_one(shared):
    """Also one of the binary that nobody has asked the store for."""
    problem = is_problem(shared.get("/v1/passes/gpt2-conv1d"), 404, "unknown-pass")
    assert problem["detail"] == '"gpt2-conv1d" is a layout: GET /v1/layouts/gpt2-conv1d' and "did_you_mean" not in problem
