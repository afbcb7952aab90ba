// Figures that the report's script draws (orchestrator/report/script), on a page that lives.
import {el} from "./dom.js";

export const GLOBAL = "var(--global)";

const watched = new IntersectionObserver(
  (entries) =>
    entries.forEach(({target, isIntersecting}) =>
      target.dispatchEvent(new CustomEvent("seen", {detail: isIntersecting})),
    ),
  {rootMargin: "100px"},
);

// On paper, figures have the paper's width and light colours.
addEventListener("beforeprint", () => document.documentElement.classList.add("printing"));
addEventListener("afterprint", () => document.documentElement.classList.remove("printing"));

const REST = 1000; // ms from one drawing of a figure out of view to the next
const whenIdle = window.requestIdleCallback ?? setTimeout; // not every browser has the first

// A figure that can be drawn again. `make()` gives it as orchestrator/report/marks.py describes, or null for none. One that
// is scrolled out of the window is drawn when the browser has nothing else to do, so that prints and captures have it.
export function plot(id, make) {
  const box = el("figure", {class: "plot", id, hidden: true});
  let chart = null,
    seen = true,
    stale = false,
    waiting = false,
    drawn = 0;
  function draw() {
    const figure = make();
    stale = false;
    drawn = performance.now();
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
  function drawStale() {
    waiting = false;
    if (stale) draw();
  }
  function drawWhenIdle() {
    stale = true;
    if (waiting) return;
    waiting = true;
    setTimeout(() => whenIdle(drawStale, {timeout: REST}), Math.max(0, drawn + REST - performance.now()));
  }
  for (const name of ["beforeprint", "afterprint"]) {
    addEventListener(name, () => {
      drawStale();
      chart?.fit();
    });
  }
  return {
    box,
    again: () => {
      if (chart && !seen && !box.hidden) drawWhenIdle();
      else draw();
    },
  };
}

export const line = (name, points, colour, more = {}) => ({
  mark: "line",
  name,
  x: points.map(([x]) => x),
  y: points.map(([, y]) => y),
  colour,
  width: 1.5,
  ...more,
});
