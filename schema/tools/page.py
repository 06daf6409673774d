"""Makes one page of the API's description: HTML, a style sheet and the search box's script, nothing from outside.

    page.py openapi.json OUT    writes OUT.html, and OUT.csp: the Content-Security-Policy that allows this style sheet and
                                script only
"""

import base64
import hashlib
import html
import json
import pathlib
import re
import sys

METHODS = ("get", "put", "post", "delete", "patch")
STYLE = pathlib.Path(__file__).with_name("page.css").read_text()
SCRIPT = pathlib.Path(__file__).with_name("page.js").read_text()


def text(value):
    """A line of Markdown: only `code` and addresses of this page are known."""
    parts = re.split(r"`([^`]+)`", value)
    return "".join(f"<code>{html.escape(part)}</code>" if i % 2 else html.escape(part) for i, part in enumerate(parts))


def prose(value):
    """Paragraphs and lists."""
    blocks = []
    for block in re.split(r"\n\s*\n", value.strip()):
        items = re.split(r"(?:^|\n)- ", block)
        if len(items) > 1:
            blocks.append("<ul>" + "".join(f"<li>{text(' '.join(item.split()))}</li>" for item in items[1:]) + "</ul>")
        else:
            blocks.append(f"<p>{text(' '.join(block.split()))}</p>")
    return "".join(blocks)


def example(value):
    shown = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return f"<pre><code>{html.escape(shown.rstrip())}</code></pre>"


