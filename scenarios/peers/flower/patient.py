"""A SuperNode that waits longer for answers than Flower's 5 s: ``python patient.py SECONDS ARGUMENTS…``.

Flower has no setting for this time, so its constant is changed: the time for the answer to a heartbeat.
"""

import sys

import flwr.common.constant

flwr.common.constant.HEARTBEAT_CALL_TIMEOUT = int(sys.argv.pop(1))

from flwr.supernode.cli import flower_supernode  # noqa: E402  the modules that it imports read the constant

if __name__ == "__main__":
    flower_supernode()
