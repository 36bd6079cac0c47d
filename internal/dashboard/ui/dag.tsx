// The graph of a workflow: layers are columns from left to right, edges are dependencies.
import { useMemo, useRef } from "preact/hooks";
import { duration, mark, tone, words } from "./format";

export type Node = { id: string; layer: number; depends_on: string[]; status?: string; target: string; kind: string; ms?: number };

type Placed = Node & { x: number; y: number };

const size = { width: 184, height: 48, across: 64, down: 14, edge: 20 };

/** arrange places nodes by layer. Within a layer they follow the mean height of what they depend on, so that few edges cross. */
export function arrange(nodes: Node[]): { placed: Placed[]; width: number; height: number } {
  const columns: Node[][] = [];
  for (const n of nodes) (columns[n.layer - 1] ??= []).push(n);
  const layers = Array.from(columns, (c) => c ?? []);
  const tallest = Math.max(1, ...layers.map((c) => c.length));
  const pitch = size.height + size.down;
  const at = new Map<string, Placed>();
  layers.forEach((column, i) => {
    const mean = (n: Node) => {
      const above = n.depends_on.map((d) => at.get(d)?.y).filter((y) => y !== undefined);
      return above.length ? above.reduce((a, b) => a + b, 0) / above.length : 0;
    };
    const order = column.map((n, index) => ({ n, index, mean: mean(n) })).sort((a, b) => a.mean - b.mean || a.index - b.index);
    const top = size.edge + ((tallest - column.length) * pitch) / 2;
    order.forEach(({ n }, row) => at.set(n.id, { ...n, x: size.edge + i * (size.width + size.across), y: top + row * pitch }));
  });
  return {
    placed: [...at.values()],
    width: 2 * size.edge + layers.length * (size.width + size.across) - size.across,
    height: 2 * size.edge + tallest * pitch - size.down,
  };
}

const clip = (text: string, length: number) => (text.length > length ? text.slice(0, length - 1) + "…" : text);

/** summary is what a screen reader says about a node. */
const summary = (n: Node) => [n.id, n.status ? words(n.status) : "", words(n.kind), n.target, n.ms !== undefined ? duration(n.ms) : "", "layer " + n.layer, n.depends_on.length ? "after " + n.depends_on.join(", ") : ""].filter(Boolean).join(", ");

/** Dag draws the graph. Arrows move between nodes, Enter and a click select one. */
export function Dag({ nodes, selected, select }: { nodes: Node[]; selected: string; select: (id: string) => void }) {
  const { placed, width, height } = useMemo(() => arrange(nodes), [nodes]);
  const byID = new Map(placed.map((n) => [n.id, n]));
  const svg = useRef<SVGSVGElement>(null);
  const first = byID.has(selected) ? selected : placed[0]?.id;
  const keys = (event: KeyboardEvent, from: Placed) => {
    if (event.key === "Enter" || event.key === " ") select(from.id);
    else {
      const to = neighbour(placed, from, event.key);
      if (!to) return;
      svg.current?.querySelector<SVGGElement>(`[data-step="${to.id}"]`)?.focus();
    }
    event.preventDefault();
  };
  return (
    <div class="dag" tabIndex={-1}>
      <svg ref={svg} width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="group" aria-label="Graph of the steps; the list shows the same">
        {placed.flatMap((n) =>
          n.depends_on.map((d) => {
            const from = byID.get(d);
            return from && <path key={d + ">" + n.id} d={curve(from, n)} class={"edge" + (selected && (d === selected || n.id === selected) ? " near" : "") + (from.status === "success" ? " done" : "")} />;
          }),
        )}
        {placed.map((n) => (
          <g key={n.id} class={"node " + (n.status ? tone(n.status) || "plain" : "plain") + (n.status === "pending" ? " pending" : "")} transform={`translate(${n.x} ${n.y})`} data-step={n.id} data-status={n.status} role="button" tabIndex={n.id === first ? 0 : -1} aria-pressed={n.id === selected} aria-label={summary(n)} onClick={() => select(n.id)} onKeyDown={(e) => keys(e, n)}>
            <title>{summary(n)}</title>
            <rect width={size.width} height={size.height} rx="8" />
            <circle class={n.status === "running" ? "pulse" : ""} cx="18" cy="24" r="9" />
            <text class="sign" x="18" y="24">
              {n.status === "pending" ? "○" : n.status ? mark(tone(n.status)) : n.kind[0]!.toUpperCase()}
            </text>
            <text class="name" x="36" y="20">
              {clip(n.id, n.ms === undefined ? 19 : 13)}
            </text>
            <text class="target" x="36" y="36">
              {clip(n.target, 22)}
            </text>
            {n.ms !== undefined && (
              <text class="time" x={size.width - 10} y="20">
                {duration(n.ms)}
              </text>
            )}
          </g>
        ))}
      </svg>
    </div>
  );
}

function curve(from: Placed, to: Placed): string {
  const [x1, y1, x2, y2] = [from.x + size.width, from.y + size.height / 2, to.x, to.y + size.height / 2];
  const bend = Math.max(24, Math.min(80, (x2 - x1) / 2));
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}

/** neighbour returns the nearest node in the direction of an arrow key. */
function neighbour(placed: Placed[], from: Placed, key: string): Placed | undefined {
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
  if (!step) return undefined;
  const [across, down] = step as [number, number];
  const candidates = placed.filter((n) => (across ? Math.sign(n.x - from.x) === across : n.x === from.x && Math.sign(n.y - from.y) === down));
  const distance = (n: Placed) => Math.abs(n.x - from.x) * 10 + Math.abs(n.y - from.y);
  return candidates.sort((a, b) => distance(a) - distance(b))[0];
}
