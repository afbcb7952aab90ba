"""From a scenario to the plan of a run, which is decided before the run starts."""
