"""What an inference of a recurrent policy begins with, and what it leaves to others."""

from __future__ import annotations

from rtagent.memory.array_buffer import Floats
from rtagent.memory.policy_states import Beginning, PolicyStates
from rtagent.memory.world import World


class CarriedState:
    """The state of one inference at a time; see `memory/policy_states.py`.

    Args:
        world: of the run.
        states: of the run.
        worker: number of the process.
    """

    def __init__(self, world: World, states: PolicyStates, worker: int) -> None:
        self._frames, self._states, self._worker = world.frames, states, worker
        self._control = world.control
        self._under_way: tuple[int, Beginning] | None = None
        self._left: Floats | None = None

    def begin(self, frame: int) -> Floats:
        """The state that an inference on a frame begins with; the same until it has ended."""
        if self._under_way is None or self._under_way[0] != frame:
            start = self._frames.episode_start(frame)
            rows = self._control.desired.rows
            self._under_way = frame, self._states.begin(self._worker, rows, frame, start)
        return self._under_way[1].state

    def end(self, left: Floats) -> None:
        """The inference has been computed; nobody is told before `publish`."""
        self._left = left

    def publish(self) -> None:
        """The inference is over: let others begin with what it has left."""
        if self._under_way is not None and self._left is not None:
            self._states.keep(self._worker, *self._under_way, self._left)
        self._under_way = self._left = None
