"use strict";

// Numbers in words, the ticks of an axis, and how wide a text is.

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

function inDigits(value) {
  const most = Math.abs(value) >= 1000 ? {maximumFractionDigits: 0} : {maximumSignificantDigits: 4};
  return value.toLocaleString("en", most).replace("-", "−");
}

const FORMATS = {
  number: inDigits,
  percent: (value) => `${inDigits(Math.round(1000 * value) / 10)}%`,
  bytes: (value) => {
    const power = Math.min(UNITS.length - 1, Math.floor(Math.log10(Math.max(1, Math.abs(value))) / 3));
    return `${inDigits(+(value / 1000 ** power).toPrecision(3))} ${UNITS[power]}`;
  },
  rate: (value) => FORMATS.bytes(value).replace("B", "bit/s"),
};

function inWords(axis, value) {
  if (value === null || value === undefined) return "none";
  if (axis.labels) return (axis.labels[Math.round(value)] ?? "").replaceAll("\n", " ");
  return FORMATS[axis.format ?? "number"](value);
}

/** About `count` round numbers from `low` to `high`. */
function ticks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  if (!(raw > 1e-12 * Math.abs(low))) return [low]; // closer together, sums of floats would not grow
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999);
  const found = [];
  for (let number = Math.ceil(low / step - 1e-9); number * step <= high + step * 1e-9; number++) {
    found.push(+(number * step).toPrecision(12));
  }
  return found;
}

const FONT = 'system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif';
const pen = document.createElement("canvas").getContext("2d");
const widths = new Map();

function widthOf(text, size = 12) {
  const key = `${size} ${text}`;
  if (!widths.has(key)) {
    pen.font = `${size}px ${FONT}`;
    widths.set(key, pen.measureText(text).width);
  }
  return widths.get(key);
}

/** The lowest and the highest of these numbers; null without any. */
function extent(values) {
  let low = Infinity,
    high = -Infinity;
  for (const value of values) {
    if (value === null || value === undefined) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : null;
}

/** The place of the value in a sorted list that is nearest to `wanted`. */
function nearest(sorted, wanted) {
  let low = 0,
    high = sorted.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low > 0 && wanted - sorted[low - 1] < sorted[low] - wanted ? low - 1 : low;
}
