import { spawn } from "node:child_process";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, request, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const binary = resolve(process.env["FOLDBACK_BINARY"] ?? "");
export const fixtures = resolve(process.env["FOLDBACK_FIXTURES"] ?? "");
export const description = resolve(process.env["FOLDBACK_DESCRIPTION"] ?? "");
export const readJson = (path: string) => JSON.parse(readFileSync(path, "utf8"));

export interface Service {
  url: string;
  token: string;
  stop(): Promise<void>;
  restart(): Promise<void>;
}

/** A service of this machine over an empty folder, for who has its admin's token. */
export async function startService(): Promise<Service> {
  const folder = mkdtempSync(join(tmpdir(), "foldback-"));
  const data = join(folder, "data");
  const made = execFileSync(binary, ["token", "create", "--scope", "admin", "--name", "typescript", "--data", data, "--json"], { encoding: "utf8" });
  const start = async (listen: string) => {
    const child = spawn(binary, ["serve", "--listen", listen, "--data", data, "--access-log", "off"], { stdio: ["ignore", "pipe", "ignore"] });
    const line = await new Promise<string>((done, fail) => {
      child.stdout.once("data", (text: Buffer) => done(String(text)));
      child.once("exit", (status) => fail(new Error(`the service ended with ${status}`)));
    });
    return { child, url: line.trim().split(" ").pop() ?? "" };
  };
  let { child, url } = await start("127.0.0.1:0");
  const stop = () =>
    new Promise<void>((done) => {
      child.once("exit", () => done());
      child.kill("SIGTERM");
    });
  return {
    url,
    token: JSON.parse(made).token as string,
    async stop() {
      await stop();
      rmSync(folder, { recursive: true });
    },
    async restart() {
      await stop();
      ({ child } = await start(new URL(url).host));
    },
  };
}

export type Trouble = (asked: IncomingMessage, count: number) => "pass" | "busy" | "running" | "lose-answer" | "break-after-head";

/** Stands between a client and a service, and makes trouble. `asked` has the requests that came. */
export async function startProxy(target: string, trouble: Trouble) {
  const asked: { method: string; path: string; key: string | undefined }[] = [];
  const server = createServer((incoming: IncomingMessage, answer: ServerResponse) => {
    asked.push({ method: incoming.method ?? "", path: incoming.url ?? "", key: incoming.headers["idempotency-key"] as string | undefined });
    const what = trouble(incoming, asked.length);
    if (what === "busy" || what === "running") {
      const [status, code] = what === "busy" ? [503, "stopping"] : [409, "request-in-progress"];
      incoming.resume();
      answer.writeHead(status, { "content-type": "application/problem+json", "retry-after": "0" });
      answer.end(JSON.stringify({ code, status, detail: "", title: "", type: `/problems/${code}` }));
      return;
    }
    const { hostname, port } = new URL(target);
    const forwarded = request({ hostname, port, method: incoming.method, path: incoming.url, headers: { ...incoming.headers, host: `${hostname}:${port}` } }, (reply) => {
      if (what === "lose-answer") {
        reply.resume();
        reply.once("end", () => answer.destroy());
        return;
      }
      answer.writeHead(reply.statusCode ?? 500, reply.headers);
      answer.flushHeaders();
      if (what === "break-after-head") setTimeout(() => answer.destroy(), 300);
      else reply.pipe(answer);
    });
    forwarded.once("error", () => answer.destroy());
    answer.once("close", () => forwarded.destroy());
    incoming.pipe(forwarded);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    stop: () =>
      new Promise<void>((done) => {
        server.closeAllConnections();
        server.close(() => done());
      }),
  };
}
