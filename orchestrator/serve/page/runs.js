// The runs of a folder: sorted, filtered, chosen for a comparison.
import {badge, day, duration, el, number, of, percent, read, saveCsv, say} from "./dom.js";

const EVERY = 2000; // ms
const COLUMNS = [
  // name of a field, heading, whether a number, how it is shown
  ["run", "run", false, (row) => el("a", {href: of(row.run, "/run")}, row.run)],
  ["name", "scenario", false, (row) => row.name],
  ["algorithm", "algorithm", false, (row) => row.algorithm ?? "–"],
  ["driver", "driver", false, (row) => row.driver ?? "–"],
  [
    "verdict",
    "verdict",
    false,
    (row) => (row.status === "running" ? badge("running") : row.verdict ? badge(row.verdict) : badge("", row.status)),
  ],
  ["accuracy", "accuracy", true, (row) => percent(row.accuracy)],
  [
    "rounds",
    "rounds",
    true,
    (row) => (row.rounds_planned ? `${number(row.rounds)} of ${row.rounds_planned}` : number(row.rounds)),
  ],
  ["seconds", "run time", true, (row) => duration(row.seconds)],
  ["began", "started", false, (row) => day(row.began)],
];
const CHOICES = ["name", "algorithm", "driver", "verdict"];

