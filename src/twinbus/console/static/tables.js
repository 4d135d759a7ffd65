// A table of rows by key: rows that have not changed are not touched, and what has the focus keeps it.

import { el, count } from "./format.js";

const SHOWN = 100;

export class KeyedTable {
  /** `columns`: {label, cell(row, key), kind?, isOptional?}: optional ones are hidden while all their cells are empty. `order(a, b)` sorts rows; `empty`: said if there are none; `unknown`: before that is known. */
  constructor(place, { caption, columns, order, empty, unknown = "Not looked at yet.", fits = () => true }) {
    this.texts = { empty, unknown };
    this.columns = columns; this.order = order; this.fits = fits; this.most = SHOWN;
    this.known = new Map();
    this.body = el("tbody");
    const heads = this.heads = columns.map(({ label, kind }) => el("th", { scope: "col", class: kind === "number" ? "number" : "" }, label || el("span", { class: "hidden", text: "Actions" })));
    this.table = el("table", {}, el("caption", { class: "hidden", text: caption }), el("thead", {}, el("tr", {}, ...heads)), this.body);
    this.empty = el("p", { class: "empty" });
    this.more = el("button", { type: "button", class: "more", on: { click: () => { this.most = Infinity; this.show(this.rows); } } });
    place.replaceChildren(this.empty, this.table, this.more);
    this.show(undefined);
  }

  /** `rows`: by key; undefined if they are not known. */
  show(given) {
    this.rows = given;
    const rows = given ?? {};
    this.empty.textContent = given ? this.texts.empty : this.texts.unknown;
    const keys = Object.keys(rows).filter((key) => this.fits(rows[key], key)).sort((a, b) => this.order(rows[a], rows[b]) || a.localeCompare(b));
    const shown = keys.slice(0, this.most);
    const present = new Set(shown);
    for (const [key, { node }] of this.known) if (!present.has(key)) { node.remove(); this.known.delete(key); }
    let before = this.body.firstElementChild;
    for (const key of shown) {
      const node = this.rowOf(key, rows[key]);
      if (node === before) before = before.nextElementSibling;
      else this.body.insertBefore(node, before);
    }
    this.columns.forEach(({ isOptional }, at) => {
      if (!isOptional) return;
      const cells = [...this.body.rows].map((row) => row.cells[at]), isEmpty = cells.every((cell) => !cell.hasChildNodes());
      for (const cell of [this.heads[at], ...cells]) cell.hidden = isEmpty;
    });
    this.table.hidden = !shown.length;
    this.empty.hidden = Boolean(shown.length);
    this.more.hidden = keys.length <= shown.length;
    this.more.textContent = `Show all ${count(keys.length)}`;
    return keys.length;
  }

  /** Draw rows anew although they have not changed: what they show of the page has. */
  redraw() {
    for (const each of this.known.values()) each.row = null;
    if (this.rows) this.show(this.rows);
  }

  rowOf(key, row) {
    const known = this.known.get(key);
    if (known && known.row === row) return known.node;
    const cells = this.columns.map(({ label, cell, kind }) => {
      const made = cell(row, key);
      return el("td", { class: kind ?? "", data: { label } }, ...(Array.isArray(made) ? made : [made]));
    });
    const node = known?.node ?? el("tr", { data: { key } });
    const act = node.contains(document.activeElement) ? document.activeElement.dataset.act : undefined;
    node.replaceChildren(...cells);
    if (act) node.querySelector(`[data-act="${CSS.escape(act)}"]`)?.focus();
    this.known.set(key, { row, node });
    return node;
  }
}
