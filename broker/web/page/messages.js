// A list of messages, one line each, that goes on by cursor. Lines are links: a middle click opens a tab of its own.

import { address, clear, el, foreign, guarded, link } from "./dom.js";
import { bytes, number, plural, time, utc, zone } from "./format.js";
import { saveButtons } from "./save.js";

// `ask(cursor, signal)` gives {messages, cursor, text}; `columns` leaves out what all lines have in common.
export class MessageList {
  constructor(context, ask, { hides = [], empty = "Nothing found." } = {}) {
    this.context = context;
    this.ask = ask;
    this.empty = empty;
    this.hides = new Set(hides);
    this.count = 0;
    this.body = el("tbody");
    this.table = el("table", { class: `messages ${hides.map((name) => `no-${name}`).join(" ")}` }, this.head(), this.body);
    this.table.hidden = true;
    this.end = el("p", { class: "end", role: "status" });
    this.more = el("button", { type: "button", class: "more", onclick: guarded(() => this.goOn()) }, "More");
    this.more.hidden = true;
    this.shown = []; // the lines as the API gave them
    this.save = saveButtons("messages", () => this.shown);
    this.save.hidden = true;
    this.node = el("div", { class: "list" }, this.table, this.end, this.more, this.save);
  }

  head() {
    const names = [["stored", `Stored (${zone()})`], ["topic", "Topic"], ["queue", "Queue"], ["offset", "Offset"], ["keys", "Keys"],
      ["tag", "Tag"], ["body", "Body"], ["size", "Size"]];
    return el("thead", {}, el("tr", {}, names.map(([name, text]) => el("th", { scope: "col", class: name }, text))));
  }

  // The lines that are there once more, with times in another zone.
  redraw() {
    this.table.tHead.replaceWith(this.head());
    this.body.replaceChildren(...this.shown.map((message) => this.row(message)));
  }

  // The first page, or the next one. What a stop has left is gone on with.
  async goOn() {
    const focused = document.activeElement === this.more;
    this.more.disabled = true;
    try {
      const page = await this.ask(this.cursor ?? null, this.context.signal);
      this.add(page, focused);
      return page;
    } finally { this.more.disabled = false; }
  }

  add(page, moveFocus = false) {
    const rows = page.messages.map((message) => this.row(message));
    this.body.append(...rows);
    this.shown.push(...page.messages);
    this.count += rows.length;
    this.save.hidden = this.count === 0;
    this.cursor = page.cursor;
    this.table.hidden = this.count === 0;
    this.more.hidden = this.cursor === null;
    const cut = this.cursor !== null;
    this.more.textContent = this.count ? "More" : "Go on";
    const shown = this.count ? plural(this.count, "message") : this.empty;
    clear(this.end, cut && this.count ? `${shown} shown; there may be more.` : cut ? "Nothing found so far." : this.count ? `${shown}, all there are.` : shown,
      page.text ? ` ${page.text}` : "");
    if (moveFocus) (rows[0]?.querySelector("a") ?? this.more).focus();
  }

  // Put messages, the oldest of them first, on top of all others; of more than `most` the oldest go.
  addNewest(messages, most) {
    this.body.prepend(...messages.map((message) => this.row(message)).reverse());
    this.shown.unshift(...[...messages].reverse());
    this.shown.length = Math.min(this.shown.length, most);
    while (this.body.childNodes.length > most) this.body.lastChild.remove();
    this.count = this.shown.length;
    this.table.hidden = this.save.hidden = this.count === 0;
  }

  row(message) {
    const place = { offset: message.physicalOffset };
    const open = link("message", place, time(message.storeTimestamp));
    open.className = "open";
    open.title = utc(message.storeTimestamp);
    const note = [message.foundBy && `by ${message.foundBy}`, message.stage !== "delivered" && [message.stage, message.outcome].filter(Boolean).join(": "),
      message.reconsumeTimes > 0 && plural(message.reconsumeTimes, "retry", "retries")].filter(Boolean);
    return el("tr", { class: message.damage ? "damaged" : null, onclick: rowClicked },
      el("td", { class: "stored" }, open),
      el("td", { class: "topic" }, foreign(message.topic)),
      el("td", { class: "queue" }, String(message.queueId)),
      el("td", { class: "offset" }, number(message.queueOffset)),
      el("td", { class: "keys" }, message.keys.map((key) => foreign(key, { class: "key" }))),
      el("td", { class: "tag" }, message.tags ? foreign(message.tags, { class: "chip" }) : null),
      el("td", { class: "body" },
        message.damage ? el("span", { class: "chip error", title: message.damage }, "damaged") : null,
        note.map((text) => el("span", { class: "chip quiet" }, text)),
        message.match ? matched(message.match) : message.preview === null ? el("span", { class: "muted" }, "no text") : foreign(message.preview)),
      el("td", { class: "size" }, bytes(message.totalSize)));
  }
}

// What a search looked for, marked, with the text around it.
const matched = ([before, match, behind]) => [foreign(before), el("mark", {}, foreign(match)), foreign(behind)];

// The whole line opens the message, unless text in it was selected or something in it was meant.
function rowClicked(event) {
  if (event.target.closest("a, button") || !getSelection().isCollapsed) return;
  event.currentTarget.querySelector("a.open").click();
}

// j and k: the next or previous line that can be opened, in whatever list there is.
export function moveSelection(step) {
  const lines = [...document.querySelectorAll("main a.open")].filter((line) => line.offsetParent !== null);
  if (!lines.length) return;
  const at = lines.indexOf(document.activeElement);
  const next = at < 0 ? (step > 0 ? 0 : lines.length - 1) : at + step;
  if (next >= lines.length) {
    const more = document.querySelector("main button.more:not([hidden])");
    more?.focus();
    return;
  }
  lines[Math.max(next, 0)].focus();
  lines[Math.max(next, 0)].scrollIntoView({ block: "nearest" });
}

export const messageAddress = (physicalOffset) => address("message", { offset: physicalOffset });
