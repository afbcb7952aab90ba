"""Files with the settings of single nodes: what is read, converted and refused."""

from __future__ import annotations

import pytest

from orchestrator.scenario.population.client_settings import HARDWARE_KEYS, ClientSettings
from orchestrator.scenario.schema import HardwareSpec
from tests.texts import containing


def test_a_column_may_have_any_key_of_hardware() -> None:
    assert list(HARDWARE_KEYS) == list(HardwareSpec.key_types())


@pytest.mark.parametrize(
    "text",
    [
        "node,speed,memory_gib,rate_up_mbit,latency,loss_%\na,0.5,2,5,30ms,1\nb,,,,20ms,0\n",
        "\ufeffnode;speed;memory [gib];rate_up (mbit);latency;loss\r\na;0.5;2;5;30ms;1%\r\nb;;;;20ms;0%\r\n",
        "Node\tSpeed\tMemory\tRate_up\tLatency_ms\tLoss_%\n\n# x\na\t5e-1\t2gib\t5mbit\t30\t1\nb\t\t\t\t20\t0\n",
        'device,speed,memory,rate_up,latency_s,loss_%\n"a",.50,2gib,5mbit,30ms,1%\nb,,,,20ms,0%\n',
    ],
    ids=["units in the header", "byte order mark, semicolons, CRLF", "tabs, comments", "units in cells, quotes"],
)
def test_files_as_programs_write_them(text: str) -> None:
    settings = ClientSettings.read(text, "c.csv")
    first, second = settings.rows
    assert settings.named
    assert (first.node, first.hardware) == ("a", {"speed": 0.5, "memory": "2gib"})
    assert first.links == {"up": {"rate": "5mbit"}, "": {"latency": "30ms", "loss": "1%"}}
    assert (second.node, second.hardware, second.links) == ("b", {}, {"": {"latency": "20ms", "loss": "0%"}})


def test_a_key_with_an_underscore_has_directions() -> None:
    settings = ClientSettings.read("drop_above,drop_above_up\n1400,1200\n", "c.csv")
    assert settings.rows[0].links == {"": {"drop_above": "1400"}, "up": {"drop_above": "1200"}}


def test_rows_without_names_are_in_order() -> None:
    settings = ClientSettings.read("class,profile_down\nphone,lte\nraspberry-pi-4,\n,\n", "c.csv")
    assert not settings.named
    assert [row.hardware for row in settings.rows] == [{"class": "phone"}, {"class": "raspberry-pi-4"}]
    assert settings.rows[0].links == {"down": {"profile": "lte"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "c.csv: is empty"),
        ("node\na\n", containing("c.csv:1: no column but node", "rate_mbit")),
        ("node,speed\n", containing("c.csv: has no rows under")),
        ("node,spead\na,1\n", containing("c.csv:1: 'spead' is no column")),
        ("node,speed_up\na,1\n", containing("c.csv:1: 'speed_up' is no column")),
        ("# x\nnode,,speed\na,1,1\n", containing("c.csv:2: '' is no column", "known: node, class")),
        ("node,rate_mbit,rate_kbit\na,1,1\n", containing("c.csv:1: rate_mbit and rate_kbit", "column")),
        ("node,speed\na,1\n,2\n", containing("c.csv:3: has no name", "node")),
        ("node,speed\na,1\n\na,1\n", containing("c.csv:4: a has a", "c.csv:2")),
        ("node,speed\na\n", "c.csv:2: has 1 cells for 2 columns"),
        (
            "class,speed\nphone,\n\n,\nhost,\n",
            containing("c.csv:4: has no settings", "client's"),
        ),
    ],
)
def test_mistakes_are_reported_with_their_line(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        ClientSettings.read(text, "c.csv")
    assert str(caught.value) == message
