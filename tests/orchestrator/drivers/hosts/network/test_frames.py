from __future__ import annotations

from orchestrator.drivers.hosts.network.frames import Frames
from orchestrator.fabric.base import Counted
from orchestrator.record.events.network import FramesReading

HOMES = {"cloud": "a", "edge-0": "b", "edge-1": "b", "device-0": "c"}


def upward(sent: int, arrived: int) -> dict[str, Counted]:
    """Frames from the nodes of b to the cloud on a."""
    return {
        "a": Counted(
            [], sent_to={"edge-0": 0, "edge-1": 0}, came_from={"edge-0": arrived - arrived // 2, "edge-1": arrived // 2}
        ),
        "b": Counted([], sent_to={"cloud": sent}, came_from={"cloud": 0}),
    }


def after(*readings: tuple[float, dict[str, Counted]]) -> tuple[FramesReading, ...]:
    frames = Frames(HOMES)
    for t, counted in readings:
        frames.read(t, counted)
    return frames.readings()


def test_frames_on_their_way_are_not_missing() -> None:
    assert after((0.0, upward(10, 10)), (1.0, upward(500, 480)), (2.0, upward(900, 500))) == (
        FramesReading("b", "a", 890, 0),
    )


def test_what_has_not_arrived_after_a_second_is_missing() -> None:
    assert after((0.0, upward(0, 0)), (1.0, upward(500, 400)), (2.0, upward(600, 450))) == (
        FramesReading("b", "a", 600, 50),
    )
    quiet = (3.0, upward(600, 450))
    assert after((0.0, upward(0, 0)), (1.0, upward(500, 400)), (2.0, upward(600, 450)), quiet) == (
        FramesReading("b", "a", 600, 150),
    )


def test_two_readings_at_once_show_nothing() -> None:
    assert after((0.0, upward(0, 0)), (1.0, upward(500, 500)), (1.01, upward(900, 500)), (1.02, upward(900, 510))) == (
        FramesReading("b", "a", 900, 0),
    )


def test_an_engine_that_restarted_counts_from_there() -> None:
    readings = [(0.0, upward(0, 0)), (1.0, upward(500, 500)), (2.0, upward(700, 20)), (3.0, upward(800, 120))]
    assert after(*readings, (4.0, upward(800, 120))) == (FramesReading("b", "a", 600, 0),)


def test_what_is_sent_to_a_host_that_is_away_is_not_missing() -> None:
    alone = {"b": upward(900, 0)["b"]}
    assert after((0.0, upward(0, 0)), (1.0, upward(500, 490)), (2.0, alone), (3.0, upward(1900, 490))) == (
        FramesReading("b", "a", 500, 0),
    )


def test_an_engine_that_does_not_count_shows_nothing() -> None:
    silent = {"a": Counted([]), "b": upward(900, 0)["b"]}
    assert after((0.0, silent), (1.0, silent)) == ()
