// Components shared by the views of tasks.
import { Badge } from "./components";
import { link } from "./router";
import { can } from "./session";
import type { Task } from "./tasklist";

/** TaskState shows the state of a task, and what an open task is waiting for. */
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
