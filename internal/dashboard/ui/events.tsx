// The log of events: live, or at an earlier position.
import { useCallback, useEffect, useState } from "preact/hooks";
import { call, query, type Schemas } from "./api";
import { AsCurl, Empty, Filter, Json, Loaded, Page, Panel, Search, Tag, Time } from "./components";
import { describe, hrefOf } from "./eventline";
import { clock, count } from "./format";
import { onEvents, position, type LiveEvent } from "./live";
import { useLoad } from "./resource";
import { parameter, setParameters } from "./router";

/** most is how many events are shown. */
const most = 500;

const groups: [string, string][] = [["", "All"], ["task", "Tasks"], ["agent", "Agents"], ["worker", "Workers"], ["tool", "Tools"], ["workflow", "Workflows"], ["upstream", "MCP servers"], ["token", "Tokens"], ["schedule", "Schedules"], ["graph", "Tool graph"]];

/** matches reports whether an event has the selected kind and contains the text. */
function matches(e: LiveEvent, group: string, text: string): boolean {
  return (!group || e.type.startsWith(group + ".")) && (!text || (e.type + " " + e.key + " " + JSON.stringify(e.data)).toLowerCase().includes(text.toLowerCase()));
}

export function Events() {
  const group = parameter("kind");
  const text = parameter("q");
  const at = Number(parameter("at")) || 0; // the position that is shown, 0 for live
  const path = query("/api/v1/events/history", { before: at ? at + 1 : undefined, limit: 200 });
  const history = useLoad(useCallback((signal: AbortSignal) => call<Schemas["EventHistory"]>({ path }, signal), [path]));
  const [fresh, setFresh] = useState<LiveEvent[]>([]);
  const [paused, setPaused] = useState(false);
  const live = at === 0 && !paused;
  useEffect(() => {
    if (!live) return;
    setFresh([]);
    return onEvents((events) => {
      const shown = events.filter((e) => e.position !== undefined);
      setFresh((old) => [...shown.slice(-most).reverse(), ...old].slice(0, most));
    });
  }, [live]);
  const old = [...((history.data?.events ?? []) as LiveEvent[])].reverse();
  const newest = fresh[fresh.length - 1]?.position ?? Infinity;
  const rows = [...(at ? [] : fresh), ...old.filter((e) => e.position! < newest)].filter((e) => matches(e, group, text)).slice(0, most);
  return (
    <Page
      name="events"
      title="Events"
      ready={!history.loading || Boolean(history.data)}
      actions={<AsCurl calls={[{ path: "/api/v1/events" }, { path }]} />}
    >
      <div class="filters" role="search">
        <Filter name="kind" label="Kind" options={groups} />
        <Search name="q" label="Text in the event" />
        {at === 0 ? (
          <button aria-pressed={paused} onClick={() => setPaused(!paused)}>
            {paused ? "Continue" : "Pause"}
          </button>
        ) : (
          <button class="primary" onClick={() => setParameters({ at: "" })}>
            Back to live
          </button>
        )}
      </div>
      {history.data && <Scrubber oldest={history.data.oldest_position} at={at} />}
      <Panel title={at ? `Events up to position ${count(at)}` : paused ? "Events, paused" : "Events, live"} flush>
        <Loaded of={history}>{() => (rows.length === 0 ? <Empty icon="events" title={group || text ? "No event matches these filters" : "No event yet"} /> : <Log rows={rows} />)}</Loaded>
      </Panel>
    </Page>
  );
}

/** Scrubber moves back in time: over the positions of all retained events. */
function Scrubber({ oldest, at }: { oldest: number; at: number }) {
  const newest = Math.max(position.value, 1);
  const move = (to: number) => setParameters({ at: to >= newest ? "" : String(Math.max(oldest, to)) });
  return (
    <div class="scrubber">
      <button class="quiet" aria-label="200 events earlier" onClick={() => move((at || newest) - 200)}>
        ‹
      </button>
      <input type="range" aria-label="Position" aria-valuetext={at ? "position " + at : "live"} min={oldest} max={newest} value={at || newest} onChange={(e) => move(Number(e.currentTarget.value))} />
      <button class="quiet" aria-label="200 events later" disabled={at === 0} onClick={() => move(at + 200)}>
        ›
      </button>
      <span class="faint number">
        {at ? count(at) : "live"} of {count(newest)}
      </span>
    </div>
  );
}

function Log({ rows }: { rows: LiveEvent[] }) {
  const [open, setOpen] = useState<number>();
  return (
    <ol class="log">
      {rows.map((e) => {
        const href = hrefOf(e);
        const shown = open === e.position;
        return (
          <li key={e.position}>
            <button class="entry" aria-expanded={shown} onClick={() => setOpen(shown ? undefined : e.position)}>
              <span class="faint number">{count(e.position)}</span>
              <time dateTime={e.at} title={e.at}>
                {clock(e.at)}
              </time>
              <Tag>{e.type}</Tag>
              <span class="truncate">
                {describe(e)} <span class="muted">{e.key}</span>
              </span>
            </button>
            {shown && (
              <div class="stack tight details">
                <div class="row">
                  <Time at={e.at} /> {href && <a href={href}>Open {e.key}</a>}
                </div>
                <Json label="Data of the event" value={e} />
              </div>
            )}
          </li>
        );
      })}
    </ol>
  );
}
