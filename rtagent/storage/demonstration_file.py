"""Demonstrations: episodes that somebody else played, one safetensors file each.

Why it is correct. A file is there whole or not at all (`atomic_write.py`), and a CRC32 over it all
finds what the disk did to it later. Its size is looked at before its content, and the content is
not compressed, so no file can take more memory than its own size. Whatever is wrong with one is
found before any of it is used.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from rtagent.errors import UserError, first_line, reason_of
from rtagent.files.atomic_write import atomic_write
from rtagent.memory.ledger import TERMINATED, TRUNCATED
from rtagent.storage.checkpoint import checksum

SUFFIX = ".demo"
FORMAT = 1
LARGEST = 1 << 30
"""Bytes of the largest file: 42 minutes of a Game Boy's pictures. A folder may hold many."""

_ABOUT, _CRC = "rtagent-demonstration", "crc32"
_COLUMNS = ("frames", "actions", "rewards", "flags", "episodes")
_ROW_BYTES = 13
"""Bytes of a tick's reward, flags and episode."""
_HEADER_ROOM = 1 << 20


@dataclass(frozen=True)
class Outline:
    """Environment, length and shapes of a demonstration; known without reading its content.

    Attributes:
        environment: id of the environment that it was recorded in.
        ticks: its length.
        frame_shape: shape of one frame, without the stack.
        frame_dtype: "uint8" or "float32".
        action_shape: () for an index, (n,) for a vector.
        action_dtype: "int32" or "float32".
        action_meanings: a word for each discrete action; empty if unknown.
        cartridge: of the environment; empty if it has none, or if it is unknown.
    """

    environment: str
    ticks: int
    frame_shape: tuple[int, ...]
    frame_dtype: str
    action_shape: tuple[int, ...]
    action_dtype: str
    action_meanings: tuple[str, ...]
    cartridge: str = ""


@dataclass(frozen=True)
class Demonstration:
    """One or more recorded episodes of play, tick by tick.

    The first tick of an episode is its reset: the no-op, reward 0.

    Attributes:
        environment: id of the environment that it was recorded in.
        frames: (n, *frame_shape) uint8 or float32, what was seen after each tick.
        actions: (n,) int32 or (n, k) float32, what was executed at the tick and led to its frame.
        rewards: (n,) float32.
        flags: (n,) uint8, `TERMINATED` and `TRUNCATED` of the ledger.
        episodes: (n,) int64, never decreasing; another one after each tick with flags.
        action_meanings: a word for each discrete action; empty if unknown.
        cartridge: as in `Outline`.

    Raises:
        UserError: a column is wrong; the line says which and why.
    """

    environment: str
    frames: npt.NDArray[Any]
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[np.float32]
    flags: npt.NDArray[np.uint8]
    episodes: npt.NDArray[np.int64]
    action_meanings: tuple[str, ...] = ()
    cartridge: str = ""

    def __post_init__(self) -> None:
        fault = _fault(self)
        if fault:
            raise UserError(fault)

    @property
    def outline(self) -> Outline:
        """Its environment, length and shapes."""
        return Outline(
            self.environment, len(self.rewards), self.frames.shape[1:], str(self.frames.dtype),
            self.actions.shape[1:], str(self.actions.dtype), self.action_meanings, self.cartridge,
        )


