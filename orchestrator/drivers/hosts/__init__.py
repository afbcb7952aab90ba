"""Nodes on several hosts, made by an agent of the run on each: the common part of all drivers that start agents."""
