// Short messages about the results of actions.
import { signal } from "@preact/signals";
import { Icon } from "./icons";

type Toast = { id: number; tone: "good" | "bad"; text: string };

const toasts = signal<Toast[]>([]);
let next = 0;

/** notify shows a message for some seconds; a failure stays until it is closed. */
export function notify(tone: "good" | "bad", text: string) {
  const id = next++;
  toasts.value = [...toasts.value.slice(-3), { id, tone, text }];
  if (tone === "good") setTimeout(() => remove(id), 4000);
}

function remove(id: number) {
  toasts.value = toasts.value.filter((t) => t.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" aria-live="polite">
      {toasts.value.map((t) => (
        <div key={t.id} class={"notice " + t.tone}>
          <Icon name={t.tone === "good" ? "check" : "warning"} />
          <div>{t.text}</div>
          <button class="quiet" aria-label="Close message" onClick={() => remove(t.id)}>
            <Icon name="close" />
          </button>
        </div>
      ))}
    </div>
  );
}
