"""docs/passes.md and README.md's table, from what the service says of its passes, and what it refuses in the golden cases."""

import json

import golden

INTRODUCTION = """# Passes

This page says what each pass does, when it applies and when it refuses. It is generated from `GET /v1/passes/{name}` (also
`foldback pass show NAME`) and from the service's answers for the golden cases in `tests/golden`. A test fails if it is old.

**Exactness** says what happens to the numbers:

- *moves* rearranges weights and never recomputes them.
- *rounds* computes the same function in real arithmetic, and rounds constants or weights once.
- *changes* computes something else, on purpose.

**Gain** says what the pass alone does to the time that PyTorch takes, as
[performance.md](performance.md#what-each-pass-saves-alone) measured it:

- *faster* or *slower*: by 5 % or more.
- *fewer-nodes*: as fast, with fewer nodes.
- *same*: as fast, with as many nodes or more.
- *smaller*: the weights shrink; not faster.
- *unmeasured*: no measured model has a match.

[Rollback undoes every pass exactly](undo.md). A *reversible* pass can also be undone on a graph that was fine-tuned since.

foldback reports each node that looks like a match but must not be rewritten: the node is *refused*, with a reason.
"""


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def table(head, rows):
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *lines])


def kind_of(schema):
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    return f"list of {schema['items']['type']}s" if schema["type"] == "array" else schema["type"]


def parameters(described):
    schema = described["parameters"]
    rows = []
    for name, one in schema["properties"].items():
        default = "required" if name in schema.get("required",
                                                   []) else f"`{json.dumps(one['default'])}`" if "default" in one else ""
        rows.append([f"`{name}`", kind_of(one), default, cell(one.get("description", ""))])
    return table(["parameter", "", "default", ""], rows) if rows else "No parameters."


def refusals(service, name):
    """Each reason with a sentence that the service gives for it, and the case in which it does."""
    found = {}
    for case in golden.names(name):
        reports = golden.read(case, "refused")
        reasons = {one["reason"] for report in reports if report["pass"] == name for one in report["refused"]}
        if reasons <= found.keys():
            continue
        request = {"graph": golden.read(case), "passes": golden.read(case, "passes"), "options": {"dry_run": True}}
        answer = service.post("/v1/optimize", request).json()
        for report in answer["passes"]:
            for one in report["refused"] if report["name"] == name else []:
                found.setdefault(one["reason"], [f"`{one['reason']}`", cell(one["detail"]), f"`{case.partition('/')[2]}`"])
    return table(["refused", "example", "golden case"], [found[reason] for reason in sorted(found)]) if found else None


def chapter(service, name):
    described = service.get(f"/v1/passes/{name}").json()
    facts = [f"exactness: *{described['exactness']}*", "reversible" if described["reversible"] else "not reversible",
             f"gain: *{described['gain']}*", f"version {described['version']}"]
    parts = [f"## {name}", described["summary"], ", ".join(facts) + ".",
             "```text\n" + described["documentation"].strip() + "\n```",
             parameters(described), refusals(service, name)]
    return "\n\n".join(part for part in parts if part) + "\n"


def spelled(passes):
    return " ".join(f"`{json.dumps(one)}`" for one in passes)


def at_one_token(preset):
    return f' and with `{{"tokens": 1}}` {spelled(preset["at_one_token"])}' if "at_one_token" in preset else ""


def readme_table(items):
    """The table of passes in README.md."""
    rows = [[f"`{one['name']}`", cell(one["summary"]), one["exactness"], "yes" if one["reversible"] else "no"] for one in items]
    return table(["pass", "what it does", "exactness", "reversible"], rows) + "\n"


def passes_document(service):
    answer = service.get("/v1/passes").json()
    rows = [[f"[{one['name']}](#{one['name'].lower()})", one["exactness"], "yes" if one["reversible"] else "no", one["gain"],
             cell(one["summary"])]
            for one in answer["items"]]
    presets = [[f"`{one['name']}`", cell(one["summary"]), cell(spelled(one["passes"]) + at_one_token(one)),
                str(one["rounds"])] for one in answer["presets"]]
    parts = [INTRODUCTION, table(["pass", "exactness", "reversible", "gain", ""], rows) + "\n",
             "A preset is a list of passes that runs again until a round changes nothing:\n",
             table(["preset", "", "passes", "rounds at most"], presets) + "\n"]
    return "\n".join(parts + [chapter(service, one["name"]) for one in answer["items"]])
