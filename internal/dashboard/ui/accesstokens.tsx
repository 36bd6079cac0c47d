// Tokens as a tree: each token is below the one that it descends from, and is revoked with it.
import { useState } from "preact/hooks";
import type { Schemas } from "./api";
import { Action, AsCurl, Badge, Empty, Loaded, Panel, Table, Tag, Time } from "./components";
import { FormDialog, type FieldSpec } from "./form";
import { count, moment, now } from "./format";
import { kinds, usePages } from "./resource";
import { link, parameter, setParameters } from "./router";
import { can, identify, me, type Scope } from "./session";
import { Secret } from "./secret";

type Token = Schemas["TokenView"];
type Issued = Schemas["TokenIssued"];
type Row = { token: Token; depth: number; parent?: string; below: Token[] };

/** scopes are all scopes of tokens, each with a description. */
export const scopes: [Scope, string][] = [
  ["admin", "Full access, including tokens, keys and the settings of tools."],
  ["agents:read", "Read agents, their budgets and their usage."],
  ["agents:write", "Create, change and deactivate agents."],
  ["usage:write", "Record usage, and reserve tokens of budgets."],
  ["webhooks:write", "Manage webhooks and their deliveries."],
  ["messages:send", "Submit and execute tasks, and send messages."],
  ["tasks:read", "Read all tasks, sessions and workers."],
  ["tools:call", "Call tools and run workflows."],
  ["workflows:approve", "Decide on checkpoints of workflows."],
];

/** standing returns the state of a token. */
const standing = (t: Token) => (t.revoked_at ? "revoked" : t.expires_at && Date.parse(t.expires_at) < now.value ? "expired" : "valid");

/** asTree orders tokens so that each follows the token it descends from, with its depth and those below it. */
function asTree(tokens: Token[]): Row[] {
  const known = new Map(tokens.map((t) => [t.id, t]));
  const children = Map.groupBy(tokens, (t) => (t.parent_id && known.has(t.parent_id) ? t.parent_id : ""));
  const rows: Row[] = [];
  const add = (parent: string, depth: number): Token[] =>
    (children.get(parent) ?? []).flatMap((token) => {
      const row: Row = { token, depth, parent: token.parent_id ? (known.get(token.parent_id)?.name ?? token.parent_id) : undefined, below: [] };
      rows.push(row);
      row.below = add(token.id, depth + 1);
      return [token, ...row.below];
    });
  add("", 0);
  return rows;
}

export function Tokens() {
  const path = "/api/v1/tokens?limit=200";
  const list = usePages<Token>(path, "tokens", kinds("token."));
  const [creating, setCreating] = useState(false);
  const [issued, setIssued] = useState<Issued>();
  const all = parameter("all") === "true";
  const show = (t: Issued) => (setCreating(false), setIssued(t), list.reload());
  return (
    <Panel
      title="Tokens"
      flush
      actions={
        <div class="filters">
          <label>
            <input type="checkbox" checked={all} onChange={(e) => setParameters({ all: e.currentTarget.checked ? "true" : "" }, true)} /> also revoked and expired
          </label>
          <AsCurl calls={[{ path }]} />
          <button class="primary" onClick={() => setCreating(true)}>
            New token
          </button>
        </div>
      }
    >
      <Loaded of={list}>
        {(tokens) => (
          <Table
            label="Tokens"
            rows={asTree(tokens).filter(({ token, below }) => all || [token, ...below].some((t) => standing(t) === "valid"))}
            id={({ token }) => token.id}
            more={list.more}
            empty={<Empty icon="access" title="No valid token" />}
            columns={[
              { title: "Token", cell: (row) => <Name of={row} /> },
              { title: "Scopes", cell: ({ token }) => <span class="tags">{token.scopes.map((s) => <Tag key={s}>{s}</Tag>)}</span> },
              { title: "Agent", cell: ({ token: t }) => t.agent_id && (can("agents:read") ? <a class="truncate" href={link("agents", t.agent_id)}>{t.agent_id}</a> : <span class="truncate">{t.agent_id}</span>) },
              { title: "Created by", cell: ({ token: t }) => <span class="truncate" title={moment(t.created_at)}>{t.created_by}</span> },
              { title: "Last used", cell: ({ token: t }) => (t.last_used_at ? <Time at={t.last_used_at} /> : <span class="faint">never</span>) },
              { title: "Expires", cell: ({ token }) => <Expiry of={token} /> },
              { title: "", number: true, cell: (row) => standing(row.token) === "valid" && <Actions of={row} issued={show} reload={list.reload} /> },
            ]}
          />
        )}
      </Loaded>
      {creating && <TokenForm close={() => setCreating(false)} done={show} />}
      {issued && <Secret title={"Token " + issued.name} name="token" secret={issued.token ?? ""} line={`export COMET_TOKEN=${issued.token}`} close={() => (setIssued(undefined), void identify().catch(() => {}))} />}
    </Panel>
  );
}

