// The steps of a workflow as bars over time.
import type { Schemas } from "./api";
import type { Node } from "./dag";
import { duration, now, words } from "./format";
import type { StepTime } from "./runevents";

/** Item is the data of one step. */
export type Item = Node & { time?: StepTime; result?: Schemas["WorkflowTaskResult"] };

/** ticks divides a span into at most five round parts. */
function ticks(span: number): number[] {
  const rough = span / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough)!;
  return Array.from({ length: Math.floor(span / step) + 1 }, (_, i) => i * step);
}

export function Timeline({ items, selected, select }: { items: Item[]; selected: string; select: (id: string) => void }) {
  const begun = items.filter((s) => s.time).sort((a, b) => a.time!.from - b.time!.from);
  if (begun.length === 0) return <p class="muted padded">No step has started, or the events of its steps are no longer stored.</p>;
  const end = (s: Item) => s.time!.to ?? now.value;
  const from = begun[0]!.time!.from;
  const span = Math.max(1, ...begun.map((s) => end(s) - from));
  const left = (at: number) => ((at - from) / span) * 100 + "%";
  return (
    <div class="timeline" role="list" aria-label="Steps over time">
      <div class="scale" aria-hidden="true">
        {ticks(span).map((t) => (
          <span key={t} style={{ left: (t / span) * 100 + "%" }}>
            {t ? duration(t) : "0"}
          </span>
        ))}
      </div>
      {begun.map((s) => (
        <div role="listitem" key={s.id}>
          <button class="lane" aria-pressed={s.id === selected} aria-label={`${s.id}, ${words(s.status!)}, from ${duration(s.time!.from - from)}, for ${duration(end(s) - s.time!.from)}`} onClick={() => select(s.id)}>
            <span class="truncate">{s.id}</span>
            <span class="track">
              <i class={"bar-of " + s.status} style={{ left: left(s.time!.from), width: `max(3px, ${((end(s) - s.time!.from) / span) * 100}%)` }} />
            </span>
            <span class="number">{duration(s.ms ?? end(s) - s.time!.from)}</span>
          </button>
        </div>
      ))}
    </div>
  );
}
