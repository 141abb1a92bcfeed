"""The file of a demonstration: what was recorded comes back, and nothing else does."""

from __future__ import annotations

import json
import os
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from rtagent.errors import UserError
from rtagent.memory.ledger import TERMINATED, TRUNCATED
from rtagent.storage import demonstration_file as module
from rtagent.storage.demonstration_file import (
    LARGEST,
    Demonstration,
    DemonstrationWriter,
    load_demonstration,
    outline_of,
    save_demonstration,
)
from tests.recorded import demonstration
from tests.refused import one_line
from tests.storage.damaged import each_byte_damaged

VECTORS = {
    "frames": np.linspace(-1, 1, 36, dtype=np.float32).reshape(12, 3),
    "actions": np.linspace(0, 1, 24, dtype=np.float32).reshape(12, 2),
    "action_meanings": (),
}


def assert_same(mine: Demonstration, other: Demonstration) -> None:
    for field in fields(Demonstration):
        left, right = getattr(mine, field.name), getattr(other, field.name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)
        else:
            assert left == right


def reason(path: Path) -> str:
    """Why a file is refused, in one line that names it."""
    with one_line(re.escape(str(path))) as caught:
        load_demonstration(path)
    return str(caught.value)


@pytest.mark.parametrize(
    "changes", [{}, VECTORS, {"cartridge": "RED 00"}], ids=["pictures", "vectors", "cartridge"]
)
def test_there_and_back(tmp_path: Path, changes: dict[str, Any]) -> None:
    recorded = demonstration(**changes)
    path = tmp_path / "play.demo"
    save_demonstration(path, recorded)
    assert_same(load_demonstration(path), recorded)
    assert outline_of(path) == recorded.outline
    assert [each.name for each in tmp_path.iterdir()] == ["play.demo"]


