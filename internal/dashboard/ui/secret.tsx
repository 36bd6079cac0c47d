// Secrets that are shown once.
import { useLayoutEffect } from "preact/hooks";
import { CopyButton, Json } from "./components";
import { Dialog } from "./dialog";
import { staying } from "./router";

/** Secret shows a secret that the server returns only once. The page stays until it is closed, even if its login has ended. */
export function Secret(p: { title: string; name: string; secret: string; hint?: string; line?: string; close: () => void }) {
  useLayoutEffect(() => {
    staying.value++;
    return () => void staying.value--;
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
