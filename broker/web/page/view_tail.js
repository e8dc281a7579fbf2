// A topic live: messages as they are stored, the newest on top. The server answers when there is something; a pause is
// not asking again, and what was stored meanwhile comes after it.

import { ask, currentCharset, pause } from "./api.js";
import { address, clear, el, field, foreign, link, notice, similarLinks } from "./dom.js";
import { number, plural } from "./format.js";
import { MessageList } from "./messages.js";
import { go } from "./router.js";

const FIRST = 20; // messages that are there at the start
const MOST = 500; // lines that are kept
const WAIT = 9000; // ms that the server waits for a message
const BREATH = 200; // ms between an answer and the next question, in which a busy topic gathers some messages

export async function tailView(parameters, context) {
  const { topic = "" } = parameters;
  document.title = `Live: ${topic.slice(0, 60)} · RocketLens`;
  const question = { topic, queueId: parameters.queueId, tag: parameters.tag, sql: parameters.sql };
  const asked = { ...question, charset: currentCharset() };
  const said = el("span", { class: "muted" });
  const button = el("button", { type: "button", class: "primary", "aria-pressed": "false" }, "Pause");
  const problem = el("div");
  const list = new MessageList(context, null, { hides: ["topic"] });
  let cursor = null, isPaused = false, resume = null, seen = 0, skipped = 0;

  function say(extra = "") {
    clear(said, isPaused ? "paused" : "waiting for messages", `; ${plural(seen, "message")} since it was opened`,
      skipped ? `, ${number(skipped)} more passed by unseen because they were too many` : "", extra);
  }

  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.textContent = isPaused ? "Go on" : "Pause";
    button.setAttribute("aria-pressed", String(isPaused));
    if (!isPaused) resume?.();
    say();
  });
  context.main.append(
    el("div", { class: "bar" }, el("h1", {}, "Live: ", topic ? link("topic", question, foreign(topic)) : "no topic"), button, said),
    form(question), problem, list.node);

  async function follow(isShown) {
    const answer = await ask("/tail", { ...asked, cursor, wait: cursor ? WAIT : 0 }, context.signal);
    const unseen = answer.messages.filter((message) => !isShown.has(message.physicalOffset));
    seen += unseen.length;
    skipped += answer.skipped;
    cursor = answer.cursor;
    list.addNewest(unseen, MOST);
    say(answer.note ? ` (${answer.note})` : "");
  }

  // What is there comes after the place from which on it is followed, so nothing is missed between the two.
  async function start() {
    const none = new Set();
    await follow(none);
    const newest = await ask("/messages", { ...asked, order: "newest", limit: FIRST }, context.signal);
    list.addNewest(newest.messages.reverse(), MOST);
    const known = new Set(newest.messages.map((message) => message.physicalOffset));
    await follow(known);
    for (;;) {
      await pause(BREATH, context.signal);
      if (isPaused) await new Promise((resolve) => { resume = resolve; });
      await follow(none);
    }
  }

  context.redraw = () => list.redraw();
  say();
  try { await start(); } catch (error) {
    if (error.name === "AbortError") throw error;
    clear(problem, notice(error.message, "error"), el("p", { class: "chips" }, error.similarTopics ? similarLinks("tail", parameters, error) : null));
    clear(said);
    button.hidden = true; // nothing goes on
  }
}

function form(question) {
  const text = (value, more) => el("input", { value: value ?? "", spellcheck: "false", autocomplete: "off", ...more });
  const queue = text(question.queueId, { class: "short", inputmode: "numeric", pattern: "[0-9]*", placeholder: "all" });
  const kind = el("select", {}, el("option", { value: "tag", selected: !question.sql }, "Tag"), el("option", { value: "sql", selected: Boolean(question.sql) }, "SQL92"));
  const filter = text(question.sql ?? question.tag, { class: "wide" });
  const node = el("form", { class: "filters" }, field("Queue", queue), field("Filter", kind), field("Expression", filter),
    el("button", { class: "primary" }, "Follow"), link("tail", { topic: question.topic }, "Clear"));
  const hint = () => { filter.placeholder = kind.value === "tag" ? "TagA || TagB" : "a > 5 AND region = 'hz'"; };
  kind.addEventListener("change", hint);
  hint();
  node.addEventListener("submit", (event) => {
    event.preventDefault();
    const chosen = filter.value.trim() || null;
    go(address("tail", { topic: question.topic, queueId: queue.value.trim(), tag: kind.value === "tag" ? chosen : null, sql: kind.value === "sql" ? chosen : null }));
  });
  return node;
}
