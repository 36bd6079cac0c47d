// The other end of a run, in Deno: it talks with the parent in frames over stdin and stdout
// (frames.go), and runs the code in a realm of the code's own. There the code finds nothing
// but the language and what the prelude puts there; what it changes is not what this module or
// Deno go by. It cannot import anything, for nobody there loads modules, and cannot make code
// of strings. Should it get hold of something of this realm all the same, that leads nowhere:
// Deno and its like are taken away here, and what is used later was taken hold of before.
import vm from 'node:vm';

const { stdin, stdout, exit } = Deno;
const { setTimeout, clearTimeout, Promise, Uint8Array, JSON: { stringify, parse } } = globalThis;
const { apply, defineProperty, getOwnPropertyDescriptor: describe } = Reflect;
const { hasOwn, getPrototypeOf } = Object;
const { lastIndexOf, slice, charCodeAt } = String.prototype;
const { min, floor } = Math;
const text = String;
const Script = vm.Script;
const runScript = Script.prototype.runInContext;
const encoder = new TextEncoder(), decoder = new TextDecoder();
const sizeOf = describe(getPrototypeOf(Uint8Array.prototype), 'length').get;
const bufferOf = describe(getPrototypeOf(Uint8Array.prototype), 'buffer').get;
const copy = Uint8Array.prototype.set;
const size = (bytes) => apply(sizeOf, bytes, []);
const part = (bytes, from) => new Uint8Array(apply(bufferOf, bytes, []), from, size(bytes) - from);

// own makes a promise one that can be awaited without asking what the code may have changed.
function own(promise) {
  defineProperty(promise, 'constructor', { __proto__: null, value: Promise });
  return promise;
}

// A promise that nobody awaits may fail, as in QuickJS.
addEventListener('unhandledrejection', (e) => e.preventDefault());

// Deno listens to signals a little later anyway, and could not open anything for it then.
Deno.addSignalListener('SIGUSR2', () => {});

// --- frames -------------------------------------------------------------------------------

const header = 5;
const outstanding = 16, maxMessage = 8 << 10, maxPath = 4 << 10, maxLogs = 1000, deepest = 5000;

// send writes a frame in one piece: code whose stack ends in the middle of it must not leave half of one.
function send(kind, json) {
  const body = encoder.encode(json), length = size(body);
  const frame = new Uint8Array(header + length);
  frame[0] = length >>> 24; frame[1] = length >>> 16; frame[2] = length >>> 8; frame[3] = length; frame[4] = apply(charCodeAt, kind, [0]);
  apply(copy, frame, [body, header]);
  for (let at = 0, all = header + length; at < all;) at += stdout.writeSync(part(frame, at));
}

// fill reads until the bytes are full. The end of the input is that of this process.
async function fill(bytes) {
  for (let at = 0, all = size(bytes); at < all;) {
    const got = await own(stdin.read(part(bytes, at)));
    if (got === null) exit(0);
    at += got;
  }
}

async function listen() {
  for (;;) {
    const head = new Uint8Array(header);
    await own(fill(head));
    const body = new Uint8Array(head[0] * 2 ** 24 + head[1] * 2 ** 16 + head[2] * 2 ** 8 + head[3]);
    await own(fill(body));
    const json = decoder.decode(body);
    if (head[4] === 0x52) begin(json); // R
    else answer(json); // A
  }
}

// --- texts, by their bytes in UTF-8 --------------------------------------------------------

const within = (s, limit) => s.length * 3 <= limit || s.length <= limit && size(encoder.encode(s)) <= limit;

function clip(s, limit) {
  if (within(s, limit)) return s;
  const { read } = encoder.encodeInto(s, new Uint8Array(limit));
  return apply(slice, s, [0, read]) + '…';
}

// tooDeep reports JSON that the parent would not read.
function tooDeep(json) {
  if (json.length < 2 * deepest) return false;
  let depth = 0, quoted = false;
  for (let i = 0; i < json.length; i++) {
    switch (apply(charCodeAt, json, [i])) {
      case 0x22: quoted = !quoted; break;
      case 0x5C: i++; break;
      case 0x5B: case 0x7B: if (!quoted && ++depth > deepest) return true; break;
      case 0x5D: case 0x7D: if (!quoted) depth--;
    }
  }
  return false;
}

// --- what the prelude is given --------------------------------------------------------------

let order, over = false;
let asked = 0, awaited = 0, first = null, last = null; // questions that wait for others
let logs = 0, logged = 0, cut = false;
let timers = 0, looking = false;
const handles = { __proto__: null };

function end(kind, json) {
  if (over) return;
  over = true;
  send(kind, json);
}

function fail(name, message, stack = '') {
  end('E', '{"name":' + stringify(name) + ',"message":' + stringify(clip(message, maxMessage - 8)) + ',"stack":' + stringify(clip(stack, 4 * maxMessage)) + '}');
}

function done(json) {
  if (!within(json, order.result)) fail('SANDBOX_RESULT_TOO_LARGE', 'the result is larger as JSON than the ' + order.result + ' bytes that are allowed');
  else if (tooDeep(json)) fail('SANDBOX_ERROR', 'the result is nested too deeply');
  else end('D', '{"value":' + json + '}');
}

// V8 says of what is too large that it is no valid length.
const memory = {
  __proto__: null, 'Array buffer allocation failed': true, 'Invalid string length': true,
};

