from __future__ import annotations

from pathlib import Path

from orchestrator.host.kernel.kernel_modules import has_module
from tests.orchestrator.host.sensors.trees import write

RELEASE = "5.15.148-tegra"
LISTS = {
    f"lib/modules/{RELEASE}/modules.builtin": "kernel/drivers/net/vxlan/vxlan.ko\nkernel/net/8021q/8021q.ko",
    f"lib/modules/{RELEASE}/modules.dep": (
        "kernel/net/ipv4/netfilter/iptable_nat.ko.zst: kernel/net/netfilter/nf_nat.ko.zst\n"
        "kernel/net/sched/sch-fq.ko.xz:"
    ),
}


def test_modules_that_are_loaded_built_in_or_installed(tmp_path: Path) -> None:
    root = write(tmp_path, LISTS | {"proc/modules": "xt_mark 16384 2 - Live 0x0000000000000000"})
    names = ("xt_mark", "vxlan", "iptable_nat", "sch_fq", "iptable_raw", "nf_nat")
    assert {name: has_module(name, root, RELEASE) for name in names} == {
        "xt_mark": True,
        "vxlan": True,
        "iptable_nat": True,
        "sch_fq": True,
        "iptable_raw": False,
        "nf_nat": False,  # needed by another, and not there itself
    }


def test_without_any_report(tmp_path: Path) -> None:
    assert has_module("iptable_raw", tmp_path, RELEASE) is None
    write(tmp_path, {"proc/modules": "iptable_raw 16384 0 - Live 0x0"})
    assert has_module("iptable_raw", tmp_path, RELEASE) is True
    assert has_module("vxlan", tmp_path, RELEASE) is None
