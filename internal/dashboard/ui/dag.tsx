// The graph of a workflow: layers are columns from left to right, edges are dependencies.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { duration, mark, tone, words } from "./format";
import { ZoomButtons } from "./zoombuttons";

export type Node = { id: string; layer: number; depends_on: string[]; status?: string; target: string; kind: string; ms?: number };

type Point = { x: number; y: number };
type Placed = Node & Point;

/** A place is a node, or a gap through which the edges of a node pass to a later layer. */
type Place = { id: string; after: string[]; height: number; y: number; node?: Node };

const size = { width: 204, height: 48, gap: 12, across: 64, down: 14, edge: 20 };
const gapID = (from: string, layer: number) => from + "@" + layer;

/** placesOf returns the places of each layer. */
function placesOf(nodes: Node[]): Place[][] {
  const layers = Array.from({ length: Math.max(0, ...nodes.map((n) => n.layer)) }, (): Place[] => []);
  const layerOf = new Map(nodes.map((n) => [n.id, n.layer]));
  const last = new Map<string, number>();
  for (const n of nodes) for (const d of n.depends_on) last.set(d, Math.max(last.get(d) ?? 0, n.layer));
  for (const n of nodes) {
    const after = n.depends_on.map((d) => (n.layer - (layerOf.get(d) ?? 0) > 1 ? gapID(d, n.layer - 1) : d));
    layers[n.layer - 1]!.push({ id: n.id, after, height: size.height, y: 0, node: n });
    for (let layer = n.layer + 1; layer < (last.get(n.id) ?? 0); layer++) {
      layers[layer - 1]!.push({ id: gapID(n.id, layer), after: [layer === n.layer + 1 ? n.id : gapID(n.id, layer - 1)], height: size.gap, y: 0 });
    }
  }
  return layers;
}

/** arrange places nodes by layer. Within a layer they follow the mean height of what they depend on, so that few edges cross. */
export function arrange(nodes: Node[]): { placed: Placed[]; at: Map<string, Point>; width: number; height: number } {
  const layers = placesOf(nodes);
  const heightOf = (places: Place[]) => places.reduce((sum, p) => sum + p.height + size.down, -size.down);
  const tallest = Math.max(size.height, ...layers.map(heightOf));
  const at = new Map<string, Point>();
  const placed: Placed[] = [];
  layers.forEach((places, i) => {
    const mean = new Map(places.map((p) => {
      const heights = p.after.map((d) => at.get(d)?.y).filter((y) => y !== undefined);
      return [p.id, heights.length ? heights.reduce((a, b) => a + b, 0) / heights.length : 0];
    }));
    places.sort((a, b) => mean.get(a.id)! - mean.get(b.id)!); // stable: equal ones keep the order of the request
    let y = size.edge + (tallest - heightOf(places)) / 2;
    const x = size.edge + i * (size.width + size.across);
    for (const p of places) {
      at.set(p.id, { x, y: y + p.height / 2 });
      if (p.node) placed.push({ ...p.node, x, y });
      y += p.height + size.down;
    }
  });
  return { placed, at, width: 2 * size.edge + layers.length * (size.width + size.across) - size.across, height: 2 * size.edge + tallest };
}

/** edge draws a dependency as curves from column to column, and straight through the gaps of the columns between. */
function edge(at: Map<string, Point>, from: Node, to: Node): string {
  const start = at.get(from.id)!;
  let d = `M${start.x + size.width} ${start.y}`;
  let { y } = start;
  for (let layer = from.layer + 1; layer <= to.layer; layer++) {
    const next = at.get(layer === to.layer ? to.id : gapID(from.id, layer));
    if (!next) return "";
    const bend = size.across / 2;
    d += `C${next.x - bend} ${y} ${next.x - bend} ${next.y} ${next.x} ${next.y}`;
    if (layer < to.layer) d += `h${size.width}`;
    y = next.y;
  }
  return d;
}

/** attention lists the states that the graph scrolls to when it opens. */
const attention = ["waiting", "uncertain", "running", "error"];

const clip = (text: string, length: number) => (text.length > length ? text.slice(0, length - 1) + "…" : text);

/** summary is what a screen reader says about a node. */
const summary = (n: Node) => [n.id, n.status ? words(n.status) : "", words(n.kind), n.target, n.ms !== undefined ? duration(n.ms) : "", "layer " + n.layer, n.depends_on.length ? "after " + n.depends_on.join(", ") : ""].filter(Boolean).join(", ");

