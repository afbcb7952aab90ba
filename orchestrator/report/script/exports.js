"use strict";

// The table behind a figure, and the figure as a file: CSV, SVG or PNG.

const MOST_ROWS = 1000; // of the table on the page; the CSV has all

/** The values of a figure: headings, then rows. */
function rowsOf({figure}) {
  const {x, y, marks, lanes} = figure;
  const rows = [["what", `${x.title || "x"}, from`, "to", y.title || "where", "note"]];
  for (const mark of [...marks, ...(lanes ?? [])]) {
    const notes = mark.notes ?? [];
    if (mark.mark === "line" || mark.mark === "points") {
      mark.x.forEach((at, place) =>
        rows.push([mark.name, at, "", y.labels ? inWords(y, mark.y[place]) : mark.y[place], notes[place] ?? ""]),
      );
    } else if (mark.mark === "area") {
      mark.x.forEach((at, place) =>
        rows.push([mark.name || mark.group || "range", at, "", `${mark.low[place]} to ${mark.high[place]}`, ""]),
      );
    } else if (mark.mark === "boxes") {
      mark.x0.forEach((from, place) => {
        const middle = mark.y0 ? (mark.y0[place] + mark.y1[place]) / 2 : null;
        const where = middle === null ? "" : y.labels ? inWords(y, middle) : mark.y1[place];
        rows.push([
          mark.name,
          x.labels ? inWords(x, (from + mark.x1[place]) / 2) : from,
          x.labels ? "" : mark.x1[place],
          where,
          notes[place] ?? "",
        ]);
      });
    } else if (mark.mark === "ranges") {
      mark.y.forEach((row, place) => rows.push(["range", mark.low[place], mark.high[place], inWords(y, row), ""]));
    }
  }
  return rows;
}

function fillTable(chart) {
  const [headings, ...rows] = rowsOf(chart);
  const table = document.createElement("table");
  const fill = (cells, tag, parent) => {
    const row = chart.make("tr", "", parent);
    cells.forEach((cell) => {
      const made = chart.make(tag, typeof cell === "number" ? "number" : "", row);
      made.textContent = typeof cell === "number" ? inDigits(cell) : (cell ?? "");
      if (tag === "th") made.scope = "col";
    });
  };
  chart.make("caption", "spoken", table).textContent = chart.figure.title;
  fill(headings, "th", chart.make("thead", "", table));
  const body = chart.make("tbody", "", table);
  rows.slice(0, MOST_ROWS).forEach((cells) => fill(cells, "td", body));
  chart.behind.replaceChildren(table);
  chart.behind.setAttribute("aria-label", `Table: ${chart.figure.title}`);
  if (rows.length > MOST_ROWS) {
    chart.make("p", "quiet", chart.behind).textContent = `${rows.length - MOST_ROWS} more rows are in the CSV.`;
  }
}

function saveAs(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const COPIED = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-opacity",
  "stroke-dasharray",
  "opacity",
  "font-size",
  "font-weight",
  "text-anchor",
];

/** The drawing with its colours written out, its title above and its legend below. */
function standalone(chart) {
  const copy = chart.svg.cloneNode(true),
    root = getComputedStyle(document.documentElement);
  const originals = [...chart.svg.querySelectorAll("*")];
  [...copy.querySelectorAll("*")].forEach((each, place) => {
    const style = getComputedStyle(originals[place]);
    each.removeAttribute("class");
    each.removeAttribute("style");
    for (const name of COPIED) each.setAttribute(name, style.getPropertyValue(name));
  });
  const {width, height} = chart.svg.viewBox.baseVal,
    text = root.getPropertyValue("--text").trim();
  let x = 10,
    y = height + 16;
  for (const entry of chart.entries.hidden ? [] : chart.entries.children) {
    if (entry.getAttribute("aria-pressed") === "false") continue;
    const said = entry.textContent,
      need = widthOf(said, 11) + 40;
    if (x + need > width) [x, y] = [10, y + 16];
    const colour = getComputedStyle(entry.querySelector("path, rect"));
    const fill = entry.querySelector("path") ? colour.stroke : colour.fill;
    svgOf("rect", {x, y: y - 6, width: 14, height: 4, fill}, copy);
    textOf(said, {x: x + 20, y, "font-size": 11, fill: text}, copy);
    x += need;
  }
  const all = y + 12;
  copy.prepend(svgOf("rect", {y: -26, width, height: all + 26, fill: root.getPropertyValue("--paper").trim()}));
  textOf(chart.figure.title, {x: 10, y: -8, "font-size": 13, "font-weight": 600, fill: text}, copy);
  copy.setAttribute("viewBox", `0 -26 ${width} ${all + 26}`);
  copy.setAttribute("height", all + 26);
  copy.setAttribute("font-family", FONT);
  return new XMLSerializer().serializeToString(copy);
}

/** RFC 4180. A text that a spreadsheet would carry out as a formula begins with an apostrophe. */
function csvCell(cell) {
  const text = String(cell ?? ""),
    said = typeof cell === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(said) ? `"${said.replaceAll('"', '""')}"` : said;
}

const asCsv = (rows) => new Blob([rows.map((row) => `${row.map(csvCell).join(",")}\r\n`).join("")], {type: "text/csv"});

const EXPORTS = {
  CSV: (chart) => saveAs(`${chart.element.id}.csv`, asCsv(rowsOf(chart))),
  SVG: (chart) => saveAs(`${chart.element.id}.svg`, new Blob([standalone(chart)], {type: "image/svg+xml"})),
  PNG: (chart) => {
    const image = new Image();
    image.addEventListener("load", () => {
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [2 * image.width, 2 * image.height];
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => saveAs(`${chart.element.id}.png`, blob), "image/png");
    });
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(chart))}`;
  },
};
