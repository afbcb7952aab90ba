"""Turns a scenario into nodes, links, a record and a report. `cli` has the commands, `run` the steps of a run."""
