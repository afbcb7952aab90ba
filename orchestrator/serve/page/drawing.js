// Figures as SVG, from plain JSON. They know nothing of runs, records or servers.
import {el, svg, details, table, saveCsv, saveSvg} from "./dom.js";

const MARGIN = {left: 70, right: 14, top: 12, bottom: 34};
const LANE = 13;

// Round values for an axis from low to high, about `wanted` of them.
export function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999);
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}

// Draws a figure again whenever its place changes its width, or when asked to.
function drawn(place, draw) {
  let width = 0;
  const again = () => { if (width > 0) draw(width); };
  new ResizeObserver(([entry]) => {
    if (Math.abs(entry.contentRect.width - width) >= 1) { width = entry.contentRect.width; requestAnimationFrame(again); }
  }).observe(place);
  return again;
}

// Spans of a lane that overlap become one, which says how many it stands for.
function together(spans) {
  const found = [];
  for (const [start, end, text] of spans.sort(([a], [b]) => a - b)) {
    const last = found.at(-1);
    if (last && start < last[1] - 0.5) { last[1] = Math.max(last[1], end); last[2].push(text); }
    else found.push([start, end, [text]]);
  }
  return found.map(([start, end, texts]) => [start, end, texts.length > 6 ? `${texts.slice(0, 5).join(", ")} and ${texts.length - 5} more` : texts.join(", ")]);
}

