// A picture of a graph, as the service laid it out: boxes that open in place, moved and scaled by mouse, finger and keys.

import { h, s } from "/ui/dom.js";

const RADIUS = 5;

/** Corners are round, as in the service's own SVG. */
function path(points) {
    let d = `M${points[0]} ${points[1]}`;
    for (let i = 2; i + 3 < points.length; i += 2) {
        const [x0, y0, x, y, x1, y1] = points.slice(i - 2, i + 4);
        const r = Math.min(RADIUS, Math.min(Math.abs(x - x0 + y - y0), Math.abs(x1 - x + y1 - y)) / 2);
        d += `L${x - r * Math.sign(x - x0)} ${y - r * Math.sign(y - y0)}Q${x} ${y} ${x + r * Math.sign(x1 - x)} ${y + r * Math.sign(y1 - y)}`;
    }
    return `${d}L${points.at(-2)} ${points.at(-1)}`;
}

const shapeText = (box) => (box.shape ? box.shape.join("×") + (box.dtype && box.dtype !== "float32" ? ` ${box.dtype}` : "") : "");

/** What a listener hears of a box. */
function spoken(box) {
    const parts = [box.kind === "node" ? "node" : "module", box.kind === "node" ? box.key : box.key || box.label, box.detail];
    if (box.state !== "kept") parts.push(box.state);
    if (box.shape) parts.push(`shape ${box.shape.join(" by ")}`);
    if (box.kind !== "node") parts.push(box.open ? "open" : "closed");
    for (const [what, sign] of [["added", "added"], ["removed", "removed"], ["changed", "changed"]])
        if (box.kind !== "node" && box[what]) parts.push(`${box[what]} ${sign}`);
    if (box.refused) parts.push(`${box.refused} refused`);
    return parts.filter(Boolean).join(", ");
}

/**
 * `on` = {toggle(box), select(box), placed(view)}. The element has show(picture, options), choose(key), and view functions. A
 * view of one side of a comparison `hides` the boxes and lines of the other side: "added" or "removed".
 */
export class PictureView {
    constructor(on, hides) {
        this.on = on;
        this.hides = hides;
        this.scale = 1;
        this.x = this.y = 0;
        this.pointers = new Map();
        this.judged = new Map();
        this.sheet = s("g", {});
        this.svg = s("svg", { class: "picture", role: "group" }, !hides && markers(), this.sheet);
        this.caption = h("p", { class: "caption" });
        this.call();
        const button = (text, label, act) => h("button", { type: "button", class: "small", "aria-label": label, title: label, onclick: act }, text);
        this.element = h("div", { class: "stage" }, this.svg, this.caption,
            h("div", { class: "zoom" },
                button("+", "Larger", () => this.zoom(1.25)),
                button("−", "Smaller", () => this.zoom(0.8)),
                button("Fit", "Show all of it", () => this.fit())));
        this.svg.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
        this.svg.addEventListener("pointerdown", (event) => this.down(event));
        this.svg.addEventListener("pointermove", (event) => this.move(event));
        for (const name of ["pointerup", "pointercancel"]) this.svg.addEventListener(name, (event) => this.up(event));
        this.svg.addEventListener("click", (event) => this.click(event), true);
        this.svg.addEventListener("keydown", (event) => this.key(event));
        // What is in the middle stays there when the window changes.
        new ResizeObserver(() => {
            if (this.picture && this.lastWidth && !this.isTwin) {
                this.x += (this.width - this.lastWidth) / 2;
                this.place();
            }
            this.lastWidth = this.width;
        }).observe(this.element);
    }

    /** `anchor`: the key of a box that is to stay where it is on the screen; `focus`: of one to look at. */
    show(picture, { anchor, focus } = {}) {
        const before = anchor !== undefined && this.find(anchor);
        const had = Boolean(this.picture);
        this.picture = picture;
        this.elements = new Map();
        const open = [], closed = [];
        this.boxes = picture.boxes.filter((box) => box.state !== this.hides);
        for (const box of this.boxes) (box.open ? open : closed).push(this.draw(box));
        const lines = picture.lines.filter((line) => line.state !== this.hides).map((line) => s("path", { class: `line ${line.state}`, d: path(line.points), "marker-end": `url(#end-${line.state})`, "data-from": line.from, "data-to": line.to }));
        this.sheet.replaceChildren(...open, s("g", { class: "lines", "aria-hidden": "true" }, lines), ...closed);
        const after = before && this.find(anchor);
        if (after) {
            this.x += (before.x - after.x) * this.scale;
            this.y += (before.y - after.y) * this.scale;
            this.place();
        } else if (!had) {
            this.fit(true);
        }
        if (!focus || !this.look(focus)) this.rove(this.find(this.chosen) ?? this.boxes[0]);
        this.mark();
    }

