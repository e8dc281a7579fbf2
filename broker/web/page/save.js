// A list as a file: what is shown of it, as JSON as the API gave it, or as CSV for a spreadsheet.

import { announce, el } from "./dom.js";

// Buttons that save; `lines` gives the entries that are shown now, as objects.
export function saveButtons(name, lines) {
  return el("span", { class: "row save" }, el("span", { class: "muted" }, "Save what is shown:"),
    [["CSV", "text/csv", csv], ["JSON", "application/json", (all) => `${JSON.stringify(all, null, 1)}\n`]].map(([form, type, write]) =>
      el("button", { type: "button", "aria-label": `Save what is shown as ${form}`, onclick: () => {
        keep(new Blob([write(lines())], { type: `${type};charset=utf-8` }), `${name}.${form.toLowerCase()}`);
        announce(`saved as ${form}`);
      } }, form)));
}

export function keep(blob, name) {
  const place = URL.createObjectURL(blob);
  const anchor = el("a", { href: place, download: name });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(place), 10_000);
}

// RFC 4180 behind a byte-order mark, without which spreadsheets take it for text of their own charset; a column for each field that any line has. A text that a spreadsheet would take for a formula gets an
// apostrophe before it: what a message holds is never run.
function csv(lines) {
  const names = [...new Set(lines.flatMap((line) => Object.keys(line)))];
  return `\ufeff${[names, ...lines.map((line) => names.map((name) => line[name]))].map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

export function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  const text = Array.isArray(value) ? value.join(" ") : typeof value === "object" ? JSON.stringify(value) : value;
  const harmless = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}
