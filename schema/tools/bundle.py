"""Makes one self-contained OpenAPI description of openapi.yaml and the schemas beside it.

    bundle.py openapi.yaml OUT_FOLDER    writes OUT_FOLDER/openapi.json and OUT_FOLDER/openapi.yaml

openapi.json is as strict as the schemas are: the tests and the page read it. openapi.yaml is what the service serves: the same,
in the words that generators of clients understand (see for_generators).

Four things are done:

- `$ref: schema/run.schema.json#/$defs/id` becomes `$ref: '#/components/schemas/Run.id'`, and so on inside the schemas: a file
  is one component (Run), and each of its $defs another one.
- `x-scope` of an operation becomes its `security`: read for GET and write for others unless it says so.
- `x-deferred: true` of an operation says that it takes Prefer: respond-async; `x-any-deferred: true` that it may answer
  whatever these do.
- `x-errors` of an operation becomes its problem responses. openapi.yaml says what each code means once, in `x-problems`, and
  which codes go together, in `x-error-groups`.
"""

import json
import pathlib
import re
import sys

import yaml

MEDIA = "application/problem+json"
TITLES = {
    400: "Not understood", 401: "Not known who asks", 403: "Forbidden", 404: "Not found", 406: "Not acceptable", 408: "Timeout",
    409: "Conflict", 410: "Gone",
    412: "Precondition failed", 413: "Too large", 414: "Target too long", 415: "Unsupported media type",
    416: "Range not satisfiable", 417: "Expectation failed", 422: "Invalid", 428: "Precondition required",
    429: "Too often; Retry-After says when to come back", 431: "Headers too large",
    500: "Internal error",
    503: "Overloaded or stopping: Retry-After says when to come back; or more work than is done at once",
    507: "The disk is full; nothing was stored",
}
RETRY = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds"}}
CHALLENGE = {"WWW-Authenticate": {"schema": {"type": "string"}, "description": "Bearer, and what is wrong with the token"}}
HEADERS = {401: CHALLENGE, 429: RETRY, 503: RETRY}
METHODS = ("get", "put", "post", "delete", "patch")


def fail(message):
    sys.exit(f"openapi.yaml: {message}")


# ---- schemas -----------------------------------------------------------------------------------------------------------------


def component_name(file):
    return "".join(word.capitalize() for word in file.removesuffix(".schema.json").split("-"))


def moved(reference, file):
    """Where a reference leads in the bundle. `file` is the schema that it stands in, None for openapi.yaml itself."""
    target, _, fragment = reference.partition("#")
    if not target and not file:
        return reference
    name = component_name(target.removeprefix("schema/") or file)
    if not fragment:
        return f"#/components/schemas/{name}"
    if not fragment.startswith("/$defs/"):
        fail(f"cannot follow the reference {reference}")
    return f"#/components/schemas/{name}.{fragment.removeprefix('/$defs/')}"


def with_references_moved(value, file):
    if isinstance(value, list):
        return [with_references_moved(item, file) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: moved(item, file) if key == "$ref" and isinstance(item, str) else with_references_moved(item, file)
        for key, item in value.items()
    }


def components_of(path):
    schema = with_references_moved(json.loads(path.read_text()), path.name)
    name = component_name(path.name)
    parts = schema.pop("$defs", {})
    for member in ("$schema", "$id"):
        schema.pop(member)
    yield name, schema
    for part, value in parts.items():
        yield f"{name}.{part}", value


def resolve(document, reference):
    value = document
    for token in reference.removeprefix("#/").split("/"):
        value = value.get(token) if isinstance(value, dict) else None
        if value is None:
            fail(f"the reference {reference} leads nowhere")
    return value


def check_references(document, value=None):
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else [document]:
        if isinstance(item, dict) and isinstance(item.get("$ref"), str):
            resolve(document, item["$ref"])
        if isinstance(item, (dict, list)):
            check_references(document, item)


