"""The algorithms: one file for each paper, or a folder if its mathematics need more than a file.

`registry` and `parameters` need no torch: validation and planning of scenarios use them.
"""
