// One run, while it goes on and afterwards.
import {badge, details, duration, el, number, of, percent, rate, read, saveCsv, say, size, table} from "./dom.js";
import {curves, topology} from "./drawing.js";
import {openPanel} from "./panel.js";

const DRAW_EVERY = 250; // ms
const LISTED = 500; // faults in the table
const MANY = 24; // devices, above which their curves become a band
const MARK = {computing: "▲", sending: "↑", waiting: "", running: "▲", paused: "‖", crashed: "✕", failed: "✕", restarting: "↻", "cut off": "⁄", left: "–", gone: "?", done: "✓", planned: "", starting: "…", registered: "•"};
const SAID = {computing: "computing", sending: "sending", waiting: "waiting", running: "running", paused: "paused", crashed: "crashed", restarting: "restarting", "cut off": "cut off", left: "left", done: "done", gone: "gone"};

// What the stream has told so far.
class Story {
  metrics = []; faults = new Map(); rounds = []; bytes = []; cursor = "";
  present = {status: "", now: 0, training: null, round: 0, nodes: [], links: [], checks: [], kinds: {}};

  add({added, present}, cursor) {
    for (const metric of added.metrics) this.metrics.push(metric);
    for (const [t, id, phase, round] of added.faults) this.faults.set(id, {...this.faults.get(id), [phase]: t, [`${phase}Round`]: round});
    for (const round of added.rounds) this.rounds.push(round);
    for (const point of added.bytes) {
      if (this.bytes.at(-1)?.[0] === point[0]) this.bytes.pop();
      this.bytes.push(point);
    }
    this.present = present;
    this.cursor = cursor;
  }
}

