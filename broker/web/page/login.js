// Keys, when the server asks for them: the same access key and secret key that clients of its port sign with.

import { hasKeys, onKeysNeeded, setKeys } from "./api.js";
import { clear, el, field } from "./dom.js";

let open = null; // the promise of the dialog that is open, shared by all questions that wait for it

function askForKeys(problem) {
  open ??= new Promise((resolve) => {
    const access = el("input", { name: "access", autocomplete: "username", required: true, spellcheck: "false" });
    const secret = el("input", { name: "secret", type: "password", autocomplete: "current-password", required: true });
    const said = el("p", { class: "notice error", role: "alert" }, problem);
    said.hidden = !problem;
    const form = el("form", { id: "login" }, said, field("Access key", access), field("Secret key", secret),
      el("div", { class: "row" }, el("button", { class: "primary" }, "Open"), el("button", { type: "button", onclick: () => done() }, "Cancel")));
    const dialog = el("dialog", { class: "login", "aria-label": "Keys" }, el("h2", {}, "This server requires keys"),
      el("p", { class: "muted" }, "Access key and secret key of an account of its --acl file. They stay in this tab until it is closed."), form);
    const done = () => { open = null; dialog.remove(); resolve(); };
    form.addEventListener("submit", (event) => { event.preventDefault(); setKeys(access.value, secret.value); done(); });
    dialog.addEventListener("cancel", done);
    document.body.append(dialog);
    dialog.showModal();
    access.focus();
  });
  return open;
}

export function listen() {
  onKeysNeeded(askForKeys);
  document.getElementById("keys").addEventListener("click", () => {
    setKeys("", "");
    location.assign("/topics");
  });
}

// Show whose keys these are, and let them go.
export function showKeys(accessKey) {
  const button = document.getElementById("keys");
  button.hidden = !hasKeys() || !accessKey;
  clear(button, `${accessKey ?? ""} ⏏`);
  button.setAttribute("aria-label", `Keys of ${accessKey}: forget them`);
}
