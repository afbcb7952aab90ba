from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from node.errors import WireError
from node.messaging.wire import (
    LAST_ROUND,
    PROTOCOL,
    Buffer,
    Message,
    MessageLimits,
    _remembered_layout,
    decode,
    encode,
    frozen,
    handed_over,
    quoted,
    read_header,
    unpack,
)

DTYPES = ["?", "u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8"]

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)
tensors = st.dictionaries(
    st.text(min_size=1),
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: npst.arrays(np.dtype(dtype), npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    ),
    max_size=5,
)
messages = st.builds(
    Message,
    kind=st.text(min_size=1, max_size=64),
    sender=st.text(min_size=1),
    round=st.none() | st.integers(0, LAST_ROUND),
    fields=st.dictionaries(st.text(), values, max_size=4),
    tensors=tensors,
)


def same(one: Any, other: Any) -> bool:
    """Equal, where NaN equals itself."""
    return repr(one) == repr(other)


def received(encoded: tuple[bytes, list[memoryview]]) -> list[Buffer]:
    """A message's frames as a transport gives them: in memory of their own."""
    header, body = encoded
    return [bytearray(header), bytearray(b"".join(body))]


@given(messages)
def test_round_trip(message: Message) -> None:
    got = decode(received(encode(message)))
    assert (got.kind, got.sender, got.round) == (message.kind, message.sender, message.round)
    assert same(got.fields, message.fields)
    assert list(got.tensors) == list(message.tensors)
    for name, tensor in message.tensors.items():
        assert got.tensors[name].dtype == tensor.dtype
        np.testing.assert_array_equal(got.tensors[name], tensor)


def test_round_trip_of_what_python_writes_otherwise() -> None:
    columns = np.asfortranarray(np.arange(6, dtype=">f4").reshape(2, 3))
    got = decode(received(encode(Message("k", "n", None, {"a": np.float32(0.5), "b": (1, 2)}, {"w": columns[:, ::2]}))))
    assert got.fields == {"a": 0.5, "b": [1, 2]}
    assert got.tensors["w"].dtype.str == "<f4"
    assert got.tensors["w"].tolist() == [[0, 2], [3, 5]]


def test_tensors_are_copied_and_read_only() -> None:
    sent = np.zeros(3)
    frames = encode(Message("k", "n", None, {}, {"w": sent}))
    sent[:] = 1
    got = decode(received(frames)).tensors["w"]
    assert got.tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="read-only"):
        got += 1


def test_a_message_handed_over_is_what_decoding_gives() -> None:
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    message = Message("update", "a", 2, {"samples": np.int64(3), "pair": (1, 2)}, {"w": w, "n": np.array(4)})
    frames = encode(message)
    there, size = handed_over(message)
    w[:] = 0
    assert size == sum(map(len, received(frames)))
    decoded = decode(received(frames))
    assert (there.kind, there.sender, there.round) == (decoded.kind, decoded.sender, decoded.round)
    assert there.fields == decoded.fields == {"samples": 3, "pair": [1, 2]}
    for name, tensor in decoded.tensors.items():
        np.testing.assert_array_equal(there.tensors[name], tensor)
        assert not there.tensors[name].flags.writeable


def test_a_frozen_message_is_shared_and_not_copied_again() -> None:
    w = np.arange(6, dtype=np.float32)
    first, size = handed_over(Message("model", "a", 1, {}, {"w": w, "n": np.array(4)}))
    assert first.tensors["w"] is not w
    assert handed_over(first) == (first, size)
    mixed = frozen(Message("model", "b", 1, {}, {**first.tensors, "v": w}))
    assert mixed.tensors["w"] is first.tensors["w"]
    assert mixed.tensors["v"] is not w
    assert not mixed.tensors["v"].flags.writeable


def test_owned_tensors_are_not_copied_and_cannot_be_changed_any_more() -> None:
    w = np.arange(3.0)
    message = frozen(Message("model", "a", 1, {}, {"w": w}), owned=True)
    assert message.tensors["w"] is w
    _, (part,) = encode(message)
    assert np.shares_memory(np.frombuffer(part, np.uint8), w)
    with pytest.raises(ValueError, match="read-only"):
        w += 1


def test_a_view_is_copied_also_if_it_is_owned() -> None:
    w = np.zeros(4)
    there = frozen(Message("model", "a", 1, {}, {"w": w[1:]}), owned=True)
    w[:] = 1
    assert there.tensors["w"].tolist() == [0, 0, 0]


