// One task: its state, why its agent was selected, its attempts, output, messages and events.
import { useState } from "preact/hooks";
import { query, type Schemas } from "./api";
import { Action, AsCurl, Badge, Empty, Facts, Json, Loaded, Page, Panel, Table, Tabs, Tag, Time } from "./components";
import { describe } from "./eventline";
import { Figures, type Figure } from "./figures";
import { between, clock, count, duration, words } from "./format";
import { titleOf } from "./problem";
import { about, useGet, usePages, useRepeat } from "./resource";
import { link, parameter } from "./router";
import { can } from "./session";
import { Output } from "./taskoutput";
import type { Task as Summary } from "./tasklist";
import { AgentLink, TaskState, what } from "./taskparts";

type Detail = Schemas["TaskDetail"];

export function Task({ id }: { id: string }) {
  const path = "/api/v1/tasks/" + encodeURIComponent(id);
  const task = useGet<Detail>(path, about("task.", id), 250);
  const t = task.data;
  useRepeat(task.reload, !can("tasks:read")); // the stream of this token has no events of tasks
  const open = t && (t.state === "new" || t.state === "running");
  return (
    <Page
      name="task"
      title={t ? what(t) : titleOf(id, task.problem)}
      ready={!task.loading || Boolean(t)}
      crumbs={[["Tasks", link("tasks")], ...(t?.parent_id ? [[t.parent_id, link("tasks", t.parent_id)] as [string, string]] : [])]}
      badge={t && <TaskState task={t} />}
      subtitle={<code>{id}</code>}
      actions={
        t && (
          <>
            <AsCurl calls={[{ path }, { path: path + "/output" }]} />
            {open && can("messages:send") && <Action label="Cancel task" kind="danger" call={{ method: "POST", path: path + "/cancel", body: {} }} question="Cancel this task? Its agent receives a cancellation, and its result is discarded." message="Task cancelled." done={task.reload} />}
          </>
        )
      }
    >
      <Loaded of={task}>
        {(t) => (
          <>
            <Progress task={t} />
            {t.question && <Question task={t} path={path} done={task.reload} />}
            {t.state === "failed" && (
              <div class="notice bad">
                <div>
                  <strong>{t.failure}</strong>
                  <span>{t.error}</span>
                  {t.failure_detail !== undefined && <Json label="Details of the failure" value={t.failure_detail} />}
                </div>
              </div>
            )}
            <Tabs of={[["work", "Work"], ["decision", "Decision"], ["messages", "Messages"], ["events", "Events"], ["subtasks", "Subtasks"]]} />
            <Part task={t} path={path} />
          </>
        )}
      </Loaded>
    </Page>
  );
}

function Part({ task, path }: { task: Detail; path: string }) {
  switch (parameter("tab")) {
    case "decision":
      return <Decision of={task.decision} agent={task.agent_id} />;
    case "messages":
      return <Messages path={path} id={task.id} />;
    case "events":
      return <Timeline task={task} />;
    case "subtasks":
      return <Subtasks id={task.id} />;
    default:
      return <Work task={task} path={path} />;
  }
}

function Progress({ task: t }: { task: Detail }) {
  const step = t.step_name ? "step " + t.step + ": " + t.step_name : "";
  const figures: Figure[] = [
    ["Progress", t.state === "done" ? "100 %" : t.progress + " %", step],
    ["Duration", between(t.created_at, t.ended_at), t.started_at ? "waited " + between(t.created_at, t.started_at) : "not started"],
    ["Tokens", count(t.tokens), t.budget === null ? "no budget" : "of " + count(t.budget)],
    ["Attempts", count(t.attempts.length)],
    ["Priority", count(t.priority)],
  ];
  return <Figures of={figures} />;
}

function Question({ task, path, done }: { task: Detail; path: string; done: () => void }) {
  const [reply, setReply] = useState("");
  const question = task.question!;
  const send = (text: string) => ({ method: "POST", path: path + "/reply", body: { reply: text } });
  return (
    <section class="notice warn" aria-label="Question from the agent">
      <div>
        <strong>{task.agent_id} asks: {question.text}</strong>
        {can("messages:send") && (
          <div class="row">
            {question.options?.map((option) => (
              <Action key={option} label={option} call={send(option)} done={done} message="The reply is sent." />
            ))}
            <input aria-label="Reply" placeholder="Another reply" value={reply} onInput={(e) => setReply(e.currentTarget.value)} />
            <Action label="Reply" kind="primary" disabled={!reply.trim()} call={() => send(reply.trim())} done={done} message="The reply is sent." />
          </div>
        )}
      </div>
    </section>
  );
}

