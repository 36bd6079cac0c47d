// The state of the tree of agents: the open parents, and the children that were read so far.
import { call, Problem, query, type Schemas } from "./api";
import { onEvents, onGap, type LiveEvent } from "./live";

export type AgentRow = Schemas["AgentItem"];

/** childrenPath returns the path of a page of an agent's children, with their counts and budgets. */
export const childrenPath = (parent: string, cursor?: string) => query("/api/v1/agents", { parent_id: parent, counts: true, usage: true, limit: 200, cursor });

/** TreeRow is a row: an agent, or the button for the next page of a parent's children. */
export type TreeRow = { key: string; id: string; parent: string; depth: number; agent?: AgentRow; children: boolean; open: boolean; loading: boolean };

/** Children are those of an open parent that were read; growing means that a further page is being read. */
type Children = { agents: AgentRow[]; pages: number; cursor?: string; loading: boolean; growing: boolean; reading: number };

/** atMost is the number of parents that are read again per second after events. */
const atMost = 20;

export class Tree {
  problem?: Problem;
  total?: number;
  private top?: AgentRow;
  private opened = new Set<string>();
  private loaded = new Map<string, Children>();
  private changed = new Set<string>();
  private timer?: ReturnType<typeof setTimeout>;
  private retry?: ReturnType<typeof setTimeout>;
  private stop = new AbortController();
  private drawing = false;

  constructor(
    readonly root: string,
    private readonly redraw: () => void,
  ) {}

  /** follow reads the tree, and updates it after events until the returned function is called. */
  follow(): () => void {
    void this.reload();
    const offEvents = onEvents((events) => events.forEach((e) => this.apply(e)));
    const offGap = onGap(() => {
      void this.reload();
      this.opened.forEach((parent) => this.refresh(parent));
    });
    return () => {
      offEvents();
      offGap();
      clearTimeout(this.timer);
      clearTimeout(this.retry);
      this.stop.abort();
    };
  }

  /** rows returns the visible rows, from the top. */
  rows(): TreeRow[] {
    if (!this.top) return [];
    const out: TreeRow[] = [];
    const add = (agent: AgentRow, depth: number) => {
      const open = this.opened.has(agent.id);
      out.push({ key: agent.id, id: agent.id, parent: agent.parent_id ?? "", depth, agent, children: (agent.child_count ?? 0) > 0, open, loading: false });
      const below = this.loaded.get(agent.id);
      if (!open || !below) return;
      for (const child of below.agents) add(child, depth + 1);
      if (below.cursor || below.growing) out.push({ key: agent.id + "/more", id: "", parent: agent.id, depth: depth + 1, children: false, open: false, loading: below.growing });
    };
    add(this.top, 0);
    return out;
  }

  open(id: string) {
    this.opened.add(id);
    if (!this.loaded.has(id)) void this.read(id);
    this.redraw();
  }

  close(id: string) {
    this.opened.delete(id);
    this.loaded.delete(id);
    this.redraw();
  }

  /** more reads the next page of a parent's children. */
  more(parent: string) {
    const below = this.loaded.get(parent);
    if (below?.cursor && !below.growing) void this.read(parent, below.pages + 1);
  }

  /** reload reads the root and its children. */
  async reload() {
    clearTimeout(this.retry);
    this.opened.add(this.root);
    await Promise.all([this.readTop(), this.read(this.root)]);
  }

  /** readTop reads the root. */
  private async readTop() {
    const path = encodeURIComponent(this.root);
    try {
      const [{ root }, detail] = await Promise.all([
        call<Schemas["Hierarchy"]>({ path: "/api/v1/hierarchy?depth=0&usage=true&root=" + path }, this.stop.signal),
        call<Schemas["AgentDetail"]>({ path: "/api/v1/agents/" + path }, this.stop.signal),
      ]);
      this.top = { ...detail, usage: root.usage, child_count: detail.children.length } as unknown as AgentRow;
      this.problem = undefined;
      this.redraw();
    } catch (thrown) {
      this.failed(thrown);
    }
  }

