// The messages that wait for a delay level or a point in time: counted by the topic that they go to, listed by due time.

import { ask } from "./api.js";
import { completeTopics } from "./complete.js";
import { address, clear, el, field, foreign, guarded, link, notice, similarLinks } from "./dom.js";
import { bytes, number, parseTime, plural, time, utc, zone } from "./format.js";
import { go } from "./router.js";
import { saveButtons } from "./save.js";

const PAGE = 50;
const ASK_AGAIN = 700;
const CHIPS = { waiting: "quiet", overdue: "warning", cancelled: "quiet", popped: "quiet" };

export async function pendingView(parameters, context) {
  document.title = "Pending · RocketLens";
  const problem = el("p", { class: "notice error", role: "alert" });
  problem.hidden = true;
  const summary = el("span", { class: "muted", role: "status" });
  const topics = el("div"), notes = el("div");
  const body = el("tbody");
  const names = [`Due (${zone()})`, "State", "Topic", "By", "Message", "Stored", "Tag", "Size"];
  const table = el("table", { class: "messages pending" }, el("thead", {}, el("tr", {}, names.map((text) => el("th", { scope: "col", class: text === "Size" ? "size" : null }, text)))), body);
  const end = el("p", { class: "end", role: "status" });
  const more = el("button", { type: "button", class: "more", onclick: guarded(() => page()) }, "More");
  const lines = []; // what is listed, as the API gave it
  const save = saveButtons("pending", () => lines.map(({ message, ...rest }) => ({ ...message, ...rest })));
  table.hidden = more.hidden = save.hidden = true;
  context.main.append(el("div", { class: "bar" }, el("h1", {}, "Pending"), summary), form(parameters, problem), problem, notes, topics,
    el("div", { class: "list" }, table, end, more, save));
  let cursor = null, shown = 0;

  // Not asking again stops the reading: the server gives up what no client waits for.
  async function page() {
    const question = { topic: parameters.topic, dueAfter: parameters.dueAfter, dueBefore: parameters.dueBefore, limit: PAGE, cursor, maximumAge: cursor ? 3600 : null };
    for (;;) {
      const answer = await ask("/pending", question, context.signal);
      if (answer.state === "running") {
        clear(summary, `reading what waits: ${plural(answer.readMessages, "message")} so far`);
        question.maximumAge = 3600;
        await new Promise((resolve) => { setTimeout(resolve, ASK_AGAIN); });
        continue;
      }
      if (answer.state === "failed") { clear(summary); clear(notes, notice(answer.problem, "error")); return; }
      draw(answer);
      return;
    }
  }

  function draw(answer) {
    clear(summary, [answer.timersTimestamp ? `timer messages due before ${time(answer.timersTimestamp, false)} are delivered` : "",
      `last message stored ${time(answer.logTimestamp, false)}`].filter(Boolean).join(" · "));
    const said = answer.incomplete ? [`Something may be missing: ${answer.incomplete}`, ...answer.notes] : answer.notes;
    clear(notes, said.map((text) => notice(text, "warning")));
    if (!cursor) clear(topics, topicTable(answer.topics, parameters));
    const rows = answer.messages.map(row);
    body.append(...rows);
    lines.push(...answer.messages);
    shown += rows.length;
    save.hidden = shown === 0;
    if (cursor) (rows[0]?.querySelector("a") ?? more).focus();
    cursor = answer.cursor;
    table.hidden = shown === 0;
    more.hidden = cursor === null;
    clear(end, shown ? `${plural(shown, "message")} shown${cursor ? "; there may be more." : ", all there are."}` : "No message waits.",
      answer.leftOut ? ` ${plural(answer.leftOut, "message")} that you may not read left out.` : "",
      answer.similarTopics.length ? [" The topic that may be meant: ", similarLinks("pending", parameters, answer).map((each) => [each, " "])] : null);
  }

  await page();
}

function form(parameters, problem) {
  const topic = el("input", { name: "topic", class: "mono", value: parameters.topic ?? "", placeholder: "all", maxlength: 255, autocomplete: "off", spellcheck: "false" });
  const times = ["dueAfter", "dueBefore"].map((name) => el("input", { name, class: "mono time", placeholder: "2026-11-21 06:45:05", value: parameters[name] ? time(Number(parameters[name])) : "" }));
  const node = el("form", { class: "panel" }, el("div", { class: "search-form" }, field("Goes to topic", topic), completeTopics(topic), field(`Due from (${zone()})`, times[0]), field(`Due to (${zone()})`, times[1])),
    el("div", { class: "row" }, el("button", { class: "primary" }, "Show")));
  node.addEventListener("submit", (event) => {
    event.preventDefault();
    problem.hidden = true;
    try {
      go(address("pending", { topic: topic.value.trim(), dueAfter: parseTime(times[0].value, parameters.dueAfter), dueBefore: parseTime(times[1].value, parameters.dueBefore) }));
    } catch (error) {
      problem.hidden = false;
      problem.textContent = error.message;
    }
  });
  return node;
}

function topicTable(list, parameters) {
  if (!list.length) return null;
  const names = ["Topic", "Waiting", "Overdue", "Cancelled", "Rolled", "Popped", "Bytes", "Next due", "Last due"];
  return el("table", { class: "topics stacked" }, el("thead", {}, el("tr", {}, names.map((text, at) => el("th", { scope: "col", class: at ? "number" : null }, text)))),
    el("tbody", {}, list.map((topic) => el("tr", {},
      el("td", {}, link("pending", { ...parameters, topic: topic.topic }, foreign(topic.topic))),
      [topic.waiting, topic.overdue, topic.cancelled, topic.rolled, topic.popped].map((count, at) => el("td", { class: "number", "data-name": names[at + 1].toLowerCase() }, number(count))),
      el("td", { class: "number" }, bytes(topic.bytes)),
      [topic.firstDueTimestamp, topic.lastDueTimestamp].map((due, at) => el("td", { class: "number", "data-name": names[at + 7].toLowerCase(), title: due === null ? null : utc(due) }, time(due, false)))))));
}

function row(each) {
  const open = link("message", { offset: each.message.physicalOffset }, time(each.dueTimestamp, false));
  open.className = "open";
  open.title = utc(each.dueTimestamp);
  const by = each.state === "popped" ? [each.group === null ? "popped" : ["by ", foreign(each.group)], `, queue ${each.message.queueId}, offset ${number(each.message.queueOffset)}`] : each.delayLevel === null ? `timer${each.rolls ? `, rolled ${plural(each.rolls, "time")}` : ""}` : `level ${each.delayLevel}`;
  return el("tr", {}, el("td", { class: "stored" }, open),
    el("td", {}, el("span", { class: `chip ${CHIPS[each.state]}` }, each.state)),
    el("td", { class: "topic" }, foreign(each.topic)),
    el("td", {}, by),
    el("td", { class: "keys" }, each.message.keys.length ? each.message.keys.map((key) => foreign(key, { class: "key" })) : foreign(each.message.uniqueKey ?? "", { class: "mono" })),
    el("td", { class: "stored", title: utc(each.message.storeTimestamp) }, time(each.message.storeTimestamp, false)),
    el("td", { class: "tag" }, each.message.tags ? foreign(each.message.tags, { class: "chip" }) : null),
    el("td", { class: "size" }, bytes(each.message.totalSize)));
}
