// One event as a sentence with a link to what it is about.
import { query } from "./api";
import { clock, count } from "./format";
import type { LiveEvent } from "./live";
import { link } from "./router";
import { visible } from "./sections";
import { can } from "./session";

/** sectionOf is the view of what an event is about, by the first word of its type. */
const sectionOf: Record<string, string> = { task: "tasks", agent: "agents", usage: "agents", ledger: "agents", worker: "agents", workflow: "workflows", upstream: "tools", tool: "tools" };

/** hrefOf returns the address of what an event is about, undefined if the token may not see it. */
export function hrefOf(e: LiveEvent): string | undefined {
  if (e.type.startsWith("workflow.definition_")) return can("tools:call") ? query(link("workflows"), { tab: "definitions", definition: e.type === "workflow.definition_saved" && e.key }) : undefined;
  const section = sectionOf[e.type.split(".")[0]!];
  return section && visible().some((s) => s.id === section) ? link(section, e.key) : undefined;
}

/** describe returns what happened: the verb of the event and its most important data. */
export function describe(e: LiveEvent): string {
  const [kind = "", verb = ""] = e.type.split(".");
  const d = e.data ?? {};
  const details = [
    kind === "worker" && d.state ? d.state : "",
    d.progress !== undefined && verb === "progress" ? d.progress + " %" : "",
    d.agent_id && kind !== "agent" && d.agent_id !== e.key ? "by " + d.agent_id : "",
    d.tokens ? count(d.tokens) + " tokens" : "",
  ].filter(Boolean);
  const reason = d.failure || d.error || d.question || d.reason;
  return [kind, verb.replaceAll("_", " "), ...details].join(" ") + (reason ? ": " + reason : "");
}

export function Line({ event }: { event: LiveEvent }) {
  const href = hrefOf(event);
  return (
    <li>
      <time dateTime={event.at}>{clock(event.at)}</time>
      <span class="truncate" title={event.type + " " + event.key}>
        {describe(event)} {href ? <a href={href}>{event.key}</a> : <span class="muted">{event.key}</span>}
      </span>
    </li>
  );
}