def test_a_read_only_view_of_what_may_change_is_copied() -> None:
    w = np.zeros(3)
    view = w.view()
    view.flags.writeable = False
    there, _ = handed_over(Message("model", "a", 1, {}, {"w": view}))
    w[:] = 1
    assert there.tensors["w"].tolist() == [0, 0, 0]


def test_what_is_known_of_a_message_goes_with_its_copy() -> None:
    message = Message("update", "a", 1, {"samples": 2}, {"v": np.zeros(2), "w": np.array([1, np.nan])})
    assert message.not_finite == "w"
    assert handed_over(message)[0].not_finite == "w"
    assert handed_over(Message("update", "a", 1, {}, {"w": np.array([np.inf])}))[0].not_finite == "w"


@pytest.mark.parametrize("way", [encode, handed_over])
@pytest.mark.parametrize("limit", ["body", "header", "kind", "tensors", "name", "dimensions"])
def test_no_limit_is_exceeded(way: Callable[..., object], limit: str) -> None:
    message = Message("update", "a", LAST_ROUND, {}, {"weight": np.zeros((2, 3)), "v": np.zeros(6)})
    way(message)
    with pytest.raises(WireError):
        way(message, MessageLimits(**{limit: 1}))
    for round in (-1, LAST_ROUND + 1):
        with pytest.raises(WireError, match="not a whole number from 0"):
            way(Message("update", "a", round))


# A golden message and its twins: the header and body written here by hand are what `encode` must make.


def layout(*specifications: Any) -> bytes:
    packed: bytes = msgpack.packb(specifications)
    return packed


HEADER = {
    "protocol": 2,
    "kind": "update",
    "sender": "device-1",
    "round": 4,
    "fields": {"samples": 9},
    "layout": layout(["w", "<f4", [2]], ["b", "|i1", []], ["e", "<f8", [0, 3]]),
}
BODY = bytes.fromhex("0000803f 00000040") + bytes([7, 0, 0, 0, 0, 0, 0, 0])  # 1.0, 2.0; 7 and padding; nothing


def header(**changes: Any) -> bytes:
    data: bytes = msgpack.packb({key: value for key, value in (HEADER | changes).items() if value is not ...})
    return data


def test_golden_frames() -> None:
    message = Message(
        "update",
        "device-1",
        4,
        {"samples": 9},
        {"w": np.array([1, 2], np.float32), "b": np.array(7, np.int8), "e": np.empty((0, 3))},
    )
    assert received(encode(message)) == [header(), BODY]
    got = decode([header(), BODY])
    assert {name: tensor.tolist() for name, tensor in got.tensors.items()} == {"w": [1, 2], "b": 7, "e": []}
    assert got.tensors["e"].shape == (0, 3)


@pytest.mark.parametrize("cut", range(len(header())))
def test_a_truncated_header_is_refused(cut: int) -> None:
    with pytest.raises(WireError):
        decode([header()[:cut], BODY])


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([], "one or two frames, not 0"),
        ([header(), BODY, b""], "one or two frames, not 3"),
        ([header(), BODY[:-1]], "body of 15 bytes"),
        ([header(), BODY + b"x"], "body of 17 bytes"),
        ([header()], "body of 0 bytes"),
        ([b"", BODY], "not msgpack"),
        ([b"\xc1", BODY], "not msgpack"),
        ([header() + b"\x00", BODY], "not msgpack"),
        ([b"\x93\x01\x02\x03", BODY], "expected a map, got list"),
        ([b"\x91" * 100_000, BODY], "not msgpack"),
        ([header(extra=1), BODY], "header has the keys"),
        ([header(kind=...), BODY], "header has the keys"),
        ([header(protocol=1), BODY], "message of protocol 1"),
        ([header(kind=3), BODY], "kind and sender must be text"),
        ([header(sender=""), BODY], "kind and sender must be text"),
        ([header(round=-1), BODY], "round -1 is not a whole"),
        ([header(round=True), BODY], "round True is not a whole"),
        ([header(fields=[]), BODY], "fields must be a map"),
        ([header(fields={1: 2}), BODY], "fields must be a map"),
        ([header(layout=[]), b""], "the layout must be bytes"),
        ([header(layout=msgpack.packb({})), b""], "the layout must be a list"),
        ([header(layout=layout()[:-1]), b""], "not msgpack"),
        ([header(layout=layout(["w", "<f4"])), b""], "is not [name, dtype, shape]"),
        ([header(layout=layout(["w", "O", [1]])), b""], "is not [name, dtype, shape]"),
        ([header(layout=layout(["w", ">f4", [1]])), b""], "is not [name, dtype, shape]"),
        ([header(layout=layout(["w", "<f4", [-1]])), b""], "impossible shape [-1]"),
        ([header(layout=layout(["w", "<f4", [1.0]])), b""], "impossible shape [1.0]"),
        ([header(layout=layout(["w", "<f4", [1] * 9])), b""], "9 dimensions; at most 8"),
        ([header(layout=layout(["w" * 201, "<f4", [1]])), b""], "201 characters; 1 to 200"),
        ([header(layout=layout(["", "<f4", [1]])), b""], "0 characters; 1 to 200"),
        ([header(layout=layout(["w", "|i1", [1]], ["w", "|i1", [1]])), b""], "two tensors are named 'w'"),
        ([header(layout=layout(["w", "<f8", [2**62, 2**62]])), b""], "a message has at most 1073741824"),
        ([header(layout=layout(["w", "<f8", [2**62, 0]])), b""], "a message has at most 1073741824"),
    ],
)
def test_a_hostile_twin_is_refused(frames: list[bytes], message: str) -> None:
    with pytest.raises(WireError) as error:
        decode(frames)
    assert message in str(error.value)


