// Topics that complete as you type: their names come from the server, in the browser's own list of suggestions.

import { ask, pause } from "./api.js";
import { clear, el } from "./dom.js";

const PAUSE = 150; // ms without a key until names are asked for
const MOST = 20;
const LONGEST = 100; // what is longer is an id

let lists = 0;

// Give an input the names of topics that contain what stands in it. Returns the list, which must be put beside the input.
export function completeTopics(input, shortest = 1) {
  const list = el("datalist", { id: `topics-${lists += 1}` });
  let typing = null;
  input.setAttribute("list", list.id);
  input.addEventListener("input", async () => {
    typing?.abort();
    typing = new AbortController();
    const text = input.value.trim();
    if (text.length < shortest || text.length > LONGEST) { clear(list); return; }
    try {
      await pause(PAUSE, typing.signal);
      const answer = await ask("/topics", { contains: text, limit: MOST }, typing.signal);
      clear(list, answer.topics.filter((each) => each.topic !== text).map((each) => el("option", { value: each.topic })));
    } catch { clear(list); } // the next key, or no names: what is typed counts
  });
  return list;
}
