// Elements, and nothing that parses text as HTML: what routers and engines say is only ever text.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** An HTML element. */
export const h = (name, props, ...children) => fill(document.createElement(name), props, children);

/** An SVG element. */
export const s = (name, props, ...children) => fill(document.createElementNS(SVG, name), props, children);

export const byId = (id) => document.getElementById(id);

/** Writes only what differs, so that nothing is laid out again without need. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setAttr(element, name, value) {
  if (value === null || value === undefined) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

export function setClass(element, name) {
  if (element.getAttribute("class") !== name) element.setAttribute("class", name);
}

/** A button that shows and hides another form of the same data. */
export function toggles(button, target, onChange) {
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-expanded") !== "true";
    button.setAttribute("aria-expanded", open);
    target.hidden = !open;
    onChange(open);
  });
}

/** A small table, for what is drawn elsewhere. */
export function plainTable(caption, heads, rows) {
  const cell = (tag, scope) => (text) => h(tag, { scope }, String(text));
  return h(
    "table",
    { class: "plain" },
    h("caption", { class: "unseen" }, caption),
    h("thead", null, h("tr", null, ...heads.map(cell("th", "col")))),
    h("tbody", null, ...rows.map((row) => h("tr", null, ...row.map(cell("td"))))),
  );
}
