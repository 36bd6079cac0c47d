// One MCP server: its health, its tools and their definitions.
import { useCallback, useState } from "preact/hooks";
import { request, query, type Schemas } from "./api";
import { Action, AsCurl, Badge, Empty, Facts, Json, Loaded, Page, Panel, Skeleton, Table, Time } from "./components";
import { count, duration } from "./format";
import { useGet, useLoad, useRepeat } from "./resource";
import type { LiveEvent } from "./live";
import { ProblemNotice, titleOf } from "./problem";
import { link, navigate } from "./router";
import { administers, can } from "./session";
import { useTools } from "./tool-catalogue";
import { approval, Changes, Definitions } from "./tool-definitions";
import { Class } from "./toolparts";
import { ServerForm } from "./upstreamform";

type Server = Schemas["UpstreamView"];
type Definition = Schemas["ToolDefinitionView"];

export function Upstream({ id }: { id: string }) {
  const path = "/api/v1/upstreams/" + encodeURIComponent(id);
  const ours = useCallback((e: LiveEvent) => (e.key === id && e.type.startsWith("upstream.")) || (e.key.startsWith(id + ":") && /^tool\.(quarantined|approved|classified)$/.test(e.type)), [id]);
  const server = useLoad(
    useCallback(
      async (signal: AbortSignal) => {
        const response = await request({ path }, signal);
        return { ...((await response.json()) as Server), etag: response.headers.get("ETag") ?? undefined };
      },
      [path],
    ),
    ours,
  );
  const tools = useTools(id);
  const definitions = useGet<Schemas["ToolDefinitionList"]>(administers() ? path + "/tools" : undefined, ours);
  const reload = () => (server.reload(), tools.reload(), definitions.reload());
  useRepeat(reload, !administers(), 5000); // only administrators receive events of servers
  const u = server.data;
  const changed = definitions.data?.tools.filter((d) => d.state === "quarantined") ?? [];
  return (
    <Page
      name="upstream"
      title={titleOf(id, server.problem)}
      crumbs={[["Tools", link("tools")]]}
      badge={u && <Badge state={u.state} />}
      subtitle={u?.server_name && [u.server_name, u.server_version].join(" ")}
      ready={!server.loading || Boolean(u)}
      actions={
        <>
          <AsCurl calls={[{ path }, { path: query("/api/v1/tools", { server: id, limit: 200 }) }, ...(administers() ? [{ path: path + "/tools" }] : [])]} />
          {u && administers() && <Actions server={u} etag={u.etag} path={path} reload={reload} changed={changed} />}
        </>
      }
    >
      {server.problem && <ProblemNotice problem={server.problem} retry={reload} />}
      {changed.length > 0 && <Changes of={changed} path={path} reload={reload} />}
      {!u ? server.loading && <Skeleton /> : <Health server={u} />}
      {u && (
        <Panel title={`Tools (${count((definitions.data?.tools ?? tools.data)?.length ?? u.tools)})`} flush>
          {administers() ? (
            <Loaded of={definitions}>{(d) => <Definitions of={d.tools} callable={tools.data ?? []} path={path} reload={reload} />}</Loaded>
          ) : (
            <Loaded of={tools}>{(t) => <Callable tools={t} />}</Loaded>
          )}
        </Panel>
      )}
    </Page>
  );
}

