// What is known of one node: its line of code, its arguments, its weights as recipes, and the numbers in them.

import { getBytes } from "/ui/api.js";
import { problemText, sentence } from "/ui/acts.js";
import { bytes, h, s } from "/ui/dom.js";

const FETCH_MOST = 64 << 20; // bytes of one tensor

/** Python, nearly: what a value of a document says. */
function said(value) {
    if (value === null) return "None";
    if (typeof value === "boolean") return value ? "True" : "False";
    if (typeof value === "string") return JSON.stringify(value);
    if (Array.isArray(value)) return `[${value.map(said).join(", ")}]`;
    if (typeof value !== "object") return String(value);
    const [[form, inner]] = Object.entries(value);
    switch (form) {
        case "$node": case "$ref": case "$opaque": case "$float": case "$int": return String(inner);
        case "$tuple": return `(${inner.map(said).join(", ")}${inner.length === 1 ? "," : ""})`;
        case "$dtype": case "$memory_format": case "$layout": return `torch.${inner}`;
        case "$device": return JSON.stringify(inner);
        case "$slice": return inner.map((one) => (one === null ? "" : said(one))).join(":");
        case "$ellipsis": return "…";
        default: return JSON.stringify(value);
    }
}

function nodesIn(value, found = new Set()) {
    if (Array.isArray(value)) value.forEach((one) => nodesIn(one, found));
    else if (value && typeof value === "object") for (const [key, inner] of Object.entries(value)) if (key === "$node") found.add(inner); else nodesIn(inner, found);
    return found;
}

const facts = (rows) => h("dl", {}, rows.filter(([, value]) => value !== undefined && value !== "" && value !== null).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
const shapeText = (meta) => (meta?.shape ? `${meta.shape.join(" × ") || "scalar"}${meta.dtype ? `, ${meta.dtype}` : ""}` : meta?.dtype);

/** A recipe as a tree: what a weight is made of. */
function recipe(expression) {
    if (typeof expression === "string") return h("li", {}, h("code", {}, expression));
    const { op, args = [], ...rest } = expression;
    const how = Object.entries(rest).map(([name, value]) => `${name} ${JSON.stringify(value)}`).join(", ");
    return h("li", {}, h("strong", {}, op), how && h("span", { class: "faint" }, ` ${how}`), args.length > 0 && h("ul", {}, args.map(recipe)));
}

function tensorDetails(graph, attribute, tensor) {
    const values = h("div", {});
    const canBeRead = Boolean(tensor.blob || tensor.data || tensor.recipe);
    const size = tensor.shape.reduce((all, one) => all * one, 1);
    return h("li", {},
        h("p", {}, h("strong", {}, attribute), ` ${tensor.shape.join(" × ") || "scalar"}, ${tensor.dtype} `, h("span", { class: "faint" }, tensor.name)),
        tensor.recipe ? h("div", { class: "recipe" }, h("p", { class: "faint" }, "Made of:"), h("ul", {}, recipe(tensor.recipe))) :
            !canBeRead && h("p", { class: "faint" }, "Its bytes are not here: the graph was stored without them."),
        canBeRead && size * 8 <= FETCH_MOST && h("button", { type: "button", class: "small", onclick: async (event) => {
            event.target.disabled = true;
            values.replaceChildren(h("p", { class: "waiting" }, "Reading …"));
            try {
                values.replaceChildren(statistics(await getBytes(`/v1/graphs/${graph}/tensors/${encodeURIComponent(tensor.name)}`), tensor.dtype));
            } catch (error) {
                values.replaceChildren(problemText(error));
                event.target.disabled = false;
            }
        } }, "Show its values"),
        values);
}

// ---- numbers

function half(bits) {
    const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : (fraction / 1024) * 2 ** -14);
}

function numbersOf(buffer, dtype) {
    switch (dtype) {
        case "float64": return new Float64Array(buffer);
        case "float32": return new Float32Array(buffer);
        case "float16": return Float32Array.from(new Uint16Array(buffer), half);
        case "bfloat16": { const wide = new Uint32Array(buffer.byteLength / 2); new Uint16Array(buffer).forEach((bits, i) => { wide[i] = bits << 16; }); return new Float32Array(wide.buffer); }
        case "int64": return Float64Array.from(new BigInt64Array(buffer), Number);
        case "int32": return new Int32Array(buffer);
        case "int16": return new Int16Array(buffer);
        case "int8": return new Int8Array(buffer);
        case "uint8": case "bool": return new Uint8Array(buffer);
        default: return undefined;
    }
}

const BARS = 40;

function statistics(buffer, dtype) {
    const numbers = numbersOf(buffer, dtype);
    if (!numbers) return h("p", { class: "faint" }, `No statistics of ${dtype}. It has ${bytes(buffer.byteLength)}.`);
    let least = Infinity, most = -Infinity, sum = 0, squares = 0, zeros = 0, finite = 0;
    for (const x of numbers) {
        if (x === 0) zeros++;
        if (!Number.isFinite(x)) continue;
        finite++;
        sum += x;
        squares += x * x;
        if (x < least) least = x;
        if (x > most) most = x;
    }
    if (!finite) return h("p", { class: "faint" }, `${numbers.length} values, none of them finite.`);
    const mean = sum / finite, deviation = Math.sqrt(Math.max(0, squares / finite - mean * mean));
    const bars = new Array(BARS).fill(0), width = (most - least) / BARS || 1;
    for (const x of numbers) if (Number.isFinite(x)) bars[Math.min(BARS - 1, Math.floor((x - least) / width))]++;
    const high = Math.max(...bars), short = (x) => Number(x.toPrecision(4)).toString();
    return h("div", {},
        s("svg", { class: "histogram", viewBox: `0 0 ${BARS * 5} 50`, role: "img", "aria-label": `Histogram from ${short(least)} to ${short(most)}` },
            bars.map((bar, i) => bar > 0 && s("rect", { x: i * 5, y: 50 - Math.max(1, (bar / high) * 50), width: 4, height: Math.max(1, (bar / high) * 50) }))),
        facts([["from", short(least)], ["to", short(most)], ["mean", short(mean)], ["deviation", short(deviation)], ["values", numbers.length.toLocaleString("en")],
            ["zeros", zeros || undefined], ["not finite", numbers.length - finite || undefined]]));
}

