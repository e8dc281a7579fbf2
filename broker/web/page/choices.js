// How things are shown, whatever they are: the time zone of times and the charset of bodies. Both are chosen at the foot of
// the page and stand in each address; the browser keeps them.

import { currentCharset } from "./api.js";
import { announce, el } from "./dom.js";
import { browserZone, zone } from "./format.js";
import { choose } from "./router.js";

const UTF_8 = "utf-8";
const CHARSETS = [UTF_8, "gbk", "gb18030", "big5", "shift_jis", "euc_jp", "euc_kr", "latin-1", "windows-1252", "windows-1251", "koi8-r", "utf-16-le", "utf-16-be"];

// Zones are offered all only while the choice has the focus, for they are hundreds.
const zones = (isAsked) => [browserZone(), "UTC", zone(), ...(isAsked ? Intl.supportedValuesOf("timeZone") : [])];
const charset = () => currentCharset() ?? UTF_8;

// Make the options of a choice those that are wanted; what is there stays, for it may just be chosen.
function offer(select, wanted, now) {
  const names = new Set(wanted), offered = new Set();
  for (const option of [...select.options]) if (names.has(option.value)) offered.add(option.value); else option.remove();
  select.append(...[...names].filter((name) => !offered.has(name)).map((name) => el("option", { value: name }, name)));
  select.value = now;
}

function offerZones() {
  const select = document.getElementById("zone");
  offer(select, zones(document.activeElement === select), zone());
}

function offerCharsets(select) { offer(select, [...CHARSETS, charset()], charset()); }

function chooseCharset(name) {
  choose("charset", name === UTF_8 ? null : name);
  announce(`bodies: ${name}`);
}

// A choice of the charset beside a body; `before` is called before all is drawn in the charset that was chosen.
export function charsetChoice(before) {
  const select = el("select", { class: "charset", "aria-label": "Charset of bodies", onchange: () => { before(); chooseCharset(select.value); } });
  offerCharsets(select);
  return select;
}

export function listen() {
  const zoneSelect = document.getElementById("zone"), charsetSelect = document.getElementById("charset");
  zoneSelect.addEventListener("focus", offerZones);
  zoneSelect.addEventListener("blur", offerZones);
  zoneSelect.addEventListener("change", () => {
    const name = zoneSelect.value;
    choose("zone", name === browserZone() ? null : name);
    announce(`times: ${name}`);
  });
  charsetSelect.addEventListener("change", () => chooseCharset(charsetSelect.value));
  addEventListener("view", () => { offerZones(); offerCharsets(charsetSelect); });
}
