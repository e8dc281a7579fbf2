// Views and their addresses: every view has one, back and forward work, and a view that was left is as it was left.

import { currentCharset, setBroker, setCharset } from "./api.js";
import { announce, clear, el, notice } from "./dom.js";
import { chosenZone, isZone, setZone } from "./format.js";
import { readLink } from "./links.js";

const KEPT = 12;
const views = new Map(); // name → function (parameters, context)
const left = new Map(); // key of a history entry → {nodes, scroll, context}
let current = null; // the context of the view that is shown

// What a view works with: where it draws, and a signal that ends its questions when it is left.
class Context {
  constructor(key, main, parameters) {
    this.key = key;
    this.main = main;
    this.parameters = parameters;
    this.isDone = false; // whether it was drawn to its end, and can be shown again as it is
    this.redraw = null; // draws what is there with times in another zone, if the view can
    this.resume();
  }

  resume() { this.controller = new AbortController(); }
  get signal() { return this.controller.signal; }
  get isShown() { return current === this; }
}

export const register = (name, draw) => views.set(name, draw);
export const shownView = () => current;

export function go(place, { replace = false } = {}) {
  const key = replace && history.state ? history.state.key : `${Date.now()}.${Math.random()}`;
  keep();
  if (replace) { left.delete(key); history.replaceState({ ...history.state, key }, "", place); }
  else history.pushState({ key, depth: (history.state?.depth ?? 0) + 1 }, "", place);
  show();
}

// Give the view another address without drawing it anew.
export function rename(place) { history.replaceState(history.state, "", place); }

// Back to the view before, never out of the page.
export function back() { if (history.state?.depth) history.back(); }

// How things are shown: a part of every address, and kept by the browser under the same name.
const CHOICES = {
  zone: { now: chosenZone, set: setZone, isGood: isZone },
  charset: { now: currentCharset, set: setCharset, isGood: () => true }, // the server knows which there are
};

function kept(name) {
  try { return localStorage.getItem(name); } catch { return null; }
}

// Show all in a zone or charset from now on, null for what is shown without a choice. The view is drawn anew, as those are
// that were left; for another zone one that was long at work draws what it has.
export function choose(name, value) {
  try { if (value) localStorage.setItem(name, value); else localStorage.removeItem(name); } catch { /* until it is left */ }
  CHOICES[name].set(value);
  if (name === "zone" && current.redraw) {
    rename(placeAsChosen());
    dispatchEvent(new Event("view"));
    current.redraw();
  } else go(placeAsChosen(), { replace: true });
  left.clear();
}

function placeAsChosen(from = location.href) {
  const place = new URL(from, location.href);
  for (const [name, { now }] of Object.entries(CHOICES)) {
    if (now()) place.searchParams.set(name, now()); else place.searchParams.delete(name);
  }
  return place.pathname + place.search;
}

// What the link has, or what was chosen last, which is then in the address too: everybody who gets it sees the same.
function takeChoices(query) {
  for (const [name, { set, isGood }] of Object.entries(CHOICES)) {
    const asked = query.get(name);
    set(asked && isGood(asked) ? asked : kept(name));
  }
  if (Object.entries(CHOICES).some(([name, { now }]) => now() && !query.get(name))) rename(placeAsChosen());
}

export function start() {
  if (!history.state?.key) history.replaceState({ key: `${Date.now()}` }, "", location.href);
  history.scrollRestoration = "manual";
  addEventListener("popstate", () => {
    keep();
    rename(placeAsChosen()); // what was chosen since holds for the views before, too
    show();
  });
  document.addEventListener("click", follow);
  document.querySelector("a.skip").addEventListener("click", (event) => {
    event.preventDefault(); // to another place in the page is a step in the history too, and would draw the view anew
    document.getElementById("main").focus();
  });
  show();
}

function follow(event) {
  const anchor = event.target.closest?.("a[data-go]");
  if (!anchor || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(placeAsChosen(anchor.getAttribute("href")));
}

function keep() {
  if (!current) return;
  current.controller.abort();
  left.delete(current.key);
  if (!current.isDone) return;
  left.set(current.key, {
    nodes: [...current.main.childNodes], scroll: scrollY, context: current, title: document.title,
    focus: current.main.contains(document.activeElement) ? document.activeElement : null,
  });
  while (left.size > KEPT) left.delete(left.keys().next().value);
}

function show() {
  const main = document.getElementById("main");
  const key = history.state?.key ?? "";
  const name = location.pathname.slice(1) || "topics";
  for (const anchor of document.querySelectorAll("nav a")) {
    anchor.toggleAttribute("aria-current", anchor.dataset.view === name);
  }
  announce("");
  const query = new URLSearchParams(location.search);
  setBroker(query.get("broker"));
  takeChoices(query);
  dispatchEvent(new Event("view"));
  const known = left.get(key);
  if (known) {
    left.delete(key);
    current = known.context;
    current.resume();
    clear(main, known.nodes);
    document.title = known.title;
    scrollTo(0, known.scroll);
    known.focus?.focus({ preventScroll: true });
    return;
  }
  const { parameters, wrong } = readLink(name, location.search);
  for (const choice of Object.keys(CHOICES)) delete parameters[choice]; // how things are shown, not what is asked for
  const context = new Context(key, main, parameters);
  current = context;
  clear(main, wrong.map((text) => notice(text, "error")));
  scrollTo(0, 0);
  document.title = "RocketLens";
  draw(name, context);
}

async function draw(name, context) {
  const view = views.get(name);
  try {
    if (view) await view(context.parameters, context);
    else throw new Error("There is no such view.");
    context.isDone = !context.signal.aborted;
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!context.isShown) return;
    if (!context.main.querySelector("h1")) context.main.prepend(el("h1", {}, `${name[0].toUpperCase()}${name.slice(1)}`));
    context.main.append(notice(error.message, "error"));
  }
}
