// The graph of which tools are used together, as a picture and as a list.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { query, type Schemas } from "./api";
import { Empty, Facts, Filter, Loaded, Panel, Table, Time } from "./components";
import { downloadCSV } from "./csv";
import { count, percent } from "./format";
import { colours, GraphCanvas } from "./graphcanvas";
import type { Graph, GraphNode } from "./graphlayout";
import { Icon } from "./icons";
import { ProblemNotice } from "./problem";
import { kinds, useGet } from "./resource";
import { link, parameter, setParameters } from "./router";
import { theme } from "./theme";
import { ToolsPage } from "./toolparts";
import { ZoomButtons } from "./zoombuttons";

type Path = Schemas["ToolPath"];

const graphPath = "/api/v1/tools/graph";

export function ToolGraph() {
  const path = query(graphPath, { limit: parameter("limit") || 200 });
  const graph = useGet<Graph>(path, kinds("graph."), 3000);
  const [from, to] = [parameter("from"), parameter("to")];
  const route = useGet<Path>(from && to && from !== to ? query(graphPath + "/path", { from, to }) : undefined, kinds("graph."), 3000);
  const calls = [{ path }, ...(from && to ? [{ path: query(graphPath + "/path", { from, to }) }] : [])];
  return (
    <ToolsPage
      ready={!graph.loading || Boolean(graph.data)}
      calls={calls}
      actions={
        <>
          <a class="button" href={path} download="tools.json">
            JSON
          </a>
          <a class="button" href={path + "&format=graphml"} download="tools.graphml">
            GraphML
          </a>
          {graph.data && <button onClick={() => saveTools(graph.data!)}>CSV</button>}
        </>
      }
    >
      <div class="filters">
        <Filter name="limit" label="Tools shown" options={[["", "200"], ["500", "500"], ["2000", "2,000"]]} />
        <PathFinder nodes={graph.data?.nodes ?? []} />
      </div>
      {from && to && route.problem && <ProblemNotice problem={route.problem} />}
      <Loaded of={graph}>
        {(g) =>
          g.nodes.length === 0 ? (
            <Panel title="Tools used together" flush>
              <Empty icon="workflows" title="No tools have been used together yet">
                <span>The graph is built from the tool calls and workflows of agents.</span>
              </Empty>
            </Panel>
          ) : (
            <Picture graph={g} route={from && to ? route.data : undefined} />
          )
        }
      </Loaded>
    </ToolsPage>
  );
}

/** saveTools saves the figures of the tools. */
function saveTools(g: Graph) {
  downloadCSV("tools.csv", ["tool", "server", "name", "runs", "pagerank", "community"], g.nodes.map((n) => [n.id, n.server, n.name, n.runs, n.rank, n.community]));
}

/** PathFinder chooses two tools; the strongest path between them is emphasized. */
function PathFinder({ nodes }: { nodes: GraphNode[] }) {
  const ends: [string, string][] = [["from", "Path from"], ["to", "to"]];
  return (
    <div class="row">
      {ends.map(([name, label]) => <PathEnd key={name} name={name} label={label} />)}
      <datalist id="graph-tools">
        {nodes.map((n) => (
          <option key={n.id} value={n.id}>{n.id}</option>
        ))}
      </datalist>
      {(parameter("from") || parameter("to")) && (
        <button class="quiet" onClick={() => setParameters({ from: "", to: "" }, true)}>
          Clear
        </button>
      )}
    </div>
  );
}

/** PathEnd is the field for one end of the path. It shows changes of the address, such as those by Back and Clear. */
function PathEnd({ name, label }: { name: string; label: string }) {
  const value = parameter(name);
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const choose = (e: { currentTarget: { value: string } }) => {
    const chosen = e.currentTarget.value.trim();
    setText(chosen);
    setParameters({ [name]: chosen }, true);
  };
  return (
    <label>
      {label}
      <input type="text" list="graph-tools" placeholder="server:tool" value={text} onInput={(e) => setText(e.currentTarget.value)} onChange={choose} />
    </label>
  );
}

