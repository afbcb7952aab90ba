"""Nodes on several machines that form a Docker Swarm: plain containers, made on each host by an agent of the run."""
