// What somebody does to a run from its page: faults, the pace of a simulation, and the same faults again.
import {change, el, of, read} from "./dom.js";

const ON_NODE = [
  "crash",
  "power-off",
  "pause",
  "disconnect",
  "partition",
  "degrade",
  "slow",
  "leave",
  "join",
  "new-address",
];
const ON_LINK = ["partition", "degrade"];
const LASTING = ["leave", "join", "new-address"]; // actions that nothing ends
const IMPAIRED = [
  ["latency", "50ms"],
  ["jitter", "10ms"],
  ["loss", "5%"],
  ["rate", "1mbit"],
];

const named = (text, control) => el("label", {}, el("span", {}, text), control);
const entry = (placeholder, value = "") =>
  el("input", {type: "text", size: 7, placeholder, value, spellcheck: "false", autocomplete: "off"});

// The menu of a node, or of the link between two.
export function menu(run, story, {node, ends}) {
  const {plan} = story,
    others = () => plan.picture.media.map(([name]) => name).filter((name) => name !== story.mediumOf(node)),
    moves = node && story.mediumOf(node) && others().length > 0;
  const action = el(
    "select",
    {autofocus: true},
    [...(node ? ON_NODE : ON_LINK), ...(moves ? ["handover"] : [])].map((name) => el("option", {}, name)),
  );
  const lasts = entry("to the end", "5s"),
    factor = entry("4", "4");
  const linked = node ? [...new Set(plan.links.filter((link) => link.source === node).map((link) => link.target))] : [];
  const other = el(
    "select",
    {},
    linked.map((name) => el("option", {}, name)),
  );
  const to = el("select");
  const profile = el(
    "select",
    {},
    el("option", {value: ""}, "as it is"),
    plan.profiles.map((name) => el("option", {}, name)),
  );
  const keys = Object.fromEntries(IMPAIRED.map(([key, example]) => [key, entry(example)]));
  const parts = {
    lasts: named("for", lasts),
    other: named("cut off from", other),
    to: named("to", to),
    factor: named("times longer", factor),
    profile: named("profile", profile),
    ...Object.fromEntries(IMPAIRED.map(([key]) => [key, named(key, keys[key])])),
  };
  const said = el("p", {class: "answer", role: "status"}),
    go = el("button", {type: "submit", class: "button"}, "Do it now");

  function show() {
    const what = action.value,
      degrades = what === "degrade";
    parts.lasts.hidden = LASTING.includes(what);
    parts.other.hidden = !node || what !== "partition";
    parts.to.hidden = what !== "handover";
    if (moves) to.replaceChildren(...others().map((name) => el("option", {}, name)));
    parts.factor.hidden = what !== "slow";
    for (const key of ["profile", ...Object.keys(keys)]) parts[key].hidden = !degrades;
  }

  function fault() {
    const what = action.value,
      whom = node && what !== "partition" ? {node} : {between: node ? [node, other.value] : ends};
    const found = {action: what, ...whom};
    if (!LASTING.includes(what) && lasts.value.trim()) found.for = lasts.value.trim();
    if (what === "handover") found.to = to.value;
    if (what === "slow") found.factor = Number(factor.value);
    if (what === "degrade") {
      const given = Object.entries({profile, ...keys}).map(([key, control]) => [key, control.value.trim()]);
      Object.assign(found, Object.fromEntries(given.filter(([, value]) => value)));
    }
    return found;
  }

  async function make(event) {
    event.preventDefault();
    go.disabled = true;
    said.className = "answer quiet";
    said.textContent = "…";
    try {
      const {told, refused} = await change(run, "inject", {fault: fault()});
      said.className = `answer ${refused.length ? "fail" : "done"}`;
      said.textContent = [...told, ...refused.map((each) => `${each.action} ${each.target}: ${each.reason}`)].join(
        "\n",
      );
    } catch (error) {
      said.className = "answer fail";
      said.textContent = error.message;
    }
    go.disabled = false;
  }

  action.addEventListener("change", show);
  show();
  return el(
    "form",
    {class: "menu", "aria-label": `Make a fault: ${node ?? ends.join(" – ")}`, onsubmit: make},
    el("div", {class: "filters"}, named("fault", action), Object.values(parts), go),
    said,
  );
}

// The pace of a simulation that goes on.
export function pace(run) {
  const said = el("span", {class: "answer", role: "status"}),
    speed = entry("10x", "10x");
  async function set(to) {
    said.className = "answer quiet";
    said.textContent = to === "step" ? "until the next round starts …" : "…";
    try {
      const {t, round} = await change(run, "pace", {to});
      said.textContent = `${to}, at ${t.toFixed(1)} s${round ? `, round ${round}` : ""}`;
    } catch (error) {
      said.className = "answer fail";
      said.textContent = error.message;
    }
  }
  const button = (text, to) => el("button", {type: "button", class: "button", onclick: () => set(to)}, text);
  return el(
    "form",
    {
      class: "tools",
      "aria-label": "Pace of the simulation",
      onsubmit: (event) => {
        event.preventDefault();
        set(speed.value.trim());
      },
    },
    el("span", {}, "pace"),
    button("Pause", "pause"),
    button("Step a round", "step"),
    el("label", {}, el("span", {class: "spoken"}, "speed"), speed),
    el("button", {type: "submit", class: "button"}, "Set"),
    button("Free", "free"),
    said,
  );
}

// The faults of the run as a scenario writes them, to be copied. Read when opened, and again with `refresh`.
export function again(run) {
  const text = el("pre", {tabindex: 0, role: "region", "aria-label": "The same faults as `faults` of a scenario"}),
    said = el("span", {role: "status", class: "quiet"});
  async function fill() {
    if (box.open) text.textContent = (await read(of(run, "/api/faults"))).yaml;
  }
  async function copy() {
    try {
      await navigator.clipboard.writeText(text.textContent);
      said.textContent = "copied";
    } catch {
      // no secure context, or not allowed: it is chosen, for Ctrl-C
      getSelection().selectAllChildren(text);
      said.textContent = "chosen: press Ctrl-C";
    }
  }
  const box = el(
    "details",
    {ontoggle: fill},
    el("summary", {}, "The same again: these faults for a scenario"),
    el("p", {class: "quiet"}, "Put this into a scenario in place of its faults. The next run then has them by itself."),
    el("p", {class: "tools"}, el("button", {type: "button", class: "button", onclick: copy}, "Copy"), said),
    text,
  );
  return {box, refresh: fill};
}
