// A picture with what belongs to it: what changed, what was refused, one node, the code. Graphs, runs and comparisons are this.

import { call, callText, curl, get, getText } from "/ui/api.js";
import { problemText, sentence } from "/ui/acts.js";
import { count, curlLine, h, put, say } from "/ui/dom.js";
import { nodeDetails } from "/ui/node.js";
import { PictureView } from "/ui/picture.js";

const READ_WHOLE = 20_000; // nodes: of larger graphs the document is not fetched
const FOUND_MOST = 30;
const OPEN_MOST = 60;      // boxes that an address names

/**
 * `what` = {layout: path of the picture, graph, base: ids or undefined, refusals: [{pass, reason, nodes, detail}], query, signal,
 * steps: of a run: {names, chosen}, notes(picture): what stands above the picture}. Of two files, of which nothing is kept, it is
 * {layout, texts: [a, b], documents: {a, b}, base: "a", graph: "b"}: the picture is asked for with both.
 */
export class Explorer {
    constructor(what) {
        Object.assign(this, what);
        this.open = new Set(what.query.getAll("open"));
        this.at = what.query.get("at") ?? undefined;
        this.isFirst = true;
        this.searches = 0;
        this.documents = {};
        this.codes = {};
        for (const [id, document] of Object.entries(what.documents ?? {})) this.documents[id] = Promise.resolve(indexed(document));
        this.refused = new Map();
        for (const refusal of what.refusals ?? [])
            for (const node of refusal.nodes) this.refused.set(node, [...(this.refused.get(node) ?? []), refusal]);
        this.acts = {
            toggle: (box) => this.toggle(box), select: (box) => this.select(box.key),
            placed: (view) => (view === this.view ? this.twin : this.view)?.follow(view),
        };
        this.view = new PictureView(this.acts);
        this.view.choose(this.at);
        this.stages = h("div", { class: "stages" }, this.view.element);
        this.node = h("section", { class: "node", "aria-label": "Node", hidden: true });
        this.changes = h("section", { class: "changes", "aria-label": "What changed", hidden: true });
        this.code = h("details", { class: "code", hidden: Boolean(this.texts) }, h("summary", {}, "Code"));
        this.code.addEventListener("toggle", () => this.showCode());
        this.failure = h("div", { role: "alert" });
        this.notice = h("p", { class: "notice" });
        this.command = h("div", {});
        this.element = h("div", { class: "explore" },
            h("div", { class: "tools" }, this.searchForm(), this.tool("Close all", () => this.closeAll()),
                this.base && (this.sides = this.tool("Side by side", () => this.showSides(!this.twin), { "aria-pressed": "false" })),
                this.tool("Save as SVG", () => this.save("svg")), this.tool("Save as PNG", () => this.save("png"))),
            this.failure, this.notice,
            h("div", { class: "split" }, this.stages, h("div", { class: "panel" }, this.node, this.refusedList(), this.changes, this.code, this.command)));
    }

    tool(text, act, more = {}) {
        return h("button", { type: "button", class: "small", onclick: act, ...more }, text);
    }

    /** Both graphs beside one another, each without what only the other has. They move together, and select the same node. */
    showSides(isWanted) {
        this.twin?.element.remove();
        this.twin = isWanted ? new PictureView(this.acts, "added") : undefined;
        this.sides.setAttribute("aria-pressed", String(isWanted));
        this.stages.classList.toggle("sides", isWanted);
        for (const [view, name] of [[this.twin, "Before"], [this.view, isWanted ? "After" : undefined]]) view?.call(name);
        if (isWanted) {
            this.twin.isTwin = true;
            this.twin.judged = this.view.judged;
            this.twin.choose(this.at);
            this.stages.prepend(this.twin.element);
            if (this.picture) this.twin.show(this.picture);
        }
        this.view.hide(isWanted ? "removed" : undefined);
        if (!this.view.picture) return;
        if (!this.at || !(this.view.look(this.at) || this.twin?.look(this.at))) this.view.fit(true);
        this.writeAddress();
    }

    /** A file of the picture as it is now, drawn by the service. */
    async save(kind) {
        try {
            const svg = new Blob([await callText(...this.request("image/svg+xml"))], { type: "image/svg+xml" });
            const file = kind === "svg" ? svg : await drawn(svg, this.picture);
            const place = URL.createObjectURL(file);
            h("a", { href: place, download: `${(this.run ?? this.graph).replace("sha256:", "").slice(0, 14)}.${kind}` }).click();
            setTimeout(() => URL.revokeObjectURL(place), 60_000);
            say(`Saved as ${kind.toUpperCase()}.`);
        } catch (error) {
            if (error.name !== "AbortError") this.failure.replaceChildren(problemText(error));
        }
    }

