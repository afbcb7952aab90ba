"""The errors of a node.

NodeError
├── AssignmentError      an assignment that cannot be used; the message names the field
├── WireError            bytes that are not a message, or a message too large: the fault of their sender
├── TransportError       this node cannot use its own data plane
├── ControlError         the orchestrator cannot be reached, has fallen silent, or another process claims a node's name
├── CheckpointError      a checkpoint that cannot be read; the message names the file
├── Terminated           SIGTERM came from outside the run
├── PluginError          a user's plug-in that cannot be used; the message names its file and line
└── ConfinementError     nodes cannot run in a private file tree; the message names the file

Finished is not an error: it unwinds a role whose run is over.
"""

from __future__ import annotations

LEARNING = "pip install 'edgebed[learning]'"
"""The command that installs what training needs."""

_EXTRAS = {  # by module: its distribution, and the extra that installs it
    "torch": ("PyTorch", "learning"),
    "torchvision": ("torchvision", "learning"),
    "PIL": ("Pillow", "learning"),
    "pyarrow": ("pyarrow", "parquet"),
    "datasets": ("flwr-datasets", "flwr"),
    "flwr_datasets": ("flwr-datasets", "flwr"),
}


def lacking(error: BaseException) -> str | None:
    """The words "needs PyTorch:" and the command, if an import failed because an extra is missing."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    distribution, extra = _EXTRAS.get(name, ("", ""))
    return f"needs {distribution}: pip install 'edgebed[{extra}]'" if extra else None


class NodeError(Exception):
    """Any error of a node; the message says what, where and what to do."""


class AssignmentError(NodeError):
    """An assignment cannot be used."""


class WireError(NodeError):
    """Bytes are not a message, or a message exceeds a limit."""


class TransportError(NodeError):
    """This node cannot use its own data plane."""


class ControlError(NodeError):
    """The control plane cannot be used."""


class CheckpointError(NodeError):
    """A checkpoint cannot be read."""


class Terminated(NodeError):  # noqa: N818 - what happened to the node
    """SIGTERM arrived. The orchestrator does not send it, so the node ends as if it had crashed."""


class PluginError(NodeError):
    """A plug-in cannot be used."""


class ConfinementError(NodeError):
    """Nodes cannot run with only the rights they need."""


class Finished(Exception):  # noqa: N818 - control flow, like StopIteration
    """The run is over for this node: its parent finished, or the orchestrator said stop or leave."""
