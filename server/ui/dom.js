// Elements. Text is always text: nothing here, nor in any page, reads markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, members, children) {
    for (const [name, value] of Object.entries(members ?? {})) {
        if (value === undefined || value === null || value === false) continue;
        if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
        else element.setAttribute(name, value === true ? "" : value);
    }
    put(element, ...children);
    return element;
}

/** Appends nodes and texts; lists are flattened, and what is absent is left out. */
export function put(element, ...children) {
    for (const child of children.flat(Infinity)) {
        if (child === undefined || child === null || child === false) continue;
        element.append(child instanceof Node ? child : String(child));
    }
    return element;
}

export const h = (tag, members, ...children) => fill(document.createElement(tag), members, children);
export const s = (tag, members, ...children) => fill(document.createElementNS(SVG, tag), members, children);

export const link = (href, ...children) => h("a", { href }, ...children);

/** "sha256:5ede3ef8c7ed": enough of an id to tell it from others; short ids are addresses, too. */
export const short = (id) => (id?.startsWith("sha256:") ? id.slice(7, 19) : id);
export const graphLink = (id, query = "") => h("a", { href: `/ui/graphs/${id}${query}`, class: "id", title: id }, short(id));
export const runLink = (id) => h("a", { href: `/ui/runs/${id}`, class: "id" }, id.slice(0, 14) + "…");

const UNITS = [[60, "second"], [60, "minute"], [24, "hour"], [7, "day"], [5, "week"], [12, "month"], [Infinity, "year"]];

/** "3 minutes ago", with the exact time as its title. */
export function ago(time) {
    if (!time) return "";
    let count = Math.max(0, (Date.now() - Date.parse(time)) / 1000);
    let i = 0;
    while (count >= UNITS[i][0]) count /= UNITS[i++][0];
    const whole = Math.floor(count);
    const text = i === 0 ? "just now" : `${whole} ${UNITS[i][1]}${whole === 1 ? "" : "s"} ago`;
    return h("time", { datetime: time, title: time }, text);
}

export const count = (number, noun, many = `${noun}s`) => `${number.toLocaleString("en")} ${number === 1 ? noun : many}`;

/** What of a run can be taken out by name, for a choice: its presets, then its passes that rewrote something. */
export function partsOf(run) {
    const rewrites = new Map();
    const add = (name, applied) => name && applied && rewrites.set(name, (rewrites.get(name) ?? 0) + applied);
    for (const pass of run.passes) add(pass.preset, pass.applied);
    for (const pass of run.passes) add(pass.name, pass.applied);
    return [...rewrites].map(([name, applied]) => [name, `${name} (${applied})`]);
}

export function bytes(size) {
    const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let i = 0;
    for (; size >= 1024 && i < units.length - 1; i++) size /= 1024;
    return `${i ? size.toFixed(1) : size} ${units[i]}`;
}

/** "inference + MergeLinears": what was asked for; of a run from before that was kept, its passes. */
export const requested = (run) => (run.requested ?? run.passes).map((one) => one.name ?? one).join(" + ");

/** "34 → 23 (−11)" */
export function nodesOf({ nodes }) {
    const [before, after] = [nodes.before, nodes.after].map((one) => one.toLocaleString("en"));
    const gain = nodes.after - nodes.before;
    return gain ? `${before} → ${after} (${gain > 0 ? "+" : "−"}${Math.abs(gain).toLocaleString("en")})` : after;
}

/** Told to who looks and to who listens. */
export function say(text) {
    const said = document.getElementById("said");
    said.textContent = text;
    clearTimeout(say.timer);
    say.timer = setTimeout(() => { said.textContent = ""; }, 8000);
}

/** A table; where it is `made` of cards, each row is one on a narrow screen, which scrolls any other table by itself. */
export function table(caption, headings, rows, made = "") {
    return h("div", { class: `table ${made}`, tabindex: "0", role: "region", "aria-label": caption },
        h("table", {},
            h("thead", {}, h("tr", {}, headings.map((heading) => h("th", { scope: "col" }, heading)))),
            h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, i) => h("td", { "data-heading": headings[i] }, h("div", {}, cell))))))));
}

/** The command that does the same. */
export function curlLine(text) {
    const copy = h("button", { type: "button", class: "small", onclick: () => navigator.clipboard.writeText(text).then(() => say("Copied."), () => say("The browser does not let this page copy.")) }, "Copy");
    return h("details", { class: "curl" }, h("summary", {}, "With curl"), h("div", {}, h("pre", { tabindex: "0" }, h("code", {}, text)), copy));
}
