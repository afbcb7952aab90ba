"""The record of a run, and the results derived from it."""
