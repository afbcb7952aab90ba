"""Asynchronous algorithms in a population: who takes part when, and how stale the answers are."""

from __future__ import annotations

import math
from collections import Counter
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from edgebed.baselines import fedbuff
from node.assignment import Timeouts
from orchestrator.cli.main import cli
from orchestrator.record.rows import Event
from tests.orchestrator.drivers.sim.harness import Simulated, simulate

SCENARIO = """\
name: asynchronous
seed: 3
plugins: [edgebed.baselines.fedbuff, edgebed.baselines.fedasync]
algorithm: {name: fedbuff, buffer: 2, rounds: 6, learning_rate: 0.1, batch_size: 10}
data: {dataset: digits, partition: {dirichlet: 0.5}, samples_per_client: 20}
model: mlp
topology: {population: 500, selected: 4}
links: {device-cloud: {latency: 10ms}}
"""
SLOW = "clients: {speed: {uniform: {low: 0.00005, high: 0.0001}}}\n"  # three to six seconds for a client's samples
LOST_AFTER = Timeouts().lost_after


def run(folder: Path, *changes: tuple[str, str], more: str = "", stays: str = "") -> Simulated:
    scenario = SCENARIO + more
    for old, new in changes:
        assert old in scenario
        scenario = scenario.replace(old, new)
    (folder / "stays.csv").write_text("device,from,until\n" + stays)
    return simulate(folder, scenario)


def parts(done: Simulated) -> list[Event]:
    return done.history().events("client")


def outcomes(done: Simulated) -> Counter[str]:
    return Counter(each.data["outcome"] for each in parts(done))


def used(done: Simulated) -> dict[int, list[int]]:
    """The staleness of each version's updates, in the order in which their clients began."""
    found: dict[int, list[int]] = {}
    for each in sorted(parts(done), key=lambda each: each.data["began"]):
        if each.data["outcome"] == "counted":
            assert each.round is not None
            found.setdefault(each.round + each.data["staleness"], []).append(each.data["staleness"])
    return dict(sorted(found.items()))


def span(part: Event) -> tuple[float, float]:
    """When a part began and ended. The record rounds to microseconds, so the end is taken ten of them earlier."""
    return part.data["began"], part.data["began"] + part.data["seconds"] - 1e-5


def most_at_a_time(done: Simulated) -> int:
    spans = [span(each) for each in parts(done)]
    changes = sorted([(began, 1) for began, _ in spans] + [(ended, -1) for _, ended in spans])
    return max(accumulate(change for _, change in changes))


