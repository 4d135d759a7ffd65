// Numbers and texts for people, and elements made of them. Nothing here, or anywhere, turns text into markup.

export const MARKS = { good: "✓", bad: "✕", warn: "▲", note: "●", unknown: "?" };

const TONES = {
  healthy: "good", works: "good", answers: "good", ready: "good", running: "good", reporting: "good", open: "good", active: "good",
  "failed over": "bad", failing: "bad", "does not answer": "bad", "refuses the key": "bad", "not ready": "bad", faulted: "bad",
  "cannot be used": "bad",
  suspect: "warn", waiting: "warn", silent: "warn", paused: "warn", "paused after the canary": "warn", "not emptied": "warn",
  stopped: "note", ended: "note", scheduled: "note", deferred: "note",
};
export const tone = (state) => TONES[state] ?? "unknown";

// What cannot be seen, or turns the direction of writing around, is marked, as on a terminal: names may be hostile.
const UNSEEN = /(?![\n\t])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const seen = (text) => String(text).replace(UNSEEN, "·");

/** An element. `given`: attributes; `class`, `text`, `on` (by event) and `data` are special. Children: nodes or texts. */
export function el(tag, given = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") made.className = value;
    else if (name === "text") made.textContent = seen(value);
    else if (name === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
    else if (name === "data") Object.assign(made.dataset, value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== "").map((child) => (child instanceof Node ? child : seen(child))));
  return made;
}

export function chip(state, shown = state) {
  const kind = tone(state);
  return el("span", { class: `chip ${kind}` }, el("span", { "aria-hidden": "true", text: MARKS[kind] }), el("span", { text: shown }));
}

export const count = (value) => (value === null || value === undefined ? "?" : Math.round(value).toLocaleString("en"));
export const atLeast = (exact, least) => (exact !== null && exact !== undefined ? count(exact) : least ? `${count(least)}+` : "?");
export const counted = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "?";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) { bytes /= 1024; unit += 1; }
  return `${unit === 0 || bytes >= 100 ? Math.round(bytes) : bytes.toFixed(1)} ${units[unit]}`;
}

export function length(seconds) {
  if (seconds === null || seconds === undefined) return "?";
  const s = Math.max(0, Math.round(seconds));
  if (s < 90) return `${s} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 129600) return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
  return s < 100 * 86400 ? `${Math.round(s / 86400)} days` : "over three months";
}

export const rate = (value) => (value === null || value === undefined ? "?" : `${value >= 10 || value === 0 ? count(value) : value.toFixed(1)}/s`);

// --- time: the server's clock counts, for its times are shown ---

let ahead = 0;
export const setServerTime = (now) => { ahead = now - Date.now() / 1000; };
export const serverNow = () => Date.now() / 1000 + ahead;

export function clock(at, withSeconds = true) {
  const options = { hour: "2-digit", minute: "2-digit", ...(withSeconds ? { second: "2-digit" } : {}), hour12: false };
  return new Date(at * 1000).toLocaleTimeString("en-GB", options);
}
const isToday = (at) => new Date(at * 1000).toDateString() === new Date(serverNow() * 1000).toDateString();
/** With the date unless it is today's: nights have a midnight. */
export const exactly = (at) => (isToday(at) ? clock(at) : `${new Date(at * 1000).toLocaleDateString("en-GB")} ${clock(at)}`);
export const moment = (at) => (isToday(at) ? clock(at, false) : `${new Date(at * 1000).toLocaleDateString("en-GB")} ${clock(at, false)}`);

/** An element that goes on counting: `age` (how long it is so), `ago`, or `left` (until then). */
export function ticking(at, kind = "age") {
  if (at === null || at === undefined) return el("span", { text: "" });
  const made = el("time", { data: { at: String(at), kind }, title: new Date(at * 1000).toLocaleString("en-GB") });
  tick(made);
  return made;
}
function tick(node) {
  const at = Number(node.dataset.at), now = serverNow();
  const text = { age: () => length(now - at), ago: () => `${length(now - at)} ago`, left: () => (at - now < 1 ? "now" : `in ${length(at - now)}`) }[node.dataset.kind]();
  if (node.textContent !== text) node.textContent = text;
}
export const tickAll = () => document.querySelectorAll("time[data-at]").forEach(tick);

export function facts(pairs) {
  return el("dl", {}, ...pairs.flatMap(([name, value]) => (value === null || value === undefined || value === "" ? [] : [el("dt", { text: name }), el("dd", {}, value)])));
}

export function replace(node, ...children) {
  node.replaceChildren(...children.filter((child) => child !== null && child !== undefined && child !== "").map((child) => (child instanceof Node ? child : seen(child))));
}

/** Unlike `replace` it does nothing if that is said already: what is read aloud is not read again. */
export function say(node, text) {
  const shown = seen(text);
  if (node.textContent !== shown) node.textContent = shown;
}
