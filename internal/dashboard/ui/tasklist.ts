// The rows of the task list. An event updates the row of its task; new tasks are held back until the reader asks for them.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call, Problem, query, type Schemas } from "./api";
import { onEvents, onGap, type LiveEvent } from "./live";

export type Task = Schemas["TaskView"];

/** Selection selects tasks by API parameters, which are evaluated at each request, and by members that can change. */
export type Selection = {
  parameters: () => Record<string, string | undefined>;
  state: string;
  agent: string;
  /** whether tasks created from now on can match */
  grows: boolean;
};

/** pageSize is the number of tasks in a page. */
const pageSize = 50;

/** atMost is the maximum number of tasks that are read per second after events. */
const atMost = 10;

/** retryAfter is the time after which a read that failed is repeated, in milliseconds. */
const retryAfter = 2000;

/** newestFirst is the order of the API. */
const newestFirst = (a: Task, b: Task) => Date.parse(b.created_at) - Date.parse(a.created_at) || (a.id < b.id ? 1 : -1);

class TaskList {
  rows?: Task[];
  problem?: Problem;
  more = false;
  /** fresh is the number of new tasks that are not shown, at most a page. */
  fresh = 0;
  private cursor?: string;
  /** changed has the versions of the tasks that have changed since their rows were read. */
  private changed = new Map<string, number>();
  private grown = true;
  private timer?: ReturnType<typeof setTimeout>;
  private busy = false;
  private began = 0;
  private stop = new AbortController();

  constructor(
    private readonly of: Selection,
    private readonly redraw: () => void,
    /** whether the reader is looking at rows, which must then not move */
    private readonly reading: () => boolean,
  ) {}

  /** follow reads the list and updates it after events until the returned function is called. */
  follow(): () => void {
    void this.update();
    const offEvents = onEvents((events) => events.forEach((e) => this.apply(e)));
    const offGap = onGap(() => {
      this.grown = true;
      this.rows?.forEach((t) => this.changed.set(t.id, t.version));
      this.soon();
    });
    return () => {
      this.stop.abort();
      clearTimeout(this.timer);
      offEvents();
      offGap();
    };
  }

  reload = () => {
    this.grown = true;
    void this.update();
  };

  /** older reads the next page. */
  older = () => this.attempt(async () => {
    const page = await this.page(this.cursor);
    this.merge(page.tasks);
    this.cursor = page.next_cursor;
    this.more = Boolean(this.cursor);
  });

  /** showFresh adds the new tasks. */
  showFresh = () => this.attempt(() => this.readNewest(true));

  private apply(e: LiveEvent) {
    if (!e.type.startsWith("task.")) return;
    const row = this.rows?.find((t) => t.id === e.key);
    if (row && (e.data.version ?? Infinity) <= row.version) return;
    if (row && e.type === "task.progress") {
      const { progress, step, step_name, state, attempt } = { ...row, ...e.data } as Task;
      return this.put([{ ...row, progress, step, step_name, state, attempt, version: e.data.version ?? row.version }]);
    }
    if (row) this.changed.set(row.id, e.data.version ?? Infinity);
    else if (!this.rows || (this.of.grows && e.type === "task.created") || ((this.of.state || this.of.agent) && e.type !== "task.progress")) this.grown = true;
    else return;
    this.soon();
  }

  /** soon updates the list, at most once a second. */
  private soon() {
    this.timer ??= setTimeout(() => void this.update(), Math.max(50, this.began + 1000 - Date.now()));
  }

  /** update reads the newest tasks if there may be new ones, and the tasks that have changed. */
  private async update() {
    clearTimeout(this.timer);
    this.timer = undefined;
    if (this.busy) return; // the running update continues
    this.busy = true;
    this.began = Date.now();
    await this.attempt(async () => {
      if (this.grown) {
        this.grown = false;
        await this.readNewest(!this.reading()).catch((thrown) => {
          this.grown = true;
          throw thrown;
        });
      }
      const some = [...this.changed].slice(0, atMost);
      await Promise.all(some.map(([id, version]) => this.readOne(id, version)));
    });
    this.busy = false;
    if (this.stop.signal.aborted || (!this.grown && this.changed.size === 0)) return;
    if (this.problem) this.timer ??= setTimeout(() => void this.update(), retryAfter);
    else this.soon();
  }

  /** attempt runs a read, and draws its changes or its problem. */
  private async attempt(read: () => Promise<void>) {
    try {
      await read();
      this.problem = undefined;
    } catch (thrown) {
      this.problem = Problem.of(thrown);
    }
    if (!this.stop.signal.aborted) this.redraw();
  }

  private page(cursor?: string) {
    return call<Schemas["TaskList"]>({ path: query("/api/v1/tasks", { ...this.of.parameters(), limit: pageSize, cursor }) }, this.stop.signal);
  }

  private async readNewest(show: boolean) {
    const page = await this.page();
    const known = new Set(this.rows?.map((t) => t.id));
    const fresh = page.tasks.filter((t) => !known.has(t.id));
    this.put(page.tasks.filter((t) => known.has(t.id)));
    page.tasks.forEach((t) => this.settle(t.id, t.version));
    this.fresh = show || !this.rows ? 0 : fresh.length;
    if (this.fresh > 0) return;
    if (!this.rows || (fresh.length === page.tasks.length && page.next_cursor)) { // there may be unknown tasks in between
      this.rows = page.tasks;
      this.cursor = page.next_cursor;
      this.more = Boolean(this.cursor);
    } else if (fresh.length > 0) this.merge(fresh);
  }

  /** settle forgets that a task has changed once its row has the version. */
  private settle(id: string, version: number) {
    if ((this.changed.get(id) ?? 0) <= version) this.changed.delete(id);
  }

  /** readOne reads the task of a row, which an event reported with a version. */
  private async readOne(id: string, reported: number) {
    const { tasks } = await call<Schemas["TaskList"]>({ path: query("/api/v1/tasks", { id_prefix: id, limit: 1 }) }, this.stop.signal);
    this.settle(id, Math.max(reported, tasks[0]?.version ?? 0));
    if (tasks.length > 0) this.put(tasks);
    else this.rows = this.rows?.filter((t) => t.id !== id);
  }

  /** put replaces rows with their current state and removes those that are no longer selected. */
  private put(tasks: Task[]) {
    if (!this.rows || tasks.length === 0) return;
    const now = new Map(tasks.map((t) => [t.id, t]));
    const { state, agent } = this.of;
    const newer = (t: Task) => {
      const next = now.get(t.id);
      return next && next.version >= t.version ? next : t;
    };
    this.rows = this.rows.map(newer).filter((t) => (!state || t.state === state) && (!agent || t.agent_id === agent));
    this.redraw();
  }

  private merge(tasks: Task[]) {
    const known = new Set(tasks.map((t) => t.id));
    this.rows = [...tasks, ...this.rows!.filter((t) => !known.has(t.id))].sort(newestFirst);
  }
}

/** useTaskList returns the list of a selection, which key identifies. While a new list is read, the previous one is shown. */
export function useTaskList(key: string, select: () => Selection): TaskList {
  const [, redraw] = useState(0);
  const list = useMemo(() => new TaskList(select(), () => redraw((n) => n + 1), reading), [key]);
  const last = useRef(list);
  useEffect(() => list.follow(), [list]);
  if (list.rows || list.problem) last.current = list;
  return last.current;
}

/** reading reports whether the page is scrolled down or a row has the focus. */
const reading = () => scrollY > 8 || Boolean(document.activeElement?.closest("tbody"));
