// The events of one workflow, from its start on. They have the times of its steps, which no other route has.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { onEvents, type LiveEvent } from "./live";
import { administers, can } from "./session";

/** quiet is the silence after which the past counts as read, in milliseconds. */
const quiet = 800;

/** past reads the stored events of a workflow. Only tokens whose stream lacks the workflow keep the connection for new ones. */
async function past(id: string, stop: AbortController, add: (events: LiveEvent[]) => void) {
  const keep = !administers();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const wait = () => {
    clearTimeout(timer);
    if (!keep) timer = setTimeout(() => stop.abort(), quiet);
  };
  const response = await fetch("/api/v1/events?workflow_id=" + encodeURIComponent(id), { headers: { Accept: "text/event-stream", "Last-Event-ID": "0" }, signal: stop.signal });
  if (!response.ok || !response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    wait();
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop()!;
    const lines = blocks.flatMap((b) => b.split("\n")).filter((l) => l.startsWith("data: {"));
    add(lines.map((l) => JSON.parse(l.slice(6)) as LiveEvent).filter((e) => e.type?.startsWith("workflow.")));
  }
}

/** usePolling calls reload every five seconds if the token gets no events of workflows: workflows:approve alone is not enough. */
export function usePolling(reload: () => void) {
  const latest = useRef(reload);
  latest.current = reload;
  useEffect(() => {
    if (can("tools:call")) return;
    const timer = setInterval(() => latest.current(), 5000);
    return () => clearInterval(timer);
  }, []);
}

/** useRunEvents returns the events of a workflow in their order. It calls changed for those that the page's stream lacks. */
export function useRunEvents(id: string, changed: () => void): LiveEvent[] {
  const [byPosition, set] = useState<Map<number, LiveEvent>>(new Map());
  const notice = useRef(changed);
  notice.current = changed;
  usePolling(changed);
  useEffect(() => {
    if (!can("tools:call")) return;
    const stop = new AbortController();
    const add = (events: LiveEvent[]) => {
      if (events.length > 0) set((old) => new Map([...old, ...events.map((e) => [e.position ?? 0, e] as const)]));
    };
    const addOwn = (events: LiveEvent[]) => {
      add(events);
      if (events.length > 0 && !administers()) notice.current();
    };
    past(id, stop, addOwn).catch(() => {}); // without the past the steps have no times
    const off = onEvents((events) => add(events.filter((e) => e.key === id && e.type.startsWith("workflow."))));
    return () => (stop.abort(), off());
  }, [id]);
  return useMemo(() => [...byPosition.values()].sort((a, b) => a.position! - b.position!), [byPosition]);
}

export type StepTime = { from: number; to?: number; attempt: number; ms?: number; tokens?: number };

/** stepTimes returns when the newest attempt of each step began and ended. */
export function stepTimes(events: LiveEvent[]): Map<string, StepTime> {
  const out = new Map<string, StepTime>();
  for (const { type, at, data } of events) {
    if (type === "workflow.step_started") out.set(data.step, { from: Date.parse(at), attempt: data.attempt ?? 1 });
    const known = out.get(data.step);
    if (type === "workflow.step_ended" && known) {
      known.to = Date.parse(at);
      known.ms = data.duration_ms ?? known.to - known.from;
      known.tokens = data.tokens;
    }
  }
  return out;
}
