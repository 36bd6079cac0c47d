// Modal dialogs: how they open and close, and where the focus goes.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Icon } from "./icons";

/** useModal opens a dialog. When the dialog closes, the element that opened it gets the focus back. */
export function useModal() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const element = dialog.current!;
    const opener = document.activeElement as HTMLElement | null;
    element.showModal();
    const field = element.querySelector<HTMLElement>(".body input, .body select, .body textarea");
    if (field instanceof HTMLTextAreaElement) field.setSelectionRange(0, 0); // shows an example from its start
    field?.focus();
    return () => {
      element.close();
      queueMicrotask(() => restore(opener));
    };
  }, []);
  return dialog;
}

/** useClosed returns a reference that is true once the component has been removed, for example while a request runs. */
export function useClosed() {
  const closed = useRef(false);
  useLayoutEffect(() => () => void (closed.current = true), []); // its cleanup runs at once, that of useEffect later
  return closed;
}

/** Dialog is a modal dialog. Its button, Escape and a click outside close it; with stays, only the button does. If a field was
 * changed, it asks for confirmation first. After closing, the element that opened the dialog gets the focus back. */
export function Dialog(p: { title: string; close: () => void; wide?: boolean; stays?: boolean; children: ComponentChildren; footer?: ComponentChildren }) {
  const dialog = useModal();
  const id = useId();
  const pressed = useRef<EventTarget>(null);
  const changed = useRef(false);
  const [asking, setAsking] = useState(false);
  const leave = () => (changed.current ? setAsking(true) : p.close());
  const dismiss = () => p.stays || leave();
  const keys = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || event.isComposing) return;
    event.preventDefault(); // the browser closes a dialog at the second Escape, even if the page prevents it
    event.stopPropagation();
    dismiss();
  };
  const closed = () => {
    if (!dialog.current?.isConnected) return;
    dialog.current.showModal(); // the browser closed it without asking
    dismiss();
  };
  return (
    <dialog
      ref={dialog}
      class={p.wide ? "wide" : ""}
      aria-labelledby={id}
      onInput={() => (changed.current = true)}
      onKeyDown={keys}
      onCancel={(e) => (e.preventDefault(), dismiss())}
      onClose={closed}
      onPointerDown={(e) => (pressed.current = e.target)}
      onClick={(e) => e.target === dialog.current && pressed.current === e.target && dismiss()}
    >
      <header>
        <h2 id={id}>{p.title}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={leave}>
          <Icon name="close" />
        </button>
      </header>
      <div class="body">{p.children}</div>
      {p.footer && <footer>{p.footer}</footer>}
      {asking && <Discard keep={() => setAsking(false)} discard={p.close} />}
    </dialog>
  );
}

/** Discard asks whether to close a dialog in which a field was changed. */
function Discard({ keep, discard }: { keep: () => void; discard: () => void }) {
  return (
    <Dialog
      title="Discard your changes?"
      close={keep}
      footer={
        <>
          <button type="button" onClick={keep}>
            Keep editing
          </button>
          <button type="button" class="danger" onClick={discard}>
            Discard
          </button>
        </>
      }
    >
      <p>They have not been saved.</p>
    </Dialog>
  );
}

/** restore gives the focus back to the element that opened a dialog, or to the view if that element is gone. */
function restore(opener: HTMLElement | null) {
  for (const element of [opener, document.getElementById("main")]) {
    if (document.activeElement === document.body) element?.focus({ preventScroll: true });
  }
}