def test_limits_hold_for_sender_and_receiver() -> None:
    small = MessageLimits(body=64, header=200, tensors=2)
    for message, reason in [
        (Message("k", "n", None, {"text": "x" * 200}), "send bulk data as tensors"),
        (Message("k", "n", None, {}, {"w": np.zeros(9)}), "tensor 'w' of 72 bytes"),
        (Message("k", "n", None, {}, {"a": np.zeros(8), "b": np.zeros(1)}), "body of 72 bytes"),
        (Message("k", "n", None, {}, {name: np.zeros(1) for name in "abc"}), "3 tensors; at most 2"),
    ]:
        with pytest.raises(WireError, match=reason):
            encode(message, small)
        with pytest.raises(WireError, match=reason):
            decode(received(encode(message)), small)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message("k", "n", None, {"o": object()}), "a field cannot travel"),
        (Message("k", "n", None, {"big": 2**64}), "a field cannot travel"),
        (Message("k", "n", None, {"w": np.zeros(2)}), "send arrays as tensors"),
        (Message("k", "n", None, {}, {"w": np.array(["text"])}), "type <U4, which cannot travel"),
        (Message("k", "n", None, {}, {"w": np.array([object()])}), "type object, which cannot travel"),
        (Message("k", "n", None, {}, {"w": np.zeros(1, complex)}), "type complex128, which cannot travel"),
    ],
)
def test_what_cannot_travel_is_refused_before_it_leaves(message: Message, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        encode(message)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_map_or_an_error(data: bytes) -> None:
    with contextlib.suppress(WireError):
        assert isinstance(unpack(data), dict)


@given(st.data())
def test_no_change_of_a_byte_does_more_than_an_error(data: st.DataObject) -> None:
    good = bytearray(header())
    good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        decode([good, BODY])


def claiming(**said: Any) -> bytes:
    layout = msgpack.packb([])
    usual = {"protocol": PROTOCOL, "kind": "model", "sender": "a", "round": 1, "fields": {}, "layout": layout}
    packed: bytes = msgpack.packb(usual | said)
    return packed


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"kind": "x" * 65}, "kind of 65 characters"),
        ({"round": 2**30}, "round 1073741824 is not"),
        ({"round": "x" * 5000}, "not a whole number from 0"),
        ({"protocol": "x" * 5000}, "message of protocol"),
        ({"more" * 1000: 1}, "header has the keys"),
        ({"fields": {"x": [[]] * 20_000}}, "more than 16384 lists and maps"),
    ],
)
def test_what_an_error_quotes_is_short(said: dict[str, Any], error: str) -> None:
    with pytest.raises(WireError) as raised:
        decode([claiming(**said)])
    assert error in str(raised.value)
    assert len(str(raised.value)) < 400


def test_lists_in_lists_take_little_memory() -> None:
    frame = claiming(fields={"x": [[]] * 250_000})  # 56 bytes each
    tracemalloc.start()
    with pytest.raises(WireError, match="lists and maps"):
        decode([frame])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4e6


def test_large_layouts_are_not_remembered() -> None:
    before = _remembered_layout.cache_info().currsize
    for number in range(4):
        tensors = {f"{number}-{place}": np.zeros(1) for place in range(1000)}
        decode(received(encode(Message("model", "a", 1, {}, tensors))))
    assert _remembered_layout.cache_info().currsize == before