class DemonstrationWriter:
    """Gathers ticks in memory.

    Args:
        environment: id of the environment that is played.
        action_meanings: a word for each discrete action; empty if unknown.
        cartridge: as in `Outline`.
    """

    def __init__(
        self, environment: str, action_meanings: tuple[str, ...] = (), cartridge: str = ""
    ) -> None:
        self._environment, self._cartridge = environment, cartridge
        self._action_meanings = action_meanings
        self._frames: list[npt.NDArray[Any]] = []
        self._rest: list[tuple[Any, float, int, int]] = []
        self._bytes = 0

    @property
    def ticks(self) -> int:
        """Ticks gathered so far."""
        return len(self._rest)

    def has_room(self, ticks: int) -> bool:
        """Whether a file could hold so many further ticks."""
        each = self._bytes // max(1, self.ticks)
        return self._bytes + ticks * each + _HEADER_ROOM <= LARGEST

    def check_room(self, ticks: int) -> None:
        """Raise a UserError unless a file could hold so many further ticks."""
        if not self.has_room(ticks):
            raise UserError(
                f"a demonstration may have {LARGEST >> 20} MiB; {self.ticks} ticks are recorded"
            )

    def add(
        self, frame: npt.NDArray[Any], action: Any, reward: float, flags: int, episode: int
    ) -> None:
        """Take in one tick.

        Args:
            frame: what is seen after it, uint8 or float32; copied.
            action: what was executed at it, an index from 0 or a flat vector.
            reward: what it gave.
            flags: `TERMINATED`, `TRUNCATED`.
            episode: number of its episode.

        Raises:
            UserError: a file could not hold it.
        """
        self.check_room(1)
        self._frames.append(frame.copy())
        self._rest.append((np.array(action), reward, flags, episode))
        self._bytes += frame.nbytes + 4 * np.size(action) + _ROW_BYTES

    def truncate(self) -> None:
        """Mark the last tick as truncated, unless its episode is over."""
        if self._rest:
            action, reward, flags, episode = self._rest[-1]
            self._rest[-1] = action, reward, flags or TRUNCATED, episode

    def demonstration(self) -> Demonstration:
        """The ticks gathered so far; raises a UserError if they are no demonstration."""
        if not self._rest:
            raise UserError("a demonstration needs at least one tick")
        actions, rewards, flags, episodes = zip(*self._rest, strict=True)
        executed = np.stack(actions)
        return Demonstration(
            self._environment, np.stack(self._frames),
            executed.astype(np.int32 if executed.dtype.kind in "iu" else np.float32),
            np.array(rewards, np.float32), np.array(flags, np.uint8), np.array(episodes, np.int64),
            self._action_meanings, self._cartridge,
        )

    def save(self, path: Path) -> None:
        """Write the ticks gathered so far, as `save_demonstration` does."""
        save_demonstration(path, self.demonstration())


def save_demonstration(path: Path, demonstration: Demonstration) -> None:
    """Write a demonstration, whole or not at all.

    Args:
        path: ends in `.demo`, in a folder that is there.

    Raises:
        UserError: it cannot be written; what had the name before is as it was.
    """
    if path.suffix != SUFFIX:
        raise UserError(f"{path}: the name of a demonstration ends in {SUFFIX}")
    about = json.dumps({
        "format": FORMAT, "environment": demonstration.environment,
        "action_meanings": demonstration.action_meanings, "cartridge": demonstration.cartridge,
    })
    columns = {name: np.ascontiguousarray(getattr(demonstration, name)) for name in _COLUMNS}
    metadata = {_ABOUT: about, _CRC: f"{checksum(about, columns):08x}"}
    payload = to_bytes(columns, metadata)
    if len(payload) > LARGEST:
        raise UserError(
            f"{path}: {len(payload) >> 20} MiB, and a demonstration may have {LARGEST >> 20} MiB"
        )
    try:
        with atomic_write(path, ".demonstration-") as write:
            write(payload)
    except OSError as error:
        raise UserError(f"cannot write the demonstration {path}: {reason_of(error)}") from error


def load_demonstration(path: Path) -> Demonstration:
    """Read a demonstration and check that it is whole.

    Raises:
        UserError: it is gone, damaged, too large or no demonstration; the line says why.
    """
    with _opened(path) as (file, outline, about):
        columns = {name: file.get_tensor(name) for name in _COLUMNS}
        if int(file.metadata()[_CRC], 16) != checksum(about, columns):
            raise UserError("damaged (wrong checksum)")
        return Demonstration(
            outline.environment, **columns, action_meanings=outline.action_meanings,
            cartridge=outline.cartridge,
        )