@pytest.fixture(scope="module")
def buffered(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return run(tmp_path_factory.mktemp("buffered"))


def test_staleness_worked_example(buffered: Simulated) -> None:
    """Four equal clients, two updates in a version. Two make version 1, and the others, who began with them, version 2.
    At that instant two others have got version 1 and are one version late again, and so on."""
    assert buffered.code == 0, buffered.errors
    assert used(buffered) == {1: [0, 0], 2: [1, 1], 3: [1, 1], 4: [1, 1], 5: [1, 1], 6: [1, 1]}
    metrics = buffered.history().metrics("staleness", "updates")
    assert [metric.value for metric in metrics] == [0, 1, 1, 1, 1, 1]


def test_who_gets_which_version_as_in_the_paper(tmp_path: Path) -> None:
    """Algorithm 1 by hand, from the times of the record: each answer goes into the buffer, the second one makes a
    version, and then another client begins from the newest one."""
    done = run(tmp_path, ("rounds: 6", "rounds: 15"), more=SLOW)
    assert done.code == 0, done.errors
    by_begin = sorted(parts(done), key=lambda each: each.data["began"])
    counted = [each for each in by_begin if each.data["outcome"] == "counted"]
    assert [each.round for each in by_begin[:4]] == [1] * 4
    version, buffer, others = 1, 0, iter(by_begin[4:])
    answers = sorted(counted, key=lambda each: each.data["began"] + each.data["seconds"])
    assert len(answers) == 30
    for answer in answers:
        assert answer.data["staleness"] == version - (answer.round or 0)
        buffer += 1
        if buffer == 2:
            version, buffer = version + 1, 0
        if version <= 15:  # nobody gets the last version
            other = next(others)
            assert other.round == version
            assert other.data["began"] == pytest.approx(answer.data["began"] + answer.data["seconds"], abs=1e-3)
    assert next(others, None) is None
    assert {each.data["staleness"] for each in answers} >= {0, 1, 2}


def test_as_many_clients_as_asked_take_part_at_a_time(buffered: Simulated) -> None:
    found = parts(buffered)
    assert most_at_a_time(buffered) == 4
    assert outcomes(buffered) == {"counted": 12, "unfinished": 2}  # the others are not replaced after the last version
    begins = sorted(each.data["began"] for each in found)
    answers = sorted(each.data["began"] + each.data["seconds"] for each in found if each.data["outcome"] == "counted")
    assert begins[:4] == [0.0] * 4
    # As soon as one has answered, another one begins: a version takes the cloud less than two milliseconds.
    assert begins[4:] == pytest.approx(answers[:10], abs=2e-3)


def test_the_record_has_the_loss_of_each_version_and_the_summary_who_took_part(buffered: Simulated) -> None:
    losses = {each.data["client"]: each.data["loss"] for each in parts(buffered) if each.data["staleness"] == 0}
    first = next(metric for metric in buffered.history().metrics("loss", "train") if metric.node == "population")
    assert first.round == 1
    assert first.value == pytest.approx(sum(losses.values()) / 2)
    told = buffered.summary["population"]
    assert (told["asynchronous"], told["selected"], told["asked"]) == (True, 4, 14)
    assert told["seen"] == len({each.data["client"] for each in parts(buffered) if each.data["outcome"] == "counted"})
    assert buffered.summary["messages"]["update"] == 12


def test_updates_one_by_one_worked_example(tmp_path: Path) -> None:
    """Two equal clients in turns: each is overtaken once by the other, but for the very first."""
    done = run(tmp_path, ("name: fedbuff, buffer: 2", "name: fedasync"), ("selected: 4", "selected: 2"))
    assert done.code == 0, done.errors
    assert used(done) == {1: [0], 2: [1], 3: [1], 4: [1], 5: [1], 6: [1]}


def test_an_equal_seed_gives_an_equal_record(tmp_path: Path, buffered: Simulated) -> None:
    assert simulate(tmp_path, SCENARIO, "--workers", "2").record() == buffered.record()


def losses(done: Simulated) -> list[float]:
    return [metric.value for metric in done.history().metrics("loss", "global")]


def selected(done: Simulated) -> list[str]:
    return [each.data["client"] for each in parts(done) if each.data["outcome"] == "counted"]


@pytest.mark.parametrize(
    ("algorithm", "tolerance"),
    [("fedasync, mixing: 1.0, proximal: 0.0", 0.0), ("fedbuff, buffer: 1", 1e-5)],  # w - (w - y) is y but for rounding
)
def test_one_at_a_time_is_a_sequential_loop(tmp_path: Path, algorithm: str, tolerance: float) -> None:
    """So is FedAvg with one client in each round: it trains where the last one has ended. Both select the same."""
    one = ("selected: 4", "selected: 1")
    loop, done = (run(tmp_path, ("fedbuff, buffer: 2", each), one, more=SLOW) for each in ("fedavg", algorithm))
    assert (loop.code, done.code) == (0, 0), done.errors
    assert selected(done) == selected(loop)
    assert len(losses(loop)) == 6
    assert losses(done) == pytest.approx(losses(loop), rel=tolerance, abs=0)
    assert outcomes(done) == {"counted": 6}


def test_a_client_that_takes_part_is_not_selected_again(tmp_path: Path) -> None:
    """Three of four clients are busy or in the buffer at any time."""
    done = run(
        tmp_path, ("population: 500, selected: 4", "population: 4, selected: 3"), ("rounds: 6", "rounds: 20"), more=SLOW
    )
    assert done.code == 0, done.errors
    assert most_at_a_time(done) == 3
    for client in {each.data["client"] for each in parts(done)}:
        own = sorted(span(each) for each in parts(done) if each.data["client"] == client)
        assert all(ended < began for (_, ended), (began, _) in pairwise(own))
    for each in done.history().events("updates"):
        assert len(each.data["staleness"]) == 2  # of two different clients


def test_a_client_that_goes_away_makes_room(tmp_path: Path) -> None:
    """The only client goes away after half a second, and the cloud notices it after the client has been silent for 8 s.
    It looks again each minute, and sees the client at 128.5 s."""
    only = ("population: 500, selected: 4", "population: 1, selected: 1")
    more = SLOW.replace("clients: {", "clients: {availability: {trace: stays.csv}, ")
    done = run(tmp_path, only, ("rounds: 6", "rounds: 1"), more=more, stays="a,0,0.5\na,90,600\n")
    assert done.code == 0, done.errors
    first, second = parts(done)[:2]
    assert (first.data["outcome"], first.data["began"], first.data["seconds"]) == ("away", 0.0, 0.5)
    assert (first.round, first.data["staleness"]) == (1, None)
    assert (second.data["outcome"], second.round, second.data["staleness"]) == ("counted", 1, 0)
    assert second.data["began"] == pytest.approx(128.5, abs=1e-3)


def test_others_take_the_places_of_clients_that_go_away(tmp_path: Path) -> None:
    stays = "a,0,0.5\na,90,600\nb,0,600\n"
    more = SLOW.replace("clients: {", "clients: {availability: {trace: stays.csv}, ")
    done = run(tmp_path, ("seed: 3", "seed: 4"), more=more, stays=stays)
    assert done.code == 0, done.errors
    gone = [each.data for each in parts(done) if each.data["outcome"] == "away"]
    assert 0 < len(gone) < 4
    assert {each["seconds"] for each in gone} == {0.5}
    begins = [each.data["began"] for each in parts(done)]
    assert sum(abs(began - 0.5 - LOST_AFTER) < 1e-3 for began in begins) == len(gone)
    assert outcomes(done)["counted"] == 12


def test_an_answer_that_is_not_finite_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken: set[str] = set()

    def update(self: Any, x: Any, trained: Any) -> Any:
        if len(broken) < 4:
            broken.add(self.name)
        return {name: values * (math.nan if self.name in broken else 1) for name, values in x.items()}

    monkeypatch.setattr(fedbuff.Client, "update", update)
    done = run(tmp_path)
    assert done.code == 3, done.errors  # the check of values that are not finite fails
    unused = {each.data["client"] for each in parts(done) if each.data["outcome"] == "unused"}
    assert unused == broken
    assert outcomes(done)["counted"] == 12
    left_out = [each for each in done.history().events("not_finite") if each.node == "cloud"]
    assert {each.data["peer"] for each in left_out} == broken


def test_the_cloud_waits_while_no_one_is_online(tmp_path: Path) -> None:
    done = run(tmp_path, more="clients: {availability: {trace: stays.csv}}\n", stays="a,3600,7200\n")
    assert done.code == 0, done.errors
    assert min(each.data["began"] for each in parts(done)) == 3600.0


def test_a_buffer_that_no_one_can_fill_ends_the_run(tmp_path: Path) -> None:
    """Two of four clients do not come in the first week, and the buffer waits for all four."""
    four = ("population: 500, selected: 4", "population: 4, selected: 4")
    more, stays = "clients: {availability: {trace: stays.csv}}\n", "a,0,1000000\nb,999999,1000000\n"
    done = run(tmp_path, four, ("seed: 3", "seed: 4"), ("buffer: 2", "buffer: 10"), more=more, stays=stays)
    assert done.code == 1
    assert "7 days no client was available" in done.summary["error"]
    assert "see clients.availability, or let fewer answers" in done.summary["error"]


def test_a_run_that_is_continued_selects_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def failing(tau: int, params: Any) -> float:
        calls.append(tau)
        if len(calls) == 5:  # two for each version
            raise ArithmeticError("an odd number")
        return scaling(tau, params)

    scaling = fedbuff.scaling
    with monkeypatch.context() as broken:
        broken.setattr(fedbuff, "scaling", failing)
        failed = run(tmp_path)
    assert (failed.code, failed.summary["rounds"]) == (1, 2)
    before = parts(failed)
    assert Counter(each.data["outcome"] for each in before) == {"counted": 4, "unfinished": 4 - 2, "unused": 2}
    CliRunner().invoke(cli, ["resume", failed.directory.name, "--runs", str(tmp_path / "runs"), "--json"])
    assert failed.history().rounds_done() == 6
    after = parts(failed)[len(before) :]
    first = [each for each in after if each.round == 3][:4]
    assert len({each.data["began"] for each in first}) == 1  # all four begin anew, from version 3
    assert Counter(each.data["outcome"] for each in after)["counted"] == 8


@pytest.mark.parametrize("action", ["crash", "pause"])
def test_a_cloud_that_was_away_loses_its_clients_and_selects_others(tmp_path: Path, action: str) -> None:
    faults = f"faults: [{{round: 3, node: cloud, action: {action}, for: 60s}}]\n"
    slow = "clients: {speed: {uniform: {low: 0.000005, high: 0.00001}}}\n"  # half a minute to a minute
    done = run(tmp_path, more=slow + faults)
    assert done.code == 0, done.errors
    assert outcomes(done)["counted"] == 12
    assert outcomes(done)["away" if action == "pause" else "unfinished"] > 0
    assert most_at_a_time(done) == 4
