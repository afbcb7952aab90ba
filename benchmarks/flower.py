"""FedAvg of Flower and FedAvg of the testbed, on the same links: scenarios/flower.yaml and its twin.

    PATH=FLOWER/bin:$PATH python -m benchmarks.flower [--rounds 10] [--clients 5] [--repeat 1]

FLOWER is an environment with Flower; docs/guides/programs.md says how to make it. Both programs have the same model
(`cnn` for digits, with batch normalisation), as many samples for each client, the same SGD, links, clients and rounds.
Both run without dropouts and with those of the scenario. Prints one JSON object: of each run the seconds of each round,
bytes on all links for each round, the final accuracy and the verdict. Round 1 of Flower includes its start.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from orchestrator.results.history import History

ROOT = Path(__file__).parents[1]
SCENARIO = ROOT / "scenarios" / "flower.yaml"
TWIN = {
    "algorithm": {"name": "fedavg", "learning_rate": 0.1, "batch_size": 32, "epochs": 1},
    "data": {"dataset": "digits", "partition": "iid"},
    "model": "cnn",
}
SHARED = ("topology", "links", "faults", "stop")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="edgebed-") as folder:
        runs = [
            {"program": name, "dropouts": dropouts} | measured(path, Path(folder), dropouts, options)
            for _ in range(options.repeat)
            for dropouts in (False, True)
            for name, path in {"edgebed": twin(Path(folder)), "flower": SCENARIO}.items()
        ]
    print(json.dumps({"clients": options.clients, "rounds": options.rounds, "runs": runs}, indent=2))


def twin(folder: Path) -> Path:
    """The scenario of the testbed's FedAvg with all that both share."""
    scenario = yaml.safe_load(SCENARIO.read_text())
    path = folder / "fedavg.yaml"
    path.write_text(yaml.safe_dump(TWIN | {key: scenario[key] for key in SHARED}))
    return path


def measured(path: Path, folder: Path, dropouts: bool, options: argparse.Namespace) -> dict[str, Any]:
    """Run a scenario, and read its record."""
    settings = [f"topology.devices={options.clients}", f"stop.rounds={options.rounds}"]
    if path == SCENARIO:
        command = yaml.safe_load(path.read_text())["programs"]["control"]["command"]
        wanted = f"clients={options.clients} rounds={options.rounds}"
        settings.append(f"programs.control.command={command.replace('clients=5 rounds=10', wanted)}")
    settings += [] if dropouts else ["faults=[]"]
    words = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "orchestrator", "up", str(path), "--runs", str(folder / "runs"), "--json", *words]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    summary = json.loads(done.stdout)
    seconds = round_seconds(Path(summary["run"]))
    return {
        "seconds": seconds,
        "median_seconds": median(seconds),
        "bytes_per_round": round(sum(summary["bytes"].values()) / options.rounds),
        "accuracy": round(summary["accuracy"]["global"], 3),
        "verdict": summary["verdict"],
    }


def round_seconds(run: Path) -> list[float]:
    """The duration of each round."""
    with History.open(run) as history:
        told = [event for event in history.events("round") if event.node in history.leaders]
    begun = {event.round: event.t for event in told if event.data["phase"] == "start"}
    ended = {event.round: event.t for event in told if event.data["phase"] == "end"}
    return [round(ended[each] - begun[each], 2) for each in begun if each in ended]


if __name__ == "__main__":
    main()
