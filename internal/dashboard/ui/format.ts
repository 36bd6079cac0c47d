// Numbers, times and states as texts.
import { signal } from "@preact/signals";

/** now is the current time, updated every five seconds for texts such as "2 min ago". */
export const now = signal(Date.now());
setInterval(() => (now.value = Date.now()), 5000);

/** once returns a function that creates a value when it is first called. Formatters are costly, so they are shared and not
 * created before the first paint. */
function once<T>(make: () => T): () => T {
  let made: T | undefined;
  return () => (made ??= make());
}

const whole = once(() => new Intl.NumberFormat("en-US"));
const threeDigits = once(() => new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 }));
const oneDecimal = once(() => new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 }));
const times = once(() => new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" }));
const moments = once(() => new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" }));

/** count writes 1234567 as 1,234,567. */
export const count = (n: number | undefined | null) => (n === undefined || n === null ? "–" : whole().format(n));

/** short writes 1234567 as 1.23 M. */
export function short(n: number | undefined | null): string {
  if (n === undefined || n === null) return "–";
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) {
    if (Math.abs(n) >= size) return threeDigits().format(n / size) + " " + unit;
  }
  return threeDigits().format(n);
}

/** percent writes a ratio: 0.0123 as 1.2 %. */
export const percent = (ratio: number) => oneDecimal().format(ratio * 100) + " %";

/** duration writes milliseconds. */
export function duration(ms: number | undefined | null): string {
  if (ms === undefined || ms === null || Number.isNaN(ms)) return "–";
  if (ms < 1000) return Math.round(ms) + " ms";
  if (ms < 60_000) return oneDecimal().format(ms / 1000) + " s";
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return minutes + " min " + Math.floor((ms % 60_000) / 1000) + " s";
  if (minutes < 48 * 60) return Math.floor(minutes / 60) + " h " + (minutes % 60) + " min";
  return Math.floor(minutes / 1440) + " days";
}

/** between writes the time from one moment to another, or until now. */
export const between = (from: string | undefined | null, to?: string | null) => (from ? duration(Math.max(0, (to ? Date.parse(to) : now.value) - Date.parse(from))) : "–");

/** ago writes how long ago a moment was, or how far in the future it is. */
export function ago(at: string): string {
  const past = now.value - Date.parse(at);
  const size = Math.abs(past);
  if (size < 10_000) return "now";
  const text = size < 60_000 ? Math.round(size / 1000) + " s" : size < 3_600_000 ? Math.round(size / 60_000) + " min" : size < 86_400_000 ? Math.round(size / 3_600_000) + " h" : Math.round(size / 86_400_000) + " d";
  return past > 0 ? text + " ago" : "in " + text;
}

function written(format: Intl.DateTimeFormat, at: string): string {
  const ms = Date.parse(at);
  return Number.isNaN(ms) ? "–" : format.format(ms);
}

/** clock writes the local time of day of a moment. */
export const clock = (at: string) => written(times(), at);

/** moment writes the local date and time of a moment. */
export const moment = (at: string) => written(moments(), at);

export type Tone = "good" | "warn" | "bad" | "info" | "accent" | "";

const tones: Record<string, Tone> = {
  completed: "good", succeeded: "good", success: "good", online: "good", up: "good", ready: "good", active: "good", delivered: "good", ok: "good", approved: "good", valid: "good", closed: "good", connected: "good",
  failed: "bad", error: "bad", dead: "bad", down: "bad", revoked: "bad", rejected: "bad", denied: "bad", quarantined: "bad", open: "bad", aborted: "bad", timeout: "bad",
  running: "info", assigned: "info", started: "info", busy: "info", pending: "info", starting: "info", created: "info", executing: "info",
  queued: "warn", waiting: "warn", paused: "warn", waiting_for_reply: "warn", clarification: "warn", retrying: "warn", expired: "warn", disabled: "warn", uncertain: "warn", half_open: "warn", draining: "warn", unapproved: "warn", authorization_required: "warn",
};
const marks: Record<Tone, string> = { good: "✓", bad: "✕", warn: "◐", info: "▶", accent: "◆", "": "○" };

/** tone returns the colour of a state, and mark a sign with the same meaning. */
export const tone = (state: string): Tone => tones[state] ?? "";
export const mark = (of: Tone) => marks[of];

/** words writes an identifier as words: "waiting_for" as "waiting for". */
export const words = (name: string) => name.replaceAll("_", " ");
