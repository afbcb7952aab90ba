// What was asked of the links, and what was measured: probes before the training, losses during it.
import {badge, details, el, of, read, table} from "./dom.js";
import {plot} from "./plots.js";

const EVERY = 5000; // ms between two looks, at least

export function fidelity(story, run) {
  const box = el("div", {}, el("p", {class: "quiet"}, "No link has been measured yet.")),
    figures = new Map(),
    drawn = el("div", {class: "pair"});
  let known = "",
    last = -EVERY,
    reading = false,
    rows = [];
  const probes = details("", () =>
    table(
      "Probes",
      ["verdict", "link", "class", "kind", "quantity", ["configured"], ["expected"], ["measured"], ["accepted"]],
      rows.map((row) => [
        badge(row.verdict),
        row.link,
        row.link_class,
        row.kind,
        row.quantity,
        row.asked,
        row.expected,
        row.measured,
        row.kind === "real" ? "–" : `${row.low} … ${row.high}`,
      ]),
    ),
  );

  async function look() {
    const found = await read(of(run, "/api/fidelity"));
    for (const [id, figure] of Object.entries(found.figures)) {
      if (!figures.has(id)) {
        figures.set(id, {figure, plot: plot(id, () => figures.get(id).figure)});
        drawn.append(figures.get(id).plot.box);
      }
      figures.get(id).figure = figure;
      figures.get(id).plot.again();
    }
    const parts = [];
    rows = found.probes;
    const failed = rows.filter((row) => row.verdict === "fail").length;
    probes.name(`${rows.length} probes${failed ? `, ${failed} outside of what is accepted` : ""}`);
    probes.refresh();
    if (rows.length) parts.push(drawn, probes.box);
    if (found.looks.length) {
      parts.push(
        el("h3", {}, "Losses while the run used the links"),
        table(
          "Losses",
          ["verdict", "links", ["packets"], ["lost"], ["configured"], ["measured"], ["accepted"]],
          found.looks.map((row) => [
            badge(row.verdict),
            row.links,
            row.packets,
            row.lost,
            row.asked,
            row.measured,
            `${row.low} … ${row.high}`,
          ]),
        ),
      );
    }
    if (!parts.length)
      parts.push(
        el(
          "p",
          {class: "quiet"},
          story.plan.simulated
            ? "The simulation computes every link from its profile: nothing is measured."
            : "No link has been measured yet.",
        ),
      );
    box.replaceChildren(...parts);
  }

  function again() {
    const {probes, looks, status} = story.present,
      now = `${probes} ${looks} ${status}`;
    if (now === known || reading || performance.now() - last < EVERY) return;
    [known, last, reading] = [now, performance.now(), true];
    look()
      .catch((error) => box.replaceChildren(el("p", {class: "failing", role: "alert"}, error.message)))
      .finally(() => {
        reading = false;
      });
  }
  return {box, again};
}
