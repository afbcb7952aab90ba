"use strict";

/** The picture of nodes and links (topology.html), at any moment of the run. `course`: when the run `begin`s and
 * `end`s, in seconds of training; for each node its stretches [from, state]; [from, until, one node, other node, "cut" or
 * "degraded"] of links; and [from, words] of the rounds. */
class Topology {
  constructor(svg, course) {
    this.course = course;
    this.nodes = new Map([...svg.querySelectorAll("[data-node]")].map((each) => [each.dataset.node, each]));
    this.links = new Map([...svg.querySelectorAll("[data-ends]")].map((each) => [each.dataset.ends, each]));
    this.names = new Map(
      [...this.nodes].map(([name, each]) => [name, each.querySelector("title").textContent.split("\n")]),
    );
  }

  /** Show the moment `t`; returns its round in words. */
  show(t) {
    for (const [name, each] of this.nodes) {
      const state = latest(this.course.nodes[name] ?? [], t) ?? "planned";
      if (each.dataset.state === state) continue;
      each.dataset.state = state;
      const [first, ...rest] = this.names.get(name);
      each.querySelector("title").textContent = [first, `now ${state}`, ...rest].join("\n");
    }
    for (const each of this.links.values()) delete each.dataset.state;
    for (const [from, until, one, other, state] of this.course.links) {
      const link = this.links.get([one, other].sort().join(" "));
      if (link && from <= t && t < until && link.dataset.state !== "cut") link.dataset.state = state;
    }
    return latest(this.course.rounds, t) ?? "";
  }
}

/** Scroll a picture that is wider than its box so that its first node, the root, is in the middle. */
function showRoot(svg) {
  const root = svg.querySelector("[data-node]"),
    box = svg.parentElement;
  if (!root) return;
  const {left, width} = root.getBoundingClientRect(),
    outer = box.getBoundingClientRect();
  box.scrollLeft += left + width / 2 - outer.left - outer.width / 2;
}

function latest(changes, t) {
  let found;
  for (const [from, what] of changes) {
    if (from > t) break;
    found = what;
  }
  return found;
}

/** A slider, a button that plays the run in ten seconds, and the moment in words. */
function showMoments(topology, slider, button, said) {
  let frame = null;
  const show = () => {
    const round = topology.show(+slider.value),
      words = `${(+slider.value).toFixed(1)} s${round ? `, ${round}` : ""}`;
    said.textContent = words;
    slider.setAttribute("aria-valuetext", words);
  };
  const stop = () => {
    cancelAnimationFrame(frame);
    frame = null;
    button.textContent = "▶";
    button.setAttribute("aria-label", "Play the run");
  };
  button.addEventListener("click", () => {
    if (frame !== null) return stop();
    const {begin, end} = topology.course,
      from = +slider.value >= end ? Math.max(0, begin) : +slider.value;
    const since = performance.now();
    button.textContent = "❚❚";
    button.setAttribute("aria-label", "Pause");
    const step = (now) => {
      slider.value = Math.min(end, from + (Math.max(0, now - since) / 10000) * (end - Math.max(0, begin)));
      show();
      if (+slider.value >= end) stop();
      else frame = requestAnimationFrame(step);
    };
    frame = requestAnimationFrame(step);
  });
  slider.addEventListener("input", () => {
    stop();
    show();
  });
  show();
}
