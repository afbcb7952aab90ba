// Elements, and quantities for people. What a record says becomes text nodes and attributes, never markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") element.style.cssText = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(
    ...children
      .flat()
      .filter((child) => child !== null && child !== undefined)
      .map((child) => (child instanceof Node ? child : String(child))),
  );
  return element;
}

export const el = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);
export const svg = (name, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, name), attributes, children);

const KEY = "key"; // in localStorage, which no other port of this host can read

// The address that is opened first ends in the key that changes to runs need.
export function keepKey() {
  const found = /^#key=([\w-]+)$/.exec(location.hash);
  if (!found) return;
  localStorage.setItem(KEY, found[1]);
  history.replaceState(null, "", location.pathname + location.search);
}

// Asks for a change of a run. Gives the answer, or throws what was refused.
export async function change(run, operation, asked) {
  const headers = {"Content-Type": "application/json", "X-Edgebed-Key": localStorage.getItem(KEY) ?? ""};
  const answer = await fetch(of(run, `/api/act/${operation}`), {method: "POST", headers, body: JSON.stringify(asked)});
  if (answer.status === 403 || answer.status === 405) throw new Error((await answer.text()).trim());
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error);
  return said;
}

// Says how the connection is, for eyes and for screen readers.
export function say(text) {
  const place = document.getElementById("connection");
  if (place.textContent !== text) place.textContent = text;
}

export async function read(path) {
  const answer = await fetch(path);
  if (answer.status === 403)
    throw new Error("This page is not open to you any more: open the address that `serve` printed.");
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error ?? `The server answered with the code ${answer.status}.`);
  return said;
}

// The address of something of a run. A run of a sweep has a slash in its name, which stays one.
export function of(run, kind, query = {}) {
  const name = run.split("/").map(encodeURIComponent).join("/");
  const asked = new URLSearchParams(query).toString();
  return `${kind}/${name}${asked ? `?${asked}` : ""}`;
}

function digits(value) {
  if (value === 0) return "0";
  const decimals = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  const text = value.toFixed(Math.min(decimals, 20));
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function scaled(value, units) {
  if (value === null || value === undefined) return "–";
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${digits(value)} ${units[unit]}`;
}

export const number = (value) =>
  value === null || value === undefined ? "–" : Number.isInteger(value) ? value.toLocaleString("en") : digits(value);
export const size = (value) => scaled(value, ["B", "kB", "MB", "GB", "TB"]);
export const rate = (value) => scaled(value * 8, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"]);
export const percent = (value) => (value === null || value === undefined ? "–" : `${(value * 100).toFixed(1)}%`);

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds > 0 && seconds < 0.9995) return `${digits(seconds * 1000)} ms`;
  if (seconds < 99.95) return `${seconds < 10 ? digits(seconds) : seconds.toFixed(1)} s`;
  const whole = Math.round(seconds),
    minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

export const day = (seconds) => (seconds ? new Date(seconds * 1000).toLocaleString("sv").slice(0, 16) : "–");

const MARKS = {fail: "✕", unknown: "?", pass: "✓", modelled: "~", measured: "="};
export const badge = (verdict, text = verdict) =>
  el("span", {class: `badge ${verdict in MARKS ? verdict : ""}`}, MARKS[verdict] ? `${MARKS[verdict]} ` : "", text);

// A choice between [value, text] pairs, of which one is chosen.
export const choice = (label, name, options, chosen, onchange) =>
  el(
    "div",
    {role: "radiogroup", "aria-label": label, class: "toggle"},
    options.map(([value, text]) =>
      el(
        "label",
        {},
        el("input", {type: "radio", name, value, checked: value === chosen, onchange: () => onchange(value)}),
        text,
      ),
    ),
  );

// A table: heads are texts, or [text, "number"]; cells are texts or elements. `label` names it for screen readers.
export function table(label, heads, rows) {
  const numeric = heads.map((head) => Array.isArray(head));
  return el(
    "div",
    {class: "scroll", tabindex: 0, role: "region", "aria-label": `${label}, table`},
    el(
      "table",
      {},
      el("caption", {class: "spoken"}, label),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          heads.map((head, index) =>
            el("th", {scope: "col", class: numeric[index] && "number"}, numeric[index] ? head[0] : head),
          ),
        ),
      ),
      el(
        "tbody",
        {},
        rows.map((row) =>
          el(
            "tr",
            {},
            row.map((cell, index) =>
              index ? el("td", {class: numeric[index] && "number"}, cell) : el("th", {scope: "row"}, cell),
            ),
          ),
        ),
      ),
    ),
  );
}

// What is too long to be always there. `fill` makes it when it is opened, and again with `refresh`.
export function details(summary, fill) {
  const inside = el("div");
  const refresh = () => {
    if (box.open) inside.replaceChildren(...[fill()].flat());
  };
  const title = el("summary", {}, summary),
    box = el("details", {ontoggle: refresh}, title, inside);
  return {
    box,
    refresh,
    name: (text) => {
      if (title.textContent !== text) title.textContent = text;
    },
  };
}

export const saveCsv = (name, rows) => saveAs(`${name}.csv`, asCsv(rows));
