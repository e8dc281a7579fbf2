// A body: as text, as JSON indented, in hex; as much of it as was sent, and all of it as a file.

import { ask, askFile, currentCharset } from "./api.js";
import { charsetChoice } from "./choices.js";
import { address, announce, clear, copyButton, el, foreign, notice } from "./dom.js";
import { bytes, number } from "./format.js";
import { foldButtons, jsonTree } from "./json_tree.js";
import { rename } from "./router.js";
import { keep } from "./save.js";

const HEX_BYTES = 16 * 1024;
const MORE_BYTES = 4 * 1024 * 1024;

// The fields of a message that are about its body, as one thing; a body in the API is text or base64.
export function bodyOf(message) {
  const isText = message.bodyEncoding === "text";
  return {
    kind: message.bodyKind, size: message.bodySize, storedSize: message.bodyStoredSize, shown: message.bodyShown,
    compression: message.bodyCompression, packings: message.bodyPackings, formatted: message.bodyFormatted,
    looksLike: message.bodyLooksLike, note: message.bodyNote, error: message.bodyError,
    text: isText && message.bodyKind !== "empty" ? message.body : null,
    base64: isText ? message.bodyBytes : message.body,
  };
}

let refocus = false; // whether the next body is drawn because its charset was chosen

// `place` identifies the message whose body it is; null for one of several in a record.
export function bodyPanel(first, place, context) {
  let body = first;
  const shown = el("div", { class: "body-text" });
  const tabs = el("div", { role: "tablist", class: "tabs", "aria-label": "Forms of the body" });
  const size = el("span", { class: "muted" });
  const tools = el("div", { class: "row" });
  const charset = place && body.kind !== "empty" ? charsetChoice(() => { refocus = true; }) : "";
  if (charset && refocus) queueMicrotask(() => charset.focus()); // once it is a part of the page
  refocus = false;
  const panel = el("section", { class: "panel body-panel" },
    el("div", { class: "bar" }, el("h2", {}, "Body"), tabs, charset, size), shown, tools);
  let form = body.formatted !== null ? "JSON" : body.text !== null ? "Text" : "Hex";
  if (place && offered(body).includes(context.parameters.form)) form = context.parameters.form;

  // The chosen form is a part of the message's address.
  function choose(name) {
    form = name;
    if (place) rename(address("message", Object.assign(context.parameters, { form })));
    draw();
  }

  function draw() {
    const isFocused = tabs.contains(document.activeElement);
    clear(tabs, offered(body).map((name) => el("button", {
      type: "button", role: "tab", "aria-selected": name === form ? "true" : "false", onclick: () => choose(name),
    }, name)));
    if (isFocused) tabs.querySelector("[aria-selected=true]").focus();
    clear(size, described(body));
    clear(shown, body.error ? notice(`It cannot be decompressed or unpacked: ${body.error}. This is what is there instead.`, "error") : null,
      body.note ? notice(`${body.note}.`) : null,
      body.looksLike ? notice(`It looks like ${body.looksLike.toUpperCase()}: choose that charset above to read it.`) : null, content(body, form));
    const isCut = body.shown < body.size;
    clear(tools,
      isCut ? el("span", { class: "muted" }, `The first ${bytes(body.shown)} of ${bytes(body.size)} are shown.`) : null,
      isCut && place && body.shown < MORE_BYTES ? el("button", { type: "button", onclick: more }, `Show up to ${bytes(MORE_BYTES)}`) : null,
      place && body.size ? el("button", { type: "button", onclick: save }, "Download") : null,
      body.text !== null && !isCut ? copyButton(body.text) : null,
      shown.querySelector(".json-tree details details") ? foldButtons(() => shown) : null);
  }

  async function more() {
    try {
      body = bodyOf(await ask("/message", { ...place, bodyLimit: MORE_BYTES, charset: currentCharset() }, context.signal));
      draw();
    } catch (error) { announce(error.message); }
  }

  async function save() {
    try { keep(await askFile("/message/body", { ...place, unpacked: true }, context.signal), `message-${place.offset}${body.kind === "json" ? ".json" : body.kind === "text" ? ".txt" : ".bin"}`); }
    catch (error) { announce(error.message); }
  }

  draw();
  return panel;
}

const offered = (body) => [body.formatted !== null ? "JSON" : null, body.text !== null ? "Text" : null, body.kind === "empty" ? null : "Hex"].filter(Boolean);

function described(body) {
  if (body.kind === "empty") return "empty";
  const compression = body.compression ? `, ${bytes(body.storedSize)} as stored (${body.compression})` : "";
  const packed = body.packings.length ? `, unpacked (${body.packings.join(", ")})` : "";
  return `${body.kind}, ${number(body.size)} ${body.size === 1 ? "byte" : "bytes"}${compression}${packed}`;
}

function content(body, form) {
  if (body.kind === "empty") return el("p", { class: "muted" }, "The body is empty.");
  if (form === "Hex") return el("pre", { class: "hex", tabindex: 0 }, hexDump(bytesOf(body)));
  if (form === "JSON") return jsonTree(body.formatted);
  return el("pre", { tabindex: 0 }, foreign(body.text));
}

// The bytes that were sent: text of UTF-8 encodes to what it was, of what is anything else the bytes come too.
function bytesOf(body) {
  if (body.base64 === null) return new TextEncoder().encode(body.text);
  return Uint8Array.from(atob(body.base64), (character) => character.charCodeAt(0));
}

function hexDump(data) {
  const lines = [];
  for (let at = 0; at < Math.min(data.length, HEX_BYTES); at += 16) {
    const row = [...data.subarray(at, at + 16)];
    const hex = row.map((each) => each.toString(16).padStart(2, "0"));
    const text = row.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : "·")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.slice(0, 8).join(" ").padEnd(24)} ${hex.slice(8).join(" ").padEnd(24)} ${text}`);
  }
  if (data.length > HEX_BYTES) lines.push(`… the first ${number(HEX_BYTES)} bytes; Download has all`);
  return lines.join("\n");
}
