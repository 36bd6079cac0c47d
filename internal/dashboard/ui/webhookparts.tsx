// Components shared by the views of webhooks.
import type { Schemas } from "./api";
import { Badge } from "./components";
import { moment } from "./format";
import { link } from "./router";
import { can } from "./session";

export type Webhook = Schemas["WebhookView"];

/** HookState shows whether events are delivered. */
export function HookState({ hook: h }: { hook: Webhook }) {
  if (!h.enabled) return <Badge state="disabled" text={h.disabled_reason ? "disabled by comet" : undefined} />;
  return h.failing_since ? <Badge state="failing" of="bad" /> : <Badge state="active" text="enabled" />;
}

/** trouble returns why a webhook delivers nothing, or "" if it delivers. */
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
