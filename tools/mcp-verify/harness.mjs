// Starts comet with published MCP servers as upstreams for the tests of this folder.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { started } from "../started.mjs";

export const deadline = 60_000; // of every wait, in ms
const bin = join(process.env.SERVERS, "node_modules/.bin");
const environment = { PATH: process.env.PATH, HOME: process.env.SCRATCH };

// folder creates a folder that the runner removes.
export const folder = (name) => mkdtemp(join(process.env.SCRATCH, name));

// published returns the command of an MCP server from npm.
export const published = (name, ...args) => ({ command: process.execPath, args: [join(bin, name), ...args] });

// serversFile writes an mcpServers file as desktop clients have it.
export async function serversFile() {
  const dir = await folder("servers-");
  const shared = await folder("shared-");
  await writeFile(join(shared, "hello.txt"), "bonjour\n");
  const servers = {
    everything: published("mcp-server-everything"),
    filesystem: published("mcp-server-filesystem", shared),
    memory: { ...published("mcp-server-memory"), env: { MEMORY_FILE_PATH: join(dir, "memory.jsonl") } },
  };
  const path = join(dir, "servers.json");
  await writeFile(path, JSON.stringify({ mcpServers: servers }));
  return { path, shared };
}

// Harness is a running comet serve.
export class Harness {
  static async open() {
    const harness = new Harness();
    const { path, shared } = await serversFile();
    harness.shared = shared;
    harness.token = randomBytes(16).toString("hex");
    const flags = ["--listen", "127.0.0.1:0", "--data", await folder("data-"), "--log-level", "warn", "--mcp-servers", path];
    harness.program = spawn(process.env.COMET, ["serve", ...flags], {
      env: { ...environment, COMET_ADMIN_TOKEN: harness.token },
      stdio: ["ignore", "pipe", "inherit"],
    });
    harness.url = await started(harness.program);
    await harness.until("/api/v1/upstreams", ({ upstreams }) => upstreams.length === 3 && upstreams.every((u) => u.state === "ready"));
    return harness;
  }

  get mcp() {
    return new URL("/mcp", this.url);
  }

  get headers() {
    return { Authorization: `Bearer ${this.token}` };
  }

  // relay returns the command of comet mcp for a client that only knows stdio.
  get relay() {
    return { command: process.env.COMET, args: ["mcp", "--server", this.url], env: { ...environment, COMET_TOKEN: this.token }, stderr: "inherit" };
  }

  async call(method, path, status, body) {
    const response = await fetch(this.url + path, {
      method,
      headers: { ...this.headers, ...(body && { "Content-Type": "application/json" }) },
      body: body && JSON.stringify(body),
      signal: AbortSignal.timeout(deadline),
    });
    const text = await response.text();
    assert.equal(response.status, status, text);
    return text && JSON.parse(text);
  }

  // until requests a path until the response meets the condition.
  async until(path, holds) {
    for (const end = Date.now() + deadline; ; await new Promise((next) => setTimeout(next, 50))) {
      const body = await this.call("GET", path, 200);
      if (holds(body)) return body;
      assert.ok(Date.now() < end, `${path} is still ${JSON.stringify(body)}`);
    }
  }

  async close() {
    this.program.kill("SIGTERM");
    if (this.program.exitCode === null) await once(this.program, "exit");
    assert.equal(this.program.exitCode, 0);
  }
}

// standalone returns the command of comet mcp without a server.
export async function standalone() {
  const { path, shared } = await serversFile();
  return { shared, command: process.env.COMET, args: ["mcp", "--config", path, "--data", await folder("standalone-")], env: environment, stderr: "inherit" };
}
