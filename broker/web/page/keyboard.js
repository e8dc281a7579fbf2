// The keyboard: / finds, j and k move, Enter opens, Esc goes back, ? helps.

import { address, el } from "./dom.js";
import { moveSelection } from "./messages.js";
import { back, go } from "./router.js";

const HELP = [
  ["/", "to the box: any id, offset, key or tag"],
  ["j  k", "next and previous line"],
  ["Enter", "open the line"],
  ["Esc", "out of the box, or back to where you came from"],
  ["m", "more of the list"],
  ["t  s  g  l  p  u  h", "topics, search, groups, dead letters, pending, space used, health"],
  ["←  →", "in a histogram: the bar before and after; Enter takes its time, Backspace all of it"],
  ["z", "to the time zone"],
  ["d", "dark, light, or as the system"],
  ["?", "this help"],
];

let helpDialog = null;

export function showHelp() {
  helpDialog ??= document.body.appendChild(el("dialog", { class: "help", "aria-label": "Keyboard help" },
    el("h2", {}, "Keyboard"),
    el("dl", {}, HELP.map(([keys, text]) => [el("dt", {}, keys.split("  ").map((key) => el("kbd", {}, key))), el("dd", {}, text)])),
    el("form", { method: "dialog" }, el("button", { autofocus: true }, "Close"))));
  // Without a form's action: its button closes the dialog, and the policy allows no other.
  helpDialog.querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); helpDialog.close(); });
  if (!helpDialog.open) helpDialog.showModal();
}

const ACTIONS = {
  "/": () => { const box = document.getElementById("text"); box.focus(); box.select(); },
  j: () => moveSelection(1),
  k: () => moveSelection(-1),
  m: () => document.querySelector("main button.more:not([hidden])")?.click(),
  t: () => go(address("topics")),
  s: () => go(address("search")),
  g: () => go(address("groups")),
  l: () => go(address("dead-letters")),
  p: () => go(address("pending")),
  u: () => go(address("space")),
  h: () => go(address("health")),
  z: () => {
    const zone = document.getElementById("zone"), { top, bottom } = zone.getBoundingClientRect();
    zone.focus({ preventScroll: top >= 0 && bottom <= innerHeight }); // else the foot would take the view along
  },
  d: () => document.getElementById("theme").click(),
  "?": showHelp,
};

export function listen() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (document.querySelector("dialog[open]")) return;
    const target = event.target;
    const isTyping = target.matches?.("input, textarea, select, [contenteditable]");
    if (event.key === "Escape") {
      if (isTyping) target.blur();
      else back();
      return;
    }
    if (isTyping) {
      if (event.key === "ArrowDown" && target.id === "text") { event.preventDefault(); target.blur(); moveSelection(1); }
      return;
    }
    const action = ACTIONS[event.key];
    if (action) { event.preventDefault(); action(); }
  });
}
