// What is there of the log, and what queues and index know of it: over offsets, or over time.

import { address, clear, el, svg } from "./dom.js";
import { bytes, number, percent, time } from "./format.js";
import { rename } from "./router.js";

const WIDTH = 1000, LANE = 30, GAP = 14, SMALLEST = 2.5;

export class Picture {
  constructor(picture, isByTime = false) {
    this.picture = picture;
    this.isByTime = isByTime && picture.times.length > 1 && picture.times.at(-1)[1] > picture.times[0][1];
    this.shown = el("div");
    this.tabs = el("div", { role: "tablist", class: "tabs", "aria-label": "Over" });
    this.node = el("section", { class: "panel picture" }, el("div", { class: "bar" }, el("h2", {}, "Coverage"), this.tabs), this.shown);
    this.draw();
  }

  draw() {
    const { picture } = this;
    const length = picture.end - picture.minimum;
    if (length <= 0) { clear(this.shown, el("p", { class: "muted" }, "The log is empty.")); return; }
    const hasTimes = picture.times.length > 1 && picture.times.at(-1)[1] > picture.times[0][1];
    clear(this.tabs, [["over offsets", false], ["over time", true]].filter(([, byTime]) => !byTime || hasTimes).map(([name, byTime]) => el("button", {
      type: "button", role: "tab", "aria-selected": byTime === this.isByTime ? "true" : "false", onclick: () => { this.isByTime = byTime; rename(address("health", { over: byTime ? "time" : null })); this.draw(); },
    }, name)));
    const lanes = [["Log", picture.log, "log"], ["Queues", picture.queues, "queues"], ["Index", picture.index, "index"]];
    const at = this.isByTime ? (offset) => this.byTime(offset) : (offset) => ((offset - picture.minimum) / length) * WIDTH;
    const labels = el("div", { class: "lane-names" }, lanes.map(([name, ranges]) => el("div", {}, el("b", {}, name), el("span", { class: "muted" }, covered(ranges, length)))));
    const height = lanes.length * LANE + (lanes.length - 1) * GAP;
    const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": this.inWords(lanes, length) },
      svg("defs", {}, svg("pattern", { id: "stripes", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("rect", { class: "damage", width: 3, height: 6 }))),
      lanes.map(([name, ranges, kind], lane) => {
        const y = lane * (LANE + GAP);
        return svg("g", {}, svg("rect", { class: "lane", x: 0, y, width: WIDTH, height: LANE }),
          ranges.map(([start, stop]) => piece(kind, name, start, stop, at, y)),
          picture.damaged.map(([start, stop]) => damage(start, stop, at, y, lane === 0)));
      }));
    clear(this.shown, el("div", { class: "lanes" }, labels, el("div", {}, drawing, el("div", { class: "axis" }, this.marks()))),
      picture.damaged.length ? el("p", {}, el("span", { class: "swatch damage" }), ` damaged or missing: ${picture.damaged.slice(0, 12).map(([start, stop]) => `${number(start)} – ${number(stop)} (${bytes(stop - start)})`).join(", ")}${picture.damaged.length > 12 ? `, and ${picture.damaged.length - 12} more` : ""}`) : null);
  }

  // Where an offset lies between the first time and the last: between two messages in proportion.
  byTime(offset) {
    const { times } = this.picture;
    const first = times[0][1], last = times.at(-1)[1];
    let right = times.findIndex(([each]) => each >= offset);
    if (right < 0) right = times.length - 1;
    const left = Math.max(right - 1, 0);
    const [[from, begin], [to, end]] = [times[left], times[right]];
    const part = to > from ? Math.min(Math.max((offset - from) / (to - from), 0), 1) : 1;
    const moment = offset >= times.at(-1)[0] ? last : begin + (end - begin) * part;
    return ((moment - first) / (last - first)) * WIDTH;
  }

  marks() {
    const { minimum, end, times } = this.picture;
    return [0, 0.25, 0.5, 0.75, 1].map((part) => {
      if (this.isByTime) return el("span", {}, time(times[0][1] + (times.at(-1)[1] - times[0][1]) * part, false));
      const offset = Math.round(minimum + (end - minimum) * part);
      const near = times.reduce((best, each) => (Math.abs(each[0] - offset) < Math.abs(best[0] - offset) ? each : best), times[0] ?? [0, null]);
      return el("span", {}, number(offset), el("small", {}, near[1] === null ? "" : time(near[1], false)));
    });
  }

  inWords(lanes, length) {
    const damaged = this.picture.damaged.length;
    return `${lanes.map(([name, ranges]) => `${name}: ${covered(ranges, length)}`).join("; ")}${damaged ? `; ${damaged} damaged or missing` : ""}`;
  }
}

function covered(ranges, length) {
  return percent(ranges.reduce((sum, [start, stop]) => sum + stop - start, 0), length);
}

function piece(kind, name, start, stop, at, y) {
  const x = at(start);
  return svg("rect", { class: kind, x, y, width: Math.max(at(stop) - x, 0.5), height: LANE }, svg("title", {}, `${name}: ${number(start)} – ${number(stop)}, ${bytes(stop - start)}`));
}

function damage(start, stop, at, y, isLog) {
  const width = Math.max(at(stop) - at(start), SMALLEST);
  const x = Math.min(at(start), WIDTH - width);
  return svg("rect", { class: isLog ? "damage" : "damage-below", x, y: isLog ? y - 3 : y, width, height: isLog ? LANE + 6 : LANE },
    svg("title", {}, `Damaged or missing: ${number(start)} – ${number(stop)}, ${bytes(stop - start)}`));
}
