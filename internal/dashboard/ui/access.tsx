// Who may use comet: your token, tokens, logins of browsers, and keys.
import { useState } from "preact/hooks";
import type { Schemas } from "./api";
import { Keys } from "./accesskeys";
import { Action, AsCurl, Badge, Empty, Facts, Loaded, Page, Panel, Table, Tabs, Tag, Time } from "./components";
import { FormDialog } from "./form";
import { kinds, usePages } from "./resource";
import { link, parameter } from "./router";
import { administers, can, logOut, me } from "./session";
import { notify } from "./toasts";
import { Secret } from "./webhooks";

type Token = Schemas["TokenView"];

/** scopes are what a token may allow, each with a sentence. */
const scopes: [string, string][] = [
  ["admin", "everything"],
  ["agents:read", "read agents, budgets and usage"],
  ["agents:write", "create and change agents"],
  ["usage:write", "record usage and reserve tokens"],
  ["webhooks:write", "manage webhooks"],
  ["messages:send", "submit tasks and send messages"],
  ["tasks:read", "read all tasks and workers"],
  ["tools:call", "call tools and run workflows"],
  ["workflows:approve", "decide on checkpoints of workflows"],
];

export function Access() {
  const tabs: [string, string][] = [["you", "You"], ["tokens", "Tokens"], ["logins", "Logins"], ...(can("admin") ? [["keys", "Keys"] as [string, string]] : [])];
  const parts: Record<string, () => preact.JSX.Element> = { tokens: Tokens, logins: Logins, keys: Keys };
  const Part = parts[parameter("tab")] ?? You;
  return (
    <Page name="access" title="Access">
      <Tabs of={tabs} />
      <Part />
    </Page>
  );
}

function You() {
  const { token, agent, chain_of_command: above } = me.value!;
  const leave = () => void logOut().catch((thrown) => notify("bad", String(thrown)));
  return (
    <Panel
      title="Your token"
      actions={
        <>
          <AsCurl calls={[{ path: "/api/v1/me" }]} />
          <button onClick={leave}>Log out</button>
        </>
      }
    >
      <Facts
        of={[
          ["Name", token.name],
          ["Id", <code>{token.id}</code>],
          ["Agent", agent ? <a href={link("agents", agent.id)}>{agent.name}</a> : "none: the token is for the whole system"],
          ["Chain of command", above.length > 0 && above.map((a) => a.name).join(" → ")],
          ["Expires", token.expires_at ? <Time at={token.expires_at} /> : "never"],
          ["It may", <ul>{scopes.filter(([s]) => token.scopes.includes(s as never)).map(([s, text]) => <li key={s}><Tag>{s}</Tag> {text}</li>)}</ul>],
        ]}
      />
    </Panel>
  );
}

/** standing returns the state of a token. */
const standing = (t: Token) => (t.revoked_at ? "revoked" : t.expires_at && Date.parse(t.expires_at) < Date.now() ? "expired" : "valid");

/** asTree orders tokens so that each follows the token it descends from, with its depth. */
function asTree(tokens: Token[]): { token: Token; depth: number }[] {
  const known = new Set(tokens.map((t) => t.id));
  const below = Map.groupBy(tokens, (t) => (t.parent_id && known.has(t.parent_id) ? t.parent_id : ""));
  const out: { token: Token; depth: number }[] = [];
  const add = (parent: string, depth: number) => below.get(parent)?.forEach((token) => (out.push({ token, depth }), add(token.id, depth + 1)));
  add("", 0);
  return out;
}

function Tokens() {
  const path = "/api/v1/tokens?limit=200";
  const list = usePages<Token>(path, "tokens", kinds("token."));
  const [creating, setCreating] = useState(false);
  const [all, setAll] = useState(false);
  const [issued, setIssued] = useState<Schemas["TokenIssued"]>();
  return (
    <Panel
      title="Tokens"
      flush
      actions={
        <>
          <label class="row">
            <input type="checkbox" checked={all} onChange={(e) => setAll(e.currentTarget.checked)} /> also revoked and expired ones
          </label>
          <AsCurl calls={[{ path }]} />
          <button class="primary" onClick={() => setCreating(true)}>
            New token
          </button>
        </>
      }
    >
      <Loaded of={list}>
        {(tokens) => (
          <Table
            label="Tokens"
            rows={asTree(tokens).filter(({ token }) => all || standing(token) === "valid")}
            id={({ token }) => token.id}
            more={list.more}
            empty={<Empty icon="access" title="No token" />}
            columns={[
              {
                title: "Token",
                cell: ({ token: t, depth }) => (
                  <span class="row" style={{ paddingLeft: depth * 20 + "px" }}>
                    {depth > 0 && <span class="faint" aria-label="descends from the token above">└</span>} {t.name} {t.id === me.value?.token.id && <Badge state="yours" of="accent" />}
                  </span>
                ),
              },
              { title: "Scopes", cell: ({ token }) => <span class="row">{token.scopes.map((s) => <Tag key={s}>{s}</Tag>)}</span> },
              { title: "Agent", cell: ({ token: t }) => t.agent_id && (can("agents:read") ? <a href={link("agents", t.agent_id)}>{t.agent_id}</a> : t.agent_id) },
              { title: "State", cell: ({ token }) => <Badge state={standing(token)} /> },
              { title: "Last used", cell: ({ token }) => <Time at={token.last_used_at} /> },
              { title: "Expires", cell: ({ token }) => <Time at={token.expires_at} /> },
              { title: "", cell: ({ token }) => standing(token) === "valid" && <TokenActions token={token} tokens={tokens} issued={setIssued} reload={list.reload} /> },
            ]}
          />
        )}
      </Loaded>
      {creating && <TokenForm close={() => setCreating(false)} done={(t) => (setCreating(false), setIssued(t), list.reload())} />}
      {issued && <Secret title={"Token " + issued.name} name="token" secret={issued.token ?? ""} line={`export COMET_TOKEN=${issued.token}`} close={() => setIssued(undefined)} />}
    </Panel>
  );
}