function Work({ task: t, path }: { task: Detail; path: string }) {
  return (
    <div class="grid">
      <div class="stack span-7">
        <Output key={t.attempt} task={t} path={path} />
        <Partials path={path} id={t.id} />
      </div>
      <div class="stack span-5">
        <Panel title="Request">
          <Facts
            of={[
              ["Capabilities", t.request.capabilities.length > 0 && <span class="row">{t.request.capabilities.map((c) => <Tag key={c}>{c}</Tag>)}</span>],
              ["Agent type", t.request.agent_type],
              ["Agent", t.request.agent_id],
              ["Time limit", t.request.timeout_ms ? duration(t.request.timeout_ms) : ""],
              ["Retries", t.request.retries],
              ["Submitted", <Time at={t.created_at} />],
              ["By token", <a href={query(link("tasks"), { owner: t.owner })}><code>{t.owner}</code></a>],
              ["Session", t.session_id && <a href={link("tasks") + "?session=" + encodeURIComponent(t.session_id)}>{t.session_id}</a>],
            ]}
          />
          <Json label="Parameters" value={t.request.parameters ?? {}} />
        </Panel>
        <Panel title="Attempts" flush>
          <Table
            label="Attempts"
            rows={[...t.attempts].reverse()}
            id={(a) => String(a.attempt)}
            empty={<Empty icon="clock" title="No attempt yet" />}
            columns={[
              { title: "Attempt", number: true, cell: (a) => a.attempt },
              { title: "State", cell: (a) => <Badge state={a.state} of={a.state === "timed_out" ? "bad" : undefined} /> },
              { title: "Agent", cell: (a) => a.agent_id && <AgentLink id={a.agent_id} /> },
              { title: "Duration", number: true, cell: (a) => between(a.assigned_at, a.ended_at) },
              { title: "Tokens", number: true, cell: (a) => count(a.tokens) },
              { title: "Failure", cell: (a) => a.failure && <span class="anywhere" title={a.error}>{a.failure}: {a.error}</span> },
            ]}
          />
        </Panel>
      </div>
    </div>
  );
}

function Partials({ path, id }: { path: string; id: string }) {
  const list = usePages<Schemas["PartialResult"]>(path + "/partials?limit=20", "partials", about("task.partial", id));
  if (!list.data?.length) return null;
  return (
    <Panel title="Partial results">
      {list.data.map((p) => (
        <div class="stack tight" key={p.number}>
          <span class="faint">
            {p.number}, attempt {p.attempt}, <Time at={p.created_at} />
          </span>
          <Json label={"Partial result " + p.number} value={p.data} />
        </div>
      ))}
      {list.more && <button onClick={list.more}>Show more</button>}
    </Panel>
  );
}

/** Decision shows why this agent was selected: the order of routing, and the agents that were considered with their scores. */
function Decision({ of: d, agent }: { of: Schemas["DecisionView"] | null; agent: string | null }) {
  if (!d) return <Panel title="Decision"><Empty icon="agents" title="No agent has been selected yet" /></Panel>;
  const chosen = d.verdict === "chosen" ? agent : null;
  return (
    <div class="stack">
      <Panel title="Decision">
        <Facts
          of={[
            ["Verdict", <Badge state={d.verdict} of={d.verdict === "chosen" ? "good" : "warn"} />],
            ["Agent", chosen && <AgentLink id={chosen} />],
            ["Agents considered", count(d.considered)],
            ["Eligible", count(d.eligible)],
            ["Routing", d.routing?.reason],
            ["Similarity", d.routing?.similarity?.toFixed(2)],
            ["Confidence", d.routing?.confidence?.toFixed(2)],
          ]}
        />
      </Panel>
      {d.routing && <Routing of={d.routing} chosen={chosen} />}
      <Candidates of={d} chosen={chosen} />
    </div>
  );
}

/** Routing shows the agents in the order of routing, including the alternatives that were not selected. */
function Routing({ of, chosen }: { of: Schemas["Routing"]; chosen: string | null }) {
  const rows = [...(of.selected ?? []).map((a) => ({ ...a, alternative: false })), ...(of.alternatives ?? []).map((a) => ({ ...a, alternative: true }))];
  return (
    <Panel title="Routing" flush>
      <Table
        label="Routing"
        rows={rows}
        id={(a) => a.agent_id}
        empty={<Empty icon="agents" title="No agent matches the intent" />}
        columns={[
          { title: "Agent", cell: (a) => <AgentLink id={a.agent_id} /> },
          { title: "Score", number: true, cell: (a) => a.score.toFixed(3) },
          { title: "Similarity", number: true, cell: (a) => a.similarity.toFixed(2) },
          { title: "Outcome", cell: (a) => <Selected is={a.agent_id === chosen} otherwise={a.alternative ? "alternative, not selected" : "among the best, not assigned"} /> },
        ]}
      />
    </Panel>
  );
}

