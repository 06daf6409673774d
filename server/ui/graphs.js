// The graphs that are stored, and one of them: its picture, its code, where it comes from, its weights.

import { curl, get, list } from "/ui/api.js";
import { empty, problemText } from "/ui/acts.js";
import { ago, bytes, count, curlLine, graphLink, h, link, nodesOf, put, requested, runLink, table } from "/ui/dom.js";
import { Explorer } from "/ui/explore.js";

export async function graphsPage({ query }) {
    const name = query.get("name") ?? "";
    const path = `/v1/graphs${name && `?name=${encodeURIComponent(name)}`}`;
    const graphs = await list(path, 200);
    const content = [h("h1", {}, name ? `Graphs called ${name}` : "Graphs")];
    if (!graphs.length) content.push(empty("No graphs are here yet. Put one:", `curl --data-binary @graph.json ${location.origin}/v1/graphs`));
    else content.push(table("Graphs", ["Name", "Id", "Nodes", "Size", "Stored"], graphs.map((one) => [link(`/ui/graphs/${one.id}`, one.name || "(no name)"), graphLink(one.id), one.nodes.toLocaleString("en"), bytes(one.bytes), ago(one.created)])));
    if (graphs.hasMore) content.push(h("p", { class: "faint" }, `These are the newest ${graphs.length}.`));
    content.push(curlLine(curl("GET", path)));
    return { title: "Graphs", content };
}

export async function graphPage({ id, query, signal }) {
    const base = query.get("base") ?? undefined;
    const lineage = await get(`/v1/graphs/${encodeURIComponent(id)}/lineage?limit=50`, { signal });
    const explorer = new Explorer({ layout: `/v1/graphs/${lineage.id}/layout`, graph: lineage.id, base, query, signal });
    const weights = h("details", { class: "weights" }, h("summary", {}, "Weights"));
    weights.addEventListener("toggle", () => weights.open && showWeights(weights, lineage.id), { once: true });
    const content = [h("h1", {}, "Graph ", lineage.name || h("span", { class: "id" }, lineage.id.slice(7, 19))),
        h("p", {}, `${count(lineage.nodes, "node")}, document of ${bytes(lineage.bytes)}`),
        h("p", { class: "faint long" }, lineage.id, " · ", link(`/ui/compare?graph=${lineage.id}`, "compare with another")),
        explorer.element,
        h("section", {}, h("h2", {}, "Lineage"), await lineageList(lineage, signal)), weights];
    queueMicrotask(() => explorer.load().then(() => explorer.at && explorer.showNode(), (error) => explorer.failure.replaceChildren(problemText(error))));
    return { title: `Graph ${lineage.name || lineage.id.slice(7, 19)}`, content };
}

async function showWeights(element, id) {
    try {
        const tensors = await list(`/v1/graphs/${id}/tensors`, 500);
        const where = { blob: "in a blob", data: "in the document", recipe: "made of others", unknown: "not here" };
        put(element, tensors.length ? table("Weights", ["Owner", "Shape", "Dtype", "Size", "Bytes"], tensors.map((one) => [one.owners[0] ?? one.name, one.shape.join("×") || "scalar", one.dtype, bytes(one.size), where[one.where]])) : h("p", {}, "It has no weights."),
            tensors.hasMore && h("p", { class: "faint" }, `the first ${tensors.length}`), curlLine(curl("GET", `/v1/graphs/${id}/tensors`)));
    } catch (error) {
        element.append(problemText(error));
    }
}

// ---- lineage: what led here, and what was made of it, as git draws history

const STEPS = 20;

const passesOf = (run) => run.kind === "optimize" || run.kind === "external" ? requested(run) || "no passes" : `${run.kind} of ${requested(run) || "all"}`;

const runStep = (run, side) => h("li", { class: "step" }, runLink(run.id), " ", passesOf(run), " ", h("span", { class: "faint" }, `${nodesOf(run)} nodes, `, ago(run.created)), side);

/** Ancestors above, the graph itself, what was made of it below. Runs that start and end here are no steps. */
async function lineageList(lineage, signal) {
    const above = [];
    const seen = new Set([lineage.id]);
    let makers = lineage.made_by.items;
    for (let at = lineage; above.length < STEPS; ) {
        const maker = makers.find((run) => !seen.has(run.source));
        if (!maker) break;
        seen.add(maker.source);
        const others = makers.filter((run) => run !== maker && run.source !== at.id);
        above.push([maker, others]);
        at = await get(`/v1/graphs/${maker.source}/lineage?limit=50`, { signal });
        makers = at.made_by.items;
    }
    const rows = [];
    for (const [maker, others] of above.reverse()) {
        rows.push(h("li", { class: "at" }, graphLink(maker.source)), runStep(maker, others.length > 0 && h("span", { class: "faint" }, ` and ${count(others.length, "other run")} with the same result`)));
    }
    rows.push(h("li", { class: "at here" }, h("strong", {}, "this graph"), " ", h("span", { class: "id" }, lineage.id.slice(7, 19))));
    const used = lineage.used_by.items.filter((run) => run.result !== lineage.id);
    for (const run of used.slice(0, STEPS)) rows.push(h("li", { class: "at fork" }, graphLink(run.result), " ", passesOf(run), " ", runLink(run.id), " ", h("span", { class: "faint" }, ago(run.created))));
    if (used.length > STEPS) rows.push(h("li", { class: "faint" }, `and ${count(used.length - STEPS, "other run")} of this graph`));
    if (rows.length === 1) rows.push(h("li", { class: "faint" }, "It was uploaded, and no run used it yet."));
    return h("ol", { class: "lineage" }, rows);
}
