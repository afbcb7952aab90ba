"""From a scenario to running, shaped, recorded nodes, and to a report. `cli` has the verbs, `run` a run's steps."""
