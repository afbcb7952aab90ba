"""The network namespaces of a run: the hub, and the wires to its nodes."""
