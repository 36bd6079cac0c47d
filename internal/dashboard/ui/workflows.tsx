// Workflows: what waits for a decision, all runs, and the stored definitions.
import { useState } from "preact/hooks";
import { query } from "./api";
import { AsCurl, Badge, Empty, Filter, Loaded, Page, Panel, Table, Tabs, Tag, Time } from "./components";
import { between, words } from "./format";
import { kinds, usePages } from "./resource";
import { link, parameter } from "./router";
import { can } from "./session";
import { Definitions } from "./workflowdefinitions";
import { decisions, RunName, usePolling, waitingPath, type Summary } from "./workflowparts";
import { Start } from "./workflowstart";

export function Workflows() {
  const [starting, setStarting] = useState(false);
  const tab = parameter("tab");
  const path = query("/api/v1/workflows", { status: parameter("status"), decidable: parameter("decidable"), limit: 50 });
  const runs = usePages<Summary>(tab ? undefined : path, "workflows", kinds("workflow."));
  usePolling(runs.reload, !tab);
  return (
    <Page
      name="workflows"
      title="Workflows"
      ready={Boolean(tab || runs.data || runs.problem)}
      actions={
        <>
          {!parameter("definition") && <AsCurl calls={tab ? [{ path: "/api/v1/workflow-definitions" }] : [{ path }, { path: waitingPath }]} />}
          {can("tools:call") && <button class="primary" onClick={() => setStarting(true)}>Start a workflow</button>}
        </>
      }
    >
      {can("tools:call") && <Tabs of={[["runs", "Runs"], ["definitions", "Definitions"]]} />}
      {tab === "definitions" && can("tools:call") ? (
        <Definitions />
      ) : (
        <>
          <Inbox />
          <Panel title="Runs" flush actions={<Filters />}>
            <Loaded of={runs}>{(rows) => <Runs rows={rows} more={runs.more} />}</Loaded>
          </Panel>
        </>
      )}
      {starting && <Start close={() => setStarting(false)} />}
    </Page>
  );
}

const Filters = () => (
  <div class="filters">
    <Filter name="status" label="Status" options={[["", "all"], ["running", "running"], ["paused", "paused"], ["complete", "complete"], ["error", "error"], ["aborted", "aborted"]]} />
    <Filter name="decidable" label="Decision" options={[["", "all"], ["true", "waiting for me"]]} />
  </div>
);

/** Inbox lists the workflows with a pending decision that this token may make. */
function Inbox() {
  const waiting = usePages<Summary>(waitingPath, "workflows", kinds("workflow."));
  usePolling(waiting.reload);
  if (!waiting.data?.length) return null;
  return (
    <Panel title={`Waiting for a decision (${waiting.data.length}${waiting.more ? "+" : ""})`} class="inbox" flush>
      <ul class="feed">
        {waiting.data.map((w) => (
          <li key={w.workflow_id}>
            <Badge state={w.pause ?? "paused"} of="warn" text={decisions[w.pause ?? ""]} />
            <a class="truncate" href={link("workflows", w.workflow_id)}>
              <RunName of={w} />
            </a>
            <span class="muted truncate">{w.actor}</span>
            <Time at={w.updated_at} />
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Runs({ rows, more }: { rows: Summary[]; more?: () => void }) {
  const filtered = parameter("status") || parameter("decidable");
  return (
    <Table
      label="Runs of workflows"
      rows={rows}
      more={more}
      id={(w) => w.workflow_id}
      href={(w) => link("workflows", w.workflow_id)}
      empty={
        <Empty icon="workflows" title={filtered ? "No run matches" : "No workflow was started in the last 30 days"}>
          {!filtered && <code>comet workflows run FILE --watch</code>}
        </Empty>
      }
      columns={[
        { title: "Status", cell: (w) => <Status of={w} /> },
        { title: "Run", cell: (w) => <a class="mono nowrap" href={link("workflows", w.workflow_id)}>{w.workflow_id}</a> },
        { title: "Definition", cell: (w) => (w.definition ? <span class="nowrap">{w.definition.name} <Tag>v{w.definition.version}</Tag></span> : <span class="faint">–</span>) },
        { title: "Source", cell: (w) => w.source },
        { title: "Started by", cell: (w) => <span class="nowrap">{w.actor}</span> },
        { title: "Agent", cell: (w) => (can("agents:read") ? <a href={link("agents", w.agent_id)}>{w.agent_id}</a> : w.agent_id) },
        { title: "Age", cell: (w) => <Time at={w.created_at} /> },
        { title: "Duration", number: true, cell: (w) => <span class="nowrap">{between(w.created_at, w.ended_at)}</span> },
      ]}
    />
  );
}

function Status({ of }: { of: Summary }) {
  return (
    <span class="row status" title={of.reason}>
      <Badge state={of.status} of={of.status === "complete" ? "good" : undefined} text={of.pause ? "paused: " + words(of.pause) : undefined} />
      {of.error_code && <Tag>{of.error_code}</Tag>}
    </span>
  );
}
