// Any two graphs: given as ids, runs (their results), or MODEL@ALIAS and MODEL:VERSION.

import { Problem, get } from "/ui/api.js";
import { problemText } from "/ui/acts.js";
import { graphLink, h } from "/ui/dom.js";
import { Explorer } from "/ui/explore.js";
import { go } from "/ui/app.js";
import { judging, judgingFiles } from "/ui/verdict.js";

async function idOf(text) {
    const alias = /^([^@/]+)@([^@/]+)$/.exec(text), version = /^([^:/]+):([^:/]+)$/.exec(text);
    const enc = encodeURIComponent;
    if (text.startsWith("run_")) return (await get(`/v1/runs/${enc(text)}`)).result;
    if (alias) return (await get(`/v1/models/${enc(alias[1])}/aliases/${enc(alias[2])}`)).graph;
    if (version && version[1] !== "sha256") return (await get(`/v1/models/${enc(version[1])}/versions/${enc(version[2])}`)).graph;
    return (await get(`/v1/graphs/${enc(text)}/lineage?limit=1`)).id;
}

export async function comparePage({ query, signal }) {
    const base = query.get("base") ?? "", graph = query.get("graph") ?? "";
    const first = h("input", { id: "base", value: base, required: true, spellcheck: "false" }), second = h("input", { id: "graph", value: graph, required: true, spellcheck: "false" });
    const content = [h("h1", {}, "Compare two graphs"),
        h("form", { class: "compare", onsubmit: (event) => { event.preventDefault(); go(`/ui/compare?${new URLSearchParams({ base: first.value.trim(), graph: second.value.trim() })}`); } },
            h("label", { for: "base" }, "From"), first, h("label", { for: "graph" }, "To"), second, h("button", { class: "main" }, "Compare")),
        h("p", { class: "faint" }, "A graph's id or its first 8 digits, a run, MODEL@ALIAS or MODEL:VERSION.")];
    if (!base || !graph) return { title: "Compare", content: [...content, judgingFiles(signal)] };
    try {
        const [from, to] = await Promise.all([idOf(base), idOf(graph)]);
        const explorer = new Explorer({ layout: `/v1/graphs/${to}/layout?base=${from}`, graph: to, base: from, query, signal });
        content.push(h("p", {}, "From ", graphLink(from), " to ", graphLink(to)), judging(from, to, explorer, signal), explorer.element);
        queueMicrotask(() => explorer.load().then(() => explorer.at && explorer.showNode(), (error) => explorer.failure.replaceChildren(problemText(error))));
    } catch (error) {
        if (!(error instanceof Problem) || error.status === 401) throw error;
        content.push(problemText(error));
    }
    return { title: "Compare", content };
}
