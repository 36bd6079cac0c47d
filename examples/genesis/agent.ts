// An agent of the Genesis protocol in TypeScript, without packages: Node's built-ins and WebCrypto. As a worker it registers its
// key, polls its inbox, and answers "count_words", with a partial response for each line. As a requester it sends a REQUEST and
// verifies what comet answers. Node 22.18 and newer run it as it is; older ones need a compiler that removes the types.
//
//   COMET_TOKEN=... node agent.ts worker ts-worker
//   COMET_TOKEN=... node agent.ts request ts-boss count_words '{"text": "one two"}'
//
// COMET_TOKEN needs the scope agents:write. It is used only to register the agent: afterwards its signature names it.
import { randomUUID, webcrypto } from 'node:crypto';

const server: string = process.env.COMET_SERVER ?? 'http://127.0.0.1:8080';
type Key = webcrypto.CryptoKey;
type Bytes = Uint8Array<ArrayBuffer>;
type Message = Record<string, any>;
const subtle = webcrypto.subtle;
const [mode, me, intent, text]: string[] = process.argv.slice(2);
if (!process.env.COMET_TOKEN || !(mode === 'worker' && me && !intent || mode === 'request' && intent)) {
  console.error('usage: COMET_TOKEN=... node agent.ts worker ID | request ID INTENT [PAYLOAD]');
  process.exit(1);
}

const base64 = (bytes: ArrayBuffer): string => Buffer.from(bytes).toString('base64');

// The text that the document signs: undefined members are left out.
const signedText = ({ id, type, from, to, intent, payload, timestamp }: Message): Bytes =>
  new TextEncoder().encode(JSON.stringify({ id, type, from, to, intent, payload, timestamp }));

// The text of the profile jcs (RFC 8785): all members except the signatures, their names sorted.
const canonical = (value: any): string => {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  return `{${Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(',')}}`;
};

// --- the lines that correct the document's code: subtle.sign and subtle.verify take a CryptoKey, not bytes ---
const importPrivate = (pkcs8: Bytes): Promise<Key> =>
  subtle.importKey('pkcs8', pkcs8, 'Ed25519', false, ['sign']);
const importPublic = (raw: Bytes): Promise<Key> =>
  subtle.importKey('raw', raw, 'Ed25519', false, ['verify']);
const generated = (await subtle.generateKey('Ed25519', true, ['sign', 'verify'])) as webcrypto.CryptoKeyPair;
const privateKey = await importPrivate(new Uint8Array(await subtle.exportKey('pkcs8', generated.privateKey)));
const publicKey = base64(await subtle.exportKey('raw', generated.publicKey));
const importComets = (x: string): Promise<Key> => importPublic(new Uint8Array(Buffer.from(x, 'base64url')));
// --- end ---

async function sign(message: Message): Promise<Message> {
  message.publicKey = publicKey;
  message.signature = base64(await subtle.sign('Ed25519', privateKey, signedText(message)));
  const { signature: _, ...whole } = message;
  message.signatureJcs = base64(await subtle.sign('Ed25519', privateKey, new TextEncoder().encode(canonical(whole))));
  return message;
}

let keys: Map<string, Key> | undefined;

// verify returns a message if comet has signed the whole of it.
async function verify(message: Message): Promise<Message> {
  if (!keys?.has(message.publicKey)) { // also after comet has rotated its key
    const set = await (await fetch(`${server}/.well-known/jwks.json`)).json() as { keys: { x: string }[] };
    keys = new Map();
    for (const { x } of set.keys) keys.set(Buffer.from(x, 'base64url').toString('base64'), await importComets(x));
  }
  const key = keys.get(message.publicKey);
  const { signature, signatureJcs, ...whole } = message;
  const [v1, jcs] = [signature, signatureJcs].map((text) => Buffer.from(text, 'base64'));
  if (!key || message.from !== 'nova' || message.to !== me ||
    !(await subtle.verify('Ed25519', key, v1, signedText(message))) ||
    !(await subtle.verify('Ed25519', key, jcs, new TextEncoder().encode(canonical(whole))))) {
    throw new Error(`comet has not signed ${JSON.stringify(message)}`);
  }
  return message;
}

const message = (type: string, to: string, members: Message): Message =>
  ({ id: randomUUID(), type, version: '1.0', from: me, to, timestamp: Date.now() * 1e6, ...members });
