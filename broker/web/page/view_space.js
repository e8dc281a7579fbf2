// What takes the disk: messages and bytes by topic, queue, tag, sender and hour, the largest messages, and how long there is room.

import { ask } from "./api.js";
import { address, announce, clear, el, foreign, guarded, link, notice } from "./dom.js";
import { bytes, duration, number, percent, plural, time, utc, zone } from "./format.js";
import { rename } from "./router.js";

const ASK_AGAIN = 700;
const KEPT = 3600;
const HOUR = 3_600_000;
const SHORT = 10, LONG = 200;

const TABLES = [
  ["topics", "By topic", ["Topic"], (line) => [topicLink(line)]],
  ["queues", "By queue", ["Topic", "Queue"], (line) => [topicLink(line), link("topic", { topic: line.topic, queueId: line.queueId }, number(line.queueId))]],
  ["tags", "By tag", ["Topic", "Tag"], (line) => [topicLink(line), line.tag === null ? el("span", { class: "muted" }, "no tag") : foreign(line.tag, { class: "chip" })]],
  ["hosts", "By sender", ["Sent from"], (line) => [foreign(line.host, { class: "mono" })]],
  ["hours", "By hour, the newest first", [() => `Hour (${zone()})`], (line) => [hourText(line.hourTimestamp)]],
];

export async function spaceView(parameters, context) {
  document.title = "Space · RocketLens";
  const summary = el("span", { class: "muted", role: "status" });
  const bar = el("progress", { max: 1, value: 0, "aria-label": "Counting" });
  const text = el("span", { class: "progress-text" });
  const stop = el("button", { type: "button", class: "stop" }, "Stop");
  const work = el("div", { class: "work" }, bar, text, stop);
  const again = el("button", { type: "button" }, "Count again");
  const more = el("button", { type: "button", class: "more" });
  const shown = el("div");
  let stopped = false, limit = parameters.more ? LONG : SHORT;
  const sayMore = () => {
    more.textContent = limit === SHORT ? "Show more of each" : "Show fewer of each";
    more.setAttribute("aria-expanded", String(limit === LONG));
  };
  sayMore();
  work.hidden = more.hidden = true;
  stop.addEventListener("click", () => { stopped = true; });
  again.addEventListener("click", guarded(() => count(0)));
  more.addEventListener("click", guarded(() => {
    limit = limit === SHORT ? LONG : SHORT;
    rename(address("space", { more: limit === LONG ? "1" : null }));
    sayMore();
    return count(KEPT);
  }));
  context.main.append(el("div", { class: "bar" }, el("h1", {}, "Space"), summary, again, more), work, shown);

  // Not asking again stops the counting: the server gives up what no client waits for.
  async function count(maximumAge) {
    stopped = false;
    again.disabled = true;
    try {
      for (let turn = 0; ; turn += 1) {
        const answer = await ask("/space", { maximumAge: turn ? KEPT : maximumAge, limit }, context.signal);
        const isRunning = answer.state === "running" && !stopped;
        // What was counted before stays as it is meanwhile: somebody may be reading it, or be on one of its links.
        if (answer.outcome && !(isRunning && shown.childNodes.length)) { draw(answer.outcome, summary, shown); more.hidden = false; }
        if (isRunning) {
          work.hidden = false;
          bar.value = answer.countedBytes / Math.max(answer.totalBytes, 1);
          text.textContent = `counted ${bytes(answer.countedBytes)} of ${bytes(answer.totalBytes)}, ${duration(answer.seconds * 1000)}`;
          await new Promise((resolve) => { setTimeout(resolve, ASK_AGAIN); });
          continue;
        }
        if (answer.state === "failed") clear(shown, notice(answer.problem, "error"));
        else if (!answer.outcome) clear(shown, notice("Stopped before there was a result."));
        if (stopped) announce("stopped");
        return;
      }
    } finally {
      work.hidden = true;
      again.disabled = false;
    }
  }

  await count(KEPT);
}

function draw(outcome, summary, shown) {
  clear(summary, `${plural(outcome.messages, "message")}, ${bytes(outcome.bytes)}`,
    outcome.messages ? `, stored ${time(outcome.oldestTimestamp, false)} to ${time(outcome.newestTimestamp, false)}` : "",
    `; counted ${time(outcome.countedTimestamp, false)} in ${duration(outcome.seconds * 1000)}`);
  clear(shown, outcome.notes.map((text) => notice(text, "warning")),
    outcome.leftOut ? notice(`${plural(outcome.leftOut, "line")} about topics that you may not read are left out.`) : null,
    outcome.forecast ? forecast(outcome.forecast) : null,
    outcome.messages ? el("div", { class: "space-tables" },
      TABLES.map(([name, title, heads, cells]) => table(title, heads, cells, outcome[name], outcome.bytes)), largest(outcome.largest)) : el("p", { class: "end" }, "There are no messages."));
}

