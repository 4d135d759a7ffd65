// The page: listens to the stream of state, and draws what has changed.

import { MARKS, atLeast, chip, clock, count, counted, el, exactly, facts, length, moment, rate, replace, say, serverNow, setServerTime, size, tickAll, ticking, tone } from "./format.js";
import { KeyedTable } from "./tables.js";
import { draw } from "./plots.js";
import { act, ask, confirm, quoted, setProof, toast } from "./dialogs.js";
import { allowChanges, browse, setEntityNames } from "./browser.js";
import { showToken, takeToken } from "./token.js";

const SILENT_MS = 10000;
const ROWS = new Set(["entities", "queues", "processes", "syphons", "quarantine", "spools", "proxies", "faults", "events", "history", "sources"]);
const $ = (id) => document.getElementById(id);
const part = (id, selector) => $(id).querySelector(selector);

let state = {}, about = {}, mayChange = false, heardAt = performance.now(), lostAt = null;
const dirty = new Set();

// --- the state, as the stream tells it ---

function apply(changes) {
  for (const [name, change] of Object.entries(changes)) {
    if (!ROWS.has(name)) { state[name] = change.value; dirty.add(name); continue; }
    const rows = { ...state[name], ...change.rows };
    for (const key of change.gone) delete rows[key];
    state[name] = rows;
    dirty.add(name);
  }
}

let isScheduled = false;
function schedule() {
  if (isScheduled) return;
  isScheduled = true;
  requestAnimationFrame(() => {
    isScheduled = false;
    const drawn = new Set([...dirty].flatMap((name) => DRAWS[name] ?? []));
    dirty.clear();
    for (const each of drawn) each();
    document.body.classList.remove("loading");
  });
}

