"""What a role runs on: computing at the hardware's speed, turns at the processors, checkpoints, the virtual clock."""
