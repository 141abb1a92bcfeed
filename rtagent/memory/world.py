"""All shared memory of one run: laid out by the supervisor, mapped by every process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rtagent.config import Config
from rtagent.memory.actions import ActionCells
from rtagent.memory.arena import PAGE, Arena, ArenaHandle, check_memory
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.board import Board
from rtagent.memory.cells import JsonCell
from rtagent.memory.claim_lock import ClaimLock
from rtagent.memory.control import Control
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import Ledger
from rtagent.memory.weights import WeightBuffers
from rtagent.staggering.state import StaggerState

STATUS_CAPACITY = 512 << 10
RESERVE_AHEAD_TICKS = 3600
"""The rings are reserved at least this far ahead of the write position."""


@dataclass(frozen=True)
class WorldHandles:
    """Everything a worker needs to find its way. Picklable."""

    config: Config
    blueprint: Blueprint
    arenas: dict[str, ArenaHandle]


class WorldMemory:
    """The arenas of one run, owned by the supervisor.

    Raises:
        UserError: the memory, grown to its whole size, is not there.
    """

    def __init__(self, config: Config, blueprint: Blueprint) -> None:
        capacity = config.replay.capacity
        self.rings = {
            "frames": FrameRing.size(blueprint, capacity),
            "ledger": Ledger.size(blueprint, capacity),
        }
        fixed = {
            "weights": WeightBuffers.size(blueprint.parameters),
            "actions": ActionCells.size(blueprint),
            "board": Board.size(),
            "control": Control.size(),
            "stagger": StaggerState.nbytes(),
            "status": JsonCell.size(STATUS_CAPACITY),
            "claims": 1,
        }
        check_memory({**fixed, **self.rings})
        self._capacity = capacity
        self._arenas: dict[str, Arena] = {}
        try:
            for name, size in fixed.items():
                self._arenas[name] = Arena(name, size)
            for name, size in self.rings.items():
                self._arenas[name] = Arena(name, size, sparse=True)
        except BaseException:
            self.close()
            raise
        self.handles = WorldHandles(
            config, blueprint, {name: arena.handle for name, arena in self._arenas.items()}
        )
        self.reserve_ahead(-1)
        self._format()

    def reserve_ahead(self, newest: int) -> None:
        """Reserve the rings ahead of the write position. Called off the hot path.

        Args:
            newest: number of the newest tick.
        """
        filled = min(1.0, (newest + 1 + RESERVE_AHEAD_TICKS) / self._capacity)
        for name, size in self.rings.items():
            header = FrameRing.header_bytes(self._capacity) if name == "frames" else 0
            self._arenas[name].reserve(header + int((size - header) * filled) + PAGE)

    def close(self) -> None:
        """Give up the descriptors."""
        for arena in self._arenas.values():
            arena.close()

    def _format(self) -> None:
        arenas, blueprint = self.handles.arenas, self.handles.blueprint
        FrameRing.format(memoryview(arenas["frames"].map()))
        Ledger.format(memoryview(arenas["ledger"].map()))
        WeightBuffers.format(memoryview(arenas["weights"].map()))
        ActionCells.format(memoryview(arenas["actions"].map()), blueprint)


class World:
    """The shared memory of one run as this process sees it.

    Each structure is mapped when it is first used.

    Args:
        handles: from the supervisor.
    """

    def __init__(self, handles: WorldHandles) -> None:
        self.config = handles.config
        self.blueprint = handles.blueprint
        self._arenas = handles.arenas

    def _map(self, name: str) -> memoryview:
        return memoryview(self._arenas[name].map())

    @cached_property
    def frames(self) -> FrameRing:
        """The frame ring. Writer: the environment."""
        return FrameRing(self._map("frames"), self.blueprint, self.config.replay.capacity)

    @cached_property
    def ledger(self) -> Ledger:
        """The tick ledger. Writer: the environment."""
        return Ledger(self._map("ledger"), self.blueprint, self.config.replay.capacity)

    @cached_property
    def actions(self) -> ActionCells:
        """The action cells. Writer of row i: inference process i."""
        return ActionCells(self._map("actions"), self.blueprint)

    @cached_property
    def weights(self) -> WeightBuffers:
        """The weight buffers. Writer: the learner whose turn it is."""
        return WeightBuffers(self._map("weights"), self.blueprint.parameters)

    @cached_property
    def board(self) -> Board:
        """The metrics board. Writer of each record: its process."""
        return Board(self._map("board"))

    @cached_property
    def control(self) -> Control:
        """The orders. Writer: the supervisor."""
        return Control(self._map("control"))

    @cached_property
    def status(self) -> JsonCell:
        """State of the run and its processes. Writer: the supervisor."""
        return JsonCell(self._map("status"), STATUS_CAPACITY)

    @cached_property
    def stagger(self) -> StaggerState:
        """The staggering state. Writer: whoever holds the claim lock."""
        return StaggerState(self._map("stagger"))

    @cached_property
    def claim_lock(self) -> ClaimLock:
        """The lock of the staggering state."""
        return ClaimLock(self._arenas["claims"])

    def close(self) -> None:
        """Give up the claim lock's descriptor; the mappings go with the last reference."""
        if "claim_lock" in self.__dict__:
            self.claim_lock.close()
