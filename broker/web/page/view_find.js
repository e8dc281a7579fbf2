// What the box found, and what the text was taken for.

import { ask, currentCharset } from "./api.js";
import { clear, el, foreign, link, notice, similarLinks } from "./dom.js";
import { number, percent, plural } from "./format.js";
import { MessageList, moveSelection } from "./messages.js";
import { Work } from "./work.js";

export async function findView(parameters, context) {
  const text = parameters.text ?? "";
  document.getElementById("text").value = text;
  document.title = `${text.slice(0, 60)} · RocketLens`;
  const tried = el("ul", { class: "tried", "aria-label": "What the text was taken for" });
  const topics = el("p", { class: "chips" });
  const warning = el("div");
  const work = new Work(context, "Topics searched");
  const counts = new Map();

  // Answers are put together until there is a page of messages, or nothing is left.
  async function page(cursor) {
    const found = [];
    let last = null;
    const stopped = await work.run(async (place, signal) => {
      last = await ask("/find", { text, topic: parameters.topic, limit: 50, cursor: place, charset: currentCharset() }, signal);
      found.push(...last.messages);
      for (const each of last.tried) {
        const known = counts.get(each.kind) ?? { found: 0, note: "" };
        counts.set(each.kind, { found: known.found + each.found, note: known.note || each.note });
      }
      if (last.topics.length) clear(topics, el("span", { class: "muted" }, "Topics named so: "), last.topics.map((topic) => link("topic", { topic }, foreign(topic, { class: "chip" }))),
        last.topicsLeftOut ? link("topics", { contains: text, system: 1 }, `and ${number(last.topicsLeftOut)} more`) : null);
      if (last.similarTopics.length) clear(topics, el("span", { class: "muted" }, parameters.topic ? "The topic that may be meant: " : "A topic that may be meant: "),
        parameters.topic ? similarLinks("find", parameters, last) : similarLinks("topic", {}, last));
      if (last.incomplete) clear(warning, notice(`Something may be missing: ${last.incomplete}`, "warning"));
      drawTried(tried, counts);
      const part = last.topicsToSearch ? last.topicsSearched / last.topicsToSearch : 1;
      return { cursor: last.cursor, part, text: `${percent(last.topicsSearched, last.topicsToSearch)} of the topics searched, ${number(found.length)} found`, isEnough: found.length > 0 };
    }, cursor);
    return { messages: found, cursor: stopped };
  }

  const list = new MessageList(context, page, { hides: ["size"], empty: "No message has this as its id, offset, key or tag." });
  context.main.append(
    el("div", { class: "bar" }, el("h1", {}, "Found: ", foreign(text)), parameters.topic ? el("span", { class: "muted" }, "in topic ", foreign(parameters.topic)) : null),
    tried, topics, warning, work.node, list.node);
  context.redraw = () => list.redraw();
  await list.goOn();
  if (list.count && [document.body, context.main].includes(document.activeElement)) moveSelection(1);
  if (!list.count && list.cursor === null) context.main.append(nothing(text));
}

function drawTried(node, counts) {
  clear(node, [...counts].map(([kind, { found, note }]) =>
    el("li", { class: found ? "yes" : "no" }, el("b", {}, kind), found ? ` ${number(found)}` : " none", note ? el("span", { class: "muted" }, " · ", foreign(note)) : null)));
}

function nothing(text) {
  const words = text.split(/[\s[\](),;]+/).filter(Boolean);
  const split = words.length > 1 ? el("p", {}, "RocketMQ splits keys at blanks, so that none holds one. Find each word: ",
    words.slice(0, 20).flatMap((word, number) => [number ? ", " : "", link("find", { text: word }, word)]), ".") : "";
  return el("div", {}, split, el("p", { class: "muted" }, "A part of a body is found by a ", link("search", { contains: text }, "search by content"),
    "; keys are compared whole, and case counts. ", plural(text.length, "character was", "characters were"), " looked for."));
}
