"""An image of nodes for the Docker Engine of a guest: its files stay on the host.

To import them would take a guest minutes. So the host unpacks them into a folder, the guest's Engine makes an image
that has none, and the folder is mounted where the Engine keeps that image's only layer.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import docker

from tests.e2e.image import pack, settings

NO_FILES = bytes(10240)  # an archive that ends where it begins


def unpack(folder: Path) -> None:
    """Lay out the image's files in ``folder``, which is made."""
    folder.mkdir()
    with subprocess.Popen(
        ["tar", "--extract", "--same-permissions", "--directory", folder], stdin=subprocess.PIPE
    ) as extracting:
        assert extracting.stdin is not None
        pack(extracting.stdin)
    assert extracting.returncode == 0


def mount_image(client: docker.DockerClient, name: str, folder: Path) -> None:
    """Make the image ``name`` of an Engine in this guest, with the files in ``folder``."""
    repository, _, tag = name.partition(":")
    client.api.import_image_from_data(NO_FILES, repository, tag, changes=settings())
    layer = client.images.get(name).attrs["GraphDriver"]["Data"]["UpperDir"]
    subprocess.run(["mount", "--bind", folder, layer], check=True)
