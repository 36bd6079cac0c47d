// The MCP servers whose tools comet offers.
import { useState } from "preact/hooks";
import { Action, Badge, Empty, Loaded, Panel, Table, Tag, Time } from "./components";
import { count } from "./format";
import { link, navigate } from "./router";
import { administers } from "./session";
import { ToolsPage } from "./toolparts";
import { serversPath, useServers, type Server } from "./toolservers";
import { ServerForm } from "./upstreamform";

export function Servers() {
  const list = useServers();
  const [adding, setAdding] = useState(false);
  return (
    <ToolsPage
      ready={!list.loading || Boolean(list.data)}
      calls={[{ path: serversPath }]}
      actions={
        administers() && (
          <>
            <Action label="Reload all" call={{ method: "POST", path: "/api/v1/upstreams/reload" }} message="MCP servers reloaded." done={list.reload} question="Reload the file that mcp.servers names? New servers are started, changed ones restarted and removed ones stopped." />
            <button class="primary" onClick={() => setAdding(true)}>
              Add server
            </button>
          </>
        )
      }
    >
      <Panel title="MCP servers" flush>
        <Loaded of={list}>
          {(servers) => (
            <Table
              label="MCP servers"
              rows={servers}
              id={(u) => u.id}
              href={(u) => link("tools", u.id)}
              empty={<Empty icon="tools" title="No MCP server is available to your token" />}
              columns={[
                { title: "Server", cell: (u) => <ServerName server={u} /> },
                { title: "State", cell: (u) => <ServerState server={u} /> },
                { title: "Since", cell: (u) => <Time at={u.since} /> },
                { title: "Transport", cell: (u) => <Tag>{u.transport}</Tag> },
                { title: "Tools", number: true, cell: (u) => count(u.tools) },
                { title: "Resources", number: true, cell: (u) => count(u.resources + u.resource_templates) },
                { title: "Prompts", number: true, cell: (u) => count(u.prompts) },
                { title: "Restarts", number: true, cell: (u) => count(u.restarts) },
              ]}
            />
          )}
        </Loaded>
      </Panel>
      {adding && <ServerForm close={() => setAdding(false)} done={(id) => navigate(link("tools", id))} />}
    </ToolsPage>
  );
}

function ServerName({ server: u }: { server: Server }) {
  return (
    <>
      <a href={link("tools", u.id)}>{u.id}</a>
      {u.server_name && (
        <span class="faint truncate">
          {u.server_name} {u.server_version}
        </span>
      )}
    </>
  );
}

/** ServerState shows the state of a server with the reason of a failure, and its tools in quarantine. */
function ServerState({ server: u }: { server: Server }) {
  return (
    <>
      <span class="row">
        <Badge state={u.state} />
        {u.quarantined.length > 0 && <Badge state="quarantined" text={`${count(u.quarantined.length)} quarantined`} />}
      </span>
      {u.error && (
        <span class="faint clamp" title={u.error}>
          {u.error}
        </span>
      )}
    </>
  );
}
