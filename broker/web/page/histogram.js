// When a topic's messages were stored: bars to click into. Queues are added up as the server counts them.

import { ask } from "./api.js";
import { announce, clear, el, svg } from "./dom.js";
import { duration, number, plural, time } from "./format.js";
import { Work } from "./work.js";

const BUCKETS = 90, WIDTH = 1000, HEIGHT = 110;

let refocus = false; // whether the next histogram is one that the keyboard zoomed into

export class Histogram {
  // `choose` is called with the times of a bar: {begin, end}.
  constructor(context, state, choose) {
    this.context = context;
    this.state = state;
    this.choose = choose;
    this.active = -1;
    this.work = new Work(context, "Queues counted");
    this.drawing = svg("svg", {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", tabindex: 0, onkeydown: (event) => this.pressed(event),
    });
    this.axis = el("div", { class: "axis" });
    this.said = el("div", { class: "said", "aria-live": "polite" });
    this.all = el("button", { type: "button", onclick: () => choose({ begin: null, end: null }) }, "All times");
    this.all.hidden = state.begin === null && state.end === null;
    this.node = el("section", { class: "panel histogram", "aria-label": "Messages over time" }, this.drawing, this.axis, el("div", { class: "row" }, this.said, this.all), this.work.node);
  }

  async load() {
    const { topic, queueId, begin, end } = this.state;
    let question = { topic, queueId, begin, end, buckets: BUCKETS };
    this.counts = null;
    await this.work.run(async (cursor, signal) => {
      const answer = await ask("/histogram", { ...question, cursor }, signal);
      this.begin = answer.begin;
      this.width = answer.width;
      this.counts = this.counts === null ? answer.counts : this.counts.map((count, at) => count + answer.counts[at]);
      // The next queues are counted in the same buckets.
      question = { ...question, begin: this.begin, end: this.begin + this.width * this.counts.length - 1, buckets: Math.max(this.counts.length, 1) };
      this.queues = (cursor === null ? 0 : this.queues) + answer.queues;
      this.draw();
      return { cursor: answer.cursor, part: this.queues / (this.queues + answer.queuesLeft), text: `${number(this.queues)} of ${plural(this.queues + answer.queuesLeft, "queue")} counted` };
    });
    this.draw();
    // Zooming by keyboard goes on from the new bars.
    if (refocus && this.counts.length) this.drawing.focus();
    refocus = false;
  }

  draw() {
    const counts = this.counts ?? [];
    const highest = Math.max(...counts, 1), total = counts.reduce((sum, count) => sum + count, 0);
    const step = WIDTH / Math.max(counts.length, 1), gap = Math.min(step * 0.15, 2);
    clear(this.drawing, counts.flatMap((count, at) => {
      const height = count ? Math.max((count / highest) * (HEIGHT - 4), 2) : 0;
      const bar = svg("rect", { class: "bar", x: at * step + gap / 2, y: HEIGHT - height, width: step - gap, height });
      const target = svg("rect", { class: "target", x: at * step, y: 0, width: step, height: HEIGHT, "data-at": at }, svg("title", {}, this.textAt(at)));
      target.addEventListener("click", () => this.take(at));
      target.addEventListener("pointerenter", () => this.point(at, false));
      return [bar, target];
    }));
    this.drawing.setAttribute("aria-label", `${plural(total, "message")} in bars of ${duration(this.width ?? 0)}. Arrow keys move, Enter zooms into a bar, Backspace shows all times.`);
    const last = this.begin + this.width * counts.length;
    clear(this.axis, counts.length && total ? [0, 0.25, 0.5, 0.75, 1].map((part) => el("span", {}, time(Math.round(this.begin + (last - this.begin) * part), this.width < 1000))) : null);
    clear(this.said, total ? `${plural(total, "message")}, a bar is ${duration(this.width)}` : "No messages here.");
  }

  textAt(at) {
    const begin = this.begin + at * this.width;
    return `${time(begin, this.width < 1000)} – ${time(begin + this.width - 1, this.width < 1000)}: ${plural(this.counts[at], "message")}`;
  }

  point(at, isLoud) {
    this.active = at;
    for (const each of this.drawing.querySelectorAll(".target")) each.classList.toggle("active", Number(each.dataset.at) === at);
    clear(this.said, this.textAt(at));
    if (isLoud) announce(this.textAt(at));
  }

  // Zoom into a bar's time; of one without messages, or as narrow as a time can be, there is no more to see.
  take(at) {
    if (!this.counts[at] || (this.width === 1 && this.counts.length === 1)) { this.point(at, true); return; }
    refocus = document.activeElement === this.drawing;
    const begin = this.begin + at * this.width;
    this.choose({ begin, end: begin + this.width - 1 });
  }

  pressed(event) {
    const count = this.counts?.length ?? 0;
    if (!count) return;
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (move) this.point(Math.min(Math.max(this.active + move, 0), count - 1), true);
    else if (event.key === "Enter" && this.active >= 0) this.take(this.active);
    else if (event.key === "Backspace" && !this.all.hidden) { refocus = true; this.choose({ begin: null, end: null }); }
    else return;
    event.preventDefault();
  }
}
