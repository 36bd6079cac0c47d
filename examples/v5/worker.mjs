#!/usr/bin/env node
// A PROTOCOL_V5 worker over TCP with the capability "greet". It asks for the language if the
// request does not state one.
//
//   comet serve --v5-listen 127.0.0.1:7005 --v5-self-registration
//   node worker.mjs [127.0.0.1:7005]
//
// It needs Node 20 or newer and no packages. It registers itself as the agent v5-greeter; with
// COMET_TOKEN it runs as the agent of that token. It executes eight tasks at a time, and reconnects
// when the connection ends.
import { connect } from 'node:net';
import { createInterface } from 'node:readline';

const [host, port] = (process.argv[2] ?? '127.0.0.1:7005').split(':');
const words = { en: 'Hello', fr: 'Bonjour', de: 'Guten Tag' };

function parse(line) {
  const [number, route, type, task, priority, state, err, depth, context, budget, data] = line.split('|');
  return { number, from: route.split('>')[0], type, task, priority, state, err, depth, context, budget, data: pairs(data) };
}

// pairs returns the pairs of DATA. A semicolon between double quotes is text.
function pairs(data) {
  const items = data.match(/(?:"[^"]*"|[^;])+/g) ?? [];
  return Object.fromEntries(items.map((item) => {
    const [key, ...value] = item.trim().split('=');
    return [key, value.join('=').replace(/^"([^"]*)"$/, '$1')];
  }));
}

// open opens one connection. Context, task and depth identify the request that a reply belongs to.
function open(reconnect) {
  const socket = connect(Number(port), host);
  const pending = new Map();
  const key = (m) => `${m.context} ${m.task} ${m.depth}`;
  let me = 'W1';
  let count = 0;
  const send = (type, data, to = {}, state = '-', err = '-') => {
    count = count % 9999 + 1;
    const { from = 'O1', task = 'T0', priority = '-', depth = '0', context = 'S0', budget = '-' } = to;
    socket.write(`M${count}|${me}>${from}|${type}|${task}|${priority}|${state}|${err}|${depth}|${context}|${budget}|${data}\n`);
  };

  // execute executes one request. Put your own work here, and send U at least every 30 s.
  async function execute(request) {
    const { call, name = 'you' } = request.data;
    if (call !== 'greet') return send('E', 'desc=only greet', request, 'F', 'E19');
    let { lang } = request.data;
    if (!lang) {
      send('C', `question=In which language?;options=${Object.keys(words).join(',')}`, request, 'R');
      ({ answer: lang } = await new Promise((resolve) => pending.set(key(request), resolve)));
      pending.delete(key(request));
    }
    if (!words[lang]) return send('E', `desc=there is no ${lang} here`, request, 'F', 'E33');
    return send('S', `greeting=${words[lang]} ${name}`, request, 'D');
  }

  const heartbeat = setInterval(() => send('H', `load=0%;queue=${pending.size}`), 60_000);
  socket.on('close', () => { clearInterval(heartbeat); reconnect(); });
  socket.on('connect', () => {
    const token = process.env.COMET_TOKEN;
    send('J', `caps=greet;concurrency=8;version=V5;${token ? `token=${token}` : 'name=greeter'}`);
  });
  const lines = createInterface({ input: socket });
  lines.on('error', (error) => console.error('reconnecting:', error.message)); // an error of the socket
  lines.on('line', (line) => {
    const message = parse(line);
    if (message.type === 'A' && 'registered' in message.data) console.log('working as', me = message.data.id);
    else if (message.type === 'R' || message.type === 'X') execute(message);
    else if (message.type === 'C') pending.get(key(message))?.(message.data);
    else if (message.type === 'U' && message.state === 'X') pending.delete(key(message)); // cancelled
    else if (message.type === 'E') console.error('rejected:', message.err, message.data.desc);
  });
}

const reconnect = () => setTimeout(open, 1000, reconnect);
open(reconnect);
