// The event stream of the server: one connection for all pages of a browser. It resumes at the position of the last event, so that
// a restart of the server loses nothing, and passes events to the views in batches, at most ten a second.
import { batch, signal } from "@preact/signals";
import { loggedIn, problemOf } from "./api";

export type LiveEvent = {
  id?: string;
  position?: number;
  type: string;
  key: string;
  at: string;
  data: Record<string, any>;
};
type Handler = (events: LiveEvent[]) => void;

type State = "connecting" | "on" | "off";

export const state = signal<State>("connecting");
export const position = signal(0);
/** reason is why the stream is off. */
export const reason = signal("");

/** paintInterval is the minimum time between two batches, in milliseconds. */
const paintInterval = 100;

const handlers = new Set<Handler>();
const reloads = new Set<() => void>();
let waiting: LiveEvent[] = [];
let timer: ReturnType<typeof setTimeout> | undefined;
let stopped: AbortController | undefined;
let last: string | undefined; // the id of the last event
let seen = 0; // the position of the last event that was passed to the views

/** onEvents calls handler with each batch of events until the returned function is called. */
export function onEvents(handler: Handler): () => void {
  handlers.add(handler);
  return () => handlers.delete(handler);
}

/** onGap calls reload when events were missed, so that a view must read everything again. */
export function onGap(reload: () => void): () => void {
  reloads.add(reload);
  return () => reloads.delete(reload);
}

function flush() {
  timer = undefined;
  const events = waiting;
  waiting = [];
  batch(() => {
    position.value = Number(last ?? 0);
    if (events.length > 0) for (const handler of handlers) handler(events);
  });
}

/** add takes events that have arrived. When another page takes over, an event may arrive twice. */
function add(events: LiveEvent[], id: string | undefined) {
  for (const event of events) {
    if (event.position !== undefined && event.position <= seen) continue;
    seen = event.position ?? seen;
    waiting.push(event);
  }
  last = id ?? last;
  timer ??= setTimeout(flush, paintInterval); // the position may have changed without an event
}

/** reloadAll lets the views read everything again after events were missed. */
function reloadAll() {
  seen = 0;
  for (const reload of reloads) reload();
}

/** connect follows the stream until disconnect. One page of the browser holds the connection and passes the events on to
 * the others: a browser opens few connections to one server. When that page is closed, another one takes over. */
export async function connect(login: string): Promise<void> {
  disconnect();
  const stop = (stopped = new AbortController());
  const name = "comet-events-" + login;
  channel = new BroadcastChannel(name);
  channel.onmessage = (message: MessageEvent<Message>) => receive(message.data);
  channel.postMessage({ kind: "hello" } satisfies Message);
  try {
    await navigator.locks.request(name, { signal: stop.signal }, () => lead(stop.signal));
  } catch (thrown) {
    if (!stop.signal.aborted) throw thrown;
  }
}

/** lead keeps the connection open. */
async function lead(stop: AbortSignal): Promise<void> {
  leading = true;
  for (let wait = 250; !stop.aborted; wait = Math.min(wait * 2, 5000)) {
    const began = Date.now();
    let why = "The server ended the stream.";
    try {
      await read(stop);
    } catch (thrown) {
      why = thrown instanceof TypeError ? "The server does not respond." : thrown instanceof Error ? thrown.message : String(thrown);
    }
    if (stop.aborted || loggedIn.value === false) break;
    report("off", why);
    if (Date.now() - began > 10_000) wait = 250;
    await new Promise((done) => setTimeout(done, wait * (0.75 + Math.random() / 2)));
  }
  leading = false;
}

export function disconnect() {
  stopped?.abort();
  channel?.close();
  clearTimeout(timer);
  stopped = channel = timer = last = undefined;
  waiting = [];
  seen = 0;
  leading = false;
  state.value = "connecting";
}

/** Message is a message between the pages of a browser. */
type Message = { kind: "hello" } | { kind: "state"; state: State; reason: string; last?: string } | { kind: "events"; events: LiveEvent[]; last?: string } | { kind: "gap" };

let channel: BroadcastChannel | undefined;
let leading = false;

/** report sets the state of the stream, here and in the other pages. */
function report(now: State, why = "") {
  state.value = now;
  reason.value = why;
  channel?.postMessage({ kind: "state", state: now, reason: why, last } satisfies Message);
}

/** receive handles a message of another page. */
function receive(message: Message) {
  switch (message.kind) {
    case "hello":
      if (leading) report(state.value, reason.value);
      break;
    case "state":
      if (leading) break; // the message of a previous leader
      if (message.state === "on" && state.value !== "on") reloadAll();
      state.value = message.state;
      reason.value = message.reason;
      add([], message.last);
      break;
    case "events":
      add(message.events, leading ? undefined : message.last);
      break;
    case "gap":
      reloadAll();
  }
}

/** silence is how long the stream may be silent, in milliseconds: the server sends a comment every 15 seconds. */
const silence = 45_000;

async function read(stop: AbortSignal): Promise<void> {
  const lost = new Error("The connection was lost.");
  const dead = new AbortController();
  const signal = AbortSignal.any([stop, dead.signal]);
  let watch = setTimeout(() => dead.abort(lost), silence);
  try {
    await readStream(signal, () => {
      clearTimeout(watch);
      watch = setTimeout(() => dead.abort(lost), silence);
    });
  } finally {
    clearTimeout(watch);
  }
}

async function readStream(signal: AbortSignal, alive: () => void): Promise<void> {
  const headers: Record<string, string> = { Accept: "text/event-stream" };
  const resumed = last !== undefined;
  if (last !== undefined) headers["Last-Event-ID"] = last;
  const response = await fetch("/api/v1/events", { headers, signal, cache: "no-store" });
  if (!response.ok || !response.body) throw await problemOf(response);
  const wasOff = state.value === "off";
  report("on");
  if (!resumed || wasOff) reloadAll(); // views may have failed to read their data in the meantime
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    rest += value;
    const blocks = rest.split("\n\n");
    rest = blocks.pop()!;
    // At once, not with the next painting: the browser delays the timers of a page that is not visible.
    const events = blocks.map(parse).filter((event) => event !== undefined);
    channel?.postMessage({ kind: "events", events, last } satisfies Message);
    add(events, last);
  }
}

/** parse returns the event of one block of the stream, which has fields of the form "name: value". */
function parse(block: string): LiveEvent | undefined {
  let name = "";
  let data = "";
  for (const field of block.split("\n")) {
    if (field.startsWith("data: ")) data += field.slice(6);
    else if (field.startsWith("id: ")) last = field.slice(4);
    else if (field.startsWith("event: ")) name = field.slice(7);
  }
  if (name !== "gap") return data ? JSON.parse(data) : undefined;
  channel?.postMessage({ kind: "gap" } satisfies Message);
  reloadAll();
  return undefined;
}
