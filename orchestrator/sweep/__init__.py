"""Sweeps: many runs of one scenario, in several cases and with several seeds, and the table that compares them."""
