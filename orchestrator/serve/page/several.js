// Chosen runs side by side, or those of a sweep: curves over one another, or as bands over the seeds.
import {badge, choice, duration, el, number, of, percent, read, saveCsv, say, size, table} from "./dom.js";
import {plot} from "./plots.js";

const FORMS = {rounds: number, seconds: duration, accuracy: percent, bytes: size};
const shown = (value) =>
  value === null || value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value);
const form = (column, value) =>
  value === null || value === undefined
    ? "–"
    : column === "verdict"
      ? badge(value)
      : (FORMS[column.split(".")[0]]?.(value) ?? String(value));
const spread = (column, [mean, deviation]) =>
  deviation === null ? form(column, mean) : `${form(column, mean)} ± ${form(column, deviation)}`;

export async function show(main) {
  const query = new URLSearchParams(location.search);
  document.title = `${query.get("sweep") ?? "Comparison"} · edgebed`;
  main.replaceChildren(el("h1", {}, query.get("sweep") ?? "Runs side by side"));
  say("reading the records …");
  const told = await read(`/api/compare?${query}`);
  say("");
  const {runs, differences, cases} = told,
    names = runs.map((row) => row.run);
  const figures = ["accuracy-time", "loss-time", "accuracy-rounds", "loss-rounds"].map((id) =>
    plot(id, () => told.figures[id]),
  );
  const lay = (over) => {
    query.set("over", over);
    location.search = query;
  };
  const curves = [
    ["runs", "each run"],
    ["seeds", "mean and range over seeds"],
  ];
  const toggle = told.has_seeds ? choice("Curves", "over", curves, told.over_seeds ? "seeds" : "runs", lay) : null;

  const columns = [...new Set(runs.flatMap(Object.keys))].filter((name) => name !== "run");
  const counted = [...new Set(cases.flatMap((each) => Object.keys(each.results)))];
  const section = (label, rows, box) =>
    el(
      "section",
      {"aria-label": label},
      el(
        "div",
        {class: "title"},
        el("h2", {}, label),
        rows
          ? el(
              "button",
              {type: "button", class: "button", onclick: () => saveCsv(label.toLowerCase().replaceAll(" ", "-"), rows)},
              "CSV",
            )
          : null,
      ),
      box,
    );
  const casesRows = [
    ["case", "runs", ...counted.flatMap((name) => [name, `${name}, standard deviation`])],
    ...cases.map((each) => [
      each.case,
      each.runs.length,
      ...counted.flatMap((name) => each.results[name] ?? [null, null]),
    ]),
  ];
  main.replaceChildren(
    ...[
      el(
        "header",
        {},
        el("h1", {}, query.get("sweep") ?? `${runs.length} runs`),
        el("p", {class: "quiet"}, `${runs.length} runs, ${cases.length} ${cases.length === 1 ? "case" : "cases"}`),
        el(
          "details",
          {open: runs.length <= 12},
          el("summary", {}, "Runs"),
          el(
            "ol",
            {},
            names.map((name) => el("li", {}, el("a", {href: of(name, "/run")}, name))),
          ),
        ),
      ),
      el(
        "section",
        {"aria-label": "Curves"},
        el("div", {class: "title"}, el("h2", {}, "Curves of the global model"), toggle),
        told.over_seeds
          ? el("p", {class: "quiet"}, "Line: the mean over the seeds. Band: from the lowest to the highest run.")
          : null,
        el(
          "div",
          {class: "pair"},
          figures.map((each) => each.box),
        ),
      ),
      told.over_seeds
        ? section(
            "Cases: mean and standard deviation",
            casesRows,
            table(
              "Cases",
              ["case", ["runs"], ...counted.map((name) => [name])],
              cases.map((each) => [
                each.case,
                String(each.runs.length),
                ...counted.map((name) => (each.results[name] ? spread(name, each.results[name]) : "–")),
              ]),
            ),
          )
        : null,
      section(
        "Results",
        [["run", ...columns], ...runs.map((row) => [row.run, ...columns.map((column) => row[column])])],
        table(
          "Results",
          ["result", ...runs.map((_, index) => [String(index + 1)])],
          columns.map((column) => [column, ...runs.map((row) => form(column, row[column]))]),
        ),
      ),
      section(
        "Settings that differ",
        differences.length
          ? [["setting", ...names], ...differences.map((each) => [each.setting, ...each.values.map(shown)])]
          : null,
        differences.length
          ? table(
              "Settings that differ",
              ["setting", ...runs.map((_, index) => String(index + 1))],
              differences.map((each) => [each.setting, ...each.values.map(shown)]),
            )
          : el("p", {}, "Every setting is equal."),
      ),
    ].filter(Boolean),
  );
  figures.forEach((each) => each.again());
}
