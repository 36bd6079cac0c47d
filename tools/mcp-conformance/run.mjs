// Runs the official conformance suite of MCP against comet, with the everything-server of the Go SDK
// as upstream. The suite sends no token and calls the tools by the names of this server, so it connects
// through a proxy that adds the token and the prefix of the upstream. Needs Node 22.
//
//   node run.mjs COMET EVERYTHING_SERVER SUITE_FOLDER [arguments of "conformance server"]
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { started } from "../started.mjs";

const [comet, everything, suite, ...args] = process.argv.slice(2);
const stateless = args.includes("2026-07-28");
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

const port = await freePort();
const upstream = spawn(everything, [`-http=127.0.0.1:${port}`, `-stateless=${stateless}`], { stdio: "ignore" });
const servers = join(scratch, "servers.json");
await writeFile(servers, JSON.stringify({ mcpServers: { conf: { type: "http", url: `http://127.0.0.1:${port}/mcp` } } }));
const server = spawn(comet, ["serve", "--listen", "127.0.0.1:0", "--data", join(scratch, "data"), "--log-level", "error", "--mcp-servers", servers], {
  env: { PATH: process.env.PATH, HOME: scratch, COMET_ADMIN_TOKEN: token, COMET_TOOLS_EXPOSE: "all" },
  stdio: ["ignore", "pipe", "inherit"],
});
const url = new URL(await started(server));

for (let ready = false; !ready; await new Promise((next) => setTimeout(next, 50))) {
  const list = await fetch(new URL("/api/v1/upstreams", url), { headers: { Authorization: `Bearer ${token}` } });
  ready = (await list.json()).upstreams.every((u) => u.state === "ready");
}

const proxy = http.createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks).toString().replaceAll(/"name":"(test_|json_schema_)/g, '"name":"conf__$1');
  const headers = { ...request.headers, authorization: `Bearer ${token}` };
  delete headers["content-length"];
  if (/^(test_|json_schema_)/.test(headers["mcp-name"])) headers["mcp-name"] = "conf__" + headers["mcp-name"];
  const forwarded = http.request({ host: url.hostname, port: url.port, method: request.method, path: request.url, headers }, (answer) => {
    delete answer.headers["content-length"];
    response.writeHead(answer.statusCode, answer.headers);
    response.flushHeaders();
    answer.on("data", (data) => response.write(data.toString("latin1").replaceAll('"name":"conf__', '"name":"'), "latin1"));
    answer.on("end", () => response.end());
    answer.on("error", () => response.destroy());
  });
  forwarded.on("error", () => response.destroy());
  response.on("close", () => forwarded.destroy());
  forwarded.end(body);
});
await new Promise((ready) => proxy.listen(0, "127.0.0.1", ready));
const run = spawn(process.execPath, [join(suite, "node_modules/@modelcontextprotocol/conformance/dist/index.js"), "server", "--url", `http://127.0.0.1:${proxy.address().port}/mcp`, ...args], { stdio: "inherit" });
process.exitCode = await new Promise((ended) => run.on("exit", ended));
proxy.close();
proxy.closeAllConnections();
for (const program of [server, upstream]) {
  program.removeAllListeners("exit");
  program.kill();
}
await rm(scratch, { recursive: true, force: true });
