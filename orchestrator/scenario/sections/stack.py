"""TCP settings of nodes: those of Linux that a network namespace has for itself.

    stack: {device: {congestion: bbr, syn_retries: 3, keepalive: 30s, retries2: 8}, cloud: {rmem: 16mb, wmem: 16mb}}

ip-sysctl in the kernel's documentation and tcp(7) describe each.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from orchestrator.scenario.language.quantities import Duration, Size
from orchestrator.scenario.language.strict import Strict

CONGESTION = "tcp_congestion_control"
RMEM = "tcp_rmem"
WMEM = "tcp_wmem"
INITIAL = {RMEM: 131_072, WMEM: 16_384}  # bytes of a new connection's buffer
LEAST = 4096  # bytes of a buffer: a page
DEFAULTS = {
    CONGESTION: "cubic",
    RMEM: f"{LEAST} {INITIAL[RMEM]} {6 * 1024**2}",
    WMEM: f"{LEAST} {INITIAL[WMEM]} {4 * 1024**2}",
}
"""The settings of nodes that would depend on the host otherwise, by their names below /proc/sys/net/ipv4: Linux's
defaults. Buffers in bytes: least, initial, most."""

Congestion = Literal[
    "bbr",
    "bic",
    "cdg",
    "cubic",
    "dctcp",
    "highspeed",
    "htcp",
    "hybla",
    "illinois",
    "lp",
    "nv",
    "reno",
    "scalable",
    "vegas",
    "veno",
    "westwood",
    "yeah",
]
"""The congestion controls in Linux's source."""


def _whole_seconds(duration: float) -> float:
    if duration != int(duration):
        raise ValueError("must be whole seconds, like 30s: Linux has no finer ones")
    return duration


class StackSpec(Strict):
    """TCP settings of a node. What is left out is as on every node."""

    congestion: Congestion | None = Field(default=None, description="congestion control, like bbr; default: cubic")
    syn_retries: int | None = Field(
        default=None,
        ge=1,
        le=127,
        description="how often the start of a connection is repeated: with 1 it fails after 3 s, with 2 after 7 s, "
        "with 3 after 15 to 20 s; Linux's default: 6, about 130 s",
    )
    keepalive: Annotated[Duration, AfterValidator(_whole_seconds)] | None = Field(
        default=None,
        ge=1,
        le=32767,
        description="silence before the first probe of a connection, and time between its probes; nine unanswered ones "
        "end it; only for sockets with SO_KEEPALIVE; Linux's defaults: 2h and 75s",
    )
    retries2: int | None = Field(
        default=None,
        ge=1,
        le=255,
        description="how often a packet is repeated before its connection ends; Linux's default: 15, about 15 minutes",
    )
    rmem: Size | None = Field(
        default=None, ge=LEAST, lt=2**31, description="largest receive buffer of a connection; default: 6mib"
    )
    wmem: Size | None = Field(
        default=None, ge=LEAST, lt=2**31, description="largest send buffer of a connection; default: 4mib"
    )

    def settings(self, key: str | None = None) -> dict[str, str]:
        """The settings that this, or one of its keys, makes: by their names below /proc/sys/net/ipv4."""
        keepalive = None if self.keepalive is None else f"{self.keepalive:.0f}"
        by_key: dict[str, dict[str, str | int | None]] = {
            "congestion": {CONGESTION: self.congestion},
            "syn_retries": {"tcp_syn_retries": self.syn_retries},
            "keepalive": {"tcp_keepalive_time": keepalive, "tcp_keepalive_intvl": keepalive},
            "retries2": {"tcp_retries2": self.retries2},
            "rmem": {RMEM: _buffer(RMEM, self.rmem)},
            "wmem": {WMEM: _buffer(WMEM, self.wmem)},
        }
        values: dict[str, str | int | None] = {}
        for name, of_key in by_key.items():
            if key in (None, name):
                values |= of_key
        return {name: str(value) for name, value in values.items() if value is not None}


def _buffer(name: str, most: int | None) -> str | None:
    if most is None:
        return None
    initial = min(INITIAL[name], most)
    return f"{LEAST} {initial} {most}"
