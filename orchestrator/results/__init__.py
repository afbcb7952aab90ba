"""The results of a run: its record, and everything that is derived from the record."""
