// One run, while it goes on and afterwards.
import {
  badge,
  choice,
  details,
  duration,
  el,
  number,
  of,
  percent,
  rate,
  read,
  saveCsv,
  say,
  size,
  table,
} from "./dom.js";
import {fidelity} from "./fidelity.js";
import {openPanel} from "./panel.js";
import {plot} from "./plots.js";
import {Story} from "./story.js";
import {topology} from "./topology.js";
import {again, pace} from "./touch.js";

const DRAW_EVERY = 250; // ms
const HISTORY = "Click a node or a link for its history";
const ENDINGS = {
  rounds: "rounds done",
  accuracy: "accuracy reached",
  target: "target reached",
  after: "time over",
  programs: "programs done",
};
const UP = ["in a round", "waiting", "running", "done"];
const MARK = {
  "in a round": "▲",
  running: "▲",
  paused: "‖",
  crashed: "✕",
  failed: "✕",
  restarting: "↻",
  "cut off": "⁄",
  left: "–",
  gone: "?",
  done: "✓",
  starting: "…",
  registered: "•",
};
const WORST = ["cut", "degraded", "busy", "in use", "idle"];

export async function show(main, run) {
  const plan = await read(of(run, "/api/plan")),
    story = new Story(plan);
  document.title = `${plan.name} · ${run} · edgebed`;
  const header = head(story, run),
    pictured = picture(story, run),
    curves = learned(story),
    traffic = carried(story, run);
  const links = fidelity(story, run),
    faults = listed(story, run),
    verdicts = checked(story);
  main.replaceChildren(
    header.box,
    el("section", {id: "nodes", "aria-label": "Nodes and links"}, el("h2", {}, "Nodes and links"), pictured.box),
    el("section", {id: "learning", "aria-label": "Learning"}, curves.box),
    el("section", {id: "faults", "aria-label": "Faults"}, el("h2", {}, "Faults"), faults.box),
    el("section", {id: "checks", "aria-label": "Checks"}, el("h2", {}, "Checks"), verdicts.box),
    el(
      "section",
      {id: "fidelity", "aria-label": "Links: configured and measured"},
      el("h2", {}, "Links: configured and measured"),
      links.box,
    ),
    el(
      "section",
      {id: "traffic", "aria-label": "Traffic, rounds and resources"},
      el("h2", {}, "Traffic, rounds and resources"),
      traffic.box,
    ),
  );
  showRoot(main.querySelector(".topology"));
  const parts = [header, pictured, curves, faults, verdicts, links, traffic];
  follow(run, story, () => {
    parts.forEach((part) => part.again());
    story.changed.clear();
    document.documentElement.dataset.now = story.present.now;
  });
}

