// The audit log of tool calls.
import { query, type Schemas } from "./api";
import { Empty, Filter, Loaded, Panel, Search, Table, Tag, Time } from "./components";
import { count, duration } from "./format";
import { kinds, usePages } from "./resource";
import { link, parameter } from "./router";
import { can } from "./session";
import { Class, Outcome, ToolsPage } from "./toolparts";

type ToolCall = Schemas["ToolCallView"];

/** filters are the query parameters of the list that are entered as text. */
const filters: [string, string][] = [
  ["server", "Server"],
  ["tool", "Tool"],
  ["agent_id", "Agent"],
  ["task_id", "Task"],
];

export function ToolCalls() {
  const names = [...filters.map(([name]) => name), "outcome", "token_id", "parent_id"];
  const wanted = Object.fromEntries(names.map((name) => [name, parameter(name)]));
  const path = query("/api/v1/tools/calls", { ...wanted, limit: 50 });
  const calls = usePages<ToolCall>(path, "calls", kinds("tool.called", "tool.failed"));
  const filtered = Object.values(wanted).some(Boolean);
  return (
    <ToolsPage ready={!calls.loading || Boolean(calls.data)} calls={[{ path }]}>
      <div class="filters calls" role="search">
        {filters.map(([name, text]) => (
          <Search key={name} name={name} label={text} />
        ))}
        <Filter name="outcome" label="Outcome" options={[["", "All"], ["success", "success"], ["error", "error"], ["refused", "refused"]]} />
        {filtered && <a href={query(link("tools"), { tab: "calls" })}>Clear</a>}
      </div>
      <Panel title="Calls, newest first" flush>
        <Loaded of={calls}>
          {(rows) => (
            <Table
              label="Tool calls"
              rows={rows}
              id={(c) => c.id}
              more={calls.more}
              empty={<Empty icon="tools" title={filtered ? "No call matches" : "No tool has been called yet"} />}
              columns={[
                { title: "Time", cell: (c) => <Time at={c.at} /> },
                { title: "Tool", cell: (c) => <a class="nowrap" href={link("tools", c.tool)}>{c.tool}</a> },
                { title: "Class", cell: (c) => <Class of={c.class} /> },
                { title: "Outcome", cell: (c) => <CallOutcome call={c} /> },
                { title: "Duration", number: true, cell: (c) => <span class="nowrap">{duration(c.duration_ms)}</span> },
                { title: "Tokens", number: true, cell: (c) => count(c.tokens) },
                { title: "Source", cell: (c) => <Tag>{c.source}</Tag> },
                { title: "Agent", cell: (c) => (can("agents:read") ? <a href={link("agents", c.agent_id)}>{c.agent_id}</a> : c.agent_id) },
                { title: "Token", cell: (c) => <a href={query(link("tools"), { tab: "calls", token_id: c.token_id })}>{c.actor}</a> },
                { title: "For", cell: (c) => <Origin call={c} /> },
              ]}
            />
          )}
        </Loaded>
      </Panel>
    </ToolsPage>
  );
}

function CallOutcome({ call: c }: { call: ToolCall }) {
  return (
    <>
      <Outcome of={c.outcome} />
      {c.error && <span class="faint nowrap callerror">{c.error}</span>}
    </>
  );
}

/** Origin links the task or the execution of code that made a call. */
function Origin({ call: c }: { call: ToolCall }) {
  if (c.task_id) return can("tasks:read") ? <a href={link("tasks", c.task_id)}>task</a> : <span title={c.task_id}>task</span>;
  if (c.parent_id) return <a href={query(link("tools"), { tab: "calls", parent_id: c.parent_id })}>code</a>;
  return <span class="faint">–</span>;
}
