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

// A figure that can be drawn again. `make()` gives it as orchestrator/report/marks.py describes, or null for none. One that
// is scrolled out of the window is drawn when it is seen again.
export function plot(id, make) {
  const box = el("figure", {class: "plot", id});
  let chart = null,
    seen = true,
    stale = false;
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
  addEventListener("beforeprint", () => {
    if (stale) draw();
  });
  return {
    box,
    again: () => {
      if (chart && !seen && !box.hidden) stale = true;
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
