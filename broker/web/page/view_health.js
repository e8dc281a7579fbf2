// The store's health: what is wrong, what it means, how to fix it, and a picture of what log, queues and index cover.

import { ask } from "./api.js";
import { announce, clear, copyButton, el, foreign, guarded, link, notice } from "./dom.js";
import { duration, number, plural, time } from "./format.js";
import { Picture } from "./picture.js";

const STATES = { live: "a broker runs on it", crashed: "its broker crashed, or it was copied while the broker ran", stopped: "stopped cleanly", closed: "not all of it can be opened, so nothing else was looked at" };
const ASK_AGAIN = 700;

const isByTime = () => new URLSearchParams(location.search).get("over") === "time";

export async function healthView(_parameters, context) {
  document.title = "Health · RocketLens";
  const head = el("div", { class: "bar" }, el("h1", {}, "Health"));
  const summary = el("span", { role: "status" });
  const bar = el("progress", { max: 1, value: 0, "aria-label": "Examination" });
  const text = el("span", { class: "progress-text" });
  const stop = el("button", { type: "button", class: "stop" }, "Stop");
  const work = el("div", { class: "work" }, bar, text, stop);
  const again = el("button", { type: "button" }, "Examine again");
  const shown = el("div");
  let stopped = false;
  work.hidden = true;
  stop.addEventListener("click", () => { stopped = true; });
  again.addEventListener("click", guarded(() => examine(0)));
  head.append(summary, again);
  context.main.append(head, work, shown);

  // Not asking again stops the examination: the server gives up what no client waits for.
  async function examine(maximumAge) {
    stopped = false;
    let hasFocus = document.activeElement === again;
    again.disabled = true;
    try {
      for (let turn = 0; ; turn += 1) {
        const answer = await ask("/health", { maximumAge: turn ? 3600 : maximumAge }, context.signal);
        if (answer.state === "running" && !stopped) {
          work.hidden = false;
          bar.value = answer.stepsDone / answer.steps;
          text.textContent = `examining ${answer.step}, ${duration(answer.seconds * 1000)}`;
          if (answer.outcome && !shown.childNodes.length) draw(answer.outcome, summary, shown, isByTime());
          await new Promise((resolve) => { setTimeout(resolve, ASK_AGAIN); });
          continue;
        }
        hasFocus ||= context.main.contains(document.activeElement);
        if (answer.state === "failed") clear(shown, notice(answer.problem, "error"));
        else if (answer.outcome) draw(answer.outcome, summary, shown, isByTime());
        else clear(shown, notice("Stopped before there was a result."));
        if (stopped) announce("stopped");
        return;
      }
    } finally {
      const held = hasFocus || work.contains(document.activeElement);
      work.hidden = true;
      again.disabled = false;
      if (held && !context.main.contains(document.activeElement)) again.focus(); // what had the focus is gone
    }
  }

  await examine(30);
}

function draw(outcome, summary, shown, isByTime) {
  const count = (severity) => outcome.findings.filter((finding) => finding.severity === severity).length;
  const verdict = outcome.isClean ? el("span", { class: "chip good" }, "nothing is wrong") : [
    count("error") ? el("span", { class: "chip error" }, plural(count("error"), "error")) : null,
    count("warning") ? el("span", { class: "chip warning" }, plural(count("warning"), "warning")) : null];
  clear(summary, verdict, el("span", { class: "muted" }, ` ${STATES[outcome.state]}; ${plural(outcome.segments, "segment")}, ${plural(outcome.indexFiles, "index file")}`,
    outcome.unindexedMessages ? `, ${plural(outcome.unindexedMessages, "message")} not in the index` : "",
    `; examined ${time(outcome.examinedTimestamp, false)} in ${duration(outcome.seconds * 1000)}`));
  clear(shown, new Picture(outcome.picture, isByTime).node, findings(outcome.findings));
}

function findings(list) {
  if (!list.length) return el("p", { class: "muted" }, "There are no findings.");
  return el("section", { "aria-label": "Findings" }, el("h2", {}, "Findings"), list.map((finding) => el("article", { class: `finding ${finding.severity}` },
    el("h3", {}, el("span", { class: `chip ${finding.severity === "info" ? "quiet" : finding.severity}` }, finding.severity), " ", foreign(finding.check.replaceAll("_", " ")),
      finding.place ? el("span", { class: "muted mono" }, " ", foreign(finding.place)) : null,
      finding.physicalOffset !== null ? link("message", { offset: finding.physicalOffset }, " look there") : null),
    el("p", {}, foreign(finding.found)),
    finding.meaning ? el("p", {}, el("b", {}, "Means: "), foreign(finding.meaning)) : null,
    finding.severity === "info" ? null : el("p", {}, el("b", {}, "Mends it: "), remedy(finding.remedy)))));
}

// A command, alone or behind what there is to say of it, is one that can be copied.
function remedy(text) {
  const at = text.search(/(^|: )rocketlens /);
  if (at < 0) return foreign(text);
  const start = at ? at + 2 : 0;
  return [foreign(text.slice(0, start)), foreign(text.slice(start), { class: "mono command" }), copyButton(text.slice(start))];
}
