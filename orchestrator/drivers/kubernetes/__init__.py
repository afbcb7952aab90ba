"""Nodes on the hosts of a Kubernetes cluster: in namespaces, made in a pod of each host by an agent of the run."""
