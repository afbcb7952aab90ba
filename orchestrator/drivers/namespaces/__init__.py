"""Nodes as processes in their own Linux namespaces, without Docker and without root."""
