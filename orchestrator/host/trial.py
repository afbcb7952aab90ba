"""The result of trying what this host can do."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.errors import HostError


@dataclass(frozen=True)
class Trial:
    """The result of one test. ``ok`` is True or False, or None if an optional thing is missing. ``used_by`` names the
    parts that need it. ``remedy`` says what to do, ``commands`` are the command lines for that."""

    name: str
    used_by: str
    ok: bool | None
    detail: str
    remedy: str = ""
    commands: tuple[str, ...] = ()

    @classmethod
    def missing(
        cls,
        name: str,
        used_by: str,
        error: HostError,
        *,
        ok: bool | None = False,
    ) -> Trial:
        """The finding that an error describes."""
        return cls(name, used_by, ok, error.what, error.remedy, error.commands)
