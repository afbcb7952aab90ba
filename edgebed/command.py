"""The command ``edgebed``."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line. Exit code 1, with one sentence, if another module hides a package of edgebed."""
    try:
        from edgebed.packages import check

        check("orchestrator")
        from orchestrator.__main__ import main as run  # leaves the working directory

        check("netem", "node")
    except ImportError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:  # later `run` handles signals
        print("error: interrupted", file=sys.stderr)
        sys.exit(130)
    run()
