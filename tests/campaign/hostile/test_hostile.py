"""Tests of the hostile campaign: some inputs for each entry point, that inputs get far, and bugs that it must find."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import strategies as st

from tests.campaign.hostile import data, folders, nodes, watch
from tests.campaign.hostile.__main__ import told
from tests.campaign.hostile.entries import ENTRIES, Entry
from tests.campaign.hostile.places import place, sandbox
from tests.campaign.hostile.search import search

pytestmark = pytest.mark.slow

INPUTS = 20


@pytest.fixture(scope="module")
def runs() -> Iterator[Path]:
    with sandbox() as found:
        yield found


@pytest.mark.parametrize("name", ENTRIES)
def test_hostile_input(name: str, runs: Path) -> None:
    found = search(ENTRIES[name], runs, 1, INPUTS)
    assert found is None, told(found)


@pytest.mark.parametrize("words", [each for each in folders.COMMANDS if each[0] not in ("GET", "resume")], ids=" ".join)
def test_commands_read_a_whole_run(words: list[str], runs: Path) -> None:
    with place(runs, "run") as folder:
        assert watch.call(*(word.format(place=folder) for word in words), "--runs", str(runs))


@pytest.mark.parametrize("scenario", [data.SCENARIO, data.LARGER, data.PEOPLE])
def test_scenarios_are_planned_before_they_are_changed(scenario: dict[str, object], runs: Path) -> None:
    with place(runs, "empty") as folder:
        (folder / "s.yaml").write_text(yaml.safe_dump(scenario))
        assert watch.call("plan", str(folder / "s.yaml"), "--json")


def test_what_a_terminal_obeys_is_found_and_made_small(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.layout.visible", str)
    found = search(ENTRIES["traces of others"], runs, 1, 500)
    assert found is not None
    assert "on a terminal" in str(found)
    assert len(told(found)) < 3000


def test_a_program_that_is_started_is_found(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scenarios.traces.convert.plain_data", pickle.loads)
    monkeypatch.setattr(data, "EVIL", [b"cos\ngetpid\n."])
    found = search(ENTRIES["traces of others"], runs, 1, 500)
    assert "pickle.find_class" in str(found)


def test_a_reader_that_waits_is_found(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.runtime.checkpoint.read_untrusted", lambda path, most: path.read_bytes())
    monkeypatch.setattr(watch, "SECONDS", 0.2)
    found = search(Entry(st.just("pipe"), nodes.feed_checkpoint), runs, 1, 1)
    assert "not over after" in str(found)


def test_a_file_that_is_changed_elsewhere_is_found(tmp_path: Path) -> None:
    for name in ("place", "beside"):
        (tmp_path / name).mkdir()
    place, beside = tmp_path / "place", tmp_path / "beside"
    with watch.watched(place, beside):
        (place / "x").write_text("own")
    (place / "link").symlink_to(beside)
    with pytest.raises(watch.BrokenError, match=r"open .*/beside/x"), watch.watched(place, beside):
        (place / "link" / "x").write_text("of another run")
