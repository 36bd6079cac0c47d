// The catalogue of the tools that the token may call, and one tool of it.
import { useCallback } from "preact/hooks";
import { call, query, type Schemas } from "./api";
import { AsCurl, Badge, Empty, Facts, Filter, Json, Loaded, Page, Panel, Search, Table } from "./components";
import { count } from "./format";
import { kinds, useGet, useLoad } from "./resource";
import { link, parameter } from "./router";
import { administers } from "./session";
import { CallForm } from "./tool-call";
import { Class, serverOf, ToolsPage } from "./toolparts";

type Tool = Schemas["ToolView"];

/** changes are the events that change which tools can be called. */
const changes = kinds("upstream.", "tool.quarantined", "tool.approved", "tool.classified");

/** useTools reads all tools of one server or of all. */
export function useTools(server?: string) {
  return useLoad<Tool[]>(
    useCallback(
      async (signal: AbortSignal) => {
        const all: Tool[] = [];
        for (let cursor: string | undefined, more = true; more; more = Boolean(cursor)) {
          const page: Schemas["ToolList"] = await call({ path: query("/api/v1/tools", { server, limit: 200, cursor }) }, signal);
          all.push(...page.tools);
          cursor = page.next_cursor;
        }
        return all;
      },
      [server],
    ),
    changes,
  );
}

export function Catalogue() {
  const tools = useTools();
  const text = parameter("q").toLowerCase();
  const server = parameter("server");
  const wanted = parameter("class");
  const matches = (t: Tool) => (!server || t.server === server) && (!wanted || t.class === wanted) && (t.id + " " + (t.title ?? "") + " " + t.description).toLowerCase().includes(text);
  const servers = [...new Set(tools.data?.map((t) => t.server))];
  const found = tools.data?.filter(matches) ?? [];
  return (
    <ToolsPage ready={!tools.loading || Boolean(tools.data)} calls={[{ path: query("/api/v1/tools", { server, limit: 200 }) }]}>
      <div class="filters" role="search">
        <Search name="q" label="Find tools by name or description" placeholder="Find tools" />
        <Filter name="server" label="Server" options={[["", "All"], ...servers.map((s): [string, string] => [s, s])]} />
        <Filter name="class" label="Class" options={[["", "All"], ["read", "read"], ["write", "write"], ["destructive", "destructive"]]} />
      </div>
      <Loaded of={tools}>
        {() =>
          found.length === 0 ? (
            <Panel title="Tools" flush>
              <Empty icon="tools" title={text || server || wanted ? "No tool matches" : "Your token may not call any tool"} />
            </Panel>
          ) : (
            servers
              .map((s) => [s, found.filter((t) => t.server === s)] as const)
              .filter(([, list]) => list.length > 0)
              .map(([s, list]) => <ServerTools key={s} server={s} tools={list} />)
          )
        }
      </Loaded>
    </ToolsPage>
  );
}

function ServerTools({ server, tools }: { server: string; tools: Tool[] }) {
  return (
    <Panel title={server} class="catalogue" flush actions={<span class="faint">{count(tools.length)} {tools.length === 1 ? "tool" : "tools"}</span>}>
      <Table
        label={"Tools of " + server}
        rows={tools}
        id={(t) => t.id}
        href={(t) => link("tools", t.id)}
        empty={null}
        columns={[
          { title: "Tool", cell: (t) => <a class="nowrap" href={link("tools", t.id)}>{t.name}</a> },
          { title: "Description", cell: (t) => <span class="clamp">{t.description}</span> },
          { title: "Class", cell: (t) => <Class of={t.class} /> },
        ]}
      />
    </Panel>
  );
}

/** ToolPage is the page of one tool. The API has no address for one tool: it is found in the list of its server. */
export function ToolPage({ id }: { id: string }) {
  const server = serverOf(id);
  const tools = useTools(server);
  const tool = tools.data?.find((t) => t.id === id);
  return (
    <Page
      name="tool"
      title={tool?.title ?? id.slice(server.length + 1)}
      crumbs={[["Tools", link("tools")], [server, query(link("tools"), { tab: "catalogue", server })]]}
      badge={tool && <Class of={tool.class} />}
      ready={!tools.loading || Boolean(tools.data)}
      actions={<AsCurl calls={[{ path: query("/api/v1/tools", { server, limit: 200 }) }]} />}
    >
      <Loaded of={tools}>{() => (tool ? <Details key={id} tool={tool} /> : <Missing id={id} />)}</Loaded>
    </Page>
  );
}

function Missing({ id }: { id: string }) {
  return (
    <Panel title="Not available" flush>
      <Empty icon="tools" title={`The tool ${id} cannot be called now`}>
        <span>It does not exist, its server is not ready, its definition is quarantined, or your token may not call it.</span>
        <a href={query(link("tools"), { tab: "catalogue" })}>Show the list</a>
      </Empty>
    </Panel>
  );
}

function Details({ tool: t }: { tool: Tool }) {
  return (
    <div class="grid">
      <div class="stack span-6">
        <Panel title="Tool">
          <p class="prose">{t.description || <span class="muted">No description.</span>}</p>
          <Facts
            of={[
              ["Id", <code>{t.id}</code>],
              ["Name in tools/list", <code>{t.listed_name}</code>],
              ["Definition", administers() && <State tool={t} />],
              ["Used together with", <Related tool={t} />],
              ["Calls", <a href={query(link("tools"), { tab: "calls", server: t.server, tool: t.name })}>Show calls</a>],
            ]}
          />
        </Panel>
        <Panel title="Input schema">
          <Json label="Input schema" value={t.input_schema} />
        </Panel>
      </div>
      <div class="stack span-6">
        <CallForm tool={t} />
      </div>
    </div>
  );
}

/** State shows the definition's state to administrators; comet's own tools have none. */
function State({ tool: t }: { tool: Tool }) {
  const upstreams = useGet<Schemas["UpstreamList"]>("/api/v1/upstreams");
  const known = upstreams.data?.upstreams.some((u) => u.id === t.server);
  const list = useGet<Schemas["ToolDefinitionList"]>(known ? `/api/v1/upstreams/${encodeURIComponent(t.server)}/tools` : undefined, changes);
  const d = list.data?.tools.find((d) => d.id === t.id);
  if (!upstreams.data) return null;
  if (!known) return <span>part of comet</span>;
  return d ? (
    <span class="row">
      <Badge state={d.state} /> <span class="faint">{d.approved_by ? "approved by " + d.approved_by : "accepted automatically"}</span> <a href={link("tools", t.server)}>Classify</a>
    </span>
  ) : null;
}

/** Related lists the tools that are used most often together with a tool. */
function Related({ tool: t }: { tool: Tool }) {
  const graph = useGet<Schemas["ToolGraph"]>("/api/v1/tools/graph?limit=500");
  const near = (graph.data?.edges ?? []).filter((e) => e.from === t.id || e.to === t.id).sort((a, b) => b.confidence - a.confidence);
  const ids = [...new Set(near.map((e) => (e.from === t.id ? e.to : e.from)))].slice(0, 6);
  if (ids.length === 0) return <span class="muted">{graph.loading ? "…" : "no other tool yet"}</span>;
  return (
    <span class="row">
      {ids.map((id) => (
        <a key={id} href={link("tools", id)}>
          {id}
        </a>
      ))}
    </span>
  );
}
