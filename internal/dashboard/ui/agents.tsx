// The tree of agents. Children are read when their parent is opened, 200 at a time, and only the rows on the screen are
// drawn, so that the view works for 100,000 agents.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { query } from "./api";
import { AgentForm } from "./agentform";
import { AgentBudget, levels, Name } from "./agentparts";
import { childrenPath, Tree, type AgentRow, type TreeRow } from "./agenttree";
import { AsCurl, Badge, Empty, Loaded, Page, Panel, Search, Skeleton, Table } from "./components";
import { count, short } from "./format";
import { singleKeys } from "./keys";
import { usePages, kinds } from "./resource";
import { link, navigate, parameter } from "./router";
import { can, me } from "./session";
import { ProblemNotice } from "./problem";
import { useWorkers, WorkerState, type Worker } from "./workers";

export function Agents() {
  const [creating, setCreating] = useState(false);
  const text = parameter("q");
  const root = me.value?.token.agent_id ?? "nova";
  const search = query("/api/v1/agents", { q: text, counts: true, usage: true, limit: 100 });
  return (
    <Page
      name="agents"
      title="Agents"
      actions={
        <>
          <AsCurl calls={[{ path: text ? search : childrenPath(root) }]} />
          {can("agents:write") && (
            <button class="primary" onClick={() => setCreating(true)}>
              New agent
            </button>
          )}
        </>
      }
    >
      <div class="filters" role="search">
        <Search name="q" label="Find agents by id, name or description" placeholder="Find agents" />
      </div>
      {text ? <Found path={search} text={text} /> : <TreeView root={root} key={root} />}
      {creating && <AgentForm close={() => setCreating(false)} parent={root === "nova" ? undefined : root} done={(id) => navigate(link("agents", id))} />}
    </Page>
  );
}

function Found({ path, text }: { path: string; text: string }) {
  const found = usePages<AgentRow>(path, "agents", kinds("agent."));
  const workers = useWorkers();
  return (
    <Panel title="Matching agents" flush>
      <Loaded of={found}>
        {(rows) => (
          <Table
            label="Matching agents"
            rows={rows}
            id={(a) => a.id}
            href={(a) => link("agents", a.id)}
            more={found.more}
            empty={<Empty icon="search" title={`No agent matches “${text}”`} />}
            columns={[
              { title: "Agent", cell: (a) => <Name agent={a} /> },
              { title: "Level", cell: (a) => levels[a.level] },
              { title: "Parent", cell: (a) => a.parent_id && <a href={link("agents", a.parent_id)}>{a.parent_id}</a> },
              { title: "Budget today", cell: (a) => <AgentBudget agent={a} /> },
              { title: "State", cell: (a) => <Badge state={a.is_active ? "active" : "inactive"} /> },
              ...(workers ? [{ title: "Worker", cell: (a: AgentRow) => <WorkerState of={workers.get(a.id)} /> }] : []),
            ]}
          />
        )}
      </Loaded>
    </Panel>
  );
}

/** rowHeight is the height of a row of the tree, in pixels. */
const rowHeight = 44;

function TreeView({ root }: { root: string }) {
  const [, redraw] = useState(0);
  const tree = useRef<Tree>(undefined);
  tree.current ??= new Tree(root, () => redraw((n) => n + 1));
  useLayoutEffect(() => tree.current!.follow(), []);
  const workers = useWorkers();
  const t = tree.current;
  const rows = t.rows();
  return (
    <Panel title={t.total === undefined ? "Hierarchy" : `Hierarchy of ${count(t.total)} agents`} flush>
      {t.problem && <ProblemNotice problem={t.problem} retry={() => t.reload()} />}
      {rows.length === 0 && !t.problem ? <Skeleton /> : <TreeGrid tree={t} rows={rows} workers={workers} />}
    </Panel>
  );
}