    /** Writes a verdict beside some nodes: a map from names to words. */
    judge(marks) {
        this.judged = marks;
        if (this.picture) this.show(this.picture);
    }

    find(key) { return this.boxes?.find((box) => box.key === key && (box.kind === "node" || !this.boxes.some((other) => other.key === key && other.kind === "node"))); }

    /** A name for this side, on it and for those who listen. */
    call(name) {
        this.caption.textContent = name ?? "";
        this.svg.setAttribute("aria-label", `${name ? `${name}: picture` : "Picture"} of the graph. Arrow keys move between boxes, Enter opens or shows one, plus and minus scale.`);
    }

    /** What is shown on this side; of both, all of it. */
    hide(hides) {
        this.hides = hides;
        if (this.picture) this.show(this.picture);
    }

    draw(box) {
        const tally = box.kind !== "node" && (box.added || box.removed || box.changed);
        const verdict = box.kind === "node" && this.judged.get(box.key);
        const group = s("g", {
            class: `box ${box.kind} ${box.state}${box.open ? " open" : ""}`, role: "button", tabindex: "-1",
            "aria-label": [spoken(box), verdict].filter(Boolean).join(", "), "aria-expanded": box.kind === "node" ? undefined : String(box.open), "data-id": box.id,
        },
        s("title", {}, box.key),
        s("rect", { x: box.x, y: box.y, width: box.width, height: box.height, rx: 6 }),
        s("text", { class: "label", x: box.x + 10, y: box.y + 17 }, box.label),
        !box.open && s("text", { class: "detail", x: box.x + 10, y: box.y + 32 }, box.detail),
        tally && s("text", { class: "tally", x: box.x + box.width - 9, y: box.y + 18, "text-anchor": "end" },
            box.added > 0 && s("tspan", { class: "added" }, `+${box.added} `),
            box.removed > 0 && s("tspan", { class: "removed" }, `−${box.removed} `),
            box.changed > 0 && s("tspan", { class: "changed" }, `~${box.changed}`)),
        !box.open && box.shape && s("text", { class: "shape", x: box.x + box.width / 2 + 5, y: box.y + box.height + 12 }, shapeText(box)),
        verdict && badge(box, verdict, verdict.includes("differs") ? "bad" : verdict.includes("not-evaluated") ? "" : "good"),
        box.refused > 0 && badge(box, "refused"));
        this.elements.set(box.id, group);
        return group;
    }

    // ---- where it stands

    get width() { return this.svg.clientWidth || 600; }
    get height() { return this.svg.clientHeight || 400; }
    place() {
        this.sheet.setAttribute("transform", `translate(${this.x} ${this.y}) scale(${this.scale})`);
        this.on.placed?.(this);
    }

    /** Stands where the other view does; both have one layout. */
    follow(other) {
        if (!this.picture || (this.x === other.x && this.y === other.y && this.scale === other.scale)) return;
        [this.x, this.y, this.scale] = [other.x, other.y, other.scale];
        this.place();
    }

    fit(isFirst = false) {
        const { width, height } = this.picture;
        const whole = Math.min(this.width / width, this.height / height);
        this.scale = isFirst ? Math.max(Math.min(1, this.width / width), 0.45) : Math.min(1, whole);
        this.x = Math.max(0, (this.width - width * this.scale) / 2);
        if (isFirst && width * this.scale > this.width) this.x = (this.width - width * this.scale) / 2;
        this.y = isFirst ? 8 : Math.max(0, (this.height - height * this.scale) / 2);
        this.place();
    }

    zoom(by, x = this.width / 2, y = this.height / 2) {
        const scale = Math.min(4, Math.max(0.02, this.scale * by));
        this.x = x - ((x - this.x) * scale) / this.scale;
        this.y = y - ((y - this.y) * scale) / this.scale;
        this.scale = scale;
        this.place();
    }

    /** Moves the box into the middle, large enough to read, and gives it the focus. */
    look(key, takesFocus = false) {
        const box = this.find(key);
        if (!box) return false;
        if (this.scale < 0.8) this.scale = 0.9;
        this.x = this.width / 2 - (box.x + Math.min(box.width, 400) / 2) * this.scale;
        this.y = this.height / 2 - (box.y + Math.min(box.height, 200) / 2) * this.scale;
        this.place();
        this.rove(box, takesFocus);
        return true;
    }

