"""Writes core/archive/schema.def: what the JSON files of an archive hold, by PyTorch's own schema.

    python tests/python/make_schema.py > core/archive/schema.def
"""

import pathlib
import re

import torch._export.serde
import yaml

HEAD = """/* The schema of the JSON files of an archive: torch/_export/serde/schema.yaml of PyTorch 2.13. Written by
 * tests/python/make_schema.py, and held against PyTorch by tests/python/test_archives.py.
 *
 *     PT_SCHEMA_ROW("type", is_union, "member=kind,...")
 *
 * kinds   int, float, str, bool, any, or a type of this table; [kind]: a list, {kind}: an object of any names. With "?" before
 *         it, it may be null, with "!" it must be there. Of a union one member is there. */
"""
ROOTS = ("ExportedProgram", "PayloadConfig")
SCHEMA = yaml.safe_load((pathlib.Path(torch._export.serde.__file__).parent / "schema.yaml").read_text())


def kind(text: str) -> str:
    inner = re.fullmatch(r"(List|Dict|Optional)\[(?:str, )?(.*)\]", text)
    if inner:
        return {"List": "[{}]", "Dict": "{{{}}}", "Optional": "?{}"}[inner[1]].format(kind(inner[2]))
    return "int" if SCHEMA.get(text, {}).get("kind") == "enum" else text


def rows() -> list[str]:
    found, wanted = {}, list(ROOTS)
    while wanted:
        name = wanted.pop(0)
        if name in found:
            continue
        one = SCHEMA[name]
        is_union = one["kind"] == "union"
        words = []
        for member, field in one["fields"].items():
            made = "any" if member == "as_none" else kind(field["type"])
            words.append(f"{member}={'' if is_union or 'default' in field else '!'}{made}")
            wanted += [word for word in re.findall(r"\w+", made) if word in SCHEMA]
        found[name] = f'PT_SCHEMA_ROW("{name}", {str(is_union).lower()}, "{",".join(words)}")'
    return list(found.values())


def text() -> str:
    return HEAD + "\n" + "\n".join(rows()) + "\n"


if __name__ == "__main__":
    print(text(), end="")
