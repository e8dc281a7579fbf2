// Numbers, sizes and times as people read them.

const GROUPED = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function number(value) {
  return value === null || value === undefined ? "–" : GROUPED.format(value);
}

export function plural(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}

export function bytes(value) {
  if (value < 1000) return `${value} B`;
  const units = ["kB", "MB", "GB", "TB", "PB"];
  let size = value / 1000, unit = 0;
  while (size >= 999.5 && unit < units.length - 1) { size /= 1000; unit += 1; }
  return `${size < 10 ? size.toFixed(1) : size.toFixed(0)} ${units[unit]}`;
}

const two = (value, width = 2) => String(value).padStart(width, "0");

// Local time, to the millisecond; what lies outside the calendar stays a number.
export function time(timestamp, withMilliseconds = true) {
  if (timestamp === null || timestamp === undefined) return "–";
  const date = new Date(timestamp);
  if (Number.isNaN(date.getTime())) return String(timestamp);
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return `${day} ${clock}${withMilliseconds ? `.${two(date.getMilliseconds(), 3)}` : ""}`;
}

// For a tooltip: the same moment in UTC, and as RocketMQ stores it.
export function utc(timestamp) {
  const date = new Date(timestamp ?? NaN);
  return Number.isNaN(date.getTime()) ? "" : `${date.toISOString()} · ${timestamp} ms`;
}

export function zone() {
  return Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
}

export function duration(milliseconds) {
  const steps = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1000, "s"]];
  for (const [size, unit] of steps) {
    if (Math.abs(milliseconds) >= size) {
      const value = milliseconds / size;
      return `${Number.isInteger(value) || value >= 100 ? value.toFixed(0) : value.toFixed(1)} ${unit}`;
    }
  }
  return `${Math.round(milliseconds)} ms`;
}

export function percent(part, whole) {
  if (!whole) return "0 %";
  const value = (100 * part) / whole;
  if (value > 0 && value < 0.1) return "< 0.1 %";
  if (value < 100 && value > 99.9) return "> 99.9 %";
  return `${value.toFixed(value < 10 && value > 0 ? 1 : 0)} %`;
}

// What a person writes for a time: milliseconds, or a date and time (local unless it ends with Z or an offset).
export function parseTime(text) {
  const trimmed = text.trim();
  if (!trimmed) return null;
  if (/^\d{12,16}$/.test(trimmed)) return Number(trimmed);
  const iso = /^\d{4}-\d{2}-\d{2}$/.test(trimmed) ? `${trimmed}T00:00:00` : trimmed.replace(" ", "T");
  const value = Date.parse(iso);
  if (Number.isNaN(value)) throw new Error(`"${trimmed}" is not a time: write 2026-11-21 06:45:05, or milliseconds since 1970`);
  return value;
}
