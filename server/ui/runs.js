// The runs, and one of them: a picture of what it changed, pass by pass, and what it refused.

import { curl, get, list, mayWrite } from "/ui/api.js";
import { actButton, choice, empty, problemText } from "/ui/acts.js";
import { ago, count, curlLine, graphLink, h, link, nodesOf, partsOf, put, requested, say, table } from "/ui/dom.js";
import { Explorer, tally } from "/ui/explore.js";
import { bisecting } from "/ui/verdict.js";
import { go } from "/ui/app.js";

const kinds = { optimize: "Run", external: "Recorded change", reverse: "Reversal", rollback: "Rollback" };

export async function runsPage({ query }) {
    const pass = query.get("pass") ?? "";
    const path = `/v1/runs${pass && `?pass=${encodeURIComponent(pass)}`}`;
    const runs = await list(path, 200);
    const content = [h("h1", {}, pass ? `Runs of ${pass}` : "Runs")];
    if (!runs.length) content.push(empty("No runs are here yet. Run passes on a graph:", `curl --data-binary @graph.json '${location.origin}/v1/optimize?pass=MergeLinears'`, h("p", {}, link("/docs#passes", "What passes there are"))));
    else content.push(table("Runs", ["When", "What", "Graph", "Model", "Nodes", "Applied", "Refused", "From", "To"], runs.map((run) => [link(`/ui/runs/${run.id}`, ago(run.created)), [run.kind !== "optimize" && h("strong", {}, `${run.kind} `), requested(run) || "nothing"],
        run.name, run.model && link(`/ui/models/${encodeURIComponent(run.model)}`, `${run.model}:${run.version}`), nodesOf(run),
        run.passes.reduce((sum, one) => sum + (one.applied ?? 0), 0), run.passes.reduce((sum, one) => sum + (one.refusals ?? 0), 0), graphLink(run.source), graphLink(run.result)]), "of-cards"));
    if (runs.hasMore) content.push(h("p", { class: "faint" }, `These are the newest ${runs.length}.`));
    content.push(curlLine(curl("GET", path)));
    return { title: "Runs", content };
}

export async function runPage({ id, query, signal }) {
    const run = await get(`/v1/runs/${encodeURIComponent(id)}`, { signal });
    const isUndoable = run.kind === "optimize" || run.kind === "external";
    const refusals = run.passes.flatMap((pass) => (pass.refused ?? []).map((one) => ({ ...one, pass: pass.name })));
    const steps = isUndoable ? run.passes.length : 0;
    let chosen = Math.min(steps, query.has("passes") ? Math.max(0, parseInt(query.get("passes"), 10) || 0) : steps);
    const explorer = new Explorer({ layout: `/v1/runs/${run.id}/layout`, run: run.id, graph: run.result, base: run.source, refusals, query, signal });
    explorer.passes = new Map(run.passes.map((pass) => [pass.signature, pass.name]));
    explorer.more = () => ({ passes: chosen < steps ? chosen : undefined });

    const said = h("p", { class: "step-said" });
    const slider = h("input", { type: "range", id: "step", min: 0, max: steps, step: 1, value: chosen, list: "steps" });
    const name = (count) => count === 0 ? "the source, before any pass" : `after ${run.passes[count - 1].name}, pass ${count} of ${steps}`;
    const tellStep = () => {
        slider.setAttribute("aria-valuetext", name(chosen));
        const pass = run.passes[chosen - 1];
        said.replaceChildren(h("strong", {}, name(chosen)), pass ? `: ${count(pass.applied, "rewrite")}${pass.refused?.length ? `, ${pass.refused.length} refused` : ""}. ` : ". ", explorer.picture ? tally(explorer.picture) : "");
    };
    const step = async () => {
        chosen = Number(slider.value);
        const query = new URLSearchParams(location.search);
        if (chosen < steps) query.set("passes", chosen);
        else query.delete("passes");
        history.replaceState(history.state, "", `${location.pathname}?${query}`);
        tellStep();
        await explorer.load({ anchor: explorer.at });
        tellStep();
    };
    slider.addEventListener("input", step);

    const acts = h("div", { class: "buttons" });
    const content = [
        h("h1", {}, `${kinds[run.kind]}: ${requested(run) || "nothing to do"}`),
        h("p", {}, run.name && `${run.name} · `, run.model && [link(`/ui/models/${encodeURIComponent(run.model)}`, `${run.model}:${run.version}`), " · "], `${nodesOf(run)} nodes · `, ago(run.created), " · from ", graphLink(run.source), " to ", graphLink(run.result), run.note ? ` · ${run.note}` : "", run.of_run && [" · of ", link(`/ui/runs/${run.of_run}`, "that run")]),
        acts,
        run.source === run.result && h("p", { class: "notice" }, "This run changed nothing: source and result are one graph."),
        steps > 0 && h("div", { class: "steps" }, h("label", { for: "step" }, "Passes done"), slider,
            put(h("datalist", { id: "steps" }), run.passes.map((pass, i) => h("option", { value: i + 1, label: pass.name }))), said),
        explorer.element,
        isUndoable && run.source !== run.result && bisecting(run, explorer, signal),
        h("details", {}, h("summary", {}, "Passes"), passesTable(run)),
        curlLine(curl("GET", `/v1/runs/${run.id}`)),
    ];
    mayWrite().then((may) => may && isUndoable && run.source !== run.result && acts.append(...undoButtons(run)), () => {});
    queueMicrotask(() => explorer.load().then(() => { tellStep(); explorer.at && explorer.showNode(); }, (error) => explorer.failure.replaceChildren(problemText(error))));
    return { title: `${kinds[run.kind]} of ${requested(run)}`, content };
}

function passesTable(run) {
    const told = run.passes.filter((pass) => pass.applied !== 0 || pass.refused?.length || pass.detail);
    const idle = run.passes.filter((pass) => !told.includes(pass));
    return [told.length > 0 && table("Passes", ["Pass", "Of", "Rewrites", "Refused", "Exactness", "Reversible"], told.map((pass) => [pass.name, pass.preset ?? "", pass.applied ?? "", pass.refused?.length ?? "", pass.exactness ?? "", pass.reversible ? "yes" : "no"]), "of-cards"),
        idle.length > 0 && h("details", {}, h("summary", {}, `${count(idle.length, "pass", "passes")} changed nothing`), h("p", {}, idle.map((pass) => pass.name).join(", ")))];
}

function undoButtons(run) {
    const done = (made) => { say(made.exact ? "Done: the result is exactly the graph without these passes." : "Done."); go(`/ui/runs/${made.id}`); };
    const buttons = [actButton({
        label: "Undo this run…", title: "Undo this run", method: "POST", path: () => `/v1/runs/${run.id}/rollback`, body: undefined, done,
        says: `This makes a new run whose result is the source, ${run.source.slice(7, 19)}. No model changes: deploy the result to use it.`,
    })];
    const parts = partsOf(run);
    if (parts.length > 1) {
        const which = choice("Take out", parts);
        buttons.push(actButton({
            label: "Undo a part…", confirm: "Take it out", title: "Take a part of this run out", class: "quiet", method: "POST", path: () => `/v1/runs/${run.id}/rollback`,
            fields: [which], body: () => ({ passes: [which.input.value] }), done,
            says: "This makes a new run: the source with the other passes. No model changes.",
        }));
    }
    return buttons;
}
