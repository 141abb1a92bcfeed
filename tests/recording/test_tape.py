"""The content of a tape after episodes of every kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rtagent.memory.ledger import TERMINATED, TRUNCATED
from rtagent.recording import tape as tape_module
from rtagent.recording.tape import Tape
from rtagent.storage import demonstration_file
from rtagent.storage.demonstration_file import Demonstration, load_demonstration

FRAME = np.zeros((2, 2), np.uint8)


@pytest.fixture
def tape() -> Tape:
    return Tape("world", ("NOOP", "A"))


def saved(tape: Tape, folder: Path) -> Demonstration:
    path = folder / "x.demo"
    tape.save(path)
    return load_demonstration(path)


def test_an_episode_that_is_left_is_truncated(tape: Tape, tmp_path: Path) -> None:
    tape.begin(FRAME, 0)
    tape.add(FRAME + 1, 1, 0.5, 0)
    tape.add(FRAME + 2, 1, 0.0, TERMINATED)
    tape.begin(FRAME + 3, 0)
    tape.add(FRAME + 4, 0, -1.0, 0)
    assert (tape.ticks, tape.episodes) == (5, 2)
    tape.cut()
    assert (tape.ticks, tape.episodes) == (5, 2)
    demonstration = saved(tape, tmp_path)
    assert demonstration.environment == "world"
    assert demonstration.action_meanings == ("NOOP", "A")
    assert demonstration.frames[:, 0, 0].tolist() == [0, 1, 2, 3, 4]
    assert demonstration.actions.tolist() == [0, 1, 1, 0, 0]
    assert demonstration.rewards.tolist() == [0.0, 0.5, 0.0, 0.0, -1.0]
    assert demonstration.flags.tolist() == [0, 0, TERMINATED, 0, TRUNCATED]
    assert demonstration.episodes.tolist() == [0, 0, 0, 1, 1]


def test_a_reset_that_no_tick_follows_leaves_nothing(tape: Tape, tmp_path: Path) -> None:
    tape.begin(FRAME, 0)
    tape.begin(FRAME, 0)
    tape.cut()
    assert (tape.ticks, tape.episodes) == (0, 0)
    tape.begin(FRAME, 0)
    tape.add(FRAME, 1, 0.0, 0)
    tape.begin(FRAME, 0)
    tape.cut()
    assert saved(tape, tmp_path).episodes.tolist() == [0, 0]


def test_frames_are_copied(tape: Tape, tmp_path: Path) -> None:
    frame = FRAME.copy()
    tape.begin(frame, 0)
    frame[:] = 7
    tape.add(frame, 0, 0.0, 0)
    frame[:] = 9
    tape.cut()
    assert saved(tape, tmp_path).frames[:, 0, 0].tolist() == [0, 7]


def test_it_is_full_before_an_episode_would_not_fit(
    tape: Tape, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tape_module, "MOST_TICKS", 4)
    tape.begin(FRAME, 0)
    tape.add(FRAME, 0, 0.0, 0)
    assert not tape.full
    tape.add(FRAME, 0, 0.0, 0)
    assert tape.full


def test_what_fills_the_file_is_kept(
    tape: Tape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large pictures fill the file long before there are `MOST_TICKS`."""
    frame = np.zeros((64, 64), np.uint8)
    largest = demonstration_file._HEADER_ROOM + (1 << 17)
    monkeypatch.setattr(demonstration_file, "LARGEST", largest)
    tape.begin(frame, 0)
    while not tape.full:
        tape.add(frame, 1, 0.0, 0)
    tape.cut()
    assert 10 < len(saved(tape, tmp_path).frames) == tape.ticks < 33
