#!/usr/bin/env node
// A PROTOCOL_V5 worker with the capability "reverse" that signs every message and ignores
// messages that O1 has not signed. Signed messages may come from another machine.
//
//   comet serve --v5-listen 127.0.0.1:7005 --v5-self-registration
//   comet agents create reverser --level 2 --sphere 8 --frequency 555 --parent orch-my-team --name Reverser
//   COMET_KEY=$(comet agents key issue reverser --required) node signed.mjs W1 [127.0.0.1:7005]
//
// It needs Node 20 or newer and no packages. W1 is the agent's address, which "comet agents key
// show" prints. The key is agreed on outside of the protocol and is never sent.
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';

const me = process.argv[2] ?? 'W1';
const [host, port] = (process.argv[3] ?? '127.0.0.1:7005').split(':');
const key = process.env.COMET_KEY;
if (!key) throw new Error('COMET_KEY is not set');

const signature = (text) => createHmac('sha256', key).update(text).digest('hex').slice(0, 8);

// sign appends auth=SID:NONCE:SIG: the session, random digits, and the first 8 digits of the HMAC
// over everything before.
function sign(line) {
  const session = line.split('|')[8];
  return `${line};auth=${session === '-' ? 'S0' : session}:${randomBytes(2).toString('hex')}:${signature(line)}`;
}

// verify returns a message without its signature, or undefined if O1 has not signed it.
function verify(line) {
  const [, text, found] = line.match(/^(.*?);auth=S\w+:[0-9a-f]{4}:([0-9a-f]{8})$/i) ?? [];
  if (found && timingSafeEqual(Buffer.from(found.toLowerCase()), Buffer.from(signature(text)))) return text;
  console.error('ignored without a valid signature:', line);
}

// open opens one connection.
function open(reconnect) {
  const socket = connect(Number(port), host);
  let count = 0;
  // comet accepts a message once. Messages that belong to no task are constant, so at= makes them
  // differ from earlier ones.
  const send = (type, data, { from = 'O1', task = 'T0', depth = '0', context = 'S0' } = {}, state = '-', err = '-') => {
    count = count % 9999 + 1;
    socket.write(`${sign(`M${count}|${me}>${from}|${type}|${task}|-|${state}|${err}|${depth}|${context}|-|${data}${task === 'T0' ? `;at=${Date.now()}` : ''}`)}\n`);
  };
  const heartbeat = setInterval(() => send('H', 'load=0%'), 60_000);
  socket.on('close', () => { clearInterval(heartbeat); reconnect(); });
  socket.on('connect', () => send('J', 'caps=reverse;version=V5'));
  const lines = createInterface({ input: socket });
  lines.on('error', (error) => console.error('reconnecting:', error.message)); // an error of the socket
  lines.on('line', (line) => {
    const message = verify(line);
    if (!message) return;
    const [, route, type, task, , , , depth, context, , data] = message.split('|');
    if (data.startsWith('registered')) console.log('working as', me);
    if (type !== 'R' && type !== 'X') return;
    const text = data.match(/(?:^|;)text=([^;]*)/)?.[1] ?? '';
    send('S', `text=${[...text].reverse().join('')}`, { from: route.split('>')[0], task, depth, context }, 'D');
  });
}

const reconnect = () => setTimeout(open, 1000, reconnect);
open(reconnect);
