// Globals of browsers and Node.js that code uses: encodings, random numbers, a clock and URLs. They
// belong to the code: they are not used by the prelude, so code that changes built-ins affects only
// itself. The names of context and of servers take precedence. random returns that number of random
// bytes in hexadecimal digits, and now the milliseconds since the run began.
((random, now) => {
'use strict';

const fault = (name, message) => Object.defineProperty(new Error(message), 'name', { value: name, configurable: true });
const wellFormed = (text) => String(text).replace(/[\ud800-\udfff]/gu, '\ufffd'); // matches only half pairs

// --- text ---------------------------------------------------------------------------------

const utf8 = (text) => {
  const out = [];
  for (const character of wellFormed(text)) {
    const c = character.codePointAt(0);
    if (c < 0x80) out.push(c);
    else if (c < 0x800) out.push(0xc0 | c >> 6, 0x80 | c & 63);
    else if (c < 0x10000) out.push(0xe0 | c >> 12, 0x80 | c >> 6 & 63, 0x80 | c & 63);
    else out.push(0xf0 | c >> 18, 0x80 | c >> 12 & 63, 0x80 | c >> 6 & 63, 0x80 | c & 63);
  }
  return out;
};

const decodeUTF8 = (bytes, fatal) => {
  let out = '', need = 0, c = 0, low = 0x80, high = 0xbf;
  const invalid = () => {
    if (fatal) throw new TypeError('the bytes are not UTF-8');
    need = 0; low = 0x80; high = 0xbf;
    out += '\ufffd';
  };
  for (let i = 0; i < bytes.length; i++) {
    const b = bytes[i];
    if (need > 0) {
      if (b < low || b > high) { invalid(); i--; continue; }
      low = 0x80; high = 0xbf;
      c = c << 6 | b & 63;
      if (--need === 0) out += String.fromCodePoint(c);
    } else if (b < 0x80) out += String.fromCharCode(b);
    else if (b >= 0xc2 && b <= 0xdf) { need = 1; c = b & 31; }
    else if (b >= 0xe0 && b <= 0xef) { need = 2; c = b & 15; low = b === 0xe0 ? 0xa0 : 0x80; high = b === 0xed ? 0x9f : 0xbf; }
    else if (b >= 0xf0 && b <= 0xf4) { need = 3; c = b & 7; low = b === 0xf0 ? 0x90 : 0x80; high = b === 0xf4 ? 0x8f : 0xbf; }
    else invalid();
  }
  if (need > 0) invalid();
  return out;
};

class TextEncoder {
  get encoding() { return 'utf-8'; }
  encode(text = '') { return Uint8Array.from(utf8(text)); }
  encodeInto(text, into) {
    let read = 0, written = 0;
    for (const character of String(text)) {
      const bytes = utf8(character);
      if (written + bytes.length > into.length) break;
      into.set(bytes, written);
      read += character.length;
      written += bytes.length;
    }
    return { read, written };
  }
}

class TextDecoder {
  constructor(label = 'utf-8', { fatal = false, ignoreBOM = false } = {}) {
    if (!/^\s*(unicode-1-1-)?utf-?8\s*$/i.test(label)) throw new RangeError('TextDecoder decodes only utf-8');
    this.fatal = Boolean(fatal);
    this.ignoreBOM = Boolean(ignoreBOM);
  }
  get encoding() { return 'utf-8'; }
  decode(data = new Uint8Array(), { stream = false } = {}) {
    if (stream) throw new TypeError('TextDecoder does not decode streams: pass all bytes at once');
    const bytes = ArrayBuffer.isView(data) ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : new Uint8Array(data);
    const text = decodeUTF8(bytes, this.fatal);
    return this.ignoreBOM || text[0] !== '\ufeff' ? text : text.slice(1);
  }
}

const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';

const btoa = (data) => {
  const text = String(data);
  if (/[^\0-\xff]/.test(text)) throw fault('InvalidCharacterError', 'btoa encodes only characters up to U+00FF; encode text with TextEncoder first');
  let out = '';
  for (let i = 0; i < text.length; i += 3) {
    const n = text.charCodeAt(i) << 16 | text.charCodeAt(i + 1) << 8 | text.charCodeAt(i + 2); // NaN is 0
    out += digits[n >> 18] + digits[n >> 12 & 63] + (i + 1 < text.length ? digits[n >> 6 & 63] : '=') + (i + 2 < text.length ? digits[n & 63] : '=');
  }
  return out;
};

const atob = (data) => {
  let text = String(data).replace(/[\t\n\f\r ]/g, '');
  if (text.length % 4 === 0) text = text.replace(/==?$/, '');
  if (text.length % 4 === 1 || /[^A-Za-z0-9+/]/.test(text)) throw fault('InvalidCharacterError', 'the text is not base64');
  let out = '', bits = 0, n = 0;
  for (const character of text) {
    n = n << 6 | digits.indexOf(character);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out += String.fromCharCode(n >> bits & 255);
      n &= (1 << bits) - 1;
    }
  }
  return out;
};

// --- random numbers and time --------------------------------------------------------------

const fill = (bytes) => {
  const hex = random(bytes.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = parseInt(hex.slice(2 * i, 2 * i + 2), 16);
  return bytes;
};

const crypto = {
  getRandomValues(array) {
    if (!ArrayBuffer.isView(array) || !/^(Big)?(Ui|I)nt/.test(array[Symbol.toStringTag])) throw fault('TypeMismatchError', 'getRandomValues fills an array of integers');
    if (array.byteLength > 65536) throw fault('QuotaExceededError', 'getRandomValues fills at most 65536 bytes');
    fill(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
    return array;
  },
  randomUUID() {
    const bytes = fill(new Uint8Array(16));
    bytes[6] = bytes[6] & 15 | 64;
    bytes[8] = bytes[8] & 63 | 128;
    const hex = Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
    return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
  },
};

const performance = { now: () => now() };

// --- URLs (https://url.spec.whatwg.org), without international host names ------------------

// encode escapes the characters that a set of the specification contains.
const encode = (text, set) => wellFormed(text).replace(set, (c) => c === "'" ? '%27' : encodeURIComponent(c));
const decode = (text) => {
  const bytes = utf8(text.replace(/\+/g, ' ')), out = [];
  for (let i = 0; i < bytes.length; i++) {
    const hex = bytes[i] === 37 ? String.fromCharCode(bytes[i + 1], bytes[i + 2]) : '';
    const escaped = /^[0-9a-f]{2}$/i.test(hex);
    out.push(escaped ? parseInt(hex, 16) : bytes[i]);
    if (escaped) i += 2;
  }
  return decodeUTF8(out, false);
};
const inPath = /[^!$-;=@-\]_a-z|~]/gu, inUser = /[^!$-.0-9A-Z_a-z~]/gu, inHash = /[^!#-;=?-_a-~]/gu;
const inQuery = /[^!$-;=?-~]/gu, inSpecialQuery = /[^!$-&(-;=?-~]/gu, inOpaque = /[^ -~]/gu;
const ports = { __proto__: null, 'http:': '80', 'https:': '443', 'ws:': '80', 'wss:': '443', 'ftp:': '21', 'file:': '' };
const invalid = (text) => new TypeError('Invalid URL: ' + text);

function ipv4(host) {
  const parts = host.replace(/\.$/, '').split('.');
  if (!/^(\d+|0x[0-9a-f]*)$/.test(parts.at(-1))) return host;
  const numbers = parts.map((p) => /^0x[0-9a-f]*$/.test(p) ? parseInt('0' + p.slice(2), 16) : /^0[0-7]+$/.test(p) ? parseInt(p, 8) : /^(0|[1-9]\d*)$/.test(p) ? +p : NaN);
  const last = numbers.pop();
  if (numbers.length > 3 || numbers.some((n) => !(n < 256)) || !(last < 256 ** (4 - numbers.length))) throw invalid(host);
  const value = numbers.reduce((sum, n, i) => sum + n * 256 ** (3 - i), last);
  return [3, 2, 1, 0].map((i) => Math.floor(value / 256 ** i) % 256).join('.');
}

function parseHost(text, special) {
  if (/^\[[0-9a-f:.]*:[0-9a-f:.]*\]$/i.test(text)) return text.toLowerCase();
  if (!special) {
    if (/[\0\t\n\r #/:<>?@[\\\]^|]/.test(text)) throw invalid(text);
    return encode(text, inOpaque);
  }
  const host = decode(text.replace(/\+/g, '%2B')).toLowerCase();
  if (/[^\0-\x7f]/.test(host)) throw new TypeError('Invalid URL: write the host name ' + host + ' in its ASCII form (xn--…)');
  if (host === '' || /[\0- "#%/:<>?@[\\\]^`{|}\x7f]/.test(host)) throw invalid(text);
  return ipv4(host);
}

function parsePort(text, protocol) {
  if (!/^\d*$/.test(text) || +text > 65535 || text !== '' && protocol === 'file:') throw invalid(text);
  return text === '' || String(+text) === ports[protocol] ? '' : String(+text);
}

function parsePath(path) {
  const out = [];
  path.split('/').forEach((part, i, all) => {
    const dots = part.replace(/%2e/gi, '.');
    if (dots === '..') out.pop();
    else if (dots !== '.') return out.push(encode(part, inPath));
    if (i === all.length - 1) out.push('');
  });
  return '/' + out.join('/');
}

// setAuthority parses user:password@host:port.
function setAuthority(u, text) {
  const at = text.lastIndexOf('@'), [, host, port] = /^(\[.*\]|[^:]*)(?::(.*))?$/s.exec(text.slice(at + 1)) ?? [];
  if (host === undefined || host === '' && (at >= 0 || port !== undefined)) throw invalid(text);
  if (at >= 0) {
    const [, user, password] = /^([^:]*):?(.*)$/s.exec(text.slice(0, at));
    u.username = encode(user, inUser);
    u.password = encode(password, inUser);
  }
  u.hostname = host === '' && (!(u.protocol in ports) || u.protocol === 'file:') ? '' : parseHost(host, u.protocol in ports);
  if (u.protocol === 'file:' && u.hostname === 'localhost') u.hostname = '';
  u.port = parsePort(port ?? '', u.protocol);
}

const setSearch = (u, text) => { u.search = text === '' ? '' : '?' + encode(text.replace(/^\?/, ''), u.protocol in ports ? inSpecialQuery : inQuery); };
const setHash = (u, text) => { u.hash = text === '' ? '' : '#' + encode(text.replace(/^#/, ''), inHash); };

// parseURL returns the parts of a URL; hostname is null in one without a host, such as mailto:a@b.
function parseURL(input, base) {
  const text = String(input).replace(/^[\0- ]+|[\0- ]+$/g, '').replace(/[\t\n\r]/g, '');
  let [, scheme, path, search = '', hash = ''] = /^([a-z][a-z0-9+.-]*:)?([^?#]*)(\?[^#]*)?(#.*)?$/is.exec(text);
  if (scheme !== undefined) scheme = scheme.toLowerCase();
  if (scheme in ports && base?.protocol === scheme && !/^[\\/]{2}/.test(path)) scheme = undefined;
  if (scheme === undefined && (!base || base.opaque && (path !== '' || search !== '' || hash === ''))) throw invalid(text);
  const u = { protocol: scheme ?? base.protocol, username: '', password: '', hostname: null, port: '', pathname: '', search: '', hash: '', opaque: false };
  const special = u.protocol in ports;
  if (special) path = path.replace(/\\/g, '/');
  if (special && u.protocol !== 'file:' && (scheme !== undefined || path.startsWith('//'))) path = path.replace(/^\/*/, '//');
  if (path.startsWith('//')) {
    const [, authority, rest] = /^\/\/([^/]*)\/?(.*)$/s.exec(path);
    setAuthority(u, authority);
    u.pathname = special || path.length > 2 + authority.length ? parsePath(rest) : '';
  } else if (scheme === undefined) {
    Object.assign(u, { ...base, search: '', hash: '' });
    if (path !== '') u.pathname = parsePath(path[0] === '/' ? path.slice(1) : base.pathname.replace(/[^/]*$/, '').slice(1) + path);
    else if (search === '') u.search = base.search;
  } else if (special || path[0] === '/') {
    if (special) u.hostname = '';
    u.pathname = parsePath(path.replace(/^\//, ''));
  } else {
    u.opaque = true;
    u.pathname = encode(path, inOpaque);
  }
  if (search !== '') setSearch(u, search);
  setHash(u, hash);
  return u;
}

const inForm = /[^*.0-9A-Z_a-z-]/gu;
const formEncode = (text) => wellFormed(text).replace(inForm, (c) => c === ' ' ? '+' : /[!'()~]/.test(c) ? '%' + c.charCodeAt(0).toString(16).toUpperCase() : encodeURIComponent(c));
const attach = Symbol('attach');

class URLSearchParams {
  #pairs = [];
  #changed = () => {};
  constructor(init = '') {
    if (typeof init === 'object' && init !== null) {
      for (const pair of typeof init[Symbol.iterator] === 'function' ? init : Object.entries(init)) {
        const [name, value, ...more] = pair;
        if (value === undefined || more.length > 0) throw new TypeError('URLSearchParams takes pairs of a name and a value');
        this.#pairs.push([wellFormed(name), wellFormed(value)]);
      }
    } else this.#parse(String(init));
  }
  #parse(text) {
    this.#pairs = text.replace(/^\?/, '').split('&').filter((part) => part !== '').map((part) => {
      const [, name, value] = /^([^=]*)=?(.*)$/s.exec(part);
      return [decode(name), decode(value)];
    });
  }
  [attach](text, changed) { this.#changed = changed; this.#parse(text); }
  #set(pairs) { this.#pairs = pairs; this.#changed(this.toString()); }
  get size() { return this.#pairs.length; }
  append(name, value) { this.#set([...this.#pairs, [wellFormed(name), wellFormed(value)]]); }
  delete(name, value) { this.#set(this.#pairs.filter(([n, v]) => n !== String(name) || value !== undefined && v !== String(value))); }
  get(name) { return this.getAll(name)[0] ?? null; }
  getAll(name) { return this.#pairs.filter(([n]) => n === String(name)).map(([, v]) => v); }
  has(name, value) { return this.#pairs.some(([n, v]) => n === String(name) && (value === undefined || v === String(value))); }
  set(name, value) {
    const at = this.#pairs.findIndex(([n]) => n === String(name));
    if (at < 0) return this.append(name, value);
    this.#set(this.#pairs.filter(([n], i) => i <= at || n !== String(name)).with(at, [wellFormed(name), wellFormed(value)]));
  }
  sort() { this.#set(this.#pairs.toSorted(([a], [b]) => a < b ? -1 : a > b ? 1 : 0)); }
  forEach(callback, self) { for (const [name, value] of this) callback.call(self, value, name, this); }
  *entries() { for (let i = 0; i < this.#pairs.length; i++) yield [...this.#pairs[i]]; }
  *keys() { for (const [name] of this) yield name; }
  *values() { for (const [, value] of this) yield value; }
  [Symbol.iterator]() { return this.entries(); }
  toString() { return this.#pairs.map(([name, value]) => formEncode(name) + '=' + formEncode(value)).join('&'); }
}

class URL {
  #u;
  #params = new URLSearchParams();
  constructor(url, base) { this.#assign(parseURL(url, base === undefined ? undefined : parseURL(base))); }
  static parse(url, base) { try { return new URL(url, base); } catch { return null; } }
  static canParse(url, base) { return URL.parse(url, base) !== null; }
  #assign(u) {
    this.#u = u;
    this.#params[attach](u.search, (text) => setSearch(this.#u, text));
  }
  // #change sets parts of the URL, all or, if a value is invalid, none.
  #change(set) {
    const u = { ...this.#u };
    try { set(u); } catch { return; }
    this.#u = u;
  }
  #changeHost(set) { if (this.#u.hostname !== null) this.#change(set); }
  #changeUser(set) { if (this.#u.hostname && this.protocol !== 'file:') this.#change(set); }
  get href() {
    const u = this.#u, user = u.username + (u.password && ':' + u.password);
    const authority = u.hostname === null ? (u.pathname.startsWith('//') ? '/.' : '') : '//' + (user && user + '@') + this.host;
    return u.protocol + authority + u.pathname + u.search + u.hash;
  }
  set href(v) { this.#assign(parseURL(v)); }
  get origin() { return this.protocol in ports && this.protocol !== 'file:' ? this.protocol + '//' + this.host : 'null'; }
  get protocol() { return this.#u.protocol; }
  set protocol(v) {
    const [, scheme] = /^([a-z][a-z0-9+.-]*)/i.exec(v) ?? [], protocol = scheme?.toLowerCase() + ':';
    if (scheme && protocol in ports === this.protocol in ports && (this.hostname || this.protocol !== 'file:')) this.#change((u) => { u.protocol = protocol; u.port = parsePort(u.port, protocol); });
  }
  get username() { return this.#u.username; }
  set username(v) { this.#changeUser((u) => { u.username = encode(v, inUser); }); }
  get password() { return this.#u.password; }
  set password(v) { this.#changeUser((u) => { u.password = encode(v, inUser); }); }
  get host() { return this.hostname + (this.port && ':' + this.port); }
  set host(v) {
    this.#changeHost((u) => {
      const [, host, port] = /^(\[.*\]|[^:/?#]*)(?::(\d*))?/.exec(v);
      u.hostname = parseHost(host, u.protocol in ports);
      if (port) u.port = parsePort(port, u.protocol);
    });
  }
  get hostname() { return this.#u.hostname ?? ''; }
  set hostname(v) { this.#changeHost((u) => { u.hostname = parseHost(String(v), u.protocol in ports); }); }
  get port() { return this.#u.port; }
  set port(v) { this.#changeUser((u) => { u.port = parsePort(/^\d*/.exec(v)[0] || (String(v) && 'x'), u.protocol); }); }
  get pathname() { return this.#u.pathname; }
  set pathname(v) {
    const path = this.protocol in ports ? String(v).replace(/\\/g, '/') : String(v);
    if (!this.#u.opaque) this.#change((u) => { u.pathname = parsePath(path.replace(/^\//, '')); });
  }
  get search() { return this.#u.search === '?' ? '' : this.#u.search; }
  set search(v) {
    this.#change((u) => setSearch(u, String(v)));
    this.#assign(this.#u);
  }
  get searchParams() { return this.#params; }
  get hash() { return this.#u.hash === '#' ? '' : this.#u.hash; }
  set hash(v) { this.#change((u) => setHash(u, String(v))); }
  toString() { return this.href; }
  toJSON() { return this.href; }
}

return { __proto__: null, TextEncoder, TextDecoder, btoa, atob, crypto, performance, URLSearchParams, URL };
})
