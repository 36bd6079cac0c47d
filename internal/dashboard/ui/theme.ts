// The theme of the page: that of the system until the reader switches it.
import { signal } from "@preact/signals";

const themeName = "comet-theme";
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const chosen = signal<string | null>(localStorage.getItem(themeName));
const systemIsDark = signal(systemDark.matches);
systemDark.addEventListener("change", (e) => (systemIsDark.value = e.matches));

/** theme returns the current theme: light or dark. */
export const theme = () => (chosen.value ?? (systemIsDark.value ? "dark" : "light")) as "light" | "dark";

/** switchTheme changes between light and dark, and remembers it in this browser. */
export function switchTheme() {
  chosen.value = theme() === "dark" ? "light" : "dark";
  localStorage.setItem(themeName, chosen.value);
}
