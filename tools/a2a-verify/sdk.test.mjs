// The official client for JavaScript, with each binding and version.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";
import { Role, TaskState } from "@a2a-js/sdk";
import { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } from "@a2a-js/sdk/client";
import { receiver, serve } from "./harness.mjs";

let server, push;
before(async () => {
  server = await serve();
  push = await receiver();
});
after(async () => {
  push.close();
  await server.close();
});

const message = (kind, text, about = {}) => ({
  messageId: `${kind}-${randomUUID()}`, contextId: "", taskId: "", role: Role.ROLE_USER, extensions: [], referenceTaskIds: [],
  parts: [{ content: { $case: "text", value: text }, metadata: undefined, filename: "", mediaType: "" }], metadata: { capability: "tour" }, ...about,
});
const request = (m, configuration) => ({ tenant: "", message: m, configuration, metadata: undefined });
const configuration = (more) => ({ acceptedOutputModes: [], taskPushNotificationConfig: undefined, returnImmediately: false, ...more });

// events reads a stream to its end, and calls each with every event.
async function events(stream, each = () => {}) {
  const all = [];
  for await (const { payload } of stream) {
    all.push(payload);
    await each(payload, all);
  }
  return all;
}
const stateOf = ({ value }) => value.status?.state;

for (const { name, binding, version } of [
  { name: "1.0 over JSON-RPC", binding: "JSONRPC", version: "1.0" },
  { name: "1.0 over HTTP+JSON", binding: "HTTP+JSON", version: "1.0" },
  { name: "0.3 over JSON-RPC", binding: "JSONRPC", version: "0.3" },
]) {
  test(name, async (t) => {
    const fetchImpl = server.fetch, legacyCompat = { enabled: version === "0.3" };
    const card = await new DefaultAgentCardResolver({ fetchImpl }).resolve(server.url);
    assert.equal(card.name, "comet");
    assert.ok(card.capabilities.streaming && card.capabilities.pushNotifications);
    card.supportedInterfaces = card.supportedInterfaces.filter((i) => i.protocolBinding === binding && i.protocolVersion === version);
    const factory = new ClientFactory({ transports: [new JsonRpcTransportFactory({ fetchImpl, legacyCompat }), new RestTransportFactory({ fetchImpl, legacyCompat })] });
    const client = await factory.createFromAgentCard(card);
    assert.equal(client.protocolVersion, version);

    await t.test("send", async () => {
      const task = (await client.sendMessage(request(message("echo", "hello"), configuration()))) ;
      assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
      assert.equal(task.artifacts[0].parts[0].content.value, "Done by the agent");
      const read = await client.getTask({ tenant: "", id: task.id, historyLength: undefined });
      assert.equal(read.history[0].parts[0].content.value, "hello");
    });

    await t.test("stream, reply and push", async () => {
      const config = { tenant: "", id: "tour", taskId: "", url: push.url, token: `token ${name}`, authentication: { scheme: "Bearer", credentials: "secret" } };
      let task;
      const asked = await events(client.sendMessageStream(request(message("ask", "report"), configuration({ taskPushNotificationConfig: config }))), async (e) => {
        task ??= e.value;
        if (stateOf(e) === TaskState.TASK_STATE_INPUT_REQUIRED) {
          assert.equal(e.value.status.message.parts[0].content.value, "Which year?");
          await client.sendMessage(request(message("reply", "2026", { taskId: task.id }), configuration({ returnImmediately: true })));
        }
      });
      assert.equal(stateOf(asked.at(-1)), TaskState.TASK_STATE_COMPLETED);
      const end = version === "0.3" ? ({ body }) => body.id === task.id && body.status.state === "completed" : ({ body }) => body.task?.id === task.id;
      const { headers, body } = await push.until(end);
      assert.equal(headers.authorization, "Bearer secret");
      assert.equal(headers["x-a2a-notification-token"], `token ${name}`);
      assert.equal((body.task ?? body).artifacts[0].parts[0].text, "Done by the agent");
    });

    await t.test("configurations of push notifications", async () => {
      const { id } = await client.sendMessage(request(message("slow", "x"), configuration({ returnImmediately: true })));
      const made = await client.createTaskPushNotificationConfig({ tenant: "", id: "c-1", taskId: id, url: push.url, token: "", authentication: undefined });
      assert.deepEqual([made.id, made.taskId, made.url], ["c-1", id, push.url]);
      const read = await client.getTaskPushNotificationConfig({ tenant: "", id: "c-1", taskId: id });
      assert.equal(read.url, push.url);
      const { configs } = await client.listTaskPushNotificationConfig({ tenant: "", taskId: id, pageSize: 0, pageToken: "" });
      assert.equal(configs.length, 1);
      await client.cancelTask({ tenant: "", id, metadata: undefined });
      await push.until(({ body }) => [body.task?.id, body.id].includes(id));
      await client.deleteTaskPushNotificationConfig({ tenant: "", id: "c-1", taskId: id });
      await assert.rejects(client.getTaskPushNotificationConfig({ tenant: "", id: "c-1", taskId: id }), /no push notification configuration/);
    });

    await t.test("resubscribe and cancel", async () => {
      const { id } = await client.sendMessage(request(message("slow", "x"), configuration({ returnImmediately: true })));
      const all = await events(client.resubscribeTask({ tenant: "", id }), async (e, all) => {
        if (all.length === 1) await client.cancelTask({ tenant: "", id, metadata: undefined });
      });
      assert.equal(stateOf(all.at(-1)), TaskState.TASK_STATE_CANCELED);
      await assert.rejects(client.cancelTask({ tenant: "", id, metadata: undefined }), /has ended/);
    });
  });
}
