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

// The time zone in which times are shown and read: the browser's own, or one that was chosen.
let chosen = null; // {name, parts}

export function isZone(name) {
  try { return Boolean(new Intl.DateTimeFormat("en", { timeZone: name })); } catch { return false; }
}

export function setZone(name) {
  if (name === (chosen?.name ?? null)) return;
  const options = { calendar: "gregory", hourCycle: "h23", era: "short", year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric" };
  chosen = name && isZone(name) ? { name, parts: new Intl.DateTimeFormat("en-u-nu-latn", { ...options, timeZone: name }) } : null;
}

export const chosenZone = () => chosen?.name ?? null;
export const browserZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
export const zone = () => chosen?.name ?? browserZone();

// What clocks show in the zone, as a date whose UTC fields are to be read.
function onClocks(timestamp) {
  if (!chosen) return new Date(timestamp - new Date(timestamp).getTimezoneOffset() * 60_000);
  const part = Object.fromEntries(chosen.parts.formatToParts(timestamp).map(({ type, value }) => [type, value]));
  const shown = new Date(0);
  shown.setUTCFullYear(part.era === "BC" ? 1 - Number(part.year) : Number(part.year), Number(part.month) - 1, Number(part.day));
  shown.setUTCHours(Number(part.hour), Number(part.minute), Number(part.second), ((timestamp % 1000) + 1000) % 1000);
  return shown;
}

// A time to the millisecond; what lies outside the calendar stays a number.
export function time(timestamp, withMilliseconds = true) {
  if (timestamp === null || timestamp === undefined) return "–";
  if (Number.isNaN(new Date(timestamp).getTime())) return String(timestamp);
  const date = onClocks(timestamp);
  const day = `${date.getUTCFullYear()}-${two(date.getUTCMonth() + 1)}-${two(date.getUTCDate())}`;
  const clock = `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}:${two(date.getUTCSeconds())}`;
  return `${day} ${clock}${withMilliseconds ? `.${two(date.getUTCMilliseconds(), 3)}` : ""}`;
}

// The moment at which clocks in the zone show what they do in UTC at another. Where they show it twice, the first time;
// where they leave it out, as far behind the change as it is written behind it: both as Python's fold=0.
function whenClocksShow(utcTimestamp) {
  const away = (moment) => onClocks(moment).getTime() - moment;
  const first = utcTimestamp - away(utcTimestamp - 86_400_000), second = utcTimestamp - away(utcTimestamp + 86_400_000);
  return onClocks(first).getTime() !== utcTimestamp && onClocks(second).getTime() === utcTimestamp ? second : first;
}

// For a tooltip: the same moment in UTC, and as RocketMQ stores it.
export function utc(timestamp) {
  const date = new Date(timestamp ?? NaN);
  return Number.isNaN(date.getTime()) ? "" : `${date.toISOString()} · ${timestamp} ms`;
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

const UNITS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };
const DAYS = { yesterday: -1, today: 0, tomorrow: 1 };

// What a person writes for a time: milliseconds, a date and time (of the zone unless it ends with Z or an offset), or one
// counted from now. What stands for a known time, unchanged, is that time, also where clocks show it twice.
export function parseTime(text, known = null) {
  const trimmed = text.trim();
  if (!trimmed) return null;
  if (known && trimmed === time(Number(known))) return Number(known);
  const digits = /^\d{1,19}$/.test(trimmed) ? ofDigits(trimmed) : null;
  if (digits !== null) return digits;
  const counted = fromNow(trimmed) ?? ofDay(trimmed);
  if (counted !== null) return counted;
  const iso = /^\d{4}-\d{2}-\d{2}$/.test(trimmed) ? `${trimmed}T00:00:00` : trimmed.replace(" ", "T");
  const hasZone = /(Z|[+-]\d{2}:?\d{2})$/.test(iso);
  const value = /^\d{4}-\d{2}/.test(iso) ? Date.parse(hasZone ? iso : `${iso}Z`) : NaN; // browsers take much for a date
  if (Number.isNaN(value)) throw new Error(`"${trimmed}" is not a time: write 2026-11-21 06:45:05, yesterday 14:00, -1h, or milliseconds since 1970`);
  return hasZone ? value : whenClocksShow(value);
}

// Digits alone, as storage/times.py has them: a time of the calendar, seconds, milliseconds; null for what is none.
function ofDigits(text) {
  const isHour = /^2[01]\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])([01]\d|2[0-4])$/.test(text);
  if (isHour || /^(?=19[789]|2[01])(\d{4}|\d{6,8}|\d{12}|\d{14}|\d{17})$/.test(text)) return ofCalendar(text);
  if (text.length === 10) return 1000 * Number(text);
  return text.length <= 13 ? Number(text) : null;
}

function ofCalendar(text) {
  const pattern = text.length === 7 ? /^(\d{4})()(\d{3})$/ : /^(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d{3})?$/;
  const [year, month, day, hours, minutes, seconds, part] = pattern.exec(text).slice(1).map((piece) => Number(piece || NaN));
  const first = Date.UTC(year, (month || 1) - 1, 1), date = Date.UTC(year, (month || 1) - 1, Number.isNaN(day) ? 1 : day);
  const isDate = text.length === 7 ? new Date(date).getUTCFullYear() === year : new Date(date).getUTCMonth() === new Date(first).getUTCMonth();
  const clock = (hours || 0) * UNITS.h + (minutes || 0) * UNITS.m + (seconds || 0) * UNITS.s + (part || 0);
  if (!isDate || month > 12 || month === 0 || minutes > 59 || seconds > 59 || clock > UNITS.d) return null;
  return whenClocksShow(date + clock);
}

// -1h, +90s, now-1d12h, now: a number, or null for what has another form.
function fromNow(text) {
  const found = /^(?:now)?(?:(?<=now)|([+-])((?:\d{1,12}(?:ms|[smhdw]))+))$/.exec(text);
  if (!found) return null;
  const pieces = [...(found[2] ?? "").matchAll(/(\d+)(ms|[smhdw])/g)];
  const distance = pieces.reduce((sum, [, count, unit]) => sum + Number(count) * UNITS[unit], 0);
  return Date.now() + (found[1] === "-" ? -distance : distance);
}

// yesterday 14:00, today, 9:30: a number, or null for what has another form.
function ofDay(text) {
  const found = /^(?=.)(?:(yesterday|today|tomorrow)(?: +|$))?(?:(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,3}))?)?)?$/.exec(text);
  if (!found) return null;
  const [, day = "today", hours = 0, minutes = 0, seconds = 0, part = ""] = found;
  if (hours > 23 || minutes > 59 || seconds > 59) return null;
  const here = onClocks(Date.now());
  const start = Date.UTC(here.getUTCFullYear(), here.getUTCMonth(), here.getUTCDate() + DAYS[day]);
  return whenClocksShow(start + hours * UNITS.h + minutes * UNITS.m + seconds * UNITS.s + Number(part.padEnd(3, "0")));
}
