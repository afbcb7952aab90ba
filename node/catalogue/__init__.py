"""The models, data sets and partitions that a scenario may name, with the parameters of each.

All of it is plain data: no torch, no files, no network. Validation and planning of scenarios use it.
"""