    wheel(event) {
        event.preventDefault();
        const { left, top } = this.svg.getBoundingClientRect();
        if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY / 300), event.clientX - left, event.clientY - top);
        else {
            this.x -= event.shiftKey ? event.deltaY : event.deltaX;
            this.y -= event.shiftKey ? 0 : event.deltaY;
            this.place();
        }
    }

    down(event) {
        this.pointers.set(event.pointerId, event);
        this.moved = 0;
    }

    move(event) {
        const last = this.pointers.get(event.pointerId);
        if (!last) return;
        const dx = event.clientX - last.clientX, dy = event.clientY - last.clientY;
        this.moved += Math.abs(dx) + Math.abs(dy);
        if (this.moved > 4 && !this.svg.hasPointerCapture(event.pointerId)) this.svg.setPointerCapture(event.pointerId);
        if (this.pointers.size === 1) {
            this.x += dx;
            this.y += dy;
            this.place();
        } else {
            const other = [...this.pointers.values()].find((one) => one.pointerId !== event.pointerId);
            const far = (a, b) => Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY) || 1;
            const { left, top } = this.svg.getBoundingClientRect();
            this.zoom(far(event, other) / far(last, other), (event.clientX + other.clientX) / 2 - left, (event.clientY + other.clientY) / 2 - top);
        }
        this.pointers.set(event.pointerId, event);
    }

    up(event) { this.pointers.delete(event.pointerId); }

    // ---- boxes

    boxAt(target) {
        const id = target.closest?.(".box")?.dataset.id;
        return id && this.picture.boxes[id - 1];
    }

    click(event) {
        if (this.moved > 4) return event.stopPropagation();
        const box = this.boxAt(event.target);
        if (box) this.act(box);
    }

    act(box) {
        this.rove(box, true);
        if (box.kind === "node") this.on.select(box);
        else this.on.toggle(box);
    }

    /** One box can be reached by Tab; arrow keys go on from there. */
    rove(box, takesFocus = false) {
        if (!box) return;
        this.elements.get(this.roving)?.setAttribute("tabindex", "-1");
        this.roving = box.id;
        const element = this.elements.get(box.id);
        element?.setAttribute("tabindex", "0");
        if (takesFocus) element?.focus({ preventScroll: true });
    }

    /** Marks the node that the page is about, and its lines. */
    choose(key) {
        this.chosen = key;
        if (this.picture) this.mark();
    }

    mark() {
        for (const element of this.sheet.querySelectorAll(".chosen")) element.classList.remove("chosen");
        const box = this.chosen && this.find(this.chosen);
        if (!box) return;
        this.elements.get(box.id).classList.add("chosen");
        for (const line of this.sheet.querySelectorAll(`[data-from="${box.id}"], [data-to="${box.id}"]`)) line.classList.add("chosen");
    }

    key(event) {
        const box = this.boxAt(event.target) ?? this.picture.boxes[this.roving - 1]; // a screen reader may focus any
        const steps = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
        if (steps[event.key] && box) this.step(box, ...steps[event.key]);
        else if ((event.key === "Enter" || event.key === " ") && box) this.act(box);
        else if (event.key === "+" || event.key === "=") this.zoom(1.25);
        else if (event.key === "-") this.zoom(0.8);
        else if (event.key === "0") this.fit();
        else return;
        event.preventDefault();
    }

    /** The nearest box in a direction; what lies aside counts twice. */
    step(from, dx, dy) {
        const middle = (box) => [box.x + box.width / 2, box.y + (box.open ? 12 : box.height / 2)];
        const [x, y] = middle(from);
        let best, least = Infinity;
        for (const box of this.boxes) {
            const [bx, by] = middle(box);
            const along = (bx - x) * dx + (by - y) * dy, aside = Math.abs((bx - x) * dy) + Math.abs((by - y) * dx);
            if (along > 4 && along + 2 * aside < least) [best, least] = [box, along + 2 * aside];
        }
        if (!best) return;
        this.rove(best, true);
        const left = this.x + best.x * this.scale, top = this.y + best.y * this.scale;
        if (left < 0 || top < 0 || left + best.width * this.scale > this.width || top + 40 > this.height) {
            const { scale } = this;
            this.look(best.key, true);
            this.zoom(scale / this.scale);
        }
    }
}

/** A word on the right upper corner of a box. */
function badge(box, text, kind = "") {
    const width = 12 + text.length * 6, right = box.x + box.width + 4;
    return s("g", { class: `badge ${kind}` },
        s("rect", { x: right - width, y: box.y - 13, width, height: 16, rx: 8 }),
        s("text", { x: right - width / 2, y: box.y - 1, "text-anchor": "middle" }, text));
}

function markers() {
    return s("defs", {}, ["kept", "added", "removed", "changed"].map((state) =>
        s("marker", { id: `end-${state}`, class: `end ${state}`, viewBox: "0 0 6 6", refX: 5, refY: 3, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, s("path", { d: "M0 0L6 3L0 6z" }))));
}
