// The stream of a task's output. After an interruption it continues with the next byte, so that no text is lost or repeated.
import { Problem, problemOf, query } from "./api";
import { state } from "./live";

/** most is the number of bytes that are kept from the end of an output. */
export const most = 200_000;

/** Shown is the end of an output as text, and the number of bytes that are left out before it. */
export type Shown = { text: string; cut: number };

/** Tail keeps the newest bytes of an output. */
class Tail {
  private parts: Uint8Array[] = [];
  private kept = 0;
  /** end is the offset after the last byte. */
  end: number;

  constructor(from: number) {
    this.end = from;
  }

  add(bytes: Uint8Array) {
    this.parts.push(bytes);
    this.kept += bytes.length;
    this.end += bytes.length;
    while (this.kept - this.parts[0]!.length >= most) this.kept -= this.parts.shift()!.length;
  }

  /** shown decodes the newest bytes. It leaves out incomplete characters at either end. */
  shown(): Shown {
    const all = new Uint8Array(this.kept);
    let at = 0;
    for (const part of this.parts) {
      all.set(part, at);
      at += part.length;
    }
    const before = this.end - this.kept;
    let from = Math.max(0, this.kept - most);
    if (before + from > 0) while (from < all.length && (all[from]! & 0xc0) === 0x80) from++;
    return { text: new TextDecoder().decode(all.subarray(from), { stream: true }), cut: before + from };
  }
}

/** followOutput shows the output of a task at path until the task has ended. After an interruption it reports the reason and
 * continues. */
export async function followOutput(path: string, stream: string, stop: AbortSignal, show: (shown: Shown) => void, lost: (why: string) => void): Promise<void> {
  let tail: Tail | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const paint = () => {
    timer = undefined;
    if (!stop.aborted && tail) show(tail.shown());
  };
  for (let wait = 250; ; wait = Math.min(wait * 2, 5000)) {
    const [interrupted, release] = untilBack(stop);
    try {
      const { ranges, size } = await describe(query(path, { stream }), interrupted);
      tail ??= new Tail(ranges ? Math.max(0, size - most) : 0);
      const known = tail;
      // Without ranges, the offsets of the parts received so far are not final: read the whole output and skip the known bytes.
      let skip = ranges ? 0 : known.end;
      const response = await fetch(query(path, { stream, follow: true, from: ranges ? known.end : undefined }), { signal: interrupted, cache: "no-store" });
      if (!response.ok || !response.body) throw await problemOf(response);
      lost("");
      for (const reader = response.body.getReader(); ; wait = 250) {
        const { done, value } = await reader.read();
        if (done) break;
        const fresh = value.subarray(Math.min(skip, value.length));
        skip -= value.length - fresh.length;
        if (fresh.length > 0) known.add(fresh);
        timer ??= setTimeout(paint, 100);
      }
      return;
    } catch (thrown) {
      if (stop.aborted || (thrown instanceof Problem && thrown.status < 500 && thrown.status !== 429)) throw thrown;
      lost(thrown instanceof Problem ? thrown.detail : "The connection was lost.");
      await delay(wait * (0.75 + Math.random() / 2), interrupted);
    } finally {
      release();
    }
  }
}

/** describe returns whether ranges of an output are available, and the size of the output if they are. */
async function describe(path: string, signal: AbortSignal): Promise<{ ranges: boolean; size: number }> {
  const response = await fetch(path, { method: "HEAD", signal, cache: "no-store" });
  if (!response.ok) throw await problemOf(response);
  return { ranges: response.headers.get("Accept-Ranges") === "bytes", size: Number(response.headers.get("Content-Length") ?? 0) };
}

/** untilBack returns a signal that also aborts when the event stream opens again after an interruption: the connection that the
 * signal belongs to is then dead, even if the browser has not noticed. The returned function ends the wait. */
function untilBack(stop: AbortSignal): [AbortSignal, () => void] {
  const back = new AbortController();
  let off = false;
  const end = state.subscribe((now) => {
    if (now === "on" && off) back.abort();
    off ||= now === "off";
  });
  return [AbortSignal.any([stop, back.signal]), end];
}

/** delay waits until the time has passed or the signal aborts. */
function delay(ms: number, until: AbortSignal): Promise<void> {
  return new Promise((done) => {
    if (until.aborted) return done();
    const timer = setTimeout(done, ms);
    until.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });
}
