"""Measure a link, and compare the measurement with its profile."""