def outline_of(path: Path) -> Outline:
    """The outline of a file, without reading its content.

    Raises:
        UserError: it is gone, too large or no demonstration; the line says why.
    """
    with _opened(path) as (_, outline, _):
        return outline


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Outline, str]]:
    """Gives the file, its outline, and the text of its metadata; names the file in errors."""
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise UserError("not a file")
        if about.st_size > LARGEST:
            raise UserError(f"{about.st_size >> 20} MiB, and {LARGEST >> 20} MiB are the most")
        with safe_open(str(path), framework="np") as file:
            text = (file.metadata() or {}).get(_ABOUT)
            if text is None:
                raise UserError("no demonstration")
            yield file, _outline(file, text), text
    except UserError as error:
        raise UserError(f"the demonstration {path} cannot be used: {error}") from None
    except OSError as error:
        raise UserError(f"the demonstration {path} cannot be read: {reason_of(error)}") from error
    except (
        AttributeError, SafetensorError, LookupError, TypeError, ValueError, RecursionError
    ) as error:
        raise UserError(f"the demonstration {path} is damaged ({first_line(error)})") from error


def _outline(file: Any, text: str) -> Outline:
    values = json.loads(text)
    if values["format"] != FORMAT:
        raise UserError(
            f"it has format {values['format']}, and this version reads {FORMAT}: use the version "
            "that wrote it"
        )
    shapes = {name: tuple(file.get_slice(name).get_shape()) for name in _COLUMNS}
    kinds = {"U8": "uint8", "F32": "float32", "I32": "int32"}
    frames, actions = (
        kinds.get(file.get_slice(name).get_dtype(), "unknown") for name in ("frames", "actions")
    )
    return Outline(
        str(values["environment"]), shapes["rewards"][0],
        shapes["frames"][1:], frames, shapes["actions"][1:], actions,
        tuple(str(word) for word in values["action_meanings"]),
        # Older files do not name it.
        str(values.get("cartridge", "")),
    )


def _fault(demonstration: Demonstration) -> str:
    """What is wrong with a demonstration; empty if nothing is."""
    columns = {name: getattr(demonstration, name) for name in _COLUMNS}
    kinds = {
        "frames": ("uint8", "float32"), "actions": ("int32", "float32"), "rewards": ("float32",),
        "flags": ("uint8",), "episodes": ("int64",),
    }
    for name, values in columns.items():
        if str(values.dtype) not in kinds[name]:
            return f"its {name} are {values.dtype}, expected {' or '.join(kinds[name])}"
        if values.ndim < 1 + (name == "frames"):
            return f"its {name} have the shape {values.shape}"
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        return f"its columns differ in length ({lengths})"
    if not lengths["frames"]:
        return "it has no ticks"
    for name in ("rewards", "flags", "episodes"):
        if columns[name].ndim != 1:
            return f"its {name} have the shape {columns[name].shape}"
    for name in ("frames", "actions", "rewards"):
        # Not of integers: the check would take as much memory as they do.
        if columns[name].dtype == np.float32 and not np.isfinite(columns[name]).all():
            return f"its {name} are not all finite"
    if (columns["flags"] & ~np.uint8(TERMINATED | TRUNCATED)).any():
        return "its flags are not those of a tick"
    episodes = columns["episodes"]
    if episodes[0] < 0 or (np.diff(episodes) < 0).any():
        return "the numbers of its episodes decrease"
    if (columns["flags"][:-1].astype(bool) & (np.diff(episodes) == 0)).any():
        return "one of its episodes goes on after its end"
    return _fault_of_actions(demonstration.actions, demonstration.action_meanings)


def _fault_of_actions(actions: npt.NDArray[Any], meanings: tuple[str, ...]) -> str:
    discrete = actions.dtype == np.int32
    if actions.ndim != (1 if discrete else 2):
        return f"its actions are {actions.dtype} and have the shape {actions.shape}"
    if not discrete:
        return ""
    if actions.min() < 0 or (meanings and actions.max() >= len(meanings)):
        most = f"; it has {len(meanings)}" if meanings else ""
        return f"its actions go from {actions.min()} to {actions.max()}{most}"
    return ""
