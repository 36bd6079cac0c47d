// Secrets that are shown once.
import { signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { CopyButton, Json } from "./components";
import { Dialog } from "./dialog";

/** shown is the number of secrets that are shown: the page stays until they are closed, even if its login has ended. */
export const shown = signal(0);

/** Secret shows a secret that the server returns only once. */
export function Secret(p: { title: string; name: string; secret: string; hint?: string; line?: string; close: () => void }) {
  useLayoutEffect(() => {
    shown.value++;
    return () => void shown.value--;
  }, []);
  return (
    <Dialog title={p.title} stays close={p.close} footer={<button class="primary" onClick={p.close}>I have stored it</button>}>
      <p>
        comet shows this {p.name} only now. {p.hint}
      </p>
      <div class="secret">
        <Json label={p.title} value={p.secret} />
        <CopyButton text={p.secret} label={"Copy " + p.name} />
        {p.line && <Json label="Line for a shell" value={p.line} />}
        {p.line && <CopyButton text={p.line} label="Copy line" />}
      </div>
    </Dialog>
  );
}
