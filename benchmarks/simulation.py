"""The cost of the `sim` driver: whole runs against a plain PyTorch loop and Flower, a thousand devices, bare messages.

    python -m benchmarks.simulation [whole] [thousand] [messages] [--repeat 3] [--workers 2] [--flower]

Prints one JSON object; all three parts if none is named. Each program is a separate process, timed from start to end,
with imports and data. Compared programs run in turns. `ratios` are medians over the turns of the ratio within a turn,
which a busy machine disturbs least.

whole     FedAvg with 10 and with 50 clients of 600 MNIST images (digits if MNIST is missing), 10 rounds: the
          simulation, the plain loop with `torch.optim` and with steps by hand in as many processes, and with --flower
          Flower's simulation engine, in an environment that the first use makes in the cache.
thousand  HierFAVG with 1,000 devices at 20 edges, 5 rounds, digits (`--data mnist` for 60 images a device), against
          the plain loop, and against the simulation that trains 64 devices as one batch; and the peak memory of each
          program's processes, in an untimed run.
messages  A cloud and 10,000 devices that exchange 40 kB each way for 10 rounds without training, in one process.

All programs evaluate the same: clients and edges on their own test sets, the cloud on all test samples.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

ROOT = Path(__file__).parents[1]
FLOWER = "flwr[simulation]==1.41.0"
SCENARIO = """\
# What does a simulation cost?
name: simulation
seed: 1
algorithm: {{name: {algorithm}, rounds: {rounds}, learning_rate: 0.01, batch_size: 32}}
data: {{dataset: [{data}], partition: iid, samples_per_client: {samples}}}
model: cnn
topology: {topology}
links: {{{link}: {{latency: 10ms, rate: 100mbit}}}}
probe: {{before: false}}
"""


@dataclass(frozen=True)
class Program:
    """A command that prints one JSON object at its end."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    good: tuple[int, ...] = (0,)  # exit codes


@dataclass(frozen=True)
class TimedRun:
    """One run of a program: wall time in seconds, and the result."""

    seconds: float
    result: dict[str, Any]


def run(program: Program) -> TimedRun:
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        environment = {**os.environ, **program.environment}
        began = perf_counter()
        process = subprocess.Popen(program.command, stdout=output, stderr=errors, cwd=ROOT, env=environment)
        process.wait()
        seconds = perf_counter() - began
        output.seek(0)
        errors.seek(0)
        if process.returncode not in program.good:
            told = " | ".join(errors.read().strip().splitlines()[-5:])
            sys.exit(f"benchmarks.simulation: {' '.join(program.command)} ended with {process.returncode}: {told}")
        return TimedRun(seconds, json.loads(output.read()))


def most_memory(program: Program) -> int:
    """The peak of the total memory (PSS, bytes) of the program's processes, sampled every 0.1 s."""
    environment = {**os.environ, **program.environment}
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(program.command, stdout=nowhere, stderr=nowhere, cwd=ROOT, env=environment)
    most = 0
    while process.poll() is None:
        most = max(most, sum(proportional_bytes(each) for each in family(process.pid)))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
    return most


