// The budgets of agents as rings: the angle is the tokens that a subtree used today, the colour is how much of its budget an
// agent has used. A click, or Enter, shows one agent's subtree; the table beside it has the same content.
import { useState } from "preact/hooks";
import type { Schemas } from "./api";
import { Budget, Empty, Table } from "./components";
import { short } from "./format";
import { link } from "./router";

type Node = Schemas["HierarchyNode"];
type Arc = { node: Node; from: number; to: number; ring: number };

/** widest is the maximum number of children in a ring; further arcs would be too small to see. */
const widest = 60;

const used = (n: Node) => n.usage?.subtree_used_today ?? 0;
const limit = (n: Node) => (n.usage?.token_budget === null || n.usage?.token_budget === undefined ? null : n.usage.token_budget + (n.usage.additional_budget ?? 0));
const spent = (n: Node) => (n.usage?.budget_scope === "subtree" ? used(n) : (n.usage?.used_today ?? 0));

/** colour returns the colour for the used part of a budget. */
function colour(ratio: number): string {
  if (ratio >= 1) return "var(--bad)";
  if (ratio >= 0.8) return "var(--c3)";
  return `color-mix(in srgb, var(--c1) ${Math.round(35 + ratio * 65)}%, var(--surface))`;
}

/** colourOf returns the colour of an agent by how much of its budget it has used. */
function colourOf(n: Node): string {
  const budget = limit(n);
  return colour(budget ? spent(n) / budget : spent(n) > 0 && budget === 0 ? 1 : 0);
}

/** Legend explains the colours, and the gap that stands for the tokens that the agent in the centre used itself. */
function Legend({ top }: { top: Node }) {
  const own = used(top) - top.children.reduce((sum, c) => sum + used(c), 0);
  return (
    <p class="faint row legend-of">
      <span>Own budget used:</span>
      {[["unused", 0], ["half", 0.5], ["80 %", 0.8], ["all", 1]].map(([text, ratio]) => (
        <span class="row" key={text}>
          <span aria-hidden="true" class="swatch" style={{ background: colour(ratio as number) }} /> {text}
        </span>
      ))}
      {own > 0 && <span>Gap: {short(own)} used by {top.name} itself</span>}
    </p>
  );
}

/** layout returns the arcs of the rings. Without usage, each agent has the same share. */
function layout(node: Node, from: number, to: number, ring: number, rings: number, out: Arc[]) {
  if (ring > 0) out.push({ node, from, to, ring });
  if (ring === rings) return;
  const children = [...node.children].sort((a, b) => used(b) - used(a)).slice(0, widest);
  const total = children.reduce((sum, c) => sum + used(c), 0);
  const whole = total > 0 ? Math.max(total, used(node)) : children.length;
  let at = from;
  for (const c of children) {
    const size = ((to - from) * (total > 0 ? used(c) : 1)) / whole;
    if (size > 0.004) layout(c, at, at + size, ring + 1, rings, out);
    at += size;
  }
}

function arcPath({ from, to, ring }: Arc, inner: number, width: number): string {
  const r0 = inner + (ring - 1) * width + 1;
  const r1 = inner + ring * width - 1;
  const end = Math.min(to, from + 2 * Math.PI - 0.0001);
  const point = (r: number, a: number) => `${(r * Math.sin(a)).toFixed(2)} ${(-r * Math.cos(a)).toFixed(2)}`;
  const large = end - from > Math.PI ? 1 : 0;
  return `M${point(r0, from)}L${point(r1, from)}A${r1} ${r1} 0 ${large} 1 ${point(r1, end)}L${point(r0, end)}A${r0} ${r0} 0 ${large} 0 ${point(r0, from)}Z`;
}

function find(node: Node, path: string[]): Node[] {
  const next = node.children.find((c) => c.id === path[0]);
  return next ? [node, ...find(next, path.slice(1))] : [node];
}

export function Sunburst({ root }: { root: Node }) {
  const [zoom, setZoom] = useState<string[]>([]);
  const [over, setOver] = useState<Node>();
  const chain = find(root, zoom);
  const top = chain[chain.length - 1]!;
  const arcs: Arc[] = [];
  layout(top, 0, 2 * Math.PI, 0, 2, arcs);
  const shown = over ?? top;
  const children = [...top.children].sort((a, b) => used(b) - used(a) || spent(b) - spent(a));
  const enter = (n: Node) => {
    const parent = top.children.includes(n) ? [] : top.children.filter((c) => c.children.includes(n));
    if (n.children.length > 0) setZoom([...chain.slice(1).map((c) => c.id), ...parent.map((c) => c.id), n.id]);
  };
  if (root.children.length === 0) return <Empty icon="agents" title="No agent below the root yet" />;
  return (
    <div class="sunburst">
      <svg viewBox="-130 -130 260 260" role="img" aria-label={`Budgets below ${top.name}: ${short(used(top))} tokens used today; the table has the same content`}>
        {arcs.map((a) => (
          <path key={a.node.id} d={arcPath(a, 54, 36)} fill={colourOf(a.node)} class={a.node.is_active ? "" : "inactive"} onClick={() => enter(a.node)} onMouseEnter={() => setOver(a.node)} onMouseLeave={() => setOver(undefined)}>
            <title>{`${a.node.name}: ${short(spent(a.node))} of ${short(limit(a.node))}`}</title>
          </path>
        ))}
        <circle r="50" class="centre" onClick={() => setZoom(zoom.slice(0, -1))} />
        <text y="-8" class="big">{short(used(shown))}</text>
        <text y="10">tokens today</text>
        <text y="25" class="name">{shown.name.length > 17 ? shown.name.slice(0, 16) + "…" : shown.name}</text>
      </svg>
      <div class="stack tight">
        <ol class="crumbs" aria-label="Selected agent">
          {chain.map((n, i) => (
            <li key={n.id}>
              <button class="link" aria-current={i === chain.length - 1 ? "true" : undefined} onClick={() => setZoom(chain.slice(1, i + 1).map((c) => c.id))}>
                {n.name}
              </button>
            </li>
          ))}
        </ol>
        <Legend top={top} />
        <div class="scroll" tabIndex={0} role="region" aria-label="Budgets">
          <Table
            label={"Budgets below " + top.name}
            rows={children.slice(0, widest)}
            id={(n) => n.id}
            empty={<Empty icon="agents" title="No agent below this one" />}
            columns={[
              {
                title: "Agent",
                cell: (n) => (
                  <span class="row below">
                    <a class="truncate" href={link("agents", n.id)}>{n.name}</a>
                    {n.children.length > 0 && (
                      <button class="quiet" aria-label={`${n.children.length} below ${n.name}`} onClick={() => enter(n)}>
                        {n.children.length} below
                      </button>
                    )}
                  </span>
                ),
              },
              { title: "Own budget", cell: (n) => <Budget used={spent(n)} budget={limit(n)} label={"Budget of " + n.name} /> },
              { title: "Subtree", number: true, cell: (n) => short(used(n)) },
            ]}
          />
        </div>
      </div>
    </div>
  );
}