/** Dag draws the graph. Arrows move between nodes, Enter and a click select one. */
export function Dag({ nodes, selected, select }: { nodes: Node[]; selected: string; select: (id: string) => void }) {
  const { placed, at, width, height } = useMemo(() => arrange(nodes), [nodes]);
  const byID = new Map(placed.map((n) => [n.id, n]));
  const panel = useRef<HTMLDivElement>(null);
  const zoom = useZoom(panel, width, height);
  const show = (n: Placed | undefined) => reveal(panel.current, n, zoom.scale);
  useEffect(() => show(byID.get(selected)), [selected]);
  useEffect(() => show(byID.get(selected) ?? placed.find((n) => attention.includes(n.status ?? "")) ?? placed[0]), [placed.length > 0]); // only once: later changes do not scroll
  const first = byID.has(selected) ? selected : placed[0]?.id;
  const keys = (event: KeyboardEvent, from: Placed) => {
    if (event.key === "Enter" || event.key === " ") select(from.id);
    else {
      const to = neighbour(placed, from, event.key);
      if (!to) return;
      panel.current?.querySelector<SVGGElement>(`[data-step="${to.id}"]`)?.focus();
    }
    event.preventDefault();
  };
  return (
    <div class="dagframe">
      <div class="dag" tabIndex={-1} ref={panel}>
        <svg width={width * zoom.scale} height={height * zoom.scale} viewBox={`0 0 ${width} ${height}`} role="group" aria-label="Graph of the steps; the list has the same content">
          {placed.flatMap((n) =>
            n.depends_on.map((d) => {
              const from = byID.get(d);
              return from && <path key={d + ">" + n.id} d={edge(at, from, n)} class={"edge" + (selected && (d === selected || n.id === selected) ? " near" : "") + (from.status === "success" ? " done" : "")} />;
            }),
          )}
          {placed.map((n) => (
            <g key={n.id} class={"node " + (n.status ? tone(n.status) || "plain" : "plain") + (n.status === "pending" || n.status === "skipped" ? " " + n.status : "")} transform={`translate(${n.x} ${n.y})`} data-step={n.id} data-status={n.status} role="button" tabindex={n.id === first ? 0 : -1} aria-pressed={n.id === selected} aria-description={summary(n)} onClick={() => select(n.id)} onKeyDown={(e) => keys(e, n)}>
              <rect width={size.width} height={size.height} rx="8" />
              <circle class={n.status === "running" ? "pulse" : ""} cx="18" cy="24" r="9" />
              <text class="sign" x="18" y="24">
                {n.status === "pending" ? "○" : n.status === "skipped" ? "–" : n.status ? mark(tone(n.status)) : n.kind[0]!.toUpperCase()}
              </text>
              <text class="name" x="36" y="20">
                {visible(n)[0]}
              </text>
              <text class="target" x="36" y="36">
                {visible(n)[1]}
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
      {zoom.needed && <ZoomButtons zoom={zoom.by} fit={zoom.fit} />}
    </div>
  );
}

/** useZoom scales a graph around the centre of its panel. It is needed if the panel does not show the whole graph. */
function useZoom(panel: { current: HTMLDivElement | null }, width: number, height: number) {
  const [scale, setScale] = useState(1);
  const [whole, setWhole] = useState(1); // the scale that shows the whole graph
  const before = useRef(1);
  useLayoutEffect(() => {
    const box = panel.current!;
    const measure = () => setWhole(Math.min(1, box.clientWidth / width, parseFloat(getComputedStyle(box).maxHeight) / height));
    const resize = new ResizeObserver(measure);
    resize.observe(box);
    measure();
    return () => resize.disconnect();
  }, [width, height]);
  useLayoutEffect(() => {
    const box = panel.current!;
    const move = (at: number, size: number) => ((at + size / 2) * scale) / before.current - size / 2;
    box.scrollTo(move(box.scrollLeft, box.clientWidth), move(box.scrollTop, box.clientHeight));
    before.current = scale;
  }, [scale]);
  return { scale, needed: whole < 1 || scale !== 1, by: (factor: number) => setScale(Math.min(2, Math.max(whole, 0.05, scale * factor))), fit: () => setScale(whole) };
}

/** visible returns the texts of a node, which are its name for screen readers. */
const visible = (n: Placed) => [clip(n.id, n.ms === undefined ? 21 : 15), clip(n.target, 23), ...(n.ms === undefined ? [] : [duration(n.ms)])];

/** reveal scrolls the panel, not the page, to a node. */
function reveal(panel: HTMLElement | null, n: Placed | undefined, scale: number) {
  if (!panel || !n) return;
  const [x, y, w, h] = [n.x, n.y, size.width, size.height].map((v) => v * scale) as [number, number, number, number];
  if (x < panel.scrollLeft || x + w > panel.scrollLeft + panel.clientWidth) panel.scrollLeft = x - (panel.clientWidth - w) / 2;
  if (y < panel.scrollTop || y + h > panel.scrollTop + panel.clientHeight) panel.scrollTop = y - (panel.clientHeight - h) / 2;
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
