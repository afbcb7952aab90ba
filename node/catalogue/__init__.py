"""What a scenario may name: algorithms, models, data sets and partitions, with the parameters of each.

Everything here is plain data: no torch, no files, no network. Whoever validates or plans a scenario reads it, and a
node looks up from it which module runs. A new algorithm is one module in `node.algorithms` and one entry here.
"""