// Curves with lanes of spans below them, on the same axis.
// `data()` gives {x: {name, label, low, high, form}, y: {label, low, high, form, tick}, series: [{name, named, style, points: [[x, y]]}],
// bands: [{name, style, points: [[x, low, high]]}], lanes: [{name, style, spans: [[from, to, text]]}]}.
export function curves(title, data) {
  const place = el("div", {class: "drawing"}), readout = el("p", {class: "readout", "aria-live": "polite"});
  const legend = el("ul", {class: "legend"}), hidden = new Set();
  let figure = null, scale = null, now = null, at = null;
  const again = drawn(place, (width) => {
    now = data();
    const lanes = now.lanes ?? [], inner = width < 500 ? 170 : 220;
    const bottom = MARGIN.top + inner, height = bottom + lanes.length * LANE + (lanes.length ? 6 : 0) + MARGIN.bottom;
    const {low: x0, high: x1} = now.x, {low: y0, high: y1} = now.y;
    const right = width - MARGIN.right;
    const x = (value) => MARGIN.left + (value - x0) / (x1 - x0 || 1) * (right - MARGIN.left);
    const y = (value) => bottom - (value - y0) / (y1 - y0 || 1) * inner;
    scale = {x, back: (px) => x0 + (px - MARGIN.left) / (right - MARGIN.left) * (x1 - x0)};
    const path = (points) => points.map(([px, py], index) => `${index ? "L" : "M"}${x(px).toFixed(1)} ${y(py).toFixed(1)}`).join("");
    const floor = height - MARGIN.bottom;
    const shown = now.series.filter((series) => !hidden.has(series.name));
    const next = svg("svg", {viewBox: `0 0 ${width} ${height}`, width, height, role: "img", tabindex: 0, "aria-label": `${title}. Arrow keys read values; the table below has them all.`},
      ticks(y0, y1, 4).map((value) => svg("g", {class: "grid"},
        svg("line", {x1: MARGIN.left, x2: right, y1: y(value), y2: y(value)}),
        svg("text", {x: MARGIN.left - 7, y: y(value) + 4, class: "end"}, (now.y.tick ?? now.y.form)(value)))),
      ticks(x0, x1, width / 110).map((value) => svg("g", {class: "grid"},
        svg("line", {x1: x(value), x2: x(value), y1: floor, y2: floor + 4}),
        svg("text", {x: x(value), y: floor + 17, class: "middle"}, now.x.form(value)))),
      svg("text", {x: right, y: height - 3, class: "end axis"}, now.x.label),
      (now.bands ?? []).filter((band) => band.points.length > 1 && !hidden.has(band.name)).map((band) => svg("path", {class: `area ${band.style}`,
        d: `${path(band.points.map(([px, , high]) => [px, high]))}${path(band.points.map(([px, low]) => [px, low]).reverse()).replace("M", "L")}Z`})),
      lanes.map((lane, row) => {
        const top = bottom + 6 + row * LANE;
        return svg("g", {class: `lane ${lane.style}`},
          svg("text", {x: MARGIN.left - 7, y: top + 10, class: "end"}, lane.name),
          together(lane.spans.map(([from, to, text]) => [Math.max(MARGIN.left, x(from)), Math.min(right, x(to)), text]).filter(([start, end]) => end >= MARGIN.left && start <= right))
            .map(([start, end, said]) => svg("rect", {x: start, y: top, width: Math.max(2, end - start), height: LANE - 3, rx: 2}, svg("title", {}, said))));
      }),
      svg("line", {class: "base", x1: MARGIN.left, x2: right, y1: bottom, y2: bottom}),
      shown.map((series) => svg("path", {class: `curve ${series.style}`, d: path(series.points)})),
      shown.flatMap((series) => series.named === false || series.points.length > 60 ? [] : series.points.map(([px, py]) => svg("circle", {class: `dot ${series.style}`, cx: x(px), cy: y(py), r: 2}))),
      svg("line", {class: "cursor", y1: MARGIN.top, y2: floor, x1: -9, x2: -9}));
    const focused = document.activeElement === figure;
    place.replaceChildren(next);
    figure = next;
    if (focused) figure.focus();
    if (!shown.some((series) => series.points.length)) figure.append(svg("text", {x: (MARGIN.left + right) / 2, y: bottom - inner / 2, class: "middle"}, "nothing was reported yet"));
    point(at);
    key();
    values.refresh();
  });

  function key() {
    const entries = [...now.series.filter((series) => series.named !== false), ...(now.bands ?? [])];
    const wanted = entries.map((entry) => `${entry.name}${hidden.has(entry.name)}`).join("\n");
    if (legend.dataset.shown === wanted) return;
    legend.dataset.shown = wanted;
    legend.replaceChildren(...(entries.length < 2 ? [] : entries.map((entry) => el("li", {}, el("button", {
      type: "button", "aria-pressed": String(!hidden.has(entry.name)),
      onclick: () => { if (!hidden.delete(entry.name)) hidden.add(entry.name); again(); },
    }, el("i", {class: `stroke ${entry.style}`}), entry.name)))));
  }

  // Reads the values at a place on the axis.
  function point(value) {
    at = value;
    const line = figure.querySelector(".cursor");
    if (value === null) { readout.textContent = " "; line.setAttribute("x1", -9); line.setAttribute("x2", -9); return; }
    line.setAttribute("x1", scale.x(value)); line.setAttribute("x2", scale.x(value));
    const said = now.series.filter((series) => series.points.length && !hidden.has(series.name) && series.named !== false).slice(0, 10).map((series) => {
      const [, near] = series.points.reduce((best, each) => Math.abs(each[0] - value) < Math.abs(best[0] - value) ? each : best);
      return `${series.name} ${now.y.form(near)}`;
    });
    const faults = (now.lanes ?? []).flatMap((lane) => lane.spans.filter(([from, to]) => from <= value && value <= to).map((span) => span[2]));
    readout.textContent = [`${now.x.name} ${now.x.form(value)}`, ...said, ...faults.slice(0, 6)].join(" · ");
  }

  place.addEventListener("pointermove", (event) => {
    if (!scale) return;
    const value = scale.back(event.clientX - place.getBoundingClientRect().left);
    point(value >= now.x.low && value <= now.x.high ? value : null);
  });
  place.addEventListener("pointerleave", () => figure && point(null));
  place.addEventListener("keydown", (event) => {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step) return;
    event.preventDefault();
    const places = [...new Set(now.series.flatMap((series) => series.points.map(([px]) => px)))].sort((a, b) => a - b);
    const next = step > 0 ? places.find((each) => at === null || each > at) : places.findLast((each) => at === null || each < at);
    if (next !== undefined) point(next);
  });

  const rows = () => now.series.flatMap((series) => series.points.map(([px, py]) => [series.name, px, py]));
  const values = details("Values", () => {
    const all = rows();
    return [all.length > 500 ? el("p", {class: "quiet"}, `The last 500 of ${all.length} values; the CSV file has all.`) : null,
      table(`${title}: values`, ["curve", [now.x.name], [now.y.label]], all.slice(-500).map(([name, px, py]) => [name, now.x.form(px), now.y.form(py)]))].filter(Boolean);
  });
  const file = title.replaceAll(/[^\w-]+/g, "-");
  const tools = el("p", {class: "tools"},
    el("button", {type: "button", onclick: () => saveSvg(file, figure)}, "SVG"),
    el("button", {type: "button", onclick: () => saveCsv(file, [["curve", now.x.name, now.y.label], ...rows()])}, "CSV"));
  const box = el("figure", {}, el("figcaption", {}, el("h3", {}, title), tools), legend, place, readout, values.box);
  return {box, again};
}

