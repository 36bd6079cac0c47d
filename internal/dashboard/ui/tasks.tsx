// The list of tasks.
import { useState } from "preact/hooks";
import { query, type Schemas } from "./api";
import { AsCurl, Empty, Filter, Loaded, Page, Panel, Search, Table, Time } from "./components";
import { between, count } from "./format";
import { FormDialog } from "./form";
import { kinds, useGet } from "./resource";
import { link, navigate, parameter, setParameters } from "./router";
import { can, manages, me } from "./session";
import { useTaskList, type Selection, type Task } from "./tasklist";
import { AgentLink, TaskState, what } from "./taskparts";

const states: [string, string][] = [["", "Any state"], ["new", "New"], ["running", "Running"], ["done", "Done"], ["failed", "Failed"], ["cancelled", "Cancelled"]];

/** spans are the time spans that can be selected, in minutes before now. */
const spans: [string, string, number][] = [["15m", "Last 15 minutes", 15], ["1h", "Last hour", 60], ["24h", "Last 24 hours", 1440], ["7d", "Last 7 days", 10_080]];

/** filters are the query parameters that select tasks. */
const filters = ["state", "agent", "session", "id", "owner", "time", "since", "until"];

/** selection returns the selection of tasks in the address of the view. */
function selection(): Selection {
  const given = Object.fromEntries(filters.map((name) => [name, parameter(name)]));
  const minutes = spans.find(([id]) => id === given.time)?.[2];
  const since = () => (minutes ? new Date(Date.now() - minutes * 60_000).toISOString() : given.since);
  const mine = given.owner === "mine";
  return {
    parameters: () => ({ state: given.state, agent_id: given.agent, session_id: given.session, id_prefix: given.id, owner: mine ? "" : given.owner, mine: mine ? "true" : "", since: since(), until: given.until }),
    state: given.state ?? "",
    agent: given.agent ?? "",
    grows: !given.until || Date.parse(given.until) > Date.now(),
  };
}

export function Tasks() {
  const [creating, setCreating] = useState(false);
  const list = useTaskList(filters.map(parameter).join("\n"), selection);
  return (
    <Page
      name="tasks"
      title="Tasks"
      ready={Boolean(list.rows || list.problem)}
      actions={
        <>
          <AsCurl calls={[{ path: query("/api/v1/tasks", { ...selection().parameters(), limit: 50 }) }]} />
          {can("messages:send") && (
            <button class="primary" onClick={() => setCreating(true)}>
              New task
            </button>
          )}
        </>
      }
    >
      <div class="filters" role="search">
        <Filter name="state" label="State" options={states} />
        {can("tasks:read") && <Owner />}
        <Created />
        <Search name="id" label="Id starts with" />
        <Search name="agent" label="Agent" placeholder="Agent id" />
        {parameter("session") && (
          <button class="quiet" onClick={() => setParameters({ session: "" }, true)}>
            Session {parameter("session")} ✕
          </button>
        )}
      </div>
      <Panel title="Tasks, newest first" flush>
        <div class="fresh" role="status">
          {list.fresh > 0 && (
            <button class="primary" onClick={() => (scrollTo(0, 0), void list.showFresh())}>
              {list.fresh === 1 ? "1 new task" : list.fresh + " new tasks"}
            </button>
          )}
        </div>
        <Loaded of={{ data: list.rows, problem: list.problem, loading: !list.rows, reload: list.reload }}>{(rows) => <Rows rows={rows} more={list.more ? list.older : undefined} />}</Loaded>
      </Panel>
      {creating && <TaskForm close={() => setCreating(false)} />}
    </Page>
  );
}

/** Owner selects the token that requested the tasks, among those that the viewer can see. */
function Owner() {
  const tokens = useGet<Schemas["TokenList"]>(manages() ? "/api/v1/tokens?limit=1000" : undefined, kinds("token."), 5000);
  const known = (tokens.data?.tokens ?? []).filter((t) => t.id !== me.value?.token.id);
  const chosen = parameter("owner");
  const options: [string, string][] = known.map((t) => [t.id, t.name + (t.revoked_at ? " (revoked)" : "")]);
  if (chosen && chosen !== "mine" && !known.some((t) => t.id === chosen)) options.unshift([chosen, chosen]);
  return <Filter name="owner" label="Requested by" options={[["", "Any token"], ["mine", "My token"], ...options]} />;
}

