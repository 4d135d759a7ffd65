// The message browser: peek, search, one message whole, and what can be done with the chosen ones.

import { el, chip, count, counted, exactly, facts, length, replace, serverNow, size } from "./format.js";
import { KeyedTable } from "./tables.js";
import { act, ask, confirm, quoted, toast } from "./dialogs.js";

const form = document.getElementById("find");
const found = document.getElementById("found");
const actions = document.getElementById("message-actions");
const detail = document.getElementById("message");
const chosen = new Set();
let rows = {}, place = null, next = null, looks = 0, mayChange = false;

export const allowChanges = (may) => { mayChange = may; offer(); };

const table = new KeyedTable(document.getElementById("message-table"), {
  caption: "Messages",
  empty: "Nothing is there.", unknown: "Nothing was looked for yet.",
  order: (a, b) => a.sequence_number.length - b.sequence_number.length, // digits of any number: the table compares them
  columns: [
    { label: "Choose", cell: (row, key) => box(row, key) },
    { label: "Number", kind: "number", cell: (row, key) => el("button", { type: "button", class: "link", data: { act: "show" }, text: row.sequence_number, "aria-label": `Show message ${row.sequence_number}`, on: { click: () => show(key) } }) },
    { label: "Message id", kind: "name", cell: (row) => row.message_id ?? "-" },
    { label: "Session", isOptional: true, cell: (row) => row.session_id ?? "" },
    { label: "Stored", cell: (row) => (row.enqueued_ms === null ? "?" : `${length(serverNow() - row.enqueued_ms / 1000)} ago`) },
    { label: "Size", kind: "number", cell: (row) => size(row.size) },
    { label: "State", cell: (row) => chip(row.state) },
    { label: "Reason", kind: "reason", isOptional: true, cell: (row) => row.dead_letter_reason ?? "" },
  ],
});

function box(row, key) {
  const made = el("input", { type: "checkbox", "aria-label": `Choose message ${row.sequence_number}`, data: { act: "choose" }, on: { change: () => { if (made.checked) chosen.add(key); else chosen.delete(key); offer(); } } });
  made.checked = chosen.has(key);
  return made;
}

// --- looking ---

function asked() {
  const values = Object.fromEntries([...new FormData(form)].filter(([, value]) => String(value).trim()));
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, name === "side" ? value : value.trim()]));
}

async function look(from = null) {
  const wanted = from === null ? asked() : place, mine = ++looks; // further means there, whatever the form says by now
  if (from === null) { rows = {}; chosen.clear(); detail.hidden = true; }
  place = wanted;
  found.textContent = "Looking ...";
  try {
    const said = await ask(`api/messages?${new URLSearchParams({ ...wanted, ...(from === null ? {} : { from }) })}`);
    if (mine !== looks) return; // somebody has looked elsewhere meanwhile: messages of two places must never mix
    for (const each of said.messages) rows[each.sequence_number] = each;
    next = said.next;
    table.texts.empty = said.scanned ? `None of ${count(said.scanned)} messages fits.` : "Nothing is there.";
    const more = next !== null ? " There are more." : said.sessions_left_out ? " There are more sessions: name one." : "";
    found.textContent = `${counted(Object.keys(rows).length, "message")} shown, ${count(said.scanned)} looked at.${more}`;
  } catch (error) {
    if (mine !== looks) return;
    found.textContent = `That did not work: ${error.message}`;
  }
  table.show(rows);
  offer();
}

async function show(key) {
  const mine = looks;
  try {
    const query = new URLSearchParams({ ...whereOf(place), numbers: key, ...(rows[key]?.session_id ? { session: rows[key].session_id } : {}) });
    const said = await ask(`api/message?${query}`);
    if (mine !== looks) return;
    const body = said.body ?? said.body_base64;
    const kind = said.body === undefined ? `${said.body_kind}, in base64` : said.body_kind;
    replace(detail,
      el("div", { class: "bar" }, el("h2", { text: `Message ${said.sequence_number}` }), el("button", { type: "button", text: "Close", on: { click: () => { detail.hidden = true; } } })),
      facts([["id", said.message_id], ["session", said.session_id], ["subject", said.subject], ["correlation", said.correlation_id], ["content type", said.content_type], ["state", said.state], ["stored", said.enqueued_ms === null ? "?" : exactly(said.enqueued_ms / 1000)], ["delivered", said.delivery_count], ["reason", said.dead_letter_reason], ["description", said.dead_letter_description]]),
      el("h3", { text: "Properties" }),
      Object.keys(said.properties).length ? facts(Object.entries(said.properties)) : el("p", { class: "muted", text: "none" }),
      said.unreadable ? facts(Object.entries(said.unreadable).map(([name, why]) => [`${name} (unreadable)`, why])) : null,
      el("h3", { text: `Body: ${kind}, ${size(said.body_bytes)}${said.body_is_whole ? "" : ", the first 64 KB"}` }),
      el("pre", { tabindex: "0", text: body }));
    detail.hidden = false;
    for (const [other, { node }] of table.known) node.classList.toggle("chosen", other === key);
  } catch (error) {
    toast(error.message, true);
  }
}