function Picture({ graph, route }: { graph: Graph; route?: Path }) {
  const [hidden, setHidden] = useState<Set<string>>(new Set());
  const selected = parameter("tool");
  const select = (id: string | undefined) => setParameters({ tool: id === selected ? undefined : id });
  const servers = useMemo(() => [...new Set(graph.nodes.map((n) => n.server))].sort(), [graph]);
  const colour = useMemo(() => new Map(servers.map((s, i) => [s, i + 1])), [servers]);
  const nodes = useMemo(() => graph.nodes.filter((n) => !hidden.has(n.server)).sort((a, b) => b.rank - a.rank), [graph, hidden]);
  return (
    <div class="graphview">
      <Panel title="Tools used together" flush actions={<Figures graph={graph} />}>
        <Legend servers={servers} colour={colour} hidden={hidden} change={setHidden} />
        <Drawing graph={graph} colour={colour} hidden={hidden} selected={selected} path={route?.path ?? []} select={select} />
      </Panel>
      <div class="stack">
        {route && <Route route={route} />}
        {selected && <Selected graph={graph} id={selected} colour={colour} select={select} />}
        <NodeList nodes={nodes} colour={colour} selected={selected} select={select} />
      </div>
    </div>
  );
}

function Figures({ graph: g }: { graph: Graph }) {
  return (
    <span class="faint">
      {count(g.nodes.length)} of {count(g.total_nodes)} tools, {count(g.edges.length)} edges, {count(g.communities)} communities, density {percent(g.density)}, <Time at={g.computed_at} />
    </span>
  );
}

const Swatch = ({ colour }: { colour: number | undefined }) => <span aria-hidden="true" class={"swatch round" + ((colour ?? 1) > colours ? " ring" : "")} style={{ color: `var(--c${(((colour ?? 1) - 1) % colours) + 1})` }} />;

/** Legend names the colours of servers, and hides and shows their tools. */
function Legend({ servers, colour, hidden, change }: { servers: string[]; colour: Map<string, number>; hidden: Set<string>; change: (hidden: Set<string>) => void }) {
  const toggle = (server: string) => {
    const next = new Set(hidden);
    if (!next.delete(server)) next.add(server);
    change(next);
  };
  return (
    <div class="legend" role="group" aria-label="Servers shown">
      {servers.map((s) => (
        <button key={s} class="quiet" aria-pressed={!hidden.has(s)} onClick={() => toggle(s)}>
          <Swatch colour={colour.get(s)} /> {s}
        </button>
      ))}
    </div>
  );
}

type DrawingProps = { graph: Graph; colour: Map<string, number>; hidden: Set<string>; selected: string; path: string[]; select: (id: string | undefined) => void };

function Drawing(p: DrawingProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const figure = useRef<HTMLElement>(null);
  const view = useRef<GraphCanvas>(undefined);
  const select = useRef(p.select);
  select.current = p.select;
  const [over, setOver] = useState<{ id: string; x: number; y: number }>();
  const look = theme();
  useEffect(() => {
    const shown = new GraphCanvas(canvas.current!, {
      select: (id) => select.current(id),
      hover: (id, x, y) => setOver(id ? { id, x, y } : undefined),
      drawn: (ms) => Object.assign(figure.current!.dataset, { drawn: "true", ms: String(Math.round(ms)) }),
    });
    view.current = shown;
    return () => shown.destroy();
  }, []);
  useEffect(() => {
    delete figure.current!.dataset.drawn;
    view.current!.set(p.graph, p.colour);
  }, [p.graph]);
  useEffect(() => view.current!.show({ hidden: p.hidden, selected: p.selected || undefined, path: p.path }), [p.hidden, p.selected, p.path.join("\n"), p.graph]);
  useEffect(() => {
    const frame = requestAnimationFrame(() => view.current?.restyle());
    return () => cancelAnimationFrame(frame);
  }, [look]);
  const node = over && p.graph.nodes.find((n) => n.id === over.id);
  return (
    <figure ref={figure} class="drawing">
      <canvas ref={canvas} role="img" aria-label={`Graph of ${p.graph.nodes.length} tools and ${p.graph.edges.length} edges; the list has the same content`} />
      <ZoomButtons zoom={(factor) => view.current!.zoom(factor)} fit={() => view.current!.fit()} />
      {node && (
        <div class="tip" aria-hidden="true" style={{ left: over.x + "px", top: over.y + "px" }}>
          <strong>{node.name}</strong>
          <span>
            {node.server}, {count(node.runs)} runs, rank {node.rank.toFixed(3)}
          </span>
        </div>
      )}
    </figure>
  );
}

function Route({ route }: { route: Path }) {
  if (route.path.length === 0) {
    return (
      <Panel title="Path" flush>
        <Empty icon="workflows" title="No path connects these tools" />
      </Panel>
    );
  }
  return (
    <Panel title={`Path of ${route.path.length - 1} ${route.path.length === 2 ? "step" : "steps"}`} actions={<span class="faint">confidence {percent(route.confidence)}</span>}>
      <ol class="steps">
        {route.path.map((id, i) => (
          <li key={id}>
            <a href={link("tools", id)}>{id}</a>
            {i > 0 && route.edges[i - 1] && <span class="faint"> {percent(route.edges[i - 1]!.confidence)}</span>}
          </li>
        ))}
      </ol>
    </Panel>
  );
}

