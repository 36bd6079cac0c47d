// One agent: its attributes, usage, reservations, tasks and audit log.
import { useCallback, useState } from "preact/hooks";
import { call, query, request, type Schemas } from "./api";
import { AgentForm } from "./agentform";
import { AgentBudget, levels, Name } from "./agentparts";
import { childrenPath, type AgentRow } from "./agenttree";
import { Series } from "./charts";
import { Action, AsCurl, Badge, Budget, Empty, Facts, Loaded, Page, Panel, Table, Tabs, Tag, Time } from "./components";
import { Figures, type Figure } from "./figures";
import { count, duration, percent, short, words } from "./format";
import { FormDialog } from "./form";
import { titleOf } from "./problem";
import { about, useGet, useLoad, usePages, type Refresh } from "./resource";
import { link, navigate, parameter } from "./router";
import { can } from "./session";
import { useWorkers, type Worker } from "./workers";

type Detail = Schemas["AgentDetail"];

export function Agent({ id }: { id: string }) {
  const path = "/api/v1/agents/" + encodeURIComponent(id);
  const load = useCallback(
    async (signal: AbortSignal) => {
      const [response, above] = await Promise.all([request({ path }, signal), call<Schemas["AgentAncestry"]>({ path: path + "/ancestors" }, signal)]);
      return { agent: (await response.json()) as Detail, etag: response.headers.get("ETag") ?? undefined, above: above.ancestors };
    },
    [path],
  );
  const loaded = useLoad(load, about("agent.", id));
  const usage = useGet<Schemas["AgentUsage"]>(path + "/usage", (e) => e.key === id && /^(agent|usage|ledger)\./.test(e.type));
  const workers = useWorkers();
  const worker = workers?.get(id);
  const [dialog, setDialog] = useState<"edit" | "child" | "budget">();
  const agent = loaded.data?.agent;
  const close = () => setDialog(undefined);
  return (
    <Page
      name="agent"
      title={agent?.name ?? titleOf(id, loaded.problem)}
      ready={!loaded.loading || Boolean(agent)}
      crumbs={[["Agents", link("agents")], ...[...(loaded.data?.above ?? [])].reverse().map((a): [string, string] => [a.name, link("agents", a.id)])]}
      badge={agent && <><Badge state={agent.is_active ? "active" : "inactive"} />{worker && <Badge state={worker.state} text={"worker " + worker.state} />}</>}
      subtitle={agent && <span class="row"><code>{agent.id}</code> {levels[agent.level]} {agent.type && <Tag>{agent.type}</Tag>}</span>}
      actions={agent && <Actions agent={agent} path={path} reload={loaded.reload} open={setDialog} />}
    >
      <Loaded of={loaded}>
        {({ agent }) => (
          <>
            {agent.warnings?.map((w) => (
              <div class="notice warn" key={w.detail}>
                <div>{w.detail}</div>
              </div>
            ))}
            <Loaded of={usage}>{(u) => <Usage usage={u} stats={agent.stats} />}</Loaded>
            <Tabs of={[["about", "About"], ["usage", "Usage"], ["reservations", "Reservations"], ...(can("tasks:read") ? [["tasks", "Tasks"] as [string, string]] : []), ["audit", "Audit log"]]} />
            <Part agent={agent} path={path} worker={workers && (worker ?? "none")} />
          </>
        )}
      </Loaded>
      {dialog === "edit" && agent && <AgentForm agent={agent} etag={loaded.data?.etag} close={close} done={loaded.reload} />}
      {dialog === "child" && agent && <AgentForm parent={id} level={Math.min(agent.level + 1, 3)} close={close} done={(child) => navigate(link("agents", child))} />}
      {dialog === "budget" && <AdditionForm path={path} close={close} done={usage.reload} />}
    </Page>
  );
}

function Actions({ agent, path, reload, open }: { agent: Detail; path: string; reload: () => void; open: (dialog: "edit" | "child" | "budget") => void }) {
  return (
    <>
      <AsCurl calls={[{ path }, { path: path + "/usage" }, { path: path + "/ancestors" }]} />
      {can("admin") && <button onClick={() => open("budget")}>Add budget</button>}
      {can("agents:write") && (
        <>
          {agent.level > 0 &&
            (agent.is_active ? (
              <Action key="deactivate" label="Deactivate" kind="danger" call={{ method: "PATCH", path, body: { is_active: false } }} question={`Deactivate ${agent.id}? It receives no further tasks, and its tokens are rejected, until it is activated again.`} done={reload} message="The agent is inactive." />
            ) : (
              <Action key="activate" label="Activate" call={{ method: "PATCH", path, body: { is_active: true } }} done={reload} message="The agent is active." />
            ))}
          {agent.level < 3 && <button onClick={() => open("child")}>New agent below</button>}
          <button class="primary" onClick={() => open("edit")}>
            Edit
          </button>
        </>
      )}
    </>
  );
}

