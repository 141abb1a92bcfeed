"""The frame ring: one copy of each frame in the whole system.

It is at once what inference reads, what learners sample and what the dashboard shows.

Why it is correct. It is a `StampedRing` that only the environment process writes. An item is the
pixels and the first frame of the episode, so a stack is clamped by what its newest frame says, and
believed if every frame of it held. Learners check the whole batch in the same way.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.memory.arena import private_memory
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.records import whole_cache_lines
from rtagent.memory.ring import CONTROL_BYTES, StampedRing
from rtagent.memory.wakeup import Doorbell

Frames = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]


class FrameRing(StampedRing):
    """The ring of frames.

    Args:
        buffer: `FrameRing.size(...)` writable bytes.
        blueprint: shape and type of a frame, frames per observation.
        capacity: slots.
    """

    def __init__(self, buffer: memoryview, blueprint: Blueprint, capacity: int) -> None:
        stamps_at, starts_at, frames_at = (at for at, _ in self.arrays(blueprint, capacity))
        super().__init__(buffer, np.frombuffer(buffer, "<i8", capacity, stamps_at))
        self.stack = blueprint.frame_stack
        self.bell = Doorbell(buffer, 8)
        self.episode_starts = np.frombuffer(buffer, "<i8", capacity, starts_at)
        count = capacity * prod(blueprint.frame_shape)
        frames = np.frombuffer(buffer, blueprint.frame_dtype, count, frames_at)
        # One block without gaps: gathering from a strided view would copy all of it first.
        self.frames: Frames = frames.reshape(capacity, *blueprint.frame_shape)
        self.slot_bytes = 16 + blueprint.frame_bytes

    @classmethod
    def private(cls, blueprint: Blueprint, capacity: int) -> FrameRing:
        """An empty ring that only this process uses."""
        memory = private_memory(cls.size(blueprint, capacity))
        cls.format(memory)
        return cls(memory, blueprint, capacity)

    @staticmethod
    def size(blueprint: Blueprint, capacity: int) -> int:
        """Bytes for `capacity` frames."""
        start, frame_bytes = FrameRing.arrays(blueprint, capacity)[-1]
        return start + capacity * frame_bytes

    @staticmethod
    def arrays(blueprint: Blueprint, capacity: int) -> list[tuple[int, int]]:
        """Where the slots' stamps, episode starts and frames begin, and the bytes of each slot."""
        frames_at = CONTROL_BYTES + whole_cache_lines(16 * capacity)
        return [
            (CONTROL_BYTES, 8), (CONTROL_BYTES + 8 * capacity, 8),
            (frames_at, blueprint.frame_bytes),
        ]

    def publish(self, number: int, frame: Frames, episode_start: int) -> None:
        """Write frame `number` and wake the processes that wait for it. Only the environment.

        Args:
            number: the tick.
            frame: of the blueprint's shape and type.
            episode_start: the first frame of the episode.
        """
        slot = self._begin(number)
        self.frames[slot] = frame
        self.episode_starts[slot] = episode_start
        self._publish(number)
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
        if not self.floor <= number <= self.newest:
            return False
        start = int(self.episode_starts[number % self.capacity])
        if start > number:
            # The slot's next frame, of a later episode, has just replaced this one.
            return False
        wanted = [max(each, start) for each in range(number + 1 - self.stack, number + 1)]
        for index, each in enumerate(wanted):
            out[index] = self.frames[each % self.capacity]
        return self.holds(*wanted)

    def episode_start(self, number: int) -> int:
        """The first frame of the episode of frame `number`, which has just been read."""
        return int(self.episode_starts[number % self.capacity])

    def frame(self, number: int) -> Frames | None:
        """A copy of one frame; None if it is gone."""
        if not self.floor <= number <= self.newest:
            return None
        frame = self.frames[number % self.capacity].copy()
        return frame if self.holds(number) else None

    def read(
        self, numbers: Ints, out: Frames | None = None
    ) -> tuple[Frames, Ints, npt.NDArray[np.bool_]]:
        """Copies of several frames.

        Args:
            numbers: (n,) of frames that have been announced.
            out: (n, *frame_shape), filled. If None, new memory is.

        Returns:
            Frames (n, *frame_shape), the first frames of their episodes (n,), and which are whole.
        """
        slots = numbers % self.capacity
        # No slot is outside; NumPy would make a further copy to be able to say so.
        frames = self.frames.take(slots, axis=0, out=out, mode="clip")
        starts = self.episode_starts[slots]
        return frames, starts, self.hold(numbers)
