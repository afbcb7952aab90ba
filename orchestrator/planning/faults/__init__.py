"""Faults of a run: those of the scenario, and manual ones."""
