// Figures: the numbers at the top of a view.
import type { ComponentChildren } from "preact";

/** Figure is a name, its value, and a note below it. */
export type Figure = [name: string, value: ComponentChildren, note?: string];

/** Figures shows figures beside each other; those without a value are left out. */
export function Figures({ of }: { of: Figure[] }) {
  return (
    <dl class="figures">
      {of
        .filter(([, value]) => value !== undefined)
        .map(([name, value, note]) => (
          <div class="figure" key={name}>
            <dt>{name}</dt>
            <dd>
              {value} {note && <small>{note}</small>}
            </dd>
          </div>
        ))}
    </dl>
  );
}
