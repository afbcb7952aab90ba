"use strict";

// Readouts and zoom: by pointer, and by keyboard.

/** The values of all lines near `x`, as lines of text. Lines of a group are told by their range. */
function valuesNear(chart, x) {
  const {figure, frame} = chart,
    told = [],
    groups = new Map();
  for (const mark of chart.shown()) {
    if (mark.mark !== "line" || !mark.x.length) continue;
    const place = nearest(mark.x, x),
      value = mark.y[place];
    if (value === null) continue;
    if (mark.group) groups.set(mark.group, [...(groups.get(mark.group) ?? []), value]);
    else
      told.push({
        colour: mark.colour,
        said: `${mark.name}: ${mark.notes?.[place] ?? inWords(figure.y, value)}`,
        value,
        x: mark.x[place],
      });
  }
  told.sort((one, other) => other.value - one.value);
  for (const [group, values] of groups) {
    const [low, high] = extent(values);
    told.push({said: `${group}: ${inWords(figure.y, low)} to ${inWords(figure.y, high)}`});
  }
  for (const lane of figure.lanes ?? []) {
    lane.x0.forEach((x0, place) => {
      if (x0 <= x && x <= lane.x1[place]) told.push({colour: lane.colour, said: lane.notes[place]});
    });
  }
  const title = figure.x.title ? `${figure.x.title} ` : "";
  return {title: `${title}${inWords(frame.x, x)}`, told};
}

function showReadout(chart, title, told, left, top) {
  const box = chart.readout;
  box.replaceChildren();
  if (title) chart.make("b", "", box).textContent = title;
  for (const {colour, said} of told.slice(0, 18)) {
    const row = chart.make("div", "", box);
    if (colour) chart.make("i", "dot", row).style.background = colour;
    row.append(said);
  }
  if (told.length > 18) chart.make("div", "", box).textContent = `and ${told.length - 18} more`;
  box.hidden = false;
  const room = chart.plot.clientWidth;
  box.style.left = `${Math.max(0, left > room / 2 ? left - box.offsetWidth - 14 : left + 14)}px`;
  box.style.top = `${Math.max(0, top - box.offsetHeight / 2)}px`;
}

function clearReadout(chart) {
  chart.readout.hidden = true;
  chart.overlay.replaceChildren();
}

/** One readout for all lines at `x`, with a line through the plot. */
function readAt(chart, x, top) {
  const {frame} = chart,
    {title, told} = valuesNear(chart, x);
  chart.overlay.replaceChildren();
  svgOf("path", {class: "cursor", d: `M${px(frame.X(x))} ${frame.top}V${frame.bottom}`}, chart.overlay);
  for (const each of told) {
    if (each.value === undefined) continue;
    svgOf(
      "circle",
      {cx: px(frame.X(each.x)), cy: px(frame.Y(each.value)), r: 4, style: `fill:${each.colour}`},
      chart.overlay,
    );
  }
  showReadout(chart, title, told, frame.X(x), top);
  return [title, ...told.map((each) => each.said)].join("; ");
}

/** The readout of one drawn mark, which gets a frame. */
function readMark(chart, drawn, top) {
  chart.overlay.replaceChildren();
  const box = drawn.getBBox();
  svgOf(
    "rect",
    {class: "cursor", x: box.x - 1, y: box.y - 1, width: box.width + 2, height: box.height + 2},
    chart.overlay,
  );
  showReadout(chart, "", [{said: drawn.told}], box.x + box.width / 2, top ?? box.y);
  return drawn.told;
}

/** What the arrow keys go through: the x of all visible lines, or the drawn marks from left to right. */
function stops(chart) {
  const {frame} = chart;
  if (chart.figure.hover === "x") {
    const lines = chart.shown().filter((mark) => mark.mark === "line" && !mark.group);
    const values = new Set(lines.flatMap((mark) => mark.x));
    return [...values].filter((x) => x !== null && x >= frame.low && x <= frame.high).sort((one, other) => one - other);
  }
  return [...chart.svg.querySelectorAll("rect, circle")]
    .filter((each) => each.told !== undefined)
    .sort((one, other) => one.getBBox().y - other.getBBox().y || one.at - other.at);
}

