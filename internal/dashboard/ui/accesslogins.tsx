// Browsers that are logged in.
import type { Schemas } from "./api";
import { Action, AsCurl, Badge, Empty, Loaded, Panel, Table, Time } from "./components";
import { usePages, useRepeat } from "./resource";
import { identify } from "./session";

/** browser names the browser and the system of a user agent. */
function browser(agent: string): string {
  const find = (names: [RegExp, string][]) => names.find(([pattern]) => pattern.test(agent))?.[1];
  const name = find([[/Edg\//, "Edge"], [/OPR\//, "Opera"], [/Firefox\//, "Firefox"], [/Chrome\//, "Chrome"], [/Safari\//, "Safari"], [/^curl\//, "curl"]]);
  const system = find([[/Windows/, "Windows"], [/Android/, "Android"], [/iPhone|iPad/, "iOS"], [/CrOS/, "ChromeOS"], [/Mac OS/, "macOS"], [/Linux/, "Linux"]]);
  return name ? name + (system ? " on " + system : "") : agent || "unknown";
}

type Login = Required<Schemas["LoginItem"]>;

export function Logins() {
  const path = "/api/v1/logins?limit=100";
  const list = usePages<Login>(path, "logins");
  useRepeat(list.reload, true, 5000); // logins do not emit events
  const ended = (l: Login) => (l.current ? void identify().catch(() => {}) : list.reload());
  return (
    <Panel title="Logged-in browsers" flush actions={<AsCurl calls={[{ path }]} />}>
      <Loaded of={list}>
        {(rows) => (
          <Table
            label="Logins"
            rows={[...rows].sort((a, b) => Number(b.current) - Number(a.current) || Date.parse(b.created_at) - Date.parse(a.created_at))}
            id={(l) => l.id}
            more={list.more}
            empty={<Empty icon="access" title="No browser is logged in" />}
            columns={[
              { title: "Browser", cell: (l) => <span class="row" title={l.user_agent}>{browser(l.user_agent)} {l.current && <Badge state="this browser" of="accent" />}</span> },
              { title: "Token", cell: (l) => <span class="anywhere">{l.token_name}</span> },
              { title: "Since", cell: (l) => <Time at={l.created_at} /> },
              { title: "Last used", cell: (l) => <Time at={l.seen_at} /> },
              { title: "Ends", cell: (l) => <Time at={l.expires_at} /> },
              { title: "", number: true, cell: (l) => <Action label="End login" kind="quiet" call={{ method: "DELETE", path: "/api/v1/logins/" + l.id }} question={l.current ? "End the login of this browser? You will be logged out." : `End the login of ${browser(l.user_agent)} with the token ${l.token_name}? That browser must log in again.`} done={() => ended(l)} message="Login ended." /> },
            ]}
          />
        )}
      </Loaded>
    </Panel>
  );
}
