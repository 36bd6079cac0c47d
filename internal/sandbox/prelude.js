// The environment of code in the sandbox, and the function that starts it. The prelude runs before
// the code and keeps references to everything it uses later, because the code can change what it
// reaches. For the same reason it uses no iterators, no methods that can be replaced and no objects
// with prototypes.
(() => {
'use strict';
const host = {
  __proto__: null,
  done: __done, failed: __failed, relax: __relax, log: __log,
  call: __call, read: __read, timer: __timer, clear: __clear, random: __random, now: __now,
};
for (const name in host) delete globalThis['__' + name];

const global = globalThis;
const { stringify, parse } = JSON;
const { apply, ownKeys, has, getOwnPropertyDescriptor: describe, defineProperty } = Reflect;
const { freeze } = Object;
const { isArray } = Array;
const { ArrayBuffer, Promise, Proxy, Error, TypeError, RangeError, String } = global;
const evaluate = eval; // under another name it does not see this scope
const dateText = Date.prototype.toISOString, patternText = RegExp.prototype.toString;
const mapEach = Map.prototype.forEach, setEach = Set.prototype.forEach;
const matches = RegExp.prototype.exec, identifier = /^[A-Za-z_$][A-Za-z0-9_$]*$/;

const hide = (target, name, value) =>
  defineProperty(target, name, { __proto__: null, value, writable: true, configurable: true, enumerable: false });
const offer = (name, value) => {
  if (apply(matches, identifier, [name]) !== null && !has(global, name)) hide(global, name, value);
};
const failure = (name, message) => {
  const error = new Error(message);
  hide(error, 'name', name);
  return error;
};

// --- logging: values formatted for debugging, without calling getters ---------------------

const deepest = 4, longest = 100, most = 5000;
let left = most; // values that may still be formatted in this message

function listed(open, close, count, part) {
  let out = '';
  for (let i = 0; i < count && i < longest; i++) out += (i ? ', ' : ' ') + part(i);
  if (count > longest) out += ', … ' + (count - longest) + ' more';
  return out === '' ? open + close : open + out + ' ' + close;
}

function member(object, key, depth, seen) {
  const d = describe(object, key);
  if (d === undefined) return 'undefined';
  return has(d, 'value') ? inspect(d.value, depth + 1, seen) : '[Getter]';
}

function entries(name, each, v, depth, seen) {
  let out = '', n = 0;
  apply(each, v, [(value, key) => {
    if (n++ >= longest) return;
    out += (n > 1 ? ', ' : ' ') + (each === mapEach ? inspect(key, depth + 1, seen) + ' => ' : '') + inspect(value, depth + 1, seen);
  }]);
  if (n > longest) out += ', … ' + (n - longest) + ' more';
  return name + '(' + n + ') {' + out + (n ? ' }' : '}');
}

function attempt(f, v) {
  try { return apply(f, v, []); } catch { return undefined; }
}

function inspectObject(v, depth, seen) {
  if (isArray(v)) return listed('[', ']', v.length, (i) => member(v, i, depth, seen));
  if (v instanceof Error) return String(v.name) + ': ' + String(v.message);
  const text = attempt(dateText, v);
  if (text !== undefined) return text;
  if (v instanceof RegExp) return apply(patternText, v, []);
  if (v instanceof Map) return entries('Map', mapEach, v, depth, seen);
  if (v instanceof Set) return entries('Set', setEach, v, depth, seen);
  if (v instanceof Promise) return '[Promise]';
  const keys = ownKeys(v);
  return listed('{', '}', keys.length, (i) => {
    const key = keys[i];
    const shown = typeof key === 'symbol' ? '[' + String(key) + ']' : apply(matches, identifier, [key]) !== null ? key : stringify(key);
    return shown + ': ' + member(v, key, depth, seen);
  });
}

function inspect(v, depth, seen) {
  if (left-- <= 0) return '…';
  switch (typeof v) {
    case 'string': return depth === 0 ? v : stringify(v);
    case 'bigint': return String(v) + 'n';
    case 'function': return '[Function]';
    case 'object': break;
    default: return String(v);
  }
  if (v === null) return 'null';
  for (let s = seen; s !== null; s = s.next) if (s.value === v) return '[Circular]';
  if (depth >= deepest) return isArray(v) ? '[Array]' : '[Object]';
  return inspectObject(v, depth, { __proto__: null, value: v, next: seen });
}

function shown(v) {
  left = most;
  try { return inspect(v, 0, null); } catch { return '[a value that cannot be shown]'; }
}

const printer = (level) => (...args) => {
  let text = '';
  for (let i = 0; i < args.length && i < longest; i++) text += (i ? ' ' : '') + shown(args[i]);
  host.log(level, text);
};
hide(global, 'console', {
  log: printer('log'), info: printer('info'), warn: printer('warn'), error: printer('error'), debug: printer('debug'),
});

// --- calls of the host ----------------------------------------------------------------------

const pending = { __proto__: null };

// responseOf returns a promise of the response to a call.
const responseOf = (id) => {
  if (id < 0) throw new RangeError('the arguments are too large');
  return new Promise((resolve, reject) => { pending[id] = { __proto__: null, resolve, reject }; });
};

function settle(id, ok, text, name) {
  const promise = pending[id];
  delete pending[id];
  if (!ok) return promise.reject(failure(name, text));
  let value;
  try { value = parse(text); } catch (e) { return promise.reject(e); }
  promise.resolve(value);
}

const caller = (server, tool) => (args = {}) => {
  if (typeof args !== 'object' || args === null) throw new TypeError('a tool takes an object of arguments');
  return responseOf(host.call(server, tool, stringify(args)));
};

// strict returns an object that throws for unknown members.
const strict = (target, missing) => new Proxy(freeze(target), {
  __proto__: null,
  get(_, key) {
    if (typeof key === 'symbol' || key === 'then' || key === 'toJSON' || has(target, key)) return target[key];
    throw new TypeError(missing(key));
  },
});

function install(servers) {
  const mcp = { __proto__: null };
  for (let i = 0; i < servers.length; i++) {
    const tools = { __proto__: null };
    for (const name in servers[i].tools) tools[name] = caller(servers[i].id, servers[i].tools[name]);
    const server = strict(tools, (name) => 'server ' + stringify(servers[i].id) + ' has no tool ' + stringify(name) + ' here');
    for (let n = 0; n < servers[i].names.length; n++) mcp[servers[i].names[n]] = server;
  }
  offer('mcp', strict(mcp, (name) => 'there is no server ' + stringify(name) + ' here'));
  for (const name in mcp) offer(name, mcp[name]);
}

const readTextFile = (path) => responseOf(host.read(String(path)));
hide(global, 'readTextFile', readTextFile);
hide(global, 'Deno', freeze({ __proto__: null, readTextFile }));

// --- timers -------------------------------------------------------------------------------

const timers = { __proto__: null };
let lastTimer = 0, running = 0;
const maxTimers = 10000;

const setting = (again) => (callback, ms, ...args) => {
  if (typeof callback !== 'function') throw new TypeError('a timer calls a function');
  if (running >= maxTimers) throw new RangeError('too many timers');
  running++;
  timers[++lastTimer] = { __proto__: null, callback, args, ms: +ms, again };
  host.timer(lastTimer, timers[lastTimer].ms);
  return lastTimer;
};

const clear = (id) => {
  if (typeof id !== 'number' || !has(timers, id)) return;
  delete timers[id];
  running--;
  host.clear(id);
};

function fire(id) {
  const t = timers[id];
  if (t.again) host.timer(id, t.ms);
  else { delete timers[id]; running--; }
  apply(t.callback, undefined, t.args);
}

hide(global, 'setTimeout', setting(false));
hide(global, 'setInterval', setting(true));
hide(global, 'clearTimeout', clear);
hide(global, 'clearInterval', clear);
hide(global, 'queueMicrotask', (callback) => { (async () => { await undefined; callback(); })(); });
hide(global, 'structuredClone', (v) => { const text = stringify(v); return text === undefined ? undefined : parse(text); });

// --- running code --------------------------------------------------------------------------------

const jsonOnly = (key, value) => {
  switch (typeof value) {
    case 'bigint': throw new TypeError('the result is not JSON: ' + (key === '' ? 'it' : stringify(key)) + ' is a BigInt; Number() or String() makes it JSON');
    case 'function': case 'symbol': throw new TypeError('the result is not JSON: ' + (key === '' ? 'it' : stringify(key)) + ' is a ' + typeof value);
  }
  return value;
};

function fail(e) {
  host.relax();
  let name = '', message = '', stack = ''; // all empty for null
  try {
    if (typeof e === 'unknown') { name = 'InternalError'; message = 'out of memory'; } // the engine throws without a value
    else if (e instanceof Error) { name = String(e.name); message = String(e.message); stack = String(e.stack); }
    else message = e === null ? '' : 'the code threw ' + shown(e);
  } catch { message = 'the code threw a value that cannot be shown'; }
  host.failed(name, message, stack);
}

async function run(main) {
  let text, nothing;
  try {
    const value = await main();
    nothing = value === undefined;
    text = nothing ? 'null' : stringify(value, jsonOnly);
  } catch (e) {
    return fail(e);
  }
  host.done(text, nothing);
}

// start returns false unless the code evaluates to the marker and one function.
function start(js, context, servers) {
  hide(global, 'context', parse(context));
  install(parse(servers));
  const given = global.context;
  for (const key in given) if (has(given, key)) offer(key, given[key]);
  if (global.__globals !== undefined) {
    const made = global.__globals(host.random, host.now);
    delete global.__globals;
    for (const name in made) offer(name, made[name]);
  }
  const made = evaluate(js);
  if (!isArray(made) || made.length !== 2 || made[0] !== 0) return false;
  run(made[1]);
  return true;
}

// isFull reports whether the engine has less than 1 MiB of memory left. Its promises then do not settle.
const isFull = () => {
  try { return new ArrayBuffer(1 << 20) === null; } catch { return true; }
};

return { __proto__: null, start, settle, fire, fail, isFull };
})()
