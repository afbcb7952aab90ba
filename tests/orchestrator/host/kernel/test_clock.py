from __future__ import annotations

from orchestrator.host.kernel.clock import Clock, clock, clock_of


def test_the_status_says_whether_the_clock_is_synchronised() -> None:
    assert clock_of(0x2001, 12_345) == Clock(True, 0.012345)  # STA_PLL | STA_NANO
    assert clock_of(0x2041, 16_000_000) == Clock(False, 16.0)  # and STA_UNSYNC


def test_the_clock_of_this_host() -> None:
    found = clock()
    assert found is None or 0 <= found.error <= 16.0  # NTP_PHASE_LIMIT of the kernel (kernel/time/ntp.c)
