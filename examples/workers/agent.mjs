#!/usr/bin/env node
// A complete agent that does not need the comet binary: it polls for tasks over HTTP (long poll).
//
//   COMET_TOKEN=… node agent.mjs [http://127.0.0.1:8080]
//
// Node 20 or newer, no packages. A repeated request does not run again.
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

const server = process.argv[2] ?? process.env.COMET_SERVER ?? 'http://127.0.0.1:8080';
const headers = { Authorization: `Bearer ${process.env.COMET_TOKEN}`, 'Content-Type': 'application/json' };

// call sends a request until the server responds; a rejected request is logged and dropped.
async function call(method, path, body) {
  for (let pause = 250; ; pause = Math.min(2 * pause, 15_000)) {
    try {
      const response = await fetch(server + path, { method, headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(60_000) });
      const text = await response.text();
      if (response.status === 401 || response.status === 403) {
        console.error('the server rejects the token');
        process.exit(1);
      }
      if (response.ok) return text ? JSON.parse(text) : {};
      if (response.status < 500 && response.status !== 429) {
        console.error('rejected:', text);
        return {};
      }
      throw new Error(`the server responded ${response.status}`);
    } catch (failure) {
      console.error('retrying:', failure.message);
      await sleep(pause);
    }
  }
}

// send sends an envelope. The same message_id counts once, however often it is sent.
const send = (type, payload, request) => call('POST', '/api/agent/message', {
  protocol_version: '1.0', message_id: randomUUID(), from_agent: me.type, to_agent: 'orchestrator', timestamp: new Date().toISOString(),
  trace_id: request?.trace_id ?? randomUUID(), request_id: request?.request_id ?? randomUUID(), type, payload,
});

// work executes a request and returns the payload of its result. Replace it with your own work.
async function work(request) {
  const { task_id, parameters } = request.payload;
  const status = { task_id, status: 'running' };
  await send('work_status', { ...status, progress_percent: 0 }, request); // accept it
  const text = String(parameters.text ?? '');
  await send('work_status', { ...status, progress_percent: 50, step: { number: 1, name: 'shouting', output: `${text.length} characters\n` } }, request);
  return { task_id, status: 'success', exit_code: 0, output: text.toUpperCase() };
}

const { agent: me } = await call('GET', '/api/v1/me');
const done = new Map(); // request_id and task_id → result: two requesters may use the same request_id
console.log('working as', me.id);
for (;;) {
  await send('work_status', { agent_id: me.id, status: 'online' }); // a heartbeat
  const { messages = [] } = await call('GET', '/api/agent/inbox?wait=15');
  for (const message of messages) {
    if (message.type === 'work_request' && message.payload.work_type !== 'cancel_task') {
      const key = `${message.request_id} ${message.payload.task_id}`;
      if (!done.has(key)) done.set(key, await work(message));
      await send('work_result', done.get(key), message);
    }
    await call('POST', '/api/agent/inbox/ack', { message_ids: [message.message_id] });
  }
}
