"""Where a control plane is reached; keys and strangers are tested with the planes that use them."""

from __future__ import annotations

import os
from pathlib import Path

from node.messaging.sockets import Endpoint


def test_what_fits_is_left_as_it_is(tmp_path: Path) -> None:
    for address in ("tcp://10.0.0.1:7000", "ipc:///run/control"):
        endpoint = Endpoint(address)
        assert endpoint.address == address
        endpoint.close()


def test_a_long_path_is_reached_through_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    endpoint = Endpoint(f"ipc://{folder}/control")
    path = Path(endpoint.address.removeprefix("ipc://"))
    assert len(os.fsencode(path)) < 108  # unix(7)
    assert path.parent.resolve() == folder
    assert path.name == "control"
    endpoint.close()
    assert not path.parent.exists()
