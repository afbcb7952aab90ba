from __future__ import annotations

import time

from node import resources


def test_memory_of_this_process() -> None:
    resident, proportional = resources.resident_bytes(), resources.proportional_bytes()
    assert 10 << 20 < resident < 10 << 30
    assert proportional is None or 1 << 20 < proportional <= 1.1 * resources.resident_bytes()


def test_processor_time_grows_with_use() -> None:
    before = resources.processor_seconds()
    began = time.thread_time()
    while time.thread_time() - began < 0.02:
        pass
    assert resources.processor_seconds() - before >= 0.02
