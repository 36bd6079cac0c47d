// Stored workflows: their versions and graphs; start, save and remove them.
import { useMemo, useState } from "preact/hooks";
import { query, type Schemas } from "./api";
import { Action, AsCurl, Empty, Facts, Json, Loaded, Panel, Table, Time } from "./components";
import { Dag, type Node } from "./dag";
import { words } from "./format";
import { FormDialog } from "./form";
import { kinds, useGet, usePages } from "./resource";
import { link, navigate, parameter, setParameters } from "./router";
import { administers } from "./session";
import { started } from "./workflowstart";

type Item = Schemas["DefinitionItem"];
type Definition = Schemas["DefinitionView"];
type Task = Schemas["WorkflowTask"];

const path = "/api/v1/workflow-definitions";
const changes = kinds("workflow.definition_");
const addressOf = (name: string) => query(link("workflows"), { tab: "definitions", definition: name });

export function Definitions() {
  const name = parameter("definition");
  const [saving, setSaving] = useState(false);
  const list = usePages<Item>(name ? undefined : path + "?limit=50", "definitions", changes);
  if (name) return <One key={name} name={name} />;
  return (
    <Panel title="Stored workflows" flush actions={administers() && <button onClick={() => setSaving(true)}>New definition</button>}>
      <Loaded of={list}>
        {(rows) => (
          <Table
            label="Stored workflows"
            rows={rows}
            more={list.more}
            id={(d) => d.name}
            href={(d) => addressOf(d.name)}
            empty={<Empty icon="workflows" title="No workflow is stored"><code>comet workflows definitions save NAME FILE</code></Empty>}
            columns={[
              { title: "Name", cell: (d) => <a href={addressOf(d.name)}>{d.name}</a> },
              { title: "Description", cell: (d) => <span class="truncate">{d.description ?? "–"}</span> },
              { title: "Version", number: true, cell: (d) => d.version },
              { title: "Saved by", cell: (d) => d.created_by },
              { title: "Saved", cell: (d) => <Time at={d.created_at} /> },
            ]}
          />
        )}
      </Loaded>
      {saving && <Save close={() => setSaving(false)} />}
    </Panel>
  );
}

function One({ name }: { name: string }) {
  const at = path + "/" + encodeURIComponent(name);
  const newest = useGet<Definition>(at, (e) => e.key === name && changes(e));
  const version = parameter("version");
  const other = useGet<Definition>(version && Number(version) !== newest.data?.version ? query(at, { version }) : undefined);
  const shown = version && Number(version) !== newest.data?.version ? other : newest;
  const [dialog, setDialog] = useState<"run" | "save">();
  const close = () => setDialog(undefined);
  return (
    <Loaded of={shown}>
      {(d) => (
        <>
          <div class="row spread">
            <div class="row">
              <a href={query(link("workflows"), { tab: "definitions" })}>Definitions</a> <span class="faint">/</span> <strong>{d.name}</strong>
              <label class="row muted">
                Version
                <select value={String(d.version)} onChange={(e) => setParameters({ version: e.currentTarget.value === String(newest.data?.version) ? undefined : e.currentTarget.value }, true)}>
                  {Array.from({ length: newest.data?.version ?? d.version }, (_, i) => (
                    <option key={i} value={String(i + 1)}>{i + 1}</option>
                  )).reverse()}
                </select>
              </label>
            </div>
            <div class="actions">
              <AsCurl calls={[{ path: query(at, { version }) }]} />
              {administers() && <Action label="Remove" kind="danger" call={{ method: "DELETE", path: at }} question={`Remove ${name} with all its versions? Running workflows are not affected.`} message="Removed." done={() => navigate(query(link("workflows"), { tab: "definitions" }))} />}
              {administers() && <button onClick={() => setDialog("save")}>New version</button>}
              <button class="primary" onClick={() => setDialog("run")}>Run version {d.version}</button>
            </div>
          </div>
          {d.description && <p class="muted">{d.description}</p>}
          <Graph of={d} />
          {dialog === "run" && <Run of={d} close={close} />}
          {dialog === "save" && <Save of={d} close={close} />}
        </>
      )}
    </Loaded>
  );
}

