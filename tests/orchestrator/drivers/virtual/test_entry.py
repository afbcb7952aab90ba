from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.drivers.virtual import entry
from orchestrator.drivers.virtual.kernel import BUILD
from orchestrator.errors import HostError, RunError
from tests.orchestrator.drivers.virtual.test_guest import of_programs

NO_KERNEL = HostError("no kernel", "build it", [BUILD])
NO_MEMORY = HostError("no memory")


def refuse() -> Path:
    raise NO_KERNEL


def test_everything_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "needed_kernel", refuse)
    monkeypatch.setattr(entry, "missing_memory", lambda plan: NO_MEMORY)
    assert entry.missing(of_programs()) == [NO_KERNEL, NO_MEMORY]
    assert entry.missing() == [NO_KERNEL]


def test_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "needed_kernel", lambda: Path("/cache/linux"))
    monkeypatch.setattr(entry, "missing_memory", lambda plan: None)
    assert entry.missing(of_programs()) == []


@pytest.mark.parametrize(("kernel", "ok", "commands"), [(Path("/cache/linux"), True, ()), (None, None, (BUILD,))])
def test_doctor_shows_the_kernel_or_its_remedy(
    kernel: Path | None, ok: bool | None, commands: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry, "built_kernel", lambda: kernel)
    (trial,) = entry.trials()
    assert (trial.ok, trial.commands) == (ok, commands)


def test_a_node_without_a_guest_cannot_be_entered() -> None:
    with pytest.raises(RunError, match="guest of none-1"):
        entry.enter("none-1", "cloud", {}, terminal=False)
