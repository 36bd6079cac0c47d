// A comparison of two texts by lines.
export type Line = { sign: " " | "+" | "-"; text: string };

/** most limits the product of both numbers of lines for a comparison by common subsequence. */
const most = 4_000_000;

/** diff returns the lines of both texts: equal ones once, removed ones before added ones. */
export function diff(before: string, after: string): Line[] {
  const a = before ? before.split("\n") : [];
  const b = after ? after.split("\n") : [];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const same = (lines: string[]): Line[] => lines.map((text) => ({ sign: " ", text }));
  return [...same(a.slice(0, start)), ...between(a.slice(start, a.length - end), b.slice(start, b.length - end)), ...same(a.slice(a.length - end))];
}

/** between compares texts by their longest common subsequence of lines. */
function between(a: string[], b: string[]): Line[] {
  const width = b.length + 1;
  const small = a.length * b.length <= most;
  const longest = new Uint32Array(small ? (a.length + 1) * width : 0); // of a[i…] and b[j…]
  for (let i = a.length - 1; small && i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1]! + 1 : Math.max(longest[(i + 1) * width + j]!, longest[i * width + j + 1]!);
    }
  }
  const out: Line[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (small && i < a.length && j < b.length && a[i] === b[j]) {
      out.push({ sign: " ", text: a[i++]! });
      j++;
    } else if (i < a.length && (!small || j === b.length || longest[(i + 1) * width + j]! >= longest[i * width + j + 1]!)) out.push({ sign: "-", text: a[i++]! });
    else out.push({ sign: "+", text: b[j++]! });
  }
  return out;
}
