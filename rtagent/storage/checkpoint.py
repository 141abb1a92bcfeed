"""Checkpoints: one safetensors file each, whole or not there, and checked before use.

Why it is correct. A checkpoint is there whole or not at all (`atomic_write.py`); a crash at any
instant leaves the older ones as they were. A CRC32 over metadata and tensors finds what the disk
did to it later. The number in a name says which checkpoint is the newest: the wall clock, and with
it the time of a file, may be set back between two checkpoints. Only numpy is needed here, so the
supervisor can check a checkpoint before it starts anything.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from rtagent.errors import UserError, reason_of
from rtagent.files.atomic_write import atomic_write, remove_drafts
from rtagent.files.pruning import prune
from rtagent.files.regular_file import open_regular
from rtagent.memory.arena import available_memory
from rtagent.storage.signature import Signature

FORMAT = 1
KEEP = 3
BEST = "best.safetensors"
"""A second name of the checkpoint with the best score so far, which is never removed; a copy where
the file system has no second names."""
WRITE_STEP = 8 << 20

Arrays = Mapping[str, npt.NDArray[Any]]

_NAME = re.compile(r"checkpoint-(?:(\d{6,})-)?(\d{12,})\.safetensors")
"""Number of the checkpoint (older versions gave it none), and updates behind it."""
_UNEXPECTED = (AttributeError, KeyError, TypeError, ValueError, RecursionError)
"""What may be raised by reading values that another program may have written."""


class CheckpointError(UserError):
    """A checkpoint cannot be written, read or used."""


class CorruptCheckpoint(CheckpointError):
    """A checkpoint is damaged, or is none."""


@dataclass(frozen=True)
class Counters:
    """How far learning had come.

    Attributes:
        updates: gradient steps.
        samples_consumed: transitions used by them.
        weights_version: of the newest publication.
    """

    updates: int = 0
    samples_consumed: int = 0
    weights_version: int = 0


@dataclass(frozen=True)
class Score:
    """How well the policy of a checkpoint played just before it was written.

    Attributes:
        mean_return: of the last episodes, undiscounted.
        episodes: how many they are.
        kind: `evaluation`: greedy, in a paused world, by weights that are up to
            `learning.evaluation_every_s` older; `live`: on the wall clock, with exploration.
    """

    mean_return: float
    episodes: int
    kind: str

    def __post_init__(self) -> None:
        number = ("mean_return", self.mean_return, float | int)
        _check_types(number, ("episodes", self.episodes, int), ("kind", self.kind, str))

    def beats(self, other: Score | None) -> bool:
        """Whether it is finite and at least as good; an evaluation always beats live episodes."""
        finite = abs(self.mean_return) < math.inf
        # Nothing is at least as good as NaN.
        if other is None or not abs(other.mean_return) < math.inf:
            return finite
        if self.kind != other.kind:
            return finite and self.kind == "evaluation"
        return finite and self.mean_return >= other.mean_return


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in memory.

    Attributes:
        signature: what it fits.
        counters: how far learning had come.
        tensors: `online.<name>`, `target.<name>` and the optimizer's, as numpy arrays.
        score: of its policy. If None, not known.
        run: what the run was made of, see `telemetry/run_record.py`; {}: not known.
    """

    signature: Signature
    counters: Counters
    tensors: Arrays
    score: Score | None = None
    run: Mapping[str, Any] = field(default_factory=dict)


