#!/usr/bin/env node
// A worker of PROTOCOL_V5 that signs every line, and believes none that is not signed: it
// can "reverse". Signed lines may come from another machine.
//
//   comet serve --v5-listen 127.0.0.1:7005
//   comet agents create reverser --level 2 --sphere 8 --frequency 555 --parent orch-my-team --name Reverser
//   COMET_KEY=$(comet agents key issue reverser --required) node signed.mjs W1 [127.0.0.1:7005]
//
// Node 20 or newer, no packages. W1 is the agent's number, which "comet agents key show"
// shows. The key travels outside of the protocol; it is never sent.
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';

const me = process.argv[2] ?? 'W1';
const [host, port] = (process.argv[3] ?? '127.0.0.1:7005').split(':');
const key = process.env.COMET_KEY;
if (!key) throw new Error('COMET_KEY is not set');

const signature = (text) => createHmac('sha256', key).update(text).digest('hex').slice(0, 8);

// sign puts auth=SID:NONCE:SIG behind a line: its session, something new, and the first 8
// digits of the HMAC over all that stands before.
function sign(line) {
  const session = line.split('|')[8];
  return `${line};auth=${session === '-' ? 'S0' : session}:${randomBytes(2).toString('hex')}:${signature(line)}`;
}

// verified is a line without its signature, undefined for one that is not O1's.
function verified(line) {
  const [, text, found] = line.match(/^(.*?);auth=S\w+:[0-9a-f]{4}:([0-9a-f]{8})$/i) ?? [];
  if (found && timingSafeEqual(Buffer.from(found.toLowerCase()), Buffer.from(signature(text)))) return text;
  console.error('not believed:', line);
}

// line holds one connection.
function line(again) {
  const socket = connect(Number(port), host);
  let count = 0;
  // A line that was taken is not taken again: at= has those that are about no task differ
  // from the ones of yesterday, and of before a restart.
  const say = (type, data, { from = 'O1', task = 'T0', depth = '0', context = 'S0' } = {}, state = '-', err = '-') => {
    count = count % 9999 + 1;
    socket.write(`${sign(`M${count}|${me}>${from}|${type}|${task}|-|${state}|${err}|${depth}|${context}|-|${data}${task === 'T0' ? `;at=${Date.now()}` : ''}`)}\n`);
  };
  const alive = setInterval(() => say('H', 'load=0%'), 60_000);
  socket.on('close', () => { clearInterval(alive); again(); });
  socket.on('connect', () => say('J', 'caps=reverse;version=V5'));
  const lines = createInterface({ input: socket });
  lines.on('error', (failure) => console.error('trying again:', failure.message)); // the socket's, passed on
  lines.on('line', (text) => {
    const heard = verified(text);
    if (!heard) return;
    const [, route, type, task, , , , depth, context, , data] = heard.split('|');
    if (data.startsWith('registered')) console.log('working as', me);
    if (type !== 'R' && type !== 'X') return;
    const words = data.match(/(?:^|;)text=([^;]*)/)?.[1] ?? '';
    say('S', `text=${[...words].reverse().join('')}`, { from: route.split('>')[0], task, depth, context }, 'D');
  });
}

const again = () => setTimeout(line, 1000, again);
line(again);
