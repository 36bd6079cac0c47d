// Routes are paths below /ui. Filters and tabs are query parameters, so that every view has an address.
import { computed, signal } from "@preact/signals";

export const base = "/ui";

const current = signal(location.pathname + location.search);

/** path is the path below /ui. A path that cannot be decoded matches no view. */
export const path = computed(() => {
  const text = current.value.split("?")[0]!.replace(/^\/ui\/?/, "").replace(/\/$/, "");
  try {
    decodeURIComponent(text);
    return text;
  } catch {
    return "invalid";
  }
});
export const parameters = computed(() => new URLSearchParams(current.value.split("?")[1] ?? ""));

/** address is the path and the query of the view that is shown. */
export const address = computed(() => current.value);

/** staying is above 0 while the page must stay at its address, because it shows what cannot be shown again. */
export const staying = signal(0);

addEventListener("popstate", () => {
  if (staying.value > 0) history.pushState(null, "", current.value);
  else current.value = location.pathname + location.search;
});
addEventListener("beforeunload", (event) => staying.value > 0 && event.preventDefault());

/** navigate shows another view. */
export function navigate(to: string, replace = false) {
  if (to === current.value) return;
  const moved = !replace && to.split("?")[0] !== current.value.split("?")[0];
  history[replace ? "replaceState" : "pushState"](null, "", to);
  current.value = to;
  if (moved) scrollTo(0, 0);
}

/** link returns the address of a view: link("tasks", id). */
export function link(...parts: string[]): string {
  return [base, ...parts.map(encodeURIComponent)].join("/");
}

/** parameter returns a query parameter of the view, "" if it is absent. */
export function parameter(name: string): string {
  return parameters.value.get(name) ?? "";
}

/** setParameters changes query parameters of the view; an empty value removes one. With push, Back undoes the change. */
export function setParameters(change: Record<string, string | undefined>, push = false) {
  const next = new URLSearchParams(parameters.value);
  for (const [name, value] of Object.entries(change)) {
    if (value) next.set(name, value);
    else next.delete(name);
  }
  const text = next.toString();
  navigate(current.value.split("?")[0] + (text ? "?" + text : ""), !push);
}

/** followLinks shows views for clicks on links of the page, without loading a document. */
export function followLinks() {
  document.addEventListener("click", (event) => {
    const anchor = (event.target as Element).closest?.("a");
    if (!anchor || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || anchor.target) return;
    if (anchor.origin !== location.origin || !(anchor.pathname + "/").startsWith(base + "/") || anchor.hasAttribute("download")) return;
    event.preventDefault();
    navigate(anchor.pathname + anchor.search);
  });
}
