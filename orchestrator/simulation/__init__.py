"""Nodes as coroutines on a virtual clock: everything of a run that has no process, no namespace and no packet."""
