"use strict";

// How each mark of orchestrator/report/marks.py becomes SVG. A drawer gets the mark and the frame of the figure: X and Y
// turn values into pixels, `left` to `right` and `top` to `bottom` is the plot.

function svgOf(name, attributes, parent) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "style") made.style.cssText = value; // as an attribute, a page's policy would refuse it
    else if (value !== undefined && value !== null) made.setAttribute(key, value);
  }
  parent?.append(made);
  return made;
}

function textOf(said, attributes, parent) {
  const made = svgOf("text", attributes, parent);
  made.textContent = said;
  return made;
}

const px = (value) => Math.round(value * 10) / 10;

/** Few enough points for the pixels there are: of each column of pixels the first, the extremes and the last. */
function thinned(points, pixels) {
  if (points.length <= 6 * pixels) return points;
  const columns = new Map();
  for (const point of points) {
    const column = Math.floor(point[0]);
    if (!columns.has(column)) columns.set(column, []);
    columns.get(column).push(point);
  }
  return [...columns.values()].flatMap((of) => {
    const low = of.reduce((a, b) => (b[1] < a[1] ? b : a)),
      high = of.reduce((a, b) => (b[1] > a[1] ? b : a));
    return of.filter((point, place) => place === 0 || place === of.length - 1 || point === low || point === high);
  });
}

function drawLine(mark, frame, into) {
  const pieces = [[]];
  mark.x.forEach((x, place) => {
    const y = mark.y[place];
    if (y === null || x === null) pieces.push([]);
    else pieces.at(-1).push([frame.X(x), frame.Y(y)]);
  });
  const path = pieces
    .filter((piece) => piece.length)
    .map((piece) => {
      const [[x, y], ...rest] = thinned(piece, frame.right - frame.left);
      const to = mark.steps ? ([x, y]) => `H${px(x)}V${px(y)}` : ([x, y]) => `L${px(x)} ${px(y)}`;
      return `M${px(x)} ${px(y)}${rest.map(to).join("")}`;
    })
    .join("");
  const style = `stroke:${mark.colour}`;
  svgOf("path", {class: "line", d: path, style, "stroke-width": mark.width, "stroke-dasharray": mark.dash}, into);
  const lonely = pieces.filter((piece) => piece.length === 1).flat();
  for (const [cx, cy] of mark.points ? pieces.flat() : lonely) {
    svgOf("circle", {cx: px(cx), cy: px(cy), r: mark.width > 2 ? 3 : 2, style: `fill:${mark.colour}`}, into);
  }
}

function drawArea(mark, frame, into) {
  const there = mark.x.map((x, place) => `${px(frame.X(x))} ${px(frame.Y(mark.high[place]))}`);
  const back = mark.x.map((x, place) => `${px(frame.X(x))} ${px(frame.Y(mark.low[place]))}`).reverse();
  if (there.length)
    svgOf("path", {class: "area", d: `M${[...there, ...back].join("L")}Z`, style: `fill:${mark.colour}`}, into);
}

function drawPoints(mark, frame, into) {
  mark.x.forEach((x, place) => {
    const y = mark.y[place];
    if (x === null || y === null) return;
    const cx = px(frame.X(x)),
      cy = px(frame.Y(y)),
      half = mark.size / 2;
    const drawn = mark.stroke
      ? svgOf("rect", {x: cx - 1.5, y: cy - half, width: 3, height: mark.size, style: `fill:${mark.colour}`}, into)
      : svgOf("circle", {cx, cy, r: half, style: `fill:${mark.colour}`}, into);
    drawn.told = mark.notes?.[place] ?? `${mark.name}: ${inWords(frame.x, x)}, ${inWords(frame.y, y)}`;
    drawn.at = x;
  });
}

function drawBoxes(mark, frame, into) {
  mark.x0.forEach((x0, place) => {
    const x1 = mark.x1[place];
    if (x1 < frame.low || x0 > frame.high) return;
    const left = Math.max(frame.X(x0), frame.left - 1),
      right = Math.min(frame.X(x1), frame.right + 1);
    const ends = mark.y0
      ? [frame.Y(mark.y0[place]), frame.Y(mark.y1[place])]
      : [frame.laneTop, frame.laneTop + LANE - 3];
    const top = Math.min(...ends),
      height = Math.abs(ends[1] - ends[0]);
    const opacity = Array.isArray(mark.opacity) ? mark.opacity[place] : mark.opacity;
    const drawn = svgOf(
      "rect",
      {
        class: mark.y0 ? "box" : "in-lane",
        x: px(left),
        y: px(top),
        width: Math.max(x1 > x0 ? 1 : 0, px(right - left)),
        height: Math.max(0.5, px(height)),
        style: `fill:${mark.colour}`,
        "fill-opacity": opacity,
      },
      into,
    );
    const row = mark.y0 && frame.y.labels ? `${inWords(frame.y, (mark.y0[place] + mark.y1[place]) / 2)}: ` : "";
    drawn.told = mark.notes?.[place] || `${row}${mark.name}, ${inWords(frame.x, x0)} to ${inWords(frame.x, x1)}`;
    drawn.at = x0;
    const said = mark.texts?.[place];
    if (said && widthOf(said, 10.5) + 2 <= right - left && height >= 10) {
      textOf(said, {class: "inside", x: px((left + right) / 2), y: px(top + height / 2), dy: "0.35em"}, into);
    }
  });
}

function drawRanges(mark, frame, into) {
  mark.y.forEach((y, place) => {
    const low = px(frame.X(mark.low[place])),
      high = px(frame.X(mark.high[place])),
      at = px(frame.Y(y));
    if (high > low) {
      const d = `M${low} ${at - 4}v8m0 -4H${high}m0 -4v8`;
      svgOf("path", {class: "line", d, style: `stroke:${mark.colour}`, "stroke-width": 1.3}, into);
    }
  });
}

function drawTexts(mark, frame, into) {
  mark.texts.forEach((said, place) => {
    textOf(
      said,
      {class: "beside", x: px(frame.X(mark.x[place]) + 6), y: px(frame.Y(mark.y[place])), dy: "0.35em"},
      into,
    );
  });
}

const LANE = 13; // pixels of a lane above the plot
const DRAWERS = {
  line: drawLine,
  area: drawArea,
  points: drawPoints,
  boxes: drawBoxes,
  ranges: drawRanges,
  texts: drawTexts,
};

/** The values of a mark along an axis, for its range. */
const VALUES = {
  line: {x: (mark) => mark.x, y: (mark) => mark.y},
  area: {x: (mark) => mark.x, y: (mark) => [...mark.low, ...mark.high]},
  points: {x: (mark) => mark.x, y: (mark) => mark.y},
  boxes: {x: (mark) => [...mark.x0, ...mark.x1], y: (mark) => (mark.y0 ? [...mark.y0, ...mark.y1] : [])},
  ranges: {x: (mark) => [...mark.low, ...mark.high], y: (mark) => mark.y},
  texts: {x: () => [], y: () => []},
};