export async function show(main, run) {
  const plan = await read(of(run, "/api/plan"));
  const story = new Story(), nodes = new Map(plan.nodes.map((node, index) => [node.name, {...node, index}]));
  const faults = new Map(plan.faults.map((fault) => [fault.id, fault]));
  const seconds = plan.simulated ? "virtual seconds" : "seconds";
  let against = "time", next = 0, waiting = false, made = new Map();
  document.title = `${plan.name} · ${run} · edgebed`;

  const saidOf = (fault) => `${fault.action} ${fault.target}`;
  const began = () => story.present.training ?? 0;
  const stateOf = (name) => story.present.nodes[nodes.get(name).index] ?? ["planned", "", 0, 0];
  const linkIndex = new Map(plan.links.map((link, index) => [`${link.source} ${link.target}`, index]));
  const flowOf = (index) => story.present.links[index] ?? ["idle", 0, 0, 0];
  const classes = [...new Set(plan.links.map((link) => link.class))];
  const style = (link) => `class-${classes.indexOf(link.class) % 6}`;

  // The head
  const status = el("span"), keys = el("dl", {class: "keys"}), verdict = el("p", {role: "status"});
  const heading = el("header", {}, el("div", {class: "title"}, el("div", {}, el("h1", {}, plan.name), el("p", {class: "quiet"}, run)), status),
    plan.question ? el("p", {class: "question"}, plan.question) : null, verdict, keys);

  function head(now) {
    const global = series("accuracy").find((each) => each.name === "global")?.points.at(-1)?.[1];
    const up = now.nodes.filter(([state]) => ["computing", "sending", "waiting", "running", "done"].includes(state)).length;
    const next = now.next && faults.get(now.next.id);
    status.replaceChildren(now.status === "finished" ? badge(now.verdict ?? "", now.verdict ?? "finished") : now.status === "crashed" ? badge("fail", "cut short") : badge("", now.status));
    const failed = now.checks.filter((check) => check.verdict === "fail").map((check) => check.name);
    const trust = failed.length ? `fails${now.status === "running" ? " so far" : ""}: ${failed.join(", ")}` : now.status === "running" ? "no check fails so far" : "";
    if (verdict.textContent !== (now.error ?? trust)) verdict.textContent = now.error ?? trust;
    verdict.className = failed.length || now.error ? "fail" : "quiet";
    const rows = [
      ["time", duration(now.now), now.training === null ? "the training has not begun" : `${duration(now.now - now.training)} of training${plan.simulated ? ", virtual" : ""}`],
      ["round", plan.rounds ? `${now.round} of ${plan.rounds}` : String(now.round), ""],
      ["accuracy", percent(global), plan.algorithm ?? "programs"],
      ["nodes up", `${up} of ${now.nodes.length}`, ""],
      now.status === "running" ? ["time left", now.left ? `${now.left.of === "rounds" ? "about " : "at most "}${duration(now.left.seconds)}` : "–", now.left?.of === "rounds" ? "at the pace of its rounds" : ""] : ["ended", now.ended ?? "cut short", ""],
      now.status === "running" ? ["next fault", next ? saidOf(next) : "none", next ? "in" in now.next ? `in ${duration(now.next.in)}` : `in round ${now.next.round}` : ""] : ["faults", `${[...story.faults.values()].filter((fault) => "start" in fault).length} of ${plan.faults.length}`, ""],
      ["links", now.engine || "–", plan.driver],
    ];
    keys.replaceChildren(...rows.map(([label, value, note]) => el("div", {}, el("dt", {}, label), el("dd", {}, value), el("dd", {class: "note"}, note))));
  }

  // The topology
  const pairs = new Map();
  for (const link of plan.links) {
    const ends = [link.source, link.target].sort(), name = ends.join(" ");
    if (nodes.has(ends[0]) && nodes.has(ends[1])) pairs.set(name, {ends, links: [...(pairs.get(name)?.links ?? []), link]});
  }
  const WORST = ["cut", "degraded", "busy", "in use", "idle"];
  const picture = topology(`Topology of ${run}: arrow keys lead from node to node, Enter opens one`, () => ({
    nodes: plan.nodes.map((node) => {
      const [state, detail] = stateOf(node.name);
      return {...node, state, mark: MARK[state] ?? "", label: node.name.replace(/^device-/, ""), text: [node.name, state, detail, node.hardware].filter(Boolean).join(", ")};
    }),
    links: [...pairs.values()].map(({ends, links}) => {
      const flows = links.map((link) => flowOf(linkIndex.get(`${link.source} ${link.target}`)));
      const state = WORST.find((each) => flows.some((flow) => flow[0] === each)) ?? "idle";
      const now = flows.reduce((sum, flow) => sum + flow[1], 0);
      return {ends, state, style: style(links[0]), width: (1 + Math.min(5, Math.log10(1 + now / 1000) * 1.4)).toFixed(1), text: `${ends.join(" – ")} (${links[0].class}): ${state}, ${rate(now)}`};
    }),
  }), (name) => openPanel(run, plan, {node: name}, () => stateOf(name)), (ends) => openPanel(run, plan, {ends}));
  const tally = el("ul", {class: "legend"});
  function count() {
    const states = Map.groupBy(plan.nodes, (node) => stateOf(node.name)[0]), links = Map.groupBy(plan.links, (link) => flowOf(linkIndex.get(`${link.source} ${link.target}`))[0]);
    const wanted = [...[...states].map(([state, each]) => ["dot state-" + state.replaceAll(" ", "-"), `${MARK[state] ?? ""} ${each.length} ${SAID[state] ?? state}`]),
      ...[...links].map(([state, each]) => ["line is-" + state.replaceAll(" ", "-"), `${each.length} links ${state}`])];
    tally.replaceChildren(...wanted.map(([name, text]) => el("li", {}, el("i", {class: name}), text)));
  }
  const nodeTable = details("Nodes as a table", () => table("Nodes", ["node", "does", "", "hardware", ["cores used"], ["memory"]], plan.nodes.map((node) => {
    const [state, detail, share, memory] = stateOf(node.name);
    return [el("button", {type: "button", class: "plain", onclick: () => openPanel(run, plan, {node: node.name}, () => stateOf(node.name))}, node.name), state, detail, node.hardware ?? "", number(share), memory ? size(memory) : "–"];
  })));
  const linkTable = details("Links as a table", () => table("Links", ["link", "class", "kind", "asked", "now", ["carries"], ["delivered"], ["packets lost, or dropped"]], plan.links.map((link, index) => {
    const [state, now, total, dropped] = flowOf(index);
    return [el("button", {type: "button", class: "plain", onclick: () => openPanel(run, plan, {ends: [link.source, link.target]})}, `${link.source} → ${link.target}`), link.class, link.kind, `${link.asked}${link.changes ? ", changes" : ""}`, state, rate(now), size(total), number(dropped)];
  })));

  // The curves. What several figures need is made once for each drawing.
  function once(name, make) {
    if (!made.has(name)) made.set(name, make());
    return made.get(name);
  }
  const place = (t, round) => against === "time" ? t - began() : round;
  const series = (name) => once(`series ${name} ${against}`, () => makeSeries(name));
  const bands = (name) => once(`bands ${name} ${against}`, () => makeBands(name));
  const lanes = () => once(`lanes ${against}`, makeLanes);
  function makeSeries(name) {
    const rows = story.metrics.filter((metric) => metric[4] === name && (against === "time" || metric[2] !== null));
    const point = ([t, , round, , , value]) => [place(t, round), value];
    const found = [], by = (scope, tier) => Map.groupBy(rows.filter((row) => row[3] === scope && nodes.get(row[1])?.tier === tier), (row) => row[1]);
    const devices = by("own", "device");
    if (devices.size <= MANY) for (const [, each] of devices) found.push({name: "devices", named: false, style: "device", points: each.map(point)});
    const edges = new Map([...by("own", "edge"), ...by("global", "edge")]);
    const order = ([a], [b]) => nodes.get(a).index - nodes.get(b).index;
    [...edges].sort(order).filter(([edge]) => !plan.leaders.includes(edge) || edges.size > 1).forEach(([edge, each], index) => found.push({name: edge, named: edges.size <= 12, style: `series-${index % 8}`, points: each.map(point)}));
    const leading = rows.filter((row) => row[3] === "global" && plan.leaders.includes(row[1]));
    const global = plan.leaders.length === 1 ? leading.map(point) : [...Map.groupBy(leading, (row) => row[2]).values()].map((of) => [place(Math.max(...of.map((row) => row[0])), of[0][2]), of.reduce((sum, row) => sum + row[5], 0) / of.length]);
    found.push({name: "global", style: "global", points: global});
    return found;
  }
  function makeBands(name) {
    const rows = story.metrics.filter((metric) => metric[4] === name && metric[3] === "own" && metric[2] !== null && nodes.get(metric[1])?.tier === "device");
    if (new Set(rows.map((row) => row[1])).size <= MANY) return [];
    const points = [...Map.groupBy(rows, (row) => row[2])].sort(([a], [b]) => a - b).map(([round, of]) => {
      let low = Infinity, high = -Infinity, t = 0;
      for (const row of of) { low = Math.min(low, row[5]); high = Math.max(high, row[5]); t = Math.max(t, row[0]); }
      return [place(t, round), low, high];
    });
    return [{name: "devices, lowest to highest", style: "device", points}];
  }
  function makeLanes() {
    const end = against === "time" ? story.present.now - began() : story.present.round;
    const marked = [...story.faults].filter(([, seen]) => "start" in seen).map(([id, seen]) => {
      const fault = faults.get(id) ?? {action: "fault", target: String(id)};
      const from = against === "time" ? seen.start - began() : (seen.startRound ?? 0) - 0.5;
      const until = against === "time" ? (seen.end ?? story.present.now) - began() : "end" in seen ? Math.max(from + 1, (seen.endRound ?? 0) - 0.5) : story.present.round + 0.5;
      return [fault.action, [from, Math.min(until, end + 0.5), saidOf(fault)]];
    });
    return [...Map.groupBy(marked, ([action]) => action)].map(([action, each]) => ({name: action, style: `fault-${action}`, spans: each.map(([, span]) => span)}));
  }
  function axis() {
    if (against === "rounds") return {name: "round", label: "round", low: 0, high: Math.max(1, plan.rounds ?? story.present.round), form: (value) => String(Math.round(value))};
    const end = Math.max(1, (story.present.training === null ? story.present.now : story.present.now - began()));
    return {name: "at", label: `${seconds} of training`, low: 0, high: end, form: (value) => duration(Math.max(0, value))};
  }
  const loss = (all) => ({name: "loss", label: "loss", low: 0, high: all.reduce((most, each) => each.points.reduce((high, point) => Math.max(high, point[1]), most), 1), form: number});
  const figures = [
    curves("Accuracy", () => ({x: axis(), y: {name: "accuracy", label: "accuracy", low: 0, high: 1, form: percent, tick: (value) => `${Math.round(value * 100)}%`}, series: series("accuracy"), bands: bands("accuracy"), lanes: lanes()})),
    curves("Loss", () => { const all = series("loss"); return {x: axis(), y: loss(all), series: all, bands: bands("loss"), lanes: lanes()}; }),
    curves("Bytes delivered by class of links", () => {
      const all = classes.map((name, index) => ({name, style: `class-${index % 6}`, points: story.bytes.map(([t, totals]) => [t - began(), totals[name] ?? 0])}));
      const most = Math.max(1000, ...all.map((each) => each.points.at(-1)?.[1] ?? 0));
      const kept = against; against = "time";
      const found = {x: axis(), y: {label: "bytes", low: 0, high: most, form: size}, series: all, lanes: lanes()};
      against = kept;
      return found;
    }),
    curves("Rounds of each coordinator", () => {
      const kept = against; against = "time";
      const found = {x: axis(), y: {label: "round", low: 0, high: Math.max(1, story.present.round), form: number}, series: roundSeries(), lanes: lanes()};
      against = kept;
      return found;
    }),
  ];
  function roundSeries() {
    const all = [...Map.groupBy(story.rounds.filter((row) => row[4] === "start" && nodes.has(row[1])), (row) => row[1])];
    all.sort(([a], [b]) => nodes.get(a).index - nodes.get(b).index);
    return all.map(([node, each], index) => ({name: node, named: all.length <= 12, style: plan.leaders.includes(node) ? "global" : `series-${index % 8}`,
      points: each.flatMap(([t, , round], at) => [...(at ? [[t - began(), each[at - 1][2]]] : []), [t - began(), round]])}));
  }
  const toggle = el("div", {role: "radiogroup", "aria-label": "Curves against", class: "toggle"}, ["time", "rounds"].map((name) =>
    el("label", {}, el("input", {type: "radio", name: "against", value: name, checked: name === against, onchange: () => { against = name; figures.forEach((figure) => figure.again()); }}), name)));

  // Tables
  const kinds = el("div"), checks = el("div"), faultTable = details(`Faults (${plan.faults.length})`, () => {
    const at = (t) => t === undefined ? "–" : duration(t - began());
    return [plan.faults.length > LISTED ? el("p", {class: "quiet"}, `The first ${LISTED} are listed.`) : null, table("Faults", ["fault", "planned", ["began"], ["ended"]], plan.faults.slice(0, LISTED).map((fault) => {
      const seen = story.faults.get(fault.id) ?? {};
      return [saidOf(fault), fault.at !== null ? `at ${duration(fault.at)}` : `in round ${fault.round}`, "skipped" in seen ? "not possible" : at(seen.start), at(seen.end)];
    }))].filter(Boolean);
  });
  let checked = "";
  function tables(now) {
    kinds.replaceChildren(table("Messages sent, by kind", ["kind", ["messages"], ["bytes"]], Object.entries(now.kinds).sort(([, a], [, b]) => b[1] - a[1]).map(([kind, [messages, bytes]]) => [kind, number(messages), size(bytes)])));
    const text = JSON.stringify(now.checks);
    if (text === checked) return;
    checked = text;
    checks.replaceChildren(now.checks.length ? table("Checks", ["check", "verdict", ""], now.checks.map((check) => [check.name, badge(check.verdict), check.detail])) : el("p", {class: "quiet"}, "The checks have not been made yet."));
  }

  main.replaceChildren(heading,
    el("section", {"aria-label": "Nodes and links"}, el("h2", {}, "Nodes and links"), picture.box, tally, nodeTable.box, linkTable.box),
    el("section", {"aria-label": "Learning"}, el("div", {class: "title"}, el("h2", {}, "Learning"), toggle), el("div", {class: "pair"}, figures[0].box, figures[1].box), faultTable.box),
    el("section", {"aria-label": "Checks"}, el("h2", {}, "Checks"), checks),
    el("section", {"aria-label": "Traffic and rounds"}, el("h2", {}, "Traffic and rounds"), el("div", {class: "pair"}, figures[2].box, figures[3].box), el("h3", {}, "Messages by kind"), kinds,
      el("p", {class: "tools"}, el("button", {type: "button", onclick: () => saveCsv("links", [["source", "target", "class", "state", "bytes/s", "bytes", "packets lost or dropped"], ...plan.links.map((link, index) => [link.source, link.target, link.class, ...flowOf(index)])])}, "Links as CSV"))));

  function draw() {
    const began = performance.now(), now = story.present;
    waiting = false;
    made = new Map();
    head(now);
    picture.again();
    count();
    figures.forEach((figure) => figure.again());
    tables(now);
    [nodeTable, linkTable, faultTable].forEach((each) => each.refresh());
    document.documentElement.dataset.now = now.now;
    next = performance.now() + Math.max(DRAW_EVERY, 4 * (performance.now() - began)); // a fifth of the time at most
  }
  function soon() {
    if (waiting) return;
    waiting = true;
    setTimeout(() => requestAnimationFrame(draw), Math.max(0, next - performance.now()));
  }

  // The stream. A page that nobody sees has none: a browser opens only six to one server.
  let stream = null;
  function listen() {
    stream?.close();
    say("reading the record …");
    stream = new EventSource(of(run, "/api/stream", {after: story.cursor}));
    stream.onmessage = (event) => {
      const said = JSON.parse(event.data);
      if (said.error) { say(said.error); return; }
      story.add(said, event.lastEventId);
      say(said.present.behind ? "reading the record …" : said.present.status === "running" ? "live" : "");
      soon();
    };
    stream.onerror = () => {
      say("The server does not answer. If it began again, open the address that it printed.");
      if (stream.readyState === EventSource.CLOSED) setTimeout(() => { if (!document.hidden) listen(); }, 3000);
    };
  }
  document.addEventListener("visibilitychange", () => { if (document.hidden) stream?.close(); else listen(); });
  listen();
}
