// A table that can be sorted and draws only the rows in sight: 200 replicas cost as much as 20.

import { h, setAttr, setClass, setText } from "./dom.js";

/** Height of a row, px; the style sheet says the same (29 and a line). */
const ROW = 30;

/** Height of the head, px. */
const HEAD = 29;

/** Rows drawn above and below those in sight. */
const MARGIN = 6;

/**
 * A column, `wide` if it is shown only where there is room: `{ id, title, tip, width, numeric, wide, value(row) -> sort key, cell() -> { node, update(row) } }`.
 */
export class Grid {
  #columns;
  #rows = [];
  /** The rows that are drawn, by their place among all. */
  #drawn = new Map();
  #order;
  #body;
  #above;
  #below;
  #scroll;
  #table;
  #heads = new Map();
  #rowClass;

  constructor(host, { label, columns, order, visible, minWidth, rowClass = () => "" }) {
    this.#columns = columns;
    this.#order = order;
    this.#rowClass = rowClass;
    this.#above = spacer();
    this.#below = spacer();
    this.#body = h("tbody", null, this.#above, this.#below);
    this.#table = h("table", { class: "grid", "aria-label": label }, this.#widths(), this.#head(), this.#body);
    this.#table.style.minWidth = `${minWidth}px`;
    this.#scroll = h("div", { class: "grid-scroll", role: "region", "aria-label": label, tabindex: "0" }, this.#table);
    this.#scroll.style.maxHeight = `${HEAD + ROW * visible}px`;
    this.#scroll.addEventListener("scroll", () => this.#draw(), { passive: true });
    host.append(this.#scroll);
  }

  setRows(rows) {
    const column = this.#columns.find((candidate) => candidate.id === this.#order.id);
    const sign = this.#order.down ? -1 : 1;
    this.#rows = [...rows].sort((a, b) => sign * compare(column.value(a), column.value(b)));
    this.#draw();
  }

  #widths() {
    const col = (column) => {
      const { width } = column;
      const element = h("col", { class: classOf(column) });
      if (width) element.style.width = width;
      return element;
    };
    return h("colgroup", null, ...this.#columns.map(col));
  }

  #head() {
    const head = (column) => {
      const button = h("button", { type: "button", title: column.tip, onclick: () => this.#sortBy(column) }, column.title);
      const cell = h("th", { scope: "col", class: classOf(column) }, button);
      this.#heads.set(column.id, cell);
      return cell;
    };
    const row = h("tr", null, ...this.#columns.map(head));
    this.#markOrder();
    return h("thead", null, row);
  }

  #sortBy(column) {
    const again = this.#order.id === column.id;
    this.#order = { id: column.id, down: again ? !this.#order.down : Boolean(column.numeric) };
    this.#markOrder();
    this.setRows(this.#rows);
  }

  #markOrder() {
    for (const [id, cell] of this.#heads) {
      setAttr(cell, "aria-sort", id === this.#order.id ? (this.#order.down ? "descending" : "ascending") : null);
    }
  }

  #draw() {
    const top = Math.max(0, this.#scroll.scrollTop);
    const height = this.#scroll.clientHeight || ROW * 12;
    const first = Math.max(0, Math.min(Math.floor(top / ROW) - MARGIN, this.#rows.length));
    const last = Math.min(this.#rows.length, Math.ceil((top + height) / ROW) + MARGIN);
    this.#fit(first, last);
    this.#above.firstChild.style.height = `${first * ROW}px`;
    this.#below.firstChild.style.height = `${(this.#rows.length - last) * ROW}px`;
    this.#above.hidden = first === 0;
    this.#below.hidden = last === this.#rows.length;
    setAttr(this.#table, "aria-rowcount", this.#rows.length + 1);
    for (const [index, line] of this.#drawn) this.#fill(line, this.#rows[index], index);
  }

  /** Draws the rows from `first` to before `last`. A row that stays keeps its element, and the focus in it. */
  #fit(first, last) {
    const spare = [];
    for (const [index, line] of this.#drawn) {
      if (index >= first && index < last) continue;
      if (line.element.contains(document.activeElement)) this.#scroll.focus({ preventScroll: true });
      line.element.remove();
      this.#drawn.delete(index);
      spare.push(line);
    }
    let below = this.#below;
    for (let index = last - 1; index >= first; index -= 1) {
      const line = this.#drawn.get(index) ?? spare.pop() ?? this.#line();
      if (!line.element.isConnected) below.before(line.element);
      this.#drawn.set(index, line);
      below = line.element;
    }
  }

  #line() {
    const cells = this.#columns.map((column) => column.cell());
    const td = (cell, i) => h("td", { class: classOf(this.#columns[i]) }, cell.node);
    return { element: h("tr", null, ...cells.map(td)), cells };
  }

  #fill({ element, cells }, row, index) {
    setAttr(element, "aria-rowindex", index + 2);
    setClass(element, this.#rowClass(row));
    for (const cell of cells) cell.update(row);
  }
}

const classOf = ({ numeric, wide }) => [numeric && "num", wide && "wide"].filter(Boolean).join(" ") || null;

const spacer = () => h("tr", { class: "spacer", "aria-hidden": "true", hidden: true }, h("td"));

/** Unknown sorts last in either direction's natural reading: below every number. */
function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  if (typeof a === "string") return a.localeCompare(b, "en", { numeric: true });
  return a - b;
}

/** A cell of text. */
export function textCell(text, title) {
  return () => {
    const node = h("span");
    const update = (row) => {
      setText(node, text(row));
      if (title) setAttr(node, "title", title(row));
    };
    return { node, update };
  };
}

/** A cell whose content is made anew when its key changes. */
export function nodeCell(key, make) {
  return () => {
    const node = h("span");
    let shown;
    const update = (row) => {
      const now = key(row);
      if (now === shown) return;
      shown = now;
      node.replaceChildren(make(row));
    };
    return { node, update };
  };
}

/** A bar with its figure: `share(row)` of the track, or `null`; `hot(row)`; `mark(row)` a share to compare with. */
export function meterCell({ share, text, title, hot, mark, color }) {
  return () => {
    const fill = h("i");
    const line = mark ? h("u") : null;
    const track = h("div", { class: "track", "aria-hidden": "true" }, fill, line);
    const figure = h("span");
    const node = h("div", { class: "meter" }, track, figure);
    const update = (row) => {
      fill.style.transform = `scaleX(${clamp(share(row))})`;
      if (color) setClass(fill, `own ${color(row)}`);
      if (line) line.style.transform = `translateX(${clamp(mark(row)) * 100}%)`;
      track.classList.toggle("hot", Boolean(hot?.(row)));
      setText(figure, text(row));
      if (title) setAttr(node, "title", title(row));
    };
    return { node, update };
  };
}

/** A bar that goes left and right of zero: `share(row)` from -1 to 1. */
export function divergingCell({ share, text, title }) {
  return () => {
    const fill = h("i");
    const track = h("div", { class: "track diverging", "aria-hidden": "true" }, fill);
    const figure = h("span");
    const node = h("div", { class: "meter" }, track, figure);
    const update = (row) => {
      const value = Math.max(-1, Math.min(1, share(row) ?? 0));
      fill.style.transform = `scaleX(${value})`;
      setText(figure, text(row));
      if (title) setAttr(node, "title", title(row));
    };
    return { node, update };
  };
}

const clamp = (value) => Math.max(0, Math.min(1, value ?? 0));