function Name({ of: { token: t, depth, parent } }: { of: Row }) {
  return (
    <span class="token" style={{ paddingLeft: Math.min(depth, 6) * 16 + "px" }} title={t.id}>
      {depth > 0 && <span class="branch" aria-hidden="true" />}
      <span class="truncate">{t.name}</span>
      {parent && <span class="faint truncate">child of {parent}</span>}
      {standing(t) !== "valid" && <Badge state={standing(t)} of="" />}
      {t.id === me.value?.token.id && <Badge state="yours" of="accent" />}
    </span>
  );
}

/** Expiry warns a week before a token expires. */
function Expiry({ of: t }: { of: Token }) {
  if (!t.expires_at) return <span class="faint">never</span>;
  const left = Date.parse(t.expires_at) - now.value;
  return <span class={left > 0 && left < 7 * 86_400_000 && !t.revoked_at ? "soon" : ""}><Time at={t.expires_at} /></span>;
}

function Actions({ of: { token: t, below }, issued, reload }: { of: Row; issued: (t: Issued) => void; reload: () => void }) {
  const path = "/api/v1/tokens/" + encodeURIComponent(t.id);
  const yours = t.id === me.value?.token.id;
  const ending = below.filter((b) => standing(b) === "valid");
  const revoked = () => (yours ? void identify().catch(() => {}) : reload());
  return (
    <span class="row end">
      <Action<Issued> label="Rotate" kind="quiet" call={{ method: "POST", path: path + "/rotate" }} question={`Issue a new secret for ${t.name}? The old one stops working at once${yours ? ". This is your token" : ""}.`} done={issued} message="Token rotated." />
      <Action
        label="Revoke"
        kind="danger"
        call={{ method: "DELETE", path }}
        question={`Revoke ${t.name}? This cannot be undone.${yours ? " This is your token: you will be logged out." : ""}`}
        details={
          ending.length > 0 && (
            <>
              <p>{ending.length === 1 ? "The token below it is revoked, too:" : `The ${count(ending.length)} tokens below it are revoked, too:`}</p>
              <ul class="tags">
                {ending.slice(0, 20).map((b) => (
                  <li key={b.id}>
                    <Tag>{b.name}</Tag>
                  </li>
                ))}
                {ending.length > 20 && <li class="faint">and {count(ending.length - 20)} more</li>}
              </ul>
            </>
          )
        }
        done={revoked}
        message="Token revoked."
      />
    </span>
  );
}

/** Parent shows the parent of a new token: the API always makes it a child of the caller's token. */
function Parent() {
  const { name, agent_id } = me.value!.token;
  return (
    <p class="muted">
      {agent_id
        ? `The new token is a child of your token ${name}: it is revoked together with it and has no more rights.`
        : `Your token ${name} covers the whole system, so the new token has no parent and stays valid when yours is revoked.`}{" "}
      To create a child of another token, log in with that token.
    </p>
  );
}

const days: [string, string][] = [["1", "in a day"], ["7", "in 7 days"], ["30", "in 30 days"], ["90", "in 90 days"], ["365", "in a year"], ["", "never"]];

function TokenForm({ close, done }: { close: () => void; done: (t: Issued) => void }) {
  const own = me.value!.token;
  const [began] = useState(Date.now);
  const until = own.expires_at ? Date.parse(own.expires_at) : Infinity;
  const lasting = days.filter(([d]) => d && began + Number(d) * 86_400_000 < until);
  const offered: [string, string][] = until === Infinity ? days : [...lasting, ["", "with your token, " + moment(own.expires_at!)]];
  const fields: FieldSpec[] = [
    { name: "name", label: "Name", required: true, hint: "Who or what uses the token. Audit logs show this name." },
    { name: "scopes", label: "Scopes", kind: "choices", required: true, options: scopes.filter(([s]) => can(s)).map(([s, text]) => [s, s, text]) },
    { name: "agent_id", label: "Agent", required: Boolean(own.agent_id), hint: own.agent_id ? "Your agent, or one below it. The token gives access only to that agent and the agents below it." : "Limits the token to that agent and the agents below it. Leave empty for the whole system." },
    { name: "expires", label: "Expires", kind: "select", options: offered },
  ];
  const draft = ({ expires, ...body }: Record<string, unknown>) => (expires ? { ...body, expires_at: new Date(began + Number(expires) * 86_400_000).toISOString().slice(0, 19) + "Z" } : body);
  return (
    <FormDialog<Issued>
      title="New token"
      submit="Create token"
      message="Token created."
      secret
      intro={<Parent />}
      close={close}
      done={done}
      preset={{ agent_id: own.agent_id, expires: offered.some(([d]) => d === "90") ? "90" : "" }}
      fields={fields}
      call={(body) => ({ method: "POST", path: "/api/v1/tokens", body: draft(body) })}
    />
  );
}