const Selected = ({ is, otherwise }: { is: boolean; otherwise: string }) => (is ? <Badge state="selected" of="good" /> : <Badge state="eligible" of="" text={otherwise} />);

function Candidates({ of: d, chosen }: { of: Schemas["DecisionView"]; chosen: string | null }) {
  type Candidate = Schemas["CandidateView"] & { rejected?: boolean };
  const rows: Candidate[] = [...d.candidates, ...d.rejected.map((c) => ({ ...c, rejected: true }))];
  return (
    <Panel title="Candidates" flush>
      <Table
        label="Candidates"
        rows={rows}
        id={(c) => c.agent_id}
        empty={<Empty icon="agents" title="No agent was considered" />}
        columns={[
          { title: "Agent", cell: (c) => <AgentLink id={c.agent_id} /> },
          { title: "Score", number: true, cell: (c) => c.score.toFixed(3) },
          { title: "Load", number: true, cell: (c) => c.load + " %" },
          { title: "Last used", cell: (c) => <Time at={c.last_used} /> },
          { title: "Outcome", cell: (c) => (c.rejected ? <Badge state="rejected" of="bad" text={"not eligible: " + words(c.reason ?? "rejected")} /> : <Selected is={c.agent_id === chosen} otherwise="eligible, not selected" />) },
        ]}
      />
    </Panel>
  );
}

function Messages({ path, id }: { path: string; id: string }) {
  const list = usePages<Schemas["TaskMessage"]>(path + "/messages?limit=50", "messages", about("task.", id));
  return (
    <Panel title="Messages of PROTOCOL_V5" flush actions={<AsCurl calls={[{ path: path + "/messages" }]} />}>
      <Loaded of={list}>
        {(rows) => (
          <Table
            label="Messages"
            rows={rows}
            id={(m) => m.id}
            more={list.more}
            empty={<Empty title="No message in this protocol">The events show what happened to tasks of other protocols.</Empty>}
            columns={[
              { title: "Time", cell: (m) => <time dateTime={m.at}>{clock(m.at)}</time> },
              { title: "From", cell: (m) => m.from },
              { title: "To", cell: (m) => m.to },
              { title: "Type", cell: (m) => <Tag>{m.type}</Tag> },
              { title: "State", cell: (m) => m.state },
              { title: "Data", cell: (m) => <code class="anywhere">{m.data || m.err}</code> },
            ]}
          />
        )}
      </Loaded>
    </Panel>
  );
}

function Timeline({ task }: { task: Detail }) {
  const [shown, show] = useState<string>();
  return (
    <Panel title="Events" flush>
      <Table
        label="Events"
        rows={task.timeline}
        id={(e) => e.id}
        empty={<Empty icon="events" title="The events of this task are no longer retained" />}
        columns={[
          { title: "Time", cell: (e) => <time dateTime={e.at} title={e.at}>{clock(e.at)}</time> },
          { title: "After", number: true, cell: (e) => between(task.created_at, e.at) },
          { title: "Event", cell: (e) => <span class="anywhere">{describe({ ...e, key: task.id, data: e.data as Record<string, any> })}</span> },
          {
            title: "Data",
            cell: (e) => (
              <>
                <button class="quiet" aria-expanded={shown === e.id} onClick={() => show(shown === e.id ? undefined : e.id)}>
                  {shown === e.id ? "Hide" : "Show"}
                </button>
                {shown === e.id && <Json label="Data of the event" value={e.data} />}
              </>
            ),
          },
        ]}
      />
    </Panel>
  );
}

function Subtasks({ id }: { id: string }) {
  const list = usePages<Summary>("/api/v1/tasks?limit=50&parent_id=" + encodeURIComponent(id), "tasks", (e) => e.type.startsWith("task."));
  return (
    <Panel title="Subtasks" flush>
      <Loaded of={list}>
        {(rows) => (
          <Table
            label="Subtasks"
            rows={rows}
            id={(t) => t.id}
            href={(t) => link("tasks", t.id)}
            more={list.more}
            empty={<Empty icon="tasks" title="No subtask" />}
            columns={[
              { title: "Task", cell: (t) => <a href={link("tasks", t.id)}>{what(t)}</a> },
              { title: "State", cell: (t) => <TaskState task={t} /> },
              { title: "Agent", cell: (t) => t.agent_id },
              { title: "Duration", number: true, cell: (t) => between(t.created_at, t.ended_at) },
            ]}
          />
        )}
      </Loaded>
    </Panel>
  );
}