let current = null;
function listen() {
  current?.close();
  heardAt = performance.now();
  const stream = current = new EventSource("api/stream");
  const heard = (event) => {
    heardAt = performance.now();
    const said = JSON.parse(event.data);
    setServerTime(said.now);
    return said;
  };
  stream.addEventListener("about", (event) => { about = heard(event); state = {}; back(); });
  stream.addEventListener("changes", (event) => { apply(heard(event).changes); schedule(); });
  stream.addEventListener("beat", heard);
  stream.addEventListener("error", async () => {
    if (stream !== current) return;
    lost();
    if (stream.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    stream.close();
    setTimeout(async () => {
      try {
        if ((await fetch("api/session")).status === 401) { location.reload(); return; }
      } catch { /* it is still away */ }
      if (stream === current) listen();
    }, 2000);
  });
}

function lost() {
  if (lostAt !== null) return;
  lostAt = serverNow() - (performance.now() - heardAt) / 1000;
  document.body.classList.add("stale");
  $("link").className = "pill bad";
  $("link").textContent = "✕ disconnected";
  $("offline").hidden = false;
  $("offline").textContent = `Disconnected since ${clock(lostAt)}. What you see is as of then. The console is tried again all the time; if it was started again, open its new address.`;
  document.title = "disconnected - twinbus console";
}

async function back() {
  lostAt = null;
  document.body.classList.remove("stale");
  $("offline").hidden = true;
  $("link").className = "pill good";
  $("link").textContent = "✓ live";
  say($("pair-name"), `${about.primary} → ${about.secondary}`);
  try {
    const session = await ask("api/session");
    setProof(session.proof);
    mayChange = session.allows_changes;
  } catch { mayChange = false; }
  $("mode").textContent = mayChange ? "may change things" : "only shows";
  $("mode").className = `pill ${mayChange ? "warn" : ""}`;
  $("mode").title = mayChange ? "Started with --allow-changes" : "Start it with --allow-changes to have buttons";
  allowChanges(mayChange);
  tables.quarantine.redraw();
  for (const each of Object.values(DRAWS).flat()) each();
}

setInterval(() => {
  if (performance.now() - heardAt > SILENT_MS) { lost(); listen(); } // a connection may be dead without an end
  tickAll();
  drawAges();
}, 1000);

// --- how old it is: what is too old is marked, and green no more ---

const isOld = (source) => source?.at != null && serverNow() > source.stale_at;

function drawAges() {
  for (const node of document.querySelectorAll(".as-of")) {
    const sources = node.dataset.of.split(",").map((name) => state.sources?.[name]).filter(Boolean);
    sources.sort((a, b) => (a.at ?? 0) - (b.at ?? 0)); // those that were never seen are first
    const oldest = sources.find(isOld) ?? sources[0], old = isOld(oldest), why = oldest?.problem ? `: ${oldest.problem}` : "";
    node.parentElement.classList.toggle("old", old);
    const age = oldest?.at == null ? (why ? `not seen yet${why}` : "") : `${length(serverNow() - oldest.at)} ago`;
    say(node, old ? `▲ As of ${exactly(oldest.at)}, ${age}${why}` : age);
  }
  if (isOld(state.sources?.["the pair"]) !== $("verdict").classList.contains("old")) drawVerdict();
}

// --- verdict and answers ---

const BIG = { no: ["No sign of it", "good"], risk: ["At risk", "bad"], unknown: ["Not known", ""] };

function drawVerdict() {
  const pair = state.verdict?.pair;
  if (!pair) return;
  const old = isOld(state.sources?.["the pair"]), kind = old ? "unknown" : tone(pair.state);
  $("verdict").className = `verdict ${kind} ${old ? "old" : ""}`;
  part("verdict", ".mark").textContent = MARKS[kind];
  const word = old ? `Not known now, was ${pair.state}` : pair.state[0].toUpperCase() + pair.state.slice(1);
  say($("verdict-word"), word);
  replace($("verdict-since"), pair.since ? el("span", {}, `since ${moment(pair.since)}, `, ticking(pair.since)) : null);
  say($("verdict-text"), pair.reason);
  replace($("verdict-unknown"), ...(pair.reasons.length ? pair.unknown : []).slice(0, 4).map((each) => el("li", { text: `Not known: ${each}` })));
  replace($("verdict-at"), "Looked at both namespaces ", ticking(pair.at, "ago"), ".");
  document.title = `${old ? "not known" : pair.state} - ${about.primary ?? "twinbus"}`;
}

function answer(id, big, kind, text) {
  const place = part(id, ".big");
  place.className = `big ${kind}`;
  replace(place, big);
  replace(part(id, ".text"), text);
}

function drawAnswers() {
  const { advice, backlog } = state;
  if (advice) {
    const [word, kind] = BIG[advice.loss.state];
    answer("answer-loss", word, kind, advice.loss.text);
    const at = advice.home.seconds;
    answer("answer-home", at === null ? advice.home.word ?? "Not known" : at === 0 ? "It is home" : `At ${clock(serverNow() + at, false)}`, at === 0 ? "good" : "", advice.home.text);
    replace(part("answer-todo", "ol"), ...(advice.todo.length ? advice.todo.map(step) : [el("li", { class: "none", text: "✓ Nothing." })]));
  }
  if (backlog) {
    const all = (rows, of) => Object.values(rows ?? {}).reduce((sum, row) => sum + of(row), 0);
    const spooled = all(state.spools, (row) => row.messages), reported = all(state.processes, (row) => (row.state === "reporting" ? row.spooled ?? 0 : 0));
    const aside = Math.max(spooled, reported); // those of this machine may report on the board, too
    const waits = backlog.waiting ?? backlog.waiting_at_least, isEmpty = backlog.waiting === 0;
    const more = [backlog.oldest_age !== null && waits ? `the oldest for ${length(backlog.oldest_age)}` : "", backlog.size !== null && waits ? size(backlog.size) : "", backlog.full_in !== null ? `full in ${length(backlog.full_in)} at this rate` : "", aside ? `${counted(aside, "message")} in spools` : ""].filter(Boolean);
    const word = waits ? `${atLeast(backlog.waiting, backlog.waiting_at_least)} messages` : aside ? counted(aside, "message") : isEmpty ? "Nothing" : "Not known";
    const known = isEmpty ? "The backlog is empty." : backlog.doubt ?? "Not all of the backlog can be looked into.";
    answer("answer-waiting", word, waits || aside ? "warn" : isEmpty ? "good" : "", more.join(", ") || known);
  }
}

const BUTTONS = { "fault.clear": "Clear it", "syphon.resume": "Resume it" };
function step({ text, command, action, key, link }) {
  const [side, id] = key.split("/");
  const press = () => act(action, action === "fault.clear" ? { side, id } : { syphon: key });
  return el("li", {}, el("span", { text: `${text} ` }),
    link ? el("a", { href: link, text: "There", on: { click: (event) => { event.preventDefault(); document.querySelector(link).scrollIntoView(); } } }) : null,
    action && mayChange ? el("button", { type: "button", text: BUTTONS[action], on: { click: press } }) : null,
    command ? el("code", { text: command }) : null);
}

function drawSides() {
  const sides = state.sides ?? {}, metered = state.meter?.sides ?? {};
  replace(part("sides", ".pairs"), ...["primary", "secondary"].filter((side) => sides[side]).map((side) => {
    const row = sides[side], meter = metered[side];
    return el("div", {}, el("h3", { text: `${side}: ${row.name}` }), el("p", {}, chip(row.state), " ", row.since ? el("span", { class: "small" }, "for ", ticking(row.since)) : null),
      facts([["address", el("code", { text: row.address })], ["problem", row.reason], ["connections", meter ? count(meter.connections) : null], ["disk", meter?.full_disk]]));
  }));
}

// --- tables ---

const WORST = ["failed over", "failing", "faulted", "suspect", "silent", "waiting", "unknown", "works", "healthy", "reporting", "ended"];
const byState = (a, b) => WORST.indexOf(a.state) - WORST.indexOf(b.state) || (b.waiting_at_least ?? 0) - (a.waiting_at_least ?? 0) || a.name.localeCompare(b.name);
const has = (id) => (row) => { const wanted = $(id).value.trim().toLowerCase(); return !wanted || [row.name, row.state, row.reason ?? ""].some((each) => each.toLowerCase().includes(wanted)); };
const works = (given) => {
  if (!given) return el("span", { class: "unsure", text: "?" });
  const [mark, word, kind] = given.works === true ? ["✓", "works", "yes"] : given.works === false ? ["✕", "fails", "no"] : ["?", "unknown", "unsure"];
  return el("span", { class: kind, title: given.why ?? word }, el("span", { "aria-hidden": "true", text: mark }), el("span", { class: "hidden", text: word }));
};
const sayers = (row) => {
  const all = row.failed_over + row.suspect + row.healthy;
  if (!all) return state.fleet?.has_board === false ? "" : el("span", { class: "unsure", text: "-" });
  const some = [row.failed_over ? `${row.failed_over} failed over` : "", row.suspect ? `${row.suspect} suspect` : "", row.cannot_receive ? `${row.cannot_receive} cannot receive` : "", row.cannot_manage ? `${row.cannot_manage} cannot manage` : ""].filter(Boolean).join(", ");
  return el("span", { title: row.who.map((each) => `${each.process}: ${each.state}`).join("\n"), text: some ? `${some}, of ${all}` : `${all} healthy` });
};

const tables = {
  entities: new KeyedTable(part("entities", ".table"), {
    caption: "Queues and topics of the primary", empty: "No queue or topic to show.", order: byState, fits: has("entities-find"),
    columns: [
      { label: "Name", kind: "name", cell: (row) => el("a", { href: "#messages", data: { act: "browse" }, text: row.name, on: { click: (event) => { event.preventDefault(); browse({ side: "primary", entity: row.name }); } } }) },
      { label: "State", cell: (row) => chip(row.state) },
      { label: "Since", kind: "when", cell: (row) => (row.since ? [`${moment(row.since)}, `, ticking(row.since)] : "") },
      { label: "Send", cell: (row) => works(row.sending) },
      { label: "Receive", cell: (row) => works(row.receiving) },
      { label: "Manage", cell: (row) => works(row.managing) },
      { label: "In backlog", kind: "number", cell: (row) => atLeast(row.waiting, row.waiting_at_least) },
      { label: "Processes say", isOptional: true, cell: sayers },
      { label: "Next ping", isOptional: true, cell: (row) => (row.next_ping ? ticking(row.next_ping, "left") : "") },
      { label: "Why", kind: "reason", cell: (row) => row.reason },
    ],
  }),
  queues: new KeyedTable(part("backlog", ".table"), {
    caption: "Backlog queues", empty: "All backlog queues work, and are empty.",
    order: (a, b) => (b.messages ?? b.at_least) - (a.messages ?? a.at_least) || a.name.localeCompare(b.name, "en", { numeric: true }),
    fits: (row) => $("queues-all").checked || row.state !== "open" || row.messages !== 0 || Boolean(row.quarantined_at_least),
    columns: [
      { label: "Queue", kind: "name", cell: (row) => el("a", { href: "#messages", data: { act: "browse" }, text: row.name, on: { click: (event) => { event.preventDefault(); browse({ side: "secondary", entity: row.name }); } } }) },
      { label: "State", cell: (row) => chip(row.state) },
      { label: "Messages", kind: "number", cell: (row) => atLeast(row.messages, row.at_least) },
      { label: "Oldest", kind: "number", cell: (row) => (row.oldest_age === null ? (row.messages === 0 ? "" : "?") : length(row.oldest_age)) },
      { label: "Size", kind: "number", cell: (row) => size(row.size) },
      { label: "Room left", kind: "number", cell: (row) => room(row) },
      { label: "Quarantined", kind: "number", cell: (row) => atLeast(row.quarantined, row.quarantined_at_least) },
      { label: "Why", kind: "reason", cell: (row) => row.reason || (row.is_extra ? "beyond --queues" : "") },
    ],
  }),
  quarantine: new KeyedTable(part("quarantine", ".table"), {
    caption: "Messages in quarantine", empty: "Nothing is in quarantine.", order: (a, b) => (a.since ?? 0) - (b.since ?? 0),
    columns: [
      { label: "Choose", cell: (row, key) => quarantineBox(key) },
      { label: "Number", cell: (row, key) => el("a", { href: "#messages", data: { act: "look" }, text: key, on: { click: (event) => { event.preventDefault(); browse({ side: "secondary", entity: `${backlogFolder()}/${row.number[0]}`, dead_letters: true, ...(row.message_id ? { id: row.message_id } : {}) }); } } }) },
      { label: "Message id", kind: "name", cell: (row) => row.message_id ?? "-" },
      { label: "For", kind: "name", cell: (row) => row.entity ?? "-" },
      { label: "Since", cell: (row) => (row.since ? ticking(row.since) : "?") },
      { label: "Size", kind: "number", cell: (row) => size(row.size) },
      { label: "Why", kind: "reason", cell: (row) => [row.reason ?? "", row.description ? `: ${row.description}` : ""] },
    ],
  }),
  processes: new KeyedTable(part("processes", ".table"), {
    caption: "Processes of the pair", empty: "No process reports here.",
    order: (a, b) => b.troubled - a.troubled || byState(a, b), fits: has("processes-find"),
    columns: [
      { label: "Process", kind: "name", cell: (row) => row.name },
      { label: "State", cell: (row) => chip(row.state) },
      { label: "Entities in trouble", cell: (row) => (row.troubled ? el("span", { title: row.troubled_names.join(", "), text: `${row.troubled} of ${row.entities}` }) : `none of ${row.entities}`) },
      { label: "Held", kind: "number", cell: (row) => count(row.held) },
      { label: "Spooled", kind: "number", cell: (row) => (row.spooled === null ? "-" : count(row.spooled)) },
      { label: "To backlog", kind: "number", cell: (row) => count(row.sent_to_backlog) },
      { label: "Syphon", isOptional: true, cell: (row) => (row.syphon ? `${row.syphon.state}, ${rate(row.syphon.rate)}` : "") },
      { label: "Why", kind: "reason", cell: (row) => row.reason || (row.secondary_down_for !== null ? `secondary unreachable for ${length(row.secondary_down_for)}` : "") },
    ],
  }),
  local: new KeyedTable(part("local", ".table"), {
    caption: "Spools and proxies of this machine", empty: "No spool and no proxy on this machine.", order: (a, b) => a.name.localeCompare(b.name),
    columns: [
      { label: "What", kind: "name", cell: (row) => row.name },
      { label: "State", cell: (row) => (row.folder ? (row.problem ? chip("does not answer", "cannot be read") : row.process === null ? chip("silent", "left behind") : chip("active", `process ${row.process}`)) : chip(row.state)) },
      { label: "Messages", kind: "number", cell: (row) => (row.folder ? count(row.messages) : "-") },
      { label: "Why", kind: "reason", cell: (row) => row.problem ?? row.reason ?? "" },
    ],
  }),
};

function room(row) {
  if (row.room === null || row.size === null) return "?";
  const gauge = el("i"), share = row.size / Math.max(1, row.size + row.room);
  gauge.style.width = `${Math.max(2, share * 100).toFixed(1)}%`;
  return [el("span", { class: "gauge", "aria-hidden": "true" }, gauge), ` ${size(row.room)}`];
}

const backlogFolder = () => Object.keys(state.queues ?? {})[0]?.replace(/\/\d+$/, "") ?? "";

function drawEntities() {
  const rows = state.entities ?? {}, all = Object.values(rows), names = Object.values(rows).map((row) => row.name);
  const ill = all.filter((row) => !["healthy", "works", "unknown"].includes(row.state)).length;
  const why = state.unlisted?.why ? ` There may be more: ${state.unlisted.why}.` : "";
  say(part("entities", ".summary"), all.length ? `${count(all.length)}; ${ill ? `${count(ill)} ${ill === 1 ? "needs" : "need"} attention` : "none needs attention"}.${why}` : "");
  tables.entities.show(state.entities);
  setEntityNames(names.sort());
}

function drawBacklog() {
  const backlog = state.backlog ?? {}, facts_ = [];
  if (backlog.size !== undefined && backlog.size !== null) facts_.push(`${size(backlog.size)} used, ${size(backlog.room)} left`);
  if (backlog.full_in) facts_.push(`full in ${length(backlog.full_in)} at the present rate`);
  else if (backlog.is_filling === false) facts_.push("not growing");
  if (backlog.unlisted) facts_.push(`settings and sizes are unknown: ${backlog.unlisted}`);
  if (backlog.doubt) facts_.push(backlog.doubt);
  say(part("backlog", ".summary"), facts_.join("; "));
  tables.queues.show(state.queues);
}

function drawProcesses() {
  const fleet = state.fleet ?? {};
  const text = fleet.has_board === false ? "There is no board: processes report only if they have board=True, or --board." : fleet.problem ? `Not known as a whole: ${fleet.problem}.` : fleet.reporting !== undefined ? `${count(fleet.reporting)} report, ${count(fleet.silent)} have gone silent${fleet.left_out ? `, ${count(fleet.left_out)} more are not shown` : ""}.` : "";
  say(part("processes", ".summary"), text);
  tables.processes.show(state.processes);
}

// --- quarantine ---

const picked = new Set();
function quarantineBox(key) {
  const made = el("input", { type: "checkbox", "aria-label": `Choose ${key}`, disabled: !mayChange, data: { act: "choose" }, on: { change: () => { if (made.checked) picked.add(key); else picked.delete(key); drawQuarantineActions(); } } });
  made.checked = picked.has(key);
  return made;
}

function drawQuarantine() {
  const rows = state.quarantine ?? {}, total = state.backlog?.quarantined, shown = Object.keys(rows).length;
  for (const key of picked) if (!rows[key]) picked.delete(key);
  say(part("quarantine", ".summary"), total && total > shown ? `${count(total)} in all, ${count(shown)} shown.` : "");
  tables.quarantine.show(state.quarantine);
  drawQuarantineActions();
}

function drawQuarantineActions() {
  const rows = Object.keys(state.quarantine ?? {});
  const button = (text, kind, run) => el("button", { type: "button", class: kind, text, disabled: !picked.size, on: { click: run } });
  replace(part("quarantine", ".actions"), ...(mayChange && rows.length ? [
    el("button", { type: "button", text: picked.size === rows.length ? "Choose none" : "Choose all shown", on: { click: () => { const all = picked.size < rows.length; picked.clear(); if (all) rows.forEach((key) => picked.add(key)); tables.quarantine.redraw(); drawQuarantineActions(); } } }),
    button(`Send home: ${picked.size}`, "primary", redrive), button(`Throw away: ${picked.size}`, "danger", discard)] : []));
}

const pickedNumbers = () => [...picked].map((key) => key.split("/"));
async function redrive() {
  if (await confirm({ title: `Send ${counted(picked.size, "message")} home`, text: "Each goes to the entity that it is for, with its full time to live. Those that are refused again stay.", command: () => `twinbus syphon quarantine redrive ${[...picked].join(" ")}`, button: "Send home" })) await act("quarantine.redrive", { numbers: pickedNumbers() });
}
async function discard() {
  if (await confirm({ title: `Throw ${counted(picked.size, "message")} away for good`, text: "They cannot be brought back.", command: () => `twinbus syphon quarantine discard ${[...picked].join(" ")}`, button: "Throw away", isDanger: true, typed: String(picked.size) })) await act("quarantine.discard", { numbers: pickedNumbers() });
}

// --- syphons ---

const cards = new Map();
function drawSyphons() {
  const place = part("syphons", ".cards"), rows = state.syphons ?? {};
  for (const [key, { node }] of cards) if (!rows[key]) { node.remove(); cards.delete(key); }
  const remote = Object.values(state.processes ?? {}).filter((row) => row.syphon && row.state === "reporting").length;
  if (!Object.keys(rows).length) {
    replace(place, el("p", { class: "empty", text: !state.syphons ? "Not looked at yet." : remote ? `None on this machine; ${counted(remote, "process", "processes")} elsewhere have one: they are shown below, and steered there.` : "No syphon runs on this machine. twinbus syphon starts one." }));
    return;
  }
  place.querySelector(".empty")?.remove();
  for (const [key, row] of Object.entries(rows)) {
    const known = cards.get(key);
    if (known?.row === row && known.mayChange === mayChange) continue;
    const node = known?.node ?? el("div", { data: { key } });
    const focus = node.contains(document.activeElement) ? document.activeElement.dataset.act : undefined;
    replace(node, ...syphonCard(row));
    if (focus) node.querySelector(`[data-act="${CSS.escape(focus)}"]`)?.focus();
    if (!known) place.append(node);
    cards.set(key, { row, node, mayChange });
  }
}

function syphonCard(row) {
  const isPaused = row.is_paused;
  const limits = [row.rate_limit ? `at most ${rate(row.rate_limit)}` : "", row.first_left !== null && row.first_left !== undefined ? `pauses after ${count(row.first_left)} more` : "", row.entities ? `only ${row.entities.slice(0, 5).join(", ")}${row.entities.length > 5 ? " ..." : ""}` : ""].filter(Boolean).join("; ");
  const press = (action) => () => act(action, { syphon: row.id });
  return [
    el("div", { class: "head" }, el("h3", { text: `${row.role ?? "syphon"} ${row.id}` }), chip(row.state)),
    facts([["rate", rate(row.rate)], ["home", row.moved === undefined ? null : `${counted(row.moved, "message")}, ${size(row.moved_bytes)}`], ["still to come", row.waiting === undefined ? null : count(row.waiting)],
      ["all home", row.seconds_left === null || row.seconds_left === undefined ? "not known" : `at ${clock(serverNow() + row.seconds_left, false)}, in ${length(row.seconds_left)}`],
      ["limits", limits], ["down", (row.destinations_down ?? []).slice(0, 5).join("; ")], ["troubles", (row.troubles ?? []).slice(0, 3).join("; ")], ["problem", row.reason]]),
    mayChange && row.role ? el("p", { class: "actions" },
      isPaused ? el("button", { type: "button", class: "primary", data: { act: "pause" }, text: "Resume", title: `twinbus syphon resume ${row.id}`, on: { click: press("syphon.resume") } })
        : el("button", { type: "button", data: { act: "pause" }, text: "Pause", title: `twinbus syphon pause ${row.id}`, on: { click: press("syphon.pause") } }),
      el("button", { type: "button", data: { act: "pace" }, text: "Pace ...", on: { click: () => pace(row) } })) : null,
  ];
}

async function pace(row) {
  const values = await confirm({
    title: `Pace of syphon ${row.id}`, text: "Empty means no limit.",
    fields: [
      { name: "rate", label: "Messages a second, at most", type: "number", min: "0.1", step: "any", value: row.rate_limit ?? "" },
      { name: "first", label: "Move this many more, then pause", type: "number", min: "1", step: "1", value: row.first_left ?? "" },
      { name: "entities", label: "Only these queues and topics", value: (row.entities ?? []).join(", "), hint: "With commas between them." }],
    command: ({ rate: most, first, entities }) => `twinbus syphon pace ${row.id} ${most ? `--rate ${most}` : "--no-rate"} ${first ? `--first ${first}` : "--no-first"} ${entities ? entities.split(",").map((each) => `--entity ${quoted(each.trim())}`).join(" ") : "--all-entities"}`,
    button: "Change",
  });
  if (!values) return;
  const entities = values.entities.split(",").map((each) => each.trim()).filter(Boolean);
  await act("syphon.pace", { syphon: row.id, rate: values.rate ? Number(values.rate) : null, first: values.first ? Number(values.first) : null, entities: entities.length ? entities : null });
}

// --- faults, meter, events, plots ---

function drawFaults() {
  const sides = state.controls?.sides ?? [], rows = Object.entries(state.faults ?? {});
  $("faults").hidden = !sides.length && !rows.length;
  say(part("faults", ".summary"), rows.length ? "Somebody has ordered these:" : "None is in force. Faults are for drills: these namespaces are served by twinbus.");
  replace(part("faults", ".plain"), ...rows.map(([, row]) => el("li", {}, el("span", {}, `${row.side}: ${row.text}`, row.ends ? el("span", { class: "muted" }, ", ends ", ticking(row.ends, "left")) : null), mayChange ? el("button", { type: "button", text: "Clear", "aria-label": `Clear ${row.id}`, on: { click: () => act("fault.clear", { side: row.side, id: row.id }) } }) : null)));
  const place = part("faults", ".actions");
  if (!mayChange || !sides.length) place.replaceChildren();
  else if (!place.children.length) place.append(el("button", { type: "button", text: "Hold a drill: make something fail ...", on: { click: addFault } }));
}

async function addFault() {
  const values = await confirm({
    title: "Make a namespace fail on purpose", text: "For everybody who uses it. It ends by itself.",
    fields: [
      { name: "side", label: "Namespace", options: state.controls.sides }, { name: "fault", label: "What", options: ["no-send", "no-receive", "no-manage", "unreachable", "busy", "slow", "unanswered"] },
      { name: "entity", label: "Queue or topic", hint: "Empty: all of it." }, { name: "seconds", label: "For how many seconds", type: "number", min: "1", step: "1", value: "60", required: true }],
    command: ({ side, fault, entity, seconds }) => `twinbus fault add ${fault} --namespace ${quoted(state.sides?.[side]?.name ?? side)} ${entity ? `--entity ${quoted(entity)} ` : ""}--for ${seconds}s`,
    button: "Make it fail", isDanger: true,
  });
  if (values) await act("fault.add", { side: values.side, fault: values.fault, length_ms: Math.round(Number(values.seconds) * 1000), ...(values.entity ? { entities: [values.entity] } : {}) });
}

function drawMeter() {
  const meter = state.meter, sides = Object.entries(meter?.sides ?? {});
  if (!sides.length) { replace(part("meter", ".body"), el("p", { class: "empty", text: "No meter can be read from here. twinbus cost actual counts what a ledger has." })); return; }
  replace(part("meter", ".body"),
    facts([...sides.map(([side, each]) => [side, `${count(each.operations)} operations, ${size(each.bytes)}`]), ["charged as", `${count(meter.charged)} operations of up to 64 KB`], ["list price", `US$ ${meter.usd.toFixed(2)} so far; US$ ${meter.usd_a_million} a million beyond the included ones`]]),
    el("p", { class: "small muted", text: `Counted since the namespaces were started; prices as of ${meter.prices_as_of}.` }));
}

function drawEvents() {
  const rows = Object.entries(state.events ?? {}).sort(([, a], [, b]) => b.at - a.at);
  const list = part("events", ".log");
  const items = rows.map(([key, row]) => list.querySelector(`[data-key="${key}"]`) ?? el("li", { data: { key }, class: row.kind }, el("time", { text: exactly(row.at), title: new Date(row.at * 1000).toLocaleString("en-GB") }), el("span", { "aria-hidden": "true", text: { bad: "✕", good: "✓", done: "▸" }[row.kind] ?? "·" }), el("span", { text: row.text })));
  replace(list, ...(items.length ? items : [el("li", { class: "empty", text: "Nothing has happened since this console was started." })]));
}

const drawPlots = () => draw(part("plots", ".figures"), state.history ?? {}, serverNow());
const drawLocal = () => tables.local.show(state.spools && state.proxies && { ...state.spools, ...state.proxies });

const DRAWS = {
  verdict: [drawVerdict], advice: [drawAnswers], backlog: [drawAnswers, drawBacklog, drawQuarantine], sides: [drawSides], entities: [drawEntities],
  unlisted: [drawEntities], queues: [drawBacklog], fleet: [drawProcesses, drawEntities], processes: [drawProcesses, drawSyphons, drawAnswers], syphons: [drawSyphons, drawAnswers],
  quarantine: [drawQuarantine], spools: [drawLocal, drawAnswers], proxies: [drawLocal], faults: [drawFaults], controls: [drawFaults], meter: [drawMeter, drawSides],
  events: [drawEvents], history: [drawPlots], sources: [drawAges],
};

// --- views ---

/** Somebody may open the address with the token where the page is open already: it leaves the address here, too. */
async function enterAgain() {
  const token = takeToken();
  if (token) try { await showToken(token); } catch (error) { toast(error.message, true); }
}

function turn() {
  const isMessages = location.hash === "#messages";
  $("view-overview").hidden = isMessages;
  $("view-messages").hidden = !isMessages;
  for (const [id, is] of [["to-overview", !isMessages], ["to-messages", isMessages]]) $(id).toggleAttribute("aria-current", is);
  if (isMessages) $("to-messages").setAttribute("aria-current", "page"); else $("to-overview").setAttribute("aria-current", "page");
}
addEventListener("hashchange", async () => { await enterAgain(); turn(); scrollTo(0, 0); });
for (const [id, redraw] of [["entities-find", drawEntities], ["processes-find", drawProcesses], ["queues-all", drawBacklog]]) $(id).addEventListener("input", redraw);

const root = document.documentElement;
const kept = localStorage.getItem("twinbus-theme");
if (kept) root.dataset.theme = kept;
$("theme").addEventListener("click", () => {
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("twinbus-theme", root.dataset.theme);
});

addEventListener("unhandledrejection", (event) => toast(`The page has made a mistake: ${event.reason?.message ?? event.reason}`, true));
await enterAgain();
turn();
drawFaults();
listen();
