// One message: where it is, what it carries, what became of it, and who has consumed it.

import { ask, currentCharset } from "./api.js";
import { bodyOf, bodyPanel } from "./body.js";
import { clear, copyButton, el, foreign, link, notice } from "./dom.js";
import { bytes, duration, number, plural, time, utc } from "./format.js";
import { comesBack, lifePanel } from "./life.js";

export async function messageView(parameters, context) {
  const message = await load(parameters, context.signal);
  const name = message.uniqueKey ?? message.offsetMessageId;
  const consumed = groupsPanel(message);
  document.title = `${name} · RocketLens`;
  context.main.append(
    el("div", { class: "bar" }, el("h1", { class: "id" }, foreign(name)), copyButton(name),
      message.stage === "delivered" ? null : el("span", { class: "chip" }, message.stage)),
    message.damage ? notice(`The record is damaged: ${message.damage}`, "error") : "",
    el("div", { class: "columns" },
      el("div", {}, facts(message), properties(message)),
      el("div", {}, bodyPanel(bodyOf(message), { offset: message.physicalOffset }, context), innerPanel(message, context),
        consumed.node, lifePanel(message, context, consumed.judge))));
}

function load(parameters, signal) {
  const charset = currentCharset();
  if (parameters.offset !== undefined) return ask("/message", { offset: parameters.offset, charset }, signal);
  const { topic, queueId, queueOffset } = parameters;
  return ask("/queue/message", { topic, queueId, queueOffset, charset }, signal);
}

