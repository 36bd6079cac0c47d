// Whether agents have a connected worker.
import { useCallback } from "preact/hooks";
import { call, query, type Schemas } from "./api";
import { Badge } from "./components";
import { kinds, useLoad } from "./resource";
import { can } from "./session";

export type Worker = Schemas["WorkerView"];

/** useWorkers reads all workers by the id of their agent, or nothing if the token may not read them. */
export function useWorkers(): Map<string, Worker> | undefined {
  const load = useCallback(async (signal: AbortSignal) => {
    if (!can("tasks:read")) return undefined;
    const out = new Map<string, Worker>();
    let cursor: string | undefined;
    do {
      const page: Schemas["WorkerList"] = await call({ path: query("/api/v1/workers", { limit: 1000, cursor }) }, signal);
      for (const w of page.workers) out.set(w.agent_id, w);
      cursor = page.next_cursor;
    } while (cursor);
    return out;
  }, []);
  return useLoad(load, kinds("worker.", "task.assigned", "task.completed", "task.failed"), 3000).data;
}

/** WorkerState shows whether a worker is connected, and "none" for agents that never had a worker. */
export const WorkerState = ({ of }: { of: Worker | undefined }) => (of ? <Badge state={of.state} /> : <span class="faint">none</span>);
