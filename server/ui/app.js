// The pages: which one an address means, and moving between them without loading anew.

import { Problem, forgetScope, setToken, takeToken, token } from "/ui/api.js";
import { failedPage } from "/ui/acts.js";
import { h } from "/ui/dom.js";
import { comparePage } from "/ui/compare.js";
import { graphPage, graphsPage } from "/ui/graphs.js";
import { jobsPage } from "/ui/jobs.js";
import { modelPage, modelsPage } from "/ui/models.js";
import { runPage, runsPage } from "/ui/runs.js";

const pages = { "": modelsPage, models: modelsPage, runs: runsPage, graphs: graphsPage, compare: comparePage, jobs: jobsPage };
const things = { models: modelPage, runs: runPage, graphs: graphPage };
const main = document.getElementById("main");
let leaving = new AbortController();

/** Shows the page of the address. */
export async function show() {
    leaving.abort();
    leaving = new AbortController();
    const { signal } = leaving;
    const [, , page = "", ...rest] = location.pathname.split("/").map(decodeURIComponent);
    const draw = rest[0] ? things[page] : pages[page];
    markPlace(page || "models");
    main.replaceChildren(h("p", { class: "waiting" }, "Loading …"));
    try {
        if (!draw) throw new Problem(404, { title: "Not found", detail: "there is no such page" });
        const { title, content } = await draw({ id: rest[0], query: new URLSearchParams(location.search), signal, again: show });
        if (signal.aborted) return;
        document.title = `${title} · foldback`;
        main.replaceChildren(...[content].flat(Infinity).filter(Boolean));
    } catch (error) {
        if (signal.aborted || error.name === "AbortError") return;
        document.title = "foldback";
        main.replaceChildren(...(error.status === 401 ? signIn(error) : failedPage(error, show)));
        if (!(error instanceof Problem)) throw error;
    }
}

function markPlace(page) {
    for (const one of document.querySelectorAll("header nav a")) {
        if (one.getAttribute("href") === (page === "models" ? "/ui" : `/ui/${page}`)) one.setAttribute("aria-current", "page");
        else one.removeAttribute("aria-current");
    }
}

function signIn(error) {
    const field = h("input", { id: "token", type: "password", autocomplete: "off", required: true, spellcheck: "false" });
    const had = token();
    return [h("h1", {}, "This service needs a token"),
        h("p", {}, had ? `${error.message}. ` : "", "Paste one that begins with fbt_. It stays in this tab, and goes to this service alone."),
        h("form", { class: "sign-in", onsubmit: (event) => { event.preventDefault(); setToken(field.value.trim()); forgetScope(); show(); } },
            h("label", { for: "token" }, "Token"), field, h("button", { class: "main" }, "Go on")),
        h("p", {}, "Who administers the service makes one: ", h("code", {}, "foldback token create --scope read NAME"))];
}

/** Goes to an address of ours. */
export function go(address) {
    history.pushState(null, "", address);
    scrollTo(0, 0);
    show().then(() => main.focus({ preventScroll: true }));
}

document.addEventListener("click", (event) => {
    const anchor = event.target.closest?.("a[href]");
    const isPlain = !event.defaultPrevented && event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
    if (!anchor || anchor.getAttribute("href").startsWith("#") || !isPlain || anchor.target || anchor.origin !== location.origin || !/^\/ui(\/|$)/.test(anchor.pathname)) return;
    event.preventDefault();
    go(anchor.pathname + anchor.search);
});
addEventListener("popstate", show);
addEventListener("hashchange", () => { if (location.hash.includes("token=")) { takeToken(); forgetScope(); show(); } });

takeToken();
show();