def test_what_is_as_large_as_a_limit_is_sent_and_received() -> None:
    """Two tensors of 6 and 2 doubles; the second one has two dimensions. One less of anything is refused."""
    message = Message("update", "a", 10**9, {"list": [1, [2]]}, {"weight": np.zeros(6), "v": np.zeros((2, 1))})
    encoded = encode(message)
    exact = {"body": 64, "header": len(encoded[0]), "kind": 6, "tensors": 2, "name": 6, "dimensions": 2}
    limits = MessageLimits(**exact, containers=5)  # of the layout: all, two tensors, two shapes
    encode(message, limits)
    handed_over(message, limits)
    decode(received(encoded), limits)
    for limit, value in exact.items():
        less = replace(limits, **{limit: value - 1})
        for refusing in (lambda less=less: encode(message, less), lambda less=less: decode(received(encoded), less)):
            with pytest.raises(WireError):
                refusing()
    with pytest.raises(WireError, match="lists and maps"):
        decode(received(encoded), replace(limits, containers=4))


def test_the_limits_of_messages() -> None:
    assert MessageLimits() == MessageLimits(2**30, 2**18, 64, 4096, 200, 8, 2**14)
    unpack(msgpack.packb({"x": [[]] * (2**14 - 2)}))  # the map, and the list
    with pytest.raises(WireError, match="lists and maps"):
        unpack(msgpack.packb({"x": [[]] * (2**14 - 1)}))


def test_rounds_go_from_0_to_a_thousand_million() -> None:
    for round in (0, 10**9):
        assert decode(received(encode(Message("k", "n", round)))).round == round
        assert handed_over(Message("k", "n", round))[0].round == round
    for round in (-1, 10**9 + 1):
        for send in (encode, handed_over):
            with pytest.raises(WireError, match="not a whole number"):
                send(Message("k", "n", round))


@pytest.mark.parametrize(("length", "cut"), [(198, False), (199, True)])
def test_an_error_quotes_200_characters(length: int, cut: bool) -> None:
    """Of which two are quotation marks."""
    text = quoted("x" * length)
    assert text == ("'" + "x" * 199 + "…" if cut else "'" + "x" * 198 + "'")


@pytest.mark.parametrize(("size", "remembered"), [(8192, 1), (8193, 0)])
def test_a_layout_of_8192_bytes_is_remembered(size: int, remembered: int) -> None:
    """The name of the last tensor fills what 40 others leave."""
    usual = [[f"{number:02}".ljust(192, "x"), "<f8", [0]] for number in range(40)]
    rest = size - (len(layout(*usual, ["z" * 100, "<f8", [0]])) - 100)
    specifications = layout(*usual, ["z" * rest, "<f8", [0]])
    assert len(specifications) == size
    read_header(header(layout=specifications))
    before = _remembered_layout.cache_info().hits
    assert len(read_header(header(layout=specifications)).places) == 41
    assert _remembered_layout.cache_info().hits == before + remembered


def test_tensors_start_at_multiples_of_eight_bytes() -> None:
    tensors = {"a": np.arange(3, dtype=np.uint8), "b": np.arange(8, dtype=np.uint8), "c": np.array([1.5])}
    header, body = encode(Message("k", "n", None, {}, tensors))
    assert b"".join(body) == bytes([0, 1, 2]) + bytes(5) + bytes(range(8)) + np.array([1.5]).tobytes()
    assert [place.start for place in read_header(header).places] == [0, 8, 16]


def test_a_message_of_a_precision_handed_over_has_the_precision_of_a_received_one() -> None:
    message = Message("k", "n", None, {}, {"w": np.array([1.001], np.float32), "d": np.array([1.001])}, "bf16")
    there, _ = handed_over(message)
    assert there.tensors["w"].tolist() == [1.0]
    assert there.tensors["d"].tolist() == [1.001]
    assert handed_over(replace(message, precision=""))[0].tensors["w"] == np.float32(1.001)


def test_a_view_of_a_frozen_tensor_is_shared_and_of_foreign_memory_copied() -> None:
    """What is read-only to its owner, too, cannot change any more."""
    owner = frozen(Message("k", "n", None, {}, {"w": np.arange(4.0)})).tensors["w"]
    view = owner[1:]
    assert frozen(Message("k", "n", None, {}, {"w": view})).tensors["w"] is view
    foreign = np.frombuffer(bytearray(16), np.float64)
    assert frozen(Message("k", "n", None, {}, {"w": foreign})).tensors["w"] is not foreign
    unowned = np.arange(4.0)
    assert frozen(Message("k", "n", None, {}, {"w": unowned})).tensors["w"] is not unowned
    assert unowned.flags.writeable