export async function show(main) {
  document.title = "Runs · edgebed";
  let rows = [],
    folder = "",
    sort = {field: "", down: true},
    said = "";
  const chosen = new Set(),
    lines = new Map();
  const wanted = {
    text: "",
    name: "",
    algorithm: "",
    driver: "",
    verdict: "",
    accuracy: "",
    since: "",
    sweep: new URLSearchParams(location.search).get("sweep") ?? "",
  };

  const body = el("tbody"),
    count = el("p", {class: "quiet", role: "status"});
  const compare = el("a", {class: "button", "aria-disabled": "true"}, "Compare");
  const selects = Object.fromEntries(
    [...CHOICES, "sweep"].map((field) => [
      field,
      el("select", {
        onchange: (event) => {
          wanted[field] = event.target.value;
          update();
        },
      }),
    ]),
  );
  const input = (field, attributes) =>
    el("input", {
      ...attributes,
      oninput: (event) => {
        wanted[field] = event.target.value;
        update();
      },
    });
  const named = (text, control) => el("label", {}, el("span", {}, text), control);
  const heads = COLUMNS.map(([field, heading, numeric]) =>
    el(
      "th",
      {scope: "col", class: numeric && "number"},
      el(
        "button",
        {
          type: "button",
          onclick: () => {
            sort = {field, down: sort.field === field ? !sort.down : numeric || field === "began"};
            update();
          },
        },
        heading,
      ),
    ),
  );
  const title = el("h1", {}, "Runs");
  main.replaceChildren(
    el("header", {}, title, count),
    el(
      "section",
      {"aria-label": "Runs"},
      el(
        "form",
        {class: "filters", role: "search", onsubmit: (event) => event.preventDefault()},
        named("search", input("text", {type: "search"})),
        named("scenario", selects.name),
        named("algorithm", selects.algorithm),
        named("driver", selects.driver),
        named("verdict", selects.verdict),
        named("sweep", selects.sweep),
        named("accuracy from, %", input("accuracy", {type: "number", min: 0, max: 100})),
        named("started since", input("since", {type: "date"})),
        el(
          "span",
          {class: "tools"},
          compare,
          el(
            "button",
            {
              type: "button",
              class: "button",
              onclick: () =>
                saveCsv("runs", [
                  COLUMNS.map(([, heading]) => heading),
                  ...visible().map((row) => COLUMNS.map(([field]) => row[field])),
                ]),
            },
            "CSV",
          ),
        ),
      ),
      el(
        "div",
        {class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of runs"},
        el(
          "table",
          {class: "runs"},
          el("caption", {class: "spoken"}, "Runs in this folder"),
          el("thead", {}, el("tr", {}, el("th", {scope: "col"}, el("span", {class: "spoken"}, "chosen")), heads)),
          body,
        ),
      ),
    ),
  );

  const verdictOf = (row) => (row.status === "running" ? "running" : (row.verdict ?? row.status));

  function visible() {
    const text = wanted.text.toLowerCase();
    const found = rows.filter(
      (row) =>
        (!text || [row.run, row.name, row.algorithm, row.driver].some((each) => each?.toLowerCase().includes(text))) &&
        ["name", "algorithm", "driver", "sweep"].every((field) => !wanted[field] || row[field] === wanted[field]) &&
        (!wanted.verdict || verdictOf(row) === wanted.verdict) &&
        (!wanted.accuracy || row.accuracy * 100 >= Number(wanted.accuracy)) &&
        (!wanted.since || row.began * 1000 >= new Date(wanted.since + "T00:00").getTime()),
    );
    if (!sort.field) return found;
    const value = (row) => (sort.field === "verdict" ? verdictOf(row) : row[sort.field]);
    const order = (a, b) =>
      a === null ? 1 : b === null ? -1 : (typeof a === "string" ? a.localeCompare(b) : a - b) * (sort.down ? -1 : 1);
    return found.sort((a, b) => (b.status === "running") - (a.status === "running") || order(value(a), value(b)));
  }

  function line(row) {
    const text = JSON.stringify(row),
      kept = lines.get(row.run);
    if (kept?.text === text) return kept.element;
    const box = el("input", {
      type: "checkbox",
      "aria-label": `choose ${row.run}`,
      checked: chosen.has(row.run),
      onchange: (event) => {
        if (event.target.checked) chosen.add(row.run);
        else chosen.delete(row.run);
        choose();
      },
    });
    const element = el(
      "tr",
      {class: row.status, title: row.error},
      el("td", {}, box),
      COLUMNS.map(([, , numeric, shown], index) =>
        el(index ? "td" : "th", index ? {class: numeric && "number"} : {scope: "row"}, shown(row)),
      ),
    );
    lines.set(row.run, {text, element});
    return element;
  }

  function choose() {
    const query = new URLSearchParams([...chosen].map((run) => ["run", run]));
    compare.textContent = chosen.size ? `Compare ${chosen.size}` : "Compare";
    if (chosen.size < 2 && wanted.sweep) {
      compare.textContent = "Compare the sweep";
      query.delete("run");
      query.set("sweep", wanted.sweep);
    }
    if (query.has("sweep") || chosen.size > 1) {
      compare.setAttribute("href", `/compare?${query}`);
      compare.removeAttribute("aria-disabled");
    } else {
      compare.removeAttribute("href");
      compare.setAttribute("aria-disabled", "true");
    }
  }

  function update() {
    choose();
    const shown = visible();
    body.replaceChildren(...shown.map(line));
    count.textContent = `${folder}: ${shown.length === rows.length ? "" : `${shown.length} of `}${rows.length} ${rows.length === 1 ? "run" : "runs"}, ${rows.filter((row) => row.status === "running").length} running`;
    heads.forEach((head, index) =>
      head.setAttribute(
        "aria-sort",
        COLUMNS[index][0] !== sort.field ? "none" : sort.down ? "descending" : "ascending",
      ),
    );
    for (const [field, select] of Object.entries(selects)) {
      const values = [
        ...new Set(rows.map((row) => (field === "verdict" ? verdictOf(row) : row[field])).filter(Boolean)),
      ].sort();
      select.parentElement.hidden = values.length === 0;
      if (
        select.options.length === values.length + 1 &&
        values.every((value, index) => select.options[index + 1].value === value)
      )
        continue;
      select.replaceChildren(el("option", {value: ""}, "all"), ...values.map((value) => el("option", {value}, value)));
      select.value = wanted[field];
    }
  }

  async function look() {
    try {
      const found = await read("/api/runs"),
        text = JSON.stringify(found.runs);
      if (text !== said) {
        said = text;
        ({runs: rows, folder} = found);
        update();
      }
      say("");
    } catch (error) {
      say(error.message === "Failed to fetch" ? "The server does not answer." : error.message);
    }
  }

  await look();
  performance.mark("shown");
  setInterval(() => {
    if (!document.hidden) look();
  }, EVERY);
}
