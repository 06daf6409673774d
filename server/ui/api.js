// The service, as every client sees it: requests with the token in a header, never in an address.

const KEY = "foldback-token";

/** A token that came in the fragment (foldback ui) is kept for this tab and taken out of the address at once. Anybody can send such a
 * link, so it replaces another token only when the user says so. */
export function takeToken() {
    const given = new URLSearchParams(location.hash.slice(1)).get("token");
    if (!given) return;
    history.replaceState(history.state, "", location.pathname + location.search);
    const isAnother = token() && token() !== given;
    if (!isAnother || confirm("This link brings a token. Use it in place of the one that this tab has?")) setToken(given);
}

export const token = () => sessionStorage.getItem(KEY);
export const setToken = (text) => (text ? sessionStorage.setItem(KEY, text) : sessionStorage.removeItem(KEY));

/** What the service answered that is no success: RFC 9457, or that it did not answer at all. */
export class Problem extends Error {
    constructor(status, members) {
        super(members.detail ?? members.title ?? `the service answered ${status}`);
        this.status = status;
        this.members = members;
    }
    get code() { return this.members.code; }
}

async function send(method, path, { body, text, headers, accept, signal } = {}) {
    const all = { Accept: accept ?? "application/json", ...headers };
    if (token()) all.Authorization = `Bearer ${token()}`;
    if (body !== undefined || text !== undefined) all["Content-Type"] ??= "application/json";
    let answer;
    try {
        answer = await fetch(path, { method, headers: all, body: body === undefined ? text : JSON.stringify(body), signal, cache: "no-store" });
    } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new Problem(0, { title: "No answer", detail: "the service does not answer; it may have been stopped" });
    }
    if (answer.ok) return answer;
    const members = answer.headers.get("Content-Type")?.includes("json") ? await answer.json().catch(() => ({})) : {};
    throw new Problem(answer.status, members);
}

export async function call(method, path, options) {
    const answer = await send(method, path, options);
    return answer.status === 204 ? null : answer.json();
}
export const get = (path, options) => call("GET", path, options);
export const callText = async (method, path, options) => (await send(method, path, options)).text();
export const getText = (path, options) => callText("GET", path, { accept: "text/x-python", ...options });
export const getBytes = async (path) => (await send("GET", path, { accept: "application/octet-stream" })).arrayBuffer();

/** The items of a list, page by page, up to `most`. */
export async function list(path, most = 200, options) {
    const items = [];
    let next = "";
    do {
        const join = path.includes("?") ? "&" : "?";
        const page = await get(`${path}${join}limit=100${next && `&page_token=${encodeURIComponent(next)}`}`, options);
        items.push(...page.items);
        next = page.next_page_token ?? "";
    } while (next && items.length < most);
    items.hasMore = Boolean(next);
    return items;
}

/** What the one who looks may do: "read", "write" or "admin". */
let access;
export async function scope() {
    access ??= get("/v1/access").then((found) => found.scope).catch((error) => { access = undefined; throw error; });
    return access;
}
export const forgetScope = () => { access = undefined; };
export const mayWrite = async () => (await scope()) !== "read";

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** The command line that sends the same request. */
export function curl(method, path, body, headers = {}) {
    const parts = ["curl"];
    if (method !== "GET" && !(method === "POST" && body !== undefined)) parts.push("-X", method);
    if (token()) parts.push("-H", '"Authorization: Bearer $FOLDBACK_TOKEN"');
    for (const [name, value] of Object.entries(headers)) parts.push("-H", quoted(`${name}: ${value}`));
    if (body !== undefined) parts.push("-d", quoted(JSON.stringify(body)));
    return [...parts, quoted(location.origin + path)].join(" ");
}

/** Server-sent events, each given to `take` and waited for; EventSource cannot send a token. Ends when the stream does. */
export async function events(path, signal, take) {
    const answer = await send("GET", path, { accept: "text/event-stream", signal });
    if (!answer.body || answer.status === 204) return;
    let rest = "";
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) {
            const data = block.split("\n").find((line) => line.startsWith("data:"));
            if (data) await take(JSON.parse(data.slice(5)));
        }
    }
}
