"""Test the kernel's netem by its effect: `python -m orchestrator.fabric.tc.probe_kernel`, run in the hub, prints JSON.

A version number is not sufficient: modules may be missing or refused, and one combination of kernel and tc accepts a
delay and ignores it. So this sets a delay on the hub's own loopback, which nothing else uses, and times a datagram.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time

from netem.errors import TcError
from netem.kernel.filters import ROOT, Match, filter_commands, parse_police, show_police_command
from netem.kernel.police import Bucket, change_command, making, sharing

DELAY = 0.02  # s
TIMEOUT = 1.0


def try_netem() -> dict[str, bool | str]:
    """Whether netem delays packets, and if not, the reason; whether it accepts a seed and `duplicate_in_tree`."""
    _tc("ip", "link", "set", "lo", "up")
    _tc("tc", "qdisc", "del", "dev", "lo", "root")
    added = _tc("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", f"{DELAY * 1000:.0f}ms")
    if added:
        return {"netem": False, "seed": False, "duplicate_in_tree": False, "reason": f"tc refused netem: {added}"}
    took = _one_way()
    seed = _takes_seed()
    _tc("tc", "qdisc", "del", "dev", "lo", "root")
    duplicate = _duplicates_in_tree()
    reason = _without_policers()
    if took < DELAY * 0.9:
        reason = f"tc accepted a delay of {DELAY * 1000:.0f} ms, but a packet took {took * 1000:.2f} ms"
    works = not reason
    return {"netem": works, "seed": seed, "duplicate_in_tree": duplicate, "reason": reason}


def _takes_seed() -> bool:
    """Whether netem accepts a seed. An older kernel silently ignores the seed of a newer tc, so it is read back."""
    if _tc("tc", "qdisc", "change", "dev", "lo", "root", "netem", "delay", "1ms", "loss", "1%", "seed", "7"):
        return False
    shown = subprocess.run(["tc", "-json", "qdisc", "show", "dev", "lo"], capture_output=True, text=True, check=False)
    with contextlib.suppress(ValueError, LookupError):
        return bool(json.loads(shown.stdout)[0]["options"]["seed"] == 7)
    return False


def _duplicates_in_tree() -> bool:
    """Whether two netems may share a device when one of them duplicates."""
    add = ("add", "dev", "lo")
    refused = _tc("tc", "qdisc", *add, "root", "handle", "1:", "htb")
    for class_id, options in (("1:1", ()), ("1:2", ("duplicate", "1%"))):
        refused = refused or _tc("tc", "class", *add, "parent", "1:", "classid", class_id, "htb", "rate", "1gbit")
        refused = refused or _tc("tc", "qdisc", *add, "parent", class_id, "netem", *options)
    _tc("tc", "qdisc", "del", "dev", "lo", "root")
    return not refused


def _without_policers() -> str:
    """Why links cannot have policers, which drop what finds no room in a buffer; empty if they can. Two filters share
    one, it is changed in place, and its drops are shown."""
    flows = [Match("127.0.0.1", None, "1:1", police=(making(1, Bucket(125_000, 20_000)), sharing(1)))]
    commands = [
        ["tc", "qdisc", "add", "dev", "lo", "root", "handle", ROOT, "htb"],
        *filter_commands("lo", flows),
        change_command(1, Bucket(250_000, 30_000)),
    ]
    refused = ""
    for command in commands:
        refused = refused or _tc(*command)
    shown = subprocess.run(
        ["tc", "-json", "-statistics", *show_police_command("lo")[1:]], capture_output=True, text=True, check=False
    )
    _tc("tc", "qdisc", "del", "dev", "lo", "root")
    if refused:
        return f"tc refused a policer (module act_police): {refused}"
    with contextlib.suppress(TcError):
        if parse_police(shown.stdout) == {1: 0}:
            return ""
    return "tc does not show what a policer drops: it needs iproute2 5.14 or later"


def _tc(*argv: str) -> str:
    """Run a command; returns its error message, empty if it succeeded."""
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return ""
    return result.stderr.strip() or f"exit code {result.returncode}"


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
