// Webhooks: subscriptions of other programs to events.
import { useState } from "preact/hooks";
import type { Schemas } from "./api";
import { AsCurl, Badge, CopyButton, Empty, Json, Loaded, Page, Panel, Table, Tag, Time } from "./components";
import { Dialog } from "./dialog";
import { FormDialog, type FieldSpec } from "./form";
import { moment } from "./format";
import { kinds, usePages } from "./resource";
import { link, navigate } from "./router";
import { can, me } from "./session";

export type Webhook = Schemas["WebhookView"];

/** HookState shows whether events are delivered. */
export function HookState({ hook: h }: { hook: Webhook }) {
  if (!h.enabled) return <Badge state="disabled" text={h.disabled_reason ? "disabled by comet" : undefined} />;
  return h.failing_since ? <Badge state="failing" of="bad" /> : <Badge state="active" text="enabled" />;
}

/** trouble returns why a webhook delivers nothing, "" if it delivers. */
export function trouble(h: Webhook): string {
  if (!h.enabled) return h.disabled_reason ?? "";
  return h.failing_since ? "No delivery has succeeded since " + moment(h.failing_since) : "";
}

/** HookAgent names the agents whose events a webhook receives. */
export function HookAgent({ hook: h }: { hook: Webhook }) {
  if (!h.agent_id) return <span class="muted">all</span>;
  return (
    <span class="truncate" title={h.agent_id}>
      {can("agents:read") ? <a href={link("agents", h.agent_id)}>{h.agent_id}</a> : h.agent_id}
      {h.subtree && <span class="faint"> and below</span>}
    </span>
  );
}

export function Webhooks() {
  const path = "/api/v1/webhooks?limit=100";
  const list = usePages<Webhook>(path, "webhooks", kinds("webhook."));
  const [creating, setCreating] = useState(false);
  const [issued, setIssued] = useState<Schemas["WebhookIssued"]>();
  return (
    <Page
      name="webhooks"
      title="Webhooks"
      ready={!list.loading || Boolean(list.data)}
      actions={
        <>
          <AsCurl calls={[{ path }]} />
          <button class="primary" onClick={() => setCreating(true)}>
            New webhook
          </button>
        </>
      }
    >
      <Panel title="Webhooks" flush>
        <Loaded of={list}>
          {(rows) => (
            <Table
              label="Webhooks"
              rows={rows}
              id={(h) => h.id}
              href={(h) => link("webhooks", h.id)}
              more={list.more}
              empty={
                <Empty icon="webhooks" title="No webhook yet">
                  <span>A webhook receives events as signed HTTP requests.</span>
                  <button onClick={() => setCreating(true)}>New webhook</button>
                </Empty>
              }
              columns={[
                { title: "Address", cell: (h) => <Address hook={h} /> },
                { title: "State", cell: (h) => <StateCell hook={h} /> },
                { title: "Events", cell: (h) => <Events of={h.events} /> },
                { title: "Agents", cell: (h) => <HookAgent hook={h} /> },
                { title: "Created", cell: (h) => <Time at={h.created_at} /> },
              ]}
            />
          )}
        </Loaded>
      </Panel>
      {creating && (
        <HookForm
          close={() => setCreating(false)}
          done={(hook) => {
            setCreating(false);
            setIssued(hook);
          }}
        />
      )}
      {issued && <Secret title="Secret of the webhook" name="secret" secret={issued.secret ?? ""} hint="The receiver verifies signatures with it." close={() => navigate(link("webhooks", issued.id))} />}
    </Page>
  );
}

function Address({ hook: h }: { hook: Webhook }) {
  return (
    <div class="lines">
      <a class="anywhere" href={link("webhooks", h.id)}>
        {h.url}
      </a>
      {h.description && <span class="faint anywhere">{h.description}</span>}
    </div>
  );
}

function StateCell({ hook: h }: { hook: Webhook }) {
  return (
    <div class="lines">
      <span>
        <HookState hook={h} />
      </span>
      {!h.enabled && h.disabled_reason && <span class="faint">{h.disabled_reason}</span>}
      {h.enabled && h.failing_since && (
        <span class="faint nowrap">
          since <Time at={h.failing_since} />
        </span>
      )}
    </div>
  );
}

/** Events shows at most four event types, and the number of the others. */
function Events({ of }: { of: string[] }) {
  return (
    <span class="tags" title={of.join(", ")}>
      {of.slice(0, 4).map((e) => <Tag key={e}>{e === "*" ? "all events" : e}</Tag>)}
      {of.length > 4 && <span class="faint">and {of.length - 4} more</span>}
    </span>
  );
}

/** Secret shows a secret that the server returns only once. */
export function Secret(p: { title: string; name: string; secret: string; hint?: string; line?: string; close: () => void }) {
  return (
    <Dialog title={p.title} stays close={p.close} footer={<button class="primary" onClick={p.close}>I have stored it</button>}>
      <p>
        comet shows this {p.name} only now. {p.hint}
      </p>
      <div class="secret">
        <Json label={p.title} value={p.secret} />
        <CopyButton text={p.secret} label={"Copy " + p.name} />
        {p.line && <Json label="Line for a shell" value={p.line} />}
        {p.line && <CopyButton text={p.line} label="Copy line" />}
      </div>
    </Dialog>
  );
}

/** events are what a webhook can subscribe to. */
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
      close={p.close}
      done={p.done}
      call={(body) => (p.hook ? { method: "PATCH", path: "/api/v1/webhooks/" + p.hook.id, body: hookBody(body), ifMatch: p.etag } : { method: "POST", path: "/api/v1/webhooks", body: hookBody(body) })}
    />
  );
}
