import createApi, { type Client as Api } from "openapi-fetch";
import type { components, paths } from "./api.js";
import { readEvents, type ServerEvent } from "./events.js";
import { Problem } from "./problem.js";
import { sendAgain, type RetryOptions } from "./retry.js";
import { digestOf, PART, partsOf, type PartSource, type Source, type TransferOptions } from "./upload.js";

export { Problem, type ProblemDetails } from "./problem.js";
export type { ServerEvent } from "./events.js";
export type { RetryOptions } from "./retry.js";
export type { PartSource, Progress, Source, TransferOptions } from "./upload.js";
export type { components, operations, paths } from "./api.js";

type Schemas = components["schemas"];
export type Graph = Schemas["Graph"];
export type Run = Schemas["Run"];
export type Job = Schemas["Job"];
export type Alias = Schemas["Alias"];
export type StoredGraph = Schemas["StoredGraph"];
/** A pass by name, or with parameters. */
export type Pass = NonNullable<Schemas["OptimizeRequest"]["passes"]>[number];

export interface ClientOptions {
  /** "fbt_…"; a function is asked for each request. */
  token?: string | (() => string | Promise<string>);
  retry?: RetryOptions;
  /** Instead of the global fetch: for a proxy, certificates, tests. */
  fetch?: typeof fetch;
}

export interface EventOptions {
  /** Begin after this entry of the history; 0 gives all of it. */
  since?: number;
  model?: string;
  alias?: string;
  signal?: AbortSignal;
}

/** What openapi-fetch answers, or a Problem. */
async function dataOf<T>(call: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await call;
  if (!response.ok) throw Problem.of(response, error);
  return data as T;
}

/** The answer is a run, not a job that makes one: it was not asked for as a job. */
const aRun = (answer: Run | Job) => answer as Run;

export class Client {
  /** Every route, with the types of the description. It does not throw: an answer has `data` or `error`. */
  readonly api: Api<paths>;
  private readonly base: string;

  /** @param url "https://foldback.example.org", or with a path before /v1 */
  constructor(
    url: string,
    private readonly options: ClientOptions = {},
  ) {
    this.base = url.replace(/\/+$/, "");
    this.api = createApi<paths>({ baseUrl: this.base, fetch: (request: Request) => this.sendRequest(request) });
  }

  // ---- runs

  /** Applies passes to a graph: a document, or the id of a stored one. */
  async optimize(graph: Graph | string, passes: Pass[], more: Omit<Schemas["OptimizeRequest"], "graph" | "passes"> = {}): Promise<Run> {
    return aRun(await dataOf(this.api.POST("/v1/optimize", { body: { graph, passes, ...more } as Schemas["OptimizeRequest"] })));
  }

  /** The same as a job: it returns at once. */
  async optimizeLater(graph: Graph | string, passes: Pass[], more: Omit<Schemas["OptimizeRequest"], "graph" | "passes"> = {}): Promise<Job> {
    const body = JSON.stringify({ graph, passes, ...more });
    const response = await this.send("/v1/optimize", { method: "POST", body, headers: { "content-type": "application/json", prefer: "respond-async" } });
    return (await response.json()) as Job;
  }

  /** Undoes a run, or some of its passes, also where the graph was edited since. */
  async reverse(run: string, request: Schemas["ReverseRequest"] = {}): Promise<Run> {
    return aRun(await dataOf(this.api.POST("/v1/runs/{run}/reverse", { params: { path: { run } }, body: request })));
  }

  /** Puts back what was before a run, exactly, whatever its passes were. */
  async rollback(run: string, request: Schemas["RollbackRequest"] = {}): Promise<Run> {
    return aRun(await dataOf(this.api.POST("/v1/runs/{run}/rollback", { params: { path: { run } }, body: request })));
  }

  // ---- graphs and bytes

  putGraph(graph: Graph): Promise<StoredGraph> {
    return dataOf(this.api.POST("/v1/graphs", { body: graph }));
  }

