"""The kernel engine: a bridge, and netem on every interface."""
