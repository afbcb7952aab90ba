"""The algorithms: one file for each paper, or one folder where its mathematics fill more than a file.

`registry` and `parameters` need no torch: whoever validates or plans a scenario reads them.
"""
