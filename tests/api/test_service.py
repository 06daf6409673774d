"""The service about itself: where to start, health, metrics, the API's description."""

import base64
import hashlib
import html.parser
import json
import re

import pytest
import yaml
from conftest import description
from documents import branches


def test_index(shared):
    index = shared.get("/").json()
    assert index["name"] == "foldback" and shared.url in index["start"][0]
    for link in ("passes", "graphs", "runs", "health", "metrics", "openapi", "docs"):
        assert shared.get(index[link]).status == 200


@pytest.mark.heavy
def test_description_is_served(shared):
    answer = shared.get("/openapi.yaml")
    assert answer.headers["content-type"] == "application/yaml"
    served = yaml.safe_load(answer.body)
    # The same operations, parameters and answers; schemas in plainer words, for generators of clients (tests/generators).
    strict = description().document
    assert served["info"] == strict["info"] and served["x-problems"] == strict["x-problems"]
    assert served["paths"].keys() == strict["paths"].keys()
    for path, item in strict["paths"].items():
        assert served["paths"][path].keys() == item.keys()
        for method in item.keys() - {"parameters"}:
            ours, theirs = served["paths"][path][method], item[method]
            assert ours["operationId"] == theirs["operationId"] and ours["responses"].keys() == theirs["responses"].keys()
            assert len(ours.get("parameters", [])) == len(theirs.get("parameters", []))
    assert served["components"]["schemas"].keys() <= strict["components"]["schemas"].keys()
    assert served["openapi"].startswith("3.1.") and len(served["paths"]) > 20


def test_description_needs_nothing_else():
    def references(value):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if key == "$ref":
                yield item
            elif isinstance(item, (dict, list)):
                yield from references(item)

    found = {item for item in references(description().document) if isinstance(item, str)}
    assert len(found) > 50
    for reference in found:
        assert reference.startswith("#/components/")
        description().found({"$ref": reference})


def test_described_methods_are_allowed(shared):
    for path, item in description().document["paths"].items():
        answer = shared.request("OPTIONS", path.replace("{", "").replace("}", ""))
        allowed = set(answer.headers["allow"].split(", ")) - {"HEAD", "OPTIONS"}
        assert allowed == {method.upper() for method in item} - {"PARAMETERS"}, path


def test_examples_are_as_described():
    """Of bodies and answers; those of problems too."""
    count = 0
    for path, item in description().document["paths"].items():
        for operation in (item[method] for method in item if method != "parameters"):
            for part in [operation.get("requestBody", {}), *map(description().found, operation["responses"].values())]:
                for kind, content in part.get("content", {}).items():
                    examples = [one["value"] for one in content.get("examples", {}).values()]
                    examples += [content["example"]] if "json" in kind and "example" in content else []
                    for example in examples:
                        count += 1
                        description().check_value(content["schema"], json.dumps(example).encode(), f"an example of {path}")
    assert count > 100
    for name, schema in description().document["components"]["schemas"].items():
        for example in schema.get("examples", []):
            reference = {"$ref": f"#/components/schemas/{name}"}
            description().check_value(reference, json.dumps(example).encode(), f"an example of {name}")


class Page(html.parser.HTMLParser):
    """What a browser would load or run, and where the page's own links lead."""

    def __init__(self):
        super().__init__()
        self.loaded, self.ids, self.links, self.open = [], [], [], []

    def handle_starttag(self, tag, attributes):
        names = dict(attributes)
        self.loaded += [(tag, name) for name in names if name in ("src", "srcset", "style") or name.startswith("on")]
        self.loaded += [(tag, "") for one in ("link", "iframe", "img", "object", "form", "base") if tag == one]
        self.ids += [names["id"]] if "id" in names else []
        self.links += [names["href"]] if "href" in names else []
        if tag not in ("meta", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_docs(shared):
    answer = shared.get("/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    text = answer.body.decode()
    page = Page()
    page.feed(text)
    assert page.loaded == [] and page.open == []
    assert len(page.ids) == len(set(page.ids)) > 100
    for link in page.links:
        assert link == "/openapi.yaml" or link[1:] in page.ids, link
    style = re.search("<style>(.*?)</style>", text, re.S)[1]
    assert "url(" not in style and "@import" not in style
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = answer.headers["content-security-policy"].split("; ")
    assert "default-src 'none'" in policy and f"style-src 'sha256-{digest}'" in policy and "unsafe" not in str(policy)
    (script,) = re.findall("<script[^>]*>(.*?)</script>", text, re.S)  # the search box
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy and "fetch(" not in script and "import" not in script
    for path, item in description().document["paths"].items():
        for method in item.keys() - {"parameters"}:
            assert item[method]["operationId"] in page.ids, (method, path)


def test_health(shared):
    assert shared.get("/livez").json() == {"status": "live"}
    assert shared.get("/readyz").json() == {"status": "ready"}


def test_metrics(shared):
    shared.post("/v1/optimize", branches(), raw_query="pass=MergeLinears")
    answer = shared.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.body.decode().splitlines()
    assert answer.body.endswith(b"\n")
    for line in lines:
        assert re.fullmatch(r'# (HELP|TYPE) \w+ .+|\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? -?[0-9.e+-]+', line), line
    types = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    for prefix in ("foldback_build_info", "foldback_http_", "foldback_store_", "foldback_cache_",
                   "foldback_pass_applied_total"):
        assert any(line.startswith(prefix) for line in lines), prefix
