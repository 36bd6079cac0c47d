#!/usr/bin/env node
// A worker of PROTOCOL_V5 over TCP: it can "greet", and asks back in which language.
//
//   comet serve --v5-listen 127.0.0.1:7005
//   node worker.mjs [127.0.0.1:7005]
//
// Node 20 or newer, no packages. It registers itself as the agent v5-greeter; with
// COMET_TOKEN it is the agent of that token. It takes eight tasks at a time, and comes
// back by itself when the line ends.
import { connect } from 'node:net';
import { createInterface } from 'node:readline';

const [host, port] = (process.argv[2] ?? '127.0.0.1:7005').split(':');
const words = { en: 'Hello', fr: 'Bonjour', de: 'Guten Tag' };

// parse takes a line apart.
function parse(line) {
  const [number, route, type, task, priority, state, err, depth, context, budget, text] = line.split('|');
  return { number, from: route.split('>')[0], type, task, priority, state, err, depth, context, budget, data: pairs(text) };
}

// pairs reads DATA. What stands in double quotes is no delimiter.
function pairs(text) {
  const places = text.match(/(?:"[^"]*"|[^;])+/g) ?? [];
  return Object.fromEntries(places.map((place) => {
    const [key, ...value] = place.trim().split('=');
    return [key, value.join('=').replace(/^"([^"]*)"$/, '$1')];
  }));
}

// line holds one connection. What waits for an answer is told apart by task and depth.
function line(again) {
  const socket = connect(Number(port), host);
  const waiting = new Map();
  const key = (m) => `${m.context} ${m.task} ${m.depth}`;
  let me = 'W1';
  let count = 0;
  const say = (type, data, to = {}, state = '-', err = '-') => {
    count = count % 9999 + 1;
    const { from = 'O1', task = 'T0', priority = '-', depth = '0', context = 'S0', budget = '-' } = to;
    socket.write(`M${count}|${me}>${from}|${type}|${task}|${priority}|${state}|${err}|${depth}|${context}|${budget}|${data}\n`);
  };

  // work does one request. Put your own work here; say U at least every 30 s meanwhile.
  async function work(request) {
    const { call, name = 'you' } = request.data;
    if (call !== 'greet') return say('E', 'desc=only greet', request, 'F', 'E19');
    let { lang } = request.data;
    if (!lang) {
      say('C', `question=In which language?;options=${Object.keys(words).join(',')}`, request, 'R');
      ({ answer: lang } = await new Promise((resolve) => waiting.set(key(request), resolve)));
    }
    if (!words[lang]) return say('E', `desc=there is no ${lang} here`, request, 'F', 'E33');
    return say('S', `greeting=${words[lang]} ${name}`, request, 'D');
  }

  const alive = setInterval(() => say('H', `load=0%;queue=${waiting.size}`), 60_000);
  socket.on('close', () => { clearInterval(alive); again(); });
  socket.on('connect', () => {
    const token = process.env.COMET_TOKEN;
    say('J', `caps=greet;concurrency=8;version=V5;${token ? `token=${token}` : 'name=greeter'}`);
  });
  const lines = createInterface({ input: socket });
  lines.on('error', (failure) => console.error('trying again:', failure.message)); // the socket's, passed on
  lines.on('line', (text) => {
    const heard = parse(text);
    if (heard.type === 'A' && 'registered' in heard.data) console.log('working as', me = heard.data.id);
    else if (heard.type === 'R' || heard.type === 'X') work(heard);
    else if (heard.type === 'C') waiting.get(key(heard))?.(heard.data);
    else if (heard.type === 'U' && heard.state === 'X') waiting.delete(key(heard)); // taken back
    else if (heard.type === 'E') console.error('refused:', heard.err, heard.data.desc);
  });
}

const again = () => setTimeout(line, 1000, again);
line(again);
