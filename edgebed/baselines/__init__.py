"""Algorithms that others compare with, each a plug-in in one file that uses the public interface of edgebed alone.

A scenario selects one by its module: ``plugins: [edgebed.baselines.fedproto]`` and ``algorithm: {name: fedproto}``.
"""

from __future__ import annotations

from typing import Any

import edgebed


def plugin(
    name: str,
    params: type[edgebed.LocalTraining],
    summary: str,
    **needs: Any,
) -> edgebed.Plugin:
    """The plug-in of an algorithm with one layer of clients below a cloud. ``needs``: see `edgebed.Algorithm`."""
    algorithm = edgebed.Algorithm(
        name,
        params=params,
        summary=summary,
        edges="optional",
        devices="optional",
        flat=True,
        **needs,
    )
    return edgebed.Plugin(algorithms=[algorithm])
