// What the stream of a run has told so far, sorted as its figures need it.

const SCOPES = {device: ["global", "own", "train"], edge: ["global", "own"], cloud: ["global"]};

export class Story {
  faults = new Map(); // by id: {start, startRound, end, ...}
  byHand = [];        // [t, fault, user, via]
  rounds = [];        // [t, node, round, edge round, "start" or "end", abandoned]
  bytes = [];         // [t, {link class: bytes}]
  metrics = new Set(["accuracy", "loss"]); // those that are drawn
  cursor = "";
  present = {status: "", now: 0, training: null, round: 0, nodes: [], links: [], checks: [], kinds: {}, probes: 0};
  #series = new Map(); // by metric, scope and node: [[t, round, value]]
  #bands = new Map();  // by metric and scope: by round, what devices reported
  #actions = new Map(); // how many faults of an action are planned, or were made manually

  constructor(plan) {
    this.plan = plan;
    this.nodes = new Map(plan.nodes.map((node, index) => [node.name, {...node, index}]));
    this.planned = new Map(plan.faults.map((fault) => [fault.id, fault]));
    for (const {action} of plan.faults) this.#count(action);
  }

  add({added, present}, cursor) {
    for (const metric of added.metrics) this.#addMetric(metric);
    for (const band of added.bands) this.#addBand(band);
    for (const [t, id, phase, round] of added.faults) this.faults.set(id, {...this.faults.get(id), [phase]: t, [`${phase}Round`]: round});
    for (const each of added.by_hand) {
      this.byHand.push(each);
      this.planned.set(each[1].id, {...each[1], by: each[2], via: each[3]});
      this.#count(each[1].action);
    }
    for (const round of added.rounds) this.rounds.push(round);
    for (const point of added.bytes) {
      if (this.bytes.at(-1)?.[0] === point[0]) this.bytes.pop();
      this.bytes.push(point);
    }
    this.present = present;
    this.cursor = cursor;
  }

  get began() { return this.present.training ?? 0; }
  get length() { return Math.max(1, this.present.now - this.began); }

  stateOf(name) { return this.present.nodes[this.nodes.get(name).index] ?? ["planned", "", 0, 0, 0]; }
  flowOf(index) { return this.present.links[index] ?? ["idle", 0, 0, 0]; }

  plannedOf(action) { return this.#actions.get(action) ?? 0; }
  #count(action) { this.#actions.set(action, this.plannedOf(action) + 1); }

  // The points of each node of a tier, of the first scope that the node reports: [[name, [[t, round, value]]]].
  seriesOf(metric, tier) {
    return this.plan.nodes.filter((node) => node.tier === tier).flatMap((node) => {
      const found = SCOPES[tier].map((scope) => this.#series.get(`${metric} ${scope} ${node.name}`)).find(Boolean);
      return found ? [[node.name, found]] : [];
    });
  }

  // The global model's points: the leading node's, or the mean over several by round.
  globalOf(metric) {
    const of = this.plan.leaders.map((name) => this.#series.get(`${metric} global ${name}`) ?? []);
    if (of.length === 1) return of[0];
    const rounds = Map.groupBy(of.flat(), ([, round]) => round);
    return [...rounds].map(([round, each]) => [Math.max(...each.map(([t]) => t)), round, each.reduce((sum, [, , value]) => sum + value, 0) / each.length]);
  }

  // Of many devices' reports, by round: {t, round, low, high, mean}.
  bandOf(metric) {
    const found = SCOPES.device.map((scope) => this.#bands.get(`${metric} ${scope}`)).find(Boolean) ?? new Map();
    return [...found.values()].sort((one, other) => one.round - other.round);
  }

  #addBand([t, round, scope, name, low, high, mean]) {
    const key = `${name} ${scope}`;
    if (!this.#bands.has(key)) this.#bands.set(key, new Map());
    this.#bands.get(key).set(round, {t, round, low, high, mean});
  }

  #addMetric([t, node, round, scope, name, value]) {
    const key = `${name} ${scope} ${node}`;
    this.metrics.add(name);
    if (!this.#series.has(key)) this.#series.set(key, []);
    this.#series.get(key).push([t, round, value]);
  }

  // How many rounds of the first leading node were over at a time, with the share of the current one: 2.5 is the middle
  // of round 3. As `rounds_at` in orchestrator/report/figures.py.
  roundsAt() {
    const spans = new Map();
    for (const [t, node, round, , phase] of this.rounds) {
      if (node === this.plan.leaders[0]) spans.set(round, {...(phase === "start" ? {} : spans.get(round)), [phase]: t});
    }
    const edges = [...spans].flatMap(([round, {start, end}]) => [
      ...(start === undefined ? [] : [[start, round - 1]]), ...(end === undefined ? [] : [[end, round]])]);
    edges.sort(([a], [b]) => a - b);
    return (t) => {
      let after = 0, most = edges.length; // the first edge after t
      while (after < most) {
        const middle = (after + most) >> 1;
        if (edges[middle][0] > t) most = middle; else after = middle + 1;
      }
      if (after === edges.length) return edges.at(-1)?.[1] ?? 0;
      if (after === 0) return 0;
      const [[t0, r0], [t1, r1]] = [edges[after - 1], edges[after]];
      return r0 + (r1 - r0) * (t - t0) / (t1 - t0);
    };
  }
}