function Actions({ server: u, etag, path, reload, changed }: { server: Server; etag?: string; path: string; reload: () => void; changed: Definition[] }) {
  const [editing, setEditing] = useState(false);
  const authorize = ({ authorization_url: url }: Schemas["UpstreamAuthorization"]) => {
    if (/^https?:/.test(url)) window.open(url, "_blank", "noopener");
  };
  return (
    <>
      {u.transport === "http" && u.state === "authorization_required" && <Action kind="primary" label="Authorize" call={{ method: "POST", path: path + "/authorize" }} done={authorize} message="Sign in and grant access in the window that opened." />}
      {changed.length > 0 && (
        <Action
          label="Approve all"
          call={changed.map((d) => approval(d, path))}
          question={`Approve the definitions of ${changed.length} quarantined tools of ${u.id} that this page shows? They become available to agents.`}
          details={<ul>{changed.map((d) => <li key={d.id}>{d.tool} <code class="faint">{d.pending_digest ?? d.digest}</code></li>)}</ul>}
          done={reload}
          changed={reload}
          message="Tools approved."
        />
      )}
      <Action label="Restart" call={{ method: "POST", path: path + "/restart" }} question={`Restart ${u.id}? Calls in progress will fail.`} done={reload} message="Server restarting." />
      {u.source === "api" && (
        <>
          <button onClick={() => setEditing(true)}>Edit</button>
          <Action
            kind="danger"
            label="Remove"
            call={{ method: "DELETE", path, ifMatch: etag }}
            question={`Remove the MCP server ${u.id} and the approved definitions of its ${u.tools} tools on all replicas? Its agent ${u.agent_id} stays in the registry.`}
            done={() => navigate(link("tools"))}
            message="Server removed."
          />
        </>
      )}
      {editing && <ServerForm server={u} etag={etag} close={() => setEditing(false)} done={reload} />}
    </>
  );
}

function Health({ server: u }: { server: Server }) {
  const lists = u.warnings.length + u.stderr.length > 0;
  return (
    <>
      {u.error && (
        <div class="notice bad">
          <div>
            <span>{u.error}</span>
            {u.next_try && (
              <span class="faint">
                Next try <Time at={u.next_try} />
              </span>
            )}
          </div>
        </div>
      )}
      <div class={lists ? "sides" : ""}>
        <Panel title="Health" class={lists ? "" : "health"}>
          <Facts
            of={[
              ["Since", <Time at={u.since} />],
              ["Transport", u.transport],
              ["Program", u.command && <code>{u.command}</code>],
              ["Address", u.url && <code>{u.url}</code>],
              ["Process", u.pid],
              ["Restarts", count(u.restarts)],
              ["MCP revision", u.protocol_revision],
              ["Time limit of a call", duration(u.timeout_ms)],
              ["Offers", `${count(u.tools)} tools, ${count(u.resources)} resources, ${count(u.resource_templates)} templates, ${count(u.prompts)} prompts`],
              ["Variables", u.env.join(", ")],
              ["Headers", u.headers.join(", ")],
              ["Configured by", u.source],
              ["Agent", can("agents:read") ? <a href={link("agents", u.agent_id)}>{u.agent_id}</a> : u.agent_id],
              ["Calls", <a href={query(link("tools"), { tab: "calls", server: u.id })}>Show calls</a>],
            ]}
          />
        </Panel>
        {lists && (
          <div class="stack">
            {u.warnings.length > 0 && (
              <Panel title={`Warnings (${u.warnings.length})`}>
                <ul class="stack tight">
                  {u.warnings.map((w) => (
                    <li class="anywhere" key={w}>
                      {w}
                    </li>
                  ))}
                </ul>
              </Panel>
            )}
            {u.stderr.length > 0 && (
              <Panel title="Standard error">
                <Json label="Last lines of the standard error" value={u.stderr.join("\n")} />
              </Panel>
            )}
          </div>
        )}
      </div>
    </>
  );
}

function Callable({ tools }: { tools: Schemas["ToolView"][] }) {
  return (
    <Table
      label="Tools"
      rows={tools}
      id={(t) => t.id}
      href={(t) => link("tools", t.id)}
      empty={<Empty icon="tools" title="None of its tools can be called now" />}
      columns={[
        { title: "Tool", cell: (t) => <a href={link("tools", t.id)}>{t.name}</a> },
        { title: "Description", cell: (t) => <span class="clamp">{t.description}</span> },
        { title: "Class", cell: (t) => <Class of={t.class} /> },
      ]}
    />
  );
}
