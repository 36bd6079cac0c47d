// An MCP server over stdio with the tools that the scenarios tasks-* of the conformance suite call. It does not support
// tasks: comet turns its slow calls into tasks. The delays are longer than mcp.tasks_after in run.mjs.
import { createInterface } from "node:readline";

const slow = 1000; // milliseconds
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
const text = (said, more) => ({ content: [{ type: "text", text: said }], ...more });

let asked = 0;
const answers = new Map(); // functions that take the answer to a question, by its id

// ask asks the client for one value.
const ask = (message, name, type) =>
  new Promise((resolve) => {
    const id = `question-${++asked}`;
    answers.set(id, resolve);
    send({ id, method: "elicitation/create", params: { message, requestedSchema: { type: "object", properties: { [name]: { type } }, required: [name] } } });
  });

const tools = {
  greet: { call: ({ name }) => text(`Hello, ${name}!`) },
  slow_compute: { call: async ({ seconds }) => (await sleep(seconds * 1000), text("computed")) },
  failing_job: { call: async () => (await sleep(slow), text("the job failed", { isError: true })), _meta: { "comet/tasks": "required" } },
  protocol_error_job: {
    call: async () => {
      await sleep(slow);
      throw new Error("the job broke the protocol");
    },
  },
  confirm_delete: {
    call: async ({ filename }) => {
      await sleep(slow);
      const { action } = await ask(`Delete ${filename}?`, "confirm", "boolean");
      return text(`${filename}: ${action}`);
    },
  },
  multi_input: {
    call: async () => {
      await sleep(slow);
      const all = await Promise.all([ask("Your name?", "name", "string"), ask("Are you sure?", "confirm", "boolean")]);
      return text(all.map(({ action }) => action).join(" "));
    },
  },
  test_tool_with_task: {
    call: async () => {
      const { content } = await ask("Your name?", "name", "string");
      await sleep(slow);
      return text(`Hello, ${content?.name}!`);
    },
  },
};

const methods = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "tasks", version: "1" } }),
  ping: () => ({}),
  "tools/list": () => ({
    tools: Object.entries(tools).map(([name, { _meta }]) => ({ name, inputSchema: { type: "object" }, annotations: { readOnlyHint: true }, _meta })),
  }),
  "tools/call": ({ name, arguments: args }) => tools[name].call(args ?? {}),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params, result } = JSON.parse(line);
  if (method === undefined) {
    answers.get(id)?.(result ?? { action: "cancel" });
    answers.delete(id);
  } else if (id !== undefined) {
    (async () => methods[method](params ?? {}))().then(
      (value) => send({ id, result: value }),
      (error) => send({ id, error: { code: -32603, message: error.message } }),
    );
  }
}
