"""Checkpoints: one safetensors file each, whole or not there, and checked before use.

Why it is correct. A checkpoint is there whole or not at all (`whole_file.py`); a crash at any
instant leaves the older ones as they were. A CRC32 over metadata and tensors finds what the disk
did to it later. Which one is the newest stands in its name: the wall clock, and with it the time
of a file, may be set back between two checkpoints. Only numpy is needed here, so the supervisor can
check a checkpoint before it starts anything.
"""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.memory.blueprint import Blueprint
from rtagent.whole_file import appearing

FORMAT = 1
KEEP = 3
WRITE_STEP = 8 << 20

Arrays = Mapping[str, npt.NDArray[Any]]

_NAME = re.compile(r"checkpoint-(?:(\d{6,})-)?(\d{12,})\.safetensors")
"""Number of the checkpoint (older versions gave none), updates behind it."""
_ADVICE = "move it away, or start with --set run.resume=false"


class CheckpointError(UserError):
    """A checkpoint cannot be written, read or used."""


@dataclass(frozen=True)
class Signature:
    """What a checkpoint's weights fit.

    Attributes:
        environment: its id.
        network: name and width, or the factory.
        observation: shape and type of a stacked observation.
        action: the action space.
    """

    environment: str
    network: str
    observation: str
    action: str


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
class Checkpoint:
    """A checkpoint in memory.

    Attributes:
        signature: what it fits.
        counters: how far it is.
        tensors: `online.<name>`, `target.<name>` and the optimizer's, as numpy arrays.
    """

    signature: Signature
    counters: Counters
    tensors: Arrays


def signature(config: Config, blueprint: Blueprint) -> Signature:
    """What the weights of this run fit."""
    shape = (blueprint.frame_stack, *blueprint.frame_shape)
    return Signature(
        config.env.id,
        blueprint.network,
        f"{'x'.join(map(str, shape))} {blueprint.frame_dtype}",
        " ".join(str(blueprint.action_space).split()),
    )


def save(
    folder: Path,
    checkpoint: Checkpoint,
    *,
    keep: int = KEEP,
    progress: Callable[[], None] = lambda: None,
) -> Path:
    """Write a checkpoint and remove the oldest ones, never the new one.

    Args:
        folder: made if it is not there.
        checkpoint: what to write.
        keep: checkpoints that remain.
        progress: called between pieces of the work, for the heartbeat.

    Returns:
        The new file.

    Raises:
        CheckpointError: it cannot be written; the older ones are as they were.
    """
    about = json.dumps(
        {
            "format": FORMAT,
            "signature": asdict(checkpoint.signature),
            "counters": asdict(checkpoint.counters),
        },
        sort_keys=True,
    )
    crc = _checksum(about, checkpoint.tensors, progress)
    payload = to_bytes(dict(checkpoint.tensors), {"rtagent": about, "crc32": f"{crc:08x}"})
    progress()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        number = 1 + max((order for order, _, _ in _numbered(folder)), default=0)
        path = folder / f"checkpoint-{number:06d}-{checkpoint.counters.updates:012d}.safetensors"
        _write_whole(path, payload, progress)
        for _, _, old in _numbered(folder)[: -max(1, keep)]:
            old.unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"cannot write a checkpoint into {folder}: {error.strerror or error}; "
            "earlier checkpoints are as they were"
        ) from error
    return path


def listing(folder: Path) -> list[dict[str, Any]]:
    """The checkpoints of a folder, newest first: file, updates, bytes, age_s."""
    # A file's time is on the wall clock, so its age can only be told from there.
    now = time.clock_gettime(time.CLOCK_REALTIME)
    listed = []
    for _, updates, path in reversed(_numbered(folder)):
        # The oldest is removed whenever a new one is written.
        with suppress(FileNotFoundError):
            about = path.stat()
            listed.append(
                {
                    "file": path.name,
                    "updates": updates,
                    "bytes": about.st_size,
                    "age_s": max(0.0, now - about.st_mtime),
                }
            )
    return listed


def newest(folder: Path) -> Path | None:
    """The checkpoint written last; none if there is none."""
    found = _numbered(folder)
    return found[-1][2] if found else None


def load(path: Path) -> Checkpoint:
    """Read a checkpoint and check that it is whole.

    Args:
        path: the file.

    Raises:
        CheckpointError: it is corrupt, or of another version of the format.
    """
    try:
        with safe_open(str(path), framework="np") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = metadata["rtagent"]
        crc = int(metadata["crc32"], 16)
    except FileNotFoundError:
        raise CheckpointError(f"the checkpoint {path} is gone; {_ADVICE}") from None
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"the checkpoint {path} is corrupt ({reason}); {_ADVICE}") from error
    if _checksum(about, tensors) != crc:
        raise CheckpointError(f"the checkpoint {path} is corrupt (wrong checksum); {_ADVICE}")
    try:
        values = json.loads(about)
        if values["format"] != FORMAT:
            raise CheckpointError(
                f"the checkpoint {path} has format {values['format']}, and this version reads "
                f"{FORMAT}; {_ADVICE}"
            )
        return Checkpoint(
            Signature(**values["signature"]), Counters(**values["counters"]), tensors
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"the checkpoint {path} is corrupt ({error}); {_ADVICE}") from error


def check(path: Path, wanted: Signature) -> Checkpoint:
    """Read a checkpoint that must fit this run.

    Args:
        path: the file.
        wanted: of this run.

    Raises:
        CheckpointError: it is corrupt, or belongs to something else.
    """
    checkpoint = load(path)
    for name, mine in asdict(wanted).items():
        theirs = getattr(checkpoint.signature, name)
        if theirs != mine:
            raise CheckpointError(
                f"the checkpoint {path} belongs to the {name} {theirs}, not {mine}; use another "
                "--state-dir, or start with --set run.resume=false"
            )
    return checkpoint


def _numbered(folder: Path) -> list[tuple[int, int, Path]]:
    """Number, updates and path of the checkpoints of a folder, oldest first.

    Not by their updates: a run that started anew in the same folder counts them from 0.
    """
    try:
        found = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    return sorted((int(name[1] or 0), int(name[2]), path) for name, path in found if name)


def _write_whole(path: Path, payload: bytes, progress: Callable[[], None]) -> None:
    view = memoryview(payload)
    with appearing(path, ".checkpoint-") as write:
        for at in range(0, len(view), WRITE_STEP):
            write(view[at : at + WRITE_STEP])
            progress()
    progress()


def _checksum(about: str, tensors: Arrays, progress: Callable[[], None] = lambda: None) -> int:
    crc = zlib.crc32(about.encode())
    for name in sorted(tensors):
        crc = zlib.crc32(f"{name} {tensors[name].dtype} {tensors[name].shape}".encode(), crc)
        flat = np.ascontiguousarray(tensors[name]).reshape(-1).view(np.uint8)
        for at in range(0, len(flat), WRITE_STEP):
            crc = zlib.crc32(flat[at : at + WRITE_STEP].data, crc)
            progress()
    return crc
