"""The frame ring: one copy of each frame in the whole system.

It is at once what inference reads, what learners sample and what the dashboard shows.

Why it is correct. Only the environment process writes. Frame k lives in slot k mod capacity; two
words beside it hold the number of the frame in the slot and the first frame of its episode. The
writer sets the number to -1, writes pixels and start, then sets the number to k: a writer killed
inside leaves a slot that no reader accepts. A reader compares the number before and after its
copy; a slot overwritten meanwhile fails the second comparison. Learners check the whole batch in
the same way. `newest` is an aligned 8-byte word, set after the slot is whole. Between each two of
these steps stands a fence, on both sides (`ordering.py`). Memory below the ring's floor may have
gone back to the system: a reader looks at the floor before and after its copy (`ring.py`).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.memory import ordering
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.ring import CONTROL_BYTES, Ring
from rtagent.memory.wakeup import Doorbell

Frames = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]


class FrameRing(Ring):
    """The ring of frames.

    Args:
        buffer: `FrameRing.size(...)` writable bytes.
        blueprint: shape and type of a frame, frames per observation.
        capacity: slots.
    """

    def __init__(self, buffer: memoryview, blueprint: Blueprint, capacity: int) -> None:
        super().__init__(buffer, capacity)
        self.stack = blueprint.frame_stack
        self.bell = Doorbell(buffer, 8)
        self.numbers = np.frombuffer(buffer, "<i8", capacity, CONTROL_BYTES)
        self.episode_starts = np.frombuffer(buffer, "<i8", capacity, CONTROL_BYTES + 8 * capacity)
        frames = np.frombuffer(
            buffer,
            blueprint.frame_dtype,
            capacity * prod(blueprint.frame_shape),
            self.header_bytes(capacity),
        )
        # One block without gaps: gathering from a strided view would copy all of it first.
        self.frames: Frames = frames.reshape(capacity, *blueprint.frame_shape)
        self.slot_bytes = 16 + blueprint.frame_bytes

    @staticmethod
    def size(blueprint: Blueprint, capacity: int) -> int:
        """Bytes for `capacity` frames."""
        return FrameRing.header_bytes(capacity) + capacity * blueprint.frame_bytes

    @staticmethod
    def header_bytes(capacity: int) -> int:
        """Bytes before the first frame."""
        return CONTROL_BYTES + -(-16 * capacity // 64) * 64

    @staticmethod
    def arrays(blueprint: Blueprint, capacity: int) -> list[tuple[int, int]]:
        """Every array of slots: the byte at which it starts, and the bytes of a slot."""
        return [
            (CONTROL_BYTES, 8),
            (CONTROL_BYTES + 8 * capacity, 8),
            (FrameRing.header_bytes(capacity), blueprint.frame_bytes),
        ]

    def publish(self, number: int, frame: Frames, episode_start: int) -> None:
        """Write frame `number` and wake who waits for it. Only the environment process.

        Args:
            number: the tick.
            frame: of the blueprint's shape and type.
            episode_start: the first frame of the episode.
        """
        slot = number % self.capacity
        self.numbers[slot] = -1
        ordering.fence()
        self.frames[slot] = frame
        self.episode_starts[slot] = episode_start
        ordering.fence()
        self.numbers[slot] = number
        self._announce(number)
        self.bell.ring()

    def observation(self, number: int, out: Frames) -> bool:
        """Copy the stack of frames that ends with frame `number`.

        The stack is clamped at the episode's start: the first frame is repeated.

        Args:
            number: the newest frame of the stack.
            out: (stack, *frame_shape), filled.

        Returns:
            False if any of the frames is gone or was being overwritten; `out` is then undefined.
        """
        capacity, numbers = self.capacity, self.numbers
        slot = number % capacity
        if number < self.floor or numbers[slot] != number:
            return False
        ordering.fence()
        start = int(self.episode_starts[slot])
        if start > number:
            # The slot's next frame, of a later episode, has just replaced this one.
            return False
        wanted = [max(each, start) for each in range(number + 1 - self.stack, number + 1)]
        for index, each in enumerate(wanted):
            out[index] = self.frames[each % capacity]
        ordering.fence()
        whole = all(numbers[each % capacity] == each for each in wanted)
        return whole and wanted[0] >= self.floor

    def frame(self, number: int) -> Frames | None:
        """A copy of one frame; none if it is gone."""
        slot = number % self.capacity
        if number < self.floor or self.numbers[slot] != number:
            return None
        ordering.fence()
        frame = self.frames[slot].copy()
        ordering.fence()
        return frame if self.numbers[slot] == number >= self.floor else None

    def read(self, numbers: Ints) -> tuple[Frames, Ints, npt.NDArray[np.bool_]]:
        """Copies of several frames.

        Args:
            numbers: (n,) of frames that have been announced.

        Returns:
            Frames (n, *frame_shape), the first frames of their episodes (n,), and which are whole.
        """
        slots = numbers % self.capacity
        frames, starts = self.frames[slots], self.episode_starts[slots]
        ordering.fence()
        whole = (self.numbers[slots] == numbers) & (numbers >= self.floor)
        return frames, starts, whole
