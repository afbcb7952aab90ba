from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_torchvision_imports_with_or_without_its_operators() -> None:
    """In a process of its own, since only a first import can fail."""
    code = (
        "from node.learning.networks.vision import torchvision\n"
        "models = torchvision('torchvision.models')\n"
        "print(sum(p.numel() for p in models.resnet18().parameters()))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "11689512\n"  # torchvision's documentation: 11,689,512 parameters
