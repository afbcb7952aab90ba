// The topology as SVG, from plain JSON, with the looks of the report's picture. It knows nothing of runs or servers.
import {el, svg} from "./dom.js";

const LABELLED = 11; // the least radius of a device that bears its label

// Draws a picture again whenever its place changes its width, or when asked to.
function drawn(place, draw) {
  let width = 0;
  const again = () => { if (width > 0) draw(width); };
  new ResizeObserver(([entry]) => {
    if (Math.abs(entry.contentRect.width - width) >= 1) { width = entry.contentRect.width; requestAnimationFrame(again); }
  }).observe(place);
  return again;
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
    const below = pitch * 0.36 >= LABELLED ? 44 : Math.max(24, Math.min(34, pitch)); // a label has room above the next row
    smallest = Math.min(smallest, Number.isFinite(pitch) ? pitch : 44);
    let lowest = top;
    ordered.forEach(([, each], block) => each.forEach((node, index) => {
      const row = Math.floor(index / columns), inRow = Math.min(columns, each.length - row * columns);
      const spot = {x: gap / 2 + room * (block + 0.5) + (index % columns - (inRow - 1) / 2) * pitch, y: top + row * below};
      lowest = Math.max(lowest, spot.y);
      places.set(node.name, spot);
    }));
    top = lowest + 96;
  }
  return {places, height: top - 96 + 46, radius: Math.max(4, Math.min(13, smallest * 0.36))};
}

// Nodes and links. `data()` gives {nodes: [{name, label, tier, parent, state, mark, text}], links: [{ends, state, colour, width, text}]}.
// `onnode` and `onlink` hear which one is chosen. One node is in the tab order; arrow keys lead to the others.
export function topology(title, data, onnode, onlink) {
  const place = el("div", {class: "map"});
  let standing = "", marks = new Map(), lines = [], current = 0;

  const again = drawn(place, (width) => {
    const {nodes, links} = data();
    const shape = `${width}|${nodes.map((node) => `${node.name}<${node.parent}`).join()}|${links.length}`;
    if (shape !== standing) { build(nodes, links, width); standing = shape; }
    nodes.forEach((node, index) => {
      const [group, glyph, tip] = marks.get(node.name);
      if (group.dataset.state !== node.state) group.dataset.state = node.state;
      group.setAttribute("aria-label", node.text);
      group.setAttribute("tabindex", index === current ? 0 : -1);
      if (glyph.textContent !== node.mark) glyph.textContent = node.mark;
      if (tip.textContent !== node.text) tip.textContent = node.text;
    });
    links.forEach((link, index) => {
      const [path, tip] = lines[index];
      if (path.dataset.state !== link.state) path.dataset.state = link.state;
      path.setAttribute("stroke-width", link.width);
      if (tip.textContent !== link.text) tip.textContent = link.text;
    });
  });

  function build(nodes, links, width) {
    const {places, height, radius} = layout(nodes, width);
    marks = new Map();
    lines = links.map((link) => {
      const tip = svg("title");
      return [svg("path", {class: "link", style: `stroke:${link.colour}`, d: between(places.get(link.ends[0]), places.get(link.ends[1]))}), tip];
    });
    const figure = svg("svg", {class: "topology", viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": title},
      svg("g", {class: "links"}, lines.map(([path, tip], index) => svg("g", {onclick: () => onlink(links[index].ends)}, path, svg("path", {class: "hit", d: path.getAttribute("d")}, tip)))),
      nodes.map((node, index) => {
        const {x, y} = places.get(node.name), half = node.tier === "device" ? radius : radius * 1.3;
        const glyph = svg("text", {y: 4, class: "glyph"}), tip = svg("title");
        const body = node.tier === "device" ? svg("circle", {class: "body", r: half}) : svg("rect", {class: "body", x: -half, y: -half, width: 2 * half, height: 2 * half, rx: node.tier === "cloud" ? half : 3});
        const label = node.tier !== "device" ? svg("text", {x: half + 5, y: 4, class: "name beside"}, node.label)
          : radius >= LABELLED ? svg("text", {y: half + 13, class: "name"}, node.label) : null;
        const group = svg("g", {class: `node ${node.tier}`, "data-node": node.name, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, role: "button",
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
