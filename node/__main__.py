"""``python -m node ASSIGNMENT.json``: run one node, in a container or on a board.

``python -m node --try cuda`` reports whether nodes can train on an accelerator here, see `node.learning.trial`.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from node.assignment import Assignment
from node.errors import AssignmentError
from node.process.main import EXIT_FAILED, keep_freed_memory, run_node


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--try"]:
        from node.learning import trial

        trial.main(arguments[1:])
        return 0
    if len(arguments) != 1:
        print("usage: python -m node ASSIGNMENT.json", file=sys.stderr)
        return 2
    try:
        assignment = Assignment.load(arguments[0])
    except AssignmentError as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED
    keep_freed_memory()
    return run_node(assignment)


def _end(code: int) -> NoReturn:
    """End immediately: to destroy torch object by object takes a third of a second."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    _end(main(arguments))
