"""Copies the stacks of a batch, which lie scattered in the frame ring.

Why it is correct. The environment goes on writing meanwhile, and the supervisor may return memory.
The writer marks a slot before it touches the pixels, and the floor is raised before memory goes
(`frames.py`, `ring.py`). So a frame is the wanted one if, after the copy, its slot still carries
its number, and the number is not below the oldest of the ring. Both ways of copying have a fence
between the copy and the look at the number (`ordering.py`). The frames that are wanted must have
been announced before: whoever names them has seen `newest`.

Copying is most of what sampling costs, and it is waiting for memory; the compiled copy asks for the
next piece in advance. Where there was no C compiler at the installation, NumPy copies.
"""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from rtagent.memory.compiled import Function, compiled
from rtagent.memory.frames import FrameRing, Frames
from rtagent.memory.ring import GUARD_TICKS

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def prepare_gather(ring: FrameRing, numbers: Ints, out: Frames) -> Gather:
    """A copy of the stacks that end with the given frames, and of the frames that come next.

    Frames before the start of the episode are replaced by its first one.

    Args:
        ring: the shared frames.
        numbers: (B,) frame numbers, read at each run of the copy.
        out: (B, length, *frame_shape), contiguous, filled at each run; length is at most that of
            two stacks. The frames that follow the stack must be of the same episode.

    Raises:
        ValueError: the arrays have gaps, or do not go together.
    """
    whole = numbers.flags.c_contiguous and out.flags.c_contiguous
    if (
        not whole or numbers.dtype != np.int64 or out.dtype != ring.frames.dtype
        or out.shape[:1] != numbers.shape or out.shape[2:] != ring.frames.shape[1:]
    ):
        raise ValueError(f"no room for {numbers.shape} runs of frames in {out.shape}, {out.dtype}")
    function = compiled("rtagent_gather")
    return CompiledGather(function, ring, numbers, out) if function else Gather(ring, numbers, out)


class Gather:
    """A copy of runs of frames out of the ring, prepared once and made often.

    Made by `prepare_gather`; this class copies one frame after the other.

    Attributes:
        right: (B, length) which frames were the wanted ones.
    """

    def __init__(self, ring: FrameRing, numbers: Ints, out: Frames) -> None:
        self._ring = ring
        self._numbers = numbers
        self._frames = ring.frames.reshape(ring.capacity, -1)
        self._out = out.reshape(-1, self._frames.shape[1])
        self._offsets = np.arange(out.shape[1]) + (1 - ring.stack)
        self.right: Flags = np.empty(out.shape[:2], np.bool_)

    def run(self) -> bool:
        """Copy, and say whether all frames were the wanted ones."""
        ring, numbers = self._ring, self._numbers
        starts = ring.episode_starts.take(numbers % ring.capacity)
        # The slot of a lost frame has its successor's start, which lies after the frame: then the
        # frame itself is wanted, and is not found.
        starts = np.minimum(starts, numbers)
        wanted = np.maximum(numbers[:, None] + self._offsets, starts[:, None])
        slots = wanted % ring.capacity
        self._frames.take(slots.ravel(), axis=0, out=self._out, mode="clip")
        self.right[:] = ring.hold(wanted)
        self.right &= wanted >= ring.oldest
        return bool(self.right.all())


class _Job(ctypes.Structure):
    """`struct job` of `gather.c`."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in (
            "newest", "floor", "numbers", "episode_starts", "frames", "wanted", "out", "right",
        )),
        *((name, ctypes.c_int64) for name in (
            "capacity", "frame_bytes", "stack", "guard", "count", "length",
        )),
    )


class CompiledGather(Gather):
    """Copies consecutive frames at once, in C, while the next are fetched from memory."""

    def __init__(self, function: Function, ring: FrameRing, numbers: Ints, out: Frames) -> None:
        super().__init__(ring, numbers, out)
        self._function = function
        self._job = _Job(
            *ring.control_addresses, ring.stamps.ctypes.data, ring.episode_starts.ctypes.data,
            ring.frames.ctypes.data, numbers.ctypes.data, out.ctypes.data, self.right.ctypes.data,
            ring.capacity, ring.frames[0].nbytes, ring.stack, GUARD_TICKS, *out.shape[:2],
        )
        self._address = ctypes.addressof(self._job)

    def run(self) -> bool:
        return self._function(self._address) == 0
