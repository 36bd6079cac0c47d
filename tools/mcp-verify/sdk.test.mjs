// The TypeScript SDK as a client of comet: both major versions, every transport, the same
// behaviour on each.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import * as modern from "@modelcontextprotocol/client";
import { StdioClientTransport as ModernStdio } from "@modelcontextprotocol/client/stdio";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { Harness, standalone, deadline, published } from "./harness.mjs";

const info = { name: "verify", version: "1.0.0" };
const capabilities = { elicitation: {} };
let harness, local;
before(async () => {
  harness = await Harness.open();
  local = await standalone();
});
after(() => harness.close());

// v1 is the major version of the SDK that only supports sessions.
const v1 = {
  new: () => new Client(info, { capabilities }),
  onElicit: (client, reply) => client.setRequestHandler(ElicitRequestSchema, reply),
  call: (client, params, options) => client.callTool(params, undefined, options),
  onToolsChanged: (client, handler) => client.setNotificationHandler(ToolListChangedNotificationSchema, handler),
};
// v2 is the major version that supports 2026-07-28.
const v2 = (mode) => ({
  new: () => new modern.Client(info, { capabilities, versionNegotiation: { mode } }),
  onElicit: (client, reply) => client.setRequestHandler("elicitation/create", reply),
  call: (client, params, options) => client.callTool(params, options),
  onToolsChanged: async (client, handler) => {
    client.setNotificationHandler("notifications/tools/list_changed", handler);
    if (client.getProtocolEra() === "modern") await client.listen({ toolsListChanged: true });
  },
});
const overHTTP = (transport) => () => new transport(harness.mcp, { requestInit: { headers: harness.headers } });

const clients = [
  { name: "SDK 1 over HTTP", sdk: v1, transport: overHTTP(StreamableHTTPClientTransport), http: true, serves: true },
  { name: "SDK 1 over stdio, relayed to a server", sdk: v1, transport: () => new StdioClientTransport(harness.relay), serves: true },
  { name: "SDK 1 over stdio, standalone", sdk: v1, transport: () => new StdioClientTransport(local) },
  { name: "SDK 2 over HTTP with sessions", sdk: v2("legacy"), transport: overHTTP(modern.StreamableHTTPClientTransport), http: true, serves: true },
  { name: "SDK 2 over HTTP, 2026-07-28", sdk: v2("auto"), transport: overHTTP(modern.StreamableHTTPClientTransport), http: true, serves: true, era: "modern" },
  { name: "SDK 2 over stdio, relayed to a server, 2026-07-28", sdk: v2("auto"), transport: () => new ModernStdio(harness.relay), serves: true, era: "modern" },
  { name: "SDK 2 over stdio, standalone, 2026-07-28", sdk: v2({ pin: "2026-07-28" }), transport: () => new ModernStdio(local), era: "modern" },
];

