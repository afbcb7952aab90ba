"""What a scenario may name beside algorithms: models, data sets and partitions, with the parameters of each.

Everything here is plain data: no torch, no files, no network. Whoever validates or plans a scenario reads it.
"""