def test_a_file_that_names_no_cartridge_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As older ones."""
    dumps = json.dumps
    monkeypatch.setattr(module.json, "dumps", lambda about: dumps(
        {name: value for name, value in about.items() if name != "cartridge"}
    ))
    path = tmp_path / "play.demo"
    save_demonstration(path, demonstration(cartridge="RED 00"))
    assert load_demonstration(path).cartridge == ""


def test_the_writer_gathers_ticks(tmp_path: Path) -> None:
    writer = DemonstrationWriter("Game-v0", ("NOOP", "LEFT", "RIGHT"))
    recorded = demonstration()
    frame = np.empty((6, 5), np.uint8)
    columns = (recorded.actions, recorded.rewards, recorded.flags, recorded.episodes)
    for at in range(12):
        # The adapter's frame is the same memory at every tick.
        frame[:] = recorded.frames[at]
        writer.add(frame, *(column[at].item() for column in columns))
    assert writer.ticks == 12
    writer.save(tmp_path / "play.demo")
    assert_same(load_demonstration(tmp_path / "play.demo"), recorded)


def test_the_writer_takes_vectors() -> None:
    writer = DemonstrationWriter("Car-v0")
    action = np.zeros(2, np.float32)
    for tick in range(3):
        action[:] = tick
        writer.add(np.ones(4, np.float32), action, 0.5, TRUNCATED if tick == 2 else 0, 4)
    recorded = writer.demonstration()
    assert recorded.actions.tolist() == [[0, 0], [1, 1], [2, 2]]
    assert recorded.outline == module.Outline("Car-v0", 3, (4,), "float32", (2,), "float32", ())


def test_the_writer_stops_before_a_file_would_be_too_large(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "LARGEST", (1 << 20) + 5000)
    writer = DemonstrationWriter("Game-v0")
    while writer.has_room(1):
        writer.add(np.zeros(1000, np.uint8), 0, 0.0, 0, 0)
    assert writer.ticks == 4
    with pytest.raises(UserError, match="4 ticks are recorded"):
        writer.add(np.zeros(1000, np.uint8), 0, 0.0, 0, 0)
    writer.save(tmp_path / "long.demo")
    assert load_demonstration(tmp_path / "long.demo").outline.ticks == 4


def test_nothing_recorded_is_no_demonstration() -> None:
    with pytest.raises(UserError, match="at least one tick"):
        DemonstrationWriter("Game-v0").demonstration()


@pytest.mark.parametrize(("changes", "words"), [
    ({"rewards": np.full(12, np.nan, np.float32)}, "rewards are not all finite"),
    ({"rewards": np.zeros(11, np.float32)}, "differ in length"),
    ({"rewards": np.zeros((12, 2), np.float32)}, "rewards have the shape"),
    ({"rewards": np.zeros(12)}, "rewards are float64"),
    ({"frames": np.zeros((12, 6, 5), np.int64)}, "frames are int64"),
    ({"frames": np.zeros(12, np.uint8)}, "frames have the shape"),
    ({"frames": np.full((12, 3), np.inf, np.float32)}, "frames are not all finite"),
    ({"actions": np.full(12, -1, np.int32)}, "actions go from -1"),
    ({"actions": np.full(12, 3, np.int32)}, "actions go from 3 to 3; it has 3"),
    ({"actions": np.zeros((12, 2), np.int32)}, r"have the shape \(12, 2\)"),
    ({"actions": np.zeros(12, np.float32)}, r"have the shape \(12,\)"),
    ({"actions": np.full((12, 2), np.nan, np.float32)}, "actions are not all finite"),
    ({"flags": np.full(12, 4, np.uint8)}, "flags are not"),
    ({"flags": np.full(12, TERMINATED, np.uint8)}, "goes on after its end"),
    ({"episodes": np.arange(12)[::-1].copy()}, "decrease"),
    ({"episodes": np.full(12, -1)}, "decrease"),
    ({"frames": np.zeros((0, 6, 5), np.uint8)}, "differ in length"),
])
def test_columns_that_are_no_demonstration(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        demonstration(**changes)


def test_an_empty_one_is_no_demonstration() -> None:
    whole, names = demonstration(), ("frames", "actions", "rewards", "flags", "episodes")
    with pytest.raises(UserError, match="no ticks"):
        replace(whole, **{name: getattr(whole, name)[:0] for name in names})


def test_files_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "play.demo"
    for content in (b"", b"rtreplay" + bytes(200), b"\xff" * 64, bytes(8)):
        path.write_bytes(content)
        assert "damaged" in reason(path)
    save_file({"frames": np.zeros(3, np.uint8)}, path)
    assert "no demonstration" in reason(path)
    about = '{"format": 1, "environment": "Game-v0", "action_meanings": []}'
    save_file({"frames": np.zeros(3, np.uint8)}, path, {"rtagent-demonstration": about})
    assert "damaged" in reason(path)
    save_file({}, path, {"rtagent-demonstration": '{"format": 2}'})
    assert "it has format 2, and this version reads 1: use the version that" in reason(path)
    save_file({}, path, {"rtagent-demonstration": "[" * 100_000})
    assert "damaged" in reason(path)
    whole = demonstration()
    columns = {name: getattr(whole, name) for name in ("frames", "actions", "flags", "episodes")}
    columns["rewards"] = np.zeros((), np.float32)
    save_file(columns, path, {"rtagent-demonstration": about})
    assert "damaged" in reason(path)
    object.__setattr__(whole, "rewards", np.full(12, np.nan, np.float32))
    save_demonstration(path, whole)
    assert "rewards are not all finite" in reason(path)


def test_files_that_are_not_there_or_no_files_or_giants(tmp_path: Path) -> None:
    assert "No such file" in reason(tmp_path / "absent.demo")
    assert "not a file" in reason(tmp_path)
    os.mkfifo(tmp_path / "pipe.demo")
    assert "not a file" in reason(tmp_path / "pipe.demo")
    path = tmp_path / "giant.demo"
    path.touch()
    os.truncate(path, 10 << 30)
    assert f"10240 MiB, and {LARGEST >> 20} MiB are the most" in reason(path)


def test_every_flipped_byte_and_every_cut_is_found(tmp_path: Path) -> None:
    path = tmp_path / "play.demo"
    save_demonstration(path, demonstration((2, 1)))
    whole = path.read_bytes()
    for _ in each_byte_damaged(path):
        reason(path)
    for stop in range(0, len(whole), 7):
        path.write_bytes(whole[:stop])
        reason(path)


def test_what_cannot_be_written_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "play.demo"
    save_demonstration(path, demonstration())
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"ends in \.demo"):
        save_demonstration(tmp_path / "play.npz", demonstration())
    with pytest.raises(UserError, match="cannot write the demonstration"):
        save_demonstration(tmp_path / "absent" / "play.demo", demonstration())
    monkeypatch.setattr(module, "LARGEST", 100)
    with pytest.raises(UserError, match="may have"):
        save_demonstration(path, demonstration(seed=1))
    assert path.read_bytes() == before
