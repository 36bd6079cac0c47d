// Webhooks: subscriptions of other programs to events.
import { useState } from "preact/hooks";
import type { Schemas } from "./api";
import { AsCurl, Badge, CopyButton, Dialog, Empty, Json, Loaded, Page, Panel, Table, Tag, Time } from "./components";
import { FormDialog, type FieldSpec } from "./form";
import { kinds, usePages } from "./resource";
import { link, navigate } from "./router";

export type Webhook = Schemas["WebhookView"];

/** HookState shows whether events are delivered. */
export function HookState({ hook: h }: { hook: Webhook }) {
  if (!h.enabled) return <Badge state="disabled" text={h.disabled_reason ? "disabled: " + h.disabled_reason : "disabled"} />;
  return h.failing_since ? <Badge state="failing" of="bad" /> : <Badge state="active" text="enabled" />;
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
                </Empty>
              }
              columns={[
                { title: "Address", cell: (h) => <a class="anywhere" href={link("webhooks", h.id)}>{h.url}</a> },
                { title: "State", cell: (h) => <HookState hook={h} /> },
                { title: "Events", cell: (h) => <span class="row">{h.events.map((e) => <Tag key={e}>{e}</Tag>)}</span> },
                { title: "Description", cell: (h) => h.description },
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
      {issued && <Secret title="Secret of the webhook" name="secret" secret={issued.secret ?? ""} close={() => navigate(link("webhooks", issued.id))} />}
    </Page>
  );
}

/** Secret shows a secret that the server tells only once. */
export function Secret(p: { title: string; name: string; secret: string; line?: string; close: () => void }) {
  return (
    <Dialog title={p.title} close={p.close} footer={<button class="primary" onClick={p.close}>I have stored it</button>}>
      <p>The server shows this {p.name} only once.</p>
      <Json label={p.title} value={p.secret} />
      <div class="row">
        <CopyButton text={p.secret} label={"Copy " + p.name} />
        {p.line && <CopyButton text={p.line} label="Copy as export line" />}
      </div>
    </Dialog>
  );
}

/** events are what a webhook can subscribe to. */
const events = ["*", "agent.*", "webhook.*", "workflow.*", "schedule.*", "publication.*", "agent.created", "agent.updated", "agent.deactivated", "agent.budget_warning", "agent.budget_exceeded", "workflow.started", "workflow.paused", "workflow.resumed", "workflow.ended"];

/** HookForm creates a webhook, or changes the given one. */
export function HookForm(p: { hook?: Webhook; etag?: string; close: () => void; done: (hook: Schemas["WebhookIssued"]) => void }) {
  const fields: FieldSpec[] = [
    { name: "url", label: "Address", required: true, hint: "The URL that receives a POST request for each event." },
    { name: "events", label: "Events", kind: "choices", required: true, options: [...new Set([...events, ...(p.hook?.events ?? [])])].map((e) => [e, e]) },
    { name: "description", label: "Description", nullable: true },
    { name: "agent_id", label: "Only events about this agent", nullable: true, hint: "The id of an agent." },
    { name: "subtree", label: "And about the agents below it", kind: "checkbox" },
    { name: "ordering", label: "Order", kind: "select", options: [["none", "in any order"], ["agent", "in order for each agent"]] },
    { name: "timeout_seconds", label: "Time limit of a request, in seconds", kind: "number", nullable: true },
  ];
  return (
    <FormDialog<Schemas["WebhookIssued"]>
      title={p.hook ? "Edit webhook" : "New webhook"}
      fields={fields}
      initial={p.hook}
      preset={{ events: ["*"], ordering: "none" }}
      submit={p.hook ? "Save" : "Create webhook"}
      close={p.close}
      done={p.done}
      call={(body) => (p.hook ? { method: "PATCH", path: "/api/v1/webhooks/" + p.hook.id, body, ifMatch: p.etag } : { method: "POST", path: "/api/v1/webhooks", body })}
    />
  );
}