function Part({ agent, path, worker }: { agent: Detail; path: string; worker?: Worker | "none" }) {
  switch (parameter("tab")) {
    case "usage":
      return <History path={path} id={agent.id} />;
    case "reservations":
      return <Reservations path={path} id={agent.id} />;
    case "tasks":
      return <Tasks id={agent.id} />;
    case "audit":
      return <Audit path={path} id={agent.id} />;
    default:
      return <About agent={agent} worker={worker} />;
  }
}

function Usage({ usage: u, stats }: { usage: Schemas["AgentUsage"]; stats: Schemas["AgentStats"] }) {
  const limit = u.budget === null || u.budget === undefined ? null : u.budget;
  const subtree = u.budget_scope === "subtree";
  const reserved = subtree ? (u.subtree_reserved ?? u.reserved) : u.reserved;
  const figures: Figure[] = [
    [subtree ? "Budget today, of the subtree" : "Budget today", <Budget label="Budget today" used={subtree ? u.subtree_used_today : u.used_today} reserved={reserved} budget={limit} />],
    ["Used today", short(u.used_today), short(u.used_this_hour) + " this hour"],
    ["Subtree today", short(u.subtree_used_today)],
    ["Reserved", short(reserved)],
    ["Remaining", u.remaining === null ? "no limit" : short(subtree ? u.subtree_remaining : u.remaining)],
    ["Success rate", stats.success_rate === null ? "–" : percent(stats.success_rate)],
    ["Mean task time", duration(stats.avg_response_time_ms), count(stats.sessions_today) + " sessions today"],
  ];
  return <Figures of={figures} />;
}

function About({ agent, worker }: { agent: Detail; worker?: Worker | "none" }) {
  const below = usePages<AgentRow>(agent.level < 3 ? childrenPath(agent.id) : undefined, "agents", (e) => e.type.startsWith("agent.") || e.type === "usage.changed");
  return (
    <div class="grid">
      <Panel title="About" class={agent.level < 3 ? "span-5" : ""}>
        <Facts
          of={[
            ["Description", agent.description],
            ["Sphere", agent.sphere_id],
            ["Frequency", agent.frequency_hz + " Hz"],
            ["Parent", agent.parent_id && <a href={link("agents", agent.parent_id)}>{agent.parent_id}</a>],
            ["Worker", worker === "none" ? "has never connected" : worker && <span class="row"><Badge state={worker.state} /> {worker.in_flight} of {worker.concurrency} slots, last seen <Time at={worker.last_seen_at} /></span>],
            ["Capabilities", agent.capabilities.length > 0 && <span class="row">{agent.capabilities.map((c) => <Tag key={c}>{c}</Tag>)}</span>],
            ["Tokens per day", agent.token_budget === null ? "no limit" : count(agent.token_budget)],
            ["Created", <Time at={agent.created_at} />],
            ["Changed", <Time at={agent.updated_at} />],
          ]}
        />
      </Panel>
      {agent.level < 3 && (
        <Panel title="Agents below" class="span-7" flush>
          <Loaded of={below}>
            {(rows) => (
              <Table
                label={"Agents below " + agent.name}
                rows={rows}
                id={(a) => a.id}
                href={(a) => link("agents", a.id)}
                more={below.more}
                empty={<Empty icon="agents" title="No agent below this one" />}
                columns={[
                  { title: "Agent", cell: (a) => <Name agent={a} /> },
                  { title: "Budget today", cell: (a) => <AgentBudget agent={a} /> },
                  { title: "Below", number: true, cell: (a) => count(a.descendant_count ?? 0) },
                ]}
              />
            )}
          </Loaded>
        </Panel>
      )}
    </div>
  );
}

function History({ path, id }: { path: string; id: string }) {
  const hours = useGet<Schemas["UsageHistory"]>(path + "/usage/history?window=hour&group_by=model", about("usage.", id), 10_000);
  return (
    <Panel title="Tokens by hour" actions={<AsCurl calls={[{ path: path + "/usage/history?window=hour&group_by=model" }]} />}>
      <Loaded of={hours}>
        {(h) =>
          h.buckets.length === 0 ? (
            <Empty icon="clock" title="No tokens were used in this period" />
          ) : (
            <Series label="Tokens by hour" at={h.buckets.map((b) => Date.parse(b.start) / 1000)} lines={[{ name: "tokens", values: h.buckets.map((b) => b.tokens), colour: 1 }]} height={240} />
          )
        }
      </Loaded>
    </Panel>
  );
}

