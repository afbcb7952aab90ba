"""Errors of the orchestrator.

* OrchestratorError: every error that the orchestrator raises on purpose; the command line prints its text only

  * ScenarioError: the scenario or an override is wrong; lists every problem with file, line and YAML path
  * PlanError: the scenario is valid by itself but cannot be planned, e.g. too few samples, or no data set
  * InventoryError: the facts about the hosts cannot be read, or contradict one another
  * PlaceError: a run or a file cannot be written to the given place; raised before anything is made
  * HostError: this host lacks something the run needs; the text says what to install or allow
  * ChildError: a helper process refused a request, or ended
  * DriverError: a node could not be started, sent a message or stopped

    * LostError: its host is unreachable, or was lost
  * FabricError: a link could not be made, changed or read back
  * RunError: the run cannot continue

    * MistakeError: a command to a running run makes no sense
  * ArchiveError: an archive of runs is damaged, or unsafe to unpack; raised before anything is written
  * RecordError: a run directory is missing, damaged or of another version
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_OURS = tuple(f"{_ROOT}/{package}/" for package in ("edgebed", "netem", "node", "orchestrator"))


class OrchestratorError(Exception):
    """The root of the tree. The text says what is wrong, where, and what to do."""

    def _render_traceback_(self) -> list[str]:
        """The traceback in IPython: the lines of the user's program, without IPython's and ours."""
        frames = []
        for frame in traceback.extract_tb(self.__traceback__):
            if frame.filename.startswith(_OURS):
                break
            if "/IPython/" not in frame.filename:
                frames.append(frame)
        lines = "".join(traceback.format_list(frames))
        trace = re.sub(r'File "[^"]*/ipykernel_[^"]*"', "Cell", lines)
        return [*trace.splitlines(), f"{type(self).__name__}: {self}"]


@dataclass(frozen=True)
class Problem:
    """One mistake in a scenario.

    ``where`` is ``file:line`` or the ``--set`` with the mistake. ``path`` is the YAML path (``links.edge-cloud.loss``).
    """

    where: str
    path: str
    message: str

    def __str__(self) -> str:
        parts = (self.where, self.path, self.message)
        return ": ".join(filter(None, parts))


class ScenarioError(OrchestratorError):
    """The scenario is wrong. ``problems`` holds every problem found; the text has one line for each."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class PlanError(OrchestratorError):
    """The scenario cannot be planned on this data. ``path`` is the YAML path of the setting that asks too much."""

    def __init__(self, path: tuple[str | int, ...], message: str) -> None:
        dotted = ".".join(str(part) for part in path)
        super().__init__(f"{dotted}: {message}")
        self.path = path
        self.message = message


class InventoryError(OrchestratorError):
    """The facts about the hosts cannot be read, or contradict one another."""


class PlaceError(OrchestratorError):
    """A run or a file cannot be written to the given place."""


class HostError(OrchestratorError):
    """This host lacks something the run needs.

    ``what`` names it, ``remedy`` says what to do, and ``commands`` are the command lines for that, if any.
    """

    def __init__(
        self,
        what: str,
        remedy: str = "",
        commands: Sequence[str] = (),
    ) -> None:
        text = what
        if remedy:
            text += f": {remedy}"
            if commands:
                quoted = [f"`{command}`" for command in commands]
                text += f" ({', '.join(quoted)})"
        super().__init__(text)
        self.what = what
        self.remedy = remedy
        self.commands = tuple(commands)


class EngineError(HostError):
    """A link engine does not work on this host; another engine may."""


class ChildError(OrchestratorError):
    """A helper process refused a request, or ended."""


class DriverError(OrchestratorError):
    """A node could not be started, sent a message or stopped."""


class LostError(DriverError):
    """The host of a node is unreachable, or was lost."""


class FabricError(OrchestratorError):
    """A link could not be made, changed or read back."""


class RunError(OrchestratorError):
    """The run cannot continue."""


class MistakeError(RunError):
    """A command to a running run makes no sense."""


class ArchiveError(OrchestratorError):
    """An archive of runs is damaged, or unsafe to unpack."""


class RecordError(OrchestratorError):
    """A run directory is missing, damaged or of another version."""
