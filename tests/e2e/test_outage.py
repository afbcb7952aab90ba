"""A link that is silent for a while: packets wait, and none passes."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from orchestrator.results.history import History
from orchestrator.results.traffic import volumes
from tests.e2e.harness import up

pytestmark = pytest.mark.e2e

# The first 20 ms carry a packet each, then nothing passes until 3 s. A model of 60 kB takes 42 packets of 1448 bytes.
PERIOD = 3.0  # s
TRACE = "".join(f"{ms}\n" for ms in (*range(1, 21), round(PERIOD * 1000)))
SCENARIO = """
algorithm: {name: fedavg, rounds: 1, learning_rate: 0.1}
data: {dataset: digits, samples_per_client: 100, evaluate_samples: 100}
model: mlp
topology: {devices: 1}
links: {device-cloud: {schedule: {trace: TRACE}}}
gathering: {deadline: 1h}
timeouts: {lost_after: 10min, lease: 10min}
probe: {before: false}
"""


@pytest.mark.parametrize("driver", ["sim", "namespaces"])
def test_nothing_crosses_a_silent_link(tmp_path: Path, driver: str) -> None:
    trace = tmp_path / "outage.txt"
    trace.write_text(TRACE)
    result = up(tmp_path, SCENARIO.replace("TRACE", str(trace)), "--driver", driver, timeout=300)
    assert result.summary["ended"] == "rounds", result.errors
    with closing(History.open(Path(result.summary["run"]))) as history:
        began = history.training_began or 0.0
        took = history.training_ended - began
        down, up_ = (volumes.readings(history, *ends) for ends in (("cloud", "device-0"), ("device-0", "cloud")))
    # Two windows of 20 packets and one of another are needed for each way, and the second way waits for the first.
    assert 2 * PERIOD < took < 20 * PERIOD
    for readings in (down, up_):
        silent = [(t - began, packets) for t, _, packets, _ in readings if 0.3 < (t - began) % PERIOD < PERIOD - 0.2]
        pairs = [(one, other) for one, other in pairwise(silent) if one[0] // PERIOD == other[0] // PERIOD]
        assert pairs or driver == "sim"  # whose record has no reading where nothing changes
        for (t, packets), (later, more) in pairs:
            assert packets == more, f"{more - packets} packets passed between {t:.2f} and {later:.2f} s"
