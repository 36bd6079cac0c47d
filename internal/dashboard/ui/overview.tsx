// The overview: current activity, usage, and pending decisions.
import { useEffect, useState } from "preact/hooks";
import { query, type Schemas } from "./api";
import { Series } from "./charts";
import { AsCurl, Badge, Empty, Loaded, Page, Panel } from "./components";
import { downloadCSV } from "./csv";
import { Figures, type Figure } from "./figures";
import { count, duration, percent, short } from "./format";
import { Line } from "./eventline";
import { onEvents, onGap, type LiveEvent } from "./live";
import { NeedsYou } from "./needsyou";
import { kinds, useGet, usePages } from "./resource";
import { link, parameter, setParameters } from "./router";
import { can, listens } from "./session";
import type { Counters, Stats } from "./stats";
import { Sunburst } from "./sunburst";

const windows: [string, string][] = [["1h", "1 hour"], ["24h", "24 hours"], ["7d", "7 days"]];

export function Overview() {
  const span = parameter("window") || "1h";
  const path = query("/api/v1/stats", { window: span });
  const counts = can("tasks:read", "tools:call", "agents:read");
  const stats = useGet<Stats>(counts ? path : undefined, kinds("task.", "tool.", "usage.", "worker.", "workflow."), 2000);
  const hierarchy = "/api/v1/hierarchy?depth=2&active_only=true&usage=true";
  const calls = [...(counts ? [{ path }] : []), ...(can("agents:read") ? [{ path: hierarchy }] : [])];
  return (
    <Page
      name="overview"
      title="Overview"
      ready={!stats.loading || Boolean(stats.data)}
      actions={
        counts && (
          <>
            <Span of={span} />
            {stats.data && (
              <button class="quiet" aria-label="Statistics as CSV" onClick={() => saveStats(stats.data!)}>
                CSV
              </button>
            )}
            <AsCurl calls={calls} />
          </>
        )
      }
    >
      <div class={counts ? "overview" : "stack"}>
        <NeedsYou />
        {counts && (
          <>
            <div class="totals">
              <Loaded of={stats}>{(s) => <Totals stats={s} />}</Loaded>
            </div>
            <div class="stack main">
              {can("agents:read") && <Spending path={hierarchy} />}
              {stats.data && <Charts stats={stats.data} />}
            </div>
          </>
        )}
        {listens() && (
          <div class="stack later">
            <Now />
            {can("tasks:read") && <Workers />}
          </div>
        )}
      </div>
    </Page>
  );
}

/** counters are the members of a step of the statistics. */
const counters: (keyof Counters)[] = ["tasks_created", "tasks_completed", "tasks_failed", "tasks_cancelled", "tasks_p50_ms", "tasks_p95_ms", "tool_calls", "tool_failures", "calls_p50_ms", "calls_p95_ms", "tokens"];

/** saveStats saves the steps of the statistics, with the counters that the token may see. */
function saveStats({ window, series, totals }: Stats) {
  const names = counters.filter((name) => totals[name] !== undefined || series.some((step) => step[name] !== undefined));
  downloadCSV(`comet-${window}.csv`, ["time", ...names], series.map((step) => [new Date(step.at).toISOString(), ...names.map((name) => step[name])]));
}

/** Span selects the time span of the figures and charts. */
function Span({ of }: { of: string }) {
  return (
    <div class="segments" role="group" aria-label="Time span">
      {windows.map(([id, text]) => (
        <button key={id} aria-pressed={id === of} onClick={() => setParameters({ window: id === "1h" ? undefined : id }, true)}>
          {text}
        </button>
      ))}
    </div>
  );
}

function Totals({ stats }: { stats: Stats }) {
  const { totals: t, now, step_seconds, series } = stats;
  const ended = (t.tasks_completed ?? 0) + (t.tasks_failed ?? 0);
  const seconds = step_seconds * series.length;
  const rate = (n: number | undefined) => (((n ?? 0) / seconds) * 60).toLocaleString("en-US", { maximumSignificantDigits: 2 });
  const figures: Figure[] = [
    ["Tasks completed", t.tasks_completed === undefined ? undefined : short(t.tasks_completed), rate(t.tasks_completed) + " a minute"],
    ["Tasks failed", t.tasks_failed === undefined ? undefined : short(t.tasks_failed), ended ? percent((t.tasks_failed ?? 0) / ended) : undefined],
    ["Task time, p95", t.tasks_p95_ms === undefined ? undefined : duration(t.tasks_p95_ms), "p50 " + duration(t.tasks_p50_ms)],
    ["Queued", now.tasks_queued === undefined ? undefined : count(now.tasks_queued), count(now.tasks_running) + " running"],
    ["Tool calls", t.tool_calls === undefined ? undefined : short(t.tool_calls), t.tool_calls ? percent((t.tool_failures ?? 0) / t.tool_calls) + " failed" : undefined],
    ["Tokens", t.tokens === undefined ? undefined : short(t.tokens), rate(t.tokens) + " a minute"],
    ["Workers", now.workers_online === undefined ? undefined : count((now.workers_online ?? 0) + (now.workers_busy ?? 0)), count(now.workers_busy) + " busy, " + count(now.workers_offline) + " offline"],
    ["Workflows", now.workflows_running === undefined ? undefined : count(now.workflows_running), count(now.workflows_paused) + " paused"],
  ];
  return <Figures of={figures} />;
}

