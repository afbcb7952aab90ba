// What the stream of a run has sent: how it stands, its figures and its faults.

export class Story {
  present = {status: "", nodes: [], links: [], media: {}, handovers: {}}; // until the first message
  figures = {}; // by id, as orchestrator/report/marks.py describes
  faults = {planned: 0, begun: 0, manual: 0, rows: []};
  changed = new Set(); // figures that were not drawn yet
  version = "";

  constructor(plan) {
    this.plan = plan;
    this.nodes = new Map(plan.nodes.map((node, index) => [node.name, {...node, index}]));
  }

  add({parts: {faults = this.faults, ...figures}, present}, version) {
    Object.assign(this.figures, figures);
    for (const id of Object.keys(figures)) this.changed.add(id);
    Object.assign(this, {faults, present, version});
  }

  // Whether the run, or the reading of its record, may still bring more.
  isGoingOn() {
    return this.present.status === "running" || this.present.behind;
  }
  stateOf(name) {
    return this.present.nodes[this.nodes.get(name).index] ?? ["planned", "", 0, 0];
  }
  mediumOf(name) {
    return this.present.handovers[name] ?? this.nodes.get(name).medium;
  }
  flowOf(index) {
    return this.present.links[index] ?? ["idle", 0, 0, 0];
  }
}
