"""The scenario: what a user writes, read and checked."""