    /** The picture's address for what is open now. */
    address() {
        const query = new URLSearchParams();
        if (!this.isFirst) query.set("depth", "0");
        for (const key of [...this.open].slice(-OPEN_MOST)) query.append("open", key);
        if (this.at) query.set("at", this.at);
        for (const [name, value] of Object.entries(this.more?.() ?? {})) if (value !== undefined) query.set(name, value);
        const text = query.toString();
        return this.layout + (text && (this.layout.includes("?") ? "&" : "?") + text);
    }

    /** Asks for the picture. */
    request(accept) {
        const both = this.texts && { text: `{"a":${this.texts[0]},"b":${this.texts[1]}}` };
        return [both ? "POST" : "GET", this.address(), { accept, signal: this.signal, ...both }];
    }

    /** Fetches and shows the picture; `anchor` is the key of the box that stays where it is. */
    async load(options = {}) {
        const address = this.address();
        this.view.element.setAttribute("aria-busy", "true");
        try {
            const picture = await call(...this.request());
            this.failure.replaceChildren();
            this.shown(picture, options);
            if (!this.texts) this.command.replaceChildren(curlLine(`${curl("GET", address)}\n# as a picture: add -H 'Accept: image/svg+xml' -o graph.svg`));
        } catch (error) {
            if (error.name === "AbortError") return;
            if (error.code === "unknown-node" && this.at) {
                const was = this.at;
                this.at = undefined;
                await this.load(options);
                say(`No node is called ${was}.`);
                return;
            }
            if (this.isFirst) throw error;
            this.failure.replaceChildren(problemText(error));
        } finally {
            this.view.element.removeAttribute("aria-busy");
        }
    }

    shown(picture, options) {
        this.picture = picture;
        this.open = new Set(picture.boxes.filter((box) => box.open).map((box) => box.key));
        const notes = [];
        if (picture.left_closed) notes.push(`${count(picture.left_closed, "box")} stayed closed: a picture has at most 500.`.replace("boxs", "boxes"));
        if (picture.lines_left_out) notes.push(`${count(picture.lines_left_out, "line")} are not drawn.`);
        if (picture.base && !picture.added && !picture.removed && !picture.changed) notes.push("Both graphs are the same here: nothing is added, removed or changed.");
        this.notice.textContent = notes.join(" ");
        this.isFirst = false;
        const shown = { focus: this.at && options.anchor === undefined ? this.at : undefined, ...options };
        if (!this.twin && this.base && new URLSearchParams(location.search).has("sides")) this.showSides(true);
        this.twin?.show(picture, { focus: shown.focus });
        this.view.show(picture, shown);
        this.showChanges();
        this.writeAddress();
    }

    /** Marks the verdicts on the outputs, and shows the first node that differs. */
    async judge(found) {
        const marks = new Map(), worst = found.outputs.find((one) => one.verdict === found.verdict) ?? found.outputs[0];
        for (const one of found.outputs)
            for (const name of Object.values(one.given_by)) if (name) marks.set(name, one.verdict);
        if (worst) marks.set("output", found.outputs.length === 1 ? worst.verdict : `${found.outputs.filter((one) => one.verdict === worst.verdict).length} of ${found.outputs.length} ${worst.verdict}`);
        const first = found.first_node?.name;
        if (first) marks.set(first, "differs first");
        for (const view of [this.view, this.twin]) view?.judge(marks);
        if (first) await this.select(first);
    }

    /** What is selected stands in the address. */
    writeAddress() {
        if (this.texts) return;
        const query = new URLSearchParams(location.search);
        query.delete("open");
        query.delete("at");
        query.delete("sides");
        if (this.twin) query.set("sides", "1");
        const inner = [...this.open].filter((key) => ![...this.open].some((other) => other !== key && other.startsWith(`${key}.`)));
        for (const key of inner.slice(-12)) query.append("open", key);
        if (this.at) query.set("at", this.at);
        const text = query.toString();
        history.replaceState(history.state, "", location.pathname + (text && `?${text}`));
    }

