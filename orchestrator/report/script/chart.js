"use strict";

/** A figure of orchestrator/report/marks.py inside an element: drawn as SVG, with a legend that switches marks off,
 * readouts for pointer and keyboard, and zoom along x. `update` draws new data and keeps what the reader has chosen. */
class Chart {
  constructor(element, figure) {
    this.element = element;
    this.off = new Set(); // entries of the legend that are switched off
    this.view = null; // the zoomed range of x
    this.cursor = -1; // the place of the keyboard's cursor
    this.pointer = null; // where the pointer is, while it is over the drawing
    this.dragging = false; // whether a drag goes on: nothing is drawn before its end
    this.build();
    this.width = 0;
    this.update(figure);
    new ResizeObserver(() => {
      if (this.plot.clientWidth === this.width) return;
      this.width = this.plot.clientWidth;
      this.draw();
    }).observe(this.plot);
  }

  build() {
    const caption = this.make("figcaption", "", this.element);
    this.title = this.make("span", "caption", caption);
    const tools = this.make("span", "tools", caption);
    this.whole = this.button("whole range", tools, () => this.zoom(null));
    this.table = this.button("table", tools, () => this.toggleTable());
    this.table.setAttribute("aria-expanded", "false");
    for (const kind of Object.keys(EXPORTS)) this.button(kind, tools, () => EXPORTS[kind](this));
    this.entries = this.make("div", "entries", this.element);
    this.plot = this.make("div", "drawing", this.element);
    this.readout = this.make("div", "readout", this.plot);
    this.readout.hidden = true;
    this.spoken = this.make("p", "spoken", this.element);
    this.spoken.setAttribute("aria-live", "polite");
    this.behind = this.make("div", "behind scroll tall", this.element);
    this.behind.hidden = true;
    this.behind.tabIndex = 0;
  }

  make(tag, name, parent) {
    const made = document.createElement(tag);
    if (name) made.className = name;
    parent.append(made);
    return made;
  }

  button(said, parent, act) {
    const made = this.make("button", "", parent);
    made.type = "button";
    made.textContent = said;
    made.addEventListener("click", act);
    return made;
  }

  update(figure) {
    this.figure = figure;
    this.title.textContent = figure.title;
    for (const made of this.title.nextElementSibling.children)
      made.setAttribute("aria-label", `${made.textContent}: ${figure.title}`);
    this.listEntries();
    this.draw();
    if (!this.behind.hidden) fillTable(this);
  }

  entryOf(mark) {
    return mark.group ?? mark.name;
  }

  listEntries() {
    const colours = new Map();
    for (const mark of this.figure.marks) {
      if (this.entryOf(mark)) colours.set(this.entryOf(mark), [...(colours.get(this.entryOf(mark)) ?? []), mark]);
    }
    const key = JSON.stringify([...colours].map(([entry, marks]) => [entry, marks[0].colour, marks.at(-1).colour]));
    if (key === this.listed) return;
    this.listed = key;
    this.entries.replaceChildren();
    this.entries.hidden = colours.size < 2;
    for (const [entry, marks] of colours) {
      const made = this.button("", this.entries, () => {
        this.off[this.off.has(entry) ? "delete" : "add"](entry);
        made.setAttribute("aria-pressed", !this.off.has(entry));
        this.draw();
      });
      made.setAttribute("aria-pressed", !this.off.has(entry));
      const sample = svgOf("svg", {width: 20, height: 10, "aria-hidden": "true"}, made);
      const mark = marks.find((each) => each.mark !== "area") ?? marks[0],
        style = `stroke:${mark.colour}`;
      if (mark.mark === "line") {
        svgOf(
          "path",
          {d: "M0 5H20", style, "stroke-width": Math.max(1.5, mark.width), "stroke-dasharray": mark.dash},
          sample,
        );
      } else {
        const shown = [...new Set(marks.map((each) => each.colour))].slice(0, 2);
        shown.forEach((colour, place) => {
          svgOf(
            "rect",
            {x: 4 + place * 6, width: 12 / shown.length, height: 10, rx: 1, style: `fill:${colour}`},
            sample,
          );
        });
      }
      made.append(entry);
    }
  }

  shown() {
    return this.figure.marks.filter((mark) => !this.off.has(this.entryOf(mark)));
  }

