"""TCP in the nodes' network namespaces: the settings that transfer times depend on are the same on every host.

A new namespace inherits three settings from its host: the congestion control and the limits of both buffers (Linux,
net/ipv4/tcp_ipv4.c, tcp_sk_init). Nodes get Linux's defaults instead, see ip-sysctl in its documentation. All other
settings start with the kernel's own defaults, whatever the host has set. They are recorded.

The congestion control is set on the route (congctl in ip-route(8)), because a namespace may choose only what its host
has listed in tcp_allowed_congestion_control.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from orchestrator.fabric.namespaces.hub import Hub

CONGESTION = "tcp_congestion_control"
BUFFERS = {"tcp_rmem": "4096 131072 6291456", "tcp_wmem": "4096 16384 4194304"}
"""By their names below /proc/sys/net/ipv4; in bytes: least, initial, most."""
SETTINGS = {CONGESTION: "cubic", **BUFFERS}

REMEDY = "give its kernel CUBIC, as root on that host"
REMEDY_COMMANDS = ("modprobe tcp_cubic",)

_SECRET = "tcp_fastopen_key"

_SET = (sys.executable, "-I", "-S", str(Path(__file__).with_name("set_buffers.py")))
_GIVEN = (*_SET, *(f"{name}={value}" for name, value in BUFFERS.items()), "--")
_ON_LOOPBACK = ("ip", "route", "replace", "local", "127.0.0.0/8", "dev", "lo", "congctl", SETTINGS[CONGESTION])

CONFIGURE = (*_GIVEN, "ip", "-batch", "-")
"""The command that sets a namespace's buffers, then carries out the lines of `ip` on its standard input."""


async def in_force(hub: Hub) -> dict[str, str]:
    """The TCP settings of nodes by name: tried and read in the hub, a namespace of the same kernel and the same user.
    Empty if this host does not show them."""
    refused, _, _ = await hub.attempt(_ON_LOOPBACK)
    _, output, _ = await hub.attempt(_GIVEN)
    settings = parse(output)
    return settings if refused or not settings else settings | {CONGESTION: SETTINGS[CONGESTION]}


def congestion(settings: Mapping[str, str]) -> str | None:
    """The congestion control for the routes of nodes; None if this host's kernel does not have it."""
    return SETTINGS[CONGESTION] if settings.get(CONGESTION) == SETTINGS[CONGESTION] else None


def parse(output: str) -> dict[str, str]:
    """The settings in lines of the form ``name:value``."""
    rows = (line.partition(":") for line in output.splitlines())
    return {name: " ".join(value.split()) for name, _, value in rows if name != _SECRET}


def of_hosts(settings: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The settings of several hosts as one: where hosts differ, the value of each, with its name."""
    names = dict.fromkeys(name for each in settings.values() for name in each)
    values = {name: {host: each.get(name, "unknown") for host, each in settings.items()} for name in names}
    return {
        name: next(iter(of.values()))
        if len(set(of.values())) == 1
        else ", ".join(f"{value} on {host}" for host, value in of.items())
        for name, of in values.items()
    }


def notes(settings: Mapping[str, str]) -> list[str]:
    """A sentence for each of SETTINGS that a kernel has refused, for the record."""
    return [
        f"TCP of the nodes has {name} {settings[name]} and not {value}, which this kernel refuses:"
        " transfer times differ from those of other hosts"
        for name, value in SETTINGS.items()
        if settings.get(name, value) != value
    ]
