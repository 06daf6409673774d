// Models: what is deployed, how it came to be, and the way back.

import { curl, get, list, mayWrite } from "/ui/api.js";
import { actButton, choice, empty, fieldOf } from "/ui/acts.js";
import { ago, curlLine, graphLink, h, link, nodesOf, partsOf, requested, runLink, say, table } from "/ui/dom.js";

const enc = encodeURIComponent;

export async function modelsPage() {
    const models = await list("/v1/models", 100);
    const content = [h("h1", {}, "Models")];
    if (!models.length) {
        content.push(empty("No models are here yet. Name a graph, and deploy it:", [
            `curl -X PUT --data-binary @graph.json ${location.origin}/v1/models/bert/versions/v1`,
            `curl -X PUT -H 'If-None-Match: *' -d '{"version": "v1"}' ${location.origin}/v1/models/bert/aliases/champion`].join("\n"),
        h("p", {}, "Graphs and runs need no model: ", link("/ui/graphs", "see the graphs"), ", ", link("/ui/runs", "see the runs"), ".")));
        return { title: "Models", content };
    }
    const aliases = await Promise.all(models.slice(0, 40).map((one) => list(`/v1/models/${enc(one.name)}/aliases`, 20)));
    content.push(h("ul", { class: "cards" }, models.map((one, i) => h("li", {},
        h("h2", {}, link(`/ui/models/${enc(one.name)}`, one.name)),
        (aliases[i] ?? []).map((alias) => h("p", {}, h("strong", {}, alias.alias), " is ", h("strong", {}, alias.version), " ", h("span", { class: "faint" }, "since ", ago(alias.updated), alias.who ? ` by ${alias.who}` : ""))),
        !(aliases[i] ?? []).length && h("p", { class: "faint" }, "Nothing is deployed.")))), curlLine(curl("GET", "/v1/models")));
    return { title: "Models", content };
}

export async function modelPage({ id: model, again, signal }) {
    const path = `/v1/models/${enc(model)}`;
    const options = { signal };
    await get(path, options);
    const [aliases, versions, may] = await Promise.all([list(`${path}/aliases`, 50, options), list(`${path}/versions`, 200, options), mayWrite()]);
    const histories = await Promise.all(aliases.map((alias) => list(`${path}/aliases/${enc(alias.alias)}/history`, 100, options)));
    const plans = await Promise.all(aliases.map((alias) => get(`${path}/aliases/${enc(alias.alias)}/rollback`, options)));
    const runs = new Map(await Promise.all([...new Set(aliases.map((alias) => alias.run).filter(Boolean))].map(async (id) => [id, await get(`/v1/runs/${id}`, options).catch(() => undefined)])));
    const content = [h("h1", {}, model)];
    if (!aliases.length) content.push(empty("Nothing is deployed under a name yet.", versions.length ? `curl -X PUT -H 'If-None-Match: *' -d '{"version": "${versions[0].version}"}' ${location.origin}${path}/aliases/champion` : undefined));
    aliases.forEach((alias, i) => content.push(aliasSection({ model, path, alias, history: histories[i], plan: plans[i], versions, run: runs.get(alias.run), may, again })));
    if (may && versions.length) content.push(h("div", { class: "buttons" }, newAlias({ path, versions, again })));
    content.push(h("section", {}, h("h2", {}, "Versions"),
        versions.length ? table("Versions", ["Version", "Graph", "Made by", "Validation", "Note", "Since", "Deployed as"], versions.map((one) => [h("strong", {}, one.version), graphLink(one.graph), one.run ? runLink(one.run) : "an upload", validated(one.validation), one.note ?? "", ago(one.created),
            aliases.filter((alias) => alias.version === one.version).map((alias) => alias.alias).join(", ")])) : empty("There are no versions.")),
    curlLine(curl("GET", `${path}/versions`)));
    return { title: model, content };
}

/** The numbers of the run that made a version, with the bound: "top1 0.994 (at least 0.99)". */
function validated(found) {
    if (!found) return "";
    const short = (number) => (typeof number === "number" ? Number(number.toPrecision(4)).toString() : "not known");
    if (found.mode !== "task") return `${found.mode}: ${found.passes === null ? "nothing could be evaluated" : found.passes ? "passes" : "differs"}${found.complete ? "" : ", in part"}`;
    const bound = found.at_least !== undefined ? `at least ${short(found.at_least)}` : `at most ${short(found.at_most)}`;
    return found.outputs.map((one, i) => [i > 0 && h("br"), `${found.metric} ${short(one.value)}${one.before === null ? "" : `, before ${short(one.before)}`} (${bound})`, !one.passes && h("strong", {}, " fails")]);
}

