"""Holds the service's route tables against the description: what is missing on either side fails the build.

    cc -E -P server/routes/*.c | check_routes.py openapi.json

Compared are paths and methods, the parameters of path and query, whether there is a body, what kinds of answer there are,
and the scope that is needed.
"""

import json
import re
import sys

METHODS = ("get", "put", "post", "delete", "patch")


def rows(text):
    """The rows of the tables that tables[] joins as {member: text}, from preprocessed C: adjacent string literals are one."""
    text = re.sub(r'"\s+"', "", text)
    joined = re.search(r"\btables\[\]\s*=\s*\{(.*?)\};", text, re.S)
    for table in re.findall(r"\w+", joined[1]) if joined else sys.exit("check_routes: no tables[] joins the routes"):
        found = re.search(rf"\b{table}\[\]\s*=\s*\{{(.*?)\n?\}};", text,
                          re.S) or sys.exit(f"check_routes: there is no table {table}")
        for row in re.findall(r"\{(\s*\.method(?:[^{}\"]|\"[^\"]*\")*)\}", found[1]):
            yield {name: value.strip().strip('"') for name, value in re.findall(r'\.(\w+)\s*=\s*("[^"]*"|[^,"]+)', row)}


def of_route(row):
    """A body that a query parameter may stand for (instead_of_body) is described as required."""
    query = row.get("query")
    body = "FB_BODY_REQUIRED" if "instead_of_body" in row else row.get("body")
    return {
        "path parameters": sorted(re.findall(r"\{(\w+)\}", row["pattern"])),
        "query parameters": "any" if query is None else sorted(filter(None, query.split(","))),
        "body": {"FB_BODY_REQUIRED": "required", "FB_BODY_OPTIONAL": "optional"}.get(body, "none"),
        "answers": sorted(row.get("produces", "application/json").split(",")),
        "scope": row.get("scope", "not said").removeprefix("FB_SCOPE_").lower(),
    }


def of_operation(document, item, operation):
    def found(value):
        while "$ref" in value:
            at = document
            for token in value["$ref"].removeprefix("#/").split("/"):
                at = at[token]
            value = at
        return value

    parameters = [found(one) for one in item.get("parameters", []) + operation.get("parameters", [])]
    names = {where: sorted(one["name"] for one in parameters if one["in"] == where) for where in ("path", "query")}
    body = operation.get("requestBody")
    # 202 is not the route's own answer: a job is.
    answers = [found(one) for status, one in operation["responses"].items() if status[0] in "23" and status != "202"]
    return {
        "path parameters": names["path"],
        "query parameters": "any" if operation.get("x-any-query") else names["query"],
        "body": "none" if body is None else "required" if body.get("required") else "optional",
        # An answer without a body is none of any kind.
        "answers": sorted({kind for one in answers for kind in one.get("content", {})}) or ["application/json"],
        "scope": operation["security"][0]["token"][0] if operation.get("security") else "none",
    }


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        document = json.load(file)
    routes = {(row["method"], row["pattern"]): of_route(row) for row in rows(sys.stdin.read())}
    operations = {
        (method.upper(), path): of_operation(document, item, item[method])
        for path, item in document["paths"].items()
        for method in METHODS
        if method in item
    }
    wrong = [f"{m} {p} is a route, but openapi.yaml lacks it" for m, p in routes.keys() - operations.keys()]
    wrong += [f"{m} {p} is in openapi.yaml, but is not a route" for m, p in operations.keys() - routes.keys()]
    for key in routes.keys() & operations.keys():
        for what, of_code in routes[key].items():
            if of_code != operations[key][what]:
                wrong.append(f"{' '.join(key)}: {what}: {of_code} in server/routes, {operations[key][what]} in openapi.yaml")
    if wrong or not routes:
        sys.exit("\n".join(["the routes and openapi.yaml differ:", *sorted(wrong)]))


if __name__ == "__main__":
    main()
