from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from netem.profile import LinkProfile
from tests.lab.inside.stage import Stage


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A cloud and two devices, for all tests."""
    with Stage(2, tmp_path_factory.mktemp("stage")) as stage:
        for node in stage.plan.nodes:
            stage.attach(node.name)
        yield stage


@pytest.fixture
def stage(shared: Stage) -> Stage:
    """The same, with every link unimpaired, uncut and empty."""
    for row in shared.do(shared.fabric.counters()).links:
        ends = str(row["source"]), str(row["target"])
        if int(row["offered"]) > sum(int(row[key]) for key in ("delivered", "lost", "cut_dropped")):
            shared.do(shared.fabric.cut(*ends))  # something is still on its way
        shared.do(shared.fabric.restore(*ends))
        if shared.profile(*ends) != LinkProfile():
            shared.do(shared.fabric.change(*ends, LinkProfile()))
    return shared


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Callable[[str, object, object], None]:
    """Writes down a figure: what was asked for and what was measured. The summary shows them."""

    def write(what: str, asked: object, measured: object) -> None:
        request.node.user_properties.append(("figure", [what, str(asked), str(measured)]))

    return write
