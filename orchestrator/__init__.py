"""Turns a scenario into nodes, links, a record and a report. `cli` has the verbs, `run` the steps of a run."""