  range(axis, name, marks, room) {
    if (axis.labels) return [-0.5, axis.labels.length - 0.5];
    if (axis.range) return axis.range;
    let [low, high] = extent(marks.flatMap((mark) => VALUES[mark.mark][name](mark))) ?? [0, 1];
    if (axis.zero) [low, high] = [Math.min(0, low), Math.max(0, high)];
    if (low === high) [low, high] = [low - (axis.zero ? 0 : 0.5), high + 0.5];
    const pad = (high - low) * room;
    return [axis.zero && low >= 0 ? low : low - pad, high + pad];
  }

  /** Draw at the width that the element has now, also before the observer hears of it. */
  fit() {
    this.width = 0;
    this.draw();
  }

  draw() {
    const width = (this.width ||= this.plot.clientWidth),
      figure = this.figure; // asked for once: it costs a layout
    if (!width || this.dragging) return;
    const marks = this.shown(),
      lanes = figure.lanes ?? [];
    let [low, high] = this.view ?? this.range(figure.x, "x", marks, 0.015);
    const [bottomY, topY] = this.range(figure.y, "y", marks, 0.05);
    const yTicks = figure.y.labels ? figure.y.labels.map((_, row) => row) : ticks(bottomY, topY, figure.height / 38);
    const said = yTicks.map((value) => (figure.y.labels ? figure.y.labels[value] : inWords(figure.y, value)));
    const small = figure.y.labels && figure.height / said.length < 15 ? 9.5 : 11.5;
    const longest = Math.max(
      ...said.flatMap((each) => each.split("\n")).map((each) => widthOf(each, small)),
      ...lanes.map((lane) => widthOf(lane.name, 10.5)),
    );
    const left = Math.min(width * 0.45, Math.ceil(longest) + 10 + (figure.y.title ? 18 : 0)),
      right = width - 14;
    if (!this.view) high = withTexts(marks, low, high, right - left);
    const top = lanes.length * LANE + 8,
      bottom = top + figure.height,
      height = bottom + (figure.x.title ? 40 : 22);
    const frame = {
      left,
      right,
      top,
      bottom,
      low,
      high,
      width,
      x: figure.x,
      y: figure.y,
      X: (value) => left + ((value - low) / (high - low)) * (right - left),
      Y: figure.y.labels
        ? (value) => top + ((value + 0.5) / said.length) * figure.height
        : (value) => bottom - ((value - bottomY) / (topY - bottomY)) * figure.height,
    };
    this.frame = frame;
    const svg = svgOf("svg", {
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "img",
      tabindex: 0,
      "aria-label": this.summary(marks),
    });
    const clip = `clip-${this.element.id}`;
    svgOf("rect", {x: left - 4, y: 0, width: right - left + 8, height: bottom + 4}, svgOf("clipPath", {id: clip}, svg));
    const grid = svgOf("g", {class: "grid"}, svg);
    this.drawAxes(frame, grid, yTicks, said, small, height);
    const inside = svgOf("g", {"clip-path": `url(#${clip})`}, svg);
    for (const shade of figure.shades ?? []) {
      const x = frame.X(shade.x0),
        w = Math.max(1, frame.X(shade.x1) - x);
      svgOf(
        "rect",
        {class: "shade", x: px(x), y: top, width: px(w), height: figure.height, style: `fill:${shade.colour}`},
        inside,
      );
    }
    for (const rule of figure.rules ?? [])
      svgOf("path", {class: "rule", d: `M${left} ${px(frame.Y(rule))}H${right}`}, inside);
    lanes.forEach((lane, row) => {
      textOf(lane.name, {class: "lane", x: left - 6, y: row * LANE + LANE / 2 + 1, dy: "0.3em"}, grid);
      drawBoxes(lane, {...frame, laneTop: row * LANE + 2}, inside);
    });
    for (const mark of marks) DRAWERS[mark.mark](mark, frame, inside);
    if (!marks.some((mark) => VALUES[mark.mark].x(mark).length)) {
      textOf("nothing yet", {class: "title", x: (left + right) / 2, y: (top + bottom) / 2}, inside);
    }
    this.overlay = svgOf("g", {class: "overlay"}, svg);
    listen(this, svg);
    const focused = this.svg === document.activeElement;
    this.svg?.remove();
    this.svg = svg;
    this.plot.prepend(svg);
    if (focused) svg.focus();
    this.whole.hidden = !this.view;
    this.readout.hidden = true;
    readAgain(this);
  }

