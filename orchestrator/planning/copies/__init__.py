"""Copies of a scenario's files in the run's directory."""
