"""Holds answers against the API's description: what the service says must be what openapi.yaml says that it says."""

import functools
import gzip
import hashlib
import json
import os
import re
import urllib.parse

import jsonschema

PROBLEM = "application/problem+json"
# By these a schema takes members from others.
RESTS = ("files/[^/]+", "files/.+")  # a path within the path
COMBINED = {"$ref", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "patternProperties"}


def closed(schema):
    """As `schema`, but members that it does not name are errors: the description leaves room for later ones, this service must
    not use it."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: value if key in ("enum", "const", "examples") else closed(value) for key, value in schema.items()}
    names_members = "properties" in schema or "$ref" in schema
    if schema.get("type") == "object" and names_members and "additionalProperties" not in schema:
        # Both mean the same where `properties` alone names members, but the second takes ten times as long.
        is_alone = not schema.keys() & COMBINED
        schema["additionalProperties" if is_alone else "unevaluatedProperties"] = False
    return schema


def sampled(value, most):
    """As `value`, but of a list that has more than `most` items only some, from all over it."""
    if isinstance(value, dict):
        return {key: sampled(item, most) for key, item in value.items()}
    if isinstance(value, list):
        return [sampled(item, most) for item in value[:: -(-len(value) // most) or 1]]
    return value


class Description:
    def __init__(self, path):
        self.document = json.loads(path.read_text())
        self.seen = set()
        self.most_items = int(os.environ.get("FOLDBACK_ITEMS_CHECKED", 1 << 30))  # of each list in an answer
        components = self.document["components"]
        # A graph document says itself where strange members are kept.
        self.components = {
            "schemas": {
                name: schema if name.split(".")[0] == "Graph" else closed(schema)
                for name, schema in components["schemas"].items()
            }
        }
        self.checker = self.make_checker()
        self.patterns = [
            (path.count("{"), re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)).replace(*RESTS)), item)
            for path, item in self.document["paths"].items()
        ]
        self.patterns.sort(key=lambda pattern: pattern[0])  # a literal segment beats a parameter

    def found(self, value):
        while "$ref" in value:
            at = self.document
            for token in value["$ref"].removeprefix("#/").split("/"):
                at = at[token]
            value = at
        return value

    @functools.cached_property
    def problems(self):
        """{(status, code)} of all operations."""
        found = set()
        for item in self.document["paths"].values():
            for operation in item.values():
                for status, response in operation.get("responses", {}).items() if isinstance(operation, dict) else ():
                    content = self.found(response).get("content", {})
                    if PROBLEM in content:
                        found |= {(int(status), code) for code in content[PROBLEM]["schema"]["properties"]["code"]["enum"]}
        return found

    def operation(self, method, path):
        """The operation; None for a path or method that has none."""
        for _, pattern, item in self.patterns:
            if pattern.fullmatch(path):
                return item.get("get" if method == "HEAD" else method.lower()) if method.isupper() else None
        return None

    def make_checker(self):
        """jsonschema's validator, but what a reference leads to is looked up once, and a value that it found right is not
        looked at again: answers repeat much of each other."""
        right, schemas = set(), {f"#/components/schemas/{name}": schema for name, schema in self.components["schemas"].items()}

        def follow(validator, ref, value, schema):
            key = ref, hashlib.sha256(repr(value).encode()).digest()
            if key in right:
                return
            is_right = True
            for error in validator.descend(value, schemas[ref]):
                is_right = False
                yield error
            if is_right:
                right.add(key)

        return jsonschema.validators.extend(jsonschema.Draft202012Validator, {"$ref": follow})

    @functools.lru_cache(None)
    def validator(self, schema):
        return self.checker({**json.loads(schema), "components": self.components})

    def check_value(self, schema, body, what):
        schema = json.dumps(schema)
        key = hashlib.sha256(schema.encode() + body).digest()
        if key in self.seen:
            return
        value = sampled(json.loads(body), self.most_items)
        errors = sorted(self.validator(schema).iter_errors(value), key=lambda error: len(error.path))
        if errors:
            best = jsonschema.exceptions.best_match(iter(errors))
            at = "/" + "/".join(map(str, best.absolute_path))
            raise AssertionError(f"{what}: not as described at {at}: {best.message[:600]}; answer: {body[:1500]!r}")
        self.seen.add(key)

    def check_problem(self, status, body):
        """A problem of any request: for answers of which it is not known what was asked."""
        self.check_value({"$ref": "#/components/schemas/Problem"}, body, f"problem {status}")
        problem = json.loads(body)
        known = (status, problem["code"]) in self.problems or problem["code"] in self.document["x-unrouted"]
        assert known and problem["status"] == status, f"no operation answers {problem['code']} with {status}"

    def check(self, method, target, answer):
        what = f"{method} {target[:200]}"
        kind = answer.headers.get("content-type", "").split(";")[0]
        coding = answer.headers.get("content-encoding")
        body = gzip.decompress(answer.body) if coding == "gzip" else answer.body
        path = urllib.parse.unquote(urllib.parse.urlsplit(target).path) if target.startswith("/") else target
        operation = self.operation(method, path)
        if operation is None:
            if method == "OPTIONS" and answer.status == 204:
                return
            assert method == "HEAD" or kind == PROBLEM, f"{what}: {answer} is not described"
            if body:
                self.check_problem(answer.status, body)
            return
        assert str(answer.status) in operation["responses"], f"{what}: {answer.status} is not described: {answer}"
        content = self.found(operation["responses"][str(answer.status)]).get("content", {})
        if method == "HEAD" or not content:
            assert not body, f"{what}: a body is not described: {answer}"
            return
        assert kind in content, f"{what}: {kind} is not described: {answer}"
        if kind.endswith("json") and coding != "zstd":  # which Python cannot read
            self.check_value(content[kind]["schema"], body, what)

    def check_raw(self, sent):
        """The problems in bytes as they came from a socket."""
        for match in re.finditer(rb"HTTP/1\.1 (\d{3}) [^\r]*\r\n((?:[^\r\n]+\r\n)*)\r\n", sent):
            length = re.search(rb"(?im)^content-length: *(\d+)", match[2])
            body = sent[match.end() : match.end() + int(length[1])] if length else b""
            if PROBLEM.encode() in match[2] and length and len(body) == int(length[1]):
                self.check_problem(int(match[1]), body)
