// One run of a workflow: its graph while it runs, its steps, and the decisions that it waits for.
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { query, request, type Call, type Schemas } from "./api";
import { AsCurl, Badge, Budget, Empty, Facts, Json, Loaded, Page, Panel, Table, Tag, Time } from "./components";
import { Checkpoint, Checkpoints, type CheckpointRecord } from "./checkpoint";
import { Dag } from "./dag";
import { Figures, type Figure } from "./figures";
import { between, count, duration, words } from "./format";
import { FormDialog } from "./form";
import { ProblemNotice, titleOf } from "./problem";
import { about, useGet, useLoad, usePages } from "./resource";
import { link, parameter, setParameters } from "./router";
import { can } from "./session";
import { Timeline, type Item } from "./timeline";
import { usePolling } from "./workflowparts";

type View = Schemas["Workflow"];
type Graph = Schemas["WorkflowStateGraph"];
type Run = { view: View; text: string };

const spacing = 300;
const ended = (v: View) => ["complete", "error", "aborted", "rejected"].includes(v.status);

export function Workflow({ id }: { id: string }) {
  const path = "/api/v1/workflows/" + encodeURIComponent(id);
  const load = useCallback(
    async (signal: AbortSignal): Promise<Run> => {
      const text = await (await request({ path }, signal)).text();
      return { view: JSON.parse(text), text };
    },
    [path],
  );
  const changes = about("workflow.", id);
  const run = useLoad(load, changes, spacing);
  const graph = useGet<Graph>(path + "/graph", changes, spacing);
  const checkpoints = usePages<CheckpointRecord>(path + "/checkpoints?limit=50", "checkpoints", changes);
  const waiting = query("/api/v1/workflows", { status: "paused", decidable: true, limit: 100 });
  const decidable = useGet<Schemas["WorkflowList"]>(waiting, changes, spacing);
  const reload = () => (run.reload(), graph.reload(), checkpoints.reload(), decidable.reload());
  const view = run.data?.view;
  usePolling(reload, Boolean(view && !ended(view)));
  const items = useMemo(() => itemsOf(graph.data, view), [graph.data, view]);
  const may = Boolean(decidable.data && (decidable.data.next_cursor || decidable.data.workflows.some((w) => w.workflow_id === id)));
  return (
    <Page
      name="workflow"
      title={view?.definition?.name ?? titleOf(id, run.problem)}
      crumbs={[["Workflows", link("workflows")]]}
      ready={Boolean((run.data || run.problem) && (graph.data || graph.problem))}
      badge={view && <Badge state={view.status} of={runTone(view.status)} />}
      subtitle={view?.definition && <span class="row"><code>{id}</code><a href={query(link("workflows"), { tab: "definitions", definition: view.definition.name, version: view.definition.version })}>version {view.definition.version}</a></span>}
      actions={view && <Actions view={view} path={path} reload={reload} calls={[{ path }, { path: path + "/graph" }, { path: path + "/checkpoints" }]} />}
    >
      <Loaded of={run}>
        {({ view, text }) => (
          <>
            <Header view={view} items={items} />
            {(view.reason || view.feedback) && <div class={"notice " + (view.status === "complete" ? "" : "bad")}><div><strong>{words(view.status)}</strong><span>{view.reason || view.feedback}</span></div></div>}
            {view.options?.length && view.checkpoint_id ? <Checkpoint view={view} text={text} decidable={may} reload={reload} /> : null}
            <Steps graph={graph} items={items} path={path} checkpoints={checkpoints.data ?? []} />
            {(checkpoints.problem || (checkpoints.data?.length ?? 0) > 0) && (
              <Panel title="Checkpoints" flush>
                <Checkpoints of={checkpoints} />
              </Panel>
            )}
          </>
        )}
      </Loaded>
    </Page>
  );
}

/** runTone is the colour of the status of a response. */
const runTone = (status: string) => (["layer_complete", "approval_required", "uncertain", "budget_exhausted"].includes(status) ? "warn" : status === "complete" ? "good" : status === "running" ? "info" : "bad");

const time = (text: string | undefined) => (text ? Date.parse(text) : undefined);