function readStop(chart, stop) {
  return chart.figure.hover === "x" ? readAt(chart, stop, chart.frame.top + 40) : readMark(chart, stop);
}

/** The place of a pointer in the drawing: x and y. */
function placeOf(chart, {clientX, clientY}) {
  const box = chart.svg.getBoundingClientRect(),
    {width, height} = chart.svg.viewBox.baseVal;
  return [((clientX - box.left) / box.width) * width, ((clientY - box.top) / box.height) * height];
}

/** Read what is at the pointer; `target` is the element there. */
function readPointer(chart, event, target) {
  const {frame} = chart,
    [at, top] = placeOf(chart, event);
  if (target.told !== undefined) return readMark(chart, target, top);
  if (chart.figure.hover !== "x" || at < frame.left || at > frame.right) return clearReadout(chart);
  const all = stops(chart),
    x = frame.low + ((at - frame.left) / (frame.right - frame.left)) * (frame.high - frame.low);
  if (all.length) readAt(chart, all[nearest(all, x)], top);
}

/** After a drawing of new data: what was read before it. */
function readAgain(chart) {
  if (chart.pointer) {
    const target = document.elementFromPoint(chart.pointer.clientX, chart.pointer.clientY);
    if (chart.svg.contains(target)) readPointer(chart, chart.pointer, target);
  } else if (chart.cursor >= 0 && chart.svg === document.activeElement) {
    const stop = stops(chart)[chart.cursor];
    if (stop !== undefined) readStop(chart, stop);
  }
}

function pressed(chart, event) {
  const {frame} = chart,
    step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity}[event.key];
  if (step !== undefined) {
    const all = stops(chart);
    if (!all.length) return;
    chart.cursor = Math.min(all.length - 1, Math.max(0, chart.cursor + step));
    chart.spoken.textContent = readStop(chart, all[chart.cursor]);
  } else if (event.key === "+" || event.key === "-") {
    const middle = (frame.low + frame.high) / 2,
      half = (frame.high - frame.low) * (event.key === "+" ? 0.25 : 1);
    chart.zoom([middle - half, middle + half]);
  } else if (event.key === "0" || event.key === "Escape") {
    clearReadout(chart);
    chart.cursor = -1;
    chart.zoom(null);
  } else return;
  event.preventDefault();
}

/** Pointer and keyboard on a drawn figure. A drag along x zooms, a double click shows the whole range. */
function listen(chart, svg) {
  const {frame} = chart;
  let from = null;
  const value = (at) => frame.low + ((at - frame.left) / (frame.right - frame.left)) * (frame.high - frame.low);
  const within = (at) => Math.min(frame.right, Math.max(frame.left, at));
  svg.addEventListener("pointermove", (event) => {
    chart.pointer = event;
    if (from === null) return void readPointer(chart, event, event.target);
    chart.overlay.replaceChildren();
    const [left, right] = [from, within(placeOf(chart, event)[0])].sort((one, other) => one - other);
    svgOf(
      "rect",
      {class: "chosen", x: left, y: frame.top, width: right - left, height: frame.bottom - frame.top},
      chart.overlay,
    );
  });
  svg.addEventListener("pointerdown", (event) => {
    const [at] = placeOf(chart, event);
    if (event.pointerType === "touch" || at < frame.left) return;
    from = within(at);
    chart.dragging = true;
    svg.setPointerCapture(event.pointerId);
  });
  const drop = (event) => {
    if (from === null) return;
    const ends = [from, within(placeOf(chart, event)[0])].sort((one, other) => one - other);
    from = null;
    chart.dragging = false;
    if (ends[1] - ends[0] > 6) chart.zoom(ends.map(value));
  };
  svg.addEventListener("pointerup", drop);
  svg.addEventListener("pointercancel", drop);
  svg.addEventListener("pointerleave", () => {
    chart.pointer = null;
    if (from === null) clearReadout(chart);
  });
  svg.addEventListener("dblclick", () => chart.zoom(null));
  svg.addEventListener("keydown", (event) => pressed(chart, event));
  svg.addEventListener("blur", () => clearReadout(chart));
}
