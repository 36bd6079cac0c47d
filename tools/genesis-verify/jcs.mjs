// isWellFormed reports whether a string has no half of a surrogate pair.
export const isWellFormed = (text) => !/\p{Surrogate}/u.test(text);

// canonicalize implements RFC 8785, following its appendix A. It throws an error for values without a canonical form.
export function canonicalize(value) {
  if (typeof value === "number" && !Number.isFinite(value)) throw new Error("not a finite number");
  if (typeof value === "string" && !isWellFormed(value)) throw new Error("half of a surrogate pair");
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonicalize).join(",")}]`;
  // sort compares UTF-16 code units
  return `{${Object.keys(value).sort().map((name) => `${canonicalize(name)}:${canonicalize(value[name])}`).join(",")}}`;
}
