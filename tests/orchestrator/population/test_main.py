from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from orchestrator.population.__main__ import main

SHIPPED = Path(__file__).parents[3] / "scenarios" / "traces" / "availability.csv"


def test_the_shipped_trace_is_what_its_program_makes(capsys: pytest.CaptureFixture[str]) -> None:
    first = SHIPPED.read_text().splitlines()[0]
    words = first.partition("orchestrator.population ")[2].split()
    assert main(words) == 0
    assert capsys.readouterr().out == SHIPPED.read_text()


def test_a_trace_of_others_is_printed_as_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "client_behave_trace"
    trace.write_bytes(pickle.dumps({7: {"active": [0], "inactive": [60], "finish_time": 100}}))
    assert main(["fedscale", str(trace)]) == 0
    assert capsys.readouterr().out == "# from client_behave_trace of FedScale\ndevice,from,until\n7,0,60\n"


def test_a_file_that_cannot_be_read_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "x"
    assert main(["flash", str(trace)]) == 2
    trace.write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    assert main(["fedscale", str(trace)]) == 2
    missing, hostile = capsys.readouterr().err.splitlines()
    assert "No such file" in missing
    assert hostile == (f"error: {trace}: asks for GLOBAL at byte 0: only plain data is read, no objects and no calls")
