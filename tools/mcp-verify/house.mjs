// A comet that runs, with published MCP servers behind it, for the tests beside this file.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { started } from "../started.mjs";

export const patience = 60_000; // how long to wait for what must happen, in ms
const bin = join(process.env.SERVERS, "node_modules/.bin");
const environment = { PATH: process.env.PATH, HOME: process.env.SCRATCH };

// folder is one of the test's own, which the runner removes.
export const folder = (name) => mkdtemp(join(process.env.SCRATCH, name));

// published is how a server of npm is started.
export const published = (name, ...args) => ({ command: process.execPath, args: [join(bin, name), ...args] });

// serversFile writes the mcpServers file that a client would have.
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

// House is comet serve.
export class House {
  static async open() {
    const house = new House();
    const { path, shared } = await serversFile();
    house.shared = shared;
    house.token = randomBytes(16).toString("hex");
    const flags = ["--listen", "127.0.0.1:0", "--data", await folder("data-"), "--log-level", "warn", "--mcp-servers", path];
    house.program = spawn(process.env.COMET, ["serve", ...flags], {
      env: { ...environment, COMET_ADMIN_TOKEN: house.token },
      stdio: ["ignore", "pipe", "inherit"],
    });
    house.url = await started(house.program);
    await house.until("/api/v1/upstreams", ({ upstreams }) => upstreams.length === 3 && upstreams.every((u) => u.state === "ready"));
    return house;
  }

  get mcp() {
    return new URL("/mcp", this.url);
  }

  get headers() {
    return { Authorization: `Bearer ${this.token}` };
  }

  // link is how a client that only knows stdio is told to start comet.
  get link() {
    return { command: process.env.COMET, args: ["mcp", "--server", this.url], env: { ...environment, COMET_TOKEN: this.token }, stderr: "inherit" };
  }

  async call(method, path, status, body) {
    const response = await fetch(this.url + path, {
      method,
      headers: { ...this.headers, ...(body && { "Content-Type": "application/json" }) },
      body: body && JSON.stringify(body),
      signal: AbortSignal.timeout(patience),
    });
    const text = await response.text();
    assert.equal(response.status, status, text);
    return text && JSON.parse(text);
  }

  // until asks for something until it is as expected.
  async until(path, holds) {
    for (const end = Date.now() + patience; ; await new Promise((next) => setTimeout(next, 50))) {
      const answer = await this.call("GET", path, 200);
      if (holds(answer)) return answer;
      assert.ok(Date.now() < end, `${path} is still ${JSON.stringify(answer)}`);
    }
  }

  async close() {
    this.program.kill("SIGTERM");
    if (this.program.exitCode === null) await once(this.program, "exit");
    assert.equal(this.program.exitCode, 0);
  }
}

// alone is how a client is told to start comet without a server.
export async function alone() {
  const { path, shared } = await serversFile();
  return { shared, command: process.env.COMET, args: ["mcp", "--config", path, "--data", await folder("alone-")], env: environment, stderr: "inherit" };
}
