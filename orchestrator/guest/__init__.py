"""The part of the orchestrator that runs in a guest: it executes one run there, and reports to the host's side."""
