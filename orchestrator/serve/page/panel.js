// What a node or a link has behind it, and what can be done to it, in a dialog beside the page.
import {badge, el, number, of, read, size, table} from "./dom.js";
import {GLOBAL, line, plot} from "./plots.js";
import {menu} from "./touch.js";

const EVERY = 2000; // ms
const SHORTEST = 0.25; // s between two readings of a rate, as in orchestrator/fidelity/overload.py

let timer = null;
const dialog = el("dialog", {class: "panel", onclose: () => clearInterval(timer)});
document.body.append(dialog);

export function openPanel(run, story, {node, ends}) {
  clearInterval(timer);
  const body = el("div"),
    title = node ?? ends.join(" – "),
    {plan} = story,
    running = story.present.status === "running";
  dialog.replaceChildren(
    ...[
      el(
        "div",
        {class: "title"},
        el("h2", {}, title),
        el("button", {type: "button", class: "button", onclick: () => dialog.close()}, "Close"),
      ),
      running && !plan.reads ? menu(run, story, {node, ends}) : null,
      body,
    ].filter(Boolean),
  );
  dialog.setAttribute("aria-label", title);
  const fill = node ? nodeFiller(run, story, node, body) : linkFiller(run, plan, ends, body);
  const look = async () => {
    try {
      await fill();
    } catch (error) {
      body.replaceChildren(el("p", {class: "failing", role: "alert"}, error.message));
    }
  };
  if (!dialog.open) dialog.showModal();
  look();
  timer = setInterval(() => {
    if (!document.hidden) look();
  }, EVERY);
}

// A long text that stays where it was read, or at its end.
function replaceText(box, text) {
  if (box.textContent === text) return;
  const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 8;
  box.textContent = text;
  if (atEnd) box.scrollTop = box.scrollHeight;
}

function nodeFiller(run, story, name, body) {
  const {plan} = story,
    facts = plan.nodes.find((each) => each.name === name),
    seconds = {title: "seconds of the run"};
  let used = [];
  const figure = (id, title, place, y) =>
    plot(id, () =>
      used.length
        ? {
            title: title(),
            x: seconds,
            y: {zero: true, ...y},
            height: 110,
            hover: "x",
            marks: [
              line(
                "",
                used.map((each) => [each[0], each[place]]),
                GLOBAL,
              ),
            ],
          }
        : null,
    );
  const figures = [
    figure("node-processor", () => "Processor", 1, {title: "cores"}),
    figure("node-memory", () => `Memory (${story.present.memory_measure})`, 2, {title: "bytes", format: "bytes"}),
  ];
  const text = (label) => el("pre", {tabindex: 0, role: "region", "aria-label": label});
  const now = el("p"),
    told = text("From the record"),
    log = text("Log"),
    note = el("p", {class: "quiet"});
  const about = [
    facts.tier,
    facts.hardware,
    facts.host && `on ${facts.host}`,
    facts.parent && `below ${facts.parent}`,
    facts.samples && `${number(facts.samples)} samples`,
  ];
  body.replaceChildren(
    el("p", {class: "quiet"}, about.filter(Boolean).join(" · ")),
    now,
    el(
      "div",
      {class: "pair"},
      figures.map((each) => each.box),
    ),
    el("h3", {}, "From the record"),
    note,
    told,
    el("h3", {}, "Log"),
    log,
  );
  return async () => {
    const found = await read(of(run, "/api/node", {node: name}));
    const [does, detail, share, memory] = story.stateOf(name);
    now.textContent = [does, detail, share ? `${number(share)} cores` : "", memory ? size(memory) : ""]
      .filter(Boolean)
      .join(" · ");
    note.textContent = found.left_out ? `${number(found.left_out)} earlier lines are left out.` : "";
    used = found.resources;
    figures.forEach((each) => each.again());
    replaceText(told, found.lines.join("\n") || "nothing yet");
    replaceText(log, found.log || (plan.simulated ? "Simulated nodes print nothing." : "nothing yet"));
  };
}

function linkFiller(run, plan, ends, body) {
  const links = plan.links.filter((link) => ends.includes(link.source) && ends.includes(link.target));
  const found = links.map(() => []),
    title = plan.simulated ? "virtual seconds of the run" : "seconds of the run";
  const figures = links.map((link, index) =>
    plot(`link-${index}`, () => {
      const rows = found[index];
      const spaced = [];
      for (const row of rows) if (!spaced.length || row[0] - spaced.at(-1)[0] >= SHORTEST) spaced.push(row);
      const points = spaced
        .slice(1)
        .map(([t, bytes], at) => [t, (8 * Math.max(0, bytes - spaced[at][1])) / (t - spaced[at][0])]);
      return {
        title: `${link.source} → ${link.target}`,
        x: {title},
        y: {title: "carried", format: "rate", zero: true},
        height: 130,
        hover: "x",
        marks: [line("", points, GLOBAL)],
      };
    }),
  );
  const notes = links.map(() => el("div"));
  body.replaceChildren(
    ...links.map((link, index) =>
      el(
        "div",
        {},
        figures[index].box,
        el(
          "p",
          {class: "quiet"},
          `${link.class}, ${link.kind}: ${link.asked}${link.changes ? ", changes over time" : ""}`,
        ),
        notes[index],
      ),
    ),
  );
  return async () => {
    for (const [index, link] of links.entries()) {
      const {probes, readings} = await read(of(run, "/api/link", {source: link.source, target: link.target})),
        last = readings.at(-1);
      found[index] = readings;
      figures[index].again();
      notes[index].replaceChildren(
        ...[
          last
            ? el(
                "p",
                {},
                `${size(last[1])} in ${number(last[2])} packets delivered, ${number(last[3])} lost or dropped`,
              )
            : null,
          probes.length
            ? table(
                `Probes of ${link.source} → ${link.target}`,
                ["quantity", ["configured"], ["expected"], ["measured"], "verdict"],
                probes.map((probe) => [
                  probe.quantity,
                  number(probe.asked),
                  number(probe.expected),
                  number(probe.measured),
                  badge(probe.verdict),
                ]),
              )
            : null,
        ].filter(Boolean),
      );
    }
  };
}