/** itemsOf joins the graph and the steps that the open checkpoint asks about. */
function itemsOf(graph: Graph | undefined, view: View | undefined): Item[] {
  const asked = new Set(view?.context?.steps.map((s) => s.id));
  return (graph?.tasks ?? []).map((t) => {
    const [from, to] = [time(t.started_at), time(t.ended_at)];
    return {
      id: t.id,
      layer: t.layer,
      depends_on: t.depends_on,
      status: t.status === "pending" && asked.has(t.id) ? "waiting" : t.status,
      kind: t.type,
      target: t.type === "code_execution" ? "code" : t.tool || t.agent_id || t.capability || "",
      ms: from && to ? to - from : undefined,
      from,
      to,
      state: t,
    };
  });
}

/** Header shows the figures of a run. A layer is done when all its steps have succeeded. */
function Header({ view, items }: { view: View; items: Item[] }) {
  const began = items.map((s) => s.state.started_at).filter((at) => at !== undefined).sort()[0];
  const layers = new Set(items.map((s) => s.layer));
  const open = new Set(items.filter((s) => s.status !== "success").map((s) => s.layer));
  const done = items.filter((s) => s.status === "success").length;
  const failed = items.filter((s) => s.status === "error").length;
  const figures: Figure[] = [
    ["Layers done", <>{count(layers.size - open.size)} <small>of {count(layers.size)}</small></>],
    ["Steps done", <>{count(done)} <small>of {count(items.length)}{failed ? `, ${failed} failed` : ""}</small></>],
    ...(view.metrics || began ? [["Elapsed", view.metrics ? <>{duration(view.metrics.total_time_ms)} {began && <small>started <Time at={began} /></small>}</> : between(began)] as Figure] : []),
    ...(view.revision ? [["Replans", count(view.revision)] as Figure] : []),
    ["Tokens", view.budget && <>{count(view.budget.used)}<Budget used={view.budget.used} reserved={view.budget.reserved} budget={view.budget.total} label="Budget of the workflow" /></>],
  ];
  return <Figures of={figures} />;
}

function Actions({ view, path, reload, calls }: { view: View; path: string; reload: () => void; calls: Call[] }) {
  const [dialog, setDialog] = useState<"abort" | "replan">();
  const close = () => setDialog(undefined);
  const done = () => (close(), reload());
  return (
    <>
      <AsCurl calls={calls} />
      {can("tools:call") && !ended(view) && (
        <>
          <button onClick={() => setDialog("replan")}>Replan</button>
          <button class="danger" onClick={() => setDialog("abort")}>Abort</button>
        </>
      )}
      {dialog === "abort" && (
        <FormDialog title="Abort this workflow?" submit="Abort" intro={<p>No further step starts, and running calls are cancelled. Existing results are kept.</p>} fields={[{ name: "reason", label: "Reason", required: true }]} call={(body) => ({ method: "POST", path: path + "/abort", body })} message="Aborted." done={done} close={close} />
      )}
      {dialog === "replan" && (
        <FormDialog
          title="Add steps"
          submit="Add steps"
          intro={<p class="muted">The steps may depend on existing ones and use their results. Existing steps do not change; an open approval is requested again.</p>}
          fields={[{ name: "workflow", label: "Steps", kind: "json", required: true, hint: "Members as in docs/workflows.md: id, tool, arguments, depends_on, …" }, { name: "new_requirement", label: "Reason" }]}
          preset={{ workflow: { tasks: [{ id: "new_step", tool: "", arguments: {} }] } }}
          call={(body) => ({ method: "POST", path: path + "/replan", body })}
          message="Steps added."
          done={done}
          close={close}
        />
      )}
    </>
  );
}

const shapes: [string, string][] = [["graph", "Graph"], ["list", "List"], ["timeline", "Timeline"]];

function Steps({ graph, items, path, checkpoints }: { graph: Parameters<typeof Loaded<Graph>>[0]["of"]; items: Item[]; path: string; checkpoints: CheckpointRecord[] }) {
  const shape = parameter("view") || "graph";
  const selected = parameter("step");
  const select = (id: string) => setParameters({ step: id === selected ? undefined : id });
  const step = items.find((s) => s.id === selected);
  const buttons = (
    <div class="segments" role="group" aria-label="Show the steps as">
      {shapes.map(([id, text]) => (
        <button key={id} aria-pressed={id === shape} onClick={() => setParameters({ view: id === "graph" ? undefined : id }, true)}>
          {text}
        </button>
      ))}
    </div>
  );
  return (
    <div class={"run-steps" + (step ? " split" : "")}>
      <Panel title="Steps" flush actions={buttons}>
        <Loaded of={graph}>{() => (shape === "list" ? <List items={items} /> : shape === "timeline" ? <Timeline items={items} selected={selected} select={select} /> : <Dag nodes={items} selected={selected} select={select} />)}</Loaded>
      </Panel>
      {step && <Step key={step.id} step={step} path={path} checkpoints={checkpoints} close={() => select(step.id)} />}
    </div>
  );
}