function head(story, run) {
  const {plan} = story,
    status = el("span"),
    keys = el("dl", {class: "keys"}),
    verdict = el("p", {role: "status"});
  const report = el(
    "a",
    {class: "button", href: of(run, "/report"), target: "_blank", rel: "noopener", hidden: true},
    "Report",
  );
  const paces = plan.simulated && !plan.reads ? pace(run) : null;
  const box = el(
    "header",
    {},
    el(
      "div",
      {class: "title"},
      el("div", {}, el("h1", {}, plan.name), el("p", {class: "run"}, run)),
      el("span", {class: "tools"}, report, status),
    ),
    plan.question ? el("p", {class: "question"}, plan.question) : null,
    verdict,
    keys,
    paces,
  );

  function again() {
    const now = story.present,
      running = now.status === "running";
    const up = now.nodes.filter(([state]) => UP.includes(state)).length;
    const [next, when] = now.next ?? ["none", ""],
      failed = now.checks.filter((check) => check.verdict === "fail").map((check) => check.name);
    status.replaceChildren(
      now.status === "finished"
        ? badge(now.verdict ?? "", now.verdict ?? "finished")
        : now.status === "crashed"
          ? badge("fail", "cut short")
          : badge("", now.status),
    );
    const trust = failed.length
      ? `${running ? "checks that fail so far" : "checks that failed"}: ${failed.join(", ")}`
      : running && now.checks.length
        ? "no check fails so far"
        : "";
    const said = [...now.lost, now.error ?? trust].filter(Boolean).join("\n");
    if (verdict.textContent !== said) verdict.textContent = said;
    verdict.className = `answer ${failed.length || now.error || now.lost.length ? "failing" : "quiet"}`;
    const rows = [
      [
        "time",
        duration(now.now),
        now.trained === null
          ? "the training has not started"
          : `${duration(now.trained)} of training${plan.simulated ? ", virtual" : ""}`,
      ],
      ["round", plan.rounds ? `${now.round} of ${plan.rounds}` : String(now.round), ""],
      [
        now.metric[0],
        (now.metric[0] === "accuracy" ? percent : number)(now.metric[1]),
        [plan.algorithm ?? "programs", now.metric[2]].filter(Boolean).join(", "),
      ],
      [
        running ? "nodes up" : "nodes at the end",
        `${up} of ${now.nodes.length}`,
        plan.clients ? `one for ${plan.clients.toLocaleString("en")} clients` : "",
      ],
      running
        ? [
            "time left",
            now.left ? `${now.left.of === "rounds" ? "about " : "at most "}${duration(now.left.seconds)}` : "–",
            now.left?.of === "rounds" ? "at the pace of its rounds" : "",
          ]
        : ["ended", ENDINGS[now.ended] ?? now.ended ?? "cut short", ""],
      running
        ? ["next fault", next, when]
        : [
            "faults",
            `${story.faults.begun} of ${story.faults.planned}`,
            story.faults.manual ? `${story.faults.manual} manual` : "",
          ],
      ["links", now.engine || "–", plan.driver],
    ];
    keys.replaceChildren(
      ...rows.map(([label, value, note]) =>
        el("div", {}, el("dt", {}, label), el("dd", {}, value), el("dd", {class: "note"}, note)),
      ),
    );
    if (paces) paces.hidden = !running;
    report.hidden = now.status !== "finished";
  }
  return {box, again};
}

