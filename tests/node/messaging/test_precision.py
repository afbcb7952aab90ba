"""Floats of two bytes in messages."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from node.errors import WireError
from node.messaging.precision import shortened, widened
from node.messaging.wire import Message, decode, encode, handed_over

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
BITS = np.random.default_rng(1).integers(0, 2**32, 20_000, dtype=np.uint32)
EDGES = np.array([0, -0.0, 1, 3.4e38, 65504, 1 + 2**-8, 1 + 3 * 2**-8], np.float32)
VALUES = np.concatenate([BITS.view(np.float32), EDGES])


@pytest.mark.parametrize("precision", TYPES)
def test_rounds_as_torch(precision: str) -> None:
    """Random bits: also infinities, NaN and subnormal numbers. fp16 rounds 65520 and above up to 65536."""
    values = VALUES if precision == "bf16" else VALUES[~(np.isfinite(VALUES) & (abs(VALUES) >= 65520))]
    expected = torch.from_numpy(values).to(TYPES[precision]).float().numpy()
    np.testing.assert_array_equal(widened(shortened(values, precision), precision), expected)


@pytest.mark.parametrize("send", [encode, handed_over])
def test_a_value_too_large_for_fp16_is_refused_by_the_sender(send: Callable[[Message], object]) -> None:
    tensors = {"a": np.ones(2, np.float32), "b": np.array([1, -7e4, np.inf, np.nan], np.float32)}
    words = r"'update', tensor 'b': -70000.*fp16"
    with pytest.raises(WireError, match=words):
        send(Message("update", "device-0", 1, {}, tensors, "fp16"))
    for fine in (tensors | {"b": tensors["b"][2:]}, {"b": np.array([65519], np.float32)}):
        send(Message("update", "device-0", 1, {}, fine, "fp16"))
    send(Message("update", "device-0", 1, {}, tensors, "bf16"))


@pytest.mark.parametrize("precision", TYPES)
def test_a_message_takes_two_bytes_for_a_float(precision: str) -> None:
    tensors = {
        "w": np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4).T,
        "scalar": np.array(np.float32(0.3)),
        "empty": np.empty((0, 3), np.float32),
        "count": np.array([7]),
        "double": np.array([0.1]),
    }
    message = Message("update", "device-0", 1, {"samples": 3}, tensors, precision)
    header, parts = encode(message)
    body = b"".join(parts)
    assert len(body) == 24 + 8 + 0 + 8 + 8
    received = decode([header, body])
    there, size = handed_over(message)
    assert size == len(header) + len(body)
    assert there.fields == received.fields == {"samples": 3}
    for name, values in tensors.items():
        for each in (received.tensors[name], there.tensors[name]):
            assert (each.dtype, each.shape, each.flags.writeable) == (values.dtype, values.shape, False)
            np.testing.assert_allclose(each, values, rtol=2**-8)
        np.testing.assert_array_equal(received.tensors[name], there.tensors[name])
    assert there.tensors["double"] == 0.1
