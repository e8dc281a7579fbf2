// Light topics by their parent: how many, what they hold, and how far groups are behind in them.

import { ask } from "./api.js";
import { clear, el, foreign, link } from "./dom.js";
import { number, percent, plural } from "./format.js";
import { Work } from "./work.js";

const NAMES = ["Parent topic", "Light topics", "Messages", "Expired", "Not consumed yet"];

export async function lightView(parameters, context) {
  document.title = "Light topics · RocketLens";
  const parents = new Map(); // by name, the numbers of all answers added
  const body = el("tbody");
  const table = el("table", { class: "topics stacked" }, el("thead", {}, el("tr", {}, NAMES.map((text, at) => el("th", { scope: "col", class: at ? "number" : null }, text)))), body);
  const work = new Work(context, "Light topics looked at");
  const said = el("p", { class: "end", role: "status" });
  table.hidden = true;
  context.main.append(el("div", { class: "bar" }, el("h1", {}, "Light topics"), link("topics", {}, "all topics")), work.node, table, said);
  let looked = 0;
  const stopped = await work.run(async (cursor, signal) => {
    const answer = await ask("/light-topics", { cursor }, signal);
    for (const each of answer.parents) add(parents, each);
    looked += answer.lookedAt;
    table.hidden = parents.size === 0;
    clear(body, [...parents.values()].map(row));
    return { cursor: answer.cursor, part: answer.total ? looked / answer.total : 1, text: `${percent(looked, answer.total)} looked at` };
  }, null);
  clear(said, parents.size ? `${plural(looked, "light topic")} of ${plural(parents.size, "parent")}${stopped === null ? "." : "; not all were looked at."}` : "There are no light topics that you may see.");
}

function add(parents, each) {
  const known = parents.get(each.parent);
  if (!known) { parents.set(each.parent, { ...each }); return; }
  for (const name of ["count", "messages", "expired", "unreadable"]) known[name] += each[name];
  known.lag = known.lag === null || each.lag === null ? null : known.lag + each.lag;
}

function row(each) {
  const cell = (name, content) => el("td", { class: "number", "data-name": name }, content);
  return el("tr", {},
    el("td", {}, each.parent === null ? el("span", { class: "muted" }, "not known any more") : link("topic", { topic: each.parent }, foreign(each.parent))),
    cell("light topics", number(each.count)), cell("messages", number(each.messages)),
    cell("expired", `${number(each.expired)}${each.unreadable ? `, ${number(each.unreadable)} unreadable` : ""}`),
    cell("not consumed", each.lag === null ? "not known" : number(each.lag)));
}
