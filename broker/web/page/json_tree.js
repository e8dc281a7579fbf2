// JSON as a tree that folds: made of the lines that the server has indented, so that every number stays as it is written.

import { el, foreign } from "./dom.js";
import { plural } from "./format.js";

const OPEN_LEVELS = 6; // deeper levels are folded at first
const MOST_FOLDS = 5000; // a text with more lists and objects than a browser draws in a moment stays a text

const BEGINS = /[[{]$/;
const ENDS = /^\s*[\]}],?$/;

// A list or object folds away; its first line stays, and says how much is in it. A string ends with its quotation mark, so
// only a bracket that is JSON's own stands at the end of a line, or begins one.
export function jsonTree(text) {
  const lines = text.split("\n");
  if (lines.filter((line) => BEGINS.test(line)).length > MOST_FOLDS) return el("pre", { tabindex: 0 }, foreign(text));
  const node = el("div", { class: "json-tree mono", tabindex: 0, role: "group", "aria-label": "JSON" });
  const stack = [{ node, count: 0 }];
  let plain = [];
  const put = () => {
    if (plain.length) stack.at(-1).node.append(el("div", { class: "lines" }, foreign(plain.join("\n"))));
    plain = [];
  };
  for (const line of lines) {
    if (ENDS.test(line) && stack.length > 1) {
      plain.push(line);
      put();
      const { count, folded } = stack.pop();
      const isList = line.trim()[0] === "]";
      folded.append(` ${isList ? plural(count, "element") : plural(count, "field")} ${line.trim()}`);
      continue;
    }
    stack.at(-1).count += 1;
    if (BEGINS.test(line)) {
      put();
      const folded = el("span", { class: "folded" });
      const fold = el("details", { open: stack.length <= OPEN_LEVELS }, el("summary", {}, foreign(line), folded));
      stack.at(-1).node.append(fold);
      stack.push({ node: fold, count: 0, folded });
    } else plain.push(line);
  }
  put();
  return node;
}

// Buttons that fold and unfold all but the outermost level of the tree that `tree` gives.
export function foldButtons(tree) {
  const inner = () => [...tree().querySelectorAll("details details")];
  return [["Fold", false], ["Unfold", true]].map(([name, open]) =>
    el("button", { type: "button", onclick: () => { for (const each of inner()) each.open = open; } }, `${name} all`));
}