function aliasSection({ model, path, alias, history, plan, versions, run, may, again }) {
    const own = `${path}/aliases/${enc(alias.alias)}`;
    const before = plan.to;
    const headers = { "If-Match": alias.etag };
    const why = () => fieldOf("Why (for the history)", { maxlength: 200 });
    const said = (text) => (now) => { say(text(now)); again(); };
    const buttons = [];
    if (may && before) {
        const reason = why();
        buttons.push(actButton({
            label: `Roll back to ${before}…`, class: "main", confirm: "Roll back", title: `Roll ${alias.alias} back`,
            says: `${alias.alias} of ${model} is ${alias.version} now. It becomes ${before}, which was deployed before. Who pulls ${model}@${alias.alias} gets that at once. ${alias.version} stays stored.`,
            fields: [reason], method: "POST", path: () => `${own}/rollback`, headers,
            body: () => ({ version: before, ...(reason.input.value && { why: reason.input.value }) }),
            done: said((now) => `${alias.alias} is ${now.version} again.`),
        }));
    }
    const parts = run ? partsOf(run) : [];
    if (may && parts.length) {
        const which = choice("Pass", parts), reason = why();
        buttons.push(actButton({
            label: "Take one pass out…", confirm: "Take it out", title: `Take a pass out of ${alias.alias}`,
            says: `A new version is made: ${alias.version} without this pass, exactly as if it had never run. ${alias.alias} becomes that version.`,
            fields: [which, reason], method: "POST", path: () => `${own}/rollback`, headers,
            body: () => ({ passes: [which.input.value], ...(reason.input.value && { why: reason.input.value }) }),
            done: said((now) => `${alias.alias} is ${now.version} now.`),
        }));
    }
    const others = versions.filter((one) => one.version !== alias.version);
    if (may && others.length) {
        const which = choice("Version", others.map((one) => [one.version, plan.withdrawn.includes(one.version) ? `${one.version} (was taken back)` : one.version])), reason = why();
        buttons.push(actButton({
            label: "Deploy another version…", confirm: "Deploy", title: `Deploy under ${alias.alias}`,
            says: `${alias.alias} of ${model} is ${alias.version} now. It becomes the version that you choose.`,
            fields: [which, reason], method: "PUT", path: () => own, headers,
            body: () => ({ version: which.input.value, ...(reason.input.value && { why: reason.input.value }) }),
            done: said((now) => `${alias.alias} is ${now.version} now.`),
        }));
    }
    const previous = versions.find((one) => one.version === before);
    return h("section", { class: "alias", "aria-label": alias.alias },
        h("h2", {}, alias.alias, " is ", h("span", { class: "version" }, alias.version)),
        h("p", {}, "since ", ago(alias.updated), alias.who ? ` by ${alias.who}` : "", alias.why ? `: ${alias.why}` : "", " · graph ", graphLink(alias.graph)),
        run && lastRun(run),
        previous && previous.graph !== alias.graph && h("p", {}, link(`/ui/compare?base=${previous.graph}&graph=${alias.graph}`, `Compare ${before} with ${alias.version}`)),
        buttons.length > 0 && h("div", { class: "buttons" }, buttons),
        plan.withdrawn.length > 0 && h("p", { class: "faint" }, `${alias.alias} was taken back from ${plan.withdrawn.slice(0, 5).join(", ")}: a rollback does not bring ${plan.withdrawn.length === 1 ? "it" : "these"} back.`),
        !may && h("p", { class: "faint" }, "Your token may read only, so nothing can be deployed here."),
        h("details", { open: true }, h("summary", {}, "History"), timeline(model, history)),
        curlLine(curl("GET", own)));
}

function lastRun(run) {
    const refused = run.passes.reduce((sum, pass) => sum + (pass.refused?.length ?? 0), 0);
    return h("div", { class: "last-run" },
        h("p", {}, "Made by a run of ", h("strong", {}, requested(run)), `: ${run.passes.reduce((sum, pass) => sum + (pass.applied ?? 0), 0)} rewritten${refused ? `, ${refused} refused` : ""}, ${nodesOf(run)} nodes, `, ago(run.created), "."),
        h("p", {}, h("a", { href: `/ui/runs/${run.id}`, class: "button" }, "See what this run changed", refused > 0 && ` and refused (${refused})`)));
}

function timeline(model, history) {
    const words = { create: "created", deploy: "deployed", rollback: "rolled back", delete: "deleted" };
    return h("ol", { class: "timeline" }, history.map((entry) => h("li", { class: entry.action },
        h("strong", {}, words[entry.action]), " ", entry.from && [entry.from, " → "], h("strong", {}, entry.to ?? "nothing"), " ",
        h("span", { class: "faint" }, ago(entry.when), entry.who ? ` by ${entry.who}` : "", entry.why ? `: ${entry.why}` : ""),
        entry.from_graph && entry.to_graph && entry.from_graph !== entry.to_graph && [" ", link(`/ui/compare?base=${entry.from_graph}&graph=${entry.to_graph}`, "what changed")])));
}

function newAlias({ path, versions, again }) {
    const name = fieldOf("Name", { value: "challenger", required: true, maxlength: 100 }), which = choice("Version", versions.map((one) => [one.version, one.version]));
    return actButton({
        label: "Deploy under a new name…", confirm: "Deploy", title: "Deploy under a new name", class: "quiet",
        says: "The name is new: what is deployed under others stays.",
        fields: [name, which], method: "PUT", path: () => `${path}/aliases/${enc(name.input.value)}`, headers: { "If-None-Match": "*" },
        body: () => ({ version: which.input.value }), done: (now) => { say(`${now.alias} is ${now.version}.`); again(); },
    });
}
