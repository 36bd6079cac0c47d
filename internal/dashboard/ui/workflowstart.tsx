// The form that starts a workflow.
import type { Schemas } from "./api";
import { FormDialog } from "./form";
import { link, navigate } from "./router";

/** started shows the workflow that a request has started. An uncertain plan does not start a workflow. */
export const started = (w: Schemas["Workflow"]) => w.workflow_id && navigate(link("workflows", w.workflow_id));

const example = { tasks: [{ id: "tools", tool: "agentcards:search_tools", arguments: { query: "read a file" } }, { id: "count", type: "code_execution", code: "return JSON.stringify(deps.tools).length", depends_on: ["tools"] }] };

export function Start({ close }: { close: () => void }) {
  return (
    <FormDialog<Schemas["Workflow"]>
      title="Start a workflow"
      submit="Start"
      fields={[
        { name: "workflow", label: "Steps", kind: "json", required: true, hint: "A reference such as $tools.result is replaced by the result of another step." },
        { name: "config", label: "Options", kind: "json", hint: "approvals, approver, budget, on_error, per_layer_validation, task_timeout_ms" },
      ]}
      preset={{ workflow: example, config: { approvals: "destructive" } }}
      call={(body) => ({ method: "POST", path: "/api/v1/workflows", body })}
      message="Started."
      done={(w) => (close(), started(w))}
      close={close}
    />
  );
}
