from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from node.extras import install_command
from orchestrator.scenario.reading import parse
from orchestrator.sweep.quantities import Figures, Result
from orchestrator.sweep.reading import Combination, Sweep, Target
from orchestrator.sweep.tables import latex, markdown, print_tables, to_json
from tests.orchestrator.consoles import printed
from tests.shipped import SWEEPS, read_sweep

SCENARIO = parse("algorithm: {name: hierfavg}", "base.yaml")
TARGET = Target.model_validate({"accuracy": "70%"})


def sweep(*cases: str, seeds: tuple[int, ...] = (1, 2), target: Target | None = TARGET) -> Sweep:
    combinations = [
        Combination(case, seed, (f"seed={seed}",), SCENARIO, None if case == cases[0] else cases[0])
        for case in cases
        for seed in seeds
    ]
    return Sweep("mine", Path("mine.yaml"), Path("base.yaml"), target, tuple(combinations), "", "")


def made(asked: Sweep, *runs: Figures | str) -> list[Result]:
    """Runs in the sweep's order: their figures, or the error with which one failed."""
    pairs = zip(asked.combinations, runs, strict=False)
    return [
        Result(combination, None, None, run, {})
        if isinstance(run, str)
        else Result(combination, Path("runs") / combination.case, "pass", None, run)
        for combination, run in pairs
    ]


GOOD: Figures = {"final.global": 0.8, "to_target.rounds": 3, "to_target.bytes.device-edge": 1_000_000}
BETTER: Figures = {"final.global": 0.9, "to_target.rounds": 5, "to_target.bytes.device-edge": 3_000_000}
NEVER: Figures = {
    **{"final.global": 0.4, "to_target.reached": 0},
    **{"to_target.rounds": 4, "to_target.bytes.device-edge": 1_000_000},
}


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:1] == "|"]


def test_cases_with_different_rounds_are_named_under_the_table() -> None:
    asked = sweep("a", "b", "c")
    longer = parse("algorithm: {name: hierfavg, rounds: 40}", "base.yaml")
    combinations = [replace(each, scenario=longer) if each.case == "b" else each for each in asked.combinations]
    different = replace(asked, combinations=tuple(combinations))
    rounds = SCENARIO.rounds
    note = f"have different numbers of rounds: {rounds}"
    assert note in markdown(different, made(different, GOOD))
    assert note in " ".join(
        printed(100, lambda console: print_tables(different, made(different, GOOD), console)).split()
    )
    assert "different numbers of rounds" not in markdown(asked, made(asked, GOOD))


def test_latex() -> None:
    asked = sweep("a_1", "b%")
    lines = latex(asked, made(asked, GOOD, BETTER, NEVER, GOOD)).splitlines()
    assert lines[0].startswith("% base.yaml, mean ± standard deviation")
    assert lines[1] == r"\begin{tabular}{lrrrl}"
    # The figures of `test_markdown`.
    assert lines[5] == r"a\_1 & 85.0 $\pm$ 7.1\% & 4 $\pm$ 1.41 & device-edge 2 $\pm$ 1.41 MB & 2 pass \\"
    assert lines[6].startswith(r"b\% & 60.0 $\pm$ 28.3\% & $\geq$ 3.5")


def test_markdown() -> None:
    asked = sweep("a", "b|c")
    headings, rule, one, other, *_ = cells(markdown(asked, made(asked, GOOD, BETTER, NEVER, GOOD)))
    assert headings == ["case", "global", "rounds to target", "bytes to target", "verdicts"]  # no empty columns
    assert rule == ["---", "---:", "---:", "---:", "---"]
    # 0.8 and 0.9: mean 0.85, deviation 0.05 √2 = 0.0707; 3 and 5: √2; 1 and 3 MB: √2 MB
    assert one == ["a", "85.0 ± 7.1%", "4 ± 1.41", "device-edge 2 ± 1.41 MB", "2 pass"]
    assert other == ["b\\|c", "60.0 ± 28.3%", "≥ 3.5 ± 0.707 (1 of 2)", "device-edge ≥ 1 MB ± 0 (1 of 2)", "2 pass"]


def test_differences() -> None:
    asked = sweep("a", "b", "c", seeds=(1, 2, 3))
    accuracies = (0.7, 0.8, 0.9), (0.71, 0.82, 0.93), (0.75, 0.85, 0.95)
    text = markdown(asked, made(asked, *({"final.global": value} for case in accuracies for value in case)))
    assert "case minus a, paired by seed" in text
    headings, _, b, c = cells(text)[-4:]
    assert headings == ["case", "global, points", "seeds"]
    # 1, 2, 3 points: deviation 1, times 4.303/√3 = 2.484; t = 2 √3, p 0.0742 with two degrees of freedom
    assert b == ["b", "+2.0 [−0.5, +4.5]<br>p 0.074, detectable 3.3", "3"]
    assert c == ["c", "+5.0<br>with every seed", "3"]


