"""The state that an inference of a recurrent policy begins with, and the one that it leaves."""

from __future__ import annotations

from rtagent.memory.array_buffer import Floats
from rtagent.memory.policy_states import Beginning, PolicyStates
from rtagent.memory.world import World


class CarriedState:
    """The state of one inference at a time; see `memory/policy_states.py`.

    Args:
        world: shared memory of the run.
        states: what inferences have left.
        worker: number of the process.
    """

    def __init__(self, world: World, states: PolicyStates, worker: int) -> None:
        self._frames, self._states, self._worker = world.frames, states, worker
        self._control = world.control
        self._under_way: tuple[int, Beginning] | None = None
        self._left: Floats | None = None

    def begin(self, frame: int) -> Floats:
        """The state that an inference on a frame begins with; the same until `publish`."""
        if self._under_way is None or self._under_way[0] != frame:
            start = self._frames.episode_start(frame)
            rows = self._control.desired.rows
            self._under_way = frame, self._states.begin(self._worker, rows, frame, start)
        return self._under_way[1].state

    def end(self, left: Floats) -> None:
        """Keep what the inference has left; other processes see it after `publish`."""
        self._left = left

    def publish(self) -> None:
        """Let other inferences begin with the state that this one has left."""
        if self._under_way is not None and self._left is not None:
            self._states.keep(self._worker, *self._under_way, self._left)
        self._under_way = self._left = None
