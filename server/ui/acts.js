// What changes something: a button that says what it will do, and asks once.

import { Problem, call, curl } from "/ui/api.js";
import { curlLine, h, link, put } from "/ui/dom.js";

/**
 * A button. `what` = {label, title, says, method, path, body, headers, done}: `says` is the sentence that the dialog asks with,
 * `body` may be a function of the fields, `fields` are inputs of the dialog, `done(answer)` follows.
 */
export function actButton(what) {
    return h("button", { type: "button", class: what.class, onclick: () => ask(what) }, what.label);
}

function ask(what) {
    const fields = what.fields ?? [];
    const body = () => (typeof what.body === "function" ? what.body() : what.body);
    const command = h("div", {});
    const failure = h("div", { role: "alert" });
    const show = () => command.replaceChildren(curlLine(curl(what.method, what.path(), body(), what.headers)));
    const confirm = h("button", { class: "main" }, what.confirm ?? what.label.replace(/…$/, ""));
    const dialog = h("dialog", { "aria-labelledby": "asked" },
        h("form", {
            method: "dialog",
            oninput: show,
            onsubmit: async (event) => {
                event.preventDefault();
                confirm.disabled = true;
                try {
                    const answer = await call(what.method, what.path(), { body: body(), headers: what.headers });
                    dialog.close();
                    what.done(answer);
                } catch (error) {
                    failure.replaceChildren(problemText(error));
                    confirm.disabled = false;
                }
            },
        },
        h("h2", { id: "asked" }, what.title),
        h("p", {}, what.says),
        fields.map((field) => h("label", {}, field.label, field.input)),
        failure,
        h("div", { class: "buttons" }, confirm, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel")),
        command));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    show();
    dialog.showModal();
}

/** Nodes that a problem names, as links where it is known of which graph. */
function places(members, graph) {
    const nodes = new Set([...(members.nodes ?? []), ...(members.conflicts ?? []).flatMap((one) => one.nodes ?? (one.node ? [one.node] : []))]);
    return [...nodes].slice(0, 20).map((node) => h("li", {}, graph ? link(`/ui/graphs/${graph}?at=${encodeURIComponent(node)}`, node) : h("code", {}, node)));
}

export function problemText(error, graph) {
    if (!(error instanceof Problem)) return h("div", { class: "failed" }, h("p", {}, String(error.message ?? error)));
    const named = places(error.members, graph);
    const conflicts = (error.members.conflicts ?? []).slice(0, 20);
    return h("div", { class: "failed" },
        h("p", {}, h("strong", {}, error.members.title ?? (error.status || "No answer")), " ", sentence(error.message), error.members.did_you_mean && ` Did you mean ${error.members.did_you_mean}?`),
        conflicts.length > 0 && h("ul", {}, conflicts.map((one) => h("li", {}, one.detail ?? one.reason ?? one.code))),
        named.length > 0 && h("ul", {}, named),
        error.members.rollback && h("p", {}, "A rollback can do it: ", link(error.members.rollback.replace("/v1/", "/ui/").replace(/\/rollback$/, ""), "go to that run"), "."));
}

export const sentence = (text) => text && text[0].toUpperCase() + text.slice(1) + (/[.?!]$/.test(text) ? "" : ".");

/** A whole page that failed: what happened, and ways on. */
export function failedPage(error, again) {
    const ways = {
        "unknown-graph": ["/ui/graphs", "See the graphs that are here"],
        "unknown-run": ["/ui/runs", "See the runs that are here"],
        "unknown-model": ["/ui", "See the models that are here"],
        "unknown-job": ["/ui/jobs", "See the jobs that are here"],
    };
    const way = ways[error.code] ?? ["/ui", "Go to the models"];
    return [h("h1", {}, error.status === 404 ? "It is not here" : "That did not work"), problemText(error),
        h("div", { class: "buttons" }, h("button", { type: "button", onclick: again }, "Try again"), link(way[0], way[1]))];
}

export function empty(words, command, ...more) {
    return h("div", { class: "empty" }, h("p", {}, words), command && h("pre", { tabindex: "0" }, h("code", {}, command)), more);
}

export function fieldOf(label, members, element = "input") {
    return { label, input: h(element, members) };
}

export function choice(label, options, chosen) {
    return { label, input: put(h("select", {}), options.map(([value, text]) => h("option", { value, selected: value === chosen }, text))) };
}
