#!/bin/sh
# The last client of Flower's Dirichlet partition has nearly every class, whatever its shares.
#
# Expected: the clients' shares of each class are drawn from one symmetric Dirichlet distribution, so no place is special.
#     With α = 0.1, 100 clients and ten classes a client holds some five classes.
# Happens: clients 0 to 98 hold 4.8 classes, client 99 holds 10.0. It often has a single sample of a class. Whatever counts
#     the classes of a client, or weighs them equally, sees another client than was drawn.
# Versions: flwr-datasets 0.6.1, datasets 4.8.5, numpy 2.4.6.
# Source: `DirichletPartitioner` turns shares into borders by cutting off the fraction of cumulated shares. What rounding
#     leaves of each class falls to the last client. FedLab, FedArtML, OpenFL, APPFL and FedML have the same line.
# Seen:
#     means of 5 seeds: clients 0 to 98 hold 4.8 classes, client 99 holds 10.0
# In edgebed: node/learning/data/dirichlet.py gives what rounding leaves to the largest remainders (`apportion`).
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet flwr-datasets==0.6.1 datasets==4.8.5 numpy==2.4.6
HF_HUB_OFFLINE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1 timeout 100 "$folder/venv/bin/python" - <<'PYTHON'
import sys

from datasets import Dataset
from flwr_datasets.partitioner import DirichletPartitioner

CLIENTS, CLASSES, OF_EACH, SEEDS = 100, 10, 5000, 5
labels = [label for label in range(CLASSES) for _ in range(OF_EACH)]
data = Dataset.from_dict({"label": labels})
others, last = [], []
for seed in range(SEEDS):
    partitioner = DirichletPartitioner(CLIENTS, partition_by="label", alpha=0.1, min_partition_size=0, seed=seed)
    partitioner.dataset = data
    held = [len(partitioner.load_partition(client).unique("label")) for client in range(CLIENTS)]
    others += held[:-1]
    last.append(held[-1])
mean_of_others, mean_of_last = sum(others) / len(others), sum(last) / len(last)
print(f"means of {SEEDS} seeds: clients 0 to 98 hold {mean_of_others:.1f} classes, client 99 holds {mean_of_last:.1f}")
if mean_of_last < mean_of_others + 2:
    sys.exit("changed: the last client holds about as many classes as the others")
PYTHON
