// The layout of the graph of tools. It is computed in short pieces, so that the page stays responsive, and keeps the
// positions of known nodes, so that the graph does not jump when it changes.
import { forceCollide, forceLink, forceManyBody, forceSimulation, forceX, forceY, type Simulation } from "d3-force";
import type { Schemas } from "./api";

export type Graph = Schemas["ToolGraph"];
export type GraphNode = Graph["nodes"][number];
type GraphEdge = Graph["edges"][number];

export type Placed = { id: string; x: number; y: number; radius: number; node: GraphNode };
export type Link = { source: Placed; target: Placed; edge: GraphEdge };

/** piece is how long the layout is computed without a pause, in milliseconds. */
const piece = 24;

export class Layout {
  nodes: Placed[] = [];
  links: Link[] = [];
  private known = new Map<string, Placed>();
  private simulation?: Simulation<Placed>;
  private timer?: ReturnType<typeof setTimeout>;

  /** moved is called after each piece of the computation, with cold set after the last one. */
  constructor(private readonly moved: (cold: boolean) => void) {}

  get(id: string | undefined): Placed | undefined {
    return id ? this.known.get(id) : undefined;
  }

  /** set shows another state of the graph: known nodes stay, new ones start beside their neighbours. */
  set(graph: Graph) {
    const first = this.nodes.length === 0;
    const known = this.known;
    const most = Math.max(...graph.nodes.map((n) => n.rank), 1e-9);
    const added: Placed[] = [];
    this.nodes = graph.nodes.map((node) => {
      const radius = 4 + 14 * Math.sqrt(node.rank / most);
      const old = known.get(node.id);
      if (old) return Object.assign(old, { node, radius });
      const fresh = { id: node.id, x: NaN, y: NaN, radius, node };
      added.push(fresh);
      return fresh;
    });
    const removed = known.size + added.length - this.nodes.length;
    this.known = new Map(this.nodes.map((n) => [n.id, n]));
    const before = this.links.length;
    this.links = graph.edges.flatMap((edge) => {
      const source = this.known.get(edge.from);
      const target = this.known.get(edge.to);
      return source && target && source !== target ? [{ source, target, edge }] : [];
    });
    if (first) this.arrange();
    else this.place(added);
    if (first || added.length + removed > 0 || before !== this.links.length) this.start(first);
    else if (this.timer === undefined) this.moved(true); // a running layout continues
  }

  /** arrange puts the nodes of each community near each other. */
  private arrange() {
    const members = new Map<number, Placed[]>();
    for (const n of this.nodes) members.set(n.node.community, [...(members.get(n.node.community) ?? []), n]);
    const size = 22 * Math.sqrt(this.nodes.length);
    [...members.values()].forEach((list, i, all) => {
      const [x, y] = spiral(i, size / Math.sqrt(all.length));
      list.forEach((n, k) => {
        const [dx, dy] = spiral(k, 22);
        Object.assign(n, { x: x + dx, y: y + dy });
      });
    });
  }

  private place(added: Placed[]) {
    added.forEach((n, i) => {
      const near = this.links.flatMap((l) => (l.source === n ? [l.target] : l.target === n ? [l.source] : [])).filter((m) => !Number.isNaN(m.x));
      const [dx, dy] = spiral(i, 12);
      const middle = (of: (m: Placed) => number) => (near.length ? near.reduce((sum, m) => sum + of(m), 0) / near.length : 0);
      Object.assign(n, { x: middle((m) => m.x) + dx + 16, y: middle((m) => m.y) + dy });
    });
  }

  private start(first: boolean) {
    this.stop();
    const small = this.nodes.length <= 500;
    const ticks = small ? 90 : Math.max(30, Math.round(90_000 / this.nodes.length));
    const degree = new Map<Placed, number>();
    for (const l of this.links) for (const n of [l.source, l.target]) degree.set(n, (degree.get(n) ?? 0) + 1);
    const links = this.links.map((l) => ({ ...l }));
    const simulation = (this.simulation = forceSimulation(this.nodes)
      .stop()
      .alpha(first ? 1 : 0.12)
      .alphaDecay(1 - Math.pow(0.001, 1 / ticks))
      .force("charge", forceManyBody<Placed>().strength(small ? -140 : -60).theta(small ? 0.9 : 1.2).distanceMax(small ? 600 : 320))
      .force("x", forceX(0).strength(0.06))
      .force("y", forceY(0).strength(0.08))
      .force(
        "link",
        forceLink<Placed, (typeof links)[number]>(links)
          .id((n) => n.id)
          .distance((l) => 30 + 40 * (1 - l.edge.confidence) + l.source.radius + l.target.radius)
          .strength((l) => (0.3 + l.edge.confidence) / Math.min(degree.get(l.source)!, degree.get(l.target)!)),
      ));
    if (small) simulation.force("collide", forceCollide<Placed>().radius((n) => n.radius + 3).iterations(1));
    const run = () => {
      const began = performance.now();
      do simulation.tick();
      while (simulation.alpha() > simulation.alphaMin() && performance.now() - began < piece);
      const cold = simulation.alpha() <= simulation.alphaMin();
      this.timer = cold ? undefined : setTimeout(run, 0);
      this.moved(cold);
    };
    run();
  }

  stop() {
    clearTimeout(this.timer);
    this.simulation?.stop();
  }
}

/** spiral returns the place of the i-th of many points that lie close to each other. */
function spiral(i: number, distance: number): [number, number] {
  const angle = i * 2.399963;
  const r = distance * Math.sqrt(i);
  return [r * Math.cos(angle), r * Math.sin(angle)];
}
