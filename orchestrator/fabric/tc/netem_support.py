"""Test the kernel's netem by its effect: `python -m orchestrator.fabric.tc.netem_support`, run in the hub, prints JSON.

A version number is not sufficient: modules may be missing or refused, and one combination of kernel and tc accepts a
delay and ignores it. So this sets a delay on the hub's own loopback, which nothing else uses, and times a datagram.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Sequence

from netem.errors import TcError
from netem.kernel.filters import ROOT, Match, Policed, filter_commands, parse_police, show_police_command
from netem.kernel.police import Bucket, change_command, making, sharing, size_command, sizing
from netem.profile import SMALLEST_MTU

DELAY = 0.02  # s
TIMEOUT = 1.0


def try_netem() -> dict[str, bool | str]:
    """Whether netem delays packets, and if not, the reason; whether it accepts a seed and `duplicate_in_tree`; whether
    this is ``lasting``, or a busy host may have spoiled it."""
    _tc("ip link set lo up")
    _tc("tc qdisc del dev lo root")
    refused = _tc(f"tc qdisc add dev lo root netem delay {DELAY * 1000:.0f}ms")
    if refused:
        return {
            "netem": False,
            "seed": False,
            "duplicate_in_tree": False,
            "reason": f"tc refused netem: {refused}",
            "lasting": True,
        }
    took = _one_way()
    seed = _takes_seed()
    _tc("tc qdisc del dev lo root")
    duplicate = _duplicates_in_tree()
    reason = _without_policers()
    delayed = took >= DELAY * 0.9
    if not delayed:
        reason = f"tc accepted a delay of {DELAY * 1000:.0f} ms, but a packet took {took * 1000:.2f} ms"
    return {
        "netem": not reason,
        "seed": seed,
        "duplicate_in_tree": duplicate,
        "reason": reason,
        "lasting": delayed,
    }


def _takes_seed() -> bool:
    """Whether netem accepts a seed. An older kernel silently ignores the seed of a newer tc, so it is read back."""
    if _tc("tc qdisc change dev lo root netem delay 1ms loss 1% seed 7"):
        return False
    show = ["tc", "-json", "qdisc", "show", "dev", "lo"]
    shown = _output(show)
    with contextlib.suppress(ValueError, LookupError):
        netem = json.loads(shown)[0]
        return bool(netem["options"]["seed"] == 7)
    return False


def _duplicates_in_tree() -> bool:
    """Whether two netems may share a device when one of them duplicates."""
    refused = _run(
        "tc qdisc add dev lo root handle 1: htb",
        "tc class add dev lo parent 1: classid 1:1 htb rate 1gbit",
        "tc qdisc add dev lo parent 1:1 netem",
        "tc class add dev lo parent 1: classid 1:2 htb rate 1gbit",
        "tc qdisc add dev lo parent 1:2 netem duplicate 1%",
    )
    _tc("tc qdisc del dev lo root")
    return not refused


def _without_policers() -> str:
    """Why links cannot have policers, which drop what is too large or finds no room in a buffer; empty if they can. Two
    filters share them, they are changed in place, and their drops are shown."""
    bucket = Bucket(125_000, 20_000)
    police = sizing(2, SMALLEST_MTU) + making(1, bucket), sharing(2) + sharing(1)
    flow = Match("127.0.0.1", None, "1:1", police=police)
    commands = [f"tc qdisc add dev lo root handle {ROOT} htb".split()]
    commands += filter_commands("lo", [flow])
    larger = Bucket(250_000, 30_000)
    commands.append(change_command(1, larger))
    commands.append(size_command(2, None))
    lines = [" ".join(command) for command in commands]
    refused = _run(*lines)
    show = show_police_command("lo")
    shown = _output(["tc", "-json", "-statistics", *show[1:]])
    _tc("tc qdisc del dev lo root")
    if refused:
        return f"tc refused a policer (module act_police): {refused}"
    with contextlib.suppress(TcError):
        if parse_police(shown) == {1: Policed(too_large=0, overflowed=0)}:
            return ""
    return "tc does not show what a policer drops: it needs iproute2 5.14 or later"


def _run(*commands: str) -> str:
    """Run commands up to the first one that fails; returns its error message, empty if all succeeded."""
    for command in commands:
        refused = _tc(command)
        if refused:
            return refused
    return ""


def _tc(command: str) -> str:
    """Run a command; returns its error message, empty if it succeeded."""
    argv = command.split()
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return ""
    return result.stderr.strip() or f"exit code {result.returncode}"


def _output(argv: Sequence[str]) -> str:
    """What a command prints, also if it fails."""
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    return result.stdout


def _one_way() -> float:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(TIMEOUT)
        started = time.perf_counter()
        sender.sendto(b"?", receiver.getsockname())
        try:
            receiver.recv(1)
        except TimeoutError:
            return 0.0
        return time.perf_counter() - started


if __name__ == "__main__":
    print(json.dumps(try_netem()))
