// The start: views by name, the box, the colours, the footer.

import { ask, currentBroker } from "./api.js";
import { address, announce, clear, el, foreign } from "./dom.js";
import { bytes, plural, time, zone } from "./format.js";
import { listen as listenToKeyboard, showHelp } from "./keyboard.js";
import { listen as listenForKeys, showKeys } from "./login.js";
import { go, register, start } from "./router.js";
import { topicsView } from "./view_topics.js";

// The first view comes with the page, the others when they are opened.
const later = (file, name) => async (parameters, context) => (await import(`/page/${file}`))[name](parameters, context);

register("topics", topicsView);
register("find", later("view_find.js", "findView"));
register("message", later("view_message.js", "messageView"));
register("topic", later("view_topic.js", "topicView"));
register("search", later("view_search.js", "searchView"));
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
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = text.value.trim();
    if (wanted) { text.blur(); go(address("find", { text: wanted })); }
  });
}

// The store's line, on every view; requested again when another store is selected.
let described = {};

async function describeStore() {
  if (described.broker === currentBroker()) return;
  described = { broker: currentBroker() };
  try {
    const store = await ask("/store");
    chooseBroker(store);
    const parts = [`${store.brokerName} · ${store.cluster}`];
    if (store.state) parts.push({ live: "a broker runs on it", crashed: "crashed, or copied while live", stopped: "stopped" }[store.state]);
    if (store.log) {
      parts.push(`${bytes(store.log.end - store.log.minimum)} in ${plural(store.log.segments, "segment")}`);
      if (store.log.lastTimestamp) parts.push(`last message ${time(store.log.lastTimestamp, false)}`);
    }
    parts.push(`times: ${zone()}`, `RocketLens ${store.version}`);
    clear(document.getElementById("store"), foreign(parts.join("  ·  ")));
    showKeys(store.accessKey);
  } catch (error) { document.getElementById("store").textContent = error.message; }
}

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
  const place = new URL(location.href);
  place.pathname = "/topics";
  place.search = `?${new URLSearchParams({ broker: event.target.value })}`;
  go(place.pathname + place.search);
});
document.getElementById("theme").addEventListener("click", nextTheme);
document.getElementById("help").addEventListener("click", showHelp);
listenForKeys();
listenToKeyboard();
listenToBox();
addEventListener("view", describeStore);
start();
