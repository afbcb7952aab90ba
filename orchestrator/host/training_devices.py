"""Whether nodes can train on the accelerators that a plan names: a trial, by a process of its own."""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from node.extras import LEARNING, install_command
from orchestrator import text
from orchestrator.errors import HostError
from orchestrator.host.process import python

TRIAL = "node.learning.trial"
PATIENCE = 120.0  # s; the first import of torch from a cold disk is slow

NodesByDevice = Mapping[str, Sequence[str]]
ResultByDevice = Mapping[str, Mapping[str, str]]

REMEDY = (
    "use a host with an NVIDIA GPU, its driver and torch's build for CUDA (`edgebed docs accelerators`), or train on"
    " the processor: compute.device: cpu"
)


def torch_installed() -> bool:
    """Whether this Python has PyTorch. Does not import it."""
    return importlib.util.find_spec("torch") is not None


@functools.cache
def tried_here(device: str) -> Mapping[str, str]:
    """What the trial reports about a device of this host: its ``name``, or the ``problem``."""
    if not torch_installed():
        return {"problem": "PyTorch is not installed"}
    command = python.module(TRIAL, device)
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"a trial did not end within {PATIENCE:.0f} s"}
    results = trial_results(done.stdout, done.stderr)
    result: Mapping[str, str] = results[device]
    return result


def trial_results(output: str, errors: str) -> dict[str, Any]:
    """The results that a trial has printed. Raises HostError if there are none."""
    lines = output.strip().splitlines()
    try:
        results: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):
        reasons = errors.strip().splitlines()
        last = reasons[-1] if reasons else "it printed nothing"
        raise HostError(f"whether nodes can train on an accelerator could not be tried: {last}") from None
    return results


def refusals(devices: NodesByDevice, results: ResultByDevice) -> list[HostError]:
    """An error for each device that does not work. ``devices``: the nodes of each. ``results``: of their trials."""
    errors = []
    for device, nodes in devices.items():
        problem = results[device].get("problem")
        if problem is not None:
            what = f"{text.some(nodes)} {_train(nodes)} on {device}, and {problem}"
            errors.append(HostError(what, REMEDY))
    return errors


def notes(devices: NodesByDevice, results: ResultByDevice) -> list[str]:
    """Which nodes train on which accelerator, for the record."""
    notes = []
    for device, nodes in devices.items():
        name = results[device]["name"]
        notes.append(f"{text.some(nodes)} {_train(nodes)} on {device}, {name}")
    return notes


def missing_here(devices: NodesByDevice) -> list[HostError]:
    """An error if nodes cannot train on this host, or for each of these devices that does not work. Tries them."""
    if not torch_installed():
        return [HostError("training needs PyTorch", install_command(LEARNING))]
    try:
        results = {device: tried_here(device) for device in devices}
        return refusals(devices, results)
    except HostError as error:
        return [error]


def notes_here(devices: NodesByDevice) -> list[str]:
    """The notes on this host's devices, which have been tried."""
    results = {device: tried_here(device) for device in devices}
    return notes(devices, results)


def _train(nodes: Sequence[str]) -> str:
    return "trains" if len(nodes) == 1 else "train"