def check_no_member_is_null(value, place=""):
    """In a flow mapping, YAML takes `description: where, and when` for a description and a member `and when` without a
    value."""
    if isinstance(value, dict):
        for key, item in value.items():
            if item is None:
                fail(f"{place}/{key} has no value: quote a text that has a comma")
            if key not in (*EXAMPLES, "value", "default", "const", "enum", "members"):
                check_no_member_is_null(item, f"{place}/{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            check_no_member_is_null(item, f"{place}/{i}")


def references(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def drop_unused_schemas(document):
    schemas = document["components"].pop("schemas")
    reached, waiting = set(), list(references(document))
    while waiting:
        name = waiting.pop().removeprefix("#/components/schemas/")
        if name in schemas and name not in reached:
            reached.add(name)
            waiting += references(schemas[name])
    document["components"]["schemas"] = {name: schema for name, schema in schemas.items() if name in reached}


# ---- problems ----------------------------------------------------------------------------------------------------------------


def codes_of(errors, groups):
    """{status: [code, …]} of an x-errors or a group, with the groups that it uses."""
    found = {}
    for name in errors.get("use", []):
        for status, codes in codes_of(groups[name], groups).items():
            found.setdefault(status, []).extend(codes)
    for status, codes in errors.items():
        if status != "use":
            found.setdefault(status, []).extend(codes)
    return found


def scope_of_operation(method, operation):
    return operation.get("x-scope", "read" if method == "get" else "write")


def groups_of_operation(method, operation):
    yield "every"
    if scope_of_operation(method, operation) != "none":
        yield "access"
    if not operation.get("x-any-query"):
        yield "query"
    body = operation.get("requestBody")
    yield "no-body" if body is None else "json-body" if "application/json" in body["content"] else "byte-body"
    if body and body.get("required"):
        yield "required-body"
    if method != "get":
        yield "write"


def problem(code, status, meaning):
    return {
        "type": f"/problems/{code}",
        "title": code.replace("-", " ").capitalize(),
        "status": status,
        "detail": meaning["detail"],
        "code": code,
        **meaning.get("members", {}),
    }


def problem_response(status, codes, problems):
    codes = sorted(set(codes))
    unknown = [code for code in codes if code not in problems]
    if unknown:
        fail(f"x-problems does not say what {', '.join(unknown)} means")
    shown = codes if len(codes) <= 8 else codes[:1]
    return {
        "description": TITLES[status] + ": " + ", ".join(f"`{code}`" for code in codes),
        **({"headers": HEADERS[status]} if status in HEADERS else {}),
        "content": {
            MEDIA: {
                "schema": {
                    "$ref": "#/components/schemas/Problem",
                    "properties": {"status": {"const": status}, "code": {"enum": codes}},
                },
                "examples": {code: {"value": problem(code, status, problems[code])} for code in shown},
            }
        },
    }


def add_security(document):
    """Without tokens in the data folder nobody needs one: so the other choice is none."""
    for item in document["paths"].values():
        for method in METHODS:
            if method in item:
                scope = scope_of_operation(method, item[method])
                item[method].pop("x-scope", None)
                item[method]["security"] = [] if scope == "none" else [{"token": [scope]}, {}]


def add_jobs(document):
    deferred = []
    for item in document["paths"].values():
        for method in METHODS:
            operation = item.get(method, {})
            if not operation.pop("x-deferred", False):
                continue
            deferred.append(operation.setdefault("x-errors", {}))
            deferred[-1]["use"] = [*deferred[-1].get("use", []), "deferred"]
            parameters = operation.setdefault("parameters", [])
            for name in ("Prefer", "IdempotencyKey"):
                reference = {"$ref": f"#/components/parameters/{name}"}
                if reference not in parameters:
                    parameters.append(reference)
            operation["responses"]["202"] = {"$ref": "#/components/responses/Job"}
    document["x-error-groups"] |= {f"deferred-{i}": errors for i, errors in enumerate(deferred)}
    for item in document["paths"].values():
        for method in METHODS:
            operation = item.get(method, {})
            if operation.pop("x-any-deferred", False):
                errors = operation.setdefault("x-errors", {})
                errors["use"] = [*errors.get("use", []), *(f"deferred-{i}" for i in range(len(deferred))), "json-body", "write"]


def add_problems(document):
    problems, groups = document["x-problems"], document.pop("x-error-groups")
    for code, meaning in problems.items():
        if isinstance(meaning, str):
            problems[code] = {"detail": meaning}
    used, by_text, shared = set(), {}, {}
    for path, item in document["paths"].items():
        for method in METHODS:
            operation = item.get(method)
            if not operation:
                continue
            errors = operation.pop("x-errors", {})
            errors["use"] = [*groups_of_operation(method, operation), *errors.get("use", [])]
            for status, codes in sorted(codes_of(errors, groups).items()):
                used.update(codes)
                response = problem_response(status, codes, problems)
                operation["responses"][str(status)] = response
                by_text.setdefault(json.dumps(response), []).append((operation["responses"], str(status)))
    if unused := set(problems) - used - set(document["x-unrouted"]):
        fail(f"no operation has the problems {', '.join(sorted(unused))}")
    # What several operations have in common stands once.
    for places in by_text.values():
        if len(places) == 1:
            continue
        responses, status = places[0]
        count = sum(name.startswith(f"Problem{status}") for name in shared)
        name = f"Problem{status}" + (f".{count + 1}" if count else "")
        shared[name] = responses[status]
        for responses, status in places:
            responses[status] = {"$ref": f"#/components/responses/{name}"}
    document["components"]["responses"] |= shared


# ---- for generators of clients -----------------------------------------------------------------------------------------------


TYPES = ("$ref", "type", "enum", "const", "anyOf", "oneOf", "allOf")
CONDITIONS = ("if", "then", "else", "not", "dependentSchemas", "dependentRequired", "propertyNames", "$comment")
EXAMPLES = ("example", "examples")


def is_type(schema):
    return any(word in schema for word in TYPES)


def in_plain_types(value):
    """Only what a type says: no conditions between members, and a choice is one of types. What may be said as true, 1 or
    nothing in a query is a boolean."""
    if isinstance(value, list):
        return [in_plain_types(item) for item in value]
    if not isinstance(value, dict):
        return value
    plain = {key: item if key in EXAMPLES else in_plain_types(item) for key, item in value.items() if key not in CONDITIONS}
    for word in ("anyOf", "oneOf", "allOf"):
        if isinstance(plain.get(word), list):
            plain[word] = [item for item in plain[word] if is_type(item)]
            if not plain[word]:
                del plain[word]
    if isinstance(plain.get("enum"), list) and True in plain["enum"]:
        plain = {key: item for key, item in plain.items() if key != "enum"} | {"type": "boolean"}
    return plain


def is_text(schema, schemas):
    reference = schema.get("$ref", "").removeprefix("#/components/schemas/")
    if reference in schemas:
        return is_text(schemas[reference], schemas)
    return schema.get("type") == "string" or isinstance(schema.get("const"), str)


def kinds_of(schema, schemas):
    """The JSON types that a schema may be of."""
    reference = schema.get("$ref", "").removeprefix("#/components/schemas/")
    if reference in schemas:
        return kinds_of(schemas[reference], schemas)
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return [kind for item in schema[word] for kind in kinds_of(item, schemas)]
    kind = schema.get("type", "object" if "properties" in schema else [])
    return [kind] if isinstance(kind, str) else kind


def with_simple_choices(value, schemas):
    """A choice of texts is a text: openapi-python-client takes the first one only, be it a const. A choice of several objects
    is of any type: openapi-generator takes the first that could be read, and what it does not know of it is lost."""
    if isinstance(value, list):
        return [with_simple_choices(item, schemas) for item in value]
    if not isinstance(value, dict):
        return value
    simple = {key: item if key in EXAMPLES else with_simple_choices(item, schemas) for key, item in value.items()}
    for word in ("anyOf", "oneOf"):
        if isinstance(simple.get(word), list):
            kinds = [kind for item in simple[word] for kind in kinds_of(item, schemas)]
            if all(is_text(item, schemas) for item in simple[word]):
                del simple[word]
                simple["type"] = "string"
            elif kinds.count("object") > 1:
                del simple[word]
    # openapi-generator asks every one of these whether it would take the value, and an array of anything does
    if "oneOf" in simple:
        simple["anyOf"] = simple.pop("oneOf")
    return simple


def with_references_alone(value, schemas):
    """Generators read nothing beside a $ref. An object with more members than the one referred to gets that one's; other
    conditions are left out. A problem is only a Problem: its codes stand in the response's description."""
    if isinstance(value, list):
        return [with_references_alone(item, schemas) for item in value]
    if not isinstance(value, dict):
        return value
    alone = {key: item if key in EXAMPLES else with_references_alone(item, schemas) for key, item in value.items()}
    reference = alone.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/components/schemas/"):
        return alone
    if "properties" not in alone or reference == "#/components/schemas/Problem":
        return {key: item for key, item in alone.items() if key in ("$ref", "description")}
    base = with_references_alone(schemas[reference.removeprefix("#/components/schemas/")], schemas)
    whole = {**base, **{key: item for key, item in alone.items() if key != "$ref"}}
    whole["properties"] = {**base.get("properties", {}), **alone["properties"]}
    whole["required"] = sorted({*base.get("required", []), *alone.get("required", [])})
    return whole


def without_recursion(value, name, schemas):
    """An array of itself cannot be a member of an interface in TypeScript (openapi-typescript), nor a union be a member of
    itself (openapi-python-client): what is nested in a value of this type is of any type."""
    if isinstance(value, list):
        return [without_recursion(item, name, schemas) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("$ref") == f"#/components/schemas/{name}":
        nested = {"description": f"nested: {name}"}
        return {"type": "array", "items": {}, **nested} if schemas[name].get("type") == "array" else nested
    return {key: without_recursion(item, name, schemas) for key, item in value.items()}


def with_defaults_told(value):
    """A member with a default becomes one that must be there (openapi-typescript), or one that is always sent (the others).
    So defaults are told in descriptions."""
    if isinstance(value, list):
        return [with_defaults_told(item) for item in value]
    if not isinstance(value, dict):
        return value
    told = {key: item if key in EXAMPLES else with_defaults_told(item) for key, item in value.items()}
    for name, member in told.get("properties", {}).items() if isinstance(told.get("properties"), dict) else []:
        if isinstance(member, dict) and "default" in member:
            default = f"default: {json.dumps(member.pop('default'), ensure_ascii=False)}"
            member["description"] = f"{member['description']} ({default})" if "description" in member else default
    return told


def for_generators(document):
    """Openapi-typescript, openapi-python-client and openapi-generator make clients of this that compile and work
    (tests/generators)."""
    plain = with_defaults_told(in_plain_types(document))
    # A bare document as the body is for curl: a client sends the request, which stands first.
    for operation in (one for item in plain["paths"].values() for method, one in item.items() if method in METHODS):
        for content in operation.get("requestBody", {}).get("content", {}).values():
            content["schema"] = content["schema"].get("oneOf", [content["schema"]])[0]
    plain = with_simple_choices(plain, plain["components"]["schemas"])
    plain = with_references_alone(plain, plain["components"]["schemas"])
    schemas = plain["components"]["schemas"]
    plain["components"]["schemas"] = {name: without_recursion(schema, name, schemas) for name, schema in schemas.items()}
    for name, schema in plain["components"]["schemas"].items():
        schema.pop("title", None)  # openapi-python-client would name the class by it
        # What a document has beyond its schema is kept; openapi-generator drops it unless this is said.
        if name.startswith("Graph") and "properties" in schema:
            schema.setdefault("additionalProperties", True)
    # Swagger's parser, which openapi-generator uses, takes nothing but a string for the body that a link sends.
    answers = [one["responses"] for item in plain["paths"].values() for method, one in item.items() if method in METHODS]
    for response in (one for group in (*answers, plain["components"]["responses"]) for one in group.values()):
        response.pop("links", None)
    for item in plain["paths"].values():
        for parameter in (one for method in METHODS for one in item.get(method, {}).get("parameters", [])):
            if "const" in parameter.get("schema", {}):
                parameter["schema"] = {"type": "string", "description": f"only {parameter['schema']['const']}"}
    drop_unused_schemas(plain)
    return plain


# ---- the whole ---------------------------------------------------------------------------------------------------------------


def check_operations(document):
    seen = set()
    for path, item in document["paths"].items():
        for method in METHODS:
            if method not in item:
                continue
            operation = item[method]
            if operation["operationId"] in seen:
                fail(f"two operations are named {operation['operationId']}")
            seen.add(operation["operationId"])
            for what in ("tags", "summary", "responses"):
                if not operation.get(what):
                    fail(f"{method} {path} has no {what}")


def bundle(source):
    document = with_references_moved(yaml.safe_load(source.read_text()), None)
    check_no_member_is_null(document)
    schemas = document["components"]["schemas"]
    for path in sorted(source.parent.glob("schema/*.schema.json")):
        for name, schema in components_of(path):
            if name in schemas:
                fail(f"{name} is defined twice")
            schemas[name] = schema
    add_jobs(document)
    add_problems(document)
    add_security(document)
    check_operations(document)
    check_references(document)
    return document


class Dumper(yaml.SafeDumper):
    """Long texts as blocks, and nothing by reference: a person may read this."""

    def ignore_aliases(self, data):
        return True


def represent_text(dumper, text):
    style = "|" if re.search(r"[^\n]\n+[^\n]", text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


Dumper.add_representer(str, represent_text)


def main():
    source, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    document = bundle(source)
    out.mkdir(parents=True, exist_ok=True)
    text = yaml.dump(for_generators(document), Dumper=Dumper, sort_keys=False, width=128, allow_unicode=True)
    (out / "openapi.json").write_text(json.dumps(document, ensure_ascii=False))
    (out / "openapi.yaml").write_text("# Made of openapi.yaml and schema/ by schema/tools/bundle.py.\n" + text)


if __name__ == "__main__":
    main()
