// Makes internal/wire/genesis/testdata/vectors.json: messages that the document's own code signs. Some
// of them are then printed as the libraries of other senders print them.
//
//   node vectors.mjs >../../internal/wire/genesis/testdata/vectors.json
import { createHash, createPrivateKey, createPublicKey, sign } from "node:crypto";
import { pathToFileURL } from "node:url";
import { canonicalize } from "./jcs.mjs";
import { signMessage } from "./seed.mjs";

// keyOf returns a key pair that depends on nothing but the name.
function keyOf(name) {
  const seed = createHash("sha256").update(name).digest();
  const pkcs8 = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), seed]);
  const privateKey = createPrivateKey({ key: pkcs8, format: "der", type: "pkcs8" });
  const spki = createPublicKey(privateKey).export({ format: "der", type: "spki" });
  return { pkcs8, privateKey, spki, raw: spki.subarray(-32), pem: createPublicKey(privateKey).export({ format: "pem", type: "spki" }) };
}

const key = keyOf("genesis");
const ends = { timestamp: 1767225600123000000, publicKey: key.raw.toString("base64") };
const request = (payload, more) => ({
  id: "8f14e45f-ceea-467f-a1d0-7c1b2f0e9a11", type: "REQUEST", version: "1.0", from: "data-analyst", to: "nova", intent: "analyze_data",
  confidence: 0.98, entities: [], payload, context: {}, priority: 2, options: {}, ...ends, ...more,
});
const response = {
  id: "8f14e45f-ceea-467f-a1d0-7c1b2f0e9a12", type: "RESPONSE", version: "1.0", correlationId: "c", requestId: request().id, from: "nova",
  to: "data-analyst", status: "SUCCESS", data: { rows: 3 }, ...ends,
};
const event = {
  id: "8f14e45f-ceea-467f-a1d0-7c1b2f0e9a13", type: "EVENT", version: "1.0", from: "nova", eventType: "a.b", eventName: "A", payload: [1],
  metadata: { schemaVersion: "1", contentType: "application/json" }, deliveryGuarantee: "at-most-once", ...ends,
};
const error = {
  id: "8f14e45f-ceea-467f-a1d0-7c1b2f0e9a14", type: "ERROR", version: "1.0", from: "nova", to: "data-analyst", errorType: "TIMEOUT",
  errorCode: "TIMEOUT", message: "late", ...ends,
};
const hard = {
  b: 1, 10: 2, 9: 3, "01": 4, 4294967294: 5, 4294967295: 6, text: 'é\u2028😀/\b\u001f\u007f"\\<>&', half: "\ud83d!", ["__proto__"]: 1,
  numbers: [1e21, 1e-7, -0, 0.1, 123456789.125, 5e-324, 1.7976931348623157e308, 2 ** 53],
};

// These functions print the same values as other senders do: with ASCII only, with spaces, with <, > and & escaped.
const ascii = (text) => text.replace(/[\u007f-\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
const spaced = (text) => JSON.stringify(JSON.parse(text), null, 1);
const html = (text) => text.replace(/[<>&\u2028]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0").toUpperCase());

export async function vectors() {
  const all = [];
  // javascript adds a message that the document's code signs; respell changes its text only.
  const javascript = async (name, message, respell = (text) => text) => {
    const signature = await signMessage(message, key.pkcs8);
    all.push({ name, forms: ["as JavaScript prints it"], message: respell(JSON.stringify({ ...message, signature })) });
  };
  for (const [name, message] of Object.entries({ request: request({ a: [1, "é"] }), "request of null": request(null), response, event, error })) {
    await javascript(name, message);
  }
  await javascript("hard values", request(hard));
  await javascript("hard values in ASCII", request(hard), ascii);
  await javascript("hard values with spaces", request(hard), spaced);
  await javascript("hard values for HTML", request(hard), html);
  await javascript("a timestamp beyond 2^53", request(1, { timestamp: 1767225600123456800 }));
  await javascript("a timestamp with all digits", request(1, { timestamp: Number(1767225600123456789n) }),
    (text) => text.replace(/"timestamp":\d+/, '"timestamp":1767225600123456789'));
  await javascript("repeated names", request({ a: 2, b: 1 }), (text) => text.replace('{"a":2,', '{"a":1,"\\u0061":2,'));
  for (const [name, text] of Object.entries({
    base64url: key.raw.toString("base64url"), hex: key.raw.toString("hex"), "SPKI in base64": key.spki.toString("base64"), "SPKI in PEM": key.pem,
  })) {
    await javascript("key in " + name, request(1, { publicKey: text }));
  }
  // asSent adds a message whose sender signs a spelling that JavaScript does not print.
  const asSent = (name, payload) => {
    const text = `{"id":"${request().id}","type":"REQUEST","from":"data-analyst","to":"nova","intent":"analyze_data","payload":${payload},"timestamp":1767225600123456789}`;
    const signature = sign(null, Buffer.from(text), key.privateKey).toString("base64");
    const message = JSON.stringify({ ...request(0), signature }).replace('"payload":0', `"payload":${payload}`);
    all.push({ name, forms: ["as sent"], message: message.replace(/"timestamp":\d+/, '"timestamp":1767225600123456789') });
  };
  asSent("integers beyond 2^53", '{"n":9007199254740993,"10":1,"2":2}');
  asSent("doubles as Python prints them", '[1.0,1e-05,1e+16,-0.0]');
  asSent("escapes as Python prints them", '"\\u00e9\\ud83d\\ude00\\u007f"');
  // jcs adds the signature of the profile jcs.
  for (const [name, message] of Object.entries({ request: request({ ...hard, half: "" }), response, event, error, "more members": { ...response, z: [{ y: 1 }] } })) {
    const signature = await signMessage(message, key.pkcs8);
    const signatureJcs = sign(null, Buffer.from(canonicalize(message)), key.privateKey).toString("base64");
    all.push({ name: "jcs: " + name, forms: ["as JavaScript prints it", "JCS"], message: JSON.stringify({ ...message, signature, signatureJcs }) });
  }
  return { publicKey: key.raw.toString("base64"), vectors: all };
}

export const print = async () => JSON.stringify(await vectors(), null, 2) + "\n";

if (import.meta.url === pathToFileURL(process.argv[1]).href) process.stdout.write(await print());
