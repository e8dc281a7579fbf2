// Long actions in steps: the server answers each question in about a second, as far as it came, with a cursor. Progress is
// shown after each, and stopping is not asking again.

import { announce, el } from "./dom.js";

export class Work {
  // `label` names the progress bar for screen readers.
  constructor(context, label) {
    this.context = context;
    this.bar = el("progress", { max: 1, value: 0, "aria-label": label });
    this.text = el("span", { class: "progress-text" });
    this.button = el("button", { type: "button", class: "stop", onclick: () => this.stop() }, "Stop");
    this.node = el("div", { class: "work" }, this.bar, this.text, this.button);
    this.node.hidden = true;
    this.isRunning = false;
    this.isStopped = false;
  }

  stop() {
    this.isStopped = true;
    this.controller?.abort();
  }

  // Ask `step(cursor, signal)` again and again until it returns no cursor; it returns {cursor, part, text}. Returns where
  // it was stopped ("" for the start), null when it was not.
  async run(step, cursor = null) {
    if (this.isStopped) announce("");
    this.isStopped = false;
    this.isRunning = true;
    const late = setTimeout(() => { this.node.hidden = false; }, 250); // what is quick needs no progress
    try {
      for (;;) {
        this.controller = new AbortController();
        const signal = AbortSignal.any([this.context.signal, this.controller.signal]);
        let result;
        try { result = await step(cursor, signal); }
        catch (error) {
          if (error.name === "AbortError" && this.isStopped) return cursor ?? "";
          throw error;
        }
        this.bar.value = Math.min(Math.max(result.part ?? 0, 0), 1);
        this.text.textContent = result.text ?? "";
        cursor = result.cursor;
        if (cursor === null || result.isEnough) return cursor;
        if (this.isStopped) return cursor;
      }
    } finally {
      clearTimeout(late);
      this.isRunning = false;
      this.node.hidden = true;
      if (this.isStopped) announce("stopped");
    }
  }
}
