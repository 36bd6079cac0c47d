// The list of tasks.
import { useState } from "preact/hooks";
import { query, type Schemas } from "./api";
import { AsCurl, Badge, Empty, Filter, Loaded, Page, Panel, Search, Table, Time } from "./components";
import { between, count } from "./format";
import { FormDialog } from "./form";
import { kinds, usePages } from "./resource";
import { link, navigate, parameter, setParameters } from "./router";
import { can } from "./session";

export type Task = Schemas["TaskView"];

const states: [string, string][] = [["", "Any state"], ["new", "New"], ["running", "Running"], ["done", "Done"], ["failed", "Failed"], ["cancelled", "Cancelled"]];

/** TaskState shows the state of a task, and what an open task waits for. */
export function TaskState({ task }: { task: Task }) {
  const open = task.state === "new" || task.state === "running";
  if (open && task.waiting_for) return <Badge state="waiting" text={(task.waiting_for === "worker" ? "queued" : "waiting for " + task.waiting_for) + (task.wait_cause ? ": " + task.wait_cause.replaceAll("_", " ") : "")} />;
  if (task.state === "done") return <Badge state="completed" text="done" />;
  return <Badge state={task.state} of={task.state === "cancelled" ? "" : undefined} />;
}

/** what names the work of a task: its capabilities, its agent type, or its class. */
export const what = (t: Task) => t.capabilities?.map((c) => c.replace(/^custom:/, "")).join(", ") || t.agent_type || t.class || "task";

/** AgentLink is a link to an agent, or only its id if the token may not see agents. */
export const AgentLink = ({ id }: { id: string }) => (can("agents:read") ? <a href={link("agents", id)}>{id}</a> : <>{id}</>);

export function Tasks() {
  const [creating, setCreating] = useState(false);
  const path = query("/api/v1/tasks", {
    state: parameter("state"),
    agent_id: parameter("agent"),
    session_id: parameter("session"),
    id_prefix: parameter("id"),
    mine: parameter("mine"),
    limit: 50,
  });
  const list = usePages<Task>(path, "tasks", kinds("task."));
  const filtered = ["state", "agent", "session", "id", "mine"].some(parameter);
  return (
    <Page
      name="tasks"
      title="Tasks"
      ready={!list.loading || Boolean(list.data)}
      actions={
        <>
          <AsCurl calls={[{ path }]} />
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
        <Search name="id" label="Id starts with" />
        <Search name="agent" label="Agent" placeholder="Agent id" />
        {can("tasks:read") && (
          <label>
            <input type="checkbox" checked={parameter("mine") === "true"} onChange={(e) => setParameters({ mine: e.currentTarget.checked ? "true" : "" })} /> requested with my token
          </label>
        )}
        {parameter("session") && (
          <button class="quiet" onClick={() => setParameters({ session: "" })}>
            Session {parameter("session")} ✕
          </button>
        )}
      </div>
      <Panel title="Tasks" flush>
        <Loaded of={list}>
          {(rows) => (
            <Table
              label="Tasks"
              rows={rows}
              id={(t) => t.id}
              href={(t) => link("tasks", t.id)}
              more={list.more}
              empty={
                filtered ? (
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
                { title: "Tokens", number: true, cell: (t) => count(t.tokens) },
                { title: "Duration", number: true, cell: (t) => <span class="nowrap">{between(t.created_at, t.ended_at)}</span> },
                { title: "Submitted", cell: (t) => <Time at={t.created_at} /> },
              ]}
            />
          )}
        </Loaded>
      </Panel>
      {creating && <TaskForm close={() => setCreating(false)} />}
    </Page>
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
