// Ten calls through types that openapi-typescript made of the description, and openapi-fetch.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

declare const process: { argv: string[] };
const [url, token, text] = process.argv.slice(2) as [string, string, string];
const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${token}` } });
const document = JSON.parse(text) as components["schemas"]["Graph"];

function is(truth: boolean, what: string): asserts truth {
  if (!truth) throw new Error(what);
}

function data<T>(answer: { data?: T; error?: unknown }, what: string): T {
  is(answer.data !== undefined, `${what}: ${JSON.stringify(answer.error)}`);
  return answer.data;
}

const stored = data(await client.POST("/v1/graphs", { body: document }), "put a graph");
is(stored.nodes === document.nodes.length, "a stored graph has as many nodes as its document");
const listed = data(await client.GET("/v1/graphs", { params: { query: { limit: 5 } } }), "list graphs");
is(listed.items.some((one) => one.id === stored.id), "the graph is listed");
const run = data(
  await client.POST("/v1/optimize", { body: { graph: stored.id, passes: ["MergeLinears", { name: "ChangeTrueDivToMulByInverse" }] } }),
  "optimize",
);
is("passes" in run && run.source === stored.id && run.result !== stored.id && run.id !== null, "a run leads from the graph to another one");
const again = data(await client.POST("/v1/optimize", { body: { graph: document, passes: ["MergeLinears"], options: { dry_run: true } } }), "optimize a document");
is("id" in again && again.id === null, "a dry run has no id");
const shown = data(await client.GET("/v1/runs/{run}", { params: { path: { run: run.id } } }), "get the run");
is(shown.passes[0]?.name === "MergeLinears", "the run names its passes");
const code = data(await client.GET("/v1/graphs/{id}/code", { params: { path: { id: run.result } }, parseAs: "text" }), "get the code");
is(code.includes("def forward"), "the code is a function");
const undone = data(await client.POST("/v1/runs/{run}/reverse", { params: { path: { run: run.id } }, body: {} }), "reverse");
is("result" in undone && undone.result === stored.id, "reversing gives the graph back");
const back = data(await client.POST("/v1/runs/{run}/rollback", { params: { path: { run: run.id } }, body: { passes: ["MergeLinears"] } }), "roll back");
is("exact" in back && back.exact === true, "a rollback is exact");
const version = data(
  await client.PUT("/v1/models/{model}/versions/{version}", { params: { path: { model: "typescript", version: "1" } }, body: { run: run.id } }),
  "put a version",
);
is(version.graph === run.result, "a version is the run's result");
const missing = await client.GET("/v1/runs/{run}", { params: { path: { run: "run_00000000000000000000000000" } } });
is(missing.error !== undefined && missing.error.code === "unknown-run" && missing.error.status === 404, "a run that does not exist is a problem");
console.log("ten calls");