def family(process: int) -> list[int]:
    """A process and all its running descendants."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return []
    return [process, *(each for child in children for each in family(int(child)))]


def proportional_bytes(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def in_turns(programs: Mapping[str, Program], repeat: int) -> dict[str, list[TimedRun]]:
    turns: dict[str, list[TimedRun]] = {name: [] for name in programs}
    for _ in range(repeat):
        for name, program in programs.items():
            turns[name].append(run(program))
    return turns


def figures(turns: Mapping[str, list[TimedRun]]) -> dict[str, Any]:
    """The seconds of each program, and the ratio of the simulation to each of the others."""
    return {
        "programs": {
            name: {
                "seconds": round(median(turn.seconds for turn in of), 3),
                "each": [round(turn.seconds, 3) for turn in of],
                "accuracy": final_accuracy(of[-1].result),
            }
            for name, of in turns.items()
        },
        "ratios": {
            f"sim/{name}": round(median(a.seconds / b.seconds for a, b in zip(turns["sim"], of, strict=True)), 3)
            for name, of in turns.items()
            if name != "sim"
        },
        "virtual_seconds": turns["sim"][-1].result["seconds"],
        "verdict": turns["sim"][-1].result["verdict"],
    }


def final_accuracy(result: Mapping[str, Any]) -> float:
    accuracy = result["accuracy"]
    value: float = accuracy["global"] if isinstance(accuracy, dict) else accuracy
    return round(value, 4)


def simulation(folder: Path, workers: int, **values: Any) -> Program:
    """The program `up --driver sim` for the scenario with these values."""
    scenario = folder / "scenario.yaml"
    scenario.write_text(SCENARIO.format(**values))
    up = [sys.executable, "-m", "orchestrator", "up", str(scenario), "--runs", str(folder / "runs"), "--json"]
    return Program([*up, "--driver", "sim", "--workers", str(workers)], good=(0, 3))


def whole(options: argparse.Namespace) -> dict[str, Any]:
    """Measure FedAvg in the simulation, the plain loop and Flower."""
    results: dict[str, Any] = {}
    flower = flower_python() if options.flower else "not asked for: --flower"
    for clients in (10, 50):
        workload = ["--data", *options.data, "--clients", str(clients), "--samples", "600", "--rounds", "10"]
        workload += ["--processes", str(options.workers)]
        plain = [sys.executable, "-m", "benchmarks.plain", *workload]
        scenario = {
            "algorithm": "fedavg",
            "rounds": 10,
            "data": ", ".join(options.data),
            "samples": 600,
            "topology": f"{{edges: 0, devices: {clients}}}",
            "link": "device-cloud",
        }
        with tempfile.TemporaryDirectory() as folder:
            programs = {
                "sim": simulation(Path(folder), options.workers, **scenario),
                "plain": Program(plain),
                "plain_by_hand": Program([*plain, "--steps", "hand"]),
            }
            if isinstance(flower, Path):
                command = [str(flower), "-m", "benchmarks.flower_app", *workload]
                quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
                programs["flower"] = Program(command, {"PYTHONPATH": str(ROOT), **quiet})
            results[f"{clients} clients"] = figures(in_turns(programs, options.repeat))
    asked = FLOWER if isinstance(flower, Path) else flower
    return {"limits": {"sim/plain": 1.15, "sim/flower": 0.6}, "flower": asked, **results}


def flower_python() -> Path | str:
    """The Python of an environment with Flower, which is made if it is missing; or the reason why that fails.

    It uses torch and numpy of the project's environment, which is not changed.
    """
    cache = Path(os.environ.get("EDGEBED_CACHE") or Path.home() / ".cache" / "edgebed")
    folder = cache / "benchmarks" / FLOWER.replace("[simulation]==", "-")
    python, made = folder / "bin" / "python", folder / "made"
    if not made.exists():
        install = [str(python), "-m", "pip", "install", "--quiet", FLOWER]
        for command in ([sys.executable, "-m", "venv", "--clear", str(folder)], install):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                return f"{FLOWER} cannot be installed: {done.stderr.strip().splitlines()[-1]}"
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        made.touch()
    return python


def thousand(options: argparse.Namespace) -> dict[str, Any]:
    """Measure HierFAVG with many devices, and its memory."""
    data = ["digits"] if options.data == PREFERRED else options.data
    workload = ["--data", *data, "--clients", "1000", "--edges", "20", "--samples", "60", "--rounds", "5"]
    plain = [sys.executable, "-m", "benchmarks.plain", *workload, "--processes", str(options.workers)]
    scenario = {
        "algorithm": "hierfavg, kappa2: 1",
        "rounds": 5,
        "data": ", ".join(data),
        "samples": 60,
        "topology": "{edges: 20, devices_per_edge: 50}",
        "link": "device-edge",
    }
    with tempfile.TemporaryDirectory() as folder:
        sim = simulation(Path(folder), options.workers, **scenario)
        programs = {
            "sim": sim,
            "plain": Program(plain),
            "plain_by_hand": Program([*plain, "--steps", "hand"]),
            "sim_in_batches": replace(sim, command=[*sim.command, "--set", "compute.clients_at_once=64"]),
        }
        compared = figures(in_turns(programs, options.repeat))
        memory = {name: round(most_memory(program) / 1e6) for name, program in programs.items()}
        return {"limits": {"sim/plain": 1.3, "sim megabytes": 2000}, **compared, "megabytes": memory}


def messages(options: argparse.Namespace) -> dict[str, Any]:
    """Measure messages without training; `benchmarks.messages` itself accepts other numbers."""
    turns = [run(Program([sys.executable, "-m", "benchmarks.messages"])).result for _ in range(options.repeat)]
    turns.sort(key=lambda turn: float(turn["messages_s"]))
    each = [turn["messages_s"] for turn in turns]
    return {"limits": {"messages_s": 20_000}, **turns[len(turns) // 2], "each_messages_s": each}


PREFERRED = ["mnist", "digits"]
PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "whole": whole,
    "thousand": thousand,
    "messages": messages,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"{', '.join(PARTS)}; all if none is given")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2, help="of the simulation, and processes of the others")
    parser.add_argument("--flower", action="store_true", help="against Flower too; installs it into the cache")
    parser.add_argument("--data", nargs="+", default=PREFERRED, help="the first that is here")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {', '.join(unknown)}: there are {', '.join(PARTS)}")
    results = {part: measure(options) for part, measure in PARTS.items() if part in (options.parts or PARTS)}
    print(json.dumps({"processors": os.cpu_count(), "workers": options.workers, **results}, indent=1))


if __name__ == "__main__":
    main()
