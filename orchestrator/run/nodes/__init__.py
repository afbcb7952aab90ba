"""The nodes of a run: their processes, their messages and their sensors."""
