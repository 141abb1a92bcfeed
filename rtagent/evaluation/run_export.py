"""The ledger of a run with its frames, for other programs: a LeRobot dataset, or an MCAP file.

Both are written from a saved replay. In the dataset, an observation stands beside the action that
was executed after it, and its reward; in the file, each tick has what the ledger says of it.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import cv2
import numpy as np
import numpy.typing as npt

from rtagent.clock import NANO
from rtagent.env.observers import to_rgb
from rtagent.errors import UserError, reason_of
from rtagent.memory.ledger import TERMINATED, TRUNCATED
from rtagent.staggering.arbiter import Source
from rtagent.storage.replay_reading import SavedReplay, Stretch

Progress = Callable[[int], None]
Written = dict[str, int | float]

FIELDS = ("observed", "registered_ns", "lateness_ns", "weights_version", "episode", "worker")
LEAST_VIDEO = 64
"""Least pixels of a side of a video; smaller pictures are written as images."""


def to_lerobot(replay: SavedReplay, folder: Path, progress: Progress) -> Written:
    """Write a dataset with LeRobot's own writer (extra `lerobot`).

    Args:
        replay: to write.
        folder: of the dataset; must not be there.
        progress: told how many ticks are done.

    Returns:
        How many `episodes` and `frames`, and `fps`.

    Raises:
        UserError: the package is missing, or the dataset cannot be written.
    """
    if folder.exists():
        raise UserError(f"--out {folder}: it is there already")
    with _package("lerobot"):
        from lerobot.datasets.lerobot_dataset import LeRobotDataset
    fps = max(1, round(replay.rate_hz()))
    with _new_folder(folder):
        dataset = LeRobotDataset.create(
            f"rtagent/{folder.name}", fps=fps, root=folder, use_videos=replay.pictures,
            features=_features(replay),
        )
        episodes = frames = unsaved = 0
        previous: dict[str, Any] | None = None
        for stretch in replay.stretches(progress):
            for row, frame in zip(stretch.rows, stretch.frames, strict=True):
                if previous is not None:
                    dataset.add_frame(previous | _outcome(row) | {"task": replay.environment})
                    unsaved += 1
                previous = _observed(replay, frame)
            if stretch.ends:
                previous = None
                if unsaved:
                    dataset.save_episode()
                    episodes, frames, unsaved = episodes + 1, frames + unsaved, 0
        dataset.finalize()
    return {"episodes": episodes, "frames": frames, "fps": fps}


def _features(replay: SavedReplay) -> dict[str, dict[str, Any]]:
    action = next(replay.stretches()).rows["action"]
    seen: dict[str, Any] = {"dtype": "float32", "shape": replay.frame_shape, "names": None}
    if replay.pictures:
        shape, names = (*replay.frame_shape[:2], 3), ["height", "width", "channels"]
        # The encoder crashes on smaller pictures, and halves the sides of the colour planes.
        video = all(side >= LEAST_VIDEO and side % 2 == 0 for side in replay.frame_shape[:2])
        seen = {"dtype": "video" if video else "image", "shape": shape, "names": names}
    features = {_SEEN[replay.pictures]: seen}
    features["action"] = {"dtype": "float32", "shape": action.shape[1:] or (1,), "names": None}
    for name, dtype in _OUTCOME.items():
        features[name] = {"dtype": dtype, "shape": (1,), "names": None}
    return features


_SEEN = {True: "observation.image", False: "observation.state"}
_OUTCOME = {
    "next.reward": "float32", "next.done": "bool", "rtagent.delay_ticks": "int64",
    "rtagent.source": "int64",
}


def _observed(replay: SavedReplay, frame: npt.NDArray[Any]) -> dict[str, Any]:
    picture = replay.pictures
    return {_SEEN[picture]: to_rgb(frame) if picture else frame.astype(np.float32)}


def _outcome(row: np.void) -> dict[str, Any]:
    """The action executed after an observation, and its outcome; the delay is -1 if unknown."""
    delay = int(row["tick"] - row["observed"]) if row["observed"] >= 0 else -1
    return {
        "action": np.atleast_1d(row["action"]).astype(np.float32),
        "next.reward": np.array([row["reward"]], np.float32),
        "next.done": np.array([bool(row["flags"] & (TERMINATED | TRUNCATED))]),
        "rtagent.delay_ticks": np.array([delay], np.int64),
        "rtagent.source": np.array([row["source"]], np.int64),
    }


def to_mcap(replay: SavedReplay, path: Path, progress: Progress) -> Written:
    """Write an MCAP file with JSON messages (extra `mcap`): `/tick`, and `/frame` for pictures.

    Times are those of the run's monotonic clock. `/frame` has Foxglove's schema
    `foxglove.CompressedImage`, with PNG; a frame that is no picture stands in its tick.

    Args:
        replay: to write.
        path: of the file.
        progress: told how many ticks are done.

    Returns:
        How many `ticks`.

    Raises:
        UserError: the package is missing, or the file cannot be written.
    """
    with _package("mcap"):
        from mcap.writer import Writer
    ticks = 0
    with _replacing(path) as file:
        writer: Any = Writer(file)
        writer.start(profile="", library="rtagent")
        writer.add_metadata("rtagent", {"environment": replay.environment})
        tick, frame = (
            writer.register_channel(topic, "json", writer.register_schema(
                name, "jsonschema", json.dumps(schema).encode()
            ))
            for topic, name, schema in (
                ("/tick", "rtagent.Tick", {"type": "object"}),
                ("/frame", "foxglove.CompressedImage", _IMAGE),
            )
        )
        for stretch in replay.stretches(progress):
            for at, (message, picture) in _messages(replay, stretch):
                writer.add_message(tick, at, message, at)
                if picture is not None:
                    writer.add_message(frame, at, picture, at)
            ticks += len(stretch.rows)
        writer.finish()
    return {"ticks": ticks}


_IMAGE = {
    "type": "object",
    "properties": {
        "timestamp": {"type": "object", "properties": {
            "sec": {"type": "integer"}, "nsec": {"type": "integer"},
        }},
        "frame_id": {"type": "string"},
        "data": {"type": "string", "contentEncoding": "base64"},
        "format": {"type": "string"},
    },
}


def _messages(
    replay: SavedReplay, stretch: Stretch
) -> Iterator[tuple[int, tuple[bytes, bytes | None]]]:
    """The time of each tick, with the messages of the tick and of its picture."""
    for row, frame in zip(stretch.rows, stretch.frames, strict=True):
        at = int(row["time_ns"])
        said = {"tick": int(row["tick"]), "action": row["action"].tolist()}
        said |= {name: row[name].item() for name in FIELDS}
        said |= {
            "reward": float(row["reward"]), "source": Source(row["source"]).name.lower(),
            "terminated": bool(row["flags"] & TERMINATED),
            "truncated": bool(row["flags"] & TRUNCATED),
        }
        picture = None
        if replay.pictures:
            _, png = cv2.imencode(".png", to_rgb(frame)[:, :, ::-1])
            picture = json.dumps({
                "timestamp": {"sec": at // NANO, "nsec": at % NANO}, "frame_id": "agent",
                "data": base64.b64encode(png.tobytes()).decode(), "format": "png",
            }).encode()
        else:
            said["observation"] = frame.tolist()
        yield at, (json.dumps(said).encode(), picture)


@contextmanager
def _package(name: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise UserError(
            f"--format {name} needs the package {error.name or name}: pip install 'rtagent[{name}]'"
        ) from None


@contextmanager
def _new_folder(path: Path) -> Iterator[None]:
    """Remove the folder if the block raises; it did not exist before."""
    try:
        with _named(path):
            yield
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Gives a new file, which takes the name when it is whole: until then the old file keeps it."""
    draft = path.with_name(f".{path.name}.draft")
    with _named(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        try:
            # Of a killed export, or a link of another user, through which nothing is written.
            draft.unlink(missing_ok=True)
            with open(draft, "xb") as file:
                yield file
            os.replace(draft, path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn an error of writing into one line."""
    try:
        yield
    except OSError as error:
        raise UserError(f"--out {path}: {reason_of(error)}") from None
