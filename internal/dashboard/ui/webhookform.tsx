// The form of a webhook.
import type { Schemas } from "./api";
import { FormDialog, type FieldSpec } from "./form";
import { me } from "./session";
import type { Webhook } from "./webhookparts";

/** events are the event types that a webhook can subscribe to. */
const events = [
  "*", "agent.*", "agent.created", "agent.updated", "agent.deactivated", "agent.budget_warning", "agent.budget_exceeded",
  "workflow.*", "workflow.started", "workflow.paused", "workflow.resumed", "workflow.ended",
  "schedule.*", "schedule.created", "schedule.changed", "schedule.deleted", "schedule.run", "schedule.failed",
  "webhook.*", "webhook.disabled", "webhook.delivery_dead", "publication.*", "publication.dead",
];

/** hookBody returns the request body for the values of the form. */
function hookBody({ headers, no_headers, retry_seconds, ...body }: Record<string, unknown>): Record<string, unknown> {
  if (typeof headers === "string") {
    const lines = headers.split("\n").filter((line) => line.trim());
    body.headers = Object.fromEntries(lines.map((line) => [line.split(":")[0]!.trim(), line.split(":").slice(1).join(":").trim()]));
  } else if (no_headers) body.headers = null;
  if (Array.isArray(retry_seconds)) body.retry_seconds = retry_seconds.map(Number);
  return body;
}

/** HookForm creates a webhook, or changes the given one. */
export function HookForm(p: { hook?: Webhook; etag?: string; close: () => void; done: (hook: Schemas["WebhookIssued"]) => void }) {
  const own = me.value?.token.agent_id;
  const names = p.hook?.header_names ?? [];
  const fields: FieldSpec[] = [
    { name: "url", label: "Address", required: true, hint: "It receives a POST request for each event." },
    { name: "description", label: "Description", nullable: true },
    { name: "events", label: "Events", kind: "choices", required: true, options: events.map((e) => [e, e === "*" ? "all events" : e]) },
    { name: "agent_id", label: own ? "Agent" : "Only events about this agent", required: Boolean(own), nullable: true, hint: own ? "Your agent, or one below it." : "The id of an agent. Leave empty for all agents." },
    { name: "subtree", label: "Also events about the agents below it", kind: "checkbox" },
    { name: "ordering", label: "Order", kind: "select", options: [["none", "in parallel, in any order"], ["agent", "one after the other for each agent and workflow"]] },
    { name: "headers", label: "Headers", kind: "textarea", hint: names.length > 0 ? `Currently ${names.join(", ")}. What you enter replaces all of them.` : "One per line: Authorization: Bearer …" },
    ...(names.length > 0 ? [{ name: "no_headers", label: "Remove all headers", kind: "checkbox" } as FieldSpec] : []),
    { name: "timeout_seconds", label: "Time limit of an attempt (seconds)", kind: "number", nullable: true, hint: "1 to 60. Leave empty for the limit of the server." },
    { name: "retry_seconds", label: "Delays before retries (seconds)", kind: "list", nullable: Boolean(p.hook), hint: "Such as 10, 60, 600. Leave empty for eight attempts within a day." },
    { name: "asymmetric", label: "Also sign with an Ed25519 key", kind: "checkbox", hint: "The receiver then verifies with a public key and holds no secret." },
  ];
  return (
    <FormDialog<Schemas["WebhookIssued"]>
      title={p.hook ? "Edit webhook" : "New webhook"}
      fields={fields}
      initial={p.hook && { ...p.hook, asymmetric: p.hook.public_keys.length > 0 }}
      preset={{ events: ["*"], ordering: "none", agent_id: own, subtree: Boolean(own) }}
      submit={p.hook ? "Save" : "Create webhook"}
      message={p.hook ? "Webhook saved." : "Webhook created."}
      secret={!p.hook}
      close={p.close}
      done={p.done}
      call={(body) => (p.hook ? { method: "PATCH", path: "/api/v1/webhooks/" + p.hook.id, body: hookBody(body), ifMatch: p.etag } : { method: "POST", path: "/api/v1/webhooks", body: hookBody(body) })}
    />
  );
}
