// Questions before anything is changed, the request that changes it, and what came of it.

import { el } from "./format.js";

const dialog = document.getElementById("dialog");
const toasts = document.getElementById("toasts");
let proof = "";
export const setProof = (given) => { proof = given; };

export function toast(text, isBad = false) {
  const shown = el("p", { class: `toast${isBad ? " bad" : ""}`, text });
  toasts.append(shown);
  while (toasts.children.length > 4) toasts.firstElementChild.remove();
  setTimeout(() => shown.remove(), isBad ? 15000 : 7000);
}

export async function ask(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error ?? `the console answered ${answer.status}`);
  return said;
}

/** Carry out an action; says what came of it, and returns whether it was done. */
export async function act(action, given) {
  try {
    const answer = await fetch("api/do", {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Twinbus-Proof": proof },
      body: JSON.stringify({ action, arguments: given }),
    });
    const said = await answer.json();
    toast(answer.ok ? said.text : said.error, !answer.ok || said.is_all === false);
    return answer.ok;
  } catch {
    toast("The console does not answer: it is not known whether that was done.", true);
    return false;
  }
}

/**
 * Ask in a dialog; the values of its fields, or null. `fields`: {name, label, type?, value?, options?, required?, hint?}.
 * `command(values)`: what would do the same in a terminal. `typed`: a text that has to be typed first.
 */
export function confirm({ title, text, fields = [], command, button, isDanger = false, typed = null }) {
  return new Promise((resolve) => {
    const inputs = fields.map((field) => [field, input(field)]);
    const line = el("code", { class: "command" });
    const go = el("button", { class: isDanger ? "danger" : "primary", type: "submit", text: button });
    const check = typed === null ? null : el("input", { id: "dialog-typed", autocomplete: "off", spellcheck: "false" });
    const values = () => Object.fromEntries(inputs.map(([field, node]) => [field.name, field.type === "checkbox" ? node.checked : node.value.trim()]));
    const refresh = () => {
      if (command) line.textContent = command(values());
      go.disabled = check !== null && check.value.trim() !== typed;
    };
    const end = (result) => { dialog.close(); resolve(result); };
    const form = el("form", { method: "dialog", on: { input: refresh, submit: (event) => { event.preventDefault(); end(values()); } } },
      el("h2", { id: "dialog-title", text: title }),
      text ? el("p", { text }) : null,
      ...inputs.map(([field, node]) => el("label", { class: field.type === "checkbox" ? "check" : "" }, ...(field.type === "checkbox" ? [node, field.label] : [field.label, node]), field.hint ? el("span", { class: "small", text: field.hint }) : null)),
      check === null ? null : el("label", {}, `Type ${typed} to go on`, check),
      command ? el("div", {}, el("p", { class: "small muted", text: "In a terminal:" }), line) : null,
      el("p", { class: "actions" }, el("button", { type: "button", text: "Cancel", on: { click: () => end(null) } }), go));
    dialog.replaceChildren(form);
    dialog.oncancel = (event) => { event.preventDefault(); end(null); };
    refresh();
    dialog.showModal();
    (form.querySelector("input, select") ?? go).focus();
  });
}

function input(field) {
  if (field.options) return el("select", { name: field.name }, ...field.options.map((each) => el("option", { value: each, text: each, selected: each === field.value })));
  const made = el("input", { name: field.name, type: field.type ?? "text", required: field.required, min: field.min, step: field.step, placeholder: field.placeholder, spellcheck: "false", autocomplete: "off" });
  if (field.type === "checkbox") made.checked = Boolean(field.value);
  else made.value = field.value ?? "";
  return made;
}

/** As a shell takes it. */
export const quoted = (text) => (/^[\w.,:/@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
