"""Messages: what goes in comes out, and nothing else is believed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rtagent.cluster.message import MessageError, pack, unpack

KINDS = st.sampled_from(["<f4", "<f8", "<i4", "<i8", "|u1", "|b1"])
SOME = arrays.arrays(KINDS, arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4))


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.none(), max_size=3),
       st.dictionaries(st.text(max_size=5), SOME, max_size=4))
def test_what_goes_in_comes_out(values, sent):  # type: ignore[no-untyped-def]
    message = unpack(pack(values, sent))
    assert message.values == values
    assert list(message.arrays) == list(sent)
    for name, each in sent.items():
        np.testing.assert_array_equal(message.arrays[name], each)
        assert message.arrays[name].dtype == each.dtype
        assert not message.arrays[name].flags.writeable


def test_arrays_with_gaps_travel_too() -> None:
    whole = np.arange(24).reshape(4, 6)
    np.testing.assert_array_equal(unpack(pack({}, {"a": whole[:, ::2]})).arrays["a"], whole[:, ::2])


@given(st.binary(max_size=300))
def test_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(MessageError):
        unpack(np.frombuffer(content, np.uint8))


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_message_is_read_or_refused_and_nothing_else(at: int, value: int) -> None:
    block = pack({"seq": 1}, {"a": np.arange(40.0), "b": np.ones((3, 2), np.uint8)})
    block[at % len(block)] = value
    try:
        unpack(block)
    except MessageError:
        return


@pytest.mark.parametrize("kind", [b'"|O1"', b'"u1,"', b'[",1]', b"\"f'4\""])
def test_other_kinds_of_elements_are_refused(kind: bytes) -> None:
    block = pack({}, {"a": np.zeros(8, np.uint8)})
    text = bytes(block).replace(b'"|u1"', kind, 1)
    with pytest.raises(MessageError):
        unpack(np.frombuffer(text, np.uint8).copy())