const mine = (id: string): Refresh => (e) => e.key === id || e.data?.agent_id === id;

function Reservations({ path, id }: { path: string; id: string }) {
  const list = usePages<Schemas["Reservation"]>(path + "/reservations?limit=50", "reservations", mine(id));
  return (
    <Panel title="Reservations" flush actions={<AsCurl calls={[{ path: path + "/reservations" }]} />}>
      <Loaded of={list}>
        {(rows) => (
          <Table
            label="Reservations"
            rows={rows}
            id={(r) => r.id}
            more={list.more}
            empty={<Empty icon="clock" title="No reservation">A reservation holds tokens of the budget until it is settled, released or expires.</Empty>}
            columns={[
              { title: "Reservation", cell: (r) => <code>{r.id}</code> },
              { title: "State", cell: (r) => <Badge state={r.state} of={r.state === "held" ? "info" : ""} /> },
              { title: "Tokens", number: true, cell: (r) => count(r.tokens) },
              { title: "Settled", number: true, cell: (r) => count(r.settled_tokens) },
              { title: "Created", cell: (r) => <Time at={r.created_at} /> },
              { title: "Expires", cell: (r) => <Time at={r.expires_at} /> },
              { title: "", cell: (r) => r.state === "held" && can("usage:write") && <Action label="Release" kind="quiet" call={{ method: "DELETE", path: path + "/reservations/" + r.id }} question={`Release the reservation of ${count(r.tokens)} tokens?`} done={list.reload} /> },
            ]}
          />
        )}
      </Loaded>
    </Panel>
  );
}

function Tasks({ id }: { id: string }) {
  const path = query("/api/v1/tasks", { agent_id: id, limit: 50 });
  const list = usePages<Schemas["TaskView"]>(path, "tasks", (e) => e.type.startsWith("task.") && e.data?.agent_id === id);
  return (
    <Panel title="Tasks of this agent" flush actions={<AsCurl calls={[{ path }]} />}>
      <Loaded of={list}>
        {(rows) => (
          <Table
            label="Tasks of this agent"
            rows={rows}
            id={(t) => t.id}
            href={(t) => link("tasks", t.id)}
            more={list.more}
            empty={<Empty icon="tasks" title="No task yet" />}
            columns={[
              { title: "Task", cell: (t) => <a class="mono" href={link("tasks", t.id)}>{t.id}</a> },
              { title: "Class", cell: (t) => t.class },
              { title: "State", cell: (t) => <Badge state={t.state} text={t.waiting_for ? "waiting for " + t.waiting_for : undefined} /> },
              { title: "Tokens", number: true, cell: (t) => count(t.tokens) },
              { title: "Updated", cell: (t) => <Time at={t.updated_at} /> },
            ]}
          />
        )}
      </Loaded>
    </Panel>
  );
}

function Audit({ path, id }: { path: string; id: string }) {
  const list = usePages<Schemas["AuditEntry"]>(path + "/audit?limit=50", "entries", about("agent.", id));
  const value = (v: unknown) => (v === null ? "none" : typeof v === "string" ? v : JSON.stringify(v));
  return (
    <Panel title="Audit log" flush actions={<AsCurl calls={[{ path: path + "/audit" }]} />}>
      <Loaded of={list}>
        {(rows) => (
          <Table
            label="Audit log"
            rows={rows}
            id={(e) => String(e.id)}
            more={list.more}
            empty={<Empty title="No entry" />}
            columns={[
              { title: "When", cell: (e) => <Time at={e.at} /> },
              { title: "What", cell: (e) => words(e.action) },
              { title: "By", cell: (e) => e.actor },
              {
                title: "Changes",
                cell: (e) => (
                  <ul class="anywhere">
                    {e.reason && <li>{e.reason}</li>}
                    {e.changes.map((c) => (
                      <li key={c.field}>
                        <span class="muted">{words(c.field)}:</span> {value(c.from)} → {value(c.to)}
                      </li>
                    ))}
                  </ul>
                ),
              },
            ]}
          />
        )}
      </Loaded>
    </Panel>
  );
}

function AdditionForm({ path, close, done }: { path: string; close: () => void; done: () => void }) {
  return (
    <FormDialog
      title="Add budget"
      submit="Add budget"
      message="Budget added."
      close={close}
      done={() => (close(), done())}
      fields={[
        { name: "tokens", label: "Tokens", kind: "number", required: true, hint: "Added to each day's budget until it expires." },
        { name: "ttl_seconds", label: "Valid for (seconds)", kind: "number", hint: "By default, until the end of the day (UTC)." },
        { name: "reason", label: "Reason", required: true, hint: "Recorded in the audit log." },
      ]}
      call={(body) => ({ method: "POST", path: path + "/budget/additions", body })}
    />
  );
}
