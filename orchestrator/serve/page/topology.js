// The report's picture of nodes and links (orchestrator/report/topology.py), on a page that lives.
import {el, svg} from "./dom.js";

const MARKED = 7; // the least size of a node that bears the mark of its state

// `picture` has the places. `data()` gives {nodes: [{state, mark, text}], links: [{state, width, text}], media: [text]}, in
// its order.
// `onnode` and `onlink` hear which one is chosen. One node is in the tab order; arrow keys lead to the others.
export function topology(title, picture, data, onnode, onlink) {
  let current = 0;
  const lines = picture.links.map(([one, other, d, colour]) => {
    const tip = svg("title"),
      path = svg("path", {class: "link", style: `stroke:${colour}`, d});
    return {path, tip, box: svg("g", {onclick: () => onlink([one, other])}, path, svg("path", {class: "hit", d}, tip))};
  });
  const media = picture.media.map(([name, x, y, width]) => {
    const tip = svg("title"),
      pill = svg("rect", {x: -width / 2, y: -9, width, height: 18, rx: 9});
    return {
      tip,
      box: svg("g", {class: "medium", transform: `translate(${x} ${y})`}, tip, pill, svg("text", {dy: "0.35em"}, name)),
    };
  });
  const marks = picture.nodes.map(([name, tier, x, y, size, label, beside], index) => {
    const glyph = svg("text", {dy: "0.35em", class: "glyph"}),
      tip = svg("title"),
      away = (size * 1.4 + (beside ? 6 : 12)).toFixed(1);
    const body =
      tier === "device"
        ? svg("circle", {class: "body", r: size})
        : svg("rect", {
            class: "body",
            x: -size,
            y: -size,
            width: 2 * size,
            height: 2 * size,
            rx: tier === "cloud" ? size : 3,
          });
    const said = label
      ? svg("text", beside ? {class: "name beside", x: away, dy: "0.35em"} : {class: "name", y: away}, label)
      : null;
    const box = svg(
      "g",
      {
        class: `node ${tier}`,
        "data-node": name,
        transform: `translate(${x} ${y})`,
        role: "button",
        onclick: () => onnode(name),
        onfocus: () => {
          current = index;
        },
        onkeydown: (event) => move(event, name),
      },
      body,
      size < MARKED ? null : glyph,
      said,
      tip,
    );
    return {box, glyph, tip};
  });
  const drawn = svg(
    "svg",
    {class: "topology", viewBox: `0 0 ${picture.width} ${picture.height}`, role: "group", "aria-label": title},
    svg(
      "g",
      {class: picture.links.length > 60 ? "links many" : "links"},
      lines.map((line) => line.box),
    ),
    media.map((medium) => medium.box),
    marks.map((mark) => mark.box),
  );

  function again() {
    const {nodes, links, media: texts} = data();
    nodes.forEach((node, index) => {
      const {box, glyph, tip} = marks[index];
      if (box.dataset.state !== node.state) box.dataset.state = node.state;
      box.setAttribute("tabindex", index === current ? 0 : -1);
      if (glyph.textContent !== node.mark) glyph.textContent = node.mark;
      if (tip.textContent === node.text) return;
      tip.textContent = node.text;
      box.setAttribute("aria-label", node.text);
    });
    links.forEach((link, index) => {
      const {path, tip} = lines[index];
      if (path.dataset.state !== link.state) path.dataset.state = link.state;
      path.setAttribute("stroke-width", link.width);
      if (tip.textContent !== link.text) tip.textContent = link.text;
    });
    texts.forEach((text, index) => {
      if (media[index].tip.textContent !== text) media[index].tip.textContent = text;
    });
  }

  function move(event, name) {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      onnode(name);
      return;
    }
    const step = {ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1}[event.key];
    if (!step) return;
    event.preventDefault();
    current = (current + step + marks.length) % marks.length;
    again();
    marks[current].box.focus();
  }

  return {
    box: el(
      "div",
      {class: "map scroll", tabindex: 0, role: "region", "aria-label": "The picture of nodes and links"},
      drawn,
    ),
    again,
  };
}
