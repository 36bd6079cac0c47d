// The state of the tree of agents: which parents are open, and their children as far as they were read.
import { call, Problem, type Schemas } from "./api";
import { onEvents, onGap, type LiveEvent } from "./live";
import { childrenPath, type AgentRow } from "./agents";

/** TreeRow is a row: an agent, or the button for the next page of a parent's children. */
export type TreeRow = { key: string; id: string; parent: string; depth: number; agent?: AgentRow; children: boolean; open: boolean; loading: boolean };

type Children = { agents: AgentRow[]; cursor?: string; loading: boolean };

/** atMost is how many parents are read again after events; the others are read when they are opened next. */
const atMost = 20;

export class Tree {
  problem?: Problem;
  total?: number;
  private top?: AgentRow;
  private opened = new Set<string>();
  private loaded = new Map<string, Children>();
  private changed = new Set<string>();
  private timer?: ReturnType<typeof setTimeout>;

  constructor(
    readonly root: string,
    private readonly redraw: () => void,
  ) {
    void this.reload();
  }

  /** follow updates the tree after events until the returned function is called. */
  follow(): () => void {
    const offEvents = onEvents((events) => events.forEach((e) => this.apply(e)));
    const offGap = onGap(() => this.refresh(this.root));
    return () => {
      offEvents();
      offGap();
      clearTimeout(this.timer);
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
      if (below.cursor || below.loading) out.push({ key: agent.id + "/more", id: "", parent: agent.id, depth: depth + 1, children: false, open: false, loading: below.loading });
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
    if (below?.cursor && !below.loading) void this.read(parent, below.cursor);
  }

  async reload() {
    try {
      const { root } = await call<Schemas["Hierarchy"]>({ path: "/api/v1/hierarchy?depth=0&usage=true&root=" + encodeURIComponent(this.root) });
      const detail = await call<Schemas["AgentDetail"]>({ path: "/api/v1/agents/" + encodeURIComponent(this.root) });
      this.top = { ...detail, usage: root.usage, child_count: detail.children.length } as unknown as AgentRow;
      this.problem = undefined;
      this.opened.add(this.root);
      await this.read(this.root);
    } catch (thrown) {
      this.problem = Problem.of(thrown);
      this.redraw();
    }
  }

  private async read(parent: string, cursor?: string) {
    const old = this.loaded.get(parent);
    this.loaded.set(parent, { agents: old?.agents ?? [], cursor: old?.cursor, loading: true });
    this.redraw();
    try {
      const page = await call<Schemas["AgentList"]>({ path: childrenPath(parent, cursor) });
      const agents = cursor ? [...(old?.agents ?? []), ...page.agents] : page.agents;
      this.loaded.set(parent, { agents, cursor: page.next_cursor, loading: false });
      if (parent === this.root) this.total = 1 + agents.reduce((sum, a) => sum + 1 + (a.descendant_count ?? 0), 0);
      this.problem = undefined;
    } catch (thrown) {
      this.problem = Problem.of(thrown);
      if (old) this.loaded.set(parent, old);
      else this.loaded.delete(parent);
    }
    this.redraw();
  }

  /** apply changes a row's usage at once, and reads the children of a changed parent again. */
  private apply(e: LiveEvent) {
    if (e.type === "usage.changed") {
      for (const below of this.loaded.values()) {
        const agent = below.agents.find((a) => a.id === e.key);
        if (!agent?.usage) continue;
        Object.assign(agent.usage, { used_today: e.data.used_today ?? agent.usage.used_today, subtree_used_today: e.data.subtree_used_today ?? agent.usage.subtree_used_today });
        this.redraw();
      }
    } else if (e.type.startsWith("agent.")) {
      for (const [parent, below] of this.loaded) {
        if (e.data.parent_id === parent || e.data.agent?.parent_id === parent || below.agents.some((a) => a.id === e.key)) this.refresh(parent);
      }
    }
  }

  private refresh(parent: string) {
    if (this.changed.size < atMost) this.changed.add(parent);
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      const parents = [...this.changed];
      this.changed.clear();
      for (const p of parents) if (this.opened.has(p)) void this.read(p);
    }, 1000);
  }
}
