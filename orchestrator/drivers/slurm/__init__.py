"""Nodes on the hosts of a Slurm job, as an ordinary user: in namespaces, made on each host by an agent of the run."""
