// The events of one workflow, from its start on. They have the times of its steps, which no other route has.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call, query, type Schemas } from "./api";
import { onEvents, onGap, type LiveEvent } from "./live";
import { can } from "./session";

/** pages is the maximum number of pages of past events that are read; each scans 10,000 events of all kinds. */
const pages = 20;

/** past reads the stored events of a workflow, the newest first, until its start. */
async function past(id: string, signal: AbortSignal, add: (events: LiveEvent[]) => void) {
  let before: number | undefined;
  for (let i = 0; i < pages; i++) {
    const page = await call<Schemas["EventHistory"]>({ path: query("/api/v1/events/history", { workflow_id: id, limit: 1000, before }) }, signal);
    const events = (page.events as LiveEvent[]).filter((e) => e.type.startsWith("workflow."));
    add(events);
    before = page.next_before;
    if (!before || events.some((e) => e.type === "workflow.started")) return;
  }
}

/** usePolling calls reload every five seconds if the token's stream may lack events of workflows that it may read. */
export function usePolling(reload: () => void) {
  const latest = useRef(reload);
  latest.current = reload;
  useEffect(() => {
    if (can("admin")) return;
    const timer = setInterval(() => latest.current(), 5000);
    return () => clearInterval(timer);
  }, []);
}

/** useRunEvents returns the events of a workflow in their order. It calls reload if the page's stream does not report changes. */
export function useRunEvents(id: string, reload: () => void): LiveEvent[] {
  const [byPosition, set] = useState<Map<number, LiveEvent>>(new Map());
  const read = useRef(() => {});
  usePolling(() => (reload(), read.current()));
  useEffect(() => {
    const stop = new AbortController();
    const add = (events: LiveEvent[]) => {
      if (events.length > 0) set((old) => new Map([...old, ...events.map((e) => [e.position ?? 0, e] as const)]));
    };
    // workflows:approve alone does not read events; then the steps have no times
    read.current = () => void (can("tools:call") && past(id, stop.signal, add).catch(() => {}));
    read.current();
    const offs = [onGap(() => read.current()), onEvents((events) => add(events.filter((e) => e.key === id && e.type.startsWith("workflow."))))];
    return () => {
      stop.abort();
      for (const off of offs) off();
    };
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
