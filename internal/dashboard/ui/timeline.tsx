// The steps of a workflow as bars over time.
import type { Schemas } from "./api";
import type { Node } from "./dag";
import { duration, now, words } from "./format";

/** Item is the data of one step. from and to are when its newest attempt began and ended, in milliseconds since 1970. */
export type Item = Node & { from?: number; to?: number; state: Schemas["WorkflowStateNode"] };

/** ticks divides a span into at most five round parts. */
function ticks(span: number): number[] {
  const rough = span / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough)!;
  return Array.from({ length: Math.floor(span / step) + 1 }, (_, i) => i * step);
}

export function Timeline({ items, selected, select }: { items: Item[]; selected: string; select: (id: string) => void }) {
  const begun = items.filter((s) => s.from).sort((a, b) => a.from! - b.from!);
  if (begun.length === 0) return <p class="muted padded">No step has started.</p>;
  const end = (s: Item) => s.to ?? now.value;
  const from = begun[0]!.from!;
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
          <button class="lane" aria-pressed={s.id === selected} aria-description={`${words(s.status!)}, started after ${duration(s.from! - from)}`} onClick={() => select(s.id)}>
            <span class="truncate">{s.id}</span>
            <span class="track">
              <i class={"bar-of " + s.status} style={{ left: left(s.from!), width: `max(3px, ${((end(s) - s.from!) / span) * 100}%)` }} />
            </span>
            <span class="number">{duration(s.ms ?? end(s) - s.from!)}</span>
          </button>
        </div>
      ))}
    </div>
  );
}
