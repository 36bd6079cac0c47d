// Definitions of the tools of an MCP server, approved and pending.
import { useState } from "preact/hooks";
import { Confirm } from "./action";
import type { Schemas } from "./api";
import { Action, Badge, Empty, Panel, Table, Time } from "./components";
import { diff, type Line } from "./diff";
import { link } from "./router";
import { Class } from "./toolparts";
import { visible } from "./visible";

type Definition = Schemas["ToolDefinitionView"];
type Shared = { path: string; reload: () => void };

/** approval is the call that approves the pending definition that is shown, and no other. */
export const approval = (d: Definition, path: string) => ({ method: "POST", path: path + "/tools/approve", body: { tool: d.tool, digest: d.pending_digest ?? d.digest } });

/** Changes shows the definitions that wait for approval beside the approved ones. */
export function Changes({ of, path, reload }: Shared & { of: Definition[] }) {
  return (
    <Panel title={`Waiting for approval (${of.length})`} flush>
      {of.map((d, i) => (
        <details key={d.id} class="change" open={i === 0}>
          <summary>
            <strong>{d.tool}</strong>
            <Badge state="quarantined" />
            <span class="faint">
              {d.digest ? "changed" : "new"} <Time at={d.changed_at ?? d.first_seen_at} />
            </span>
          </summary>
          <Difference before={d.definition} after={d.pending ?? d.definition} label={"Definition of " + d.tool} />
          <div class="row spread">
            <span class="faint anywhere">
              SHA-256 <code>{d.pending_digest ?? d.digest}</code>
            </span>
            <Action kind="primary" label="Approve tool" call={approval(d, path)} question={`Approve this definition of ${d.tool}? Agents may call the tool again.`} done={reload} message={d.tool + " is approved."} />
          </div>
        </details>
      ))}
    </Panel>
  );
}

const formatted = (value: unknown) => (value === null || value === undefined ? "" : visible(JSON.stringify(value, null, 2)));

/** Difference shows removed and added lines by colour and sign, and three equal lines around them. */
export function Difference({ before, after, label }: { before: unknown; after: unknown; label: string }) {
  const lines = diff(formatted(before), formatted(after));
  const near = (i: number) => lines.slice(Math.max(0, i - 3), i + 4).some((l) => l.sign !== " ");
  const shown: (Line | undefined)[] = [];
  lines.forEach((line, i) => {
    if (near(i)) shown.push(line);
    else if (shown[shown.length - 1] !== undefined || shown.length === 0) shown.push(undefined);
  });
  const total = (sign: string) => lines.filter((l) => l.sign === sign).length;
  return (
    <pre class="code diff" tabIndex={0} role="region" aria-label={`${label}: ${total("-")} lines removed, ${total("+")} added`}>
      {shown.map((line, i) =>
        line ? (
          <span key={i} class={{ "+": "added", "-": "removed", " ": "" }[line.sign]}>
            {line.sign === "-" ? "−" : line.sign} {line.text + "\n"}
          </span>
        ) : (
          <span key={i} class="gap">
            {"⋯\n"}
          </span>
        ),
      )}
    </pre>
  );
}

/** Definitions is the table of all tools of a server, with their classes. */
export function Definitions({ of, callable, path, reload }: Shared & { of: Definition[]; callable: Schemas["ToolView"][] }) {
  const offered = new Map(callable.map((t) => [t.name, t]));
  const choose = (d: Definition, field: HTMLSelectElement) => {
    setWanted({ tool: d.tool, class: field.value || null });
    field.value = d.class ?? ""; // until the class is stored
  };
  const [wanted, setWanted] = useState<{ tool: string; class: string | null }>();
  return (
    <>
      {wanted && (
        <Confirm
          label="Classify tool"
          question={`Classify ${wanted.tool} ${wanted.class ? "as " + wanted.class : "by the annotations of its server"}? Policies and approvals follow the class.`}
          call={{ method: "POST", path: path + "/tools/classify", body: wanted }}
          close={() => setWanted(undefined)}
          done={reload}
          message={`${wanted.tool} is classified.`}
        />
      )}
      <Table
        label="Tools and their definitions"
        rows={of}
        id={(d) => d.id}
        href={(d) => (offered.has(d.tool) ? link("tools", d.id) : undefined)}
        empty={<Empty icon="tools" title="The server has not listed its tools yet" />}
        columns={[
          { title: "Tool", cell: (d) => (offered.has(d.tool) ? <a class="nowrap" href={link("tools", d.id)}>{d.tool}</a> : <span class="nowrap">{d.tool}</span>) },
          { title: "Description", cell: (d) => <span class="clamp">{offered.get(d.tool)?.description ?? String((d.definition as { description?: string } | null)?.description ?? "")}</span> },
          { title: "Definition", cell: (d) => <Badge state={d.state} /> },
          { title: "Class", cell: (d) => <Class of={offered.get(d.tool)?.class ?? d.class} /> },
          {
            title: "Classified as",
            cell: (d) => (
              <select aria-label={"Class of " + d.tool} value={d.class ?? ""} onChange={(e) => choose(d, e.currentTarget)}>
                <option value="">by annotations</option>
                <option>read</option>
                <option>write</option>
                <option>destructive</option>
              </select>
            ),
          },
          { title: "Changed", cell: (d) => <Time at={d.changed_at} /> },
        ]}
      />
    </>
  );
}
