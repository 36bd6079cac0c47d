// The form that creates or changes an agent.
import type { Schemas } from "./api";
import { FormDialog, type FieldSpec } from "./form";
import { levels } from "./agentparts";

/** AgentForm creates an agent below parent, or changes the given agent if its version is still that of etag. */
export function AgentForm(p: { agent?: Schemas["AgentDetail"]; etag?: string; parent?: string; level?: number; close: () => void; done: (id: string) => void }) {
  const edit = p.agent !== undefined;
  const fields: FieldSpec[] = [
    { name: "id", label: "Id", required: true, fixed: edit, hint: "Lowercase letters, digits and hyphens; it cannot be changed later." },
    { name: "name", label: "Name", required: true },
    { name: "description", label: "Description", kind: "textarea", nullable: true },
    ...(edit ? [] : [{ name: "level", label: "Level", kind: "select", options: levels.slice(1).map((text, i) => [String(i + 1), text]) } as FieldSpec]),
    { name: "parent_id", label: "Parent", nullable: true, hint: "The id of an agent one level above." },
    { name: "sphere_id", label: "Sphere", kind: "number", nullable: true, hint: "1 to 9. By default, the sphere of the parent." },
    { name: "type", label: "Type", nullable: true, hint: "What kind of worker it is, such as code or research." },
    { name: "capabilities", label: "Capabilities", kind: "list", hint: "One per line. Prefix your own capabilities with custom:." },
    { name: "token_budget", label: "Tokens per day", kind: "number", nullable: true },
    { name: "budget_scope", label: "Budget scope", kind: "select", options: [["own", "own: usage of this agent only"], ["subtree", "subtree: usage of this agent and all agents below it"]] },
  ];
  return (
    <FormDialog<Schemas["AgentItem"]>
      title={edit ? "Edit " + p.agent!.id : "New agent"}
      fields={fields}
      initial={p.agent}
      preset={{ level: p.level ?? 2, parent_id: p.parent, budget_scope: "own" }}
      submit={edit ? "Save" : "Create agent"}
      message={edit ? "Agent saved." : "Agent created."}
      close={p.close}
      done={(agent) => (p.close(), p.done(p.agent?.id ?? agent.id))}
      call={(body) =>
        edit
          ? { method: "PATCH", path: "/api/v1/agents/" + encodeURIComponent(p.agent!.id), body, ifMatch: p.etag }
          : { method: "POST", path: "/api/v1/agents", body: { ...body, level: Number(body.level) } }
      }
    />
  );
}
