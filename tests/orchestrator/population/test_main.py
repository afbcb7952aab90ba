from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.population.__main__ import main
from tests.texts import containing

SHIPPED = Path(__file__).parents[3] / "scenarios" / "traces" / "availability.csv"


def test_the_shipped_trace_is_what_its_program_makes(capsys: pytest.CaptureFixture[str]) -> None:
    first = SHIPPED.read_text().splitlines()[0]
    words = first.partition("orchestrator.population ")[2].split()
    assert main(words) == 0
    assert capsys.readouterr().out == SHIPPED.read_text()


def test_devices_of_the_model_that_never_come_are_in_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["day-and-night", "--devices", "200", "--days", "3"]) == 0
    printed = capsys.readouterr()
    devices = [line.partition(",")[0] for line in printed.out.splitlines() if line[0].isdecimal()]
    assert set(devices) == {str(device) for device in range(200)}
    assert printed.err == containing(
        "note: 16 of 200 devices", "never available"
    )  # 10% have no Wi-Fi where they charge
