from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from node.learning import vision


@pytest.mark.slow
def test_torchvision_imports_with_or_without_its_operators() -> None:
    """In a process of its own, since only a first import can fail."""
    code = (
        "from node.learning.vision import torchvision\n"
        "models = torchvision('torchvision.models')\n"
        "print(sum(p.numel() for p in models.resnet18().parameters()))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "11689512\n"  # torchvision's documentation: 11,689,512 parameters


def test_nothing_to_download_for_other_names(tmp_path: Path) -> None:
    assert vision.download("har", tmp_path) is None


def test_cifar10_comes_as_the_binary_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    class Utilities:
        @staticmethod
        def download_url(url: str, root: str, md5: str) -> None:
            calls.append((url, root, md5))

    monkeypatch.setattr(vision, "torchvision", lambda name: Utilities)
    assert vision.download("cifar10", tmp_path) == tmp_path / "cifar-10-binary.tar.gz"
    assert calls == [(vision.CIFAR10_URL, str(tmp_path), vision.CIFAR10_MD5)]
