// The log of events: live, or at an earlier position.
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call, Problem, query, type Schemas } from "./api";
import { AsCurl, Empty, Filter, Json, Loaded, Page, Panel, Search, Tag, Time } from "./components";
import { describe, hrefOf } from "./eventline";
import { clock, count } from "./format";
import { onEvents, onGap, position, type LiveEvent } from "./live";
import { useLoad } from "./resource";
import { parameter, setParameters } from "./router";
import { can, type Scope } from "./session";
import { notify } from "./toasts";

/** most is how many events are shown. */
const most = 500;

/** groups are the kinds of events. A token needs one of the listed scopes to see them. */
const groups: [string, string, ...Scope[]][] = [["task", "Tasks", "tasks:read"], ["agent", "Agents", "agents:read"], ["worker", "Workers", "tasks:read"], ["tool", "Tools", "tools:call"], ["workflow", "Workflows", "tools:call", "workflows:approve"], ["upstream", "MCP servers", "admin"], ["token", "Tokens", "admin"], ["schedule", "Schedules", "tasks:read"], ["graph", "Tool graph", "admin"]];

/** matches reports whether an event has the selected kind and contains the text. */
function matches(e: LiveEvent, group: string, text: string): boolean {
  return (!group || e.type.startsWith(group + ".")) && (!text || (e.type + " " + e.key + " " + JSON.stringify(e.data)).toLowerCase().includes(text.toLowerCase()));
}

/** EventLog is a part of the history, newest event first. next is the position before which it continues; it is absent at the end
 * of the history. */
type EventLog = { rows: LiveEvent[]; oldest: number; next?: number };

/** readLog reads matching events before a position, from at most five pages of the history. */
async function readLog(before: number | undefined, group: string, text: string, signal?: AbortSignal): Promise<EventLog> {
  const log: EventLog = { rows: [], oldest: 0 };
  for (let pages = 0; pages < 5 && log.rows.length < 200; pages++) {
    const page = await call<Schemas["EventHistory"]>({ path: historyPath(before, text ? 1000 : 200, group) }, signal);
    log.rows.push(...(page.events as LiveEvent[]).reverse().filter((e) => matches(e, group, text)));
    log.oldest = page.oldest_position;
    log.next = before = page.next_before ?? undefined;
    if (!before) break;
  }
  return log;
}

const historyPath = (before: number | undefined, limit: number, group: string) => query("/api/v1/events/history", { before, limit, types: group && group + ".*" });

export function Events() {
  const group = parameter("kind");
  const text = parameter("q");
  const wanted = Math.trunc(Number(parameter("at")));
  const at = wanted > 0 && !(position.value && wanted > position.value) ? wanted : 0; // the position that is shown, 0 for live
  const before = at ? at + 1 : undefined;
  const [paused, setPaused] = useState(false);
  const [continued, setContinued] = useState(0); // events of a pause are read from the history
  const history = useLoad(useCallback((signal: AbortSignal) => readLog(before, group, text, signal), [before, group, text, continued]));
  const [log, further] = useFurther(history.data, (next) => readLog(next, group, text));
  const [fresh, setFresh] = useState<LiveEvent[]>([]);
  const live = at === 0 && !paused;
  useEffect(() => setFresh([]), [at === 0, group, text, continued]);
  useEffect(() => {
    if (!live) return;
    const offGap = onGap(() => setFresh([]));
    const offEvents = onEvents((events) => {
      const shown = events.filter((e) => e.position !== undefined && matches(e, group, text));
      if (shown.length > 0) setFresh((old) => [...shown.slice(-most).reverse(), ...old].slice(0, most));
    });
    return () => (offGap(), offEvents());
  }, [live, group, text]);
  const pause = () => {
    if (paused) setContinued(continued + 1);
    setPaused(!paused);
  };
  const backToLive = () => {
    setPaused(false);
    setParameters({ at: "" });
  };
  const old = (log?.rows ?? []).filter((e) => matches(e, group, text));
  const known = fresh[fresh.length - 1]?.position ?? Infinity;
  const rows = [...(at ? [] : fresh), ...(at ? old : old.filter((e) => e.position! < known))].slice(0, most);
  return (
    <Page
      name="events"
      title="Events"
      ready={!history.loading || Boolean(history.data)}
      actions={<AsCurl calls={[{ path: "/api/v1/events" }, { path: historyPath(before, 200, group) }]} />}
    >
      <div class="filters" role="search">
        <Filter name="kind" label="Kind" options={[["", "All"], ...groups.filter(([, , ...scopes]) => can(...scopes)).map(([kind, title]): [string, string] => [kind, title])]} />
        <Search name="q" label="Text in the event" />
        {at === 0 ? (
          <button aria-pressed={paused} onClick={pause}>
            {paused ? "Continue" : "Pause"}
          </button>
        ) : (
          <button class="primary" onClick={backToLive}>
            Back to live
          </button>
        )}
      </div>
      {history.data && <Scrubber oldest={history.data.oldest} at={at} />}
      <Panel title={at ? `Events up to position ${count(at)}` : paused ? "Events, paused" : "Events, live"} flush>
        <Loaded of={history}>
          {() => (
            <>
              {rows.length === 0 ? <Empty icon="events" title={!group && !text ? "No event yet" : log?.next ? "No newer event matches these filters" : "No event matches these filters"} /> : <Log rows={rows} opened={() => setPaused(true)} />}
              {log?.next && rows.length < most && <Further from={log.next} read={further} />}
            </>
          )}
        </Loaded>
      </Panel>
    </Page>
  );
}

