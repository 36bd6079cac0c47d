// The tour of the API with the types that openapi-typescript generates at default settings, and
// openapi-fetch. ../run compiles it and runs it against a new server, COMET_URL, with its admin
// token, COMET_TOKEN.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import createClient from "openapi-fetch";

import type { components, paths } from "./comet.js";

type Schemas = components["schemas"];

const connect = (token: string) =>
  createClient<paths>({ baseUrl: process.env["COMET_URL"]!, headers: { Authorization: `Bearer ${token}` } });

/** Returns the data of a successful response. */
async function data<T>(request: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await request;
  assert.ok(data !== undefined, `${response.status} ${JSON.stringify(error)}`);
  return data;
}

const received: string[] = [];
const receiver = createServer(async (request, response) => {
  let text = "";
  for await (const chunk of request) text += chunk;
  received.push(JSON.parse(text).type);
  response.writeHead(204).end();
  receiver.emit("received");
}).listen(0, "127.0.0.1");
await once(receiver, "listening");
const next = async () => {
  while (received.length === 0) await once(receiver, "received");
  return received.shift();
};
const api = connect(process.env["COMET_TOKEN"]!);

// A webhook, tested before the first event.
const url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}`;
const hook = await data(api.POST("/api/v1/webhooks", { body: { url, events: ["agent.created"] } }));
const tested = await data(api.POST("/api/v1/webhooks/{webhook_id}/test", { params: { path: { webhook_id: hook.id } } }));
assert.ok(tested.succeeded);
assert.equal(await next(), "webhook.test");

// Agents of the four levels; the server has the one of level 0.
let parent = "nova";
const drafts: Schemas["AgentDraft"][] = [
  { id: "tour-lead", name: "Tour Lead", level: 1 },
  { id: "tour-expert", name: "Tour Expert", level: 2, token_budget: 1000 },
  { id: "tour-counter", name: "Tour Counter", level: 3, type: "counter", capabilities: ["count"] },
];
for (const draft of drafts) {
  const header = { "Idempotency-Key": draft.id };
  parent = (await data(api.POST("/api/v1/agents", { params: { header }, body: { ...draft, parent_id: parent, sphere_id: 1 } }))).id;
  assert.equal(await next(), "agent.created");
}
const second = await api.POST("/api/v1/agents", { body: { id: "nova-2", name: "NOVA 2", level: 0 } });
assert.equal(second.error?.code, "system-agent-exists");
const { deliveries } = await data(api.GET("/api/v1/webhooks/{webhook_id}/deliveries", {
  params: { path: { webhook_id: hook.id }, query: { event: "agent.created" } },
}));
assert.deepEqual(deliveries.map((delivery) => delivery.event), ["agent.created", "agent.created", "agent.created"]);

// All agents, page by page.
const names: string[] = [];
for (let cursor: string | undefined; ; ) {
  const page = await data(api.GET("/api/v1/agents", { params: { query: { limit: 4, ...(cursor && { cursor }) } } }));
  names.push(...page.agents.map((agent) => agent.name));
  if (!(cursor = page.next_cursor)) break;
}
assert.equal(names.length, 13);

// An update, and one that is based on an outdated version.
const path = { agent_id: parent };
const { response } = await api.GET("/api/v1/agents/{agent_id}", { params: { path } });
const header = { "If-Match": response.headers.get("ETag")! };
const updated = await data(api.PATCH("/api/v1/agents/{agent_id}", { params: { path, header }, body: { description: "Counts words" } }));
assert.equal(updated.description, "Counts words");
const outdated = await api.PATCH("/api/v1/agents/{agent_id}", { params: { path, header }, body: { description: null } });
assert.equal(outdated.error?.code, "precondition-failed");

// A task, which a worker with a token of its own does.
const issued = await data(api.POST("/api/v1/tokens", { body: { name: "counter", agent_id: parent, scopes: ["tasks:read"] } }));
const worker = connect(issued.token!);
assert.deepEqual(await data(worker.GET("/api/agent/inbox")), { messages: [] });
const task = await data(api.POST("/api/v1/tasks", { body: { capabilities: ["count"], parameters: { text: "one two three" } } }));
const { messages } = await data(worker.GET("/api/agent/inbox", { params: { query: { wait: 60 } } }));
const request = messages[0];
assert.ok(request?.type === "work_request");
const result: Schemas["WorkResultEnvelope"] = {
  protocol_version: "1.0", type: "work_result", message_id: randomUUID(), trace_id: request.trace_id, request_id: request.request_id,
  from_agent: request.to_agent, to_agent: request.from_agent, timestamp: new Date().toISOString(),
  payload: { task_id: request.payload.task_id, status: "completed", exit_code: 0, output: String(String(request.payload.parameters?.["text"]).split(" ").length) },
};
assert.equal((await worker.POST("/api/agent/message", { body: result })).response.status, 202);
await data(worker.POST("/api/agent/inbox/ack", { body: { message_ids: [request.message_id] } }));
let done: Schemas["TaskView"] = task;
while (done.ended_at === null) {
  done = await data(api.GET("/api/v1/tasks/{task_id}", { params: { path: { task_id: task.id }, query: { wait: 60, version: done.version } } }));
}
assert.deepEqual([done.state, done.output.text], ["done", "3"]);

// Usage, and a reservation that the budget does not cover.
const expert = { path: { agent_id: "tour-expert" } };
await data(api.POST("/api/v1/agents/{agent_id}/usage", { params: expert, body: { tokens: 400, model: "a-model" } }));
assert.equal((await data(api.GET("/api/v1/agents/{agent_id}/usage", { params: expert }))).remaining, 600);
const refused = await api.POST("/api/v1/agents/{agent_id}/reservations", { params: expert, body: { tokens: 601 } });
assert.ok(refused.error !== undefined && "remaining" in refused.error);
assert.deepEqual([refused.error.code, refused.error.remaining], ["budget-exceeded", 600]);

// Tools.
const { tools } = await data(api.GET("/api/v1/tools"));
assert.equal(tools[0]?.id, "agentcards:search_tools");
const called = await data(api.POST("/api/v1/tools/call", { body: { tool: tools[0].id, arguments: { query: "run code" } } }));
assert.equal(called.is_error, false);

// The stored events of the task.
const events = await api.GET("/api/v1/events", { params: { query: { task_id: task.id, last_event_id: 0 } }, parseAs: "stream" });
const reader = events.response.body!.pipeThrough(new TextDecoderStream()).getReader();
for (let text = ""; !text.includes("\nevent: task.completed\n"); ) {
  const { done, value } = await reader.read();
  assert.ok(!done, text);
  text += value;
}

console.log("the tour with the TypeScript client is complete");
process.exit(0);
