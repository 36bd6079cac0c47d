// Runs the official conformance suite of MCP against comet, with the everything-server of the Go SDK and with tasks.mjs
// as upstreams. The suite sends no token and calls the tools by the names of these servers, so it connects
// through a proxy that adds the token and the prefix of the upstream. Needs Node 22.
//
//   node run.mjs COMET EVERYTHING_SERVER SUITE_FOLDER [arguments of "conformance server"]
//   node run.mjs COMET "" SUITE_FOLDER tasks    the scenarios of the Tasks extension
import { execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { started } from "../started.mjs";

const [comet, everything, suite, ...args] = process.argv.slice(2);
const onlyTasks = args[0] === "tasks";
const stateless = args.includes("2026-07-28");
const tool = /^(?:test_(?!tool_with_task)|json_schema_)/;
const taskTool = /^(?:greet|slow_compute|failing_job|protocol_error_job|confirm_delete|multi_input|test_tool_with_task)$/;
const scratch = await mkdtemp(join(tmpdir(), "mcp-conformance-"));
const token = randomBytes(16).toString("hex");

// freePort returns a free port.
const freePort = () =>
  new Promise((resolve) => {
    const probe = http.createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });

const upstreams = { tasks: { command: process.execPath, args: [join(import.meta.dirname, "tasks.mjs")] } };
const programs = [];
if (!onlyTasks) {
  const port = await freePort();
  programs.push(spawn(everything, [`-http=127.0.0.1:${port}`, `-stateless=${stateless}`], { stdio: "ignore" }));
  upstreams.conf = { type: "http", url: `http://127.0.0.1:${port}/mcp` };
}
const servers = join(scratch, "servers.json");
await writeFile(servers, JSON.stringify({ mcpServers: upstreams }));
const server = spawn(comet, ["serve", "--listen", "127.0.0.1:0", "--data", join(scratch, "data"), "--log-level", "error", "--mcp-servers", servers], {
  env: { PATH: process.env.PATH, HOME: scratch, COMET_ADMIN_TOKEN: token, COMET_TOOLS_EXPOSE: "all", COMET_MCP_TASKS_AFTER: "300ms" },
  stdio: ["ignore", "pipe", "inherit"],
});
programs.push(server);
const url = new URL(await started(server));

for (let ready = false; !ready; await new Promise((next) => setTimeout(next, 50))) {
  const list = await fetch(new URL("/api/v1/upstreams", url), { headers: { Authorization: `Bearer ${token}` } });
  ready = (await list.json()).upstreams.every((u) => u.state === "ready");
}

const prefixed = (name) => (taskTool.test(name) ? "tasks__" : tool.test(name) ? "conf__" : "") + name;
const proxy = http.createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks).toString().replaceAll(/"name":"([a-z_0-9]+)"/g, (_, name) => `"name":"${prefixed(name)}"`);
  const headers = { ...request.headers, authorization: `Bearer ${token}` };
  delete headers["content-length"];
  if (headers["mcp-name"]) headers["mcp-name"] = prefixed(headers["mcp-name"]);
  const forwarded = http.request({ host: url.hostname, port: url.port, method: request.method, path: request.url, headers }, (answer) => {
    delete answer.headers["content-length"];
    response.writeHead(answer.statusCode, answer.headers);
    response.flushHeaders();
    answer.on("data", (data) => response.write(data.toString("latin1").replaceAll(/"name":"(?:conf|tasks)__/g, '"name":"'), "latin1"));
    answer.on("end", () => response.end());
    answer.on("error", () => response.destroy());
  });
  forwarded.on("error", () => response.destroy());
  response.on("close", () => forwarded.destroy());
  forwarded.end(body);
});
await new Promise((ready) => proxy.listen(0, "127.0.0.1", ready));

const conformance = join(suite, "node_modules/@modelcontextprotocol/conformance/dist/index.js");

// check runs scenarios and returns the exit code.
const check = (more) =>
  new Promise((ended) =>
    spawn(process.execPath, [conformance, "server", "--url", `http://127.0.0.1:${proxy.address().port}/mcp`, ...more], { stdio: "inherit" }).on("exit", ended),
  );

if (onlyTasks) {
  const scenarios = execFileSync(process.execPath, [conformance, "list"], { encoding: "utf8" }).match(/tasks-[a-z-]+/g);
  if (scenarios.length < 10) throw new Error(`the suite has only the scenarios ${scenarios}`);
  for (const scenario of scenarios) if ((await check(["--scenario", scenario, "--spec-version", "2026-07-28", "--force"])) !== 0) process.exitCode = 1;
} else {
  process.exitCode = await check(args);
}
proxy.close();
proxy.closeAllConnections();
for (const program of programs) {
  program.removeAllListeners("exit");
  program.kill();
}
await rm(scratch, { recursive: true, force: true });
