from __future__ import annotations

import subprocess
import sys

from orchestrator.planning.making import make_plan
from orchestrator.run.preparation import open_files
from orchestrator.scenario.reading import parse

PROVIDE = """
import resource, sys
from orchestrator.errors import HostError
from orchestrator.run.preparation import provide
for pair in sys.argv[1:]:
    soft, hard = map(int, pair.split(","))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        provide(200)
    except HostError as error:
        print(error)
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def test_the_soft_limit_is_raised_only_where_it_is_too_low_and_a_hard_limit_refused_with_the_remedy() -> None:
    argv = [sys.executable, "-c", PROVIDE, "100,400", "300,400", "100,199"]
    printed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    raised, enough, error, soft = printed
    assert (raised, enough) == ("200", "300")
    assert "needs 200 open files" in error
    assert "allows 199: `ulimit -n 200`" in error
    assert soft == "100"


def test_what_a_run_needs() -> None:
    """The cloud, two edges and their 60 devices; or 8 workers."""
    scenario = (
        "name: many\nalgorithm: {name: hierfavg, rounds: 1}\ntopology: {edges: 2, devices_per_edge: 30}\ndriver: "
    )
    for driver, files in (("namespaces", 64 + 4 * 63), ("sim", 64 + 4 * 8)):
        assert open_files(make_plan(parse(scenario + driver, "a.yaml"), None), workers=8) == files
