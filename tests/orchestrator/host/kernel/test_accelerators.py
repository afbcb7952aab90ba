"""What the kernels of hosts show of their accelerators, written down (`tests.orchestrator.host.sensors.trees`)."""

from __future__ import annotations

from pathlib import Path

from orchestrator.host.kernel.accelerators import accelerators, device_files
from tests.orchestrator.host.sensors import trees


def test_the_driver_of_nvidias_cards_names_them(tmp_path: Path) -> None:
    assert accelerators(trees.with_nvidia_cards(tmp_path, 2)) == ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3")


def test_cards_without_a_model_in_their_driver(tmp_path: Path) -> None:
    information = "proc/driver/nvidia/gpus/0000:01:00.0/information"
    assert accelerators(trees.write(tmp_path / "a", {information: "IRQ: 10"})) == ("NVIDIA GPU",)
    files = dict.fromkeys(["dev/nvidia0", "dev/nvidia1", "dev/nvidiactl", "dev/nvidia-uvm"], "")
    assert accelerators(trees.write(tmp_path / "b", files)) == ("NVIDIA GPU", "NVIDIA GPU")


def test_a_jetson_has_one_and_a_raspberry_pi_none(tmp_path: Path) -> None:
    assert accelerators(trees.jetson_orin_nano(tmp_path / "jetson")) == ("NVIDIA GPU of a Jetson",)
    assert accelerators(trees.raspberry_pi_4(tmp_path / "pi")) == ()


def test_the_device_files_of_cards_and_of_a_jetson(tmp_path: Path) -> None:
    files = ("dev/nvidia0", "dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia-caps/nvidia-cap1", "dev/nvram", "dev/null")
    card = trees.write(tmp_path / "card", dict.fromkeys(files, ""))
    assert device_files(card) == ("/dev/nvidia-caps", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl")
    assert {"/dev/nvhost-gpu", "/dev/nvmap"} <= set(device_files(trees.jetson_orin_nano(tmp_path / "jetson")))
    assert device_files(trees.raspberry_pi_4(tmp_path / "pi")) == ()
