#!/bin/sh
# Groups of people (GroupedNaturalIdPartitioner) follow the order on disk, also in a data set that was shuffled.
#
# Expected: `Dataset.shuffle(seed)` gives rows in another order, and `Dataset.unique` "the unique elements in the column".
#     The partitioner groups people in the order of `unique`. So which people share a group depends on the seed, as
#     `FederatedDataset(shuffle=True, seed=…)` promises of what is divided.
# Happens: the groups are the same for every seed. In data in which people with many samples come first, the first client
#     always has the people with the most samples, and the last those with the least.
# Versions: flwr-datasets 0.6.1, datasets 4.8.5.
# Source: `Dataset.shuffle` keeps the table and adds a list of indices. `Dataset.unique` applies the list only if it is
#     shorter or longer than the table (datasets/arrow_dataset.py), which it is after `select`, not after `shuffle`.
# Seen:
#     seed 0: rows c a b a a d a a b c b a, unique a b c d, groups of 9 (a b) and 3 (c d) samples
#     seed 1: rows b d a b a a a c a c b a, unique a b c d, groups of 9 (a b) and 3 (c d) samples
#     seed 2: rows a a c c d b a b a a b a, unique a b c d, groups of 9 (a b) and 3 (c d) samples
#     two rows that `select` took, the last first: unique d b
# In edgebed: node/learning/data/flower.py gives Flower's partitioners the data in its own order, shuffled by a list of
#     indices, so the partition is Flower's.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet flwr-datasets==0.6.1 datasets==4.8.5
HF_HUB_OFFLINE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1 timeout 60 "$folder/venv/bin/python" - <<'PYTHON'
import sys

from datasets import Dataset
from flwr_datasets.partitioner import GroupedNaturalIdPartitioner

people = ["a"] * 6 + ["b"] * 3 + ["c"] * 2 + ["d"]
on_disk = Dataset.from_dict({"person": people, "number": list(range(len(people)))})
groups_of_seeds = set()
for seed in range(3):
    shuffled = on_disk.shuffle(seed=seed)
    partitioner = GroupedNaturalIdPartitioner(partition_by="person", group_size=2)
    partitioner.dataset = shuffled
    first, second = (partitioner.load_partition(number) for number in (0, 1))
    in_first, in_second = (" ".join(sorted(set(part["person"]))) for part in (first, second))
    print(f"seed {seed}: rows", *shuffled["person"][:], end="")
    print(", unique", *shuffled.unique("person"), end="")
    print(f", groups of {len(first)} ({in_first}) and {len(second)} ({in_second}) samples")
    groups_of_seeds.add((in_first, in_second))
last_first = on_disk.select([len(people) - 1, 6])
print("two rows that `select` took, the last first: unique", *last_first.unique("person"))
if groups_of_seeds != {("a b", "c d")}:
    sys.exit("changed: the groups depend on the seed")
if last_first.unique("person") != ["d", "b"]:
    sys.exit("changed: `unique` does not follow the order of `select`")
PYTHON