    async toggle(box) {
        const from = document.activeElement;
        if (box.open) {
            const inside = new Set([box.id]);
            for (const one of this.picture.boxes) if (inside.has(one.parent)) inside.add(one.id);
            for (const id of inside) this.open.delete(this.picture.boxes[id - 1].key);
            if (this.at && [...inside].some((id) => this.picture.boxes[id - 1].key === this.at)) this.at = undefined;
        } else {
            this.open.add(box.key);
        }
        await this.load({ anchor: box.key });
        const view = this.twin?.element.contains(from) ? this.twin : this.view, now = view.find(box.key);
        if (now) view.rove(now, true);
    }

    async closeAll() {
        this.open.clear();
        this.at = undefined;
        this.view.picture = undefined;
        if (this.twin) this.twin.picture = undefined;
        await this.load();
    }

    /** Shows a node: opens what it is in, marks it and its line of code, and says what is known of it. */
    async select(name) {
        this.at = name;
        const views = [this.view, this.twin].filter(Boolean);
        for (const view of views) view.choose(name);
        if (views.some((view) => view.find(name))) this.writeAddress();
        else await this.load();
        if (this.at !== name) return;
        for (const view of views) view.look(name);
        this.markCode();
        await this.showNode();
    }

    // ---- the panel

    async document(id) {
        if (!id || (this.picture.nodes > READ_WHOLE && !this.texts)) return undefined;
        return once(this.documents, id, () => get(`/v1/graphs/${id}`, { signal: this.signal }).then(indexed));
    }

    /** What a document says of one node, where the document is too large to be read here whole. */
    async part(id, name) {
        if (!id) return undefined;
        const whole = await get(`/v1/graphs/${id}/nodes/${encodeURIComponent(name)}`, { signal: this.signal }).catch((error) => { if (error.code !== "unknown-node") throw error; });
        if (!whole) return undefined;
        return {
            nodes: [whole.node], byName: new Map([[name, whole.node]]), readers: new Map([[name, whole.read_by]]),
            modulesByPath: new Map(whole.module ? [[whole.module.path, whole.module]] : []), tensorsByName: new Map((whole.tensors ?? []).map((tensor) => [tensor.name, tensor])),
        };
    }

    async showNode() {
        const name = this.at;
        if (!name) return;
        try {
            const isLarge = this.picture.nodes > READ_WHOLE && !this.texts;
            const [now, was] = await Promise.all([this.graph, this.base].map((id) => isLarge ? this.part(id, name) : this.document(id)));
            const line = now && !isLarge && this.lineOf(await this.codeOf(this.graph), name);
            const oldLine = was && !isLarge && this.lineOf(await this.codeOf(this.base), name);
            const content = nodeDetails({
                name, now, was, line, oldLine, graph: this.graph, base: this.base,
                state: (this.view.find(name) ?? this.twin?.find(name))?.state ?? "kept", refusals: this.refused.get(name) ?? [],
                select: (other) => this.select(other), passes: this.passes,
            });
            if (this.at !== name) return;
            this.node.replaceChildren(...content);
        } catch (error) {
            if (error.name === "AbortError") return;
            this.node.replaceChildren(problemText(error));
        }
        this.node.hidden = false;
        if (matchMedia("(min-width: 900px)").matches) this.node.parentElement.scrollTop = 0;
    }

    nodeLink(name) {
        return h("button", { type: "button", class: "link", onclick: () => this.select(name) }, name);
    }

    refusedList() {
        const refusals = this.refusals ?? [];
        if (!refusals.length) return null;
        return h("section", { class: "refused", "aria-label": "What was refused" },
            h("h2", {}, `Refused (${refusals.length})`),
            h("ul", {}, [...groupBy(refusals, (one) => `${one.pass}\n${one.detail ?? one.reason}`).values()].map((same) => {
                const [{ pass, reason, detail }] = same;
                const all = same.map((one) => h("li", {}, one.nodes.map((node, i) => [i > 0 && ", ", this.nodeLink(node)])));
                return h("li", {},
                    h("p", {}, h("strong", {}, sentence(detail ?? reason)), " ", h("span", { class: "faint" }, `${pass}, ${reason}`)),
                    h("ul", {}, all.slice(0, 3)),
                    all.length > 3 && h("details", {}, h("summary", {}, `and ${all.length - 3} more`), h("ul", {}, all.slice(3, 300))));
            })));
    }

