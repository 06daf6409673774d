// Verdicts: on two graphs of the store, on two files that nothing is kept of, and on a run, whose wrong match is looked for.

import { call, mayWrite } from "/ui/api.js";
import { problemText } from "/ui/acts.js";
import { go } from "/ui/app.js";
import { count, h, link, table } from "/ui/dom.js";
import { Explorer } from "/ui/explore.js";

const MEANINGS = {
    same: "The same operators on the same bytes, but for names and order. This is a proof.",
    moved: "Equal after movements that copy bytes only. This is a proof.",
    evaluated: "Within the tolerance on all samples. This is not a proof.",
    "not-evaluated": "Of some output nothing is known.",
    differs: "An output differs on inputs that can be drawn again.",
};

const number = (value) => (typeof value === "number" ? value.toPrecision(3) : value ?? "");

function whyOf(one) {
    const example = one.counterexample;
    const where = example && `seed ${example.seed}, sample ${example.sample}${example.index === null ? "" : `, element ${example.index}: ${number(example.a)} and ${number(example.b)}`}`;
    return [one.detail ?? one.reason ?? "", where].filter(Boolean).join("; ");
}

/** What the service said of two graphs; `graph` is the id of the first, if it is here. */
function verdict(found, graph) {
    const first = found.first_node?.name;
    return [h("p", {}, h("strong", { class: "verdict" }, found.verdict), ". ", MEANINGS[found.verdict]),
        table("Outputs", ["Output", "Verdict", "Samples", "Largest error", "Why"],
            [...found.outputs, ...found.inputs].map((one) => [one.name, one.verdict, one.samples ?? "", number(one.max_absolute), whyOf(one)]), "of-cards"),
        first && h("p", {}, "The first node that differs: ", graph ? link(`/ui/graphs/${graph}?at=${encodeURIComponent(first)}`, first) : h("code", {}, first), ".")];
}

/** What was found in a run. */
function culprit(run, found) {
    if (!found.found) return verdict(found, run.source);
    const rest = found.rest && { passes: "the run is right", differs: "the run still differs", "not-evaluated": "the run cannot be judged" }[found.rest.verdict];
    return [table(found.matches.length > 1 ? "Matches that make it differ together" : "The match that makes it differ", ["Pass", "Position", "Match", "Nodes"],
        found.matches.map((one) => [one.pass.name, one.pass.position, one.match ?? "all", one.nodes.map((node) => [link(`/ui/graphs/${run.result}?at=${encodeURIComponent(node)}`, node), " "])]), "of-cards"),
    rest && h("p", {}, "Without it ", rest, `. ${count(found.steps.all, "part")} of the run were judged.`), verdict(found, run.source)];
}

/** A button, and below it what it finds. */
function asking(label, ask) {
    const result = h("div", { "aria-live": "polite" });
    const button = h("button", { type: "button", onclick: async () => {
        button.disabled = true;
        result.setAttribute("aria-busy", "true");
        try {
            result.replaceChildren(...[await ask()].flat(Infinity).filter(Boolean));
        } catch (error) {
            result.replaceChildren(problemText(error));
        }
        result.removeAttribute("aria-busy");
        button.disabled = false;
    } }, label);
    return h("div", { class: "asking" }, h("div", { class: "buttons" }, button), result);
}

/** A verdict on two graphs that are here, also in their picture. Weights that are not are drawn. */
export const judging = (a, b, explorer, signal) => asking("Do they compute the same?", async () => {
    const found = await call("POST", "/v1/compare", { body: { a, b, random_weights: true }, signal });
    await explorer.judge(found);
    return verdict(found, a);
});

/** Which match of a run makes its result differ from its source. */
export const bisecting = (run, explorer, signal) => asking("Find what makes it differ", async () => {
    const found = await call("POST", `/v1/runs/${run.id}/bisect`, { body: { random_weights: true }, signal });
    if (found.outputs) await explorer.judge(found);
    return culprit(run, found);
});

const KINDS = [[".onnx", "application/onnx"], [".pt2", "application/zip"], [".json", "application/json"]];

/** Stores both files, which may be archives, and goes to the page of the two graphs. */
async function keepBoth(files, signal) {
    const ids = [];
    for (const file of files) {
        const kind = KINDS.find(([end]) => file.name.endsWith(end));
        if (!kind) throw new Error(`${file.name} is neither .json nor .pt2 nor .onnx.`);
        ids.push((await call("POST", "/v1/graphs", { text: file, headers: { "Content-Type": kind[1] }, signal })).id);
    }
    go(`/ui/compare?${new URLSearchParams({ base: ids[0], graph: ids[1] })}`);
}

/** Two files of documents, chosen or dropped. Their text is sent as it is: numbers keep their spelling. */
export function judgingFiles(signal) {
    const fields = ["a", "b"].map((name) => h("input", { type: "file", id: `file-${name}`, accept: ".json,.pt2,.onnx,application/json" }));
    const keep = h("input", { type: "checkbox", id: "keep" });
    const dropped = [null, null];
    const names = fields.map(() => h("span", { class: "faint" }));
    const put = (i, file, name = "") => { dropped[i] = file; names[i].textContent = name; };
    fields.forEach((field, i) => field.addEventListener("change", () => put(i, field.files[0] ?? null)));
    const both = () => {
        if (!dropped[0] || !dropped[1]) throw new Error("Choose two files, or drop them here.");
        return dropped;
    };
    const texts = async () => {
        const read = await Promise.all(both().map((file) => file.text()));
        read.forEach((text, i) => { if (!text.trimStart().startsWith("{")) throw new Error(`${dropped[i].name} is not a document. Archives are stored when they are read: tick "Keep both files", or use foldback compare.`); });
        return read;
    };
    const judge = async () => {
        if (keep.checked) return keepBoth(both(), signal);
        const [a, b] = await texts();
        const found = await call("POST", "/v1/compare", { text: `{"a":${a},"b":${b},"random_weights":true}`, signal });
        const explorer = new Explorer({ layout: "/v1/picture", texts: [a, b], documents: { a: JSON.parse(a), b: JSON.parse(b) }, base: "a", graph: "b", query: new URLSearchParams(), signal });
        queueMicrotask(() => explorer.load().then(() => explorer.judge(found)).catch((error) => explorer.failure.replaceChildren(problemText(error))));
        return [verdict(found), explorer.element];
    };
    const keeping = h("p", { hidden: true }, h("label", { for: "keep" }, keep, " Keep both files. Archives, .pt2 and .onnx, need this."));
    mayWrite().then((may) => { keeping.hidden = !may; }, () => {});
    return h("section", {}, h("section", { class: "empty", "aria-label": "Two files",
        ondragover: (event) => event.preventDefault(),
        ondrop: (event) => { event.preventDefault(); [...event.dataTransfer.files].slice(0, 2).forEach((file) => put(dropped[0] ? 1 : 0, file, ` ${file.name} `)); } },
    h("h2", {}, "Two files"), h("p", { class: "faint" }, "Documents of graphs, chosen or dropped here. Nothing is kept unless you ask for it."),
    fields.map((field, i) => h("label", { for: field.id }, i ? "Second file " : "First file ", field, names[i])), keeping),
    asking("Compare the files", judge));
}
