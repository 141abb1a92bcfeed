"""Files of states and of the demonstration."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from rtagent.errors import UserError
from rtagent.recording import tape as tape_module
from rtagent.recording.recorder import Recorder, demonstration_file, next_state, states_folder
from rtagent.storage.demonstration_file import load_demonstration
from tests.recording.conftest import NOOP, Open


def test_states_are_numbered_on(recorder: Recorder, tmp_path: Path) -> None:
    folder = tmp_path / "states"
    assert recorder.save_state() == folder / "starfall-0001.state"
    (folder / "starfall-0041.state").write_bytes(b"x")
    (folder / "starfall-x.state").write_bytes(b"x")
    (folder / "other-0099.state").write_bytes(b"x")
    assert recorder.save_state() == folder / "starfall-0042.state"
    assert [path.name for path in recorder.saved] == ["starfall-0001.state", "starfall-0042.state"]
    with pytest.raises(UserError, match="cannot read the states"):
        next_state(tmp_path / "none", "x")


def test_each_stop_writes_all_that_was_recorded(recorder: Recorder, tmp_path: Path) -> None:
    recorder.stop()
    assert not (tmp_path / "fight.demo").exists()
    for episodes in (1, 2):
        recorder.start()
        assert recorder.recording
        recorder.player.step(NOOP)
        recorder.stop()
        assert not recorder.recording
        recorder.player.step(NOOP)
        taken = load_demonstration(tmp_path / "fight.demo")
        assert taken.episodes.tolist() == [0, 0, 1, 1][: 2 * episodes]
    (tmp_path / "fight.demo").unlink()
    recorder.stop()
    assert not (tmp_path / "fight.demo").exists()


def test_what_cannot_be_written_is_written_later(recorder: Recorder, tmp_path: Path) -> None:
    file = tmp_path / "fight.demo"
    file.mkdir()
    recorder.start()
    recorder.player.step(NOOP)
    with pytest.raises(UserError, match=r"cannot write the demonstration .*fight\.demo"):
        recorder.stop()
    file.rmdir()
    recorder.stop()
    taken = load_demonstration(file)
    assert len(taken.flags) == 2
    assert taken.cartridge.startswith("STARFALL ")


def test_where_no_episode_can_begin_nothing_is_recorded(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        failing = Mock(side_effect=UserError("reset() raised"))
        patch.setattr(recorder.player._adapter, "reset", failing)
        with pytest.raises(UserError, match="reset"):
            recorder.start()
    assert not recorder.recording
    recorder.player.step(NOOP)
    recorder.start()
    recorder.player.step(NOOP)
    recorder.stop()
    assert load_demonstration(tmp_path / "fight.demo").episodes.tolist() == [0, 0]


def test_what_is_not_asked_for_is_not_kept(play: Open) -> None:
    recorder = Recorder(play(), "x", None, None)
    with pytest.raises(UserError, match=r"--demonstration FILE\.demo names one"):
        recorder.start()
    with pytest.raises(UserError, match=r"--states DIR names one"):
        recorder.save_state()
    recorder.stop()


def test_a_full_tape_is_not_begun(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape_module, "MOST_TICKS", 1)
    with pytest.raises(UserError, match="is full"):
        recorder.start()


def test_places_are_checked_before_the_game(tmp_path: Path) -> None:
    assert states_folder(tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match=r"--states .*file: File exists"):
        states_folder(tmp_path / "file")
    assert demonstration_file(tmp_path / "a.demo", replace=False) == tmp_path / "a.demo"
    (tmp_path / "a.demo").write_text("x")
    with pytest.raises(UserError, match=r"a\.demo is there; --replace overwrites it"):
        demonstration_file(tmp_path / "a.demo", replace=False)
    assert demonstration_file(tmp_path / "a.demo", replace=True).read_text() == "x"
    for path, reason in {
        "a.txt": r"end in \.demo", "none/a.demo": "No such file", "file/a.demo": "Not a directory",
    }.items():
        with pytest.raises(UserError, match=reason):
            demonstration_file(tmp_path / path, replace=True)
    (tmp_path / "b.demo").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        demonstration_file(tmp_path / "b.demo", replace=True)
    assert sorted(os.listdir(tmp_path)) == ["a", "a.demo", "b.demo", "file"]