function TreeGrid({ tree, rows, workers }: { tree: Tree; rows: TreeRow[]; workers?: Map<string, Worker> }) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const [cursor, setCursor] = useState({ key: "", at: 0 }); // the focused row, which moves when rows above it appear or disappear
  const moved = rows.findIndex((row) => row.key === cursor.key);
  const focused = moved >= 0 ? moved : Math.min(cursor.at, rows.length - 1);
  const setFocused = (at: number) => setCursor({ key: rows[at]?.key ?? "", at });
  const wanted = useRef(false); // whether the focused row must get the focus once it is drawn
  useLayoutEffect(() => {
    const element = box.current!;
    const measure = () => setView({ top: element.scrollTop, height: element.clientHeight });
    const resize = new ResizeObserver(measure);
    resize.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    return () => resize.disconnect();
  }, []);
  useLayoutEffect(() => {
    const row = wanted.current && box.current!.querySelector<HTMLElement>(`[aria-rowindex="${focused + 2}"]`);
    if (!row) return; // it is drawn after the box has scrolled
    wanted.current = false;
    row.focus();
  });

  const first = Math.max(0, Math.floor(view.top / rowHeight) - 8);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / rowHeight) + 8);
  const move = (to: number) => {
    const at = Math.max(0, Math.min(rows.length - 1, to));
    const element = box.current!;
    const y = at * rowHeight;
    if (y < element.scrollTop) element.scrollTop = y;
    else if (y + 2 * rowHeight > element.scrollTop + element.clientHeight) element.scrollTop = y + 2 * rowHeight - element.clientHeight;
    wanted.current = true;
    setView({ top: element.scrollTop, height: element.clientHeight }); // draws the row before the scroll event arrives
    setFocused(at);
  };
  useEffect(() => {
    const first = (event: KeyboardEvent) => {
      const at = document.activeElement;
      if (singleKeys.value && event.key === "j" && !event.metaKey && !event.ctrlKey && !event.altKey && (at === document.body || at?.id === "main")) move(0);
    };
    addEventListener("keydown", first);
    return () => removeEventListener("keydown", first);
  });
  const keys = (event: KeyboardEvent) => {
    const row = rows[focused];
    if (!row || !(event.target as Element).matches("[role=row]")) return;
    const actions: Record<string, () => void> = {
      ArrowDown: () => move(focused + 1), j: () => move(focused + 1), ArrowUp: () => move(focused - 1), k: () => move(focused - 1),
      PageDown: () => move(focused + 10), PageUp: () => move(focused - 10), Home: () => move(0), End: () => move(rows.length - 1),
      ArrowRight: () => (row.open || !row.children ? move(focused + 1) : tree.open(row.id)),
      ArrowLeft: () => (row.open ? tree.close(row.id) : move(rows.findIndex((r) => r.id === row.parent))),
      Enter: () => (row.agent ? navigate(link("agents", row.id)) : tree.more(row.parent)),
    };
    const action = actions[event.key];
    if (action) {
      event.preventDefault();
      action();
    }
  };
  const tabbable = focused >= first && focused < last ? focused : first; // one of the rows that are drawn
  return (
    <div class="treebox" ref={box}>
      <div role="treegrid" aria-label="Agents" aria-rowcount={rows.length + 1} class="treegrid" onKeyDown={keys} style={{ height: (rows.length + 1) * rowHeight + "px" }}>
        <div role="row" aria-rowindex={1} class="treerow heads">
          {["Agent", "Level", "Below", "Budget today", "Subtree today", "State", "Worker"].map((h) => (
            <span role="columnheader" key={h}>
              {h}
            </span>
          ))}
        </div>
        {rows.slice(first, last).map((row, i) => (
          <Row key={row.key} row={row} tree={tree} index={first + i} selected={first + i === tabbable} focus={setFocused} worker={workers && row.agent && <WorkerState of={workers.get(row.id)} />} />
        ))}
      </div>
    </div>
  );
}

function Row({ row, tree, index, selected, focus, worker }: { row: TreeRow; tree: Tree; index: number; selected: boolean; focus: (index: number) => void; worker?: ComponentChildren }) {
  const a = row.agent;
  const toggle = () => (row.open ? tree.close(row.id) : tree.open(row.id));
  return (
    <div
      role="row"
      class="treerow"
      aria-rowindex={index + 2}
      aria-level={row.depth + 1}
      aria-expanded={row.children ? row.open : undefined}
      tabIndex={selected ? 0 : -1}
      style={{ top: (index + 1) * rowHeight + "px" }}
      onFocus={() => focus(index)}
    >
      <span role="gridcell" class="row agentcell" style={{ paddingLeft: row.depth * 20 + "px" }}>
        {row.children ? (
          <button class="quiet twisty" tabIndex={-1} aria-label={(row.open ? "Close " : "Open ") + row.id} onClick={toggle}>
            <span aria-hidden="true" class={row.open ? "open" : ""}>
              ›
            </span>
          </button>
        ) : (
          <span class="twisty" />
        )}
        {a ? <Name agent={a} /> : <button class="link" tabIndex={-1} onClick={() => tree.more(row.parent)}>{row.loading ? "Loading …" : "Show more"}</button>}
      </span>
      <span role="gridcell" class="muted">{a && levels[a.level]}</span>
      <span role="gridcell" class="number">{a?.descendant_count ? count(a.descendant_count) : ""}</span>
      <span role="gridcell">{a && <AgentBudget agent={a} />}</span>
      <span role="gridcell" class="number">{a?.usage && short(a.usage.subtree_used_today)}</span>
      <span role="gridcell">{a && <Badge state={a.is_active ? "active" : "inactive"} />}</span>
      <span role="gridcell">{worker}</span>
    </div>
  );
}