// --- changing ---

const whereOf = ({ side, entity, subscription, dead_letters }) => ({ side, entity, ...(subscription ? { subscription } : {}), ...(dead_letters ? { dead_letters: "1" } : {}) });
const argumentsOf = (where) => ({ ...where, ...(where.dead_letters ? { dead_letters: true } : {}) });
function commandOf(verb, more = "", numbers = []) {
  const where = [quoted(place.entity), ...numbers, place.subscription ? `--subscription ${quoted(place.subscription)}` : "", place.side === "secondary" ? "--side secondary" : ""];
  return ["twinbus message", verb, ...where, more].filter(Boolean).join(" ");
}

function offer() {
  if (!place || !mayChange || !Object.keys(rows).length) { actions.replaceChildren(); return; }
  const some = counted(chosen.size, "chosen message");
  const buttons = place.dead_letters
    ? [el("button", { type: "button", class: "primary", disabled: !chosen.size, text: `Resubmit ${some}`, on: { click: resubmit } })]
    : [el("button", { type: "button", disabled: !chosen.size, text: `Dead-letter ${some}`, on: { click: deadLetter } })];
  buttons.push(el("button", { type: "button", class: "danger", text: chosen.size ? `Purge ${some}` : "Purge all that fit", on: { click: purge } }));
  if (next !== null) buttons.push(el("button", { type: "button", text: "Look further", on: { click: () => look(next) } }));
  actions.replaceChildren(...buttons);
}

const numbers = () => [...chosen];

async function resubmit() {
  const values = await confirm({
    title: `Resubmit ${counted(chosen.size, "message")}`,
    text: "Each is stored in its queue or topic before it leaves the dead letters. Its id stays; its time to live begins anew.",
    fields: [{ name: "into", label: "Into another queue or topic", placeholder: place.entity, hint: "Empty: where it came from." }],
    command: ({ into }) => commandOf("resubmit", into ? `--into ${quoted(into)}` : "", numbers()),
    button: "Resubmit",
  });
  if (values) await finish("message.resubmit", { numbers: numbers(), into: values.into });
}

async function deadLetter() {
  const values = await confirm({
    title: `Dead-letter ${counted(chosen.size, "message")}`,
    text: "Messages that lie before them are locked for a moment, and given back.",
    fields: [{ name: "why", label: "Reason", required: true }, { name: "description", label: "In more words" }],
    command: ({ why, description }) => commandOf("dead-letter", `--why ${quoted(why || "REASON")}${description ? ` --description ${quoted(description)}` : ""}`, numbers()),
    button: "Dead-letter",
  });
  if (values) await finish("message.dead-letter", { numbers: numbers(), ...values });
}

async function purge() {
  const { side, entity, subscription, dead_letters, ...filters } = place;
  const wanted = chosen.size ? { numbers: numbers() } : filters;
  const isAll = !chosen.size && !Object.keys(filters).length;
  try {
    const query = new URLSearchParams({ ...whereOf(place), ...(chosen.size ? { numbers: numbers().join(",") } : filters) });
    const said = await ask(`api/count?${query}`);
    if (!said.count) { toast("There is nothing to remove."); return; }
    const options = Object.entries(filters).map(([name, value]) => `--${name} ${quoted(value)}`);
    const values = await confirm({
      title: `Remove ${counted(said.count, "message")} for good`,
      text: `From ${entity}${subscription ? `, subscription ${subscription}` : ""}${dead_letters ? ", dead letters" : ""} of the ${side}. They cannot be brought back. What arrives later stays.${said.is_all ? "" : " There are more: this is as many as one purge removes."}`,
      command: () => commandOf("purge", [dead_letters ? "--dead-letters" : "", ...(chosen.size ? [] : options), isAll ? "--all" : ""].filter(Boolean).join(" "), numbers()),
      button: `Remove ${count(said.count)}`, isDanger: true, typed: String(said.count),
    });
    if (values) await finish("message.purge", { ...wanted, ...(isAll ? { all: true } : {}), count: said.count, newest: said.newest });
  } catch (error) {
    toast(error.message, true);
  }
}

async function finish(action, more) {
  const session = place.session ? { session: place.session } : {};
  if (await act(action, { ...argumentsOf(whereOf(place)), ...session, ...more })) await look();
}

form.addEventListener("submit", (event) => { event.preventDefault(); look(); });

/** Go to the browser, to what lies there. */
export function browse(given) {
  for (const field of form.elements) {
    if (!field.name) continue;
    if (field.type === "checkbox") field.checked = Boolean(given[field.name]);
    else field.value = given[field.name] ?? (field.name === "side" ? "primary" : "");
  }
  location.hash = "#messages";
  look();
}

export function setEntityNames(names) {
  document.getElementById("entity-names").replaceChildren(...names.slice(0, 500).map((name) => el("option", { value: name })));
}
