#!/bin/sh
# FedArtML's Earth Mover's distance is 0 between clients that share no class.
#
# Expected: a measure of how far the clients' classes differ. Its docstring: "Calculate the Earth Mover's distance for
#     multiple probability distributions", of the labels of each client. So two clients without a class in common are
#     farther apart than two with nearly the same classes.
# Happens: the first pair has distance 0, the second 0.258.
# Versions: fedartml 0.1.34, scipy 1.17.1, scikit-learn 1.7.2 (which fedartml imports and does not require).
# Source: `earth_movers_distance` in fedartml/function_base.py passes the shares to `scipy.stats.wasserstein_distance` as
#     its first two arguments. These are the values that were observed, not their weights. Of [1, 0, 0] and [0, 1, 0] the
#     same values were observed: one 1 and two 0.
# Seen:
#     no class in common: earth mover's 0.000, Hellinger 1.000, Jensen-Shannon 1.000
#     nearly the same classes: earth mover's 0.258, Hellinger 0.086, Jensen-Shannon 0.103
# In edgebed: nothing; `plan` tells the total variation distance of clients.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet fedartml==0.1.34 scipy==1.17.1 scikit-learn==1.7.2
timeout 60 "$folder/venv/bin/python" - <<'PYTHON'
import sys

from fedartml.function_base import earth_movers_distance, hellinger_distance, jensen_shannon_distance


def shown(name: str, clients: list[list[float]]) -> float:
    earth_movers = earth_movers_distance(clients)
    hellinger = hellinger_distance(clients)
    jensen_shannon = jensen_shannon_distance(clients)
    print(f"{name}: earth mover's {earth_movers:.3f}, Hellinger {hellinger:.3f}, Jensen-Shannon {jensen_shannon:.3f}")
    return earth_movers


disjoint = shown("no class in common", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
similar = shown("nearly the same classes", [[0.5, 0.3, 0.2], [0.6, 0.2, 0.2]])
if disjoint != 0 or similar == 0:
    sys.exit("changed: the distance depends on which classes the clients have")
PYTHON