def save(
    folder: Path, checkpoint: Checkpoint, *, keep: int = KEEP, most_bytes: int = sys.maxsize,
    progress: Callable[[], None] = lambda: None,
) -> Path:
    """Write a checkpoint and remove the oldest ones, never the new one.

    Args:
        folder: made if it is not there.
        keep: checkpoints that remain at most.
        most_bytes: that the remaining ones have together, unless the new one alone has more.
        progress: called between pieces of the work, for the heartbeat.

    Returns:
        The new file.

    Raises:
        CheckpointError: it cannot be written, and the older ones are as they were; or it is
            written, and cannot become the best one.
    """
    score, fits = checkpoint.score, asdict(checkpoint.signature)
    values = {
        "format": FORMAT, "signature": fits,
        "counters": asdict(checkpoint.counters), "score": score and asdict(score),
        "run": checkpoint.run,
    }
    about = json.dumps(values, sort_keys=True)
    tensors = dict(sorted(checkpoint.tensors.items()))
    crc = checksum(about, tensors, progress)
    payload = to_bytes(tensors, {"rtagent": about, "crc32": f"{crc:08x}"})
    progress()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        number = 1 + max((order for order, _, _ in _numbered(folder)), default=0)
        path = folder / f"checkpoint-{number:06d}-{checkpoint.counters.updates:012d}.safetensors"
        with atomic_write(path, ".checkpoint-") as write:
            for at in range(0, len(payload), WRITE_STEP):
                write(memoryview(payload)[at : at + WRITE_STEP])
                progress()
        progress()
        # Before the best gets its name, which may take a disk's last space where it is a copy.
        prune([path for _, _, path in reversed(_numbered(folder))], keep, most_bytes)
    except OSError as error:
        raise CheckpointError(
            f"cannot write a checkpoint into {folder}: {reason_of(error)}; earlier checkpoints are "
            "as they were"
        ) from error
    if score is not None and score.beats(_best_score(folder, fits)):
        try:
            _name_best(path, progress)
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint {path} is written, but cannot become {BEST}: {reason_of(error)}"
            ) from error
    return path


def listing(folder: Path) -> list[dict[str, Any]]:
    """The checkpoints of a folder, newest first: file, updates, bytes, age_s, best.

    Raises:
        CheckpointError: the folder cannot be read.
    """
    numbered, best = _numbered(folder), None
    with suppress(FileNotFoundError):
        # The best checkpoint has two names and one time; a copy of it is given that time, too.
        found = (folder / BEST).stat()
        best = found.st_size, found.st_mtime_ns
    # A file's time is on the wall clock, so its age can only be told from there.
    now = time.clock_gettime(time.CLOCK_REALTIME)
    listed = []
    for _, updates, path in reversed(numbered):
        # The oldest is removed whenever a new one is written.
        with suppress(FileNotFoundError):
            about = path.stat()
            listed.append({
                "file": path.name, "updates": updates, "bytes": about.st_size,
                "age_s": max(0.0, now - about.st_mtime),
                "best": best == (about.st_size, about.st_mtime_ns),
            })
    return listed


def newest(folder: Path) -> Path | None:
    """The checkpoint written last; None if there is none.

    Raises:
        CheckpointError: the folder cannot be read.
    """
    found = _numbered(folder)
    return found[-1][2] if found else None


def newest_usable(
    folder: Path, wanted: Signature
) -> tuple[tuple[Path, Checkpoint] | None, list[str]]:
    """The newest checkpoint that is whole; older ones are tried where it is not.

    Returns:
        The file and what it holds, None if there is none; and why newer ones were passed over.

    Raises:
        CheckpointError: it belongs to something else, none is whole, or the folder cannot be read.
    """
    passed: list[str] = []
    for _, _, path in reversed(_numbered(folder)):
        try:
            return (path, check(path, wanted)), passed
        except CorruptCheckpoint as error:
            passed.append(str(error))
    if passed:
        raise CorruptCheckpoint(passed[0])
    return None, passed


def load(path: Path) -> Checkpoint:
    """Read a checkpoint and check that it is whole.

    Raises:
        CheckpointError: it is corrupt, or of another version of the format.
    """
    try:
        # To open a pipe would wait, and a file with holes may claim any size.
        open_regular(path, available_memory()).close()
        with safe_open(str(path), framework="np") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
        about = metadata["rtagent"]
        crc = int(metadata["crc32"], 16)
    except FileNotFoundError:
        raise CorruptCheckpoint(f"the checkpoint {path} is gone") from None
    except (OSError, SafetensorError, MemoryError, *_UNEXPECTED) as error:
        reason = reason_of(error)
        raise CorruptCheckpoint(f"{path} is no checkpoint, or is corrupt ({reason})") from error
    if checksum(about, tensors) != crc:
        raise CorruptCheckpoint(f"the checkpoint {path} is corrupt (wrong checksum)")
    try:
        values = json.loads(about)
        if values["format"] != FORMAT:
            raise CheckpointError(
                f"the checkpoint {path} has format {values['format']}, and this version reads "
                f"{FORMAT}: use the version that wrote it"
            )
        # Older versions wrote neither.
        score, run = values.get("score"), values.get("run", {})
        checkpoint = Checkpoint(
            Signature(**values["signature"]), Counters(**values["counters"]), tensors,
            None if score is None else Score(**score), run,
        )
        _check_values(checkpoint)
        return checkpoint
    except _UNEXPECTED as error:
        raise CorruptCheckpoint(f"the checkpoint {path} is corrupt ({error})") from error


