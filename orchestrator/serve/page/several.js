// Chosen runs side by side: curves laid over one another, figures, and the settings that differ.
import {badge, duration, el, number, of, percent, read, saveCsv, say, size, table} from "./dom.js";
import {curves} from "./drawing.js";

const FORMS = {rounds: number, seconds: duration, accuracy: percent, bytes: size};
const shown = (value) => value === null || value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value);

export async function show(main) {
  document.title = "Comparison · edgebed";
  say("reading the records …");
  const {runs, differences, curves: told} = await read(`/api/compare${location.search}`);
  say("");
  const names = runs.map((row) => row.run), differ = differences.filter((each) => each.setting !== "name");
  let against = "time";

  // A run is known by the settings in which it differs, if they tell it from the others.
  const values = differ.slice(0, 3).map((each) => each.values), said = runs.map((row, index) => values.map((each) => shown(each[index])).join(", "));
  const label = new Set(said).size === runs.length && said.every((each) => each && each.length < 60) ? said.map((each, index) => `${index + 1}: ${each}`) : names.map((name, index) => `${index + 1}: ${name}`);

  const figure = (metric, form, most) => curves(metric === "accuracy" ? "Accuracy" : "Loss", () => {
    const series = names.map((name, index) => ({name: label[index], style: `series-${index % 8}`, points: (told[name][metric] ?? [])
      .filter(([, round, value]) => value !== null && (against === "time" || round !== null)).map(([t, round, value]) => [against === "time" ? t : round, value])}));
    const all = series.flatMap((each) => each.points);
    const high = all.reduce((most, [x]) => Math.max(most, x), 1);
    const x = against === "time" ? {name: "at", label: "seconds of training", low: 0, high, form: duration} : {name: "round", label: "round", low: 0, high, form: (value) => String(Math.round(value))};
    return {x, y: {label: metric, low: 0, high: most ?? all.reduce((most, [, y]) => Math.max(most, y), 1), form, tick: form === percent ? (value) => `${Math.round(value * 100)}%` : form}, series};
  });
  const figures = [figure("accuracy", percent, 1), figure("loss", number, null)];
  const toggle = el("div", {role: "radiogroup", "aria-label": "Curves against", class: "toggle"}, ["time", "rounds"].map((name) =>
    el("label", {}, el("input", {type: "radio", name: "against", value: name, checked: name === against, onchange: () => { against = name; figures.forEach((each) => each.again()); }}), name)));

  const columns = [...new Set(runs.flatMap(Object.keys))].filter((name) => name !== "run");
  const form = (column, value) => value === null || value === undefined ? "–" : column === "verdict" ? badge(value) : FORMS[column.split(".")[0]]?.(value) ?? String(value);
  const settings = [["setting", ...names], ...differences.map((each) => [each.setting, ...each.values.map(shown)])];
  const figuresRows = [["run", ...columns], ...runs.map((row) => [row.run, ...columns.map((column) => row[column])])];
  main.replaceChildren(
    el("header", {}, el("h1", {}, `${runs.length} runs`), el("ol", {}, names.map((name) => el("li", {}, el("a", {href: of(name, "/run")}, name))))),
    el("section", {"aria-label": "Curves"}, el("div", {class: "title"}, el("h2", {}, "Curves of the global model"), toggle), el("div", {class: "pair"}, figures.map((each) => each.box))),
    el("section", {"aria-label": "Results"}, el("div", {class: "title"}, el("h2", {}, "Results"), el("button", {type: "button", onclick: () => saveCsv("results", figuresRows)}, "CSV")),
      table("Results", ["", ...runs.map((_, index) => [String(index + 1)])], columns.map((column) => [column, ...runs.map((row) => form(column, row[column]))]))),
    el("section", {"aria-label": "Settings that differ"}, el("div", {class: "title"}, el("h2", {}, "Settings that differ"), el("button", {type: "button", onclick: () => saveCsv("settings", settings)}, "CSV")),
      differences.length ? table("Settings that differ", ["setting", ...runs.map((_, index) => String(index + 1))], differences.map((each) => [each.setting, ...each.values.map(shown)])) : el("p", {}, "Every setting is equal.")));
}
