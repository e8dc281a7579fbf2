// The first view: all topics, counted as far as that is quick, and what is the matter with the store at first sight.

import { ask } from "./api.js";
import { address, clear, el, foreign, guarded, link, notice } from "./dom.js";
import { number, plural, time, utc, zone } from "./format.js";
import { rename } from "./router.js";
import { saveButtons } from "./save.js";

export async function topicsView(parameters, context) {
  document.title = "Topics · RocketLens";
  const filter = el("input", { type: "search", placeholder: "Part of a name", "aria-label": "Topics whose name contains", value: parameters.contains ?? "", spellcheck: "false" });
  const own = el("input", { type: "checkbox", checked: parameters.system === "1" });
  const count = el("span", { class: "muted", role: "status" });
  const light = link("light-topics", {}, "light topics by their parent");
  light.hidden = true;
  const matter = el("div");
  const body = el("tbody");
  const table = el("table", { class: "topics stacked" }, el("thead", {}, el("tr", {}, ["Topic", "Kind", "Queues", "Messages", `Last stored (${zone()})`].map((text, at) => el("th", { scope: "col", class: at > 1 ? "number" : null }, text)))), body);
  const more = el("button", { type: "button", class: "more", onclick: guarded(() => page()) }, "More");
  const save = saveButtons("topics", () => [...lines.values()]);
  const lines = new Map(); // the topics that are shown, by name, as the API gave them
  let cursor = null, shown = 0, turn = 0;

  async function page() {
    const mine = turn;
    const question = { contains: filter.value.trim(), limit: 100, cursor };
    const answer = await ask("/topics", question, context.signal);
    if (mine !== turn) return;
    const rows = new Map(answer.topics.filter((topic) => own.checked || topic.kind !== "system").map((topic) => [topic.topic, row(topic)]));
    body.append(...rows.values());
    for (const topic of answer.topics) if (rows.has(topic.topic)) lines.set(topic.topic, topic);
    shown += rows.size;
    if (answer.topics.some((topic) => topic.topic.startsWith("%LMQ%"))) light.hidden = false;
    cursor = answer.cursor;
    more.hidden = cursor === null;
    table.hidden = save.hidden = shown === 0;
    clear(count, `${number(shown)} of ${plural(answer.total, "topic")} shown${cursor ? "; there are more" : own.checked || shown === answer.total ? "" : ", the broker's own left out"}`);
    // Counting opens every queue, so it comes after what can be shown at once.
    // Ask again for the counts that there was no time for, as long as more of them come.
    for (let done = -1, all = answer.topics.length; done < all;) {
      const counted = await ask("/topics", { ...question, counts: true, milliseconds: 2000 }, context.signal);
      if (mine !== turn) return;
      const known = counted.topics.filter((topic) => topic.messages !== null);
      for (const topic of known) if (rows.has(topic.topic)) { fillCounts(rows.get(topic.topic), topic); lines.set(topic.topic, topic); }
      if (known.length <= done) return;
      done = known.length;
    }
  }

  async function anew() {
    turn += 1;
    cursor = null;
    shown = 0;
    clear(body);
    lines.clear();
    rename(address("topics", { contains: filter.value.trim(), system: own.checked ? "1" : null }));
    try { await page(); } catch (error) { if (error.name !== "AbortError") clear(count, error.message); }
  }

  filter.addEventListener("input", anew);
  own.addEventListener("change", anew);
  more.hidden = true;
  context.main.append(
    el("div", { class: "bar" }, el("h1", {}, "Topics"), filter, el("label", { class: "check" }, own, "the broker's own"), light, count),
    matter, table, more, save);
  ask("/store", {}, context.signal).then((store) => clear(matter, problems(store))).catch(() => {});
  await page();
}

function row(topic) {
  const open = link("topic", { topic: topic.topic }, foreign(topic.topic));
  open.className = "open";
  return el("tr", { onclick: (event) => { if (!event.target.closest("a") && getSelection().isCollapsed) open.click(); } },
    el("td", {}, open),
    el("td", {}, topic.kind === "normal" ? null : el("span", { class: "chip quiet" }, topic.kind)),
    el("td", { class: "number", "data-name": "queues" }, number(topic.queues)),
    el("td", { class: "number count", "data-name": "messages" }, topic.messages === null ? "…" : number(topic.messages)),
    el("td", { class: "number last" }));
}

// In place: the line may have the focus.
function fillCounts(line, topic) {
  line.querySelector(".count").textContent = number(topic.messages);
  const last = line.querySelector(".last");
  last.textContent = time(topic.lastTimestamp, false);
  last.title = utc(topic.lastTimestamp);
}

function problems(store) {
  const lines = [];
  if (store.incomplete) lines.push(notice(`Searches may miss something: ${store.incomplete}`, "warning"));
  const problems = store.problems.filter((text) => text !== store.gone); // which stands above every view
  if (problems.length) {
    const count = problems.length + store.problemsLeftOut;
    lines.push(el("details", { class: "notice warning" }, el("summary", {}, `${plural(count, "problem")} with this store; `, link("health", {}, "what they mean")),
      el("ul", {}, problems.map((text) => el("li", {}, foreign(text)))),
      store.problemsLeftOut ? el("p", {}, `${number(store.problemsLeftOut)} more are not listed.`) : null));
  }
  if (store.refused.length) {
    lines.push(el("details", { class: "notice warning" }, el("summary", {}, "Clients were refused by --acl; to those up to 4.9 and in Go a refused route looks like a missing topic"),
      el("ul", {}, store.refused.map((each) => el("li", {}, each.account ? ["account ", foreign(each.account, { class: "mono" })] : "a client", " lacks ", foreign(each.lacks),
        each.add ? ["; add to plain_acl.yml: ", foreign(each.add, { class: "mono" })] : null,
        ` (${plural(each.count, "request")}, the last ${time(each.lastTimestamp, false)})`)))));
  }
  return lines;
}
