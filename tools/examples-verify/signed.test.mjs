// examples/v5/signed.mjs does what somebody asks for, believes nobody without its key, and
// comes again by itself. COMET is the program to start.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHmac, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { createInterface } from "node:readline";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

const patience = 60_000; // how long to wait for what must happen
const token = randomBytes(16).toString("hex");
const example = fileURLToPath(new URL("../../examples/v5/signed.mjs", import.meta.url));

let comet, api, lines, data, key, number;
const workers = [];

before(async () => {
  data = await mkdtemp(join(tmpdir(), "comet-examples-"));
  lines = `127.0.0.1:${await freePort()}`;
  const flags = ["--listen", "127.0.0.1:0", "--v5-listen", lines, "--data", data, "--log-level", "warn"];
  comet = spawn(process.env.COMET, ["serve", ...flags], {
    env: { PATH: process.env.PATH, HOME: data, COMET_ADMIN_TOKEN: token },
    stdio: ["ignore", "pipe", "inherit"],
  });
  api = (await heard(comet, /comet listens on (http:\S+) /))[1];
  await call("POST", "/api/v1/agents", 201, {
    id: "reverser", name: "Reverser", level: 2, sphere_id: 8, frequency_hz: 555, capabilities: [], parent_id: "orch-my-team",
  });
  ({ key, worker: number } = await call("PUT", "/api/v1/agents/reverser/key", 201, { required: true }));
});

after(async () => {
  for (const worker of workers) worker.kill("SIGKILL");
  try {
    comet.kill("SIGTERM");
    if (comet.exitCode === null) await once(comet, "exit");
    assert.equal(comet.exitCode, 0);
  } finally {
    comet.kill("SIGKILL");
    await rm(data, { recursive: true, force: true });
  }
});

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

// heard resolves with what a program says first that matches.
function heard(program, wanted, stream = program.stdout) {
  return new Promise((resolve, reject) => {
    let said = "";
    const late = setTimeout(() => reject(new Error(`${wanted} was not said, but ${said}`)), patience);
    program.on("error", reject);
    program.on("exit", (code) => reject(new Error(`it ended with ${code} and said ${said}`)));
    stream.on("data", (text) => {
      const found = wanted.exec((said += text));
      if (!found) return;
      clearTimeout(late);
      resolve(found);
    });
  });
}

async function request(method, path, headers, body) {
  const response = await fetch(api + path, { method, headers: { Authorization: `Bearer ${token}`, ...headers }, body, signal: AbortSignal.timeout(patience) });
  return [response.status, await response.text()];
}

async function call(method, path, want, body) {
  const [status, text] = await request(method, path, { "Content-Type": "application/json" }, JSON.stringify(body));
  assert.equal(status, want, text);
  return JSON.parse(text);
}

// started is the example, with a key and a place to connect to.
function started(itsKey, place) {
  const worker = spawn(process.execPath, [example, number, place], { env: { PATH: process.env.PATH, COMET_KEY: itsKey }, stdio: ["ignore", "pipe", "pipe"] });
  worker.stderr.on("data", (text) => process.stderr.write(text));
  workers.push(worker);
  return worker;
}

async function reversed(text) {
  const [status, answer] = await request("POST", "/api/v5/messages", { "Content-Type": "text/plain", Prefer: "wait=30" }, `M1|User>O1|R|-|P1|N|-|0|-|-|call=reverse;text=${text}`);
  assert.equal(status, 200, answer);
  return answer.trim().split("|").at(-1);
}

test("it does what is asked for", async () => {
  await heard(started(key, lines), new RegExp(`working as ${number}\n`));
  assert.equal(await reversed("stressed"), "text=desserts");
  assert.equal(await reversed("abc déf"), "text=féd cba");
});

test("it comes again when its line ends", async () => {
  const [worker] = workers;
  const again = heard(worker, new RegExp(`working as ${number}\n`));
  const newer = started(key, lines); // the newer line replaces the older one, which comes back
  await again;
  newer.kill("SIGKILL");
  assert.equal(await reversed("again"), "text=niaga");
});

test("another key lets nobody in", async () => {
  const stranger = started("no such key, but long enough", lines);
  await heard(stranger, /not believed: .*\|E\|/, stranger.stderr);
  stranger.kill("SIGKILL");
});

test("it believes only what is signed with its key", async () => {
  const sign = (text, secret) => `${text};auth=${text.split("|")[8]}:${randomBytes(2).toString("hex")}:${createHmac("sha256", secret).update(text).digest("hex").slice(0, 8)}\n`;
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const worker = started(key, `127.0.0.1:${server.address().port}`);
  const [socket] = await once(server, "connection");
  const said = [];
  const order = (tid, text) => `M1|O1>${number}|R|${tid}|P1|N|-|0|S1|-|call=reverse;text=${text}`;
  const done = new Promise((resolve) => createInterface({ input: socket }).on("line", (line) => {
    said.push(line);
    if (line.includes("|S|")) resolve();
  }));
  socket.write(order("T1", "unsigned") + "\n" + sign(order("T2", "forged"), "another key") + sign(order("T3", "ours"), key));
  await done;
  worker.kill("SIGKILL");
  socket.destroy();
  server.close();
  assert.deepEqual(said.filter((line) => line.includes("|S|")).map((line) => line.split(";auth=")[0].split("|").slice(2, 4).concat(line.split(";auth=")[0].split("|").at(-1))), [["S", "T3", "text=sruo"]]);
});