function forecast(each) {
  const assumed = (name) => (each.assumed.includes(name) ? " (assumed)" : "");
  const kept = `${number(each.reservedHours)} h${assumed("fileReservedTime")}`;
  const facts = [
    ["Growth", each.bytesPerDay === null ? "not known: the messages that were counted are of too short a time, or some that it needs were deleted"
      : `${bytes(each.bytesPerDay)} a day, in the ${each.growthHours.toFixed(1)} h before the last message`],
    ["Disk", [foreign(each.disk, { class: "mono" }), `: ${bytes(each.diskBytes)}, ${percent(each.diskUsedBytes, each.diskBytes)} used, ${bytes(each.diskFreeBytes)} free`]],
    ["Full", each.fullTimestamp === null ? null : `${time(each.fullTimestamp, false)} at this growth`],
    ["Short of room", each.crowdedTimestamp === null ? null
      : `${number(each.mostUsedPercent)} %${assumed("diskMaxUsedSpaceRatio")} of the disk are used from ${time(each.crowdedTimestamp, false)} on: then the broker deletes the oldest segments at any age`],
    ["Retention", each.expiryTimestamp === null ? null : `${kept}: the oldest segment may be deleted from ${time(each.expiryTimestamp, false)} on`],
    ["Log when full grown", each.keptBytes === null ? null
      : `${bytes(each.keptBytes)}, once it is ${kept} long: ${each.isFullFirst ? "the disk is full before that" : "the disk has room for that"}`],
  ];
  const node = el("section", { class: "panel", "aria-label": "Growth and room" }, el("h2", {}, "Growth and room"),
    el("dl", { class: "facts" }, facts.filter(([, value]) => value !== null).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
  if (each.isFullFirst) node.prepend(notice("At this growth the disk is full before the broker deletes old messages for their age.", "warning"));
  return node;
}

function table(title, heads, cells, of, total) {
  const left = of.names - of.lines.length;
  return el("section", { "aria-label": title }, el("h2", {}, title),
    el("table", { class: "space" },
      el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, typeof head === "function" ? head() : head)), ["Bytes", "Share", "Messages"].map((head) => el("th", { scope: "col", class: "number" }, head)))),
      el("tbody", {}, of.lines.map((line) => el("tr", {}, cells(line).map((cell) => el("td", {}, cell)),
        el("td", { class: "number", title: size(line) }, bytes(line.bytes)),
        el("td", { class: "number" }, percent(line.bytes, total)),
        el("td", { class: "number" }, number(line.messages)))))),
    left > 0 ? el("p", { class: "muted" }, `… and ${number(left)} more`) : null);
}

const size = (line) => (line.mostBytes > line.bytes ? `${number(line.bytes)} to ${number(line.mostBytes)} bytes` : plural(line.bytes, "byte"));

function largest(list) {
  return el("section", { "aria-label": "Largest messages" }, el("h2", {}, "Largest messages"),
    el("table", { class: "space" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Message"), el("th", { scope: "col" }, "Topic"), el("th", { scope: "col" }, `Stored (${zone()})`), el("th", { scope: "col", class: "number" }, "Bytes"))),
      el("tbody", {}, list.map((each) => el("tr", {},
        el("td", {}, named(each), each.damage ? [" ", foreign(each.damage, { class: "muted" })] : null),
        el("td", {}, each.message ? topicLink(each.message) : null),
        el("td", { title: each.message ? utc(each.message.storeTimestamp) : null }, each.message ? time(each.message.storeTimestamp, false) : null),
        el("td", { class: "number", title: plural(each.bytes, "byte") }, bytes(each.bytes)))))));
}

// The message by its id, or by its place where it cannot be read any more.
function named(each) {
  if (!each.message) return el("span", { class: "mono" }, number(each.physicalOffset));
  const open = link("message", { offset: each.physicalOffset }, foreign(each.message.uniqueKey ?? each.message.offsetMessageId, { class: "mono" }));
  open.className = "open";
  return open;
}

function topicLink(line) {
  return link("topic", { topic: line.topic }, foreign(line.topic));
}

function hourText(timestamp) {
  return el("span", { title: utc(timestamp) }, `${time(timestamp, false).slice(0, 16)} to ${time(timestamp + HOUR, false).slice(11, 16)}`);
}
