// Two lists by consumer group: how far each is behind in each of its topics, and the messages that were given up for it.

import { ask } from "./api.js";
import { address, clear, el, foreign, guarded, link, notice } from "./dom.js";
import { number, plural, time, utc, zone } from "./format.js";
import { rename } from "./router.js";
import { saveButtons } from "./save.js";

const MILLISECONDS = 2000;

export function groupsView(parameters, context) {
  const behind = el("input", { type: "checkbox", checked: parameters.behind === "1" });
  return list(parameters, context, {
    title: "Consumer groups", view: "groups", path: "/groups", choice: el("label", { class: "check" }, behind, "only those that are behind"), changed: [behind],
    names: ["Group", "Topic", "Queues", "Not consumed yet", "Popped"], numbers: 2, empty: "No group that you may see.",
    more: () => ({ behind: behind.checked || null, popped: true }), kept: () => ({ behind: behind.checked ? "1" : null }), row: groupRow,
  });
}

export function deadLettersView(parameters, context) {
  return list(parameters, context, {
    title: "Dead letters", view: "dead-letters", path: "/dead-letters", changed: [], names: ["Group", "Messages", `Last stored (${zone()})`], numbers: 1,
    empty: "No group that you may see has dead letters.", more: () => ({}), kept: () => ({}), row: deadLettersRow,
  });
}

async function list(parameters, context, what) {
  document.title = `${what.title} · RocketLens`;
  const filter = el("input", { type: "search", placeholder: "Part of a name", "aria-label": "Groups whose name contains", value: parameters.contains ?? "", spellcheck: "false" });
  const count = el("span", { class: "muted", role: "status" });
  const body = el("tbody");
  const table = el("table", { class: "topics stacked" }, el("thead", {}, el("tr", {}, what.names.map((text, at) => el("th", { scope: "col", class: at >= what.numbers ? "number" : null }, text)))), body);
  const more = el("button", { type: "button", class: "more", onclick: guarded(() => page()) }, "More");
  const lines = []; // as the API gave them
  const save = saveButtons(what.view, () => lines);
  const problem = el("div");
  let cursor = null, turn = 0;

  async function page() {
    const mine = turn;
    const answer = await ask(what.path, { contains: filter.value.trim(), limit: 100, milliseconds: MILLISECONDS, cursor, ...what.more() }, context.signal);
    if (mine !== turn) return;
    const rows = answer.groups.map(what.row);
    const moves = document.activeElement === more;
    body.append(...rows);
    lines.push(...answer.groups);
    cursor = answer.cursor;
    more.hidden = cursor === null;
    table.hidden = save.hidden = lines.length === 0;
    clear(problem, answer.groupsProblem ? notice(answer.groupsProblem, "warning") : null);
    clear(count, lines.length ? `${plural(lines.length, "line")} shown${cursor ? "; there may be more" : ""}` : cursor ? "none so far; there may be more" : what.empty);
    if (moves) (rows[0]?.querySelector("a.open") ?? more).focus();
  }

  async function anew() {
    turn += 1;
    cursor = null;
    lines.length = 0;
    clear(body);
    rename(address(what.view, { contains: filter.value.trim(), ...what.kept() }));
    try { await page(); } catch (error) { if (error.name !== "AbortError") clear(count, error.message); }
  }

  filter.addEventListener("input", anew);
  for (const each of what.changed) each.addEventListener("change", anew);
  more.hidden = true;
  context.main.append(el("div", { class: "bar" }, el("h1", {}, what.title), filter, what.choice ?? null, count), problem, table, more, save);
  await page();
}

// A row that is pressed anywhere opens what its link leads to.
function line(open, ...cells) {
  open.className = "open";
  return el("tr", { onclick: (event) => { if (!event.target.closest("a") && getSelection().isCollapsed) open.click(); } }, cells);
}

function groupRow(each) {
  const open = each.topic === null ? foreign(each.group) : link("topic", { topic: each.topic }, foreign(each.group));
  const lag = each.isAhead ? "ahead of a queue" : each.lag === null ? "not known" : number(each.lag);
  const cells = [el("td", {}, open), el("td", {}, each.topic === null ? el("span", { class: "muted" }, "has committed nothing") : foreign(each.topic)),
    el("td", { class: "number", "data-name": "queues" }, number(each.queues)),
    el("td", { class: `number ${each.lag === 0 ? "" : "warning"}`, "data-name": "not consumed" }, lag),
    el("td", { class: "number", "data-name": "popped" }, each.popped ? number(each.popped) : "")];
  return each.topic === null ? el("tr", {}, cells) : line(open, cells);
}

function deadLettersRow(each) {
  const open = link("topic", { topic: each.topic }, foreign(each.group));
  return line(open, el("td", {}, open),
    el("td", { class: "number", "data-name": "messages", title: each.problem }, each.messages === null ? "not known" : number(each.messages)),
    el("td", { class: "number", "data-name": "last stored", title: each.lastTimestamp === null ? null : utc(each.lastTimestamp) }, time(each.lastTimestamp, false)));
}
