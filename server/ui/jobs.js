// Jobs as they go.

import { curl, events, list, mayWrite } from "/ui/api.js";
import { actButton, empty } from "/ui/acts.js";
import { ago, curlLine, h, link, table } from "/ui/dom.js";

const states = { queued: "waiting", running: "running", succeeded: "done", failed: "failed", cancelled: "cancelled" };

export async function jobsPage({ signal, again }) {
    const [jobs, may] = await Promise.all([list("/v1/jobs", 100), mayWrite()]);
    const content = [h("h1", {}, "Jobs")];
    if (!jobs.length) {
        content.push(empty("No jobs are here. A request becomes one when it says so:", `curl -H 'Prefer: respond-async' -d '{"graph": "sha256:…", "passes": ["MergeLinears"]}' ${location.origin}/v1/optimize`));
        return { title: "Jobs", content: [...content, curlLine(curl("GET", "/v1/jobs"))] };
    }
    const rows = jobs.map((job) => {
        const state = h("span", {}), bar = h("span", {}), act = h("span", {});
        const show = (now) => {
            Object.assign(job, now);
            state.replaceChildren(h("span", { class: `state ${job.state}` }, job.cancelling ? "is being cancelled" : states[job.state]));
            const { progress } = job;
            bar.replaceChildren(...(progress ? [h("progress", { max: progress.total, value: progress.done, "aria-label": "Progress" }), ` ${progress.done} of ${progress.total} ${progress.part ? `${progress.part.name}` : progress.name}`] : []));
            const isOpen = job.state === "queued" || job.state === "running";
            act.replaceChildren(...(job.location ? [link(job.location.replace("/v1/", "/ui/"), "the run")] : isOpen && may ? [actButton({
                label: "Cancel…", title: "Cancel this job", confirm: "Cancel the job", says: "It stops and stores nothing more. Runs that it has already made stay.", method: "DELETE", path: () => `/v1/jobs/${job.id}`, done: again,
            })] : []));
        };
        show(job);
        if (job.state === "queued" || job.state === "running") events(`/v1/jobs/${job.id}/events`, signal, show).catch(() => {});
        return [h("span", { class: "id" }, job.id.slice(0, 14) + "…"), job.target, job.principal, ago(job.created), state, bar, act];
    });
    content.push(table("Jobs", ["Job", "Request", "By", "Since", "State", "Progress", ""], rows), h("p", { class: "faint" }, "What runs is followed as it goes; ", h("button", { type: "button", class: "link", onclick: again }, "look for new jobs"), "."), curlLine(curl("GET", "/v1/jobs")));
    return { title: "Jobs", content };
}
