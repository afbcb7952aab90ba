"""The links of a run: measured before training, and changed during it."""
