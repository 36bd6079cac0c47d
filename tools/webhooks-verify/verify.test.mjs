// What a real server delivers is verified by the library that Standard Webhooks
// publishes, as a receiver would. COMET is the program to start.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createPublicKey, randomBytes, verify } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { started } from "../started.mjs";
import { Webhook, WebhookVerificationError } from "standardwebhooks";

const patience = 60_000; // how long to wait for what must happen
const token = randomBytes(16).toString("hex");

let comet, api, data, receiver, hook;
const arrived = []; // deliveries without a waiting test
let waiting; // resolves with the next one

before(async () => {
  receiver = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    response.writeHead(204).end();
    arrived.push({ headers: request.headers, body: Buffer.concat(chunks).toString() });
    waiting?.();
  });
  receiver.listen(0, "127.0.0.1");
  await once(receiver, "listening");

  data = await mkdtemp(join(tmpdir(), "comet-webhooks-"));
  const flags = ["--listen", "127.0.0.1:0", "--data", data, "--log-level", "warn", "--webhooks-allow-networks", "127.0.0.0/8"];
  comet = spawn(process.env.COMET, ["serve", ...flags], {
    env: { PATH: process.env.PATH, HOME: data, COMET_ADMIN_TOKEN: token },
    stdio: ["ignore", "pipe", "inherit"],
  });
  api = await started(comet);
  hook = await call("POST", "/api/v1/webhooks", 201, {
    url: `http://127.0.0.1:${receiver.address().port}/webhook`,
    events: ["agent.created", "agent.updated"],
    asymmetric: true,
  });
});

after(async () => {
  try {
    comet.kill("SIGTERM");
    if (comet.exitCode === null) await once(comet, "exit");
    assert.equal(comet.exitCode, 0);
  } finally {
    comet.kill("SIGKILL");
    receiver.close();
    await rm(data, { recursive: true, force: true });
  }
});

async function call(method, path, status, body) {
  const response = await fetch(api + path, {
    method,
    headers: { Authorization: `Bearer ${token}`, ...(body && { "Content-Type": "application/json" }) },
    body: body && JSON.stringify(body),
    signal: AbortSignal.timeout(patience),
  });
  const text = await response.text();
  assert.equal(response.status, status, text);
  return JSON.parse(text);
}

async function delivered() {
  if (arrived.length === 0) {
    await new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error("nothing was delivered")), patience);
      waiting = () => {
        clearTimeout(late);
        resolve();
      };
    });
  }
  return arrived.shift();
}

const agent = {
  id: "verified", name: "Vérifié ✓ <&>", level: 3, sphere_id: 1, frequency_hz: 444, capabilities: ["email"], parent_id: "specialist",
};

let first; // delivery, which later steps tamper with

test("a delivery is accepted", async () => {
  await call("POST", "/api/v1/agents", 201, {
    id: "specialist", name: "Specialist", level: 2, sphere_id: 1, frequency_hz: 555, capabilities: ["email"], parent_id: "orch-personnel",
  });
  first = await delivered();
  const payload = new Webhook(hook.secret).verify(first.body, first.headers);
  assert.equal(payload.type, "agent.created");
  assert.equal(payload.data.id, "specialist");
  assert.deepEqual(Object.keys(payload), ["type", "timestamp", "data"]);
  assert.ok(Math.abs(Date.parse(payload.timestamp) - Date.now()) < patience * 2);
  assert.equal(first.headers["content-type"], "application/json");
  assert.match(first.headers["user-agent"], /^comet\//);
});

test("text beyond ASCII is signed as it is sent", async () => {
  await call("POST", "/api/v1/agents", 201, agent);
  const { headers, body } = await delivered();
  assert.equal(new Webhook(hook.secret).verify(body, headers).data.name, agent.name);
});

test("what was tampered with is refused", () => {
  const { headers, body } = first;
  const refused = (secret, text, changed) =>
    assert.throws(() => new Webhook(secret).verify(text, { ...headers, ...changed }), WebhookVerificationError);
  refused(hook.secret, body.replace("specialist", "specialisT"), {});
  refused(hook.secret, body + " ", {});
  refused(hook.secret, body, { "webhook-id": headers["webhook-id"] + "0" });
  refused(hook.secret, body, { "webhook-timestamp": String(Number(headers["webhook-timestamp"]) - 1) });
  refused(hook.secret, body, { "webhook-signature": headers["webhook-signature"].replaceAll("v1,", "v1a,") });
  refused("whsec_" + randomBytes(32).toString("base64"), body, {});
});

test("the asymmetric signature is one of the public key that the API shows", () => {
  const shown = hook.public_keys.map((text) => text.replace(/^whpk_/, ""));
  assert.equal(shown.length, 1);
  const x = Buffer.from(shown[0], "base64").toString("base64url");
  const key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });
  const { headers, body } = first;
  const signed = (text) => Buffer.from(`${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${text}`);
  const signature = Buffer.from(/\bv1a,(\S+)/.exec(headers["webhook-signature"])[1], "base64");
  assert.ok(verify(null, signed(body), key, signature));
  assert.ok(!verify(null, signed(body + " "), key, signature));
});

test("a test is accepted like any delivery", async () => {
  const { succeeded, attempt } = await call("POST", `/api/v1/webhooks/${hook.id}/test`, 200);
  assert.ok(succeeded);
  assert.equal(attempt.status, 204);
  const { headers, body } = await delivered();
  assert.equal(new Webhook(hook.secret).verify(body, headers).type, "webhook.test");
});

test("while the secret changes both are accepted, afterwards the new one alone", async () => {
  const old = hook.secret;
  hook = await call("POST", `/api/v1/webhooks/${hook.id}/rotate-secret`, 200, { grace_seconds: 3600 });
  assert.notEqual(hook.secret, old);
  assert.equal(hook.public_keys.length, 2);
  await call("PATCH", "/api/v1/agents/verified", 200, { name: "Renamed" });
  const during = await delivered();
  assert.equal(during.headers["webhook-signature"].split(" ").length, 4);
  for (const secret of [hook.secret, old]) {
    assert.equal(new Webhook(secret).verify(during.body, during.headers).type, "agent.updated");
  }

  const chosen = "whsec_" + randomBytes(64).toString("base64");
  const before = hook.secret;
  hook = await call("POST", `/api/v1/webhooks/${hook.id}/rotate-secret`, 200, { secret: chosen, grace_seconds: 0 });
  await call("PATCH", "/api/v1/agents/verified", 200, { name: "Renamed again" });
  const behind = await delivered();
  assert.equal(new Webhook(chosen).verify(behind.body, behind.headers).type, "agent.updated");
  assert.throws(() => new Webhook(before).verify(behind.body, behind.headers), WebhookVerificationError);
});
