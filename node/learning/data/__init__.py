"""Data sets: found, read, checked, and divided over clients."""
