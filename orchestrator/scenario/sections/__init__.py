"""The sections of a scenario."""