    /** By module, with a filter: "layer.3" shows what changed in layer 3. */
    showChanges() {
        const all = this.picture.changes ?? [];
        this.changes.hidden = !this.picture.base;
        if (!this.picture.base) return;
        const list = h("div", {});
        const filter = h("input", { type: "search", id: "filter", placeholder: "layer.3, query, Linear …", value: this.filter ?? "", oninput: () => { this.filter = filter.value; draw(); } });
        const draw = () => {
            const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
            const found = all.filter((one) => words.every((word) => `${one.module}. ${one.node} ${one.state} ${one.detail}`.toLowerCase().includes(word)));
            const groups = groupBy(found, (one) => one.module);
            list.replaceChildren(...[...groups].slice(0, 100).map(([module, some]) => h("div", {},
                h("h3", {}, module || "(top)", " ", h("span", { class: "faint" }, some.length)),
                h("ul", {}, some.slice(0, 60).map((one) => h("li", { class: one.state },
                    h("span", { class: "sign", "aria-label": one.state }, { added: "+", removed: "−", changed: "~" }[one.state]),
                    h("button", { type: "button", class: "link", onclick: () => this.select(one.node) }, shortName(one)), " ", h("span", { class: "faint" }, one.detail)))))));
            if (!found.length) list.append(h("p", { class: "faint" }, all.length ? "Nothing that changed matches." : "Nothing changed."));
        };
        this.changes.replaceChildren();
        put(this.changes,
            h("h2", {}, "What changed ", tally(this.picture)),
            h("label", { for: "filter" }, "Filter"), filter, list,
            this.picture.changes_left_out > 0 && h("p", { class: "faint" }, `and ${count(this.picture.changes_left_out, "more node")}: the edits have all.`));
        draw();
    }

    // ---- code

    codeOf(id) {
        if (this.texts) return [];
        return once(this.codes, id, () => getText(`/v1/graphs/${id}/code`, { signal: this.signal }).then((text) => text.split("\n")));
    }

    lineOf(lines, name) {
        const begin = new RegExp(`^\\s+${name}( :.*)? = `);
        return lines.find((line) => begin.test(line)) ?? (name === "output" ? lines.find((line) => /^\s+return /.test(line)) : undefined);
    }

    async showCode() {
        if (!this.code.open || this.lines || !this.graph) return;
        try {
            const lines = await this.codeOf(this.graph);
            this.lines = lines.slice(0, READ_WHOLE).map((text) => {
                const name = /^\s+([^\s:=]+)( :[^=]*)? = /.exec(text)?.[1] ?? (/^\s+return /.test(text) ? "output" : undefined);
                const line = name ? h("button", { type: "button", tabindex: "-1", onclick: () => this.select(name), "data-name": name }, text) : h("span", {}, text || " ");
                return h("li", {}, line);
            });
            this.code.append(h("ol", { tabindex: "0", "aria-label": "Code of the graph" }, this.lines));
            this.markCode();
        } catch (error) {
            this.code.append(problemText(error));
        }
    }

    markCode() {
        for (const line of this.lines ?? []) {
            const isChosen = line.firstChild.dataset?.name === this.at && this.at !== undefined;
            line.classList.toggle("chosen", isChosen);
            if (isChosen) line.parentElement.scrollTop = line.offsetTop - line.parentElement.clientHeight / 2;
        }
    }

    // ---- search

    /** Where the service is asked: a run has both of its graphs. */
    searched() {
        return this.run ? [`/v1/runs/${this.run}/nodes`] : [this.graph, this.base].filter(Boolean).map((id) => `/v1/graphs/${id}/nodes`);
    }

    /** The same of files that only this page has. */
    async searchDocuments(text) {
        const words = text.toLowerCase().split(/\s+/);
        const documents = await Promise.all([this.graph, this.base].map((id) => this.documents[id]));
        return documents.map((document) => {
            const items = document.nodes.filter((node) => words.every((word) => `${node.name} ${node.target} ${node.meta?.dtype ?? ""}`.toLowerCase().includes(word)));
            return { items: items.slice(0, FOUND_MOST), left_out: Math.max(0, items.length - FOUND_MOST) };
        });
    }