def _check_values(checkpoint: Checkpoint) -> None:
    """Raise a ValueError for what no version of this program writes."""
    counters = asdict(checkpoint.counters)
    _check_types(
        *((name, value, str) for name, value in asdict(checkpoint.signature).items()),
        *((name, value, int) for name, value in counters.items()), ("run", checkpoint.run, dict),
    )
    for name, value in counters.items():
        if not 0 <= value < 2**63:
            raise ValueError(f"{name} = {value}")
    for name, tensor in checkpoint.tensors.items():
        if tensor.dtype != np.float32 and tensor.dtype.kind not in "iub":
            raise ValueError(f"the tensor {name[:80]!r} is of type {tensor.dtype}")


def _check_types(*expected: tuple[str, Any, type | UnionType]) -> None:
    """Raise a ValueError for a value that is of another type, or a truth value."""
    for name, value, kind in expected:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"{name} is a {type(value).__name__}")


def check(path: Path, wanted: Signature) -> Checkpoint:
    """Read a checkpoint that must fit this run; raises as `load` and `match` do."""
    checkpoint = load(path)
    match(checkpoint, wanted, path)
    return checkpoint


def match(checkpoint: Checkpoint, wanted: Signature, path: Path) -> None:
    """Raise a CheckpointError, which names the path, if a checkpoint does not fit this run."""
    for name, mine in asdict(wanted).items():
        theirs = getattr(checkpoint.signature, name)
        if theirs != mine:
            raise CheckpointError(
                f"the checkpoint {path} belongs to the {name} {theirs}, not {mine}"
            )


def _numbered(folder: Path) -> list[tuple[int, int, Path]]:
    """Number, updates and path of the checkpoints of a folder, oldest first.

    Not by their updates: a run that started anew in the same folder counts them from 0.

    Raises:
        CheckpointError: the folder is there, and cannot be read.
    """
    try:
        found = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(
            f"cannot read the checkpoints in {folder}: {reason_of(error)}"
        ) from error
    return sorted((int(name[1] or 0), int(name[2]), path) for name, path in found if name)


def _best_score(folder: Path, signature: dict[str, Any]) -> Score | None:
    """The score of the best checkpoint so far; None if there is none that can be read, or it is of
    another environment or network."""
    try:
        open_regular(folder / BEST).close()
        with safe_open(str(folder / BEST), framework="np") as file:
            about = json.loads((file.metadata() or {})["rtagent"])
        return Score(**about["score"]) if about["signature"] == signature else None
    except (OSError, SafetensorError, *_UNEXPECTED):
        return None


def _name_best(path: Path, progress: Callable[[], None]) -> None:
    """Give a checkpoint the name of the best one, in place of the one that has it."""
    draft, best = path.with_name(f".best-{path.name}"), path.with_name(BEST)
    remove_drafts(path.parent, ".best-")
    try:
        os.link(path, draft)
    except OSError:
        # Not every file system lets a file have a second name; then the best one is a copy.
        with open(path, "rb") as file, atomic_write(best, ".best-") as write:
            while piece := file.read(WRITE_STEP):
                write(piece)
                progress()
        about = path.stat()
        os.utime(best, ns=(about.st_atime_ns, about.st_mtime_ns))
    else:
        os.replace(draft, best)


def checksum(about: str, tensors: Arrays, progress: Callable[[], None] = lambda: None) -> int:
    """The CRC32 of a text and of tensors, in their order."""
    crc = zlib.crc32(about.encode())
    for name, values in tensors.items():
        crc = zlib.crc32(f"{name} {values.dtype} {values.shape}".encode(), crc)
        flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        for at in range(0, len(flat), WRITE_STEP):
            crc = zlib.crc32(flat[at : at + WRITE_STEP].data, crc)
            progress()
    return crc
