"""The userspace engine: one process that moves every packet between the nodes."""