// Where nodes stand: tiers as rows, each node below its parent. Nodes: {name, tier, parent}. Gives {places, height, radius}.
export function layout(nodes, width) {
  const places = new Map(), tiers = [...new Set(nodes.map((node) => node.tier))].sort((a, b) => "cloud edge device".indexOf(a) - "cloud edge device".indexOf(b));
  const gap = 16;
  let top = 34, smallest = Infinity;
  for (const tier of tiers) {
    const members = nodes.filter((node) => node.tier === tier), blocks = new Map();
    for (const node of members) {
      const parent = places.has(node.parent) ? node.parent : null;
      blocks.set(parent, [...(blocks.get(parent) ?? []), node]);
    }
    const ordered = [...blocks].sort(([a], [b]) => (places.get(a)?.x ?? 0) - (places.get(b)?.x ?? 0));
    const room = (width - gap) / ordered.length, leaves = tier === tiers.at(-1);
    const fullest = Math.max(...ordered.map(([, each]) => each.length));
    const columns = leaves ? Math.max(1, Math.min(fullest, Math.floor((room - 6) / Math.min(30, Math.max(13, (room - 6) / Math.ceil(Math.sqrt(fullest))))))) : fullest;
    const pitch = Math.min(leaves ? 44 : Infinity, room / columns);
    smallest = Math.min(smallest, Number.isFinite(pitch) ? pitch : 44);
    let lowest = top;
    ordered.forEach(([, each], block) => each.forEach((node, index) => {
      const row = Math.floor(index / columns), inRow = Math.min(columns, each.length - row * columns);
      const spot = {x: gap / 2 + room * (block + 0.5) + (index % columns - (inRow - 1) / 2) * pitch, y: top + row * Math.max(24, Math.min(34, pitch))};
      lowest = Math.max(lowest, spot.y);
      places.set(node.name, spot);
    }));
    top = lowest + 96;
  }
  return {places, height: top - 96 + 46, radius: Math.max(4, Math.min(13, smallest * 0.36))};
}

// Nodes and links. `data()` gives {nodes: [{name, label, tier, parent, state, mark, text}], links: [{ends, state, style, width, text}]}.
// `onnode` and `onlink` hear which one is chosen. One node is in the tab order; arrow keys lead to the others.
export function topology(title, data, onnode, onlink) {
  const place = el("div", {class: "drawing topology"});
  let standing = "", marks = new Map(), lines = [], current = 0;

  const again = drawn(place, (width) => {
    const {nodes, links} = data();
    const shape = `${width}|${nodes.map((node) => `${node.name}<${node.parent}`).join()}|${links.length}`;
    if (shape !== standing) { build(nodes, links, width); standing = shape; }
    nodes.forEach((node, index) => {
      const [group, glyph, tip] = marks.get(node.name);
      group.setAttribute("class", `node ${node.tier} state-${node.state.replaceAll(" ", "-")}`);
      group.setAttribute("aria-label", node.text);
      group.setAttribute("tabindex", index === current ? 0 : -1);
      if (glyph.textContent !== node.mark) glyph.textContent = node.mark;
      if (tip.textContent !== node.text) tip.textContent = node.text;
    });
    links.forEach((link, index) => {
      const [path, tip] = lines[index];
      path.setAttribute("class", `link ${link.style} is-${link.state.replaceAll(" ", "-")}`);
      path.setAttribute("stroke-width", link.width);
      if (tip.textContent !== link.text) tip.textContent = link.text;
    });
  });

  function build(nodes, links, width) {
    const {places, height, radius} = layout(nodes, width);
    marks = new Map();
    lines = links.map((link) => {
      const tip = svg("title");
      return [svg("path", {d: between(places.get(link.ends[0]), places.get(link.ends[1]))}), tip];
    });
    const figure = svg("svg", {viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": title},
      lines.map(([path, tip], index) => svg("g", {onclick: () => onlink(links[index].ends)}, path, svg("path", {class: "hit", d: path.getAttribute("d")}, tip))),
      nodes.map((node, index) => {
        const {x, y} = places.get(node.name), half = node.tier === "device" ? radius : radius * 1.3;
        const glyph = svg("text", {y: 4, class: "middle glyph"}), tip = svg("title");
        const body = node.tier === "device" ? svg("circle", {r: half}) : svg("rect", {x: -half, y: -half, width: 2 * half, height: 2 * half, rx: node.tier === "cloud" ? half : 3});
        const label = node.tier !== "device" ? svg("text", {x: half + 5, y: 4, class: "label"}, node.label)
          : radius >= 11 ? svg("text", {y: half + 13, class: "middle label"}, node.label) : null;
        const group = svg("g", {transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, role: "button",
          onclick: () => onnode(node.name), onfocus: () => { current = index; }, onkeydown: (event) => move(event, node.name, nodes.length)}, body, glyph, label, tip);
        marks.set(node.name, [group, glyph, tip]);
        return group;
      }));
    place.replaceChildren(figure);
  }

  function move(event, name, count) {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); onnode(name); return; }
    const step = {ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1}[event.key];
    if (!step) return;
    event.preventDefault();
    current = (current + step + count) % count;
    again();
    [...marks.values()][current][0].focus();
  }

  return {box: place, again};
}

function between(one, other) {
  const [a, b] = [one, other].sort((p, q) => p.y - q.y || p.x - q.x);
  if (Math.abs(a.y - b.y) < 1) return `M${a.x} ${a.y}Q${(a.x + b.x) / 2} ${a.y - 26 - Math.min(30, (b.x - a.x) * 0.08)} ${b.x} ${b.y}`;
  const middle = (a.y + b.y) / 2;
  return `M${a.x} ${a.y}C${a.x} ${middle} ${b.x} ${middle} ${b.x} ${b.y}`;
}
