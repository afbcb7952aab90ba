"""The kernel engine's commands and their answers. Pure, no I/O."""
