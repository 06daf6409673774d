import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, copyFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { fixtures, startService } from "./service.js";

const packed = readdirSync(".").find((name) => /^foldback-.*\.tgz$/.test(name)) ?? "";

test("the package has what it needs and nothing else", () => {
  const names = execFileSync("tar", ["-tzf", packed], { encoding: "utf8" }).trim().split("\n").sort();
  for (const name of ["LICENSE", "README.md", "package.json", "dist/index.js", "dist/index.d.ts", "dist/node.js", "dist/api.d.ts"]) {
    assert.ok(names.includes(`package/${name}`), name);
  }
  assert.deepEqual(names.filter((name) => !/^package\/(dist\/[a-z]+\.(js|d\.ts)|LICENSE|README\.md|package\.json)$/.test(name)), []);
});

test("its version is that of the service", async () => {
  const { version } = JSON.parse(readFileSync("package.json", "utf8")) as { version: string };
  const service = await startService();
  assert.equal((JSON.parse(await (await fetch(service.url)).text()) as { version: string }).version, version);
  await service.stop();
});

test("the ten lines of README.md compile, and do what they say, with the package that is published", async () => {
  const folder = mkdtempSync(join(tmpdir(), "foldback-"));
  const service = await startService();
  mkdirSync(join(folder, "node_modules/foldback"), { recursive: true });
  execFileSync("tar", ["-xzf", resolve(packed), "--strip-components=1", "-C", join(folder, "node_modules/foldback")]);
  for (const name of ["openapi-fetch", "openapi-typescript-helpers", "@noble", "@types", "undici-types"]) {
    symlinkSync(resolve("node_modules", name), join(folder, "node_modules", name));
  }
  copyFileSync(join(fixtures, "toy/graph.json"), join(folder, "graph.json"));
  const blocks = [...readFileSync("README.md", "utf8").matchAll(/^```ts\n(.*?)^```/gms)].map((one) => one[1] ?? "");
  assert.ok(blocks[0]!.trim().split("\n").length <= 11 && blocks.length >= 4);
  const [first, ...others] = blocks.map((block) => block.replace("http://127.0.0.1:8080", service.url));
  writeFileSync(join(folder, "package.json"), '{"type": "module"}');
  writeFileSync(join(folder, "first.ts"), first!);
  writeFileSync(join(folder, "others.ts"), `${first}${others.map((block) => `{\n${block.replace(/^(import .*)$/gm, "")}\n}`).join("\n")}\n`.replace("import {", 'import { fileSource } from "foldback/node";\nimport {'));
  const options = { strict: true, target: "es2022", module: "nodenext", moduleResolution: "nodenext", lib: ["es2022", "dom", "dom.iterable"], types: ["node"] };
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions: options, files: ["first.ts", "others.ts"] }));
  execFileSync(process.execPath, [resolve("node_modules/typescript/bin/tsc"), "-p", folder], { stdio: "inherit" });
  const said = execFileSync(process.execPath, ["first.js"], { cwd: folder, encoding: "utf8", env: { ...process.env, FOLDBACK_TOKEN: service.token } });
  assert.match(said, /MergeLinears: 1/);
  assert.match(said, /true\n$/);
  await service.stop();
  rmSync(folder, { recursive: true });
});