function Charts({ stats }: { stats: Stats }) {
  const column = (name: keyof Counters) => stats.series.map((p) => p[name] ?? 0);
  const at = stats.series.map((p) => Date.parse(p.at) / 1000);
  const has = (name: keyof Counters) => stats.totals[name] !== undefined;
  return (
    <>
      {has("tokens") && (
        <Panel title="Tokens">
          <Series label="Tokens over time" at={at} lines={[{ name: "tokens", values: column("tokens"), colour: 1 }]} />
        </Panel>
      )}
      <div class="grid">
        {has("tasks_completed") && (
          <Panel title="Tasks" class="span-6">
            <Series label="Tasks over time" at={at} lines={[{ name: "completed", values: column("tasks_completed"), colour: 2 }, { name: "failed", values: column("tasks_failed"), colour: 4 }]} />
          </Panel>
        )}
        {has("tool_calls") && (
          <Panel title="Tool calls" class="span-6">
            <Series label="Tool calls over time" at={at} lines={[{ name: "calls", values: column("tool_calls"), colour: 5 }, { name: "failed", values: column("tool_failures"), colour: 4 }]} />
          </Panel>
        )}
      </div>
    </>
  );
}

function Spending({ path }: { path: string }) {
  const tree = useGet<Schemas["Hierarchy"]>(path, kinds("agent.", "usage."), 5000);
  return (
    <Panel title="Budgets today" actions={<a href={link("agents")}>All agents</a>}>
      <Loaded of={tree}>{(h) => <Sunburst root={h.root} />}</Loaded>
    </Panel>
  );
}

/** worthShowing excludes events that are too frequent to read. */
const worthShowing = (e: LiveEvent) => e.type !== "usage.changed" && e.type !== "task.progress";

/** Now shows the newest events, at most twenty. */
function Now() {
  const [fresh, setFresh] = useState<LiveEvent[]>([]);
  const past = useGet<Schemas["EventHistory"]>(can("tasks:read", "agents:read", "tools:call") ? "/api/v1/events/history?limit=40" : undefined);
  useEffect(() => {
    const offGap = onGap(() => setFresh([])); // the history is read again, with the events that were missed
    const offEvents = onEvents((events) => {
      const shown = events.filter(worthShowing);
      if (shown.length > 0) setFresh((old) => [...shown.slice(-20).reverse(), ...old].slice(0, 20));
    });
    return () => (offGap(), offEvents());
  }, []);
  const first = fresh[fresh.length - 1]?.position ?? Infinity;
  const older = ((past.data?.events ?? []) as LiveEvent[]).filter((e) => worthShowing(e) && e.position! < first).reverse();
  const events = [...fresh, ...older].slice(0, 20);
  return (
    <Panel title="Now" flush actions={can("tasks:read", "agents:read", "tools:call") && <a href={link("events")}>All events</a>}>
      {events.length === 0 ? (
        <Empty icon="events" title="No event yet">
          <span>Events appear here as they happen.</span>
        </Empty>
      ) : (
        <ol class="feed scroll" tabIndex={0} aria-label="Newest events">
          {events.map((e) => (
            <Line key={e.position ?? e.type + e.key + e.at} event={e} />
          ))}
        </ol>
      )}
    </Panel>
  );
}

function Workers() {
  const workers = usePages<Schemas["WorkerView"]>("/api/v1/workers?limit=50", "workers", kinds("worker.", "task.assigned", "task.completed", "task.failed"));
  return (
    <Panel title="Workers" flush>
      <Loaded of={workers}>
        {(list) =>
          list.length === 0 ? (
            <Empty icon="agents" title="No worker has connected yet">
              <code>comet worker -- your-command</code>
            </Empty>
          ) : (
            <>
              <ul class="feed scroll" tabIndex={0} aria-label="Workers">
                {list.map((w) => (
                  <li key={w.agent_id} style={{ gridTemplateColumns: "auto minmax(0,1fr) 120px" }}>
                    <Badge state={w.state} />
                    {can("agents:read") ? (
                      <a class="truncate" href={link("agents", w.agent_id)}>
                        {w.agent_id}
                      </a>
                    ) : (
                      <span class="truncate">{w.agent_id}</span>
                    )}
                    <span class="faint number">
                      {w.in_flight} of {w.concurrency} slots
                    </span>
                  </li>
                ))}
              </ul>
              {workers.more && <div class="more"><button class="quiet" onClick={workers.more}>Show more</button></div>}
            </>
          )
        }
      </Loaded>
    </Panel>
  );
}

