"""The record of a run: its tables, its writer and its reader."""
