"""Nodes as coroutines on a virtual clock, with modelled links and modelled computation."""