function TokenActions({ token: t, tokens, issued, reload }: { token: Token; tokens: Token[]; issued: (t: Schemas["TokenIssued"]) => void; reload: () => void }) {
  const path = "/api/v1/tokens/" + encodeURIComponent(t.id);
  const below = asTree(tokens.filter((x) => x.id === t.id || descends(x, t.id, tokens))).length - 1;
  const yours = t.id === me.value?.token.id ? " It is the token of this login, which ends." : "";
  return (
    <span class="row">
      <Action<Schemas["TokenIssued"]> label="Rotate" kind="quiet" call={{ method: "POST", path: path + "/rotate" }} question={`Issue a new secret for ${t.name}? The old one stops working at once, and logins that used it end.${yours}`} done={(r) => (issued(r), reload())} message="The token has a new secret." />
      <Action label="Revoke" kind="danger" call={{ method: "DELETE", path }} question={`Revoke ${t.name}?${below > 0 ? ` ${below} tokens that descend from it are revoked, too.` : ""}${yours}`} done={reload} message="The token is revoked." />
    </span>
  );
}

/** descends reports whether a token descends from another. */
function descends(t: Token, ancestor: string, tokens: Token[]): boolean {
  for (let parent = t.parent_id; parent; parent = tokens.find((x) => x.id === parent)?.parent_id ?? null) if (parent === ancestor) return true;
  return false;
}

function TokenForm({ close, done }: { close: () => void; done: (t: Schemas["TokenIssued"]) => void }) {
  const own = me.value!.token;
  const offered = scopes.filter(([s]) => can("admin") || own.scopes.includes(s as never));
  return (
    <FormDialog<Schemas["TokenIssued"]>
      title="New token"
      submit="Create token"
      message="The token is created."
      intro={<p class="muted">It descends from your token: revoking yours revokes it, and it cannot allow more than yours.</p>}
      close={close}
      done={done}
      preset={{ agent_id: administers() ? undefined : own.agent_id }}
      fields={[
        { name: "name", label: "Name", required: true },
        { name: "scopes", label: "Scopes", kind: "choices", required: true, options: offered.map(([s]) => [s, s]) },
        { name: "agent_id", label: "Agent", hint: "The agent that uses the token; it then concerns only that agent and those below it." },
        { name: "expires_at", label: "Expires at", hint: "Such as 2027-01-31T00:00:00Z; by default never." },
      ]}
      call={(body) => ({ method: "POST", path: "/api/v1/tokens", body })}
    />
  );
}

/** browser names the browser and the system of a user agent. */
function browser(agent = ""): string {
  const find = (names: [RegExp, string][]) => names.find(([pattern]) => pattern.test(agent))?.[1];
  const name = find([[/Edg\//, "Edge"], [/Firefox\//, "Firefox"], [/Chrome\//, "Chrome"], [/Safari\//, "Safari"]]);
  const system = find([[/Windows/, "Windows"], [/Android/, "Android"], [/iPhone|iPad/, "iOS"], [/Mac OS/, "macOS"], [/Linux/, "Linux"]]);
  return name ? name + (system ? " on " + system : "") : agent || "unknown browser";
}

function Logins() {
  const path = "/api/v1/logins?limit=100";
  const list = usePages<Required<Schemas["LoginItem"]>>(path, "logins");
  return (
    <Panel title="Browsers that are logged in" flush actions={<AsCurl calls={[{ path }]} />}>
      <Loaded of={list}>
        {(rows) => (
          <Table
            label="Logins"
            rows={rows}
            id={(l) => l.id}
            more={list.more}
            empty={<Empty icon="access" title="No browser is logged in" />}
            columns={[
              { title: "Browser", cell: (l) => <span class="row" title={l.user_agent}>{browser(l.user_agent)} {l.current && <Badge state="this browser" of="accent" />}</span> },
              { title: "Token", cell: (l) => l.token_name },
              { title: "Since", cell: (l) => <Time at={l.created_at} /> },
              { title: "Last used", cell: (l) => <Time at={l.seen_at} /> },
              { title: "Ends", cell: (l) => <Time at={l.expires_at} /> },
              { title: "", cell: (l) => <Action label="End login" kind="quiet" call={{ method: "DELETE", path: "/api/v1/logins/" + l.id }} question="End this login? The browser must log in again." done={list.reload} message="The login has ended." /> },
            ]}
          />
        )}
      </Loaded>
    </Panel>
  );
}
