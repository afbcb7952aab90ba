"""Print the notes of a release, its section of CHANGELOG.md. Refuse a tag that disagrees with the project's files.

python .github/release.py v0.2.0 > notes.md
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
DATED = re.compile(r"^## \[(\S+)\] - (\d{4}-\d\d-\d\d)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def notes(tag: str, root: Path = ROOT) -> str:
    """The newest dated section of CHANGELOG.md, without its heading.

    Raises ValueError unless the tag is "v" and the version in pyproject.toml, the newest dated section is of this
    version, and CITATION.cff has its version and date.
    """
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    if tag != f"v{version}":
        raise ValueError(
            f"the tag is {tag}, the version in pyproject.toml {version}: tag v{version} or change the version"
        )
    section = DATED.search((root / "CHANGELOG.md").read_text())
    if section is None or section[1] != version:
        newest = f"is of {section[1]}" if section else "is missing"
        raise ValueError(f"CHANGELOG.md: the newest dated section {newest}; add `## [{version}] - YYYY-MM-DD`")
    cited = dict(re.findall(r"^(version|date-released): (.*)$", (root / "CITATION.cff").read_text(), re.MULTILINE))
    expected = {"version": version, "date-released": section[2]}
    for key, value in expected.items():
        if cited.get(key) != value:
            raise ValueError(f"CITATION.cff: {key} is {cited.get(key)}; write {value}")
    return section[3].strip()


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: release.py TAG")
    try:
        print(notes(sys.argv[1]))
    except ValueError as error:
        sys.exit(f"release.py: {error}")


if __name__ == "__main__":
    main()
