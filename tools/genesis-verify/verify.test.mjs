// Compares comet's codec of the Genesis protocol with JavaScript: the document's own code verifies what
// the codec signs, and the codec's texts are those of JSON.stringify. CODEC is the test program of
// internal/wire/genesis.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { verify as verifySignature, createPublicKey } from "node:crypto";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { canonicalize, isWellFormed } from "./jcs.mjs";
import { verifyMessage } from "./seed.mjs";
import { print } from "./vectors.mjs";

// codec runs the program and returns its lines.
async function codec(mode, input = "") {
  const child = spawn(process.env.CODEC, [], { env: { COMET_GENESIS: mode }, stdio: ["pipe", "pipe", "inherit"] });
  const chunks = [];
  child.stdout.on("data", (chunk) => chunks.push(chunk));
  const ended = new Promise((resolve) => child.on("close", resolve));
  child.stdin.end(input);
  assert.equal(await ended, 0);
  return Buffer.concat(chunks).toString().split("\n").slice(0, -1);
}

test("the stored vectors are those of the document's code", async () => {
  assert.equal(await readFile("../../internal/wire/genesis/testdata/vectors.json", "utf8"), await print());
});

test("the document's code verifies what comet signs", async () => {
  const lines = await codec("sign");
  assert.ok(lines.length > 30, `${lines.length} messages`);
  let jcs = 0;
  for (const line of lines) {
    const message = JSON.parse(line);
    assert.equal(JSON.stringify(message), line, "the text is that of JavaScript");
    const key = Buffer.from(message.publicKey, "base64");
    assert.ok(await verifyMessage(message, key), line);
    assert.ok(!(await verifyMessage({ ...message, from: "other" }, key)), line);
    if (message.signatureJcs === undefined) continue;
    jcs++;
    const { signature, signatureJcs, ...signed } = message;
    const spki = { key: { kty: "OKP", crv: "Ed25519", x: key.toString("base64url") }, format: "jwk" };
    const verified = (text) => verifySignature(null, Buffer.from(text), createPublicKey(spki), Buffer.from(signatureJcs, "base64"));
    assert.ok(verified(canonicalize(signed)), line);
    assert.ok(!verified(canonicalize({ ...signed, version: "2" })), line);
  }
  assert.equal(jcs * 2, lines.length);
});

// random returns an integer below n. The sequence is the same in each run (mulberry32).
let state = 20260119;
function random(n) {
  state = (state + 0x6d2b79f5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t ^= t + Math.imul(t ^ (t >>> 7), 61 | t);
  return ((t ^ (t >>> 14)) >>> 0) % n;
}
const oneOf = (array) => array[random(array.length)];

const characters = ["a", "b", "é", "😀", "\u2028", "\u007f", "\u0080", "\uffff", "\ufffd", "<", "&", "0", "1", "\ud83d", "\udc00", '"', "\\", "/", "\b", "\n", "\u0000", "\u001f"];
const units = (c) => [...Array(c.length)].map((_, i) => "\\u" + oneOf(["toLowerCase", "toUpperCase"].map((f) => c.charCodeAt(i).toString(16)[f]())).padStart(4, "0")).join("");

// randomString returns the text of a string, with random escapes.
function randomString() {
  let text = "";
  for (let i = random(6); i > 0; i--) {
    const c = oneOf(characters);
    const raw = isWellFormed(c) && c >= " " && c !== '"' && c !== "\\";
    if (raw && random(3) > 0) text += c;
    else text += c !== "/" && (!isWellFormed(c) || random(2) > 0) ? units(c) : JSON.stringify(c).slice(1, -1);
  }
  return `"${text}"`;
}

const names = ["a", "b", "0", "1", "2", "10", "01", "-1", "1.5", "4294967294", "4294967295", "4294967296", "99999999999", "__proto__", "length", "toJSON", "", "\\u0031"];
const randomName = () => (random(3) === 0 ? randomString() : `"${oneOf(names)}"`);

const bits = new DataView(new ArrayBuffer(8));
function randomNumber() {
  switch (random(6)) {
    case 0:
      return String(random(2) ? random(100) : -random(100));
    case 1: {
      bits.setUint32(0, random(2 ** 32));
      bits.setUint32(4, random(2 ** 32));
      const double = bits.getFloat64(0);
      return Number.isFinite(double) ? oneOf([String(double), double.toExponential(), double.toPrecision(17)]) : "0e9";
    }
    case 2: // integers around 2^53, and timestamps
      return String(oneOf([9007199254740991n, 1767225600123456789n, 18446744073709551615n]) + BigInt(random(1000)));
    case 3: // the bounds of the notations
      return oneOf(["1e21", "999999999999999900000", "1e20", "1e-6", "1e-7", "0.000001", "-0", "-0.0", "5e-324", "2.5e-324", "1e-400", "1.7976931348623157e308", "0.1E+2"]);
    case 4:
      return `${random(10)}.${random(1e6)}e${random(40) - 20}`;
    default:
      return random(50) === 0 ? "1e400" : `${1 + random(9)}${String(random(1e9)).repeat(1 + random(4))}`;
  }
}

const space = () => oneOf(["", "", "", " ", "\n", "\t \r"]);
const list = (open, items, close) => open + space() + items.join(space() + "," + space()) + space() + close;

// randomValue returns the text of a value.
function randomValue(depth) {
  switch (random(depth > 3 ? 4 : 7)) {
    case 0:
      return oneOf(["null", "true", "false"]);
    case 1:
      return randomString();
    case 2:
    case 3:
      return randomNumber();
    case 4:
      return list("[", [...Array(random(5))].map(() => randomValue(depth + 1)), "]");
    default:
      return list("{", [...Array(random(random(20) ? 6 : 40))].map(() => randomName() + space() + ":" + space() + randomValue(depth + 1)), "}");
  }
}

// repeatsName reports whether an object of the text repeats a name.
function repeatsName(text) {
  let count = 0;
  const colons = text.replace(/"(?:[^"\\]|\\.)*"/g, "").split(":").length - 1;
  const walk = (value) => {
    if (value === null || typeof value !== "object") return;
    if (!Array.isArray(value)) count += Object.keys(value).length;
    Object.values(value).forEach(walk);
  };
  walk(JSON.parse(text));
  return count !== colons;
}

function canonicalOrNone(text) {
  try {
    return repeatsName(text) ? "-" : `{"value":${canonicalize(JSON.parse(text))}}`;
  } catch {
    return "-";
  }
}

test("100,000 random values have the texts of JSON.stringify and RFC 8785", async () => {
  const different = new Set();
  while (different.size < 100_000) different.add(randomValue(0));
  const texts = [...different];
  const lines = await codec("forms", texts.map((text) => JSON.stringify(text) + "\n").join(""));
  assert.equal(lines.length, 2 * texts.length);
  let none = 0, repeated = 0;
  texts.forEach((text, i) => {
    assert.equal(lines[2 * i], JSON.stringify(JSON.parse(text)), text);
    assert.equal(lines[2 * i + 1], canonicalOrNone(text), text);
    if (lines[2 * i + 1] === "-") none++;
    if (repeatsName(text)) repeated++;
  });
  console.log(`${texts.length} values; ${none} without a canonical form, ${repeated} with repeated names`);
  assert.ok(none > 1000 && none < 50_000 && repeated > 500);
});