/** useFurther returns a part of the history, extended by the older parts read so far, and a function that reads the next one. */
function useFurther(first: EventLog | undefined, read: (next: number) => Promise<EventLog>): [EventLog | undefined, () => Promise<void>] {
  const [older, setOlder] = useState<{ of?: EventLog; log?: EventLog }>({});
  const log = older.of === first ? (older.log ?? first) : first;
  return [
    log,
    async () => {
      if (!log?.next) return;
      const more = await read(log.next);
      setOlder({ of: first, log: { ...more, rows: [...log.rows, ...more.rows] } });
    },
  ];
}

/** Further continues the search before a position. */
function Further({ from, read }: { from: number; read: () => Promise<void> }) {
  const [busy, setBusy] = useState(false);
  const click = async () => {
    setBusy(true);
    await read().catch((thrown) => notify("bad", Problem.of(thrown).text));
    setBusy(false);
  };
  return (
    <div class="more">
      <button disabled={busy} onClick={click}>
        Show events before position {count(from)}
      </button>
    </div>
  );
}

/** Scrubber moves back in time: over the positions of all retained events. */
function Scrubber({ oldest, at }: { oldest: number; at: number }) {
  const newest = Math.max(position.value, 1);
  const [dragged, setDragged] = useState<number>(); // live events must not move the slider under the pointer
  const shown = dragged ?? at;
  const move = (to: number) => setParameters({ at: to >= newest ? "" : String(Math.max(oldest, to)) });
  return (
    <div class="scrubber">
      <button class="quiet" aria-label="200 events earlier" onClick={() => move((at || newest) - 200)}>
        ‹
      </button>
      <input
        type="range"
        aria-label="Position"
        aria-valuetext={shown ? "position " + shown : "live"}
        min={oldest}
        max={newest}
        value={shown || newest}
        onInput={(e) => setDragged(Number(e.currentTarget.value))}
        onChange={(e) => (setDragged(undefined), move(Number(e.currentTarget.value)))}
      />
      <button class="quiet" aria-label="200 events later" disabled={at === 0} onClick={() => move(at + 200)}>
        ›
      </button>
      <span class="faint number">
        {shown ? count(shown) : "live"} of {count(newest)}
      </span>
    </div>
  );
}

/** Log shows events; opened is called when details are opened, so that they stay in view. */
function Log({ rows, opened }: { rows: LiveEvent[]; opened: () => void }) {
  const [open, setOpen] = useState<number>();
  const toggle = (e: LiveEvent) => {
    if (open !== e.position) opened();
    setOpen(open === e.position ? undefined : e.position);
  };
  return (
    <ol class="log">
      {rows.map((e) => (
        <Entry key={e.position} event={e} open={open === e.position} toggle={toggle} />
      ))}
    </ol>
  );
}

/** Entry is one event. It is rendered again only when it is opened or closed, however many events arrive. */
function Entry({ event: e, open, toggle }: { event: LiveEvent; open: boolean; toggle: (event: LiveEvent) => void }) {
  const latest = useRef(toggle);
  latest.current = toggle;
  return useMemo(() => {
    const href = hrefOf(e);
    return (
      <li>
        <button class="entry" aria-expanded={open} onClick={() => latest.current(e)}>
          <span class="faint number">{count(e.position!)}</span>
          <time dateTime={e.at} title={e.at}>
            {clock(e.at)}
          </time>
          <Tag>{e.type}</Tag>
          <span class="truncate">
            {describe(e)} <span class="muted">{e.key}</span>
          </span>
        </button>
        {open && (
          <div class="stack tight details">
            <div class="row">
              <Time at={e.at} /> {href && <a href={href}>Open {e.key}</a>}
            </div>
            <Json label="Data of the event" value={e} />
          </div>
        )}
      </li>
    );
  }, [e, open]);
}