  graph(id: string): Promise<Graph> {
    return dataOf(this.api.GET("/v1/graphs/{id}", { params: { path: { id } } }));
  }

  /** Sends an archive of torch.export.save (.pt2), and stores its graph. */
  async putArchive(archive: Source, options: TransferOptions = {}): Promise<StoredGraph> {
    const digest = await this.upload(archive, options);
    const response = await this.send(`/v1/graphs?archive=${digest}`, { method: "POST", ...withSignal(options.signal) });
    return (await response.json()) as StoredGraph;
  }

  /** Binds a stored graph to safetensors files that were uploaded; the answer is the graph that has their bytes. */
  async bind(graph: string, weights: string[]): Promise<StoredGraph> {
    const query = weights.map((digest) => `weights=${encodeURIComponent(digest)}`).join("&");
    const response = await this.send(`/v1/graphs?${query}`, { method: "POST", body: JSON.stringify(await this.graph(graph)), headers: { "content-type": "application/json" } });
    return (await response.json()) as StoredGraph;
  }

  /** The weights of a graph as one safetensors file: its `body` is a stream. */
  weights(graph: string, signal?: AbortSignal): Promise<Response> {
    return this.send(`/v1/graphs/${encodeURIComponent(graph)}/weights`, withSignal(signal));
  }

  /**
   * Sends bytes, of any size, as a blob, unless the service has it; returns its digest. They go in parts: what breaks off is gone on
   * with, and no more than a part is in memory.
   */
  async upload(source: Source, options: TransferOptions = {}): Promise<string> {
    const parts = partsOf(source);
    const digest = await digestOf(parts, options);
    const { missing } = await dataOf(this.api.POST("/v1/blobs/missing", { body: { digests: [digest] }, ...withSignal(options.signal) }));
    if (missing.length) await this.sendParts(parts, digest, options);
    options.onProgress?.({ step: "upload", done: parts.size, total: parts.size });
    return digest;
  }

  private async sendParts(parts: PartSource, digest: string, options: TransferOptions): Promise<void> {
    const begun = await this.send("/v1/blobs/uploads", { method: "POST", ...withSignal(options.signal) });
    const place = begun.headers.get("location");
    if (!place) throw new Error("the service did not say where the upload is");
    for (let at = 0; at < parts.size; ) {
      const part = await parts.read(at, Math.min(at + PART, parts.size));
      at = await this.sendPart(place, part, at, options.signal);
      options.onProgress?.({ step: "upload", done: at, total: parts.size });
    }
    await this.send(`${place}?digest=${digest}`, { method: "PUT", ...withSignal(options.signal) });
  }

  /** Returns how much is there now. A part whose answer was lost is there: then the next attempt is out of order. */
  private async sendPart(place: string, part: Uint8Array, at: number, signal: AbortSignal | undefined): Promise<number> {
    const headers = { "content-type": "application/octet-stream", "content-range": `${at}-${at + part.byteLength - 1}` };
    try {
      await this.send(place, { method: "PATCH", body: part as BodyInit, headers, ...withSignal(signal) });
      return at + part.byteLength;
    } catch (error) {
      if (!(error instanceof Problem) || error.code !== "out-of-order") throw error;
      const state = await this.send(place, withSignal(signal));
      const there = Number(state.headers.get("upload-offset"));
      if (!Number.isFinite(there) || there <= at) throw error;
      return there;
    }
  }

  // ---- jobs and events

  /** Waits until a job has ended; a job that failed is thrown as the Problem that it ended with. */
  async wait(job: string, onEvent?: (event: ServerEvent) => void, signal?: AbortSignal): Promise<Job> {
    for await (const event of this.follow(`/v1/jobs/${encodeURIComponent(job)}/events`, undefined, signal)) {
      onEvent?.(event);
      if (event.event === "succeeded" || event.event === "failed" || event.event === "cancelled") break;
    }
    const ended = await dataOf(this.api.GET("/v1/jobs/{job}", { params: { path: { job } }, ...withSignal(signal) }));
    if (ended.state === "failed") await this.result(job); // throws
    return ended;
  }

