"""What a run saved, as an MCAP file and as a LeRobot dataset."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import cv2
import numpy as np
import pytest
from mcap.reader import make_reader

from rtagent.clock import NANO
from rtagent.errors import UserError
from rtagent.evaluation.run_export import to_lerobot, to_mcap
from rtagent.memory.ledger import COLUMNS
from rtagent.staggering.arbiter import Source
from rtagent.storage.replay_files import new_file
from rtagent.storage.replay_reading import SavedReplay
from rtagent.storage.replay_snapshot import MANIFEST, ReplayError, _crc
from rtagent.storage.signature import Signature
from tests.refused import one_line
from tests.stored_replay import CHUNK, PIXELS, SIGNATURE, VECTORS, Rings
from tests.stored_replay import small_chunks as small_chunks

TICKS = 45
"""Episodes of ten, and a half one."""


@pytest.fixture(params=["pictures", "vectors"])
def rings(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any, small_chunks: None
) -> Rings:
    """Saved in chunks of 16 ticks, so that episodes go across their edges."""
    rings = Rings(PIXELS if request.param == "pictures" else VECTORS)
    monkeypatch.setattr("tests.stored_replay.SIGNATURE", _signature(rings))
    rings.write(TICKS).save(tmp_path / "replay")
    return rings


def _signature(rings: Rings) -> Signature:
    blueprint = rings.blueprint
    shape = "x".join(map(str, (blueprint.frame_stack, *blueprint.frame_shape)))
    observation = f"{shape} {blueprint.frame_dtype} and 4 pending actions"
    return Signature(SIGNATURE.environment, "nature", observation, SIGNATURE.action)


def test_every_saved_tick_is_read_in_order(rings: Rings, tmp_path: Path) -> None:
    replay, told = SavedReplay(tmp_path), []
    stretches = list(replay.stretches(told.append))
    rows = np.concatenate([each.rows for each in stretches])
    frames = np.concatenate([each.frames for each in stretches])
    assert (rows == rings.ledger.read(0, TICKS)).all()
    assert (frames == rings.frames.frames[:TICKS]).all()
    assert sum(told) == TICKS
    ends = [int(each.rows["tick"][-1]) for each in stretches if each.ends]
    assert ends == [9, 19, 29, 39, 44]


def test_a_torn_tick_ends_an_episode(rings: Rings, tmp_path: Path) -> None:
    rings.frames.stamps[5] = -1
    rings.save(tmp_path / "other")
    ends = [int(s.rows["tick"][-1]) for s in SavedReplay(tmp_path / "other").stretches() if s.ends]
    assert ends == [4, 9, 19, 29, 39, 44]


def test_mcap(rings: Rings, tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    assert to_mcap(SavedReplay(tmp_path), path, lambda _: None) == {"ticks": TICKS}
    with open(path, "rb") as file:
        found = list(make_reader(file).iter_messages(log_time_order=False))
    ticks = [json.loads(m.data) for _, channel, m in found if channel.topic == "/tick"]
    rows = rings.ledger.read(0, TICKS)
    assert [each["tick"] for each in ticks] == list(range(TICKS))
    assert [each["action"] for each in ticks] == rows["action"].tolist()
    assert [each["terminated"] for each in ticks] == (rows["flags"] == 1).tolist()
    assert ticks[3]["source"] == "agent"
    pictures = [json.loads(m.data) for _, channel, m in found if channel.topic == "/frame"]
    if rings.blueprint is VECTORS:
        assert ticks[7]["observation"] == rings.frames.frames[7].tolist()
        assert not pictures
        return
    png = np.frombuffer(base64.b64decode(pictures[7]["data"]), np.uint8)
    assert (cv2.imdecode(png, cv2.IMREAD_GRAYSCALE) == rings.frames.frames[7]).all()


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(("demonstrated", "live"), [(0, CHUNK + 1), (12, 4)])
def test_the_rate_is_that_of_the_newest_ticks_that_tell_it(
    tmp_path: Path, demonstrated: int, live: int
) -> None:
    """The newest chunk may have one tick, or mostly demonstrated ones, which have one time."""
    rings = Rings()
    for tick in range(demonstrated + live):
        since = max(0, tick - demonstrated)
        rings.ledger.write(
            tick, observed=-1, time_ns=5 * NANO + since * NANO // 50, registered_ns=0,
            lateness_ns=0, reward=0.0, weights_version=-1, episode=int(tick >= demonstrated),
            worker=-1, source=Source.DEFAULT, flags=0, action=0,
        )
        rings.publish(tick)
    rings.save(tmp_path / "replay")
    assert SavedReplay(tmp_path).rate_hz() == pytest.approx(50.0)


def test_a_replay_of_one_tick_has_no_rate(tmp_path: Path) -> None:
    Rings().write(1).save(tmp_path / "replay")
    with pytest.raises(ReplayError, match="too few ticks"):
        SavedReplay(tmp_path).rate_hz()


class Dataset:
    """Stands in for LeRobot's writer."""

    made: Dataset

    @classmethod
    def create(cls, repo_id: str, **arguments: Any) -> Dataset:
        cls.made = self = cls()
        self.arguments, self.episodes, self.pending = arguments, [], []
        self.finalized = False
        return self

    def add_frame(self, frame: dict[str, Any]) -> None:
        for name, feature in self.arguments["features"].items():
            value = frame[name]
            assert value.shape == tuple(feature["shape"]), name
            if feature["dtype"] not in ("image", "video"):
                assert value.dtype == feature["dtype"], name
        assert set(frame) == {*self.arguments["features"], "task"}
        self.pending.append(frame)

    def save_episode(self) -> None:
        self.episodes.append(self.pending)
        self.pending = []

    def finalize(self) -> None:
        self.finalized = True


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("lerobot.datasets.lerobot_dataset")
    module.LeRobotDataset = Dataset
    for name in ("lerobot", "lerobot.datasets"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.usefixtures("stand_in")
def test_an_observation_stands_beside_the_action_after_it(rings: Rings, tmp_path: Path) -> None:
    replay = SavedReplay(tmp_path)
    replay.rate_hz = lambda: 59.7  # type: ignore[method-assign]
    assert to_lerobot(replay, tmp_path / "set", lambda _: None) == {
        "episodes": 5, "frames": TICKS - 5, "fps": 60,
    }
    made = Dataset.made
    assert made.finalized
    assert [len(each) for each in made.episodes] == [9, 9, 9, 9, 4]
    third, row = made.episodes[1][3], rings.ledger.read(14, 15)[0]
    assert third["action"].tolist() == np.atleast_1d(row["action"]).tolist()
    assert third["next.reward"] == row["reward"]
    frame, blueprint = rings.frames.frames[13], rings.blueprint
    if blueprint is VECTORS:
        assert (third["observation.state"] == frame).all()
    else:
        assert (third["observation.image"] == frame[:, :, None]).all()
    assert third["rtagent.delay_ticks"] == row["tick"] - row["observed"]
    assert third["task"] == "Game-v0"
    assert [each[-1]["next.done"].item() for each in made.episodes] == [
        True, False, False, True, False
    ]


def test_a_missing_package_is_one_line(
    rings: Rings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = SavedReplay(tmp_path)
    monkeypatch.setitem(sys.modules, "lerobot", None)
    monkeypatch.setitem(sys.modules, "mcap", None)
    monkeypatch.setitem(sys.modules, "mcap.writer", None)
    for write, name in ((to_lerobot, "lerobot"), (to_mcap, "mcap")):
        with pytest.raises(UserError, match=rf"needs the package .* 'rtagent\[{name}\]'"):
            write(replay, tmp_path / "out", lambda _: None)


def test_a_folder_of_that_name_keeps_what_is_in_it(rings: Rings, tmp_path: Path) -> None:
    folder = tmp_path / "mine.mcap"
    folder.mkdir()
    (folder / "dear.txt").write_text("mine")
    with pytest.raises(UserError, match=r"^--out .*mine\.mcap: .*[Dd]irectory"):
        to_mcap(SavedReplay(tmp_path), folder, lambda _: None)
    assert (folder / "dear.txt").read_text() == "mine"


def test_a_link_that_somebody_put_there_is_not_written_through(
    rings: Rings, tmp_path: Path
) -> None:
    """In a folder that several users share."""
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / ".run.mcap.draft").symlink_to(mine)
    to_mcap(SavedReplay(tmp_path), tmp_path / "run.mcap", lambda _: None)
    assert mine.read_text() == "mine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["mine", "replay", "run.mcap"]


def test_a_file_of_that_name_stays_until_the_new_one_is_whole(
    rings: Rings, tmp_path: Path
) -> None:
    path = tmp_path / "run.mcap"
    path.write_text("of yesterday")
    last = SavedReplay(tmp_path).manifest.chunks[-1].file
    with open(tmp_path / "replay" / last, "r+b") as file:
        file.write(b"x")
    with pytest.raises(ReplayError, match="checksum"):
        to_mcap(SavedReplay(tmp_path), path, lambda _: None)
    assert path.read_text() == "of yesterday"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["replay", "run.mcap"]


def test_a_folder_without_a_replay_and_one_that_is_damaged(rings: Rings, tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match=r"run\.checkpoint_replay=true"):
        SavedReplay(tmp_path / "nothing")
    chunk = sorted((tmp_path / "replay").glob("ticks-*"))[1]
    chunk.write_bytes(chunk.read_bytes()[:-9])
    with pytest.raises(ReplayError, match="wrong checksum"):
        list(SavedReplay(tmp_path).stretches())
    out = tmp_path / "run.mcap"
    with pytest.raises(ReplayError):
        to_mcap(SavedReplay(tmp_path), out, lambda _: None)
    assert not out.exists()


@pytest.mark.parametrize(
    "row",
    [
        "<i8", "5", [("tick", "<i8")], COLUMNS, [*COLUMNS, ("action", "<U3")],
        [*COLUMNS[:7], ("episode", "<U4"), *COLUMNS[8:], ("action", "<i4")],
        [*COLUMNS, ("action", "<i4", (10**13,))], "(" * 5000, (),
    ],
    ids=lambda row: str(row)[-40:],
)
def test_a_chunk_of_another_layout_is_damaged(rings: Rings, tmp_path: Path, row: Any) -> None:
    """As another program may have written it, with a right checksum."""
    path = sorted((tmp_path / "replay").glob("ticks-*"))[1]
    with new_file(path, {"row": row if row == "(" * 5000 else repr(row)}) as put:
        put(np.zeros(1 << 16, np.uint8))
    with pytest.raises(ReplayError, match=path.name):
        list(SavedReplay(tmp_path).stretches())


def test_the_export_of_rows_of_another_version_says_so(rings: Rings, tmp_path: Path) -> None:
    """It said that they are not those of a ledger."""
    path = min((tmp_path / "replay").glob("ticks-*"))
    with new_file(path, {"row": repr([*COLUMNS[:11], *COLUMNS[13:], ("action", "<i4")])}) as put:
        put(np.zeros(1 << 16, np.uint8))
    with one_line("rows are those of another version of rtagent", error=ReplayError):
        list(SavedReplay(tmp_path).stretches())


def test_a_frame_whose_sides_are_no_numbers_that_fit_is_refused(
    rings: Rings, tmp_path: Path
) -> None:
    path = tmp_path / "replay" / MANIFEST
    content = json.loads(path.read_text())["replay"]
    content["signature"]["observation"] = f"4x{'9' * 5000} uint8"
    path.write_text(json.dumps({"crc32": f"{_crc(content):08x}", "replay": content}))
    with pytest.raises(ReplayError, match="observations of"):
        SavedReplay(tmp_path)


@pytest.mark.parametrize(("column", "value"), [("source", 200), ("time_ns", -1)])
def test_rows_that_no_world_writes_are_damaged(
    rings: Rings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str, value: int
) -> None:
    def altered(first: int, stop: int) -> Any:
        rows = read(first, stop)
        rows[column][-1] = value
        return rows

    read = rings.ledger.read
    monkeypatch.setattr(rings.ledger, "read", altered)
    rings.save(tmp_path / "other")
    with pytest.raises(ReplayError, match="rows are not those of a ledger"):
        to_mcap(SavedReplay(tmp_path / "other"), tmp_path / "run.mcap", lambda _: None)


def test_frames_that_no_machine_has_memory_for_are_damaged(rings: Rings, tmp_path: Path) -> None:
    replay = SavedReplay(tmp_path)
    replay.frame_shape = (10**15,)
    with pytest.raises(ReplayError, match="Unable to allocate"):
        list(replay.stretches())


@pytest.mark.slow
def test_lerobot_itself_reads_it(rings: Rings, tmp_path: Path) -> None:
    """Needs the extra `lerobot`."""
    module = pytest.importorskip("lerobot.datasets.lerobot_dataset")
    replay = SavedReplay(tmp_path)
    replay.rate_hz = lambda: 59.7  # type: ignore[method-assign]
    to_lerobot(replay, tmp_path / "set", lambda _: None)
    meta = module.LeRobotDatasetMetadata("rtagent/set", root=tmp_path / "set")
    assert (meta.total_episodes, meta.total_frames, meta.fps) == (5, TICKS - 5, 60)
    assert meta.info["codebase_version"].startswith("v3")
