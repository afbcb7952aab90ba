"""Starts the server or a site from its startup kit: ``python start.py NAME FOLDER``.

The kit is copied into the node's own folder, because each run writes into it.
"""

import os
import shutil
import sys
from pathlib import Path

KITS = Path(sys.prefix) / "kits" / "peers" / "prod_00"
SHARED = "/tmp/nvflare"  # where a server keeps jobs, unless its resources name another folder


def copy_kit(name, folder):
    """The folder of a copy of a kit."""
    source = KITS / name
    if not source.is_dir():
        sys.exit(f"{source} is missing: run `nvflare provision` as the head of scenarios/peers/nvflare.yaml shows")
    kit = folder / name
    if not kit.is_dir():  # a node that starts again keeps its files
        shutil.copytree(source, kit)
    return kit


def own_resources(kit, folder):
    """Let a server keep its jobs in ``folder``. HEART_BEAT_TIMEOUT replaces the seconds after which a silent site is
    gone."""
    defaults = kit / "local" / "resources.json.default"
    own = defaults.read_text().replace(SHARED, str(folder))
    timeout = os.environ.get("HEART_BEAT_TIMEOUT", "600")
    own = own.replace('"heart_beat_timeout": 600', f'"heart_beat_timeout": {timeout}')
    defaults.with_suffix("").write_text(own)


def main():
    name = sys.argv[1]
    folder = Path(sys.argv[2])
    kit = copy_kit(name, folder)
    own_resources(kit, folder)
    os.execvp("bash", ["bash", str(kit / "startup" / "sub_start.sh")])


if __name__ == "__main__":
    main()