  drawAxes(frame, grid, yTicks, said, small, height) {
    const {left, right, top, bottom} = frame,
      {x, y} = this.figure;
    const every = Math.ceil((yTicks.length * (small + 1)) / this.figure.height);
    yTicks.forEach((value, place) => {
      const at = px(frame.Y(value)),
        lines = said[place].split("\n");
      if (!y.labels) svgOf("path", {d: `M${left} ${at}H${right}`}, grid);
      if (place % every) return;
      const text = svgOf("text", {class: "tick y", x: left - 6, y: at, "font-size": small}, grid);
      lines.forEach((each, row) => {
        const dy = row ? "1.2em" : `${0.33 - 0.6 * (lines.length - 1)}em`;
        svgOf("tspan", {x: left - 6, dy}, text).textContent = fitted(each, left - 8 - (y.title ? 18 : 0), small);
      });
    });
    const room = x.labels ? Math.max(...x.labels.map((each) => widthOf(each, 11.5))) + 8 : 64;
    const sparse = x.labels ? Math.ceil((x.labels.length * room) / (right - left)) : 1;
    const xTicks = x.labels
      ? x.labels.map((_, place) => place).filter((place) => place % sparse === 0)
      : ticks(frame.low, frame.high, (right - left) / room);
    for (const value of xTicks) {
      const at = px(frame.X(value));
      if (!x.labels) svgOf("path", {d: `M${at} ${top}V${bottom}`}, grid);
      const told = inWords(x, value),
        half = widthOf(told, 11.5) / 2;
      textOf(told, {class: "tick", x: px(Math.min(at, frame.width - half - 1)), y: bottom + 15}, grid);
    }
    svgOf("path", {class: "edge", d: `M${left} ${top}V${bottom}H${right}`}, grid);
    if (x.title) textOf(x.title, {class: "title", x: (left + right) / 2, y: height - 6}, grid);
    if (y.title) {
      const middle = (top + bottom) / 2;
      textOf(y.title, {class: "title", x: 11, y: middle, transform: `rotate(-90 11 ${middle})`, dy: "0.1em"}, grid);
    }
  }

  zoom(view) {
    this.view = view;
    this.draw();
  }

  toggleTable() {
    this.behind.hidden = !this.behind.hidden;
    this.table.setAttribute("aria-expanded", !this.behind.hidden);
    if (!this.behind.hidden) fillTable(this);
  }

  /** What the figure shows, in words, for those who do not see it. */
  summary(marks) {
    const {x, y, title, lanes} = this.figure;
    const parts = marks
      .filter((mark) => mark.mark === "line" && !mark.group)
      .map((mark) => {
        const known = mark.y.filter((value) => value !== null);
        return known.length ? `${mark.name} from ${inWords(y, known[0])} to ${inWords(y, known.at(-1))}` : "";
      });
    parts.push(
      ...marks.filter((mark) => mark.name && mark.mark === "boxes").map((mark) => `${mark.name}: ${mark.x0.length}`),
    );
    parts.push(...(lanes ?? []).map((lane) => `${lane.name}: ${lane.x0.length}`));
    const told = parts.filter(Boolean),
      most = told.slice(0, 12).join("; ");
    return (
      `${title}, against ${x.title || "the labels"}. ${most}${told.length > 12 ? " and others" : ""}. ` +
      "Arrow keys read values, plus and minus zoom, 0 shows the whole range."
    );
  }
}

/** The upper end of the range of x with which the texts beside their places end inside the plot of this width. */
function withTexts(marks, low, high, width) {
  let end = high;
  for (const mark of marks.filter((each) => each.mark === "texts")) {
    mark.texts.forEach((said, place) => {
      const room = Math.max(width / 4, width - widthOf(said, 11.5) - 10);
      end = Math.max(end, low + ((mark.x[place] - low) * width) / room);
    });
  }
  return end;
}

/** As much of a text as fits, with more of its end than of its start: labels often start alike. */
function fitted(said, room, size) {
  if (widthOf(said, size) <= room) return said;
  let kept = said.length,
    shown = said;
  do {
    kept--;
    const start = Math.floor(kept / 3);
    shown = `${said.slice(0, start)}…${said.slice(said.length - (kept - start))}`;
  } while (kept > 1 && widthOf(shown, size) > room);
  return shown;
}

const charts = {};

/** Draw figures into the elements with their ids; those without marks are left out. A second call updates. */
function drawFigures(figures) {
  for (const [id, figure] of Object.entries(figures)) {
    const element = document.getElementById(id);
    if (!element || !figure.marks.length) continue;
    if (charts[id]) charts[id].update(figure);
    else charts[id] = new Chart(element, figure);
  }
}