/** Created selects the time span in which the tasks were created. */
function Created() {
  const custom = parameter("time") === "custom" || Boolean(parameter("since") || parameter("until"));
  const choose = (time: string) => setParameters({ time, since: "", until: "" }, true);
  return (
    <>
      <label>
        Created
        <select value={custom ? "custom" : parameter("time")} onChange={(e) => choose(e.currentTarget.value)}>
          <option value="">At any time</option>
          {spans.map(([id, text]) => (
            <option key={id} value={id}>
              {text}
            </option>
          ))}
          <option value="custom">Between …</option>
        </select>
      </label>
      {custom && <Moment name="since" label="From" />}
      {custom && <Moment name="until" label="Until" />}
    </>
  );
}

/** Moment is a local date and time that is kept in a query parameter. */
function Moment({ name, label }: { name: string; label: string }) {
  const at = Date.parse(parameter(name));
  const local = Number.isNaN(at) ? "" : new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
  const change = (value: string) => setParameters({ time: "custom", [name]: value ? new Date(value).toISOString() : "" }, true);
  return (
    <label>
      {label}
      <input type="datetime-local" value={local} onChange={(e) => change(e.currentTarget.value)} />
    </label>
  );
}

function Rows({ rows, more }: { rows: Task[]; more?: () => void }) {
  return (
    <Table
      label="Tasks"
      rows={rows}
      id={(t) => t.id}
      href={(t) => link("tasks", t.id)}
      more={more}
      empty={
        filters.some(parameter) ? (
          <Empty icon="search" title="No task matches these filters" />
        ) : (
          <Empty icon="tasks" title="No task yet">
            <code>comet send greet name=Ada</code>
          </Empty>
        )
      }
      columns={[
        {
          title: "Task",
          cell: (t) => (
            <span class="stack" style={{ gap: 0 }}>
              <a class="truncate" href={link("tasks", t.id)}>
                {what(t)}
              </a>
              <code class="faint">{t.id}</code>
            </span>
          ),
        },
        { title: "State", cell: (t) => <TaskState task={t} /> },
        { title: "Agent", cell: (t) => t.agent_id && <AgentLink id={t.agent_id} /> },
        { title: "Progress", number: true, cell: (t) => (t.state === "running" ? t.progress + " %" : "") },
        { title: "Attempt", number: true, cell: (t) => t.attempt || "" },
        { title: "Tokens", number: true, cell: (t) => <span class="nowrap">{t.budget === null ? count(t.tokens) : count(t.tokens) + " of " + count(t.budget)}</span> },
        { title: "Duration", number: true, cell: (t) => <span class="nowrap">{between(t.created_at, t.ended_at)}</span> },
        { title: "Submitted", cell: (t) => <Time at={t.created_at} /> },
      ]}
    />
  );
}

function TaskForm({ close }: { close: () => void }) {
  return (
    <FormDialog<Task>
      title="New task"
      submit="Submit task"
      message="Task submitted."
      close={close}
      done={(task) => (close(), navigate(link("tasks", task.id)))}
      fields={[
        { name: "capabilities", label: "Capabilities", kind: "list", hint: "What the agent must be able to do. One per line, such as custom:greet." },
        { name: "agent_type", label: "Agent type" },
        { name: "agent_id", label: "Agent", hint: "Only this agent may execute the task." },
        { name: "parameters", label: "Parameters", kind: "json", hint: "A JSON object." },
        { name: "priority", label: "Priority", kind: "number", hint: "0 to 3; 3 is the highest." },
        { name: "budget", label: "Budget (tokens)", kind: "number" },
        { name: "timeout_ms", label: "Time limit (milliseconds)", kind: "number" },
      ]}
      call={(body) => ({ method: "POST", path: "/api/v1/tasks", body })}
    />
  );
}