class Page:
    def __init__(self, document):
        self.document = document
        self.out = []
        self.common = self.common_problems()

    def put(self, line):
        self.out.append(line)

    def found(self, value):
        while "$ref" in value and value["$ref"].startswith("#/components/") and "/schemas/" not in value["$ref"]:
            at = self.document
            for token in value["$ref"].removeprefix("#/").split("/"):
                at = at[token]
            value = at
        return value

    # ---- schemas -------------------------------------------------------------------------------------------------------------

    def type_of(self, schema):
        """A schema in a few words, with links."""
        if schema is True or schema == {}:
            return "anything"
        if schema is False:
            return "nothing"
        if "$ref" in schema:
            name = schema["$ref"].removeprefix("#/components/schemas/").split("/")[0]
            return f'<a href="#schema-{name}">{name}</a>'
        if "const" in schema:
            return f"<code>{html.escape(json.dumps(schema['const'], ensure_ascii=False))}</code>"
        if "enum" in schema:
            return " | ".join(f"<code>{html.escape(json.dumps(one, ensure_ascii=False))}</code>" for one in schema["enum"])
        for word in ("oneOf", "anyOf"):
            if word in schema and not schema.get("properties"):
                return " or ".join(self.type_of(one) for one in schema[word])
        kind = schema.get("type", "object" if "properties" in schema else "anything")
        if kind == "array" and "items" in schema and schema["items"] is not False:
            return "array of " + self.type_of(schema["items"])
        words = " or ".join(kind) if isinstance(kind, list) else kind
        bounds = [f"{word} {schema[key]}" for key, word in
                  (("minimum", "from"), ("maximum", "to"), ("minLength", "at least"), ("maxLength", "at most"))
                  if key in schema]
        if isinstance(schema.get("additionalProperties"), dict):
            words += " of " + self.type_of(schema["additionalProperties"])
        if "default" in schema:
            bounds.append(f"default <code>{html.escape(json.dumps(schema['default']))}</code>")
        return ", ".join([words, *bounds])

    def members(self, schema):
        required = schema.get("required", [])
        self.put("<table>")
        for name, value in schema["properties"].items():
            value = value if isinstance(value, dict) else {}
            self.put(
                f"<tr><td><code>{html.escape(name)}</"
                f"code>{'' if name in required else ' <span class=quiet>optional</span>'}</td>"
                f"<td><span class=type>{self.type_of(value)}</span> {text(value.get('description', ''))}</td></tr>"
            )
        self.put("</table>")

    def schema(self, name, schema):
        self.put(f'<article id="schema-{name}"><h3>{name}</h3>')
        if "description" in schema:
            self.put(prose(schema["description"]))
        if "$ref" in schema:
            self.put(f"<p>All of {self.type_of({'$ref': schema['$ref']})}{', and:' if schema.get('properties') else ''}</p>")
        if schema.get("properties"):
            self.members(schema)
        elif "$ref" not in schema:
            self.put(f"<p class=type>{self.type_of(schema)}</p>")
        if "pattern" in schema:
            self.put(f"<p class=quiet>Pattern <code>{html.escape(schema['pattern'])}</code></p>")
        for one in schema.get("examples", [])[:1]:
            self.put(f"<h4>Example</h4>{example(one)}")
        self.put("</article>")

    # ---- operations ----------------------------------------------------------------------------------------------------------

    def parameters(self, parameters):
        if not parameters:
            return
        self.put("<h4>Parameters</h4><table>")
        for one in parameters:
            need = "" if one.get("required") else ", optional"
            shown = f" <code>{html.escape(json.dumps(one['example']))}</code>" if "example" in one else ""
            self.put(
                f"<tr><td><code>{one['name']}</code><br><span class=quiet>{one['in']}{need}</span></td>"
                f"<td><span class=type>{self.type_of(one['schema'])}</span>{shown}{prose(one.get('description', ''))}</td></tr>"
            )
        self.put("</table>")

    def body(self, body):
        self.put(f"<h4>Body{'' if body.get('required') else ' (optional)'}</h4>")
        for kind, content in body["content"].items():
            self.put(f"<p><code>{kind}</code> {self.type_of(content['schema'])}</p>")
            for name, one in content.get("examples", {}).items():
                self.put(f"<details><summary>{html.escape(name.capitalize())}</summary>{example(one['value'])}</details>")

    def answers(self, responses):
        self.put("<h4>Answers</h4><table>")
        problems = []
        for status, response in sorted(responses.items()):
            response = self.found(response)
            content = response.get("content", {})
            if "application/problem+json" in content:
                problems.append((status, content["application/problem+json"]["schema"]["properties"]["code"]["enum"]))
                continue
            kinds = " ".join(f"<code>{kind}</code> {self.type_of(one['schema'])}" for kind, one in content.items())
            headers = "".join(
                f"<br><code>{name}</code> {text(self.found(one).get('description', ''))}"
                for name, one in response.get("headers", {}).items()
            )
            self.put(f"<tr><td>{status}</td><td>{text(response['description'])} <span "
                     f"class=type>{kinds}{headers}</span></td></tr>")
        self.put("</table>")
        for response in (self.found(one) for one in responses.values()):
            for one in response.get("content", {}).values():
                if "example" in one:
                    self.put(f"<details><summary>Example</summary>{example(one['example'])}</details>")
        self.problems([(status, [code for code in codes if code not in self.common]) for status, codes in problems])

    def problems(self, problems):
        self.put("<details class=problems><summary>Problems</summary><table>")
        for status, codes in problems:
            if codes:
                links = ", ".join(f'<a href="#problem-{code}">{code}</a>' for code in codes)
                self.put(f"<tr><td>{status}</td><td>{links}</td></tr>")
        self.put('</table><p>And <a href="#common-problems">those of most requests</a>.</p></details>')

    def common_problems(self):
        """{code: status} of the problems that more than half of the operations may answer with: they are listed once."""
        counts, operations = {}, 0
        for item in self.document["paths"].values():
            for method in (one for one in METHODS if one in item):
                operations += 1
                for status, response in item[method]["responses"].items():
                    content = self.found(response).get("content", {}).get("application/problem+json")
                    for code in content["schema"]["properties"]["code"]["enum"] if content else []:
                        counts.setdefault((code, status), set()).add((method, id(item)))
        return {code: status for (code, status), where in sorted(counts.items()) if len(where) > operations / 2}

    def operation(self, method, path, item, operation):
        self.put(
            f'<article id="{operation["operationId"]}"><h3><span class="method {method}">{method.upper()}</span>'
            f'<span class=path>{html.escape(path)}</span></h3><p><strong>{text(operation["summary"])}</strong></p>'
        )
        if "description" in operation:
            self.put(prose(operation["description"]))
        self.parameters([self.found(one) for one in item.get("parameters", []) + operation.get("parameters", [])])
        if "requestBody" in operation:
            self.body(operation["requestBody"])
        self.answers(operation["responses"])
        self.put("</article>")

    # ---- the page ------------------------------------------------------------------------------------------------------------

    def operations(self, tag):
        for path, item in self.document["paths"].items():
            for method in METHODS:
                if method in item and item[method]["tags"][0] == tag:
                    yield method, path, item, item[method]

    def navigation(self):
        self.put('<header><input type=checkbox id=menu><label for=menu>Menu</label><strong><a '
                 'href="#top">foldback</a></strong>')
        self.put('<input type=search id=search placeholder="Search" aria-label="Search this page" hidden></header><nav>')
        for tag in self.document["tags"]:
            self.put(f"<h2>{tag['name']}</h2><ul>")
            for method, _, _, operation in self.operations(tag["name"]):
                self.put(
                    f'<li><a href="#{operation["operationId"]}"><span class="method {method}">{method.upper()}</span>'
                    f"{html.escape(operation['summary'])}</a></li>"
                )
            self.put("</ul>")
        self.put('<h2>reference</h2><ul><li><a href="#schemas">Schemas</a></li><li><a href="#problems">Problems</a></li>')
        self.put('<li><a href="#common-problems">Problems of most requests</a></li>')
        self.put('<li><a href="/openapi.yaml">openapi.yaml</a></li></ul></nav>')

    def render(self):
        info = self.document["info"]
        self.put(f"<!doctype html><html lang=en><head><meta charset=utf-8><title>{info['title']} API</title>")
        self.put('<meta name=viewport content="width=device-width, initial-scale=1">')
        self.put(f"<style>{STYLE}</style></head><body id=top>")
        self.navigation()
        self.put("<p id=nothing hidden>Nothing on this page has all of these words.</p>")
        self.put(f"<main><h1>{info['title']}</h1><p><strong>{info['summary']}</strong></p>{prose(info['description'])}")
        for tag in self.document["tags"]:
            self.put(f'<h2 id="tag-{tag["name"]}">{tag["description"]}</h2>')
            for one in self.operations(tag["name"]):
                self.operation(*one)
        self.put("<h2 id=schemas>Schemas</h2>")
        for name, schema in sorted(self.document["components"]["schemas"].items()):
            self.schema(name, schema)
        self.put("<h2 id=common-problems>Problems of most requests</h2><p>Most operations may answer with these; the others "
                 "stand with each.</p>")
        self.put("<details class=problems><summary>Problems</summary><table>")
        for status in sorted(set(self.common.values())):
            links = ", ".join(f'<a href="#problem-{code}">{code}</a>' for code, its in self.common.items() if its == status)
            self.put(f"<tr><td>{status}</td><td>{links}</td></tr>")
        self.put("</table></details>")
        self.put("<h2 id=problems>Problems</h2><p>What <code>code</code> says, and an example of what <code>detail</code> "
                 "says.</p>")
        self.put("<table>")
        for code, meaning in sorted(self.document["x-problems"].items()):
            self.put(f'<tr id="problem-{code}"><td><code>{code}</code></td><td>{html.escape(meaning["detail"])}</td></tr>')
        self.put(f"</table></main><script>{SCRIPT}</script></body></html>")
        return "\n".join(self.out) + "\n"


def digest_of(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def main():
    page = Page(json.loads(pathlib.Path(sys.argv[1]).read_text())).render()
    policy = (
        f"default-src 'none'; style-src {digest_of(STYLE)}; script-src {digest_of(SCRIPT)}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    pathlib.Path(sys.argv[2] + ".html").write_text(page)
    pathlib.Path(sys.argv[2] + ".csp").write_text(policy)


if __name__ == "__main__":
    main()
