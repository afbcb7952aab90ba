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


def test_a_piece_has_4_to_512_kib_and_a_sixteenth_of_what_was_taken() -> None:
    chunk = ChunkSize(0.5)
    sizes = []
    for taken in (0, 65_536, 16, 160_000 - 65_552, 8_388_608 - 160_000 - 16, 16, 1 << 26):
        chunk.taken(taken)
        sizes.append(chunk.size)
    assert sizes == [4096, 4096, 4097, 10_000, 524_287, 524_288, 524_288]


def test_a_rate_is_of_bytes_and_of_time() -> None:
    """Two refusals at one time are one, and so are two without a byte between them: 100 kB from 0 to 2 s."""
    chunk = ChunkSize(0.5)
    chunk.taken(1 << 26)
    chunk.refused(0.0)
    chunk.taken(60_000)
    chunk.refused(0.0)
    assert chunk.size == 512 << 10
    chunk.taken(40_000)
    chunk.refused(2.0)
    assert chunk.size == 25_000
    chunk.refused(3.0)
    chunk.taken(200_000)
    chunk.refused(4.0)
    assert list(chunk._rates) == [50_000, 100_000]
    chunk.taken(10)
    chunk.idle()
    chunk.refused(9.0)  # what was taken before the pause is of no rate
    chunk.taken(100_000)
    chunk.refused(10.0)
    assert list(chunk._rates)[2:] == [100_000]
