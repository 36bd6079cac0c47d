// Tool policies: which tools a token may call, and a simulation of what a policy allows.
import { useCallback, useState } from "preact/hooks";
import { query, request, type Schemas } from "./api";
import { Badge, Empty, Filter, Loaded, Panel, Table, Tag, Time } from "./components";
import { useLoad, usePages } from "./resource";
import { link, parameter } from "./router";
import { PolicyEditor, type Stored } from "./policyeditor";
import { ToolsPage } from "./toolparts";

type Token = Schemas["TokenView"];

export function Policies() {
  const path = "/api/v1/tokens?limit=100";
  const tokens = usePages<Token>(path, "tokens");
  const id = parameter("token");
  const selected = tokens.data?.find((t) => t.id === id);
  const every = parameter("tokens") === "all";
  const shown = (tokens.data ?? []).filter((t) => every || usable(t) || t.id === id);
  return (
    <ToolsPage ready={!tokens.loading || Boolean(tokens.data)} calls={[{ path }, ...(id ? [{ path: policyPath(id) }] : [])]}>
      <div class="filters">
        <Filter name="tokens" label="Tokens" options={[["", "Valid"], ["all", "All"]]} />
      </div>
      <div class={id ? "sides" : ""}>
        <div>
          <Panel title="Tokens" flush>
            <Loaded of={tokens}>
              {() => (
                <div class="selectable" data-selected={id}>
                  <Table
                    label="Tokens"
                    rows={shown}
                    id={(t) => t.id}
                    href={(t) => query(link("tools"), { tab: "policies", token: t.id, tokens: every && "all" })}
                    more={tokens.more}
                    empty={<Empty icon="access" title="There is no valid token" />}
                    columns={[
                      { title: "Token", cell: (t) => <TokenName token={t} selected={t.id === id} every={every} /> },
                      ...(id ? [] : [
                        { title: "Scopes", cell: (t: Token) => <span class="row">{t.scopes.map((s) => <Tag key={s}>{s}</Tag>)}</span> },
                        { title: "Agent", cell: (t: Token) => t.agent_id ?? <span class="faint">–</span> },
                      ]),
                      { title: "Last used", cell: (t) => <Time at={t.last_used_at} /> },
                    ]}
                  />
                </div>
              )}
            </Loaded>
          </Panel>
        </div>
        {id && (
          <div class="stack">
            <TokenPolicy key={id} id={id} token={selected} />
          </div>
        )}
      </div>
    </ToolsPage>
  );
}

const policyPath = (id: string) => `/api/v1/tokens/${encodeURIComponent(id)}/tool-policy`;

/** usable reports whether a token can authenticate a call of a tool. */
const usable = (t: Token) => !t.revoked_at && !(t.expires_at && Date.parse(t.expires_at) < Date.now()) && t.scopes.some((s) => s === "tools:call" || s === "admin");

function TokenName({ token: t, selected, every }: { token: Token; selected: boolean; every: boolean }) {
  return (
    <span class="row">
      <a href={query(link("tools"), { tab: "policies", token: t.id, tokens: every && "all" })} aria-current={selected ? "true" : undefined}>
        {t.name}
      </a>
      {t.revoked_at && <Badge state="revoked" />}
    </span>
  );
}

/** TokenPolicy reads a token's policy; a token without one may call every tool. */
function TokenPolicy({ id, token }: { id: string; token?: Token }) {
  const [saved, setSaved] = useState(0); // reads the policy again after a change
  const path = policyPath(id);
  const stored = useLoad<Stored>(
    useCallback(
      async (signal: AbortSignal) => {
        const response = await request({ path }, signal);
        const { token_id: _, stored, ...policy } = (await response.json()) as Schemas["ToolPolicyView"];
        return stored ? { policy, etag: response.headers.get("ETag") ?? undefined } : {};
      },
      [path, saved],
    ),
  );
  if (stored.loading && saved && stored.data === undefined) return null;
  return <Loaded of={stored}>{(s) => <PolicyEditor id={id} name={token?.name ?? id} stored={s} path={path} reload={() => setSaved(saved + 1)} />}</Loaded>;
}
