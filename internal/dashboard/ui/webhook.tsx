// One webhook and its deliveries.
import { useCallback, useState } from "preact/hooks";
import { query, request, type Schemas } from "./api";
import { Action, AsCurl, Badge, Dialog, Empty, Facts, Filter, Json, Loaded, Page, Panel, Table, Tag, Time } from "./components";
import { FormDialog } from "./form";
import { count, duration, moment } from "./format";
import { about, useGet, useLoad, usePages } from "./resource";
import { link, navigate, parameter, setParameters } from "./router";
import { notify } from "./toasts";
import { HookForm, HookState, Secret, type Webhook as Hook } from "./webhooks";

export function Webhook({ id }: { id: string }) {
  const path = "/api/v1/webhooks/" + encodeURIComponent(id);
  const load = useCallback(
    async (signal: AbortSignal) => {
      const response = await request({ path }, signal);
      return { hook: (await response.json()) as Hook, etag: response.headers.get("ETag") ?? undefined };
    },
    [path],
  );
  const loaded = useLoad(load, about("webhook.", id));
  const [dialog, setDialog] = useState<"edit" | "redeliver">();
  const [secret, setSecret] = useState<string>();
  const hook = loaded.data?.hook;
  return (
    <Page
      name="webhook"
      title={hook?.url ?? id}
      crumbs={[["Webhooks", link("webhooks")]]}
      ready={!loaded.loading || Boolean(hook)}
      badge={hook && <HookState hook={hook} />}
      subtitle={hook?.description}
      actions={
        hook && (
          <>
            <AsCurl calls={[{ path }, { path: path + "/deliveries" }]} />
            <Action<Schemas["WebhookTested"]> label="Send test event" call={{ method: "POST", path: path + "/test" }} message="The test event was sent." done={(r) => (r.succeeded ? undefined : notify("bad", "The test failed: " + (r.attempt.error || "status " + r.attempt.status)))} />
            <Action label={hook.enabled ? "Disable" : "Enable"} call={{ method: "PATCH", path, body: { enabled: !hook.enabled } }} done={loaded.reload} message={hook.enabled ? "The webhook is disabled." : "The webhook is enabled."} />
            <Action<Schemas["WebhookIssued"]> label="Rotate secret" question="Issue a new secret? Requests are signed with both secrets for a day." call={{ method: "POST", path: path + "/rotate-secret", body: {} }} done={(r) => setSecret(r.secret)} message="The secret is rotated." />
            <Action label="Delete" kind="danger" question="Delete this webhook? Its deliveries are deleted, too." call={{ method: "DELETE", path }} done={() => navigate(link("webhooks"))} message="The webhook is deleted." />
            <button class="primary" onClick={() => setDialog("edit")}>
              Edit
            </button>
          </>
        )
      }
    >
      <Loaded of={loaded}>
        {({ hook: h }) => (
          <>
            {h.failing_since && (
              <div class="notice warn">
                <div>
                  Deliveries have failed since {moment(h.failing_since)}. {h.disabled_reason && "Reason: " + h.disabled_reason}
                </div>
              </div>
            )}
            <Panel title="About">
              <Facts
                of={[
                  ["Id", <code>{h.id}</code>],
                  ["Events", <span class="row">{h.events.map((e) => <Tag key={e}>{e}</Tag>)}</span>],
                  ["Agent", h.agent_id && <a href={link("agents", h.agent_id)}>{h.agent_id}{h.subtree ? " and the agents below it" : ""}</a>],
                  ["Order", h.ordering === "agent" ? "in order for each agent" : "in any order"],
                  ["Headers", h.header_names.join(", ")],
                  ["Time limit", h.timeout_seconds && h.timeout_seconds + " s"],
                  ["Created", <Time at={h.created_at} />],
                ]}
              />
            </Panel>
            <Deliveries path={path} id={id} redeliver={() => setDialog("redeliver")} />
          </>
        )}
      </Loaded>
      {dialog === "edit" && hook && <HookForm hook={hook} etag={loaded.data?.etag} close={() => setDialog(undefined)} done={() => (setDialog(undefined), loaded.reload())} />}
      {dialog === "redeliver" && <Redelivery path={path} close={() => setDialog(undefined)} />}
      {secret !== undefined && <Secret title="New secret" name="secret" secret={secret} close={() => setSecret(undefined)} />}
      {parameter("delivery") && <Delivery path={path + "/deliveries/" + encodeURIComponent(parameter("delivery"))} />}
    </Page>
  );
}

