// What the address of each view may hold. A link is typed by hand or cut in a mail: what a view does not know, or cannot
// read, is reported and left out, never silently taken for nothing.

import { isZone, parseTime } from "./format.js";

const text = (value) => value;
const whole = (value) => {
  if (!/^\d{1,19}$/.test(value)) throw new Error("a whole number is expected");
  return value;
};
const moment = (value) => (/^\d+$/.test(value) ? whole(value) : String(parseTime(value)));
const zoneName = (value) => {
  if (!isZone(value)) throw new Error("the name of a time zone is expected, such as UTC or Asia/Shanghai");
  return value;
};
const oneOf = (...choices) => (value) => {
  if (!choices.includes(value)) throw new Error(`expected ${choices.join(" or ")}`);
  return value;
};

const VIEWS = {
  topics: { contains: text, system: oneOf("1") },
  find: { text, topic: text },
  message: { offset: whole, topic: text, queueId: whole, queueOffset: whole, form: oneOf("JSON", "Text", "Hex") },
  topic: { topic: text, queueId: whole, offset: whole, begin: moment, end: moment, tag: text, sql: text, order: oneOf("newest", "oldest") },
  tail: { topic: text, queueId: whole, tag: text, sql: text },
  search: {
    contains: text, regex: text, jsonPath: text, where: text, topic: text, tag: text, key: text, keyPrefix: text, bornHost: text,
    begin: moment, end: moment, minimumSize: whole, maximumSize: whole, place: oneOf("body", "properties", "any"),
  },
  groups: { contains: text, behind: oneOf("1") },
  "dead-letters": { contains: text },
  "light-topics": {},
  pending: { topic: text, dueAfter: moment, dueBefore: moment },
  space: { more: oneOf("1") },
  health: { over: oneOf("time") },
};

// The parameters of a view in the query of its address, and a sentence about each that was left out.
export function readLink(view, query) {
  const known = { ...VIEWS[view], broker: text, zone: zoneName, charset: text };
  const parameters = {}, wrong = [];
  for (const [name, value] of new URLSearchParams(query)) {
    const shown = `${name}=${value}`.slice(0, 200);
    if (!Object.hasOwn(known, name)) wrong.push(`This link has ${shown}, which this view does not know: it was left out. The view knows ${Object.keys(known).join(", ")}.`);
    else if (Object.hasOwn(parameters, name)) wrong.push(`This link has ${name} twice: ${shown} was left out.`);
    else if (value !== "") {
      try { parameters[name] = known[name](value); }
      catch (error) { wrong.push(`This link has ${shown}, which cannot be read: ${error.message}. It was left out.`); }
    }
  }
  return { parameters, wrong };
}