def test_one_seed_has_no_differences() -> None:
    asked = sweep("a", "b", seeds=(1,))
    text = markdown(asked, made(asked, GOOD, BETTER))
    assert "seed shows no difference between cases" in text
    assert "p " not in text.partition("## Differences")[2]
    assert "Differences" not in markdown(sweep("a"), made(sweep("a"), GOOD, BETTER))


def test_of_a_population_the_share_of_clients_that_were_seen_is_reported() -> None:
    asked = sweep("a", target=None)
    runs: list[Figures] = [{"population.share_seen": 0.08}, {"population.share_seen": 0.12}]
    headings, _, row = cells(markdown(asked, made(asked, *runs)))
    assert headings == ["case", "clients seen", "verdicts"]
    assert row == ["a", "10.0 ± 2.8%", "2 pass"]  # a deviation of 0.02 √2


def test_what_failed_is_reported_and_not_averaged() -> None:
    asked = sweep("a")
    text = markdown(asked, made(asked, GOOD, "cloud ended (exit code 1)"))
    assert cells(text)[-1] == ["a", "80.0%", "3", "device-edge 1 MB", "1 pass, 1 failed"]
    assert "- a, seed 2: cloud ended (exit code 1)" in text


def test_the_target_is_explained() -> None:
    assert "Target: 70.0% on the global test" in markdown(sweep("a"), [])
    own = sweep("a", target=Target.model_validate({"accuracy": "50%", "scope": "own", "of": "edges"}))
    assert "Target: 50.0% of edges" in markdown(own, [])
    plain = markdown(sweep("a", seeds=(7,), target=None), [])
    assert "base.yaml, seed 7" in plain
    assert "Target" not in plain


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_terminal(width: int) -> None:
    asked = sweep("[a]", "baseline", "all-of-them-drop-out", "alone")
    runs = made(asked, GOOD, BETTER, "it [broke] /tmp/runs/mine", GOOD, BETTER, BETTER, GOOD)
    shown = printed(width, lambda console: print_tables(asked, runs, console))
    for case in asked.cases:  # whole, and not taken for markup
        assert case in shown.split()
    assert "85.0 ± 7.1%" in shown
    assert "failed: baseline, seed 1: it [broke] /tmp/runs/mine" in " ".join(shown.split())
    assert "…" not in shown


def test_json() -> None:
    asked = sweep("a", "b")
    found = to_json(asked, made(asked, GOOD, BETTER, "it broke"))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["planned"], found["target"]) == (4, {"accuracy": "70%", "scope": "global", "of": "clients"})
    a, b = found["cases"]
    assert a["figures"]["to_target.rounds"] == {"mean": 4.0, "deviation": 2**0.5, "count": 2, "censored": 0}
    assert [run["figures"] for run in a["runs"]] == [GOOD, BETTER]
    assert b["figures"] == {}
    assert [run["error"] for run in b["runs"]] == ["it broke"]  # the second seed has not been run


FULL: Figures = {
    **{"final.global": 0.8123, "final.clients": 0.7521, "final.edges": 0.7788, "best.target": 0.8844},
    **{"to_target.rounds": 31, "to_target.seconds": 2701.0, "rounds": 100, "wall_seconds": 543.0},
    **{
        f"{of}.{link}": 2_010_000_000
        for of in ("to_target.bytes", "bytes_per_round")
        for link in ("device-edge", "edge-cloud")
    },
}
OTHER: Figures = {name: value * 1.1 for name, value in FULL.items()}


@pytest.mark.parametrize(
    "path", [path for path in SWEEPS if "\nscenario:" in path.read_text()], ids=lambda path: path.stem
)
def test_the_table_of_every_shipped_sweep_fits_80_columns(path: Path) -> None:
    asked = read_sweep(path)
    runs = [
        Result(each, None, "pass", None, FULL if number % 2 else OTHER)
        for number, each in enumerate(asked.combinations)
    ]
    shown = printed(80, lambda console: print_tables(asked, runs, console))
    assert max(map(len, shown.splitlines())) <= 80
    assert "\n  own, clients" not in shown  # a table, not a block for each case
    for case in asked.cases:
        assert set(case.split()) <= set(shown.split())


def test_cases_with_long_names_are_numbered() -> None:
    asked = sweep("hierfavg, links.device-edge.latency=5ms", "onlyedge")
    shown = printed(80, lambda console: print_tables(asked, made(asked, GOOD, BETTER, NEVER, GOOD), console))
    assert "1  hierfavg, links.device-edge.latency=5ms\n2  onlyedge\n" in shown
    assert ["1", "85.0", "±", "7.1%"] in [line.split()[:4] for line in shown.splitlines()]


def test_without_scipy_the_text_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    compared = sweep("small", "large")
    written = markdown(compared, made(compared, GOOD, GOOD, BETTER, BETTER))
    assert f"differences between cases need SciPy: {install_command('learning')}" in written
