"""The program inside every node. `role`: the interface of algorithms. `assignment`: a node's configuration."""
