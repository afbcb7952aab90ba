"""Nodes on several hosts, where an agent of the run makes them: the part that is the same whoever starts the agents."""
