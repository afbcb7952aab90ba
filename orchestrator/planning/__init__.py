"""From a scenario to everything a run needs, decided before anything starts."""