function picture(story, run) {
  const {plan} = story,
    open = (whom) => openPanel(run, story, whom);
  const index = new Map(plan.links.map((link, place) => [`${link.source} ${link.target}`, place])),
    pairs = new Map();
  for (const link of plan.links) {
    const name = [link.source, link.target].sort().join(" ");
    pairs.set(name, [...(pairs.get(name) ?? []), link]);
  }
  const map = topology(
    `Topology of ${run}: arrow keys lead from node to node, Enter opens one`,
    plan.picture,
    () => ({
      nodes: plan.nodes.map((node) => {
        const [state, detail] = story.stateOf(node.name);
        return {
          state,
          mark: MARK[state] ?? "",
          text: [node.name, state, detail, node.hardware].filter(Boolean).join(", "),
        };
      }),
      links: plan.picture.links.map(([one, other]) => {
        const links = pairs.get(`${one} ${other}`);
        const flows = links.map((link) => story.flowOf(index.get(`${link.source} ${link.target}`)));
        const state = WORST.find((each) => flows.some((flow) => flow[0] === each)) ?? "idle",
          now = flows.reduce((sum, flow) => sum + flow[1], 0);
        return {
          state,
          width: (1 + Math.min(5, Math.log10(1 + now / 1000) * 1.4)).toFixed(1),
          text: `${one} – ${other} (${links[0].class}): ${state}, ${rate(now)}`,
        };
      }),
      media: plan.picture.media.map(([name, , , , channels]) =>
        [name, ...channels.map((each) => `${each}: busy ${percent(story.present.media[each] ?? 0)}`)].join("\n"),
      ),
    }),
    (node) => open({node}),
    (ends) => open({ends}),
  );
  const states = el("ul", {class: "legend", "aria-label": "States of nodes and links"});
  const classes = el(
    "ul",
    {class: "legend", "aria-label": "Classes of links"},
    Object.entries(plan.colours).map(([name, colour]) =>
      el("li", {}, el("i", {class: "stroke", style: `background:${colour}`}), name),
    ),
  );
  const hint = el("p", {class: "quiet"});
  const nodes = details("Nodes as a table", () =>
    table(
      "Nodes",
      ["node", "does", "detail", "hardware", ["cores used"], [`memory (${story.present.memory_measure})`]],
      plan.nodes.map((node) => {
        const [state, detail, share, memory] = story.stateOf(node.name);
        return [
          el("button", {type: "button", class: "plain", onclick: () => open({node: node.name})}, node.name),
          state,
          detail,
          node.hardware ?? "",
          plan.simulated ? "–" : number(share),
          memory ? size(memory) : "–",
        ];
      }),
    ),
  );
  const links = details("Links as a table", () =>
    table(
      "Links",
      ["link", "class", "kind", "configured", "now", ["carries"], ["delivered"], ["packets lost, or dropped"]],
      plan.links.map((link, place) => {
        const [state, now, total, dropped] = story.flowOf(place);
        return [
          el(
            "button",
            {type: "button", class: "plain", onclick: () => open({ends: [link.source, link.target]})},
            `${link.source} → ${link.target}`,
          ),
          link.class,
          link.kind,
          `${link.asked}${link.changes ? ", changes" : ""}`,
          state,
          rate(now),
          size(total),
          number(dropped),
        ];
      }),
    ),
  );
  function again() {
    const running = story.present.status === "running";
    const faults = !running
      ? "."
      : plan.reads
        ? `. Faults cannot be made here: ${plan.reads}.`
        : ", and to make a fault.";
    if (hint.textContent !== HISTORY + faults) hint.textContent = HISTORY + faults;
    map.again();
    const does = Map.groupBy(plan.nodes, (node) => story.stateOf(node.name)[0]),
      flows = Map.groupBy(plan.links, (link, place) => story.flowOf(place)[0]);
    states.replaceChildren(
      ...[...does].map(([state, each]) =>
        el("li", {}, el("i", {class: "state", "data-state": state}), `${MARK[state] ?? ""} ${each.length} ${state}`),
      ),
      ...[...flows].map(([state, each]) =>
        el(
          "li",
          {},
          el("i", {class: "flow", "data-state": state}),
          `${each.length} ${each.length === 1 ? "link" : "links"} ${state}`,
        ),
      ),
    );
    [nodes, links].forEach((each) => each.refresh());
  }
  return {box: el("div", {}, hint, map.box, states, classes, nodes.box, links.box), again};
}

function learned(story) {
  let against = "time";
  const pair = el("div", {class: "pair"}),
    figures = new Map();
  const make = (id) => {
    // of programs, only what they report
    const figure = story.figures[id],
      other = against === "time" ? "-rounds" : "-time";
    return id.endsWith(other) || !(figure.marks.length || story.plan.algorithm) ? null : figure;
  };
  function again() {
    for (const id of story.changed)
      if (/^(accuracy|loss|metric)-/.test(id)) {
        // a program may report any
        if (!figures.has(id)) {
          figures.set(
            id,
            plot(id, () => make(id)),
          );
          pair.append(figures.get(id).box);
        }
        figures.get(id).again();
      }
  }
  const lay = (name) => {
    against = name;
    figures.forEach((each) => each.again());
  };
  const axes = ["time", "rounds"].map((name) => [name, name]);
  const toggle = choice("Curves against", "against", axes, against, lay);
  return {box: el("div", {}, el("div", {class: "title"}, el("h2", {}, "Learning"), toggle), pair), again};
}

