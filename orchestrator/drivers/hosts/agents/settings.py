"""The settings of an agent as one line of JSON: the secret of its service, and the first input of its container."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from node.assignment import Keypair

FILE = "agent"  # the name of the secret
HOST = "EDGEBED_HOST"
IMAGE = "EDGEBED_AGENT_IMAGE"
"""Variables of the service's task: the name of its host, and its own image."""

LEFT_BY = "EDGEBED_LEFT_BY"  # the variable of a task that only removes: the run that has left something
FOLDER = "EDGEBED_AGENT_FOLDER"
"""The variable of the container that does the work: the folder of its files, which has the same path on the host."""

DATASETS = "EDGEBED_DATASETS"
"""The variable of this container: the folder of the data sets that the host keeps, with the same path on the host."""

ORPHANED = 3  # the exit code of the container after a silence of the orchestrator
SCENARIO = "scenario.tar"  # in the directory of a run of programs on each host: the folder of the scenario
LEASE = 15.0  # s of silence after which an agent ends what it has made, and after which it counts as lost

SOCKET = Path("/var/run/docker.sock")  # the socket of the Engine on each host


@dataclass(frozen=True, kw_only=True)
class Settings:
    """``address``: the endpoint of the orchestrator, ``tcp://ADDRESS:PORT``. ``server``: its public key. ``keys``:
    those of the agents. ``lease``: the seconds of silence after which an agent ends what it has made. ``standing``:
    whether the agents wait for one orchestrator after the other."""

    run: str
    address: str
    server: str
    keys: Keypair
    lease: float
    standing: bool = False

    def to_json(self) -> bytes:
        line = json.dumps(asdict(self))
        return line.encode()

    @classmethod
    def from_json(cls, line: bytes) -> Settings:
        data = json.loads(line)
        keys = Keypair(**data["keys"])
        return cls(**{**data, "keys": keys})
