"""From a scenario to the plan of a run: everything that is decided before the run starts."""
