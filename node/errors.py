"""The errors of a node. Finished is not an error: it unwinds a role when its run is over."""

from __future__ import annotations


class NodeError(Exception):
    """Any error of a node; the message says what, where and what to do."""


class AssignmentError(NodeError):
    """An assignment cannot be used; the message names the field."""


class WireError(NodeError):
    """Bytes are not a message, or a message exceeds a limit: the fault of their sender."""


class TransportError(NodeError):
    """This node cannot use its own data plane."""


class ControlError(NodeError):
    """The orchestrator cannot be reached, has fallen silent, or another process claims a node's name."""


class CheckpointError(NodeError):
    """A checkpoint cannot be read; the message names the file."""


class Terminated(NodeError):  # noqa: N818 - what happened to the node
    """SIGTERM arrived. The orchestrator does not send it, so the node ends as if it had crashed."""


class PluginError(NodeError):
    """A user's plug-in cannot be used; the message names its file and line."""


class ConfinementError(NodeError):
    """Nodes cannot run in a private file tree, with only the rights they need; the message names the file."""


class Finished(Exception):  # noqa: N818 - control flow, like StopIteration
    """The run is over for this node: its parent finished, or the orchestrator said stop or leave."""
