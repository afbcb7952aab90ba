"""Nodes as processes in Linux namespaces of their own, without Docker and without root."""
