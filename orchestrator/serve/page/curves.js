// The figures of one run, from its story: as orchestrator/report/figures.py makes them from a record.
import {number, size} from "./dom.js";
import {GLOBAL, MANY, SERIES, bars, line} from "./plots.js";

const ACTIONS = ["crash", "pause", "disconnect", "partition", "degrade", "slow", "join", "leave"];
const FEW = 3;      // faults of an action that shade the curves
const EACH = 100;   // faults of an action that are drawn one by one
const LEAST = 0.004; // the width of a moment, as a share of the axis
const TIERS = {cloud: GLOBAL, edge: SERIES[1], device: SERIES[0]};

export const saidOf = (fault) => `${fault.action} ${fault.target}${fault.by ? `, manual (${fault.by})` : ""}`;

// `against`: "time" or "rounds".
export function learning(story, metric, against) {
  const byTime = against === "time";
  const point = ([t, round, value]) => [byTime ? t - story.began : round, value];
  const points = (each) => each.filter(([, round]) => byTime || round !== null).map(point);
  const edges = story.seriesOf(metric, "edge"), many = edges.length > SERIES.length;
  const marks = [...ofDevices(story, metric, byTime, points)];
  edges.forEach(([name, each], index) => marks.push(line(name, points(each), many ? MANY : SERIES[index],
    many ? {group: `${edges.length} edges`} : {points: each.length <= 60})));
  const global = points(story.globalOf(metric));
  if (global.length) marks.push(line("global", global, GLOBAL, {width: 3, points: global.length <= 60}));
  return {
    title: `${metric[0].toUpperCase()}${metric.slice(1)} by ${byTime ? "time" : "round"}`, height: 230, hover: "x", marks,
    x: byTime ? timeAxis(story) : {title: "round", range: [0, endOf(story, against)]},
    y: metric === "accuracy" ? {title: metric, format: "percent"} : {title: metric, zero: true},
    ...marked(story, against),
  };
}

function ofDevices(story, metric, byTime, points) {
  const named = (count) => `${count} device${count === 1 ? "" : "s"}`;
  if (!story.plan.bands) {
    const series = story.seriesOf(metric, "device");
    return series.map(([name, each]) => line(name, points(each), MANY, {width: 0.8, group: named(series.length)}));
  }
  const band = story.bandOf(metric), x = band.map(({t, round}) => byTime ? t - story.began : round);
  if (!band.length) return [];
  const group = named(story.plan.nodes.filter((node) => node.tier === "device").length);
  return [
    {mark: "area", name: `${group}: range`, x, low: band.map((each) => each.low), high: band.map((each) => each.high), colour: MANY},
    line(`${group}: mean`, band.map((each, at) => [x[at], each.mean]), MANY),
  ];
}

function timeAxis(story) {
  const what = story.present.training === null ? "seconds of the run" : "seconds of training";
  return {title: story.plan.simulated ? `virtual ${what}` : what, range: [0, story.length]};
}

// The faults that took effect: a lane for each action, and shades for those that happened a few times. Several figures
// of one drawing ask for the same.
const drawn = new WeakMap(); // by how the run stands: by what they are drawn against
function marked(story, against) {
  const known = drawn.get(story.present) ?? drawn.set(story.present, {}).get(story.present);
  return known[against] ??= lanesOf(story, against === "time" ? (t) => t - story.began : story.roundsAt(), endOf(story, against));
}

const endOf = (story, against) => against === "time" ? story.length : Math.max(1, story.present.round);

function lanesOf(story, place, end) {
  const found = Map.groupBy([...story.faults].filter(([, seen]) => "start" in seen), ([id]) => story.planned.get(id)?.action ?? "fault");
  const ordered = [...found].sort(([a], [b]) => ACTIONS.indexOf(a) - ACTIONS.indexOf(b)).map(([action, each]) => [action, each.map(([id, seen]) => {
    const from = place(seen.start);
    return {id, seen, from, until: Math.max(place(seen.end ?? story.present.now), from + LEAST * end)};
  })]);
  const lanes = ordered.map(([name, each]) => {
    const boxes = each.length > EACH ? merged(name, each) : each.map((span) => ({...span, note: noteOf(story, span)}));
    return {mark: "boxes", name, colour: `var(--${name})`, x0: boxes.map((span) => span.from), x1: boxes.map((span) => span.until), notes: boxes.map((span) => span.note)};
  });
  const shades = ordered.filter(([action]) => story.plannedOf(action) <= FEW).flatMap(([action, each]) =>
    each.map((span) => ({x0: span.from, x1: span.until, colour: `var(--${action})`})));
  return {lanes, shades};
}

function noteOf(story, {id, seen}) {
  const fault = story.planned.get(id) ?? {action: "fault", target: String(id)};
  const round = seen.startRound ? `, round ${seen.startRound}` : "", lasted = "end" in seen ? `, ${number(seen.end - seen.start)} s` : "";
  return `${saidOf(fault)}${round}${lasted}`;
}

function merged(action, spans) {
  const periods = [];
  for (const {from, until} of spans.sort((one, other) => one.from - other.from)) {
    const last = periods.at(-1);
    if (last && from <= last.until) { last.until = Math.max(last.until, until); last.times += 1; }
    else periods.push({from, until, times: 1});
  }
  return periods.map((period) => ({...period, note: `${action}, ${period.times} times`}));
}

export function bytes(story) {
  const classes = Object.keys(story.plan.colours);
  const marks = classes.map((name) => line(name, story.bytes.map(([t, totals]) => [t - story.began, totals[name] ?? 0]), story.plan.colours[name]));
  return {title: "Bytes delivered by class of links", x: timeAxis(story), y: {title: "bytes", format: "bytes", zero: true}, marks, height: 190, hover: "x",
    ...marked(story, "time")};
}

export function rounds(story) {
  const all = [...Map.groupBy(story.rounds.filter((row) => row[4] === "start" && story.nodes.has(row[1])), (row) => row[1])];
  all.sort(([a], [b]) => story.nodes.get(a).index - story.nodes.get(b).index);
  let edge = 0;
  const marks = all.map(([name, each]) => {
    const leads = story.plan.leaders.includes(name), points = each.map(([t, , round, part]) => [t - story.began, part ?? round]);
    const shown = [...points, [story.length, points.at(-1)[1]]];
    return line(name, shown, leads ? GLOBAL : SERIES[edge++ % 8], {steps: true, width: leads ? 3 : 1.5, group: all.length > 12 ? `${all.length} coordinators` : undefined});
  });
  return {title: "Rounds of each coordinator", x: timeAxis(story), y: {title: "round", zero: true}, marks, height: 190, hover: "x",
    ...marked(story, "time")};
}

// What each node uses now, or has used when the run is over: null under `sim`, where nodes have no process.
export function resources(story, what) {
  if (story.plan.simulated) return null;
  const names = story.plan.nodes.map((node) => node.name), running = story.present.status === "running";
  const [title, place, axis, said] = what === "memory" ? ["Memory of each node", 3, {title: "bytes", format: "bytes"}, size]
    : running ? ["Processor of each node, now", 2, {title: "cores"}, (value) => `${number(value)} cores`]
    : ["Processor time of each node", 4, {title: "CPU seconds"}, (value) => `${number(value)} CPU seconds`];
  const values = names.map((name) => story.stateOf(name)[place]);
  return bars(title, names, values, axis, story.plan.nodes.map((node) => [node.tier, TIERS[node.tier]]), names.map((name, at) => `${name}: ${said(values[at])}`));
}
