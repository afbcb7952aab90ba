"""The checks of a run, and the verdict."""