function listed(story, run) {
  const yaml = again(run);
  let known = -1;
  const faults = details("Faults", () => {
    const {planned, manual, rows} = story.faults,
      all = planned + manual;
    return [
      all > rows.length ? el("p", {class: "quiet"}, `The last ${rows.length} of ${all} are listed.`) : null,
      table("Faults", ["fault", "made", ["started"], ["ended"]], rows),
    ].filter(Boolean);
  });
  function update() {
    const {planned, manual} = story.faults,
      all = planned + manual;
    faults.name(`${all} ${all === 1 ? "fault" : "faults"}${manual ? `, ${manual} manual` : ""}`);
    faults.refresh();
    if (known === manual) return;
    known = manual;
    yaml.refresh();
  }
  return {box: el("div", {}, faults.box, yaml.box), again: update};
}

function checked(story) {
  const box = el("div");
  let said = "";
  function again() {
    const {checks} = story.present,
      text = JSON.stringify(checks);
    if (text === said) return;
    said = text;
    box.replaceChildren(
      checks.length
        ? table(
            "Checks",
            ["check", "verdict", "why"],
            checks.map((check) => [check.name, badge(check.verdict), check.detail]),
          )
        : el("p", {class: "quiet"}, "The checks have not been made yet."),
    );
  }
  return {box, again};
}

function carried(story, run) {
  const {plan} = story,
    kinds = el("div");
  const figures = new Map(
    ["bytes", "media", "coordinators", "processor", "memory"].map((id) => [
      id,
      plot(id, () => {
        const figure = story.figures[id];
        return figure?.marks.length || story.isGoingOn() ? (figure ?? null) : null;
      }),
    ]),
  );
  const save = () =>
    saveCsv(`links-${run.replace("/", "-")}`, [
      ["source", "target", "class", "state", "bytes/s", "bytes", "packets lost or dropped"],
      ...plan.links.map((link, place) => [link.source, link.target, link.class, ...story.flowOf(place)]),
    ]);
  let going = true;
  function again() {
    for (const id of story.changed) figures.get(id)?.again();
    if (going && !story.isGoingOn()) {
      going = false;
      figures.forEach((each) => each.again()); // those that stay empty go
    }
    kinds.replaceChildren(
      table(
        "Messages sent, by kind",
        ["kind", ["messages"], ["bytes"]],
        Object.entries(story.present.kinds)
          .sort(([, a], [, b]) => b[1] - a[1])
          .map(([kind, [messages, sent]]) => [kind, number(messages), size(sent)]),
      ),
    );
  }
  return {
    box: el(
      "div",
      {},
      el(
        "div",
        {class: "pair"},
        [...figures.values()].map((each) => each.box),
      ),
      el("h3", {}, "Messages by kind"),
      kinds,
      el("p", {class: "tools"}, el("button", {type: "button", class: "button", onclick: save}, "Links as CSV")),
    ),
    again,
  };
}

// Hears of news from the server, and draws. A page that nobody sees has no stream: a browser opens only six to one server.
function follow(run, story, draw) {
  let stream = null,
    next = 0,
    waiting = false;
  function soon() {
    if (waiting) return;
    waiting = true;
    setTimeout(
      () =>
        requestAnimationFrame(() => {
          const began = performance.now();
          waiting = false;
          draw();
          const took = performance.now() - began;
          performance.measure("draw", {start: began, duration: took});
          next = began + took + Math.max(DRAW_EVERY, 4 * took); // a fifth of the time at most
        }),
      Math.max(0, next - performance.now()),
    );
  }
  function listen() {
    stream?.close();
    say("reading the record …");
    stream = new EventSource(of(run, "/api/stream", {after: story.version}));
    stream.onmessage = (event) => {
      const said = JSON.parse(event.data);
      if (said.error) {
        say(said.error);
        return;
      }
      story.add(said, event.lastEventId);
      say(said.present.behind ? "reading the record …" : said.present.status === "running" ? "live" : "");
      soon();
    };
    stream.onerror = () => {
      say("The server does not answer. If it restarted, open the address that it printed.");
      if (stream.readyState === EventSource.CLOSED)
        setTimeout(() => {
          if (!document.hidden) listen();
        }, 3000);
    };
  }
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stream?.close();
    else listen();
  });
  listen();
}