function Selected({ graph, id, colour, select }: { graph: Graph; id: string; colour: Map<string, number>; select: (id: string | undefined) => void }) {
  const node = graph.nodes.find((n) => n.id === id);
  if (!node) return null;
  const edges = graph.edges.filter((e) => e.from === id || e.to === id).sort((a, b) => b.confidence - a.confidence);
  return (
    <Panel
      title={node.name}
      flush
      actions={
        <button class="quiet" aria-label="Close details" onClick={() => select(undefined)}>
          <Icon name="close" />
        </button>
      }
    >
      <div class="inner stack tight">
        <Facts
          of={[
            ["Server", <span class="row"><Swatch colour={colour.get(node.server)} /> <a href={link("tools", node.server)}>{node.server}</a></span>],
            ["Runs", count(node.runs)],
            ["PageRank", node.rank.toFixed(3)],
            ["Community", node.community < 0 ? undefined : node.community],
          ]}
        />
        <div class="row">
          <a href={link("tools", id)}>Open tool</a>
          <button class="link" onClick={() => setParameters({ from: id }, true)}>Path from here</button>
          <button class="link" onClick={() => setParameters({ to: id }, true)}>Path to here</button>
        </div>
      </div>
      <div class="scroll small edges" tabIndex={0} role="region" aria-label="Edges">
        <Table
          label={"Edges of " + id}
          rows={edges}
          id={(e) => e.from + " " + e.to}
          empty={<Empty title="No edges" />}
          columns={[
            { title: "Used with", cell: (e) => <span class="anywhere"><span aria-label={e.from === id ? "then" : "after"}>{e.from === id ? "→ " : "← "}</span><button class="link" onClick={() => select(e.from === id ? e.to : e.from)}>{e.from === id ? e.to : e.from}</button></span> },
            { title: "Runs", number: true, cell: (e) => count(e.runs) },
            { title: "Confidence", number: true, cell: (e) => percent(e.confidence) },
          ]}
        />
      </div>
    </Panel>
  );
}

/** NodeList is the graph as a list: arrow keys, j and k move in it, Enter and Space select. */
function NodeList({ nodes, colour, selected, select }: { nodes: GraphNode[]; colour: Map<string, number>; selected: string; select: (id: string | undefined) => void }) {
  const [text, setText] = useState("");
  const [most, setMost] = useState(100);
  const list = useRef<HTMLUListElement>(null);
  const at = nodes.findIndex((n) => n.id === selected);
  useEffect(() => {
    const box = list.current!;
    const item = box.querySelector<HTMLElement>("[aria-pressed=true]");
    if (item && (item.offsetTop < box.scrollTop || item.offsetTop + item.offsetHeight > box.scrollTop + box.clientHeight)) box.scrollTop = item.offsetTop - box.clientHeight / 2;
  }, [selected]);
  const found = nodes.filter((n) => n.id.toLowerCase().includes(text.toLowerCase()));
  const keys = (event: KeyboardEvent) => {
    const item = (event.target as Element).closest("li");
    const next = { j: item?.nextElementSibling, ArrowDown: item?.nextElementSibling, k: item?.previousElementSibling, ArrowUp: item?.previousElementSibling }[event.key];
    if (!next) return;
    event.preventDefault();
    next.querySelector("button")?.focus();
  };
  return (
    <Panel title="Tools by PageRank" flush actions={<input type="search" class="narrow" aria-label="Find tools in the graph" placeholder="Find" value={text} onInput={(e) => setText(e.currentTarget.value)} />}>
      <ul class="nodes" ref={list} onKeyDown={keys}>
        {found.slice(0, Math.max(most, at + 1)).map((n) => (
          <li key={n.id}>
            <button class="quiet" aria-pressed={n.id === selected} title={`${count(n.runs)} runs`} onClick={() => select(n.id)}>
              <Swatch colour={colour.get(n.server)} />
              <span class="truncate">
                {n.name} <span class="faint">{n.server}</span>
              </span>
              <span class="number faint">{n.rank.toFixed(3)}</span>
            </button>
          </li>
        ))}
      </ul>
      {found.length > most && (
        <div class="more">
          <button class="quiet" onClick={() => setMost(most + 200)}>
            Show more
          </button>
        </div>
      )}
      {found.length === 0 && <Empty icon="search" title="No tool matches" />}
    </Panel>
  );
}