    searchForm() {
        const results = h("ul", { class: "results", hidden: true });
        const field = h("input", { type: "search", id: "search", placeholder: this.run ? "layers.3 linear, changed, refused …" : "name, module, operator, dtype", autocomplete: "off" });
        const pick = (name) => { results.hidden = true; this.select(name); };
        const find = async () => {
            const text = field.value.trim();
            if (!text) { results.hidden = true; return []; }
            const asked = ++this.searches;
            const pages = this.texts ? await this.searchDocuments(text) :
                await Promise.all(this.searched().map((path) => get(`${path}?limit=${FOUND_MOST}&search=${encodeURIComponent(text)}`, { signal: this.signal })));
            if (asked !== this.searches) return this.found ?? [];
            const found = new Map(pages.flatMap((page) => page.items).map((node) => [node.name, node]));
            const first = found.get(text), nodes = [...(first ? [first] : []), ...[...found.values()].filter((node) => node !== first)].slice(0, FOUND_MOST);
            const more = pages.reduce((sum, page) => sum + (page.left_out ?? 0), 0);
            results.replaceChildren(...nodes.map((node) => h("li", {},
                h("button", { type: "button", class: "link", onclick: () => pick(node.name) }, node.name), " ", h("span", { class: "faint" }, node.target), " ",
                node.state && node.state !== "kept" && h("span", { class: `state ${node.state}` }, node.state), (node.refused ?? []).map((one) => h("p", { class: "refusal" }, `${one.pass}: ${one.detail}`)))));
            if (!nodes.length) results.replaceChildren(h("li", { class: "faint" }, "No node has each of these words in its name, target, module, type or dtype."));
            if (more) results.append(h("li", { class: "faint" }, `and ${count(more, "more")}`.replace("mores", "more")));
            if (pages.some((page) => page.next_page_token)) results.append(h("li", { class: "faint" }, "and more"));
            results.hidden = false;
            return this.found = nodes.map((node) => node.name);
        };
        const search = async () => {
            try {
                return await find();
            } catch (error) {
                if (error.name !== "AbortError") results.replaceChildren(h("li", {}, problemText(error)));
                results.hidden = false;
                return [];
            }
        };
        field.addEventListener("input", search);
        return h("form", { class: "search", role: "search", onsubmit: async (event) => { event.preventDefault(); const [first] = await search(); if (first) pick(first); } },
            h("label", { for: "search" }, "Find a node"), field, results);
    }
}

export const tally = (picture) => h("span", { class: "tally" },
    h("span", { class: "added" }, `+${picture.added}`), " ", h("span", { class: "removed" }, `−${picture.removed}`), " ", h("span", { class: "changed" }, `~${picture.changed}`));

const PIXELS_MOST = 60e6; // of a picture: browsers draw no larger ones

/** A PNG of the SVG, twice as fine where that is not too large. */
async function drawn(svg, { width, height }) {
    const scale = Math.min(2, Math.sqrt(PIXELS_MOST / (width * height)), 16_000 / Math.max(width, height));
    const image = new Image(), place = URL.createObjectURL(svg);
    try {
        image.src = place;
        await image.decode();
        const canvas = h("canvas", { width: Math.round(width * scale), height: Math.round(height * scale) });
        const sheet = canvas.getContext("2d");
        sheet.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--sheet");
        sheet.fillRect(0, 0, canvas.width, canvas.height);
        sheet.drawImage(image, 0, 0, canvas.width, canvas.height);
        return await new Promise((take, fail) => canvas.toBlob((file) => file ? take(file) : fail(new Error("the browser cannot draw a picture of this size; save it as SVG")), "image/png"));
    } finally {
        URL.revokeObjectURL(place);
    }
}

function indexed(document) {
    document.byName = new Map(document.nodes.map((node) => [node.name, node]));
    document.modulesByPath = new Map((document.modules ?? []).map((module) => [module.path, module]));
    document.tensorsByName = new Map((document.tensors ?? []).map((tensor) => [tensor.name, tensor]));
    return document;
}

/** What was asked for once, kept in `cache`; what failed is asked for again. */
function once(cache, key, ask) {
    return cache[key] ??= ask().catch((error) => { delete cache[key]; throw error; });
}

/** "query" of encoder_layer_3_attention_self_query, under a heading that says the rest. */
function shortName({ node, module }) {
    const prefix = `${module.replace(/[^A-Za-z0-9]/g, "_").toLowerCase()}_`;
    return module && node.toLowerCase().startsWith(prefix) && /^[a-z_]/i.test(node.slice(prefix.length)) ? node.slice(prefix.length) : node;
}

function groupBy(items, keyOf) {
    const groups = new Map();
    for (const one of items) {
        const key = keyOf(one);
        if (!groups.has(key)) groups.set(key, []);
        groups.get(key).push(one);
    }
    return groups;
}
