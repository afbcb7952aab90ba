"""What tests read of a console."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console


def printed(width: int, write: Callable[[Console], None]) -> str:
    """What ``write`` prints on a console of this width, without colours."""
    file = io.StringIO()
    write(Console(file=file, width=width))
    return file.getvalue()
