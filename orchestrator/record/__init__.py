"""The record of a run, on which all else can build: its directory, tables, rows, events, writer and reader."""
