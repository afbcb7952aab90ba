"""Plain data is read as `pickle` reads it; whatever else a pickle asks for is refused, and nothing of it is run."""

from __future__ import annotations

import datetime
import os
import pickle
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.population.unpickling import UnpicklingError, plain_data

TRACE = {
    3834: {
        "duration": 211625,
        "inactive": [65881, 133574, 208292],
        "finish_time": 518400,
        "active": [12788, 100044, 188992],
        "model": "CPH1801",
    },
    "x": {
        "computation": 162.0,
        "communication": 5648.1,
        "none": None,
        "flags": (True, False),
        "big": 2**40,
        "minus": -1,
    },
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", [TRACE, {}, [], (), 5, -(2**31), 1.5, "é", [[1], [2, [3]]], {"a": (1, 2, 3, 4)}])
def test_plain_data_is_read_as_pickle_reads_it(value: Any, protocol: int) -> None:
    assert plain_data(pickle.dumps(value, protocol)) == value


def test_what_a_pickle_shares_is_shared() -> None:
    inner = [1]
    found = plain_data(pickle.dumps([inner, inner]))
    assert found[0] is found[1]


class Harmful:
    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return os.system, ("touch harmed",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "value",
    [
        Harmful(),
        [1, {"a": Harmful()}],
        OrderedDict(a=1),
        datetime.date(2026, 1, 1),
        np.float64(1),
        {1, 2},
        b"x",
        os.system,
    ],
)
def test_objects_and_calls_are_refused(
    value: Any, protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnpicklingError):
        plain_data(pickle.dumps(value, protocol))
    assert not (tmp_path / "harmed").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b".",  # nothing on the stack
        b"hello",
        b"cos\nsystem\n(S'touch harmed'\ntR.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x01x\x85R.",
        b"(i__main__\nX\n.",  # INST
        b"}(K\x01K\x02e.",  # elements into a dictionary
        b"](K\x01K\x02u.",  # items into a list
        b"}(K\x01u.",  # a key without a value
        b"}(]K\x01u.",  # a list as a key
        b"(q\x00.",  # the mark as a value
        b"e.",
        b"h\x05.",  # from a memory that holds nothing
        b"K\x01K\x02.",  # two values
        b"\x8a\x09" + b"\xff" * 8 + b"\x7f.",  # a number of 71 bits
        b"\x8b" + struct.pack("<i", 2**31 - 1) + b"\x01.",  # a number of 2 GiB that is not there
        b"X" + struct.pack("<I", 2**32 - 1) + b"x.",  # a text of 4 GiB that is not there
        b"I" + b"9" * 10_000 + b"\n.",
        pickle.dumps(TRACE)[:-1],
        pickle.dumps(TRACE)[:40],
        b"P1\n.",  # PERSID
        b"\x82\x01.",  # EXT1
    ],
)
def test_hostile_data_is_refused(data: bytes) -> None:
    with pytest.raises(UnpicklingError):
        plain_data(data)


def test_a_list_that_holds_itself_is_no_trap() -> None:
    found = plain_data(b"]q\x00h\x00a.")
    assert found[0] is found
