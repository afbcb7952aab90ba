// What a node or a link has behind it, in a dialog beside the page.
import {badge, duration, el, number, of, rate, read, size, table} from "./dom.js";
import {curves} from "./drawing.js";

const EVERY = 2000; // ms

let timer = null;
const dialog = el("dialog", {class: "panel", onclose: () => clearInterval(timer)});
document.body.append(dialog);

export function openPanel(run, plan, {node, ends}, state) {
  clearInterval(timer);
  const body = el("div"), title = node ?? ends.join(" – ");
  dialog.replaceChildren(el("div", {class: "title"}, el("h2", {}, title), el("button", {type: "button", onclick: () => dialog.close()}, "Close")), body);
  dialog.setAttribute("aria-label", title);
  const fill = node ? nodeFiller(run, plan, node, state, body) : linkFiller(run, plan, ends, body);
  const look = async () => {
    try { await fill(); } catch (error) { body.replaceChildren(el("p", {class: "fail", role: "alert"}, error.message)); }
  };
  look();
  timer = setInterval(() => { if (!document.hidden) look(); }, EVERY);
  if (!dialog.open) dialog.showModal();
}

// A long text that stays where it was read, or at its end.
function replaceText(box, text) {
  if (box.textContent === text) return;
  const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 8;
  box.textContent = text;
  if (atEnd) box.scrollTop = box.scrollHeight;
}

function nodeFiller(run, plan, name, state, body) {
  const facts = plan.nodes.find((each) => each.name === name);
  const now = el("p"), told = el("pre", {tabindex: 0, "aria-label": "From the record"}), log = el("pre", {tabindex: 0, "aria-label": "Log"}), note = el("p", {class: "quiet"});
  const about = [facts.tier, facts.hardware, facts.host && `on ${facts.host}`, facts.parent && `below ${facts.parent}`, facts.samples && `${number(facts.samples)} samples`];
  body.replaceChildren(el("p", {class: "quiet"}, about.filter(Boolean).join(" · ")), now, el("h3", {}, "From the record"), note, told, el("h3", {}, "Log"), log);
  return async () => {
    const found = await read(of(run, "/api/node", {node: name}));
    const [does, detail, share, memory] = state();
    now.textContent = [does, detail, share ? `${number(share)} cores` : "", memory ? size(memory) : ""].filter(Boolean).join(" · ");
    note.textContent = found.left_out ? `${number(found.left_out)} earlier lines are left out.` : "";
    replaceText(told, found.lines.join("\n") || "nothing yet");
    replaceText(log, found.log || (plan.simulated ? "Simulated nodes print nothing." : "nothing yet"));
  };
}

function linkFiller(run, plan, ends, body) {
  const links = plan.links.filter((link) => ends.includes(link.source) && ends.includes(link.target));
  const found = links.map(() => null), seconds = plan.simulated ? "virtual seconds of the run" : "seconds of the run";
  const figures = links.map((link, index) => curves(`${link.source} → ${link.target}`, () => {
    const rows = found[index]?.readings ?? [];
    const points = rows.slice(1).map(([t, bytes], at) => [t, Math.max(0, bytes - rows[at][1]) / Math.max(1e-3, t - rows[at][0])]);
    const high = Math.max(1000, ...points.map(([, value]) => value));
    return {x: {name: "at", label: seconds, low: rows[0]?.[0] ?? 0, high: rows.at(-1)?.[0] ?? 1, form: duration}, y: {label: "bytes/s", low: 0, high, form: rate}, series: [{name: "carried", style: "global", points}]};
  }));
  const notes = links.map(() => el("div"));
  body.replaceChildren(...links.map((link, index) => el("div", {}, figures[index].box, el("p", {class: "quiet"}, `${link.class}, ${link.kind}: ${link.asked}${link.changes ? ", changes over time" : ""}`), notes[index])));
  return async () => {
    for (const [index, link] of links.entries()) {
      found[index] = await read(of(run, "/api/link", {source: link.source, target: link.target}));
      figures[index].again();
      const {probes, readings} = found[index], last = readings.at(-1);
      notes[index].replaceChildren(...[last ? el("p", {}, `${size(last[1])} in ${number(last[2])} packets delivered, ${number(last[3])} lost or dropped`) : null,
        probes.length ? table("Probes", ["quantity", ["asked"], ["measured"], "verdict"], probes.map((probe) => [probe.quantity, number(probe.asked), number(probe.measured), badge(probe.verdict)])) : null].filter(Boolean));
    }
  };
}
