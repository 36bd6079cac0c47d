// The command line of the MCP Inspector as a client of comet.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { Harness, standalone, folder, deadline } from "./harness.mjs";

const program = new URL("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js", import.meta.url).pathname;
let harness;
before(async () => (harness = await Harness.open()));
after(() => harness.close());

async function inspect(target, ...args) {
  const { stdout } = await promisify(execFile)(process.execPath, [program, "--cli", ...target, "--format", "json", ...args], {
    env: { PATH: process.env.PATH, HOME: await folder("inspector-") },
    timeout: 2 * deadline,
  });
  return JSON.parse(stdout).result;
}

for (const era of ["legacy", "modern"]) {
  const target = () => ["--server-url", harness.mcp.href, "--transport", "http", "--header", `Authorization: Bearer ${harness.token}`, "--protocol-era", era];

  test(`over HTTP, ${era}: tools`, async () => {
    const { tools } = await inspect(target(), "--method", "tools/list");
    assert.equal(tools.length, 8);
    const found = await inspect(target(), "--method", "tools/call", "--tool-name", "agentcards__search_tools", "--tool-arg", "query=read a text file");
    assert.equal(found.structuredContent.tools[0].name, "filesystem:read_text_file");
  });

  test(`over HTTP, ${era}: resources and prompts`, async () => {
    const { resources } = await inspect(target(), "--method", "resources/list");
    assert.ok(resources.length > 0);
    const { prompts } = await inspect(target(), "--method", "prompts/list");
    assert.ok(prompts.length > 0);
  });
}

test("the schemas of comet's own tools are portable", async () => {
  await inspect(["--server-url", harness.mcp.href, "--transport", "http", "--header", `Authorization: Bearer ${harness.token}`], "--method", "tools/list", "--strict");
});

test("an approval of a workflow", async () => {
  const run = async (name, args) => {
    const target = ["--server-url", harness.mcp.href, "--transport", "http", "--header", `Authorization: Bearer ${harness.token}`];
    const flags = Object.entries(args).flatMap(([key, value]) => ["--tool-arg", `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`]);
    return (await inspect(target, "--method", "tools/call", "--tool-name", name, ...flags)).structuredContent;
  };
  const tasks = [{ id: "t1", tool: "everything:echo", arguments: { message: "bonjour" }, approve: true }];
  const { status, workflow_id, checkpoint_id } = await run("agentcards__execute_dag", { workflow: { tasks } });
  assert.equal(status, "approval_required");
  const done = await run("agentcards__approval_response", { workflow_id, checkpoint_id, approved: true });
  assert.deepEqual(done.results, { t1: "Echo: bonjour" });
});

test("over stdio", async () => {
  const { command, args, env } = await standalone();
  const config = join(await folder("config-"), "mcp.json");
  await writeFile(config, JSON.stringify({ mcpServers: { comet: { command, args, env } } }));
  const ran = await inspect(["--config", config, "--server", "comet"], "--method", "tools/call", "--tool-name", "agentcards__execute_code", "--tool-arg", "code=1 + 1");
  assert.equal(ran.structuredContent.result, 2);
});
