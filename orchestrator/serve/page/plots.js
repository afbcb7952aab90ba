// Figures that the report's script draws (orchestrator/report/script), on a page that lives.
import {el} from "./dom.js";

export const GLOBAL = "var(--global)", MANY = "var(--many)";
export const SERIES = Array.from({length: 8}, (_, place) => `var(--series-${place + 1})`);

const watched = new IntersectionObserver((entries) => entries.forEach(({target, isIntersecting}) => target.dispatchEvent(new CustomEvent("seen", {detail: isIntersecting}))), {rootMargin: "100px"});

// A figure that can be drawn again. `make()` gives it as orchestrator/report/marks.py describes, or null for none. One that
// is scrolled out of the window is drawn when it is seen again.
export function plot(id, make) {
  const box = el("figure", {class: "plot", id});
  let chart = null, seen = true, stale = false;
  function draw() {
    const figure = make();
    stale = false;
    box.hidden = !figure;
    if (!figure) return;
    if (chart) chart.update(figure);
    else chart = new Chart(box, figure);
  }
  box.addEventListener("seen", (event) => {
    seen = event.detail;
    if (seen && stale) draw();
  });
  watched.observe(box);
  addEventListener("beforeprint", () => { if (stale) draw(); });
  return {box, again: () => { if (chart && !seen && !box.hidden) stale = true; else draw(); }};
}

export const line = (name, points, colour, more = {}) =>
  ({mark: "line", name, x: points.map(([x]) => x), y: points.map(([, y]) => y), colour, width: 1.5, ...more});

// Upright bars, one for each name.
export function bars(title, names, values, yAxis, colours, notes) {
  const place = names.map((_, index) => index), kinds = Map.groupBy(place, (index) => colours[index][0]);
  const marks = [...kinds].map(([name, of]) => ({
    ...{mark: "boxes", name, colour: colours[of[0]][1], x0: of.map((at) => at - 0.38), x1: of.map((at) => at + 0.38)},
    ...{y0: of.map(() => 0), y1: of.map((at) => values[at]), notes: of.map((at) => notes[at])},
  }));
  return {title, x: {title: "", labels: names}, y: {zero: true, ...yAxis}, marks, height: 120};
}
