import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Client, Problem, type Graph, type Progress, type ServerEvent } from "../src/index.js";
import { fileSource } from "../src/node.js";
import { takesKey } from "../src/retry.js";
import { description, fixtures, readJson, startProxy, startService, type Service } from "./service.js";

let service: Service;
let client: Client;
const toy = readJson(join(fixtures, "toy", "graph.json")) as Graph;
const passes = ["MergeLinears", "ChangeTrueDivToMulByInverse"];
/** The same graph under another name: another id. */
const named = (name: string): Graph => ({ ...toy, name });

before(async () => {
  service = await startService();
  client = new Client(service.url, { token: service.token, retry: { pause: 10 } });
});
after(() => service.stop());

async function problem(call: Promise<unknown>): Promise<Problem> {
  const error = await call.then(
    () => assert.fail("it was done"),
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof Problem, String(error));
  return error;
}

test("a graph is optimised, reversed and rolled back", async () => {
  const run = await client.optimize(toy, passes, { note: "from TypeScript" });
  assert.ok(run.id && run.source !== run.result && run.passes[0]?.applied === 1);
  assert.equal((await client.reverse(run.id)).result, run.source);
  assert.equal((await client.rollback(run.id, { passes: ["MergeLinears"] })).exact, true);
  assert.deepEqual((await client.graph(run.source)).nodes.length, toy.nodes.length);
});

test("a problem has its code, its place and the request's id", async () => {
  const wrong = await problem(client.optimize(toy, ["NoSuchPass"]));
  assert.equal(wrong.status, 422);
  assert.equal(wrong.code, "unknown-pass");
  assert.match(wrong.message, /NoSuchPass/);
  assert.ok(wrong.details.pointer?.startsWith("/passes/0"));
  assert.match(wrong.requestId ?? "", /^[0-9a-f-]{32,36}$/);
  const stranger = await problem(new Client(service.url).optimize(toy, passes));
  assert.equal(stranger.code, "token-required");
});

test("every route has its types", async () => {
  const { data, error } = await client.api.GET("/v1/runs", { params: { query: { limit: 1 } } });
  assert.equal(error, undefined);
  assert.equal(data?.items.length, 1);
});

test("a token may come from a function, for each request", async () => {
  let asked = 0;
  const late = new Client(service.url, { token: async () => (asked++, service.token) });
  await late.putGraph(toy);
  await late.putGraph(toy);
  assert.equal(asked, 2);
});

test("the rule of who takes an Idempotency-Key is the description's", () => {
  const { paths, components } = readJson(description);
  let count = 0;
  for (const [path, item] of Object.entries<any>(paths)) {
    if (!item.post) continue;
    const parameters = [...(item.parameters ?? []), ...(item.post.parameters ?? [])].map((one: any) => (one.$ref ? components.parameters[one.$ref.split("/").pop()] : one));
    assert.equal(takesKey(path.replace(/\{.*?\}/g, "x")), parameters.some((one: any) => one.name === "Idempotency-Key"), path);
    count++;
  }
  assert.ok(count > 15);
});

test("a service that is busy is asked again", async () => {
  const proxy = await startProxy(service.url, (_, count) => (count <= 2 ? "busy" : "pass"));
  const run = await new Client(proxy.url, { token: service.token }).optimize(named("busy"), passes);
  assert.ok(run.id);
  assert.equal(proxy.asked.length, 3);
  assert.equal(new Set(proxy.asked.map((one) => one.key)).size, 1, "each attempt has the same key");
  assert.ok(proxy.asked[0]?.key);
  const gone = new Client((await startAlwaysBusy()).url, { token: service.token, retry: { attempts: 2, pause: 1 } });
  assert.equal((await problem(gone.putGraph(toy))).code, "stopping");
  await proxy.stop();
  await busy?.stop();
});

test("a request whose first attempt still runs is waited for", async () => {
  const proxy = await startProxy(service.url, (_, count) => (count === 1 ? "lose-answer" : count <= 12 ? "running" : "pass"));
  const run = await new Client(proxy.url, { token: service.token, retry: { attempts: 3, pause: 1 } }).optimize(named("running"), passes);
  assert.ok(run.id);
  assert.equal(proxy.asked.length, 13);
  assert.equal(new Set(proxy.asked.map((one) => one.key)).size, 1, "each attempt has the same key");
  await proxy.stop();
});

let busy: Awaited<ReturnType<typeof startProxy>> | undefined;
async function startAlwaysBusy() {
  return (busy = await startProxy(service.url, () => "busy"));
}

test("an answer that was lost comes again, and nothing was done twice", async () => {
  const proxy = await startProxy(service.url, (_, count) => (count === 1 ? "lose-answer" : "pass"));
  const run = await new Client(proxy.url, { token: service.token, retry: { pause: 1 } }).optimize(named("lost"), passes);
  assert.equal(proxy.asked.length, 2);
  const { data } = await client.api.GET("/v1/runs", { params: { query: { source: run.source } } });
  assert.deepEqual(data?.items.map((one) => one.id), [run.id]);
  await proxy.stop();
});

test("what would be done twice is not sent again", async () => {
  const proxy = await startProxy(service.url, () => "lose-answer");
  const lost = new Client(proxy.url, { token: service.token, retry: { pause: 1 } });
  await assert.rejects(lost.api.POST("/v1/tokens", { body: { name: "twice", scope: "read" } }), TypeError);
  assert.equal(proxy.asked.length, 1);
  await proxy.stop();
});

