"""The links of a run on several hosts, and the network between the hosts."""
