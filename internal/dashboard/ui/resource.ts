// Data of the REST API in views: read once, and again when an event says that it has changed.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { call, Problem } from "./api";
import { onEvents, onGap, type LiveEvent } from "./live";

export type Resource<T> = { data?: T; problem?: Problem; loading: boolean; reload: () => void };

/** Refresh selects the events after which a resource is read again. */
export type Refresh = (event: LiveEvent) => boolean;

/** retryAfter is the delay in milliseconds before a read that did not reach the server is repeated. */
const retryAfter = 2000;

/** quiet is the minimum time between two reads of a resource after events, in milliseconds. */
const quiet = 1000;

/** kinds selects the events whose type begins with one of the prefixes: kinds("task.", "worker."). */
export function kinds(...prefixes: string[]): Refresh {
  return (event) => prefixes.some((p) => event.type.startsWith(p));
}

/** never reads a resource only once, also after an outage: for calls that are paid for. */
export const never: Refresh = () => false;

/** about selects the events of one kind about one object. */
export function about(prefix: string, key: string): Refresh {
  return (event) => event.key === key && event.type.startsWith(prefix);
}

/** useGet reads a path of the API, nothing if it is undefined. While a changed path is read, the old data is shown. */
export function useGet<T>(path: string | undefined, refresh?: Refresh, spacing = quiet): Resource<T> {
  return useLoad(useCallback((signal: AbortSignal) => (path ? call<T>({ path }, signal) : Promise.resolve(undefined)), [path]), refresh, spacing);
}

/** useLoad is useGet for data that load reads; load must be stable (useCallback). */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T | undefined>, refresh?: Refresh, spacing = quiet): Resource<T> {
  const [state, setState] = useState<Omit<Resource<T>, "reload">>({ loading: true });
  const wanted = useRef(refresh);
  wanted.current = refresh;
  const reload = useRef(() => {});
  const source = useRef<unknown>(undefined); // the load function that returned the data that is shown

  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let running = false;
    let again = false;
    let began = 0;
    const read = async () => {
      timer = undefined;
      if (running) {
        again = true;
        return;
      }
      running = true;
      began = Date.now();
      try {
        const data = await load(stop.signal);
        if (stop.signal.aborted) return;
        source.current = load;
        setState({ data, loading: false });
      } catch (thrown) {
        if (stop.signal.aborted) return;
        const problem = Problem.of(thrown);
        const retries = problem.status === 0 && wanted.current !== never;
        setState((old) => ({ data: source.current === load ? old.data : undefined, problem: retries ? problem.with(" The page retries until it does.") : problem, loading: false }));
        if (retries) timer ??= setTimeout(read, retryAfter);
      }
      running = false;
      if (again && !stop.signal.aborted) {
        again = false;
        soon();
      }
    };
    const soon = () => {
      timer ??= setTimeout(read, Math.max(50, began + spacing - Date.now()));
    };
    reload.current = () => (clearTimeout(timer), void read());
    setState((old) => ({ ...old, loading: true, problem: undefined }));
    void read();
    const offEvents = onEvents((events) => {
      if (wanted.current && events.some(wanted.current)) soon();
    });
    const offGap = onGap(() => wanted.current !== never && soon());
    return () => {
      stop.abort();
      clearTimeout(timer);
      offEvents();
      offGap();
    };
  }, [load]);

  return { ...state, reload: useCallback(() => reload.current(), []) };
}

export type Pages<T> = Resource<T[]> & { more?: () => void };

/** usePages reads a list of the API: its first page, and more pages on request. Events refresh all that is shown. */
export function usePages<T>(path: string | undefined, member: string, refresh?: Refresh, spacing = quiet): Pages<T> {
  const [pages, setPages] = useState({ path, count: 1 });
  const count = pages.path === path ? pages.count : 1;
  const load = useCallback(
    async (signal: AbortSignal) => {
      if (!path) return undefined;
      const rows: T[] = [];
      let cursor: string | undefined;
      for (let i = 0; i < count; i++) {
        const page: Record<string, any> = await call({ path: cursor ? path + (path.includes("?") ? "&" : "?") + "cursor=" + encodeURIComponent(cursor) : path }, signal);
        rows.push(...page[member]);
        cursor = page.next_cursor;
        if (!cursor) break;
      }
      return { rows, cursor };
    },
    [path, count, member],
  );
  const { data, ...rest } = useLoad(load, refresh, spacing);
  return { ...rest, data: data?.rows, more: data?.cursor ? () => setPages({ path, count: count + 1 }) : undefined };
}

/** useRepeat polls a resource while part of it is about to change without an event. */
export function useRepeat(reload: () => void, active: boolean, every = 2000) {
  useEffect(() => {
    if (!active) return;
    const timer = setInterval(() => document.hidden || reload(), every);
    return () => clearInterval(timer);
  }, [reload, active, every]);
}
