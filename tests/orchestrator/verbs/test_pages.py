"""The documentation that the package contains."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.errors import PlaceError
from orchestrator.verbs.pages import find, pages, title


def test_every_page_has_a_topic() -> None:
    listed = CliRunner().invoke(cli, ["docs"]).output
    assert all(name in listed and title(page) in listed for name, page in pages().items())
    assert {"hosts", "scenario", "reference/scenario"} <= pages().keys()


def test_a_topic_prints_its_page() -> None:
    printed = CliRunner().invoke(cli, ["docs", "hosts"])
    assert printed.output == find("hosts").read_text()


def test_a_page_has_its_whole_name_too() -> None:
    assert find("guides/hosts") == find("hosts")
    assert find("reference/scenario") != find("scenario")


@pytest.mark.parametrize(
    ("topic", "hint"),
    [("hots", "no page about 'hots'"), ("../README", "no page about '../README'; `edgebed docs`")],
)
def test_an_unknown_topic(topic: str, hint: str) -> None:
    with pytest.raises(PlaceError, match=hint.replace("?", r"\?").replace(".", r"\.")):
        find(topic)
