// The panel of items that need a person's decision.
import type { ComponentChildren } from "preact";
import type { Schemas } from "./api";
import { Badge, Empty, Panel, Skeleton, Time } from "./components";
import { ProblemNotice } from "./problem";
import { kinds, usePages, useRepeat, type Refresh } from "./resource";
import { link } from "./router";
import { can } from "./session";
import { what } from "./taskparts";
import { useServers } from "./toolservers";
import { decisions, RunName, usePolling, waitingPath, type Summary } from "./workflowparts";

type Waiting = { key: string; kind: string; text?: string; title: ComponentChildren; since: string; href: string };

/** questions selects the events after which a question of an agent may be open or answered. */
const questions: Refresh = (e) => /^task\.(question|replied|cancelled|failed|completed|retried)$/.test(e.type);

/** NeedsYou lists what a person must decide: workflows to approve, questions of agents, and servers with a failure or with tools in quarantine. */
export function NeedsYou() {
  const workflows = usePages<Summary>(can("tools:call", "workflows:approve") ? waitingPath : undefined, "workflows", kinds("workflow."));
  usePolling(workflows.reload);
  const tasks = usePages<Schemas["TaskView"]>(can("tasks:read", "messages:send") ? "/api/v1/tasks?waiting_for=reply" : undefined, "tasks", questions, 2000);
  useRepeat(tasks.reload, !can("tasks:read"), 5000);
  const servers = useServers();
  const reads = [workflows, tasks, servers];
  const list: Waiting[] = [
    ...(workflows.data ?? []).map((w) => ({ key: w.workflow_id, kind: "paused", text: decisions[w.pause ?? ""], title: <RunName of={w} />, since: w.updated_at, href: link("workflows", w.workflow_id) })),
    ...(tasks.data ?? []).map((t) => ({ key: t.id, kind: "waiting", text: "question", title: what(t), since: t.updated_at, href: link("tasks", t.id) })),
    ...(servers.data ?? []).flatMap((u) => {
      const tools = u.quarantined.map((t) => t.id).join(", ");
      const since = u.quarantined.map((t) => t.changed_at ?? t.first_seen_at).sort()[0];
      const failed = u.state === "failed" || u.state === "authorization_required";
      return [
        ...(since ? [{ key: u.id + ":", kind: "quarantined", title: tools, since, href: link("tools", u.id) }] : []),
        ...(failed ? [{ key: u.id, kind: u.state, title: u.id, since: u.since, href: link("tools", u.id) }] : []),
      ];
    }),
  ];
  const more = Boolean(workflows.more || tasks.more);
  const problem = reads.find((r) => r.problem)?.problem;
  const loading = reads.some((r) => r.loading && !r.data);
  return (
    <Panel title={"Needs you" + (list.length ? ` (${list.length}${more ? "+" : ""})` : "")} class="needs" flush actions={workflows.more && <a href={link("workflows") + "?status=paused&decidable=true"}>All decisions</a>}>
      {problem && <ProblemNotice problem={problem} />}
      {loading && list.length === 0 && <Skeleton />}
      {list.length === 0 ? (
        !loading && !problem && <Empty icon="check" title="Nothing needs your attention" />
      ) : (
        <ul class="feed scroll" tabIndex={0} aria-label="Items that need your attention">
          {list.map((w) => (
            <li key={w.key}>
              <Badge state={w.kind} text={w.text} />
              <a class="truncate" href={w.href}>
                {w.title}
              </a>
              <Time at={w.since} />
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}