  /** What a job's request was answered with. */
  async result(job: string): Promise<unknown> {
    return (await this.send(`/v1/jobs/${encodeURIComponent(job)}/result`)).json();
  }

  /** Changes of aliases as they happen, each once, also over connections that break. Ends with the signal. */
  events(options: EventOptions = {}): AsyncGenerator<ServerEvent> {
    const query = new URLSearchParams();
    if (options.model !== undefined) query.set("model", options.model);
    if (options.alias !== undefined) query.set("alias", options.alias);
    return this.follow(`/v1/events${query.size ? `?${query}` : ""}`, options.since, options.signal);
  }

  /** A stream that is asked for again, from the last event on, when it ends; it is over at 204. */
  private async *follow(path: string, since: number | undefined, signal: AbortSignal | undefined): AsyncGenerator<ServerEvent> {
    let last = since === undefined ? "" : String(since);
    for (;;) {
      const headers: Record<string, string> = { accept: "text/event-stream", ...(last && { "last-event-id": last }) };
      try {
        const response = await this.send(path, { headers, ...withSignal(signal) });
        if (response.status === 204 || !response.body) return;
        yield* readEvents(response.body, (id) => (last = id || last));
      } catch (error) {
        if (signal?.aborted) return;
        if (error instanceof Problem || !(error instanceof TypeError)) throw error; // fetch tells of connections by a TypeError
      }
      if (signal?.aborted) return;
      await new Promise((resolve) => setTimeout(resolve, this.options.retry?.pause ?? 200));
    }
  }

  // ---- models

  /** Points an alias at a version. `from` is the version that it must be at now; else an alias that moved meanwhile is a Problem, too. */
  async deploy(model: string, alias: string, version: string, more: { from?: string; who?: string; why?: string } = {}): Promise<Alias> {
    const path = { model, alias };
    const { data: now, error, response } = await this.api.GET("/v1/models/{model}/aliases/{alias}", { params: { path } });
    if (!response.ok && response.status !== 404) throw Problem.of(response, error);
    if (more.from !== undefined && now?.version !== more.from) {
      const detail = `${model}@${alias} is at ${now?.version ?? "no version"}, not at ${more.from}`;
      throw new Problem(412, "alias-moved", { detail }, response.headers.get("x-request-id"));
    }
    const condition = now ? { "If-Match": response.headers.get("etag") ?? "*" } : { "If-None-Match": "*" };
    const { from: _, ...told } = more;
    return dataOf(this.api.PUT("/v1/models/{model}/aliases/{alias}", { params: { path, header: condition as never }, body: { version, ...told } as never }));
  }

  // ---- requests

  /** Any request; anything but 2xx is thrown as a Problem. */
  async send(path: string, init: RequestInit = {}): Promise<Response> {
    const response = await this.sendRaw(`${this.base}${path}`, init);
    if (!response.ok) throw await Problem.read(response);
    return response;
  }

  private async sendRaw(url: string, init: RequestInit): Promise<Response> {
    const headers = new Headers(init.headers);
    const { token } = this.options;
    if (token !== undefined) headers.set("authorization", `Bearer ${typeof token === "function" ? await token() : token}`);
    const path = new URL(url).pathname.slice(new URL(this.base).pathname.replace(/\/$/, "").length);
    return sendAgain(this.options.fetch ?? fetch, url, { ...init, headers }, path, this.options.retry ?? {});
  }

  /** A Request is used up by the first attempt; its parts are not. */
  private async sendRequest(request: Request): Promise<Response> {
    const body = request.body ? await request.arrayBuffer() : undefined;
    return this.sendRaw(request.url, { method: request.method, headers: request.headers, signal: request.signal, ...(body && { body }) });
  }
}

const withSignal = (signal: AbortSignal | undefined): { signal?: AbortSignal } => (signal ? { signal } : {});
