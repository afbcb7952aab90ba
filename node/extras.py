"""The extras of edgebed, and the command that installs one from where this edgebed was installed."""

from __future__ import annotations

import json
import sys
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

LEARNING = "learning"
"""The extra that training needs."""

_EXTRAS = {  # by module: its distribution, and the extra that installs it
    "torch": ("PyTorch", LEARNING),
    "torchvision": ("torchvision", LEARNING),
    "PIL": ("Pillow", LEARNING),
    "pyarrow": ("pyarrow", "parquet"),
    "datasets": ("flwr-datasets", "flwr"),
    "flwr_datasets": ("flwr-datasets", "flwr"),
}

CHECKOUT = Path(__file__).parents[1]
"""The folder of this code: a clone, if it has `pyproject.toml`."""

UV_RECEIPT = Path(sys.prefix) / "uv-receipt.toml"
"""The file by which `uv tool` knows an environment as one of its own."""


def lacking(error: BaseException) -> str | None:
    """The words "needs PyTorch:" and the command, if an import failed because an extra is missing."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    name, _, _ = error.name.partition(".")
    if name not in _EXTRAS:
        return None
    distribution, extra = _EXTRAS[name]
    return f"needs {distribution}: {install_command(extra)}"


def install_command(extra: str) -> str:
    """The command that adds an extra to this edgebed: by the tool, and from the folder or index, that installed it."""
    folder = installed_from()
    what = f"'{folder or 'edgebed'}[{extra}]'"
    if UV_RECEIPT.exists():
        return f"uv tool install {what}"
    if folder == CHECKOUT:
        return f"pip install --editable {what}"
    return f"pip install {what}"


@cache
def installed_from() -> Path | None:
    """The clone or the file that this edgebed was installed from, if it still exists. None: a release."""
    if (CHECKOUT / "pyproject.toml").exists():
        return CHECKOUT
    for distribution in distributions(name="edgebed"):
        direct_url = distribution.read_text("direct_url.json")  # packaging.python.org, "Recording the Direct URL"
        if direct_url is None:
            continue
        content = json.loads(direct_url)
        address = urlparse(content["url"])
        path = Path(url2pathname(address.path))
        if address.scheme == "file" and path.exists():
            return path
    return None


def requirement(extra: str, version: str) -> str:
    """The line of a project's dependencies that installs this edgebed again: a release by its version."""
    folder = installed_from()
    if folder is None:
        return f"edgebed[{extra}]=={version}"
    return f"edgebed[{extra}] @ {folder.as_uri()}"
