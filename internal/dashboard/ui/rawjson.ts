// JSON as the server wrote it. JSON.parse and JSON.stringify would change digits of numbers and the order of some members, and a
// digest covers bytes.
import { visible } from "./visible";

const space = (text: string, i: number) => {
  while (" \n\r\t".includes(text[i] ?? "-")) i++;
  return i;
};

/** after returns the position after the value that begins at i. */
function after(text: string, i: number): number {
  if (text[i] === '"') {
    for (i++; text[i] !== '"'; i++) if (text[i] === "\\") i++;
    return i + 1;
  }
  if (text[i] !== "{" && text[i] !== "[") {
    while (i < text.length && !",]} \n\r\t".includes(text[i]!)) i++;
    return i;
  }
  for (let depth = 0; i < text.length; ) {
    if (text[i] === '"') {
      i = after(text, i);
      continue;
    }
    if ("{[".includes(text[i]!)) depth++;
    else if ("}]".includes(text[i]!) && --depth === 0) return i + 1;
    i++;
  }
  return i;
}

/** parts returns the names and the texts of the members of an object, or of the elements of an array. */
export function parts(text: string): [string, string][] {
  const out: [string, string][] = [];
  const array = text[0] === "[";
  for (let i = space(text, 1); i < text.length && !"]}".includes(text[i]!); ) {
    let name = String(out.length);
    if (!array) {
      const end = after(text, i);
      name = JSON.parse(text.slice(i, end));
      i = space(text, space(text, end) + 1);
    }
    const end = after(text, i);
    out.push([name, text.slice(i, end)]);
    i = space(text, end);
    if (text[i] === ",") i = space(text, i + 1);
  }
  return out;
}

/** at returns the text of the value at a path, undefined if there is none. */
export function at(text: string, ...path: string[]): string | undefined {
  let found: string | undefined = text.trim();
  for (const name of path) found = found && "{[".includes(found[0]!) ? parts(found).find(([n]) => n === name)?.[1] : undefined;
  return found;
}

/** indent writes JSON on several lines, and leaves strings and numbers as they are. */
export function indent(text: string, depth = 0): string {
  const inside = "{[".includes(text[0]!) ? parts(text) : [];
  if (inside.length === 0) return text;
  const array = text[0] === "[";
  const lines = inside.map(([name, value]) => "  ".repeat(depth + 1) + (array ? "" : JSON.stringify(name) + ": ") + indent(value, depth + 1));
  return text[0] + "\n" + lines.join(",\n") + "\n" + "  ".repeat(depth) + (array ? "]" : "}");
}

/** escaped writes the characters that Go's encoder escapes as it does; they occur only in strings. */
export const escaped = (text: string) => text.replace(/[<>&\u2028\u2029]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));

/** readable undoes these escapes, and writes characters that a reader cannot see, or that reorder text, as escapes. */
export const readable = (json: string) => visible(json.replace(/\\(\\|u003c|u003e|u0026)/g, (all, code: string) => (code === "\\" ? all : String.fromCharCode(parseInt(code.slice(1), 16)))));

/** sha256 returns the digest of a text in hexadecimal, undefined if the browser cannot compute it (no HTTPS). */
export async function sha256(text: string): Promise<string | undefined> {
  if (!globalThis.crypto?.subtle) return undefined;
  const sum = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(sum)].map((b) => b.toString(16).padStart(2, "0")).join("");
}
