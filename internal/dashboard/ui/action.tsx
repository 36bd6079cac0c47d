// Buttons that send API calls, and these calls as shell commands.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { call, curl, Problem, type Call } from "./api";
import { Dialog, useClosed } from "./dialog";
import { Icon } from "./icons";
import { ProblemNotice } from "./problem";
import { notify } from "./toasts";
import { visible } from "./visible";

/** Json shows data as text. Data from agents and tools is never inserted as HTML. */
export function Json({ value, label }: { value: unknown; label: string }) {
  const text = typeof value === "string" ? value : visible(JSON.stringify(value, null, 2) ?? "");
  return (
    <pre class="code" tabIndex={0} role="region" aria-label={label}>
      {text}
    </pre>
  );
}

/** CopyButton copies text to the clipboard. */
export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const copy = () =>
    navigator.clipboard.writeText(text).then(
      () => notify("good", "Copied."),
      () => notify("bad", "The browser does not allow copying here; select the text instead."),
    );
  return (
    <button type="button" class="quiet" onClick={copy}>
      <Icon name="copy" /> {label}
    </button>
  );
}

/** AsCurl shows API calls as shell commands, and lists the invalid input that these commands leave out. With a name, it is only
 * an icon. */
export function AsCurl({ calls, invalid = [], name }: { calls: Call[]; invalid?: string[]; name?: string }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" class="quiet" onClick={() => setOpen(true)} aria-haspopup="dialog" aria-label={name && name + " as curl"} title={name && name + " as curl"}>
        <Icon name="code" /> {!name && "as curl"}
      </button>
      {open && (
        <Dialog title="As curl" wide close={() => setOpen(false)}>
          <p class="muted">The page uses only the public API. With a token in COMET_TOKEN, these commands do the same.</p>
          {invalid.length > 0 && (
            <div class="notice warn">
              <div>
                Left out, because missing or invalid:
                <ul>{invalid.map((text) => <li key={text}>{text}</li>)}</ul>
              </div>
            </div>
          )}
          {calls.map((c, i) => (
            <div class="stack tight" key={i}>
              <Json label="Command" value={curl(c)} />
              <div class="row">
                <CopyButton text={curl(c)} label="Copy command" />
              </div>
            </div>
          ))}
        </Dialog>
      )}
    </>
  );
}

type Sent<T> = { label: string; call: Call | Call[] | (() => Call); details?: ComponentChildren; kind?: "primary" | "danger" | "quiet" | ""; done?: (result: T) => void; /** changed is called if only some of the calls succeeded. */ changed?: () => void; message?: string | ((result: T) => string) };

/** useSend sends the calls of an action, one after the other; send reports whether they succeeded. */
function useSend<T>(p: Sent<T>) {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem>();
  const closed = useClosed();
  const get = (): Call[] => [typeof p.call === "function" ? p.call() : p.call].flat();
  const send = async (): Promise<Problem | undefined> => {
    setBusy(true);
    setProblem(undefined);
    let failure: Problem | undefined;
    const calls = get();
    let sent = 0;
    let result!: T;
    try {
      for (; sent < calls.length; sent++) result = await call<T>(calls[sent]!);
      const message = typeof p.message === "function" ? p.message(result) : (p.message ?? p.label + ": done.");
      if (message) notify("good", message);
      p.done?.(result);
    } catch (thrown) {
      failure = Problem.of(thrown);
      if (calls.length > 1) failure = failure.with(` ${sent} of ${calls.length} calls succeeded before.`);
      setProblem(failure);
      if (closed.current) notify("bad", `${p.label}: ${failure.text}`);
      if (sent > 0) p.changed?.();
    }
    setBusy(false);
    return failure;
  };
  return { busy, problem, get, send };
}

/** Action is a button that sends a call. With a question, it asks for confirmation first. It always shows the call as curl. */
export function Action<T = unknown>(p: Sent<T> & { question?: string; disabled?: boolean }) {
  const [asking, setAsking] = useState(false);
  const { busy, get, send } = useSend(p);
  const now = async () => {
    const failure = await send();
    if (failure) notify("bad", failure.text);
  };
  const button = (
    <button type="button" class={p.kind ?? ""} disabled={busy || p.disabled} onClick={() => (p.question ? setAsking(true) : void now())}>
      {p.label}
    </button>
  );
  if (p.question) return <>{button}{asking && <Confirm {...p} question={p.question} close={() => setAsking(false)} />}</>;
  return (
    <span class="action">
      {button}
      <AsCurl name={p.label} calls={get()} />
    </span>
  );
}

/** Confirm asks before the calls of an action are sent. */
export function Confirm<T = unknown>(opened: Sent<T> & { question: string; close: () => void }) {
  const [p] = useState(opened); // what is sent is what was shown, also if the view has changed since
  const { busy, problem, get, send } = useSend<T>({ ...p, done: (result) => (p.close(), p.done?.(result)) });
  return (
    <Dialog
      title={p.label}
      close={p.close}
      footer={
        <>
          <AsCurl calls={get()} />
          <button type="button" onClick={p.close}>Go back</button>
          <button type="button" class={p.kind === "danger" ? "danger" : "primary"} disabled={busy} onClick={() => void send()}>
            {p.label}
          </button>
        </>
      }
    >
      <p>{p.question}</p>
      {p.details}
      {problem && <ProblemNotice problem={problem} />}
    </Dialog>
  );
}
