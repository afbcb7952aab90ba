"""Links measured by programs that know nothing of us: ping and iperf3."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest

needs_tools = pytest.mark.programs("ping", "iperf3")
TRIES = 3


class Tools:
    """ping and iperf3 between nodes. ``entering`` is the start of a command line that runs in a node's network;
    ``address`` is that of a node."""

    def __init__(self, entering: Callable[[str], Sequence[str]], address: Callable[[str], str]) -> None:
        self._enter, self._address = entering, address

    def ping(self, source: str, target: str, count: int, interval: float, size: int = 56) -> list[float]:
        """Round-trip times in seconds; those of lost echoes are missing."""
        options = ["-n", "-c", str(count), "-i", str(interval), "-s", str(size), "-W", "2"]
        done = subprocess.run(
            [*self._enter(source), "ping", *options, self._address(target)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert f"{count} packets transmitted" in done.stdout, done.stdout[-500:] + done.stderr
        return [float(each) / 1000 for each in re.findall(r"time=([\d.]+) ms", done.stdout)]

    def iperf(self, source: str, target: str, *options: str) -> dict[str, Any]:
        """What the client at ``source`` says in the end, in iperf3's own words.

        Where a link loses much, the two sometimes lose one another over their last words, and try again.
        """
        for _ in range(TRIES):
            said = self._iperf(source, target, *options)
            if {"sum", "sum_received"} & said["end"].keys():
                ending: dict[str, Any] = said["end"]
                return ending
        pytest.fail(f"iperf3 between {source} and {target}: {said.get('error')}")

    def _iperf(self, source: str, target: str, *options: str) -> dict[str, Any]:
        serving = subprocess.Popen(
            [*self._enter(target), "iperf3", "--server", "--one-off", "--forceflush", "--bind", self._address(target)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert serving.stdout is not None
            for line in serving.stdout:
                if "listening" in line:
                    break
            done = subprocess.run(
                [*self._enter(source), "iperf3", "--client", self._address(target), "--json", *options],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            said: dict[str, Any] = json.loads(done.stdout)
        finally:
            serving.kill()
            serving.communicate()
        return said
