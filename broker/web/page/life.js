// A message's life: where it waited, was delivered, retried and given up, and what clients reported.

import { ask } from "./api.js";
import { clear, el, foreign, link, notice } from "./dom.js";
import { duration, number, time, utc } from "./format.js";

// `judge` is called with the life, or with undefined and the reason why it is not known.
export function lifePanel(message, context, judge) {
  const shown = el("div", {}, el("p", { class: "muted" }, "Looking…"));
  const panel = el("section", { class: "panel" }, el("h2", {}, "Life"), shown);
  if (message.uniqueKey) load(message, shown, context, judge);
  else {
    const reason = "The producer gave it no unique key, so its copies cannot be found.";
    clear(shown, el("p", { class: "muted" }, reason));
    judge(undefined, reason);
  }
  return panel;
}

async function load(message, shown, context, judge) {
  try {
    const life = await ask("/message/life", { uniqueKey: message.uniqueKey, topic: message.originTopic }, context.signal);
    judge(life);
    clear(shown,
      life.messages.length > 1 ? notice(namedAlike(life), "warning") : null,
      life.incomplete ? notice(`Something may be missing: ${life.incomplete}`, "warning") : null,
      ...life.notes.map((text) => notice(text, "warning")),
      life.messages.filter((named) => named.transaction).map((named) => el("p", {}, life.messages.length > 1 ? `Transaction of message ${named.number}: ` : "Transaction: ", named.transaction)),
      el("ol", { class: "life" }, life.events.map((event, at) => line(event, life.events[at - 1], message, life.messages.length > 1))),
      life.leftOut ? el("p", { class: "muted" }, `${number(life.leftOut)} more, of topics that you may not read.`) : null);
  } catch (error) {
    if (error.name === "AbortError") clear(shown, el("button", { type: "button", onclick: () => load(message, shown, context, judge) }, "Look again"));
    else {
      clear(shown, notice(error.message, "error"));
      judge(undefined, error.message);
    }
  }
}

// A unique key may name several messages, each with its own story.
function namedAlike(life) {
  const each = life.messages.map((named) => `message ${named.number} was sent to ${named.topic ?? "a topic that is not known"} and born ${time(named.bornTimestamp)}`);
  return `${life.messages.length} messages are named this: ${each.join("; ")}.`;
}

function line(event, before, message, areSeveral) {
  const since = before ? event.timestamp - before.timestamp : null;
  const when = el("time", { title: utc(event.timestamp) }, time(event.timestamp), since === null ? null : el("span", { class: "muted" }, ` +${duration(since)}`));
  const which = areSeveral && event.messageNumber !== null ? el("span", { class: "chip quiet" }, `message ${event.messageNumber}`) : null;
  return event.message ? record(event, when, message, which) : trace(event.trace, event, when, which);
}

function record(event, when, message, which) {
  const stored = event.message;
  const isThis = stored.physicalOffset === message.physicalOffset;
  const where = [foreign(stored.topic), ` queue ${stored.queueId}, offset ${number(stored.queueOffset)}`];
  return el("li", { class: isThis ? "this" : null },
    el("b", {}, event.stage), " ", isThis ? where : link("message", { offset: stored.physicalOffset }, where), isThis ? el("span", { class: "chip quiet" }, "this record") : null, which, when,
    event.note || event.untilTimestamp ? el("div", { class: "muted" }, [event.note, event.untilTimestamp ? `until ${time(event.untilTimestamp)}` : ""].filter(Boolean).join(", ")) : null,
    event.groups.length ? el("div", { class: "muted" }, event.groups.map((group, at) => [at ? ", " : "", foreign(group.group), ` ${group.text}${comesBack(group.untilTimestamp)}`])) : null);
}

export const comesBack = (timestamp) => timestamp === null ? "" : `: comes back ${time(timestamp)} or later`;

const KINDS = { Pub: "sent", SubBefore: "consuming", SubAfter: "consumed", EndTransaction: "ended its transaction", Recall: "recalled" };

function trace(report, event, when, which) {
  const outcome = report.outcome ?? { true: "success", false: "failure" }[String(report.success)] ?? "";
  const parts = [outcome, report.costMilliseconds === null ? "" : duration(report.costMilliseconds), report.clientHost ?? "", event.note].filter(Boolean).join(", ");
  return el("li", { class: "trace" }, el("b", {}, `traced: ${KINDS[report.kind] ?? report.kind}`), report.group ? [" by ", foreign(report.group)] : null, which, when,
    el("div", { class: "muted" }, foreign(parts)));
}
