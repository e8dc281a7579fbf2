// Search messages by content. Each answer is a second or two of searching; it goes on by itself until a page is
// full, everything was searched, or it is stopped.

import { ask, currentCharset } from "./api.js";
import { completeTopics } from "./complete.js";
import { address, clear, el, field, foreign, notice, similarLinks } from "./dom.js";
import { bytes, number, parseTime, percent, time, zone } from "./format.js";
import { MessageList } from "./messages.js";
import { go } from "./router.js";
import { Work } from "./work.js";

const PAGE = 50;
const TEXTS = [
  ["contains", "Body contains", "a part of the text, as it is", "wide"],
  ["topic", "Topic", "all", ""],
  ["regex", "Regular expression", "order-[0-9]+", "wide"],
  ["jsonPath", "JSONPath = value", "$.customer.id=4711", "wide"],
  ["where", "SQL92 on properties", "a > 5 AND region = 'hz'", "wide"],
  ["tag", "Tag", "any", ""],
  ["key", "Key or unique key", "any", ""],
  ["keyPrefix", "Key begins with", "any", ""],
  ["bornHost", "Sent from", "10.1.2.3 or 10.1.0.0/16", ""],
];
const FIRST = 2; // fields that are always there; the others fold
const TIMES = [["begin", "Stored from"], ["end", "Stored to"]]; // in the zone that is shown
const SIZES = [["minimumSize", "Body at least"], ["maximumSize", "Body at most"]];

export async function searchView(parameters, context) {
  document.title = "Search · RocketLens";
  const problem = el("p", { class: "notice error", role: "alert" });
  problem.hidden = true;
  const conditions = form(parameters, problem);
  context.redraw = conditions.redraw;
  context.main.append(el("div", { class: "bar" }, el("h1", {}, "Search by content")), conditions.node, problem);
  const criteria = Object.fromEntries(Object.entries(parameters).filter(([name]) => name !== "place" && name !== "broker"));
  if (Object.keys(criteria).length) await run(parameters, context, conditions);
  else context.main.querySelector("input").focus();
}

function form(parameters, problem) {
  const inputs = new Map();
  const add = (name, label, more) => {
    const input = el("input", { name, autocomplete: "off", spellcheck: "false", ...more });
    inputs.set(name, input);
    return field(label, input);
  };
  const fields = [
    ...TEXTS.map(([name, label, placeholder, kind]) => add(name, label, { placeholder, class: `mono ${kind}`, value: parameters[name] ?? "", maxlength: 4096 })),
    ...TIMES.map(([name]) => add(name, "", { placeholder: "2026-11-21 06:45:05", class: "mono" })),
    ...SIZES.map(([name, label]) => add(name, label, { placeholder: "bytes", inputmode: "numeric", pattern: "[0-9]*", value: parameters[name] ?? "" })),
  ];
  const place = el("select", {}, [["body", "in the body"], ["properties", "in properties"], ["any", "in both"]].map(([value, text]) => el("option", { value, selected: (parameters.place ?? "body") === value }, text)));
  // What is folded is open where the address has any of it, so that nothing restricts a search unseen.
  const isMore = Object.keys(parameters).some((name) => !["contains", "topic", "broker"].includes(name));
  const node = el("form", { class: "panel" },
    el("div", { class: "search-form" }, fields.slice(0, FIRST), completeTopics(inputs.get("topic"))),
    el("details", { class: "more-conditions", open: isMore }, el("summary", {}, "More conditions"),
      el("div", { class: "search-form" }, fields.slice(FIRST), field("Text and expression", place))),
    el("div", { class: "row" }, el("button", { class: "primary" }, "Search"), el("span", { class: "muted" }, "A message must meet all conditions. With a topic, or a key, much less has to be read.")));
  node.addEventListener("invalid", () => { node.querySelector("details").open = true; }, true); // it must be seen to be mended
  node.addEventListener("submit", (event) => {
    event.preventDefault();
    problem.hidden = true;
    try {
      const wanted = Object.fromEntries([...inputs].map(([name, input]) => [name, name === "begin" || name === "end" ? parseTime(input.value, parameters[name]) : name === "contains" || name === "regex" ? input.value : input.value.trim()]));
      go(address("search", { ...wanted, place: place.value === "body" ? null : place.value }));
    } catch (error) {
      problem.hidden = false;
      problem.textContent = error.message;
    }
  });
  const drawn = {}; // what stands for the times of the address; what was typed since stays
  const redraw = () => TIMES.forEach(([name, label]) => {
    const input = inputs.get(name);
    input.closest("label").firstChild.textContent = `${label} (${zone()})`;
    if (input.value !== (drawn[name] ?? "")) return;
    input.value = drawn[name] = parameters[name] ? time(Number(parameters[name])) : "";
  });
  redraw();
  return { node, redraw };
}

async function run(parameters, context, conditions) {
  const work = new Work(context, "Log searched");
  const notes = el("div");
  let done = null;
  const list = new MessageList(context, async (cursor) => {
    const found = [];
    const stopped = await work.run(async (place, signal) => {
      done = await ask("/search", { ...parameters, broker: null, limit: PAGE - found.length, cursor: place, charset: currentCharset() }, signal);
      found.push(...done.messages);
      if (done.notes.length) clear(notes, done.notes.map((text) => el("p", { class: "muted" }, foreign(text))));
      const left = done.rate > 0 ? (done.totalBytes - done.searchedBytes) / done.rate : null;
      const pace = left === null || done.cursor === null ? "" : `, ${bytes(done.rate)}/s, ${left < 90 ? `${Math.ceil(left)} s` : `${Math.ceil(left / 60)} min`} left`;
      return { cursor: done.cursor, part: done.totalBytes ? done.searchedBytes / done.totalBytes : 1, isEnough: found.length >= PAGE,
        text: `searched ${bytes(done.searchedBytes)} of ${bytes(done.totalBytes)}${pace}, ${number(found.length)} found` };
    }, cursor);
    return { messages: found, cursor: stopped, text: done ? `Searched ${bytes(done.searchedBytes)} of ${bytes(done.totalBytes)} (${percent(done.searchedBytes, done.totalBytes)}).` : "" };
  }, { empty: "No message meets these conditions." });
  context.main.append(work.node, list.node, notes);
  context.redraw = () => { list.redraw(); conditions.redraw(); };
  try { await list.goOn(); } catch (error) {
    if (error.similarTopics?.length) context.main.append(el("p", { class: "chips" }, similarLinks("search", parameters, error)));
    throw error;
  }
}