// ---- the node

function ownTensors(document, node) {
    if (node.op === "get_attr") {
        const dot = node.target.lastIndexOf(".");
        const module = document.modulesByPath.get(dot < 0 ? "" : node.target.slice(0, dot));
        const attribute = node.target.slice(dot + 1), name = module?.parameters?.[attribute] ?? module?.buffers?.[attribute];
        return name ? [[attribute, document.tensorsByName.get(name)]] : [];
    }
    const module = node.op === "call_module" && document.modulesByPath.get(node.target);
    return module ? Object.entries({ ...module.parameters, ...module.buffers }).filter(([, name]) => name).map(([attribute, name]) => [attribute, document.tensorsByName.get(name)]) : [];
}

/** The program within that a node gives or calls: a graph of ONNX or of torch.export, a function of ONNX. */
function programOf(document, node) {
    const module = (node.op === "get_attr" || node.op === "call_function") && document.modulesByPath.get(node.target);
    return module && module.graph ? module.graph.nodes : undefined;
}

function programLine(node) {
    const args = [...node.args.map(said), ...Object.entries(node.kwargs ?? {}).map(([key, value]) => `${key}=${said(value)}`)].join(", ");
    switch (node.op) {
        case "placeholder": return `${node.name}: ${shapeText(node.meta) ?? "input"}`;
        case "output": return `return ${args}`;
        case "get_attr": return `${node.name} = self.${node.target}`;
        default: return `${node.name} = ${node.target}(${args})`;
    }
}

function side(title, document, graph, name, line, select, passes) {
    const node = document?.byName.get(name);
    if (!node) return null;
    const module = node.op === "call_module" ? document.modulesByPath.get(node.target) : undefined;
    const inputs = [...nodesIn(node.args), ...nodesIn(node.kwargs)];
    document.readers ??= readersOf(document);
    const readers = document.readers.get(name) ?? [];
    const links = (names) => names.length ? names.slice(0, 24).map((one, i) => [i > 0 && ", ", h("button", { type: "button", class: "link", onclick: () => select(one) }, one)]) : undefined;
    const marks = (node.meta?.transformations ?? []).map((mark) => passes?.get(mark) ?? mark);
    const program = programOf(document, node), value = node.meta?.onnx?.value;
    const config = module && Object.entries(module.config ?? {}).map(([key, value]) => `${key}=${said(value)}`).join(", ");
    return h("div", { class: "side" },
        title && h("h3", {}, title),
        line && h("pre", { tabindex: "0" }, h("code", {}, line.trim())),
        facts([["does", node.op], ["target", h("code", {}, node.target)], ["value in the model", value !== node.name ? value : undefined], ["module", module && `${module.type}${config && ` (${config})`}`],
            ["shape", shapeText(node.meta)],
            ["arguments", node.args.length ? node.args.map(said).join(", ") : undefined],
            ["keywords", Object.keys(node.kwargs ?? {}).length ? Object.entries(node.kwargs).map(([key, value]) => `${key}=${said(value)}`).join(", ") : undefined],
            ["reads", links(inputs)], ["read by", links(readers)], ["marked by", marks.length ? marks.join(", ") : undefined]]),
        program && h("details", { open: "" }, h("summary", {}, "Its program"), h("pre", { tabindex: "0", class: "program" }, h("code", {}, program.map(programLine).join("\n")))),
        ownTensors(document, node).length > 0 && h("ul", { class: "tensors" }, ownTensors(document, node).filter(([, tensor]) => tensor).map(([attribute, tensor]) => tensorDetails(graph, attribute, tensor))));
}

/** The readers of the refused node that the pass did not mean to take along. */
function inTheWay(refusal, document, select) {
    const [first, ...others] = refusal.nodes;
    const readers = (document && (document.readers ??= readersOf(document)).get(first)) ?? [];
    const those = readers.filter((one) => !others.includes(one));
    return those.length > 0 && [" Also read by ", those.slice(0, 12).map((one, i) => [i > 0 && ", ", h("button", { type: "button", class: "link", onclick: () => select(one) }, one)]), those.length > 12 && " …", "."];
}

function readersOf(document) {
    const readers = new Map();
    for (const node of document.nodes)
        for (const input of new Set([...nodesIn(node.args), ...nodesIn(node.kwargs)])) readers.set(input, [...(readers.get(input) ?? []), node.name]);
    return readers;
}

export function nodeDetails({ name, now, was, line, oldLine, graph, base, state, refusals, select, passes }) {
    const isBoth = was && state !== "kept";
    return [
        h("h2", {}, name, state !== "kept" && [" ", h("span", { class: `state ${state}` }, state)]),
        refusals.map((one) => h("p", { class: "refusal" }, h("strong", {}, `${one.pass} left it as it is. `), sentence(one.detail ?? one.reason), " ", h("span", { class: "faint" }, one.reason), one.reason === "other-readers" && inTheWay(one, was ?? now, select))),
        isBoth && side("Before", was, base, name, oldLine, select, passes),
        side(isBoth && now?.byName.has(name) ? "After" : undefined, now, graph, name, line, select, passes),
    ].flat(Infinity).filter(Boolean);
}
