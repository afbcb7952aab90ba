"""The runtime of a role: computing at the hardware's speed, turns at the processors, checkpoints, the virtual clock."""