for (const { name, sdk, transport, http, serves, era } of clients) {
  describe(name, { timeout: 4 * deadline }, () => {
    let client;
    const asked = []; // the messages of questions
    const call = (tool, args, options) => sdk.call(client, { name: tool, arguments: args }, options);
    before(async () => {
      client = sdk.new();
      sdk.onElicit(client, ({ params }) => {
        asked.push(params.message);
        return { action: "accept", content: params.requestedSchema.properties.decision ? { decision: "approve" } : { name: "Zoé", check: true } };
      });
      await client.connect(transport());
      // The upstreams of a standalone comet start with this client.
      for (const end = Date.now() + deadline; ; ) {
        const { isError } = await call("memory__read_graph", {});
        if (!isError && !(await call("everything__echo", { message: "?" })).isError && !(await call("filesystem__list_allowed_directories", {})).isError) break;
        assert.ok(Date.now() < end, "the upstreams are not ready");
        await new Promise((next) => setTimeout(next, 100));
      }
    });
    after(() => client.close());

    test("negotiates the revision", () => {
      if (era) assert.equal(client.getProtocolEra(), era);
      assert.equal(client.getServerVersion().name, "comet");
    });

    test("lists comet's tools and finds others by search", async () => {
      const { tools } = await client.listTools();
      assert.deepEqual(
        tools.map((t) => t.name),
        [
          "agentcards__search_tools", "agentcards__execute_code", "agentcards__execute_dag", "agentcards__continue",
          "agentcards__abort", "agentcards__replan", "agentcards__approval_response", "comet__submit_task",
        ],
      );
      for (const query of ["list what is in a folder", "lister les fichiers d'un dossier"]) {
        const found = await call("agentcards__search_tools", { query });
        assert.equal(found.structuredContent.tools[0].name, "filesystem:list_directory", query);
      }
    });

    test("executes a workflow and approves a task after it has seen its arguments", async () => {
      const done = await call("agentcards__execute_dag", {
        workflow: {
          tasks: [
            { id: "t1", tool: "everything:echo", arguments: { message: "bonjour" } },
            { id: "t2", tool: "everything:echo", arguments: { message: "$t1.result" }, approve: true },
          ],
        },
      });
      assert.match(asked.at(-1), /t2: everything:echo .*{"message":"Echo: bonjour"}/);
      assert.equal(done.structuredContent.status, "complete");
      assert.deepEqual(done.structuredContent.results, { t1: "Echo: bonjour", t2: "Echo: Echo: bonjour" });
    });

    test("calls a tool by its listed and by its documented name", async () => {
      for (const tool of ["everything__echo", "everything:echo"]) {
        const result = await call(tool, { message: "bonjour" });
        assert.equal(result.content[0].text, "Echo: bonjour");
      }
    });

    test("runs TypeScript over several servers", async () => {
      const code = `
        const file: string = await filesystem.readTextFile({ path: ${JSON.stringify(join(serves ? harness.shared : local.shared, "hello.txt"))} });
        const sum = await everything.getSum({ a: 2, b: 3 });
        return { file, sum };`;
      const ran = await call("agentcards__execute_code", { code });
      assert.ok(!ran.isError, JSON.stringify(ran));
      assert.match(JSON.stringify(ran.structuredContent.result.file), /bonjour/);
      assert.match(JSON.stringify(ran.structuredContent.result.sum), /5/);
    });

    test("receives the progress of a call", async () => {
      const received = [];
      const done = await call("everything__trigger-long-running-operation", { duration: 1, steps: 4 }, { onprogress: (p) => received.push(p), timeout: deadline });
      assert.ok(!done.isError, JSON.stringify(done));
      const steps = received.map((p) => p.progress);
      assert.deepEqual(steps, steps.toSorted()); // several may be merged into one
      // Over stdio the SDK drops notifications that arrive together with the response.
      assert.ok(steps.at(-1) >= (http ? 4 : 1), `${steps}`);
      assert.equal(received.at(-1).total, 4);
    });

    test("cancels a call", async () => {
      const stop = new AbortController();
      const running = call("everything__trigger-long-running-operation", { duration: 600, steps: 6000 }, {
        signal: stop.signal,
        onprogress: () => stop.abort(new Error("enough")),
        timeout: deadline,
      });
      await assert.rejects(running);
      if (serves) await harness.until("/api/v1/tools/calls?server=everything", ({ calls }) => calls.some((c) => c.tool === "everything:trigger-long-running-operation" && c.duration_ms > 0 && c.error === "CANCELLED"));
    });

    test("receives elicitation requests of a server", async () => {
      const done = await call("everything__trigger-elicitation-request", {}, { timeout: deadline });
      assert.match(JSON.stringify(done.content), /Zoé/);
    });

    test("lists and reads resources and prompts of the servers", async () => {
      const { resources } = await client.listResources();
      const text = resources.find((r) => r.mimeType?.startsWith("text/"));
      assert.ok(text, JSON.stringify(resources));
      assert.equal((await client.readResource({ uri: text.uri })).contents[0].uri, text.uri);
      const { resourceTemplates } = await client.listResourceTemplates();
      assert.ok(resourceTemplates.length > 0);
      const { prompts } = await client.listPrompts();
      const simple = prompts.find((p) => p.name.endsWith("simple-prompt"));
      assert.ok(simple, JSON.stringify(prompts));
      assert.ok((await client.getPrompt({ name: simple.name })).messages.length > 0);
    });

    test("receives errors with codes", async () => {
      const unknown = await call("everything__nonsense", {});
      assert.ok(unknown.isError);
      assert.match(unknown.content[0].text, /^TOOL_NOT_FOUND/);
      const broken = await call("agentcards__execute_code", { code: "const x = ;" });
      assert.match(broken.content[0].text, /^SANDBOX_SYNTAX/);
      await assert.rejects(call("agentcards__search_tools", { query: "x", limit: "many" }), { code: -32602 });
      await assert.rejects(client.readResource({ uri: "nowhere://at/all" }));
    });

    if (serves)
      test("is notified when the tools change", async () => {
        let notify;
        const changed = new Promise((resolve) => (notify = resolve));
        await sdk.onToolsChanged(client, notify);
        const id = `late-${Math.random().toString(36).slice(2)}`;
        await harness.call("PUT", `/api/v1/upstreams/${id}`, 201, published("mcp-server-memory"));
        await changed; // the descriptions of comet's own tools name the servers
        await harness.call("DELETE", `/api/v1/upstreams/${id}`, 204);
      });
  });
}

test("a client without a token receives the metadata URL", async () => {
  const client = v1.new();
  await assert.rejects(client.connect(new StreamableHTTPClientTransport(harness.mcp)), { code: 401 });
  const response = await fetch(harness.mcp, { method: "POST", body: "{}", headers: { "Content-Type": "application/json" } });
  const { resourceMetadataUrl } = modern.extractWWWAuthenticateParams(response);
  const metadata = await (await fetch(resourceMetadataUrl)).json();
  assert.equal(metadata.resource, harness.mcp.href);
});
