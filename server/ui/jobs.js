// Jobs as they go.

import { Problem, curl, events, get, list, mayWrite } from "/ui/api.js";
import { actButton, empty, problemText } from "/ui/acts.js";
import { ago, curlLine, h, link, put, runLink, table } from "/ui/dom.js";

const states = { queued: "waiting", running: "running", succeeded: "done", failed: "failed", cancelled: "cancelled" };
const LOOK_AGAIN = 3000; // milliseconds
const SHOWN = 50;        // graphs of one job

const isOpen = (job) => job.state === "queued" || job.state === "running";

/** What a job on many graphs made: a line for each. */
const made = ({ items }) => h("ul", {}, items.slice(0, SHOWN).map((one) => h("li", {}, one.run ? runLink(one.run) : `${one.graph.slice(7, 19)}: ${one.problem?.detail ?? one.status}`)),
    items.length > SHOWN && h("li", { class: "faint" }, `and ${items.length - SHOWN} more`));

/** What came of a job that has ended: a link, or on demand what its result says. */
function outcome(job) {
    const where = /^\/v1\/(runs|graphs)\/[^/]+$/.exec(job.location ?? "");
    if (where) return link(job.location.replace("/v1/", "/ui/"), where[1] === "runs" ? "the run" : "the graph");
    if (!job.result || job.state === "cancelled") return null;
    const body = h("div", {});
    const details = h("details", { ontoggle: async () => {
        if (!details.open || body.firstChild) return;
        try {
            const result = await get(job.result);
            put(body, Array.isArray(result.items) ? made(result) : h("pre", { tabindex: "0" }, h("code", {}, JSON.stringify(result, null, 2).slice(0, 4000))));
        } catch (error) {
            put(body, problemText(error));
        }
    } }, h("summary", {}, job.state === "failed" ? "Why?" : "What it found"), body);
    return details;
}

/** What a row says of a job, as it goes. */
function cellsOf(job, { may, signal, again }) {
    const state = h("span", {}), bar = h("span", {}), act = h("span", {});
    const show = () => {
        state.replaceChildren(h("span", { class: `state ${job.state}` }, job.cancelling ? "is being cancelled" : states[job.state]));
        const { progress } = job;
        bar.replaceChildren(...(progress ? [h("progress", { max: progress.total, value: progress.done, "aria-label": "Progress" }), ` ${progress.done} of ${progress.total} ${progress.part ? `${progress.part.name}` : progress.name}`] : []));
    };
    const showAct = () => {
        act.replaceChildren();
        put(act, isOpen(job) ? may && actButton({
            label: "Cancel…", title: "Cancel this job", confirm: "Cancel the job", says: "It stops and stores nothing more. Runs that it has already made stay.", method: "DELETE", path: () => `/v1/jobs/${job.id}`, done: again,
        }) : outcome(job));
    };
    /** An event says how far it is; what came of it stands in the job. */
    const take = async (event) => {
        Object.assign(job, { state: event.state, cancelling: event.cancelling, progress: event.progress ?? job.progress });
        show();
        if (isOpen(job)) return;
        Object.assign(job, await get(`/v1/jobs/${job.id}`, { signal }));
        showAct();
    };
    show();
    showAct();
    if (isOpen(job)) events(`/v1/jobs/${job.id}/events`, signal, take).catch(() => {});
    return [h("span", { class: "id" }, job.id.slice(0, 14) + "…"), job.target, job.principal, ago(job.created), state, bar, act];
}

/** Tells `add` of jobs that are newer than `newest`, oldest first. */
async function follow(newest, signal, add) {
    for (;;) {
        await new Promise((resolve) => { setTimeout(resolve, LOOK_AGAIN); });
        if (signal.aborted) return;
        if (document.hidden) continue;
        try {
            const { items } = await get("/v1/jobs?limit=20", { signal });
            const from = items.findIndex((job) => job.id === newest);
            const fresh = from < 0 ? items : items.slice(0, from);
            for (const job of fresh.reverse()) add(job);
            newest = items[0]?.id;
        } catch (error) {
            if (!(error instanceof Problem)) return; // the page was left
        }
    }
}

export async function jobsPage({ signal, again }) {
    const [jobs, may] = await Promise.all([list("/v1/jobs", 100), mayWrite()]);
    const about = { may, signal, again };
    const content = [h("h1", {}, "Jobs")];
    if (!jobs.length) {
        follow(undefined, signal, again);
        content.push(empty("No jobs are here. A request becomes one when it says so:", `curl -H 'Prefer: respond-async' -d '{"graph": "sha256:…", "passes": ["MergeLinears"]}' ${location.origin}/v1/optimize`));
        return { title: "Jobs", content: [...content, curlLine(curl("GET", "/v1/jobs"))] };
    }
    const rows = table("Jobs", ["Job", "Request", "By", "Since", "State", "Progress", "Outcome"], jobs.map((job) => cellsOf(job, about)));
    follow(jobs[0].id, signal, (job) => rows.querySelector("tbody").prepend(h("tr", {}, cellsOf(job, about).map((cell) => h("td", {}, cell)))));
    content.push(rows, h("p", { class: "faint" }, "What runs is followed as it goes."), curlLine(curl("GET", "/v1/jobs")));
    return { title: "Jobs", content };
}
