// A topic: when its messages were stored, its queues and groups, and its messages by queue, time and filter.

import { ask, currentCharset } from "./api.js";
import { address, announce, clear, el, field, foreign, guarded, link, notice, similarLinks } from "./dom.js";
import { Histogram } from "./histogram.js";
import { number, parseTime, percent, plural, time, utc, zone } from "./format.js";
import { MessageList } from "./messages.js";
import { go } from "./router.js";
import { Work } from "./work.js";

export async function topicView(parameters, context) {
  const topic = parameters.topic ?? "";
  document.title = `${topic.slice(0, 60)} · RocketLens`;
  const state = read(parameters);
  const about = el("div", { class: "muted", role: "status" });
  const histogram = new Histogram(context, state, (change) => open({ ...state, ...change }));
  const list = browsing(context, state);
  context.main.append(
    el("div", { class: "bar" }, el("h1", {}, foreign(topic)), about,
      link("tail", { topic, queueId: state.queueId, tag: state.tag, sql: state.sql }, "Live")),
    histogram.node,
    filterBar(context, state),
    list.work.node, list.node);
  const first = list.goOn().catch((error) => failed(context, error));
  const queues = describe(context, state, about);
  const bars = histogram.load().catch((error) => failed(context, error));
  await Promise.all([first, queues, bars]);
}

function failed(context, error) {
  if (error.code === "not_found") absent(context, error);
  else if (error.name !== "AbortError" && ![...context.main.querySelectorAll(".notice")].some((each) => each.textContent === error.message)) {
    context.main.append(notice(error.message, "error"));
  }
}

// There is no such topic or queue: nothing is drawn that looks like one without messages.
function absent(context, error) {
  const { topic } = context.parameters;
  clear(context.main, el("div", { class: "bar" }, el("h1", {}, foreign(topic))), notice(error.message, "error"),
    el("p", { class: "chips" }, similarLinks("topic", context.parameters, error),
      error.parameter === "queueId" ? link("topic", { topic }, "All queues of this topic") : link("topics", { contains: topic }, "Topics whose name contains this"),
      link("topics", {}, "All topics")));
}

// What is looked at, from the address, and back.
function read(parameters) {
  const one = (name) => (parameters[name] === undefined || parameters[name] === "" ? null : parameters[name]);
  const whole = (name) => (one(name) === null ? null : Number(one(name)));
  return {
    topic: parameters.topic ?? "", queueId: whole("queueId"), offset: whole("offset"), begin: whole("begin"), end: whole("end"),
    tag: one("tag"), sql: one("sql"), order: parameters.order === "oldest" ? "oldest" : "newest",
  };
}

function open(state, options) {
  go(address("topic", { ...state, order: state.order === "oldest" ? "oldest" : null }), options);
}

// The messages, with a progress bar for a filter that lets few pass.
function browsing(context, state) {
  const work = new Work(context, "Messages looked at");
  let looked = 0;
  const list = new MessageList(context, async (cursor) => {
    const found = [];
    let unreadable = 0;
    let leftOut = 0;
    const stopped = await work.run(async (place, signal) => {
      const answer = await ask("/messages", { ...state, limit: 50 - found.length, cursor: place, charset: currentCharset() }, signal);
      found.push(...answer.messages);
      looked += answer.lookedAt;
      unreadable += answer.unreadable;
      leftOut += answer.leftOut;
      return { cursor: answer.cursor, part: looked / Math.max(answer.total, 1), isEnough: found.length >= 50,
        text: `${number(looked)} of ${plural(answer.total, "message")} looked at, ${number(found.length)} found` };
    }, cursor);
    return { messages: found, cursor: stopped, text: [
      unreadable ? `${plural(unreadable, "message")} here cannot be read.` : "",
      leftOut ? `${plural(leftOut, "message")} here may not be shown to this account.` : "",
    ].filter(Boolean).join(" ") };
  }, { hides: ["topic"], empty: "No message here." });
  list.work = work;
  return list;
}

function filterBar(context, state) {
  const text = (value, more = {}) => el("input", { value: value ?? "", spellcheck: "false", autocomplete: "off", ...more });
  const queue = text(state.queueId, { class: "short", inputmode: "numeric", pattern: "[0-9]*", placeholder: "all" });
  const offset = text(state.offset, { class: "short", inputmode: "numeric", pattern: "[0-9]*", placeholder: "any" });
  const begin = text(state.begin === null ? "" : time(state.begin), { class: "time", placeholder: "first" });
  const end = text(state.end === null ? "" : time(state.end), { class: "time", placeholder: "last" });
  const kind = el("select", {}, el("option", { value: "tag", selected: state.sql === null }, "Tag"), el("option", { value: "sql", selected: state.sql !== null }, "SQL92"));
  const filter = text(state.sql ?? state.tag, { class: "wide", placeholder: "TagA || TagB" });
  const order = el("select", {}, el("option", { value: "newest", selected: state.order === "newest" }, "newest first"), el("option", { value: "oldest", selected: state.order === "oldest" }, "oldest first"));
  const problem = el("p", { class: "notice error", role: "alert" });
  problem.hidden = true;
  const preview = el("p", { class: "preview", role: "status" });
  const work = new Work(context, "Messages counted");
  const hint = () => { filter.placeholder = kind.value === "tag" ? "TagA || TagB" : "a > 5 AND region = 'hz'"; };
  kind.addEventListener("change", hint);
  hint();

  function wanted() {
    const chosen = filter.value.trim() || null;
    return {
      topic: state.topic, queueId: queue.value.trim() || null, offset: offset.value.trim() || null,
      begin: parseTime(begin.value, state.begin), end: parseTime(end.value, state.end),
      tag: kind.value === "tag" ? chosen : null, sql: kind.value === "sql" ? chosen : null, order: order.value,
    };
  }

  function said(error) {
    problem.hidden = false;
    problem.textContent = error.message;
  }

  async function count() {
    problem.hidden = true;
    try { await countPassing(context, wanted(), preview, work); } catch (error) { if (error.name !== "AbortError") said(error); }
  }

  const form = el("form", { class: "filters" },
    field("Queue", queue), field("From offset", offset), field(`From (${zone()})`, begin, "A date and time, or milliseconds"), field("To", end, "A date and time, or milliseconds"),
    field("Filter", kind), field("", filter), field("Order", order),
    el("button", { class: "primary" }, "Show"), el("button", { type: "button", onclick: count }, "How many pass?"),
    link("topic", { topic: state.topic }, "Clear"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    try { open(wanted()); } catch (error) { said(error); }
  });
  order.addEventListener("change", () => form.requestSubmit());
  return el("div", {}, form, problem, work.node, preview);
}

