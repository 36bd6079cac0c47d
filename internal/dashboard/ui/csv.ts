// Figures as CSV files (RFC 4180), which the browser creates from the data that is shown.

/** cell writes a value. Text that a spreadsheet would execute as a formula gets a leading apostrophe. */
function cell(value: string | number | undefined): string {
  if (value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[\s]*[=+\-@]|^[\t\r\n]/.test(value) ? "'" + value : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** downloadCSV saves a header line and rows as a file. */
export function downloadCSV(name: string, names: string[], rows: (string | number | undefined)[][]) {
  const text = [names, ...rows].map((row) => row.map(cell).join(",") + "\r\n").join("");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
