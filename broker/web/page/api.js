// Questions to the server. Keys, where there have to be any, live in this tab alone and go out as a header.

export class ApiError extends Error {
  constructor(status, detail) {
    super(detail.message);
    this.status = status;
    this.code = detail.code;
    this.parameter = detail.parameter;
    this.similarTopics = detail.similarTopics ?? []; // which may have been meant
  }
}

const KEYS = "rocketlens-keys";
const ASK_AGAIN = 1000;
const PATIENCE = 60_000; // ms until a server that says nothing counts as one that does not answer
const PROXY_ALONE = [502, 503, 504];
let isAbsent = false; // whether the server did not answer last
let keys = read();
let broker = null; // whose store is asked, null for the first
let charset = null; // in which bodies are read, null for UTF-8
let askForKeys = null; // set by the login dialog: resolves when there are keys to try

function read() {
  try { return sessionStorage.getItem(KEYS); } catch { return null; }
}

export function setKeys(accessKey, secretKey) {
  const text = new TextEncoder().encode(`${accessKey}:${secretKey}`);
  keys = accessKey ? btoa(String.fromCharCode(...text)) : null;
  try {
    if (keys) sessionStorage.setItem(KEYS, keys); else sessionStorage.removeItem(KEYS);
  } catch { /* kept until the page is left */ }
}

export const setBroker = (name) => { broker = name || null; };
export const currentBroker = () => broker;
export const setCharset = (name) => { charset = name || null; };
export const currentCharset = () => charset;
export const hasKeys = () => keys !== null;
export const onKeysNeeded = (dialog) => { askForKeys = dialog; };

export async function ask(path, parameters = {}, signal = undefined) {
  const answer = await request(path, parameters, signal);
  return answer.json();
}

// A body, to be kept as a file; with keys a plain link could not fetch it.
export async function askFile(path, parameters, signal = undefined) {
  return (await request(path, parameters, signal)).blob();
}

async function request(path, parameters, signal) {
  const query = new URLSearchParams(broker ? { broker } : {});
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  const place = `/api/v1${path}${text ? `?${text}` : ""}`;
  for (;;) {
    const used = keys;
    const answer = await reach(place, used, signal);
    if (answer.ok) return answer;
    const detail = await explained(answer);
    if (answer.status === 401 && askForKeys) {
      if (used === keys) await askForKeys(used === null ? "" : detail.message);
      if (keys !== null) continue;
    }
    throw new ApiError(answer.status, detail);
  }
}

// A question waits until the server answers, so that each view goes on by itself when it is back; meanwhile all of them
// say the same. A proxy that answers in the server's place counts as silence.
async function reach(place, used, signal) {
  for (;;) {
    const patience = new AbortController();
    const timer = setTimeout(() => patience.abort(), PATIENCE);
    try {
      const answer = await fetch(place, { signal: signal ? AbortSignal.any([signal, patience.signal]) : patience.signal, cache: "no-store", headers: used ? { Authorization: `Basic ${used}` } : {} });
      if (!PROXY_ALONE.includes(answer.status) || answer.headers.get("Content-Type") === "application/json") {
        noteAbsence(false);
        return answer;
      }
    } catch (error) {
      if (signal?.aborted) throw error;
    } finally { clearTimeout(timer); }
    noteAbsence(true);
    await pause(ASK_AGAIN, signal);
  }
}

function noteAbsence(is) {
  if (is === isAbsent) return;
  isAbsent = is;
  dispatchEvent(new CustomEvent("absence", { detail: is }));
}

// Wait for some milliseconds; ends with an AbortError as a question does.
export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const fail = () => reject(new DOMException("left", "AbortError"));
    if (signal?.aborted) { fail(); return; }
    const timer = setTimeout(() => { signal?.removeEventListener("abort", stop); resolve(); }, milliseconds);
    function stop() { clearTimeout(timer); fail(); }
    signal?.addEventListener("abort", stop, { once: true });
  });
}

async function explained(answer) {
  try { return (await answer.json()).error; } catch {
    return { code: "unknown", message: `the server answered ${answer.status}` };
  }
}