test("a file is sent in parts with its progress, and is not sent again", async () => {
  const folder = mkdtempSync(join(tmpdir(), "foldback-"));
  const bytes = randomBytes(20 * 1024 * 1024 + 7);
  writeFileSync(join(folder, "file"), bytes);
  const file = await fileSource(join(folder, "file"));
  const told: Progress[] = [];
  const digest = await client.upload(file, { onProgress: (one) => told.push(one) });
  assert.equal(digest, `sha256:${createHash("sha256").update(bytes).digest("hex")}`);
  for (const step of ["digest", "upload"]) {
    const done = told.filter((one) => one.step === step).map((one) => one.done);
    assert.ok(done.length >= 3 && done.at(-1) === bytes.length && done.every((one, i) => i === 0 || one >= done[i - 1]!), step);
  }
  const back = await client.send(`/v1/blobs/${digest}`);
  assert.equal(Buffer.compare(Buffer.from(await back.arrayBuffer()), bytes), 0);
  told.length = 0;
  assert.equal(await client.upload(new Blob([new Uint8Array(bytes)]), { onProgress: (one) => told.push(one) }), digest);
  assert.equal(told.filter((one) => one.step === "upload").length, 1);
  await file.close();
  rmSync(folder, { recursive: true });
});

test("an upload goes on where a connection broke", async () => {
  let lost = 0;
  const proxy = await startProxy(service.url, (asked) => (asked.method === "PATCH" && lost++ % 2 === 0 ? "lose-answer" : "pass"));
  const bytes = randomBytes(17 * 1024 * 1024);
  const digest = await new Client(proxy.url, { token: service.token, retry: { pause: 1 } }).upload(bytes);
  assert.ok(lost >= 3);
  const back = await client.send(`/v1/blobs/${digest}`);
  assert.equal(Buffer.compare(Buffer.from(await back.arrayBuffer()), bytes), 0);
  await proxy.stop();
});

test("an upload can be given up", async () => {
  const stop = new AbortController();
  const call = client.upload(randomBytes(9 * 1024 * 1024), { signal: stop.signal, onProgress: () => stop.abort(new Error("enough")) });
  await assert.rejects(call, /enough/);
});

test("safetensors are bound, and come back as a stream", async () => {
  const folder = join(fixtures, "resnet-tiny");
  const graph = await client.putGraph(readJson(join(folder, "graph.json")) as Graph);
  const file = readFileSync(join(folder, "weights.safetensors"));
  const bound = await client.bind(graph.id, [await client.upload(file)]);
  assert.notEqual(bound.id, graph.id);
  const weights = Buffer.from(await (await client.weights(bound.id)).arrayBuffer());
  const sizeOf = (bytes: Buffer) => bytes.length - 8 - Number(bytes.readBigUInt64LE(0));
  assert.equal(sizeOf(weights), sizeOf(file));
});

test("an archive is stored as a graph", async () => {
  const file = await fileSource(join(fixtures, "archives", "mlp.pt2"));
  const stored = await client.putArchive(file);
  assert.ok(stored.nodes > 0);
  await file.close();
});

test("a job is followed to its end", async () => {
  const job = await client.optimizeLater(named("job"), passes);
  const events: string[] = [];
  const ended = await client.wait(job.id, (event) => events.push(event.event));
  assert.equal(ended.state, "succeeded");
  assert.equal(events.at(-1), "succeeded");
  assert.equal(((await client.result(job.id)) as { id: string }).id.slice(0, 4), "run_");
});

test("a job that fails is a problem", async () => {
  const job = await client.optimizeLater(`sha256:${"0".repeat(64)}`, passes);
  assert.equal((await problem(client.wait(job.id))).code, "unknown-graph");
});

async function versions(model: string, names: string[]) {
  const run = await client.optimize(named(model), passes);
  for (const [i, version] of names.entries()) {
    const { error } = await client.api.PUT("/v1/models/{model}/versions/{version}", {
      params: { path: { model, version } },
      body: { graph: i % 2 ? run.result : run.source },
    });
    assert.equal(error, undefined);
  }
}

test("changes of aliases come each once, over connections that break and a restart", async () => {
  await versions("ranker", ["1", "2"]);
  let count = 0;
  const proxy = await startProxy(service.url, (asked) => (asked.url?.startsWith("/v1/events") && ++count < 3 ? "break-after-head" : "pass"));
  const follower = new Client(proxy.url, { token: service.token, retry: { pause: 20, attempts: 20 } });
  const stop = new AbortController();
  const seen: ServerEvent[] = [];
  const following = (async () => {
    for await (const event of follower.events({ since: 0, model: "ranker", signal: stop.signal })) {
      seen.push(event);
      if (seen.length === 5) break;
    }
  })();
  await client.deploy("ranker", "production", "1", { who: "ann", why: "first" });
  await client.deploy("ranker", "production", "2");
  await new Promise((done) => setTimeout(done, 800));
  await client.deploy("ranker", "production", "1");
  await service.restart();
  await client.deploy("ranker", "production", "2");
  await client.deploy("ranker", "production", "1");
  await following;
  const told = seen.map((one) => one.data as { to: string; from: string | null; who: string });
  assert.deepEqual(told.map((one) => one.to), ["1", "2", "1", "2", "1"]);
  assert.equal(told[0]?.who, "ann");
  assert.ok(count >= 3);
  await proxy.stop();
});

test("an alias that moved meanwhile is told", async () => {
  await versions("searcher", ["1", "2"]);
  await client.deploy("searcher", "production", "1");
  assert.equal((await problem(client.deploy("searcher", "production", "2", { from: "2" }))).code, "alias-moved");
  assert.equal((await client.deploy("searcher", "production", "2", { from: "1" })).version, "2");
});

test("following ends with its signal", async () => {
  const stop = new AbortController();
  setTimeout(() => stop.abort(), 200);
  for await (const event of client.events({ signal: stop.signal, alias: "nobody" })) assert.fail(JSON.stringify(event));
});