function failed(name, message, stack) {
  if (name === 'RangeError' && memory[message]) fail('SANDBOX_MEMORY', 'the code needs more memory than it was given', stack);
  else if (name === 'SANDBOX_PATH_DENIED') fail(name, message, stack);
  else if (name === '' && message === '') fail('SANDBOX_ERROR', 'it threw null', stack);
  else fail('SANDBOX_ERROR', (name === '' ? '' : clip(name, 200) + ': ') + message, stack);
}

function log(level, message) {
  if (cut || over) return;
  message = clip(message, maxMessage - 8);
  const bytes = size(encoder.encode(message));
  if (++logs > maxLogs || logged + bytes > order.logs) {
    cut = true;
    level = 'warn';
    message = '[further output is left out]';
  }
  logged += bytes;
  send('L', '{"level":"' + level + '","message":' + stringify(message) + '}');
}

function call(server, tool, args) {
  if (typeof args !== 'string' || !within(args, order.result) || tooDeep(args)) return -1;
  return ask('C', ',"server":' + stringify(server) + ',"tool":' + stringify(tool) + ',"args":' + args + '}');
}

const read = (path) => ask('F', ',"path":' + stringify(clip(path, maxPath)) + '}');

function ask(kind, rest) {
  if (++asked > order.calls) fail('SANDBOX_TOOL_CALLS', '');
  if (over) return asked;
  const question = { __proto__: null, kind, json: '{"id":' + asked + rest, next: null };
  if (first === null) first = question;
  else last.next = question;
  last = question;
  pass();
  return asked;
}

// pass sends questions, as many as may be under way.
function pass() {
  for (; first !== null && awaited < outstanding; first = first.next) {
    awaited++;
    send(first.kind, first.json);
  }
}

function timer(id, ms) {
  if (handles[id] === undefined) timers++;
  handles[id] = setTimeout(() => {
    timers--;
    delete handles[id];
    guarded(prelude.fire, id);
  }, ms > 1 ? min(floor(ms), 86_400_000) : 1);
}

function clear(id) {
  if (handles[id] === undefined) return;
  clearTimeout(handles[id]);
  delete handles[id];
  timers--;
}

// guarded calls a function of the prelude's, and looks later whether anything is still to come.
function guarded(f, ...args) {
  try { return apply(f, undefined, args); } catch (e) { prelude.fail(e); } finally { look(); }
}

function look() {
  if (looking || over) return;
  looking = true;
  setTimeout(() => { // after every promise that was ready
    looking = false;
    if (awaited === 0 && timers === 0) fail('SANDBOX_ERROR', 'the code waits for something that will never happen');
  }, 0);
}

// --- a run ---------------------------------------------------------------------------------

function begin(json) {
  const o = parse(json);
  order = { __proto__: null, result: o.max_result, logs: o.max_logs, calls: o.max_calls };
  const context = stringify(o.context), servers = stringify(o.servers);
  if (guarded(prelude.start, o.compiled.code, context, servers) === false) fail('SANDBOX_SYNTAX', 'a bracket closes what the code did not open');
}

// answer hands on the value as it stands, because the code may change how JSON is made.
function answer(json) {
  const a = parse(json), good = !hasOwn(a, 'name');
  const value = good ? apply(slice, json, [('{"id":' + a.id + ',"value":').length, apply(lastIndexOf, json, ['}'])]) : a.error;
  awaited--;
  pass();
  guarded(prelude.settle, a.id, good, value, good ? '' : a.name);
}

// evaluate runs a script. What cannot be read ends the run; the engine does not say where.
function evaluate(js) {
  let script;
  try { script = new Script(js, { __proto__: null, filename: '<input>' }); } catch (e) {
    fail('SANDBOX_SYNTAX', text(describe(e, 'message').value));
    return [0, () => new Promise(() => {})]; // the run is over
  }
  return apply(runScript, script, [realm]);
}

// --- the code's realm -------------------------------------------------------------------------

// The context has a global object of its own, not one that looks into an object of this realm.
if (typeof vm.constants?.DONT_CONTEXTIFY !== 'symbol') throw new Error('this Deno has no realms of their own');
const realm = vm.createContext(vm.constants.DONT_CONTEXTIFY, { codeGeneration: { strings: false, wasm: false } });
const given = {
  __proto__: null,
  __done: done, __failed: failed, __relax() {}, __log: log, __call: call, __read: read, __timer: timer, __clear: clear,
};
const languages = realm.eval;
// What this realm throws where the stack ends would lead into it: the code is given another error.
const guard = new Script(`(({ apply }, RangeError) => (f) => (...args) => {
  try { return apply(f, undefined, args); } catch { throw new RangeError('Maximum call stack size exceeded'); }
})(Reflect, RangeError)`).runInContext(realm);
for (const name in given) realm[name] = guard(given[name]);
realm.eval = evaluate; // what the prelude takes for the code
const prelude = new Script(PRELUDE, { filename: 'prelude.js' }).runInContext(realm);
realm.eval = languages;

// Deno would hand objects of this realm to a function of the code's that has this name.
new Script(`Object.defineProperty(Error, 'prepareStackTrace', { value: undefined, writable: false, configurable: false });
Object.defineProperty(globalThis, 'Error', { value: Error, writable: false, configurable: false });`).runInContext(realm);

// What QuickJS does not have either is not there.
for (const name of ['Intl', 'Temporal', 'WebAssembly']) delete realm[name];
for (const name of ['Deno', 'process', 'Buffer', 'Worker', 'WebAssembly', 'fetch', 'WebSocket']) delete globalThis[name];

send('B', '{}');
listen();
