// The picture of the graph of tools on a canvas: drawing, zoom, pan and the node under the pointer.
import { Layout, type Graph, type Link, type Placed } from "./graphlayout";
import { shown } from "./visible";

type Options = { hover: (id: string | undefined, x: number, y: number) => void; select: (id: string | undefined) => void; drawn: (ms: number) => void };

type Point = [x: number, y: number];

/** colours is the number of colours of the theme; servers beyond it share them, and are drawn as rings. */
export const colours = 8;

/** widths is the number of widths of lines: all lines of one width are drawn at once. */
const widths = 5;

export class GraphCanvas {
  private layout: Layout;
  private view = { k: 1, x: 0, y: 0 };
  private fitted = true; // whether the whole graph is shown, until the reader moves it
  private settled = false; // whether the first layout is done: later ones do not move the view
  private hidden = new Set<string>();
  private colours = new Map<string, string>();
  private selected?: string;
  private hovered?: string;
  private path: string[] = [];
  private frame = 0;
  private began = 0;
  private cold = false;
  private readonly still = matchMedia("(prefers-reduced-motion: reduce)");
  private readonly resize: ResizeObserver;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly options: Options,
  ) {
    this.layout = new Layout((cold) => this.moved(cold));
    this.resize = new ResizeObserver(() => {
      if (this.fitted) this.fit();
      this.draw();
    });
    this.resize.observe(canvas);
    this.listen();
  }

  destroy() {
    this.layout.stop();
    this.resize.disconnect();
    cancelAnimationFrame(this.frame);
  }

  /** set shows a graph; colours are the numbers of the colours of servers. */
  set(graph: Graph, colours: Map<string, number>) {
    this.began = performance.now();
    this.cold = false;
    this.numbers = colours;
    this.restyle();
    this.layout.set(graph);
  }
  private numbers = new Map<string, number>();

  /** restyle reads the colours of the theme again. */
  restyle() {
    const style = getComputedStyle(this.canvas);
    const css = (name: string) => style.getPropertyValue(name).trim();
    this.colours = new Map([...this.numbers].map(([server, n]) => [server, css("--c" + (((n - 1) % colours) + 1))]));
    for (const name of ["--border-strong", "--text", "--surface", "--accent", "--muted"]) this.colours.set(name, css(name));
    this.draw();
  }

  /** show sets what is emphasized: hidden servers, the selected node and a path. */
  show(p: { hidden: Set<string>; selected?: string; path: string[] }) {
    this.hidden = p.hidden;
    this.path = p.path;
    if (p.selected !== this.selected) {
      this.selected = p.selected;
      this.reveal(this.layout.get(p.selected));
    }
    this.draw();
  }

  zoom(factor: number, at?: Point) {
    const [x, y] = at ?? [this.canvas.clientWidth / 2, this.canvas.clientHeight / 2];
    const k = Math.min(8, Math.max(0.05, this.view.k * factor));
    const f = k / this.view.k;
    this.view = { k, x: x - (x - this.view.x) * f, y: y - (y - this.view.y) * f };
    this.fitted = false;
    this.draw();
  }

  /** fit shows the whole graph. */
  fit() {
    const nodes = this.visible();
    if (nodes.length === 0 || !this.canvas.clientWidth) return;
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    for (const n of nodes) {
      [left, right] = [Math.min(left, n.x - n.radius), Math.max(right, n.x + n.radius)];
      [top, bottom] = [Math.min(top, n.y - n.radius), Math.max(bottom, n.y + n.radius)];
    }
    const [w, h] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const k = Math.min(1.5, (w - 48) / (right - left), (h - 56) / (bottom - top));
    this.view = { k, x: w / 2 - (k * (left + right)) / 2, y: h / 2 - (k * (top + bottom)) / 2 };
    this.fitted = true;
    this.draw();
  }

  private visible = (): Placed[] => this.layout.nodes.filter((n) => !this.hidden.has(n.node.server));

  private moved(cold: boolean) {
    this.cold = cold;
    if (this.still.matches && !cold) return;
    if (this.fitted && !this.settled) this.fit();
    this.settled ||= cold;
    this.draw();
  }

  private reveal(n: Placed | undefined) {
    if (!n) return;
    const [x, y] = [n.x * this.view.k + this.view.x, n.y * this.view.k + this.view.y];
    const [w, h] = [this.canvas.clientWidth, this.canvas.clientHeight];
    if (x > 24 && y > 24 && x < w - 24 && y < h - 24) return;
    this.view = { ...this.view, x: w / 2 - n.x * this.view.k, y: h / 2 - n.y * this.view.k };
    this.fitted = false;
  }

  private draw() {
    if (this.still.matches && !this.settled) return; // without animation, only the result of the layout is drawn
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.paint();
      if (this.cold && this.began) {
        this.options.drawn(performance.now() - this.began);
        this.began = 0;
      }
    });
  }

  private paint() {
    const { canvas, view } = this;
    const ratio = devicePixelRatio || 1;
    const [w, h] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) Object.assign(canvas, { width: Math.round(w * ratio), height: Math.round(h * ratio) });
    const c = canvas.getContext("2d")!;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, w, h);
    c.setTransform(ratio * view.k, 0, 0, ratio * view.k, ratio * view.x, ratio * view.y);
    const focus = this.hovered ?? this.selected;
    const near = this.near(focus);
    this.paintLinks(c, focus);
    this.paintNodes(c, near);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.paintNames(c, near);
  }

  /** near returns the emphasized nodes, undefined if all are equal. */
  private near(focus: string | undefined): Set<string> | undefined {
    if (this.path.length > 0) return new Set(focus ? [...this.path, focus] : this.path);
    if (!this.layout.get(focus)) return undefined;
    const out = new Set([focus!]);
    for (const l of this.layout.links) {
      if (l.source.id === focus) out.add(l.target.id);
      if (l.target.id === focus) out.add(l.source.id);
    }
    return out;
  }

  private paintLinks(c: CanvasRenderingContext2D, focus: string | undefined) {
    const links = this.layout.links.filter((l) => !this.hidden.has(l.source.node.server) && !this.hidden.has(l.target.node.server));
    const step = (l: Link) => this.path.some((id, i) => i > 0 && ((l.source.id === this.path[i - 1] && l.target.id === id) || (l.target.id === this.path[i - 1] && l.source.id === id)));
    const strong = this.path.length > 0 ? links.filter(step) : focus ? links.filter((l) => l.source.id === focus || l.target.id === focus) : [];
    const stroke = (list: Link[], width: number) => {
      c.lineWidth = width;
      c.beginPath();
      for (const l of list) {
        c.moveTo(l.source.x, l.source.y);
        c.lineTo(l.target.x, l.target.y);
      }
      c.stroke();
    };
    const groups: Link[][] = Array.from({ length: widths }, () => []);
    for (const l of links) groups[Math.min(widths - 1, Math.floor(l.edge.confidence * widths))]!.push(l);
    c.strokeStyle = this.colours.get("--border-strong")!;
    c.globalAlpha = strong.length > 0 ? 0.25 : this.layout.links.length > 1500 ? 0.45 : 0.8;
    groups.forEach((list, i) => stroke(list, 0.6 + i * 0.9));
    c.strokeStyle = this.colours.get("--accent")!;
    c.globalAlpha = 0.9;
    for (const l of strong) stroke([l], 1.4 + l.edge.confidence * 4);
    c.globalAlpha = 1;
  }

  private paintNodes(c: CanvasRenderingContext2D, near: Set<string> | undefined) {
    const groups = new Map<string, Placed[]>();
    for (const n of this.visible()) {
      const key = n.node.server + (near && !near.has(n.id) ? "\n" : "");
      groups.get(key)?.push(n) ?? groups.set(key, [n]);
    }
    const surface = this.colours.get("--surface")!;
    for (const [key, list] of groups) {
      c.globalAlpha = key.endsWith("\n") ? 0.22 : 1;
      const server = key.trimEnd();
      const ring = (this.numbers.get(server) ?? 1) > colours;
      const colour = this.colours.get(server) ?? "gray";
      c.fillStyle = ring ? surface : colour;
      c.strokeStyle = ring ? colour : surface;
      c.lineWidth = ring ? 3 : 1.5;
      c.beginPath();
      for (const n of list) {
        c.moveTo(n.x + n.radius, n.y);
        c.arc(n.x, n.y, n.radius, 0, 2 * Math.PI);
      }
      c.fill();
      c.stroke();
    }
    c.globalAlpha = 1;
    const chosen = this.layout.get(this.selected);
    if (!chosen) return;
    c.strokeStyle = this.colours.get("--text")!;
    c.lineWidth = 2.5 / Math.min(1, this.view.k);
    c.beginPath();
    c.arc(chosen.x, chosen.y, chosen.radius + 3, 0, 2 * Math.PI);
    c.stroke();
  }

  /** paintNames writes the names of emphasized and of important nodes where they do not overlap others. */
  private paintNames(c: CanvasRenderingContext2D, near: Set<string> | undefined) {
    const { k, x, y } = this.view;
    const first = this.hovered ?? this.selected;
    const nodes = this.visible()
      .filter((n) => !near || near.has(n.id))
      .sort((a, b) => Number(b.id === first) - Number(a.id === first) || b.node.rank - a.node.rank)
      .slice(0, near ? 40 : Math.round(14 + 40 * Math.max(0, k - 0.6)));
    const taken: [number, number, number, number][] = [];
    c.font = "12px " + getComputedStyle(this.canvas).fontFamily;
    c.textAlign = "center";
    c.lineWidth = 3;
    c.lineJoin = "round";
    c.strokeStyle = this.colours.get("--surface")!;
    c.fillStyle = this.colours.get("--text")!;
    for (const n of nodes) {
      const name = shown(n.node.name);
      const half = c.measureText(name).width / 2;
      const [px, py] = [n.x * k + x, n.y * k + y + n.radius * k + 13];
      const box: [number, number, number, number] = [px - half, py - 12, px + half, py + 3];
      if (taken.some((t) => box[0] < t[2] && box[2] > t[0] && box[1] < t[3] && box[3] > t[1])) continue;
      taken.push(box);
      c.strokeText(name, px, py);
      c.fillText(name, px, py);
    }
  }

  private at(event: MouseEvent): Placed | undefined {
    const [px, py] = [(event.offsetX - this.view.x) / this.view.k, (event.offsetY - this.view.y) / this.view.k];
    let best: Placed | undefined;
    let least = Infinity;
    for (const n of this.visible()) {
      const distance = Math.hypot(n.x - px, n.y - py) - n.radius;
      if (distance < least) [best, least] = [n, distance];
    }
    return least * this.view.k < 6 ? best : undefined;
  }

  /** listen handles pointers: one pointer moves the view and selects nodes, two pointers also zoom. */
  private listen() {
    const { canvas } = this;
    const down = new Map<number, Point>();
    let moved = false;
    canvas.addEventListener("wheel", (e) => (e.preventDefault(), this.zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0015)), [e.offsetX, e.offsetY])), { passive: false });
    canvas.addEventListener("pointerdown", (e) => {
      moved = down.size > 0;
      down.set(e.pointerId, [e.offsetX, e.offsetY]);
      canvas.setPointerCapture(e.pointerId);
    });
    canvas.addEventListener("pointermove", (e) => {
      const start = down.get(e.pointerId);
      if (!start) return this.point(this.at(e), e);
      if (!moved && Math.hypot(e.offsetX - start[0], e.offsetY - start[1]) < 4) return;
      moved = true;
      const from = grip(down);
      down.set(e.pointerId, [e.offsetX, e.offsetY]);
      const to = grip(down);
      this.view = { ...this.view, x: this.view.x + to.x - from.x, y: this.view.y + to.y - from.y };
      this.point(undefined, e);
      this.zoom(from.size && to.size ? to.size / from.size : 1, [to.x, to.y]);
    });
    canvas.addEventListener("pointerup", (e) => {
      if (down.delete(e.pointerId) && !moved) this.options.select(this.at(e)?.id);
    });
    canvas.addEventListener("pointercancel", (e) => down.delete(e.pointerId));
    canvas.addEventListener("pointerleave", (e) => this.point(undefined, e));
  }

  private point(n: Placed | undefined, e: MouseEvent) {
    if (n?.id === this.hovered) return;
    this.hovered = n?.id;
    this.canvas.style.cursor = n ? "pointer" : "grab";
    this.options.hover(n?.id, e.offsetX, e.offsetY);
    this.draw();
  }
}

/** grip returns the middle of the first two pointers, and their distance. */
function grip(down: Map<number, Point>): { x: number; y: number; size: number } {
  const [a = [0, 0], b = a] = [...down.values()];
  return { x: (a[0] + b[0]) / 2, y: (a[1] + b[1]) / 2, size: Math.hypot(a[0] - b[0], a[1] - b[1]) };
}
