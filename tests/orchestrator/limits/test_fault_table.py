"""The table of the thirteen faults: one row for each, with the spread of its runs."""

from __future__ import annotations

from typing import Any

from orchestrator.limits.fault_table import in_short, markdown, rows

MESSAGES: dict[str, Any] = {
    "case": "default",
    "client": "device-0",
    "server": "cloud",
    "verdict": "pass",
    "began": True,
    "watched": 210.0,
    "noticed": {},
    "has_rounds": False,
    "closed": None,
    "counted": None,
    "trains_again": None,
    "finished": None,
    "failed": None,
    "exits": {},
    "bytes_up": 2000,
    "bytes_down": 1000,
}
STILL = {"sent": 9, "lost": 0, "twice": 0, "back": 0.1}
TRAINING = MESSAGES | {"up": None, "down": None, "has_rounds": True}


def run(fault: str, back: float | None, **changes: Any) -> dict[str, Any]:
    direction = {"sent": 9, "lost": 3, "twice": 0, "back": back}
    return MESSAGES | {"fault": fault, "up": direction, "down": direction} | changes


def cells(*runs: dict[str, Any]) -> dict[str, str]:
    headings, table = rows(runs)
    (row,) = table
    return dict(zip(headings, row, strict=True))


def test_the_middle_and_the_range_of_three_runs() -> None:
    of_fault = cells(run("cut-60", 51.2), run("cut-60", 55.8), run("cut-60", 4.04))
    assert of_fault["back up"] == "51 (4.0 to 56) s"
    assert of_fault["lost up"] == "3"
    assert of_fault["runs"] == "3"


def test_what_never_comes_back() -> None:
    assert cells(run("address", None))["back up"] == "**never** in 210 s"
    some = cells(run("address", 5.0), run("address", None))
    assert some["back up"] == "5.0 s, 1 of 2 **never** in 210 s"


def test_columns_that_no_run_fills_are_left_out() -> None:
    of_fault = cells(run("cut-5", 2.0, noticed={"cloud": 14.0}))
    assert of_fault["server notices"] == "14 s"
    assert "client notices" not in of_fault
    assert "counted" not in of_fault
    assert "bytes a minute" not in of_fault


def test_a_federation() -> None:
    changes = {"closed": 52.0, "counted": "healthy only", "exits": {"device-1": "exit code 0"}}
    of_fault = cells(TRAINING | {"fault": "cut-60"} | changes)
    assert of_fault["round ends"] == "52 s"
    assert of_fault["counted"] == "healthy only"
    assert of_fault["trains again"] == "never"
    assert of_fault["finished"] == "**not** in 210 s"
    assert of_fault["programs ended"] == "device-1: exit code 0"


def test_a_federation_that_fails() -> None:
    of_fault = cells(TRAINING | {"fault": "gone", "failed": 670.0})
    assert of_fault["finished"] == "**failed** after 670 s"


def test_rows_are_in_the_order_of_the_suite_and_each_case_has_a_table() -> None:
    runs = [run("delay-60", 1.0), run("none", 0.1), run("none", 0.1, case="patient")]
    text = markdown({"scenario": "service.yaml", "runs": runs})
    assert text.index("service.yaml, default") < text.index("| none") < text.index("| delay-60")
    assert text.index("| delay-60") < text.index("service.yaml, patient")


def test_a_fault_that_did_not_start() -> None:
    of_fault = run("cut-5", None, began=False)
    assert cells(of_fault)["checks"] == "pass, the fault did not start"
    assert in_short([of_fault]) == "the fault did not start"


def test_in_short() -> None:
    assert in_short([run("none", 0.1) | {"up": STILL, "down": STILL}]) == "none lost"
    assert in_short([run("cut-60", 51.0), run("cut-60", 55.0)]) == "6 lost, back 53 (51 to 55) s"
    assert in_short([TRAINING | {"fault": "idle"}]) == "2.0 kB up, 1.0 kB down a minute"
    assert in_short([run("gone", None, noticed={"cloud": 947.0})]) == "noticed 947 s"
    changes = {"closed": 52.0, "counted": "healthy only", "trains_again": 80.0, "finished": 118.0}
    of_federation = in_short([TRAINING | {"fault": "cut-60"} | changes])
    assert of_federation == "round 52 s, healthy only, again 80 s"
