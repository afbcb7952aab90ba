"""Processes: children, their signals and streams, and sockets of one user."""