const request = (to: string, intent: string, payload: unknown): Message =>
  message('REQUEST', to, { intent, confidence: 1, entities: [], payload, context: {}, priority: 'NORMAL', options: { stream: true } });

async function post(body: Message, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(`${server}/api/genesis/messages`, { method: 'POST', headers: { 'Content-Type': 'application/json', ...headers }, body: JSON.stringify(body) });
}

// ask sends a REQUEST to comet and returns the data of its RESPONSE.
async function ask(intent: string, payload: unknown, headers: Record<string, string> = {}, signed = true): Promise<any> {
  const body = request('nova', intent, payload);
  if (!signed) body.from = `${me}-setup`; // not the id of an agent
  const answer = await (await post(signed ? await sign(body) : body, headers)).json() as Message;
  if (answer.status !== 'SUCCESS') throw new Error(`${intent}: ${JSON.stringify(answer)}`);
  if (signed) await verify(answer);
  return answer.data;
}

async function report(to: Message, members: Message): Promise<void> {
  const response = await post(await sign(message('RESPONSE', 'nova', { correlationId: to.correlationId, requestId: to.id, ...members })));
  if (!response.ok) throw new Error(await response.text());
}

// work answers a REQUEST.
async function work(task: Message): Promise<void> {
  if (task.intent !== 'count_words') return; // an order that needs no response, such as cancel_task
  const words = (line: string): number => line.split(/\s+/).filter(Boolean).length;
  if (typeof task.payload?.text !== 'string') {
    return report(task, { status: 'FAILURE', error: { code: 'NO_TEXT', message: 'payload.text must be a text', retryable: false } });
  }
  const lines = task.payload.text.split('\n');
  for (const line of lines) await report(task, { status: 'PARTIAL', data: { line, words: words(line) } });
  await report(task, { status: 'SUCCESS', data: { words: lines.reduce((sum: number, line: string) => sum + words(line), 0) }, usage: { tokens: 1 } });
}

async function worker(): Promise<never> {
  for (let token = '', expires = 0, first = true; ;) {
    if (Date.now() > expires - 60_000) {
      const session = await ask('authenticate', null);
      [token, expires] = [session.token, Date.parse(session.expiresAt)];
    }
    const response = await fetch(`${server}/api/agent/inbox?protocol=genesis&wait=${first ? 0 : 30}`, { headers: { Authorization: `Bearer ${token}` } });
    if (!response.ok) throw new Error(await response.text());
    if (first) console.log(`${me} is working`);
    first = false;
    for (const received of (await response.json() as { messages: Message[] }).messages) {
      const task = await verify(received);
      if (task.type === 'REQUEST') await work(task);
      await post(await sign(message('EVENT', 'nova', { // comet delivers it again until then
        eventType: 'message.ack', eventName: 'message acknowledged', payload: { originalMessageId: task.id },
        metadata: { schemaVersion: '1.0', contentType: 'application/json' }, deliveryGuarantee: 'at-most-once',
      })));
    }
  }
}

// requester prints every message that answers a REQUEST.
async function requester(): Promise<void> {
  const response = await post(await sign(request('broadcast', intent, JSON.parse(text ?? 'null'))), { Accept: 'text/event-stream' });
  if (!response.headers.get('Content-Type')?.startsWith('text/event-stream')) { // comet has refused it, or fulfilled it
    return console.log(JSON.stringify(await verify(await response.json() as Message)));
  }
  let rest = '';
  for await (const chunk of response.body!.pipeThrough(new TextDecoderStream() as any) as any) {
    const lines: string[] = (rest + chunk).split('\n');
    rest = lines.pop()!;
    for (const line of lines) {
      if (!line.startsWith('data: ')) continue;
      const { type, status, sequence, data, payload, error, errorCode } = await verify(JSON.parse(line.slice(6)));
      console.log(JSON.stringify({ type, status, sequence, data, error, errorCode, stage: payload?.stage }));
    }
  }
}

const capabilities = mode === 'worker' ? ['custom:count_words'] : [];
await ask('register_agent', { id: me, capabilities, publicKey, signatureOnly: true }, { Authorization: `Bearer ${process.env.COMET_TOKEN}` }, false);
await (mode === 'worker' ? worker() : requester());
