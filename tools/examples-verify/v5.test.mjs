// Runs every program of examples/v5 as a worker of a real server. COMET is the program to start.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHmac, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { createInterface } from "node:readline";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

const timeout = 60_000; // for what must happen
const token = randomBytes(16).toString("hex");
const examples = fileURLToPath(new URL("../../examples/v5/", import.meta.url));

let comet, api, address, data, key, reverser;
const workers = [];

before(async () => {
  data = await mkdtemp(join(tmpdir(), "comet-examples-"));
  address = `127.0.0.1:${await freePort()}`;
  const flags = ["--listen", "127.0.0.1:0", "--v5-listen", address, "--v5-self-registration", "--data", data, "--log-level", "warn"];
  comet = spawn(process.env.COMET, ["serve", ...flags], {
    env: { PATH: process.env.PATH, HOME: data, COMET_ADMIN_TOKEN: token },
    stdio: ["ignore", "pipe", "inherit"],
  });
  api = (await output(comet, /comet listens on (http:\S+) /))[1];
  await call("POST", "/api/v1/agents", 201, {
    id: "reverser", name: "Reverser", level: 2, sphere_id: 8, frequency_hz: 555, capabilities: [], parent_id: "orch-my-team",
  });
  ({ key, v5_id: reverser } = await call("PUT", "/api/v1/agents/reverser/key", 201, { required: true }));
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

// output resolves with the first match in what a program prints.
function output(program, wanted, stream = program.stdout) {
  return new Promise((resolve, reject) => {
    let text = "";
    const late = setTimeout(() => reject(new Error(`no ${wanted} in the output: ${text}`)), timeout);
    program.on("error", reject);
    program.on("exit", (code) => reject(new Error(`it ended with ${code} and printed ${text}`)));
    stream.on("data", (more) => {
      const found = wanted.exec((text += more));
      if (!found) return;
      clearTimeout(late);
      resolve(found);
    });
  });
}

async function request(method, path, headers, body) {
  const response = await fetch(api + path, { method, headers: { Authorization: `Bearer ${token}`, ...headers }, body, signal: AbortSignal.timeout(timeout) });
  return [response.status, await response.text()];
}

async function call(method, path, want, body) {
  const [status, text] = await request(method, path, { "Content-Type": "application/json" }, body && JSON.stringify(body));
  assert.equal(status, want, text);
  return JSON.parse(text);
}

// start starts an example as a worker.
function start(command, args, env = {}) {
  const worker = spawn(command, args, { cwd: examples, env: { PATH: process.env.PATH, ...env }, stdio: ["ignore", "pipe", "pipe"] });
  worker.stderr.on("data", (text) => process.stderr.write(text));
  workers.push(worker);
  return worker;
}

const startSigned = (itsKey = key, itsAddress = address) => start(process.execPath, ["signed.mjs", reverser, itsAddress], { COMET_KEY: itsKey });

// send sends a V5 message as User and returns the last reply, segment by segment.
async function send(message) {
  const [status, text] = await request("POST", "/api/v5/messages", { "Content-Type": "text/plain", Prefer: "wait=30" }, message);
  assert.equal(status, 200, text);
  return text.trim().split("\n").at(-1).split("|");
}

const result = async (data) => (await send(`M1|User>O1|R|-|P1|N|-|0|-|-|${data}`)).at(-1);

test("every program has a test", async () => {
  const programs = (await readdir(examples)).filter((name) => name !== "README.md");
  assert.deepEqual(programs.sort(), ["signed.mjs", "worker.mjs", "worker.py", "worker.sh"]);
});

test("worker.sh shouts", async () => {
  start("bash", ["worker.sh", ...address.split(":")]);
  // It prints nothing: it is there when the server lists it.
  for (const deadline = Date.now() + timeout; ; ) {
    const { workers: online } = await call("GET", "/api/v1/workers", 200);
    if (online.some((worker) => worker.agent_id === "v5-shouter")) break;
    assert.ok(Date.now() < deadline, "worker.sh did not join");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.equal(await result("call=shout;text=hello"), "HELLO");
});

test("worker.py counts words", async () => {
  await output(start("python3", ["worker.py", address]), /working as W\d+\n/);
  assert.equal(await result('call=count_words;text=one two three'), "words=3;characters=13;tokens=1");
});

test("worker.py reads parameters that do not fit into a message", async () => {
  const text = "word ".repeat(100);
  const [status, task] = await request("POST", "/api/v1/tasks", { "Content-Type": "application/json", Prefer: "wait=30" }, JSON.stringify({ capabilities: ["count_words"], parameters: { text } }));
  assert.equal(status, 200, task);
  const [, found] = await request("GET", `/api/v1/tasks/${JSON.parse(task).id}/output`, {});
  assert.equal(found, "words=100;characters=500;tokens=1");
});

test("worker.mjs greets, and asks for the language", async () => {
  await output(start(process.execPath, ["worker.mjs", address]), /working as W\d+\n/);
  assert.equal(await result("call=greet;name=Ada;lang=fr"), "greeting=Bonjour Ada");
  const question = await send("M2|User>O1|R|-|P1|N|-|0|-|-|call=greet;name=Ada");
  assert.deepEqual([question[2], question.at(-1)], ["D", "question=In which language?;opt1=en;opt2=fr;opt3=de"]);
  const answered = await send(`M3|User>O1|C|${question[3]}|P1|R|-|0|${question[8]}|-|choice=opt3`);
  assert.equal(answered.at(-1), "greeting=Guten Tag Ada");
});

test("signed.mjs reverses", async () => {
  await output(startSigned(), new RegExp(`working as ${reverser}\n`));
  assert.equal(await result("call=reverse;text=stressed"), "text=desserts");
  assert.equal(await result("call=reverse;text=abc déf"), "text=féd cba");
});

test("signed.mjs reconnects", async () => {
  const reconnected = output(workers.at(-1), new RegExp(`working as ${reverser}\n`));
  const newer = startSigned(); // the newer connection replaces the older one, which comes back
  await reconnected;
  newer.kill("SIGKILL");
  assert.equal(await result("call=reverse;text=again"), "text=niaga");
});

test("signed.mjs is rejected with another key", async () => {
  const intruder = startSigned("no such key, but long enough");
  await output(intruder, /ignored without a valid signature: .*\|E\|/, intruder.stderr);
  intruder.kill("SIGKILL");
});

test("signed.mjs ignores messages without a valid signature", async () => {
  const sign = (text, secret) => `${text};auth=${text.split("|")[8]}:${randomBytes(2).toString("hex")}:${createHmac("sha256", secret).update(text).digest("hex").slice(0, 8)}\n`;
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const worker = startSigned(key, `127.0.0.1:${server.address().port}`);
  const [socket] = await once(server, "connection");
  const results = [];
  const assignment = (tid, text) => `M1|O1>${reverser}|R|${tid}|P1|N|-|0|S1|-|call=reverse;text=${text}`;
  const done = new Promise((resolve) => createInterface({ input: socket }).on("line", (line) => {
    const segments = line.split(";auth=")[0].split("|");
    if (segments[2] === "S") resolve(results.push([segments[3], segments.at(-1)]));
  }));
  socket.write(assignment("T1", "unsigned") + "\n" + sign(assignment("T2", "forged"), "another key") + sign(assignment("T3", "ours"), key));
  await done;
  worker.kill("SIGKILL");
  socket.destroy();
  server.close();
  assert.deepEqual(results, [["T3", "text=sruo"]]);
});
