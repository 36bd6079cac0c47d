// Who may use comet: your token, tokens, logins of browsers, and keys.
import { Keys } from "./accesskeys";
import { Logins } from "./accesslogins";
import { scopes, Tokens } from "./accesstokens";
import { AsCurl, Facts, Page, Panel, Tabs, Tag, Time } from "./components";
import { Problem } from "./api";
import { link, parameter } from "./router";
import { can, logOut, manages, me } from "./session";
import { notify } from "./toasts";

type Part = [id: string, title: string, part: () => preact.JSX.Element];

export function Access() {
  const parts: Part[] = [["you", "You", You], ...(manages() ? [["tokens", "Tokens", Tokens] as Part] : []), ["logins", "Logins", Logins], ...(can("admin") ? [["keys", "Keys", Keys] as Part] : [])];
  const Shown = (parts.find(([id]) => id === parameter("tab")) ?? parts[0]!)[2];
  return (
    <Page name="access" title="Access">
      <Tabs of={parts.map(([id, title]) => [id, title])} />
      <Shown />
    </Page>
  );
}

function You() {
  const { token, agent, chain_of_command: above, login } = me.value!;
  const leave = () => void logOut().catch((thrown) => notify("bad", Problem.of(thrown).detail));
  const named = (a: { id: string; name: string }) => (can("agents:read") ? <a href={link("agents", a.id)}>{a.name}</a> : a.name);
  return (
    <div class="grid">
      <Panel
        title="Your token"
        class="span-6"
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
            ["Agent", agent ? named(agent) : "none; the token covers the whole system"],
            ["Chain of command", above.length > 0 && above.map((a, i) => <span key={a.id}>{i > 0 && " → "}{named(a)}</span>)],
            ["Created", <><Time at={token.created_at} /> by {token.created_by}</>],
            ["Expires", token.expires_at ? <Time at={token.expires_at} /> : "never"],
            ["Login ends", login && <Time at={login.expires_at} />],
          ]}
        />
      </Panel>
      <Panel title="What the token may do" class="span-6">
        <ul class="scopes">
          {scopes
            .filter(([s]) => token.scopes.includes(s))
            .map(([s, text]) => (
              <li key={s}>
                <Tag>{s}</Tag> <span>{text}</span>
              </li>
            ))}
        </ul>
      </Panel>
    </div>
  );
}
