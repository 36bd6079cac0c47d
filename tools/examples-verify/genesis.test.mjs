// Runs the agents of examples/genesis against a real server: each as a worker of the other's requests, of comet's own client and of
// an unsigned one. COMET is the program to start, AGENT the compiled agent.ts.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { generateKeyPairSync, randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { started } from "../started.mjs";

const timeout = 60_000; // for what must happen
const token = randomBytes(16).toString("hex");
const examples = fileURLToPath(new URL("../../examples/genesis/", import.meta.url));
const ts = [process.execPath, process.env.AGENT], py = ["python3", join(examples, "agent.py")];
const programs = [];
let comet, api, data;

before(async () => {
  data = await mkdtemp(join(tmpdir(), "comet-genesis-"));
  comet = spawn(process.env.COMET, ["serve", "--listen", "127.0.0.1:0", "--data", join(data, "server"), "--log-level", "warn"], {
    env: { PATH: process.env.PATH, HOME: data, COMET_ADMIN_TOKEN: token }, stdio: ["ignore", "pipe", "inherit"],
  });
  api = await started(comet);
  await Promise.all([worker(ts, "ts-worker"), worker(py, "py-worker")]);
});

after(async () => {
  for (const program of programs) program.kill("SIGKILL");
  try {
    comet.kill("SIGTERM");
    if (comet.exitCode === null) await once(comet, "exit");
    assert.equal(comet.exitCode, 0);
  } finally {
    comet.kill("SIGKILL");
    await rm(data, { recursive: true, force: true });
  }
});

// start starts a program; ended resolves with its exit code and what it has printed to standard output and standard error.
function start(command, args) {
  const program = spawn(command, args, { env: { PATH: process.env.PATH, HOME: data, COMET_SERVER: api, COMET_TOKEN: token }, stdio: ["ignore", "pipe", "pipe"] });
  program.text = program.errors = "";
  program.stdout.on("data", (text) => { program.text += text; });
  program.stderr.on("data", (text) => { program.errors += text; });
  program.ended = once(program, "close").then(([code]) => [code, program.text, program.errors]);
  programs.push(program);
  return program;
}

async function worker([command, ...args], id) {
  const program = start(command, [...args, "worker", id]);
  const working = new Promise((resolve) => program.stdout.on("data", () => program.text.includes("is working") && resolve(true)));
  assert.equal(await Promise.race([working, program.ended]), true, `${id} did not start: ${program.text}${program.errors}`);
}

// ask runs an example as a requester and returns the messages that it has verified.
async function ask([command, ...args], id, intent, payload) {
  const program = start(command, [...args, "request", id, intent, JSON.stringify(payload)]);
  const late = setTimeout(() => program.kill("SIGKILL"), timeout);
  const [code, text, errors] = await program.ended;
  clearTimeout(late);
  assert.equal(code, 0, text + errors);
  return text.trim().split("\n").map((line) => JSON.parse(line));
}

const text = "one two\nthree é";
const answers = {
  count_words: [{ line: "one two", words: 2 }, { line: "three é", words: 2 }, { words: 4 }],
  reverse_lines: [{ line: "owt eno" }, { line: "é eerht" }, { text: "owt eno\né eerht" }],
};

test("every program has a test", async () => {
  assert.deepEqual((await readdir(examples)).sort(), ["README.md", "agent.py", "agent.ts"]);
});

for (const [language, program] of [["TypeScript", ts], ["Python", py]]) {
  for (const [intent, want] of Object.entries(answers)) {
    test(`a requester in ${language} gets ${intent} with partial responses`, async () => {
      const messages = await ask(program, `boss-${randomUUID().slice(0, 8)}`, intent, { text });
      const [responses, acks] = ["RESPONSE", "EVENT"].map((type) => messages.filter((message) => message.type === type));
      assert.equal(responses.length + acks.length, messages.length);
      assert.equal(messages[0].stage, "accepted");
      assert.deepEqual(acks.slice(1).filter(({ stage }) => stage !== "delivered"), []);
      assert.deepEqual(responses.map(({ status, sequence, data }) => [status, sequence ?? null, data]), [
        ["PARTIAL", 1, want[0]], ["PARTIAL", 2, want[1]], ["SUCCESS", null, want[2]],
      ]);
    });
    test(`a requester in ${language} gets the failure of ${intent}`, async () => {
      const end = (await ask(program, `boss-${randomUUID().slice(0, 8)}`, intent, { words: 1 })).at(-1);
      assert.deepEqual([end.status, end.error.code], ["FAILURE", "NO_TEXT"]);
    });
  }
  test(`a program in ${language} shows its usage`, async () => {
    for (const args of [[], ["worker"], ["request", "boss"], ["worker", "w", "extra"], ["fly", "boss", "fly"]]) {
      const [code, , errors] = await start(program[0], [...program.slice(1), ...args]).ended;
      assert.deepEqual([code, /COMET_TOKEN=/.test(errors), /Traceback|Error:/.test(errors)], [1, true, false], errors);
    }
  });
  test(`a requester in ${language} reads a refusal`, async () => {
    const [refusal] = await ask(program, `boss-${randomUUID().slice(0, 8)}`, "fly", {});
    assert.deepEqual([refusal.type, refusal.errorCode, refusal.from], ["ERROR", "UNSUPPORTED_INTENT", "nova"]);
  });
}

for (const [intent, want] of Object.entries(answers)) {
  test(`comet send signs ${intent} and verifies the responses`, async () => {
    const [id, key] = [`cli-${intent.slice(0, 5)}`, join(data, `${intent}.pem`)];
    const { privateKey, publicKey } = generateKeyPairSync("ed25519", { privateKeyEncoding: { type: "pkcs8", format: "pem" }, publicKeyEncoding: { type: "spki", format: "pem" } });
    await writeFile(key, privateKey);
    const send = (...args) => start(process.env.COMET, ["send", "--protocol", "genesis", ...args]).ended;
    assert.equal((await send("register_agent", `id=${id}`, `publicKey=${publicKey}`, "signatureOnly:=true"))[0], 0);
    const [code, out] = await send("--from", id, "--key", key, intent, `text=${text}`);
    assert.equal(code, 0, out);
    assert.deepEqual(JSON.parse(`[${out.trim().replaceAll("}\n{", "},{")}]`), want);
  });
  test(`comet send, unsigned, gets ${intent}`, async () => {
    const [code, out] = await start(process.env.COMET, ["send", "--protocol", "genesis", intent, `text=${text}`]).ended;
    assert.equal(code, 0, out);
    assert.deepEqual(JSON.parse(`[${out.trim().replaceAll("}\n{", "},{")}]`), want);
  });
}
