"""Messages: as openpi's client packs and reads them, and whatever else may arrive."""

from __future__ import annotations

import importlib
import pickle
import re
import sys
from contextlib import suppress

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpi_client import msgpack_numpy

from rtagent.errors import UserError
from rtagent.remote.protocol import ProtocolError, decode, encode
from tests.refused import one_line

ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((0, 7), np.float64),
    np.array([[[250]]], np.uint8), np.array(3, np.int64), np.array([True, False]),
    np.arange(8, dtype=">i2")[::2],
]


@pytest.mark.parametrize("array", ARRAYS, ids=str)
def test_what_one_side_packs_the_other_reads(array: np.ndarray) -> None:
    message = {"observation/image": array, "prompt": "fold", "nested": {"state": array, "n": [1]}}
    for read, packed in (
        (decode, msgpack_numpy.packb(message)), (msgpack_numpy.unpackb, encode(message)),
        (decode, encode(message)),
    ):
        found = read(packed)
        assert found["prompt"] == "fold"
        for each in (found["observation/image"], found["nested"]["state"]):
            np.testing.assert_array_equal(each, array)
            assert each.dtype == array.dtype


def test_the_bytes_of_an_array_are_those_of_the_protocol() -> None:
    assert encode({"a": np.array([1, 2], np.int16)}) == bytes.fromhex(
        "81 a161 84 c40b 5f5f6e6461727261795f5f c3 c404 64617461 c404 01000200"
        "c405 6474797065 a3 3c6932 c405 7368617065 91 02"
    )


def test_numbers_of_numpy_travel() -> None:
    assert decode(msgpack_numpy.packb({"infer_ms": np.float32(2.5)})) == {"infer_ms": 2.5}
    assert msgpack_numpy.unpackb(encode({"infer_ms": np.float64(2.5)})) == {"infer_ms": 2.5}


def array_map(**changes: object) -> bytes:
    whole = {
        b"__ndarray__": True, b"data": b"\0" * 8, b"dtype": "<f4", b"shape": [2],
        **{name.encode(): value for name, value in changes.items()},
    }
    return msgpack.packb({"a": whole})


def millions(part: bytes) -> bytes:
    """A list of so many small parts: they take long to read, and much memory."""
    return b"\x81\xa1a\xdd\x00\x10\x00\x00" + part * (1 << 20)


HOSTILE = {
    "text": ("Traceback ...\nValueError: no image", "the server says: ValueError: no image"),
    "empty": (b"", "no msgpack message"),
    "pickle": (pickle.dumps({"a": 1}), "no msgpack message"),
    "cut short": (array_map()[:-3], "no msgpack message"),
    "two messages": (array_map() * 2, "no msgpack message"),
    "no map": (msgpack.packb([1, 2]), "no map"),
    "names that are numbers": (b"\x81\x01\x02", "no msgpack message"),
    "endless nesting": (b"\x91" * 100_000, "no msgpack message"),
    "a length of 4 GB": (b"\x81\xa1a\xc6\xff\xff\xff\xff", "no msgpack message"),
    "a million maps": (millions(b"\x80"), "more than 16384 parts"),
    "a million lists": (millions(b"\x90"), "more than 16384 parts"),
    "a million extensions": (millions(b"\xd4\x05a"), "more than 16384 parts"),
    "a million names": (b"\xdf\x00\x10\x00\x00" + b"\xa1a\xc0" * (1 << 20), "no msgpack message"),
    "objects": (array_map(dtype="|O"), "'|O' is not taken"),
    "fields": (array_map(dtype="f4,f4"), "is not taken"),
    "fields of short names": (array_map(dtype="<i,i"), "is not taken"),
    "two of a comma": (array_map(dtype="<i4,"), "is not taken"),
    "a comma in quotes": (array_map(dtype="<i',"), "is not taken"),
    "a list of fields": (array_map(dtype=[["a", "<f4"]]), "is not taken"),
    "text of numpy": (array_map(dtype="<U2"), "is not taken"),
    "complex numbers": (array_map(dtype="<c8"), "is not taken"),
    "a deep list as dtype": (
        b"\x81\xa1a\x82\xc4\x0b__ndarray__\xc3\xc4\x05dtype" + b"\x91" * 1015 + b"\xc0",
        "no msgpack message",
    ),
    "a dtype that is none": (array_map(dtype="<f3"), "is not taken"),
    "more than there is": (array_map(shape=[3]), "with 8 bytes"),
    "less than there is": (array_map(shape=[1]), "with 8 bytes"),
    "far more": (array_map(shape=[1 << 62, 1 << 62]), "without data or shape"),
    "negative": (array_map(shape=[-2]), "without data or shape"),
    "a shape that is none": (array_map(shape="2"), "without data or shape"),
    "truth in the shape": (array_map(shape=[True, 2]), "without data or shape"),
    "forty dimensions": (array_map(shape=[1] * 40), "without data or shape"),
    "no data": (array_map(data=None), "without data or shape"),
    "a number that is none": (
        msgpack.packb({"a": {b"__npgeneric__": True, b"data": "x", b"dtype": "<f4"}}), "is none"
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_other_bytes_are_refused_in_one_line(name: str) -> None:
    data, reason = HOSTILE[name]
    with one_line(re.escape(reason), error=ProtocolError) as refused:
        decode(data)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "array", [np.array([object()]), np.array(["a"]), np.zeros(2, np.complex64)]
)
def test_arrays_of_other_kinds_are_not_sent(array: np.ndarray) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        encode({"a": array})


def test_without_its_package_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgpack", None)
    monkeypatch.delitem(sys.modules, "rtagent.remote.protocol")
    with pytest.raises(UserError, match=r"pip install 'rtagent\[remote\]'"):
        importlib.import_module("rtagent.remote.protocol")


LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=20)
KEYS = st.sampled_from([
    b"__ndarray__", b"__npgeneric__", b"data", b"dtype", b"shape", "data", "actions"
])
SHAPES = st.lists(st.integers(-2, 2**63), max_size=3)
TREES = st.recursive(
    LEAVES | SHAPES | st.sampled_from(["<f4", "|u1", "|O", "<M8", "|b1", "=i8", "<f2"]),
    lambda inner: st.dictionaries(KEYS, inner, max_size=5) | st.lists(inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["actions", "a"]), TREES, max_size=3))
def test_any_tree_is_read_or_refused(tree: dict[str, object]) -> None:
    with suppress(ProtocolError):
        assert isinstance(decode(msgpack.packb(tree)), dict)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(ProtocolError):
        decode(data)
