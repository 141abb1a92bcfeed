"""What is written for TensorBoard, read back with TensorBoard's own reader."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing import event_accumulator as accumulator

from rtagent.files.append import append_whole
from rtagent.telemetry.tensorboard import scalar_record, version_record


def read(folder: Path, *records: bytes) -> Any:
    """What TensorBoard finds in a file of these records."""
    for each in records:
        append_whole(folder / "events.out.tfevents.1", each)
    found = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return found


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    found = read(
        tmp_path, version_record(1000.0), scalar_record(1001.5, 7, {"a/b": 1.25, "a/c": -3.0}),
        scalar_record(1002.5, 2**40, {"a/b": 2.5}),
    )
    assert [(e.wall_time, e.step, e.value) for e in found.Scalars("a/b")] == [
        (1001.5, 7, 1.25), (1002.5, 2**40, 2.5),
    ]
    assert [(e.step, e.value) for e in found.Scalars("a/c")] == [(7, -3.0)]
    assert found.file_version == 2.0


def test_a_tag_may_be_long_and_in_any_script(tmp_path: Path) -> None:
    tag = "ü" * 200
    assert read(tmp_path, scalar_record(1.0, 300, {tag: 1.0})).Scalars(tag)[0].step == 300


def test_a_damaged_record_is_noticed(tmp_path: Path) -> None:
    damaged = bytearray(scalar_record(2.0, 2, {"a": 2.0}))
    damaged[20] ^= 1
    found = read(tmp_path, scalar_record(1.0, 1, {"a": 1.0}), bytes(damaged))
    assert [e.step for e in found.Scalars("a")] == [1]


def test_what_a_float32_cannot_hold_is_shown_as_unknown(tmp_path: Path) -> None:
    found = read(tmp_path, scalar_record(1.0, 7, {"a": 3e38, "b": -3.5e38, "c": 1e300}))
    (known,), *unknown = (found.Scalars(tag) for tag in "abc")
    assert known.value == pytest.approx(3e38)
    assert [(e.step, isnan(e.value)) for each in unknown for e in each] == [(7, True)] * 2
