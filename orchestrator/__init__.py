"""From a scenario to running, shaped, recorded nodes, and to a report. `cli` has the verbs, `run` the steps of a run."""
