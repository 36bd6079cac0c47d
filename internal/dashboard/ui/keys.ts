// Shortcuts of a single key, which voice control can trigger by accident: they can be switched off (WCAG 2.1.4).
import { signal } from "@preact/signals";

const name = "comet-single-keys";

/** singleKeys is whether shortcuts of a single key are on. */
export const singleKeys = signal(localStorage.getItem(name) !== "off");

/** switchSingleKeys switches these shortcuts on or off, and remembers it in this browser. */
export function switchSingleKeys() {
  singleKeys.value = !singleKeys.value;
  localStorage.setItem(name, singleKeys.value ? "on" : "off");
}
