// The event stream of the server: one connection for the whole page. It resumes at the position of the last event, so that
// a restart of the server loses nothing, and gives events to the views in batches, at most ten a second.
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

export const state = signal<"connecting" | "on" | "off">("connecting");
export const position = signal(0);
/** reason says why the stream is off. */
export const reason = signal("");

/** paintInterval is the least time between two batches, in milliseconds. */
const paintInterval = 100;

const handlers = new Set<Handler>();
const reloads = new Set<() => void>();
let waiting: LiveEvent[] = [];
let timer: ReturnType<typeof setTimeout> | undefined;
let stopped: AbortController | undefined;
let last: string | undefined; // the id of the last event

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

function schedule() {
  timer ??= setTimeout(flush, paintInterval);
}

/** connect opens the stream and keeps it open until disconnect. */
export async function connect(): Promise<void> {
  disconnect();
  const stop = (stopped = new AbortController());
  for (let wait = 250; !stop.signal.aborted; wait = Math.min(wait * 2, 5000)) {
    const began = Date.now();
    try {
      await read(stop.signal);
      reason.value = "the server ended the stream";
    } catch (thrown) {
      reason.value = thrown instanceof Error ? thrown.message : String(thrown);
    }
    if (stop.signal.aborted || loggedIn.value === false) return;
    state.value = "off";
    if (Date.now() - began > 10_000) wait = 250;
    await new Promise((done) => setTimeout(done, wait * (0.75 + Math.random() / 2)));
  }
}

export function disconnect() {
  stopped?.abort();
  stopped = undefined;
  state.value = "connecting";
}

async function read(signal: AbortSignal): Promise<void> {
  const headers: Record<string, string> = { Accept: "text/event-stream" };
  const resumed = last !== undefined;
  if (last !== undefined) headers["Last-Event-ID"] = last;
  const response = await fetch("/api/v1/events", { headers, signal, cache: "no-store" });
  if (!response.ok || !response.body) throw await problemOf(response);
  state.value = "on";
  reason.value = "";
  if (!resumed) for (const reload of reloads) reload();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    const blocks = rest.split("\n\n");
    rest = blocks.pop()!;
    for (const block of blocks) parse(block);
  }
}

/** parse handles one block of the stream: fields of the form "name: value". */
function parse(block: string) {
  let name = "";
  let data = "";
  for (const field of block.split("\n")) {
    if (field.startsWith("data: ")) data += field.slice(6);
    else if (field.startsWith("id: ")) last = field.slice(4);
    else if (field.startsWith("event: ")) name = field.slice(7);
  }
  schedule(); // the position may have changed
  if (name === "gap") {
    for (const reload of reloads) reload();
  } else if (data) {
    waiting.push(JSON.parse(data));
  }
}
