"""Running runs: their nodes, and commands to them."""