function facts(message) {
  const at = (timestamp) => el("span", { title: utc(timestamp) }, time(timestamp));
  const place = { topic: message.topic, queueId: message.queueId };
  const neighbours = el("span", { class: "neighbours" },
    message.queueOffset > 0 ? link("message", { ...place, queueOffset: message.queueOffset - 1 }, "← before") : null,
    link("message", { ...place, queueOffset: message.queueOffset + 1 }, "after →"));
  const waited = message.storeTimestamp - message.bornTimestamp;
  const rows = [
    ["Topic", link("topic", { topic: message.topic }, foreign(message.topic))],
    message.originTopic === message.topic ? null : ["Sent to", link("topic", { topic: message.originTopic }, foreign(message.originTopic))],
    ["Queue", link("topic", place, String(message.queueId))],
    ["Queue offset", [number(message.queueOffset), neighbours]],
    ["Physical offset", [String(message.physicalOffset), copyButton(String(message.physicalOffset))]],
    ["Stored", [at(message.storeTimestamp), el("span", { class: "muted" }, ` at ${message.storeHost}`)]],
    ["Born", [at(message.bornTimestamp), el("span", { class: "muted" }, ` at ${message.bornHost}, ${duration(Math.abs(waited))} ${waited < 0 ? "after it was stored" : "before"}`)]],
    ["Keys", message.keys.length ? message.keys.map((key) => link("find", { text: key, topic: message.topic }, foreign(key, { class: "key" }))) : none()],
    ["Tag", message.tags ? link("topic", { topic: message.topic, tag: message.tags }, foreign(message.tags, { class: "chip" })) : none()],
    ["Unique key", message.uniqueKey ? [foreign(message.uniqueKey, { class: "mono" }), copyButton(message.uniqueKey)] : none()],
    ["Offset id", [el("span", { class: "mono" }, message.offsetMessageId), copyButton(message.offsetMessageId)]],
    ["Size", `${bytes(message.totalSize)} in the log`],
    message.reconsumeTimes ? ["Consumed again", plural(message.reconsumeTimes, "time")] : null,
    ["Flags", el("span", { class: "mono" }, `sysFlag 0x${(message.sysFlag >>> 0).toString(16)} · flag ${message.flag} · CRC ${(message.bodyCrc >>> 0).toString(16).padStart(8, "0")}`)],
  ].filter(Boolean);
  return el("section", { class: "panel" }, el("h2", {}, "Place"),
    el("dl", { class: "facts" }, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
}

const none = () => el("span", { class: "muted" }, "none");

function properties(message) {
  const names = Object.keys(message.properties).sort();
  return el("section", { class: "panel" }, el("h2", {}, "Properties ", el("span", { class: "muted" }, String(names.length))),
    el("dl", { class: "facts properties" }, names.map((name) => [el("dt", {}, foreign(name)), el("dd", {}, foreign(message.properties[name]))])));
}

const KINDS = { passed: "good", "gave up": "error", retrying: "warning", "not yet": "warning", popped: "warning", unknown: "quiet", skipped: "quiet" };

// The groups that read this record's queue, and those whose verdict its life has. That a group's offset lies behind the
// message does not say that it was consumed, so nothing is called good before the life is known.
function groupsPanel(message) {
  const shown = el("div");
  const node = el("section", { class: "panel consumed" }, el("h2", {}, "Consumed by"), shown);

  function draw(verdicts, reason) {
    const known = new Map((verdicts ?? []).map((each) => [each.group, each]));
    const groups = [...message.groups, ...(verdicts ?? []).filter((each) => !message.groups.some((group) => group.group === each.group))];
    const rows = groups.map((group) => {
      const verdict = known.get(group.group);
      const chip = verdict ? el("span", { class: `chip ${verdict.isCertain ? KINDS[verdict.ending] : "quiet"}` }, `${verdict.text}${comesBack(verdict.untilTimestamp)}`)
        : el("span", { class: `chip ${group.hasPassed ? "quiet" : "warning"}` }, group.hasPassed ? "its offset is behind it" : "not yet");
      return el("tr", {}, el("td", {}, foreign(group.group)), el("td", {}, chip),
        el("td", { class: "number", "data-name": "reads next" }, number(group.nextOffset)),
        el("td", { class: "number", "data-name": "behind by" }, group.lag === null ? "not known" : number(group.lag)));
    });
    clear(shown,
      rows.length
        ? el("table", { class: "stacked" }, el("thead", {}, el("tr", {}, ["Group", "This message", "Reads next", "Behind by"].map((text, at) => el("th", { scope: "col", class: at > 1 ? "number" : null }, text)))), el("tbody", {}, rows))
        : el("p", { class: "muted" }, message.groupsProblem ? foreign(message.groupsProblem) : "No group that you may see has committed an offset in this queue."),
      reason ? el("p", { class: "muted" }, "Whether a group failed and tried again is not known: ", foreign(reason)) : null);
  }

  draw(null, null);
  return { node, judge: (life, reason) => draw(life && verdictsOf(life, message), reason ?? life?.incomplete) };
}

// Of several messages that are named alike, the verdicts of the one that this record is of.
function verdictsOf(life, message) {
  const own = life.events.find((event) => event.message?.physicalOffset === message.physicalOffset);
  return own ? life.verdicts.filter((verdict) => verdict.messageNumber === own.messageNumber) : life.verdicts;
}

function innerPanel(message, context) {
  if (!message.innerCount) return null;
  const cut = message.innerCount > message.inner.length ? ` The first ${message.inner.length} are shown.` : "";
  return el("section", { class: "panel" }, el("h2", {}, `${plural(message.innerCount, "message")} in this record`), cut ? el("p", { class: "muted" }, cut) : null,
    message.inner.map((inner) => el("details", {},
      el("summary", {}, `${number(inner.queueOffset)} `, inner.keys.map((key) => foreign(key, { class: "key" })), inner.tags ? foreign(inner.tags, { class: "chip" }) : null),
      bodyPanel(bodyOf(inner), null, context),
      el("dl", { class: "facts properties" }, Object.keys(inner.properties).sort().map((name) => [el("dt", {}, foreign(name)), el("dd", {}, foreign(inner.properties[name]))])))));
}