function Graph({ of }: { of: Definition }) {
  const nodes = useMemo(() => nodesOf(of.workflow.tasks), [of]);
  const selected = parameter("step");
  const task = of.workflow.tasks.find((t) => t.id === selected);
  const options = Object.entries(of.config).filter(([, value]) => value).map(([name, value]): [string, string] => [words(name), String(value)]);
  return (
    <div class="grid">
      <Panel title="Steps" class="span-8" flush>
        <Dag nodes={nodes} selected={selected} select={(id) => setParameters({ step: id === selected ? undefined : id })} />
        <details class="padded">
          <summary>As a list</summary>
          <Table label="Steps" rows={nodes} id={(n) => n.id} empty={null} columns={[{ title: "Step", cell: (n) => n.id }, { title: "Type", cell: (n) => words(n.kind) }, { title: "Target", cell: (n) => <code>{n.target}</code> }, { title: "Layer", number: true, cell: (n) => n.layer }, { title: "After", cell: (n) => n.depends_on.join(", ") || "–" }]} />
        </details>
      </Panel>
      <div class="stack span-4">
        {task && <Panel title={task.id}><Json label={"Step " + task.id} value={task} /></Panel>}
        <Panel title="About">
          <Facts of={[["Saved by", of.created_by], ["Saved", <Time at={of.created_at} />], ...options]} />
          {of.input_schema && <><h3>Input schema</h3><Json label="Input schema" value={of.input_schema} /></>}
        </Panel>
      </div>
    </div>
  );
}

/** nodesOf places the steps of a definition in layers, by their dependencies and the references in their arguments. */
function nodesOf(tasks: Task[]): Node[] {
  const ids = new Set(tasks.map((t) => t.id));
  const needs = new Map(tasks.map((t) => {
    const text = JSON.stringify(t.arguments ?? {});
    const referred = [...text.matchAll(/(?<!\$)\$(?:([A-Za-z_][\w-]*)\.result|OUTPUT\[([\w-]+)\])/g)].map((m) => m[1] ?? m[2]!);
    return [t.id, [...new Set([...(t.depends_on ?? []), ...referred])].filter((d) => ids.has(d) && d !== t.id)] as const;
  }));
  const layers = new Map<string, number>();
  const layer = (id: string): number => {
    if (!layers.has(id)) layers.set(id, 1 + Math.max(0, ...needs.get(id)!.map(layer)));
    return layers.get(id)!;
  };
  return tasks.map((t) => ({ id: t.id, layer: layer(t.id), depends_on: needs.get(t.id)!, kind: t.type || "mcp_tool", target: t.tool || t.agent_id || t.capability || (t.type === "code_execution" ? "code" : "") }));
}

/** example returns an input with the members of a schema. */
function example(schema: Record<string, any> | undefined): Record<string, unknown> {
  const empty: Record<string, unknown> = { string: "", integer: 0, number: 0, boolean: false, array: [], object: {} };
  return Object.fromEntries(Object.entries<any>(schema?.properties ?? {}).map(([name, of]) => [name, of?.default ?? empty[of?.type] ?? null]));
}

function Run({ of, close }: { of: Definition; close: () => void }) {
  return (
    <FormDialog<Schemas["Workflow"]>
      title={`Run ${of.name}, version ${of.version}`}
      submit="Run"
      intro={of.input_schema && <details><summary>Input schema</summary><Json label="Input schema" value={of.input_schema} /></details>}
      fields={[{ name: "definition", label: "Input", kind: "json" }]}
      preset={{ definition: example(of.input_schema) }}
      call={(body) => ({ method: "POST", path: "/api/v1/workflows", body: { definition: { name: of.name, version: of.version, input: body.definition ?? {} } } })}
      message="Started."
      done={(w) => (close(), started(w))}
      close={close}
    />
  );
}

function Save({ of, close }: { of?: Definition; close: () => void }) {
  return (
    <FormDialog<Definition>
      title={of ? "New version of " + of.name : "New definition"}
      submit="Save"
      fields={[
        { name: "name", label: "Name", required: true, fixed: Boolean(of) },
        { name: "description", label: "Description" },
        { name: "workflow", label: "Steps", kind: "json", required: true, hint: "$input.name in arguments is replaced by a member of the input." },
        { name: "config", label: "Options", kind: "json" },
        { name: "input_schema", label: "Input schema", kind: "json" },
      ]}
      preset={of ?? { workflow: { tasks: [] } }}
      call={({ name, ...body }) => ({ method: "PUT", path: path + "/" + encodeURIComponent(String(name ?? "")), body, ifNew: !of })}
      message="Saved."
      done={(d) => (close(), navigate(addressOf(d.name)))}
      close={close}
    />
  );
}
