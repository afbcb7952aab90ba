from __future__ import annotations

import subprocess
import sys

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
