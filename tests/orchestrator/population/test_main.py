from __future__ import annotations

import os
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
    assert capsys.readouterr().out == "# from client_behave_trace of FedScale\ndevice,from,until,period\n7,0,61,100\n"


def test_devices_of_the_model_that_never_come_are_in_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["day-and-night", "--devices", "200", "--days", "3"]) == 0
    printed = capsys.readouterr()
    devices = [line.partition(",")[0] for line in printed.out.splitlines() if line[0].isdecimal()]
    assert set(devices) == {str(device) for device in range(200)}
    assert printed.err == "note: 16 of 200 devices are never available\n"  # 10% have no Wi-Fi where they charge


def test_a_file_that_cannot_be_read_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "x"
    assert main(["flash", str(trace)]) == 2
    trace.write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    assert main(["fedscale", str(trace)]) == 2
    missing, hostile = capsys.readouterr().err.splitlines()
    assert "No such file" in missing
    assert hostile == (f"error: {trace}: asks for GLOBAL at byte 0: only plain data is read, no objects and no calls")


def test_what_is_no_file_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        assert main(["fedscale", str(path)]) == 2
        assert capsys.readouterr().err == f"error: {path}: is not a regular file\n"