function List({ items }: { items: Item[] }) {
  const tokens = items.some((s) => s.state.tokens);
  const at = (id: string) => query(location.pathname, { view: "list", step: id });
  return (
    <Table
      label="Steps"
      rows={items}
      id={(s) => s.id}
      href={(s) => at(s.id)}
      empty={<Empty title="No steps" />}
      columns={[
        { title: "Step", cell: (s) => <a href={at(s.id)}>{s.id}</a> },
        { title: "Status", cell: (s) => <StepBadge status={s.status!} /> },
        { title: "Duration", number: true, cell: (s) => <span class="nowrap">{duration(s.ms)}</span> },
        { title: "Type", cell: (s) => <span class="nowrap">{words(s.kind)}</span> },
        { title: "Target", cell: (s) => <code>{s.target}</code> },
        { title: "Layer", number: true, cell: (s) => s.layer },
        { title: "After", cell: (s) => <span class="truncate">{s.depends_on.join(", ") || "–"}</span> },
        ...(tokens ? [{ title: "Tokens", number: true, cell: (s: Item) => count(s.state.tokens) }] : []),
      ]}
    />
  );
}

const StepBadge = ({ status }: { status: string }) => <Badge state={status} of={status === "pending" || status === "skipped" ? "" : undefined} />;

function Step({ step, path, checkpoints, close }: { step: Item; path: string; checkpoints: CheckpointRecord[]; close: () => void }) {
  const shown = checkpoints.flatMap((c) => c.steps).find((s) => s.id === step.id);
  const { task_id: task, worker_id: worker, error, error_code: code } = step.state;
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (matchMedia("(max-width: 1100px)").matches) box.current?.scrollIntoView({ block: "nearest" }); // it is below the steps there
  }, []);
  return (
    <div class="step" ref={box}>
      <Panel title={step.id} actions={<button class="quiet" onClick={close}>Close</button>}>
        <Facts
          of={[
            ["Status", <StepBadge status={step.status!} />],
            ["Type", words(step.kind)],
            ["Target", step.target && <code>{step.target}</code>],
            ["Class", shown?.class],
            ["Layer", step.layer],
            ["After", step.depends_on.length > 0 && <span class="row">{step.depends_on.map((d) => <a key={d} href={query(location.pathname, { view: parameter("view"), step: d })}>{d}</a>)}</span>],
            ["Started", step.state.started_at && <Time at={step.state.started_at} />],
            ["Duration", step.ms !== undefined ? duration(step.ms) : undefined],
            ["Attempts", step.state.attempts > 1 ? step.state.attempts : undefined],
            ["Tokens", step.state.tokens],
            ["Task", task && (can("tasks:read", "messages:send") ? <a href={link("tasks", task)}>{task}</a> : <code>{task}</code>)],
            ["Worker", worker && (can("agents:read") ? <a href={link("agents", worker)}>{worker}</a> : <code>{worker}</code>)],
          ].map(([name, value]) => [name, value || undefined] as [string, ComponentChildren])}
        />
        {error && <div class="notice bad"><div><span>{error}</span>{code && <Tag>{code}</Tag>}</div></div>}
        {shown && <><h3>{shown.code ? "Code" : "Arguments"}</h3><Json label="Arguments" value={shown.code ?? shown.arguments} /></>}
        {step.status === "success" && <StepResult path={`${path}/steps/${encodeURIComponent(step.id)}/result`} />}
      </Panel>
    </div>
  );
}

const longest = 64 << 10;

function StepResult({ path }: { path: string }) {
  const result = useGet<unknown>(path);
  const text = result.data === undefined ? "" : typeof result.data === "string" ? result.data : JSON.stringify(result.data, null, 2);
  return (
    <>
      <div class="row spread"><h3>Result</h3><AsCurl calls={[{ path }]} /></div>
      {result.problem ? <ProblemNotice problem={result.problem} retry={result.reload} /> : !result.loading && <Json label="Result" value={text.slice(0, longest)} />}
      {text.length > longest && <p class="faint">The first {count(longest)} of {count(text.length)} characters. <a href={path} target="_blank" rel="noreferrer">Open all</a></p>}
    </>
  );
}
