"""Copies the output of a container into the node's log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

LARGEST = 64 << 20  # bytes of one container, so that a node that prints without end fills no disk
CUT = b"\n(the rest of what this node printed is left out: its log has reached its limit)\n"


def copy_output(output: Iterable[bytes], log: Path, largest: int = LARGEST) -> None:
    """Append ``output`` to the file ``log`` until it ends. Output beyond ``largest`` bytes is read and dropped."""
    left = largest
    with log.open("ab", buffering=0) as file:
        for piece in output:
            if left > 0:
                file.write(piece[:left])
                if len(piece) >= left:
                    file.write(CUT)
                left -= len(piece)