  /** failed shows why a read failed. If the server was not reached, the tree is read again until it is. */
  private failed(thrown: unknown) {
    if (this.stop.signal.aborted) return;
    const problem = Problem.of(thrown);
    this.problem = problem.status === 0 ? problem.with(" The page retries until it does.") : problem;
    if (problem.status === 0) {
      clearTimeout(this.retry);
      this.retry = setTimeout(() => void this.reload(), 2000);
    }
    this.redraw();
  }

  /** read reads the first pages of a parent's children, by default as many as before. */
  private async read(parent: string, pages = this.loaded.get(parent)?.pages ?? 1) {
    const old = this.loaded.get(parent);
    const reading = (old?.reading ?? 0) + 1; // an older read that ends later is ignored
    this.loaded.set(parent, { agents: old?.agents ?? [], pages: old?.pages ?? 1, cursor: old?.cursor, loading: true, growing: !old || pages > old.pages, reading });
    this.redraw();
    let result: Children | undefined = old && { ...old, loading: false, growing: false, reading };
    try {
      const agents: AgentRow[] = [];
      let cursor: string | undefined;
      for (let i = 0; i < pages && (i === 0 || cursor); i++) {
        const page = await call<Schemas["AgentList"]>({ path: childrenPath(parent, cursor) }, this.stop.signal);
        agents.push(...page.agents);
        cursor = page.next_cursor;
      }
      result = { agents, pages, cursor, loading: false, growing: false, reading };
      if (this.top) this.problem = undefined;
    } catch (thrown) {
      this.failed(thrown);
    }
    if (this.loaded.get(parent)?.reading !== reading) return;
    if (result) this.loaded.set(parent, result);
    else this.loaded.delete(parent);
    if (parent === this.root && result && !result.cursor) this.total = 1 + result.agents.reduce((sum, a) => sum + 1 + (a.descendant_count ?? 0), 0);
    this.redraw();
  }

  /** find returns a loaded agent. */
  private find(id: string): AgentRow | undefined {
    if (this.top?.id === id) return this.top;
    for (const below of this.loaded.values()) {
      const agent = below.agents.find((a) => a.id === id);
      if (agent) return agent;
    }
    return undefined;
  }

  /** redrawSoon draws once for all events of a batch. */
  private redrawSoon() {
    if (!this.drawing) queueMicrotask(() => ((this.drawing = false), this.redraw()));
    this.drawing = true;
  }

  /** apply changes a row's usage at once, and reads the children of a changed parent again. */
  private apply(e: LiveEvent) {
    if (e.type === "usage.changed") {
      const agent = this.find(e.key);
      if (!agent?.usage) return;
      Object.assign(agent.usage, { used_today: e.data.used_today ?? agent.usage.used_today, subtree_used_today: e.data.subtree_used_today ?? agent.usage.subtree_used_today });
      this.redrawSoon();
    } else if (e.type.startsWith("agent.")) {
      const above = e.data.parent_id ?? e.data.agent?.parent_id;
      if (e.key === this.root) this.refresh(this.root);
      for (const [parent, below] of this.loaded) {
        if (above === parent || below.agents.some((a) => a.id === e.key || a.id === above)) this.refresh(parent);
      }
    }
  }

  /** refresh reads the children of a parent again soon, of at most twenty parents a second, once the read before has ended. */
  private refresh(parent: string) {
    this.changed.add(parent);
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      const parents = [...this.changed].slice(0, atMost);
      for (const p of parents) {
        if (this.loaded.get(p)?.loading) continue;
        this.changed.delete(p);
        if (this.opened.has(p)) void this.read(p);
        if (p === this.root) void this.readTop();
      }
      const next = this.changed.values().next().value;
      if (next !== undefined) this.refresh(next);
    }, 1000);
  }
}
