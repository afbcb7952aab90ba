#!/bin/sh
# FedArtML's method `percent_noniid` gives all skewed samples to the last client if there are more clients than classes.
#
# Expected: "Create a federated dataset divided per each local node (client)". 1,000 samples of ten classes, divided
#     among 20 clients with 100 % skew: each client has samples of one class, or the call is refused.
# Happens: 19 clients have no sample, and the last has all 1,000. Its shares of classes are those of the whole, so
#     100 % skew is no skew. No warning.
# Versions: fedartml 0.1.34, scikit-learn 1.7.2 (which fedartml imports and does not require).
# Source: `percent_noniid_method` in fedartml/fl_split_as_federated_data.py divides the number of classes by that of
#     clients and rounds down. With 0 classes for each client, the last takes "all the remaining".
# Seen:
#     10 clients: 100 100 100 100 100 100 100 100 100 100
#     20 clients: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1000
# In edgebed: the partition `shards` divides the samples of a class among clients (node/learning/data/partition.py).
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet fedartml==0.1.34 scikit-learn==1.7.2
timeout 60 "$folder/venv/bin/python" - <<'PYTHON'
import sys

from fedartml import SplitAsFederatedData

CLASSES, OF_EACH = 10, 100
labels = [label for label in range(CLASSES) for _ in range(OF_EACH)]


def sizes(clients: int) -> list[int]:
    _, _, indices, _ = SplitAsFederatedData.percent_noniid_method(labels, clients, pct_noniid=100, random_state=1)
    numbers = [len(of_client) for of_client in indices]
    print(f"{clients} clients:", *numbers)
    return numbers


if sizes(10) != [OF_EACH] * CLASSES:
    sys.exit("changed: as many clients as classes do not have one class each")
if sizes(20) != [0] * 19 + [CLASSES * OF_EACH]:
    sys.exit("changed: samples of a class are divided among clients")
PYTHON
