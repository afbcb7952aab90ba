"""The process of a node: the fork server, the confinement, and the main that runs the role."""