function Deliveries({ path, id, redeliver }: { path: string; id: string; redeliver: () => void }) {
  const list = usePages<Schemas["Delivery"]>(query(path + "/deliveries", { status: parameter("status"), limit: 50 }), "deliveries", (e) => e.type.startsWith("agent.") || e.type.startsWith("workflow.") || e.key === id);
  return (
    <Panel
      title="Deliveries"
      flush
      actions={
        <>
          <Filter name="status" label="Status" options={[["", "Any"], ["pending", "Pending"], ["succeeded", "Succeeded"], ["dead", "Dead"]]} />
          <button onClick={list.reload}>Read again</button>
          <button onClick={redeliver}>Redeliver many</button>
        </>
      }
    >
      <Loaded of={list}>
        {(rows) => (
          <Table
            label="Deliveries"
            rows={rows}
            id={(d) => d.id}
            more={list.more}
            empty={<Empty icon="webhooks" title={parameter("status") ? "No delivery has this status" : "No delivery yet"} />}
            columns={[
              { title: "Event", cell: (d) => <button class="link" onClick={() => setParameters({ delivery: d.id })}>{d.event}</button> },
              { title: "About", cell: (d) => <span class="anywhere">{d.key}</span> },
              { title: "Status", cell: (d) => <Badge state={d.status} /> },
              { title: "Attempts", number: true, cell: (d) => count(d.attempt_count) },
              { title: "Next attempt", cell: (d) => <Time at={d.next_attempt_at} /> },
              { title: "Event at", cell: (d) => <Time at={d.event_at} /> },
              { title: "", cell: (d) => d.status !== "pending" && <Action label="Redeliver" kind="quiet" call={{ method: "POST", path: `${path}/deliveries/${d.id}/redeliver` }} done={list.reload} message="The event is delivered again." /> },
            ]}
          />
        )}
      </Loaded>
    </Panel>
  );
}

function Delivery({ path }: { path: string }) {
  const delivery = useGet<Schemas["DeliveryDetail"]>(path);
  return (
    <Dialog title="Delivery" wide close={() => setParameters({ delivery: "" })} footer={<AsCurl calls={[{ path }]} />}>
      <Loaded of={delivery}>
        {(d) => (
          <>
            <Facts of={[["Event", d.event], ["About", d.key], ["Status", <Badge state={d.status} />], ["Next attempt", d.next_attempt_at && <Time at={d.next_attempt_at} />]]} />
            <h3>Attempts</h3>
            <Table
              label="Attempts"
              rows={d.attempts}
              id={(a) => String(a.attempt)}
              empty={<p class="muted">No attempt yet.</p>}
              columns={[
                { title: "Attempt", number: true, cell: (a) => a.attempt },
                { title: "At", cell: (a) => moment(a.at) },
                { title: "Duration", number: true, cell: (a) => duration(a.duration_ms) },
                { title: "Response", cell: (a) => (a.status ? <Badge state={String(a.status)} of={a.status < 300 ? "good" : "bad"} /> : <span class="anywhere">{a.error}</span>) },
                { title: "Excerpt", cell: (a) => <code class="anywhere">{a.response_excerpt}</code> },
              ]}
            />
            <h3>Payload</h3>
            <Json label="Payload" value={d.payload} />
          </>
        )}
      </Loaded>
    </Dialog>
  );
}

function Redelivery({ path, close }: { path: string; close: () => void }) {
  const hourAgo = new Date(Date.now() - 3_600_000).toISOString().slice(0, 19) + "Z";
  return (
    <FormDialog<Schemas["RedeliveryResult"]>
      title="Redeliver many"
      submit="Redeliver"
      close={close}
      preset={{ since: hourAgo }}
      message="The events are delivered again."
      fields={[
        { name: "since", label: "Events since", required: true, hint: "A time with a time zone, such as " + hourAgo + "." },
        { name: "until", label: "Events until" },
        { name: "include_succeeded", label: "Also those that succeeded", kind: "checkbox" },
        { name: "include_missed", label: "Also those that this webhook has missed", kind: "checkbox" },
      ]}
      call={(body) => ({ method: "POST", path: path + "/redeliver", body })}
      done={(r) => (close(), notify("good", count(r.redelivered) + " deliveries start again."))}
    />
  );
}
