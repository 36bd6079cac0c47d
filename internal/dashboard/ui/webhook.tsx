// One webhook: its settings, deliveries and actions.
import { useCallback, useState } from "preact/hooks";
import { request, type Schemas } from "./api";
import { Action, AsCurl, Facts, Loaded, Page, Panel, Tag, Time } from "./components";
import { FormDialog } from "./form";
import { duration } from "./format";
import { Icon } from "./icons";
import { titleOf } from "./problem";
import { about, useLoad, useRepeat } from "./resource";
import { link, navigate, setParameters } from "./router";
import { notify } from "./toasts";
import { Deliveries } from "./webhookdeliveries";
import { HookForm } from "./webhookform";
import { HookAgent, HookState, trouble, type Webhook as Hook } from "./webhookparts";
import { Secret } from "./secret";

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
  useRepeat(loaded.reload, true, 5000); // changes of webhooks do not emit events
  const [dialog, setDialog] = useState<"edit" | "rotate">();
  const [secret, setSecret] = useState<string>();
  const hook = loaded.data?.hook;
  const close = () => setDialog(undefined);
  return (
    <Page
      name="webhook"
      title={hook?.url ?? titleOf(id, loaded.problem)}
      crumbs={[["Webhooks", link("webhooks")]]}
      ready={!loaded.loading || Boolean(hook)}
      badge={hook && <HookState hook={hook} />}
      subtitle={hook?.description}
      actions={hook && <Actions hook={hook} path={path} reload={loaded.reload} open={setDialog} />}
    >
      <Loaded of={loaded}>
        {({ hook: h }) => (
          <>
            {trouble(h) && (
              <div class={h.enabled ? "notice warn" : "notice bad"}>
                <Icon name="warning" />
                <div>{h.enabled ? trouble(h) + "." : "comet disabled this webhook: " + trouble(h) + "."}</div>
              </div>
            )}
            <About hook={h} />
            <Deliveries path={path} ordered={h.ordering === "agent"} changed={loaded.reload} />
          </>
        )}
      </Loaded>
      {dialog === "edit" && hook && <HookForm hook={hook} etag={loaded.data?.etag} close={close} done={() => (close(), loaded.reload())} />}
      {dialog === "rotate" && <Rotation path={path} close={close} done={(r) => (close(), setSecret(r.secret), loaded.reload())} />}
      {secret !== undefined && <Secret title="New secret" name="secret" secret={secret} hint="The receiver verifies signatures with it." close={() => setSecret(undefined)} />}
    </Page>
  );
}

function Actions({ hook, path, reload, open }: { hook: Hook; path: string; reload: () => void; open: (dialog: "edit" | "rotate") => void }) {
  const tested = (r: Schemas["WebhookTested"]) => {
    if (!r.succeeded) notify("bad", "The test failed: " + (r.attempt.error ?? "status " + r.attempt.status) + ".");
    setParameters({ delivery: r.delivery_id });
    reload();
  };
  const change = { method: "PATCH", path, body: { enabled: !hook.enabled } };
  return (
    <>
      <AsCurl calls={[{ path }, { path: path + "/deliveries?limit=50" }]} />
      {hook.enabled ? (
        <Action key="disable" label="Disable" call={change} done={reload} question="Disable this webhook? Until it is enabled again, comet sends nothing and creates no deliveries; missed events can be delivered later." message="Webhook disabled." />
      ) : (
        <Action key="enable" label="Enable" call={change} done={reload} message="Webhook enabled." />
      )}
      <button onClick={() => open("rotate")}>Rotate secret</button>
      <Action label="Delete" kind="danger" question="Delete this webhook and its deliveries?" call={{ method: "DELETE", path }} done={() => navigate(link("webhooks"))} message="Webhook deleted." />
      <button onClick={() => open("edit")}>Edit</button>
      <Action<Schemas["WebhookTested"]> label="Send test event" kind="primary" call={{ method: "POST", path: path + "/test" }} message={(r) => (r.succeeded ? `The receiver responded with ${r.attempt.status} after ${duration(r.attempt.duration_ms)}.` : "")} done={tested} />
    </>
  );
}

function About({ hook: h }: { hook: Hook }) {
  return (
    <Panel title="About">
      <Facts
        of={[
          ["Id", <code>{h.id}</code>],
          ["Events", <span class="tags">{h.events.map((e) => <Tag key={e}>{e === "*" ? "all events" : e}</Tag>)}</span>],
          ["Agents", <HookAgent hook={h} />],
          ["Order", h.ordering === "agent" ? "one after the other for each agent and workflow" : "in parallel, in any order"],
          ["Headers", h.header_names.length > 0 && <span class="tags">{h.header_names.map((n) => <Tag key={n}>{n}</Tag>)}</span>],
          ["Time limit", h.timeout_seconds && h.timeout_seconds + " s"],
          ["Retries after", h.retry_seconds.length > 0 && h.retry_seconds.map((s) => duration(s * 1000)).join(", ")],
          ["Public keys", h.public_keys.length > 0 && <ul>{h.public_keys.map((k) => <li key={k}><code>{k}</code></li>)}</ul>],
          ["Previous secret", h.previous_secret_expires_at && <>signs until <Time at={h.previous_secret_expires_at} /></>],
          ["Created", <><Time at={h.created_at} /> by {h.created_by}</>],
          ["Changed", h.updated_at !== h.created_at && <Time at={h.updated_at} />],
        ]}
      />
    </Panel>
  );
}

/** Rotation issues a new secret; the previous one also signs while receivers switch to the new one. */
function Rotation({ path, close, done }: { path: string; close: () => void; done: (r: Schemas["WebhookIssued"]) => void }) {
  return (
    <FormDialog<Schemas["WebhookIssued"]>
      title="Rotate secret"
      submit="Rotate secret"
      message="Secret rotated."
      secret
      close={close}
      done={done}
      preset={{ grace_seconds: 86400 }}
      fields={[{ name: "grace_seconds", label: "Keep signing with the previous secret", kind: "select", options: [["0", "no, it has leaked"], ["3600", "for an hour"], ["86400", "for a day"], ["604800", "for a week"]], hint: "The receiver can switch at any time in this period." }]}
      call={(body) => ({ method: "POST", path: path + "/rotate-secret", body: { grace_seconds: Number(body.grace_seconds) } })}
    />
  );
}
