from __future__ import annotations

from node.messaging.delivery.chunk_size import LARGEST_CHUNK, SMALLEST_CHUNK, ChunkSize

MIB = 1 << 20


def test_pieces_fit_the_slowest_rate_seen() -> None:
    chunk = ChunkSize(0.5)
    chunk.taken(64 * MIB)
    assert chunk.size == LARGEST_CHUNK
    chunk.refused(10.0)  # from here on the link sets the pace
    for second in range(1, 4):
        chunk.taken(200_000)
        chunk.refused(10.0 + second)
    assert chunk.size == 100_000
    chunk.taken(20_000)
    chunk.refused(14.0)
    assert chunk.size == 10_000


def test_a_slow_rate_is_forgotten_in_time() -> None:
    chunk = ChunkSize(0.5)
    chunk.refused(0.0)
    chunk.taken(16 * MIB)
    chunk.refused(1000.0)
    assert chunk.size == 16 * MIB // 2000
    for second in range(64):
        chunk.taken(16 * MIB)
        chunk.refused(1001.0 + second)
    assert chunk.size == LARGEST_CHUNK


def test_waiting_and_pauses_do_not_count_as_slowness() -> None:
    chunk = ChunkSize(0.5)
    chunk.taken(64 * MIB)
    chunk.refused(0.0)
    chunk.refused(50.0)  # nothing was taken meanwhile: still the same wait
    chunk.idle()
    chunk.refused(100.0)
    chunk.taken(MIB)
    chunk.refused(100.1)
    assert chunk.size == LARGEST_CHUNK


def test_pieces_are_never_smaller_than_the_smallest() -> None:
    chunk = ChunkSize(0.5)
    chunk.refused(0.0)
    chunk.taken(10)
    chunk.refused(1000.0)
    assert chunk.size == SMALLEST_CHUNK
