// The start: views by name, the box, the colours, the footer.

import { ask, setBroker } from "./api.js";
import { listen as listenToChoices } from "./choices.js";
import { completeTopics } from "./complete.js";
import { address, announce, clear, el, foreign } from "./dom.js";
import { bytes, plural, time } from "./format.js";
import { listen as listenToKeyboard, showHelp } from "./keyboard.js";
import { listen as listenForKeys, showKeys } from "./login.js";
import { go, register, start } from "./router.js";
import { topicsView } from "./view_topics.js";

// The first view comes with the page, the others when it is drawn, so that they are there also when the server is not.
const OTHERS = [];

function later(file, name) {
  OTHERS.push(file);
  return async (parameters, context) => {
    let view;
    try { view = (await import(`/page/${file}`))[name]; } catch {
      await ask("/store", {}, context.signal); // waits until the server is back; what a browser failed to import stays failed
      location.reload();
      return;
    }
    await view(parameters, context);
  };
}

register("topics", topicsView);
register("find", later("view_find.js", "findView"));
register("message", later("view_message.js", "messageView"));
register("topic", later("view_topic.js", "topicView"));
register("tail", later("view_tail.js", "tailView"));
register("search", later("view_search.js", "searchView"));
register("groups", later("view_groups.js", "groupsView"));
register("dead-letters", later("view_groups.js", "deadLettersView"));
register("light-topics", later("view_light.js", "lightView"));
register("pending", later("view_pending.js", "pendingView"));
register("space", later("view_space.js", "spaceView"));
register("health", later("view_health.js", "healthView"));

const THEMES = [undefined, "dark", "light"];

function nextTheme() {
  const root = document.documentElement;
  const next = THEMES[(THEMES.indexOf(root.dataset.theme) + 1) % THEMES.length];
  if (next) root.dataset.theme = next; else delete root.dataset.theme;
  try { if (next) localStorage.setItem("theme", next); else localStorage.removeItem("theme"); } catch { /* until it is left */ }
  announce(next ? `${next} colours` : "the system's colours");
}

function listenToBox() {
  const form = document.getElementById("box"), text = document.getElementById("text");
  form.append(completeTopics(text, 2));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = text.value.trim();
    if (wanted) { text.blur(); go(address("find", { text: wanted })); }
  });
}

// The store's line, and whether server and store are there, on every view; asked for with each view and now and then.
const DESCRIBE_AGAIN = 10_000;
let describing = null, isAbsent = false, isRefused = false, gone = null;

async function describeStore() {
  describing?.abort();
  describing = new AbortController();
  try {
    const store = await ask("/store", {}, describing.signal);
    gone = store.gone;
    isRefused = false;
    showState();
    chooseBroker(store);
    const parts = [`${store.brokerName} · ${store.cluster}`];
    if (store.state) parts.push({ live: "a broker runs on it", crashed: "crashed, or copied while live", stopped: "stopped" }[store.state]);
    if (store.log) {
      parts.push(`${bytes(store.log.end - store.log.minimum)} in ${plural(store.log.segments, "segment")}`);
      if (store.log.lastTimestamp) parts.push(`last message ${time(store.log.lastTimestamp, false)}`);
    }
    parts.push(`RocketLens ${store.version}`);
    clear(document.getElementById("store"), foreign(parts.join("  ·  ")));
    showKeys(store.accessKey);
  } catch (error) {
    isRefused = error.status === 401; // then keys are not asked for again and again
    if (error.name !== "AbortError") document.getElementById("store").textContent = error.message;
  }
}

function showState() {
  const said = isAbsent ? "The server does not answer. What is shown is what it said before; this page goes on when it is back."
    : gone ? `The store is gone: ${gone}` : null;
  const state = document.getElementById("state");
  if (state.textContent !== (said ?? "")) clear(state, said === null ? null : el("p", { class: "notice error" }, foreign(said)));
}

addEventListener("absence", (event) => {
  isAbsent = event.detail;
  showState();
  if (!isAbsent) { announce("the server answers again"); describeStore(); }
});
setInterval(() => { if (document.visibilityState === "visible" && !isAbsent && !isRefused) describeStore(); }, DESCRIBE_AGAIN);

// Where several stores are served, which of them; the others are a choice away.
function chooseBroker(store) {
  const select = document.getElementById("broker");
  select.hidden = store.brokers.length < 2;
  clear(select, store.brokers.map((name) => el("option", { value: name, selected: name === store.brokerName }, name)));
  for (const anchor of document.querySelectorAll("header a[data-go]")) {
    anchor.setAttribute("href", address(anchor.dataset.view ?? "topics"));
  }
}

document.getElementById("broker").addEventListener("change", (event) => {
  setBroker(event.target.value);
  go(address("topics"));
});
document.getElementById("theme").addEventListener("click", nextTheme);
document.getElementById("help").addEventListener("click", showHelp);
listenForKeys();
listenToKeyboard();
listenToBox();
listenToChoices();
addEventListener("view", describeStore);
start();
setTimeout(() => { for (const file of OTHERS) import(`/page/${file}`).catch(() => {}); }, 1000);
