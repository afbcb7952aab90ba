"""Small files by which a kernel shows what it knows, such as those of /proc and /sys."""

from __future__ import annotations

from pathlib import Path


def text_of(path: Path) -> str | None:
    """The text of a file, without the blanks and zero bytes around it; None if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.strip(" \n\0")
