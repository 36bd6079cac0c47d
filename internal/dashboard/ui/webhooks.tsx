// Webhooks: subscriptions of other programs to events.
import { useState } from "preact/hooks";
import type { Schemas } from "./api";
import { AsCurl, Empty, Loaded, Page, Panel, Table, Tag, Time } from "./components";
import { kinds, usePages, useRepeat } from "./resource";
import { link, navigate } from "./router";
import { Secret } from "./secret";
import { HookForm } from "./webhookform";
import { HookAgent, HookState, type Webhook } from "./webhookparts";

export function Webhooks() {
  const path = "/api/v1/webhooks?limit=100";
  const list = usePages<Webhook>(path, "webhooks", kinds("webhook."));
  useRepeat(list.reload, true, 5000); // creating or changing a webhook does not emit an event
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
