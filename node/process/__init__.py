"""What makes a process a node: the fork server, its confinement, and the main that runs the role."""
