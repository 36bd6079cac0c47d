// comet gets, keeps and refreshes the tokens of an MCP server whose authorization server is oidc-provider.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { started } from "../started.mjs";
import { browse, startProvider, startServer } from "./provider.mjs";

const lifetime = 14; // of access tokens, in seconds; comet refreshes them 10 s before their end
const token = randomBytes(16).toString("hex");
const environment = { PATH: process.env.PATH, HOME: process.env.SCRATCH, COMET_TOKEN: token };
const site = "https://comet.example.com"; // of comet, if it has a public address
const locate = (address) => address.replace(site, new URL(url).origin);
let comet, url, data, notes, provider;

async function start(options) {
  comet = spawn(process.env.COMET, ["serve", "--listen", "127.0.0.1:0", "--data", data, "--log-level", "info"], {
    env: { ...environment, COMET_ADMIN_TOKEN: token, COMET_WEBHOOKS_ALLOW_NETWORKS: "127.0.0.0/8", ...options },
    stdio: ["ignore", "pipe", "pipe"],
  });
  comet.stderr.on("data", (text) => (comet.log = (comet.log ?? "") + text));
  url = await started(comet);
}

async function stop() {
  comet.removeAllListeners("exit");
  comet.kill();
  if (comet.exitCode === null) await once(comet, "exit");
}

async function api(method, path, body) {
  const response = await fetch(new URL(path, url), {
    method,
    headers: { Authorization: `Bearer ${token}`, ...(body && { "Content-Type": "application/json" }) },
    body: body && JSON.stringify(body),
  });
  return { status: response.status, body: await response.json() };
}

async function until(state) {
  for (const deadline = Date.now() + 60_000; ; await sleep(50)) {
    const { body } = await api("GET", "/api/v1/upstreams/notes");
    if (body.state === state) return body;
    assert.ok(Date.now() < deadline, `the upstream is ${JSON.stringify(body)}, not ${state}\n${comet.log}`);
  }
}

const call = (tool = "read") => api("POST", "/api/v1/tools/call", { tool: `notes:${tool}`, arguments: {} });
const run = (...args) => promisify(execFile)(process.env.COMET, args, { env: { ...environment, COMET_SERVER: url } });

// authorize runs the command and opens the address that it prints.
async function authorize() {
  const command = spawn(process.env.COMET, ["upstreams", "authorize", "notes", "-o", "json"], { env: { ...environment, COMET_SERVER: url } });
  const ended = once(command, "exit");
  let printed = "";
  for await (const text of command.stdout) {
    printed += text;
    if (printed.trimEnd().endsWith("}")) break;
  }
  const address = JSON.parse(printed).authorization_url;
  const page = await browse(address, locate);
  return { page, ended, asked: new URL(address).searchParams };
}

before(async () => {
  data = await mkdtemp(join(process.env.SCRATCH, "data-"));
  notes = await startServer();
  provider = await startProvider(notes.resource, lifetime, locate);
  notes.trust(provider.issuer);
  await start();
});
after(async () => {
  await stop();
  notes.stop();
  provider.stop();
});

test("a server that rejects requests requires an authorization", async () => {
  await run("upstreams", "add", "notes", "--url", notes.resource);
  const { error } = await until("authorization_required");
  assert.match(error, /comet upstreams authorize notes/);
  assert.equal(notes.tokens.size, 0);
});

test("a person authorizes comet in a browser", async () => {
  const { page, ended } = await authorize();
  assert.equal(page.status, 200, page.text);
  assert.match(page.text, /comet is authorized to use the upstream "notes"/);
  assert.deepEqual(await ended, [0, null]);
  await until("ready");
  const { status, body } = await call();
  assert.equal(status, 200, JSON.stringify(body));
  assert.equal(body.content[0].text, "remember the milk");

  const again = await fetch(page.address);
  assert.equal(again.status, 400, "the state is valid once");
});

test("the tokens are refreshed", async () => {
  for (let round = 0; round < 2; round++) {
    const before = notes.tokens.size;
    await sleep(5_000);
    assert.equal((await call()).status, 200);
    assert.equal(notes.tokens.size, before + 1);
  }
});

test("a restart keeps the tokens, which nothing shows", async () => {
  let log = comet.log;
  await stop();
  await start();
  await until("ready");
  assert.equal((await call()).status, 200);
  log += comet.log;
  const shown = JSON.stringify([await api("GET", "/api/v1/upstreams"), await api("GET", "/api/v1/upstreams/notes/tools")]) + log;
  for (const secret of notes.tokens) {
    assert.ok(!shown.includes(secret), "a view or the log contains an access token");
    for (const file of (await readdir(data)).filter((name) => name.startsWith("comet.db"))) {
      assert.ok(!(await readFile(join(data, file))).includes(secret), `${file} contains an access token`);
    }
  }
});

test("a revoked refresh token requires another authorization", async () => {
  await provider.revoke();
  await sleep(5_000);
  const { status, body } = await call();
  assert.equal(status, 502, JSON.stringify(body));
  await until("authorization_required");
  assert.match(comet.log, /requires another authorization/);

  const { page, ended } = await authorize();
  assert.equal(page.status, 200, page.text);
  assert.deepEqual(await ended, [0, null]);
  await until("ready");
  assert.equal((await call()).status, 200);
});

test("a call that requires another scope names it, and the next authorization requests it", async () => {
  for (let round = 0; round < 2; round++) {
    const { status, body } = await call("write");
    assert.equal(status, 502, JSON.stringify(body));
    assert.match(JSON.stringify(body), /lacks the scopes .{1,3}notes:write.* authorize comet again/);
  }
  assert.match((await until("ready")).warnings.join(), /notes:write/);
  assert.equal((await call()).status, 200, "the other tool is still available");

  await stop();
  await start();
  const { page, ended, asked } = await authorize();
  assert.deepEqual(asked.get("scope").split(" ").sort(), ["notes:read", "notes:write", "offline_access"]);
  assert.equal(page.status, 200, page.text);
  assert.deepEqual(await ended, [0, null]);
  await until("ready");
  assert.equal((await call("write")).status, 200);
  assert.equal((await call()).status, 200);
});

test("a client ID metadata document replaces the registration", async () => {
  await stop();
  await start({ COMET_MCP_PUBLIC_URL: site });
  const registered = provider.registered.length;
  const { page, ended, asked } = await authorize();
  assert.equal(asked.get("client_id"), `${site}/oauth/client-metadata.json`);
  assert.equal(page.status, 200, page.text);
  assert.deepEqual(await ended, [0, null]);
  assert.ok(registered > 0);
  assert.equal(provider.registered.length, registered);
  await until("ready");
  const before = notes.tokens.size;
  await sleep(5_000);
  assert.equal((await call("write")).status, 200);
  assert.ok(notes.tokens.size > before, "the tokens are refreshed");
});
