// Elements from data. Text goes in as text nodes alone, and no attribute that could run or load anything is ever set
// from a message: what a store holds is shown, never interpreted.

import { currentBroker, currentCharset } from "./api.js";
import { chosenZone } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

// Characters that change the order of others, or cannot be seen: shown by name, so that nothing hides behind them.
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

export function el(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(3).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

// A text of unknown origin: isolated from the text around it, its hidden characters visible.
export function foreign(text, properties = {}) {
  const node = el("bdi", properties);
  let last = 0;
  for (const found of text.matchAll(HIDDEN)) {
    const code = found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    node.append(text.slice(last, found.index), el("span", { class: "hidden-character", title: `U+${code}` }, `U+${code}`));
    last = found.index + found[0].length;
  }
  node.append(text.slice(last));
  return node;
}

// The address of a view; parameters that are empty are left out. It names the broker if that is not the first, the time
// zone if that is not the browser's, and the charset of bodies if that is not UTF-8.
export function address(view, parameters = {}) {
  const broker = currentBroker();
  const query = new URLSearchParams(broker ? { broker } : {});
  for (const [name, value] of Object.entries({ ...parameters, zone: chosenZone(), charset: currentCharset() })) {
    if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  return `/${view}${text ? `?${text}` : ""}`;
}

export function link(view, parameters, ...content) {
  return el("a", { href: address(view, parameters), "data-go": true }, ...content);
}

export function clear(node, ...children) {
  node.replaceChildren(...children.flat(3).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

// A label and its control, for a form.
export function field(label, control, hint = "") {
  return el("label", { class: "field", title: hint || null }, el("span", {}, label), control);
}

export function notice(text, kind = "") {
  return el("p", { class: `notice ${kind}`, role: kind === "error" ? "alert" : null }, foreign(text));
}

// Links to the same view of the topics that may have been meant by one that is not there.
export function similarLinks(view, parameters, { similarTopics }) {
  return similarTopics.map((topic) => link(view, { ...parameters, topic }, foreign(topic)));
}

// A handler that asks the server: an error is announced, unless the view was left.
export function guarded(work) {
  return async (...args) => {
    try { return await work(...args); } catch (error) {
      if (error.name !== "AbortError") announce(error.message);
      return undefined;
    }
  };
}

export function announce(text) {
  document.getElementById("status").textContent = text;
}

// A button that copies a text; the text itself stays selectable beside it.
export function copyButton(text) {
  return el("button", {
    type: "button", class: "copy", title: "Copy", "aria-label": "Copy",
    onclick: async (event) => {
      const button = event.currentTarget;
      try {
        await navigator.clipboard.writeText(text);
        button.dataset.done = "yes";
        announce("copied");
        setTimeout(() => delete button.dataset.done, 1200);
      } catch { announce("the browser does not allow copying here"); }
    },
  }, svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("rect", { x: 5.5, y: 5.5, width: 8, height: 8, rx: 1.5 }), svg("path", { d: "M3.5 10.5h-1v-8h8v1" })));
}