// How many messages a consumer with this filter would get: exact when it has run to its end, and plain about it before.
async function countPassing(context, state, preview, work) {
  const { topic, queueId, begin, end, tag, sql } = state;
  if (!tag && !sql) { clear(preview, "Write a filter first: a tag subscription, or SQL92."); return; }
  let passed = 0, looked = 0, total = 0, note = null;
  clear(preview);
  const stopped = await work.run(async (cursor, signal) => {
    const answer = await ask("/filter", { topic, queueId, begin, end, tag, sql, cursor }, signal);
    passed += answer.passed;
    looked += answer.lookedAt;
    ({ total, note } = answer);
    return { cursor: answer.cursor, part: looked / Math.max(total, 1), text: `${number(passed)} of ${number(looked)} pass so far; ${number(total)} to look at` };
  });
  const whole = stopped === null;
  clear(preview, el("b", {}, number(passed)), ` of ${plural(looked, "message")} (${percent(passed, looked)}) pass`,
    whole ? "." : `; ${number(total - looked)} of ${number(total)} were not looked at.`, note ? el("span", { class: "muted" }, " ", foreign(note)) : null);
  announce(preview.textContent);
}

async function describe(context, state, about) {
  let answer;
  try { answer = await ask("/topic", { topic: state.topic }, context.signal); } catch (error) { failed(context, error); return; }
  const say = ({ queueCount, countedQueues, messages }) => clear(about, `${plural(queueCount, "queue")}, ${countedQueues < queueCount ? "more than " : ""}${plural(messages, "message")}`);
  say(answer);
  context.main.querySelector(".histogram")?.before(...answer.notes.map((text) => notice(text, "warning")));
  const details = el("details", { class: "panel", open: answer.queueCount <= 8 && !state.tag && !state.sql && innerWidth > 900 },
    el("summary", {}, "Queues and groups"), el("div", { class: "columns even" }, queueTable(context, state, answer), groupTable(context, state, answer)));
  context.main.querySelector(".histogram")?.after(details);
  // Of very many queues not all are counted in the time of one answer; those that were are counted sooner the next time.
  for (let last = answer; last.countedQueues < last.queueCount;) {
    const next = await ask("/topic", { topic: state.topic, limit: 1, groupsLimit: 1, milliseconds: 5000 }, context.signal).catch(() => last);
    if (next.countedQueues <= last.countedQueues) return;
    say(last = next);
  }
}

function queueTable(context, state, first) {
  const body = el("tbody");
  const more = el("button", { type: "button", class: "more-queues" }, "More queues");
  let cursor = first.cursor;
  const add = (queues) => body.append(...queues.map((queue) => el("tr", { class: queue.queueId === state.queueId ? "chosen" : null },
    el("td", {}, link("topic", { topic: state.topic, queueId: queue.queueId }, `Queue ${queue.queueId}`)),
    queue.problem ? el("td", { colspan: 4, class: "error" }, foreign(queue.problem)) : [
      el("td", { class: "number" }, number(queue.minOffset)), el("td", { class: "number" }, number(queue.maxOffset)),
      el("td", { class: "number" }, number(queue.maxOffset - queue.minOffset)),
      el("td", { class: "number", title: utc(queue.lastTimestamp) }, time(queue.lastTimestamp, false))])));
  more.addEventListener("click", guarded(async () => {
    const answer = await ask("/topic", { topic: state.topic, cursor }, context.signal);
    add(answer.queues);
    cursor = answer.cursor;
    more.hidden = cursor === null;
  }));
  more.hidden = cursor === null;
  add(first.queues);
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ["Queue", "From", "To", "Messages", `Last stored (${zone()})`].map((text, at) => el("th", { scope: "col", class: at ? "number" : null }, text)))), body), more);
}

function groupTable(context, state, answer) {
  const body = el("tbody");
  const more = el("button", { type: "button" }, "More groups");
  let cursor = answer.groupsCursor;
  const add = (groups) => body.append(...groups.map((group) => el("tr", {}, el("td", {}, foreign(group.group)), el("td", { class: `number ${group.lag ? "warning" : ""}` }, group.lag === null ? "not known" : number(group.lag)))));
  more.addEventListener("click", guarded(async () => {
    const next = await ask("/topic", { topic: state.topic, limit: 1, groupsCursor: cursor }, context.signal);
    add(next.groups);
    cursor = next.groupsCursor;
    more.hidden = cursor === null;
  }));
  more.hidden = cursor === null;
  add(answer.groups);
  if (!answer.groups.length) return el("p", { class: "muted" }, "No consumer group that you may see has committed an offset here.");
  if (answer.groupsProblem) return el("p", { class: "muted" }, foreign(answer.groupsProblem));
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Group"), el("th", { scope: "col", class: "number" }, "Not consumed yet"))),
    body), more);
}
