"""What runs inside every node. `role` is what an algorithm sees; `assignment` is what a node is told."""
